"""The sample of mutants in SAMPLE.md: put each into gitlease again, and see that its test fails.

    python tests/mutants/sample.py [NUMBER…]            all, or those in these lines of the table
    python tests/mutants/sample.py --draw SIZE --seed SEED   draw others, and keep no fates

``sample.json`` has them, with the test that catches each. Exit 1 where one escapes.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

FILE, TABLE = (Path(__file__).with_name(name) for name in ("sample.json", "SAMPLE.md"))
FATES = {
    "killed": "a test fails that runs by default",
    "slow": "only a slow test fails",
    "types": "mypy refuses it",
    "equivalent": "it changes nothing that anybody could tell",
    "survived": "nothing notices",
}
SHOWN = 70  # characters of a line


@dataclass(frozen=True, slots=True)
class Drawn:
    """A mutant: the lines of a module, about ``line``, that it changes, and what became of it.

    ``by`` is the test that fails, or why it survives.
    """

    file: str
    line: int
    within: str
    old: str
    new: str
    fate: str = "survived"
    by: str = ""

    @property
    def net(self) -> str:
        return self.by

    def located(self, source: str) -> Drawn:
        """Itself where its lines stand now. ValueError where they are others."""
        lines, old = source.splitlines(), self.old.splitlines()
        places = [n for n in range(len(lines)) if lines[n : n + len(old)] == old]
        if not places:
            raise ValueError(f"{self.file}:{self.line} is not what the mutant was drawn from")
        return replace(self, line=min(places, key=lambda n: abs(n + 1 - self.line)) + 1)

    def applied(self, source: str) -> str:
        """The source of its file with the mutant. ValueError where it cannot be put in."""
        lines, start = source.splitlines(), self.located(source).line - 1
        lines[start : start + len(self.old.splitlines())] = self.new.splitlines()
        return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class Sample:
    """Mutants drawn by a seed."""

    seed: int
    drawn: tuple[Drawn, ...]

    @classmethod
    def read(cls) -> Sample:
        kept = json.loads(FILE.read_text(encoding="utf-8"))
        return cls(kept["seed"], tuple(Drawn(**one) for one in kept["drawn"]))

    def write(self) -> None:
        kept = {"seed": self.seed, "drawn": [asdict(one) for one in self.drawn]}
        text = json.dumps(kept, indent=1, ensure_ascii=False)
        FILE.write_text(f"{text}\n", encoding="utf-8")
        TABLE.write_text(self.table(), encoding="utf-8")

    @property
    def fates(self) -> Counter[str]:
        return Counter(one.fate for one in self.drawn)

    def table(self) -> str:
        """The table for people."""
        counts = "\n".join(
            f"- {self.fates[fate]} {fate}: {meaning}." for fate, meaning in FATES.items()
        )
        rows = [
            f"| {n} | `{one.file.removeprefix('gitlease/')}:{one.line}` | {_changed(one)} "
            f"| {one.fate} | {_cell(one.by.removeprefix('tests/'))} |"
            for n, one in enumerate(self.drawn)
        ]
        head = "| | in | change | fate | by |\n| --- | --- | --- | --- | --- |"
        return f"{INTRODUCTION.format(len(self.drawn), self.seed)}\n{counts}\n\n" + "\n".join(
            [head, *rows, ""]
        )


INTRODUCTION = """\
# A sample of mutants, and what catches them

{} mutants of `core`, `engine`, `guard` and `push`, made by the operators of mutmut at places drawn
by the seed {}, for each module as many as its size asks for. `sample.json` has them whole. This
puts each in again, and sees that its test fails:

    python tests/mutants/sample.py [NUMBER…]

Written by `sample.py`. The lines are those of the source that they were last found in.
"""


def _changed(one: Drawn) -> str:
    pairs = zip(one.old.splitlines() or [""], one.new.splitlines() or [""], strict=False)
    old, new = next((x for x in pairs if x[0] != x[1]), (one.old, one.new))
    return f"{_code(old)} → {_code(new)}"


def _code(line: str) -> str:
    text = line.strip()
    return _cell(text if len(text) <= SHOWN else f"{text[:SHOWN]}…")


def _cell(text: str) -> str:
    shown = text.replace("|", "\\|").replace("\n", " ")
    return f"``{shown}``" if "`" in shown else f"`{shown}`" if shown else ""


def played(numbers: Iterable[int]) -> int:
    """Put these mutants in, one after the other; return how many escaped."""
    from mutants.run import judged
    from mutants.workshop import Workshop

    sample, escaped = Sample.read(), 0
    with tempfile.TemporaryDirectory(prefix="gitlease-sample-") as folder:
        workshop = Workshop(Path(folder))
        for number in numbers:
            one = sample.drawn[number]
            if one.fate != "killed":
                continue
            try:
                ran = workshop.run_with(one)
                why = judged(ran) if ran.code is not None else ""  # it never ends
                escaped += bool(why)
            except ValueError:
                why = "its lines have changed since"
            print(f"{number} {one.file}:{one.line}: {why or 'caught'}", flush=True)
    return escaped


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("numbers", nargs="*", type=int, metavar="NUMBER")
    parser.add_argument("--draw", type=int, metavar="SIZE", help="draw so many others")
    parser.add_argument("--seed", type=int, default=43)
    words = parser.parse_args()
    if words.draw:
        from mutants.catalogue import ROOT
        from mutants.drawing import draw

        Sample(words.seed, tuple(draw(ROOT, words.draw, words.seed))).write()
        return 0
    return 1 if played(words.numbers or range(len(Sample.read().drawn))) else 0


if __name__ == "__main__":
    sys.exit(main())
