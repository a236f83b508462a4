"""What the README shows is what happens: its examples are run, in order, in two real clones."""

from __future__ import annotations

import inspect
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
from support.commands import run_program, typed
from support.documents import PAGES
from support.fences import clean_env
from support.remotes import Remote
from support.repos import make_clone

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
# In the order in which a reader goes on; what one page shows, the next may build on.
WITH_EXAMPLES = ("tasks", "git-hooks", "agents", "running", "ci", "format")
EXAMPLE = re.compile(
    r"^<!-- (?:in: (?P<who>\w+)(?:, exit: (?P<exit>\d))?|file: (?P<file>\S+)) -->\n"
    r"```(?:console|markdown)\n(?P<text>.*?)^```",
    re.MULTILINE | re.DOTALL,
)
PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Example:
    """One command of the README: where it is run, how it ends, and what it prints."""

    who: str
    command: str
    exit: int
    shown: str


@dataclass(frozen=True)
class Shown:
    """A file that the README shows: everybody has it from there on."""

    path: str
    text: str


def page(name: str) -> str:
    return PAGES[name].read_text(encoding="utf-8")


def examples() -> Iterator[Example | Shown]:
    text = README.read_text(encoding="utf-8")
    for found in EXAMPLE.finditer(text + "\n" + "\n".join(map(page, WITH_EXAMPLES))):
        if found["file"]:
            yield Shown(found["file"], found["text"])
            continue
        for part in found["text"].split("$ ")[1:]:
            command, _, shown = part.partition("\n")
            yield Example(found["who"], command, int(found["exit"] or 0), shown)


def matches(shown: str, printed: str) -> bool:
    """Whether the output is as shown; ``…`` stands for anything."""
    pattern = ".*?".join(re.escape(part) for part in shown.strip("\n").split("…"))
    return re.fullmatch(pattern, printed.strip("\n"), re.DOTALL) is not None


@pytest.fixture
def clones(path_remote: Remote, tmp_path: Path) -> dict[str, Path]:
    return {
        who: make_clone(path_remote, tmp_path / who, f"{who}@example.com", who)
        for who in ("ada", "bob")
    }


def test_the_examples_do_what_the_readme_shows(clones: dict[str, Path]) -> None:
    assert len(list(examples())) > 8
    for example in examples():
        if isinstance(example, Shown):
            for clone in clones.values():
                (clone / example.path).parent.mkdir(parents=True, exist_ok=True)
                (clone / example.path).write_text(example.text, encoding="utf-8")
            continue
        program, *words = shlex.split(example.command)
        if program == "gitlease":
            ran = typed(clones[example.who], *words)
        else:
            ran = run_program([program, *words], clones[example.who], {})
        said = (ran.stderr + ran.stdout, ran.stdout + ran.stderr)  # as a terminal may show it
        assert ran.returncode == example.exit, (example, said)
        assert any(matches(example.shown, text) for text in said), f"{example}\n{said}"


def test_the_library_examples_run(clones: dict[str, Path]) -> None:
    found = PYTHON.findall(page("library"))
    said = []
    for code in found:  # each is a program of its own
        ran = subprocess.run(
            [sys.executable, "-c", code],
            cwd=clones["ada"],
            env=clean_env({"PYTHONPATH": str(ROOT)}),
            text=True,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        assert (ran.returncode, ran.stderr) == (0, "")
        said.append(ran.stdout.splitlines())
    (first,), named, (second,), (token, *third), looked, awaited, testing = said
    assert first.startswith("1 ")
    assert named == ["path:README.md True"]
    assert second.startswith("4 ")
    assert (int(token) > 6, third) == (True, ["0 True", "0 []"])
    assert looked == [
        "ada@example.com global",
        "for 28800 s at most",
        "extended",
        "True ['global']",
        "[]",
        "()",
    ]
    assert awaited == ["['F008', 'F009']"]
    assert testing == ["ada@example.com", "2"]


SETTING = """
import asyncio
import sys
import gitlease
from gitlease.testing import MemoryLedger
def work(fence: int) -> None: ...
leases = gitlease.open(".")
async def main() -> None:
"""


def shown_in_help() -> Iterator[str]:
    """The examples of the library's own help: what stands indented, each as a program."""
    import gitlease
    import gitlease.testing

    spoken = [gitlease, gitlease.testing, *(getattr(gitlease, x) for x in gitlease.__all__)]
    for said in spoken:
        text = inspect.getdoc(said) or ""
        found = re.findall(r"(?<=\n\n)(?: {4}.*\n|\n(?= {4}))+", text + "\n")
        yield from (block for block in found if "lease" in block)


@pytest.mark.slow
def test_a_strict_type_checker_accepts_every_example(tmp_path: Path) -> None:
    api = pytest.importorskip("mypy.api")
    pages = [README, *PAGES.values()]
    shown = [code for x in pages for code in PYTHON.findall(x.read_text(encoding="utf-8"))]
    helps = [SETTING + x for x in shown_in_help()]
    assert (len(shown) > 4, len(helps) > 3) == (True, True)
    for number, code in enumerate([*shown, *helps]):
        (tmp_path / f"example_{number}.py").write_text(code, encoding="utf-8")
    files = map(str, sorted(tmp_path.glob("*.py")))
    said, failed, _ = api.run(["--strict", "--config-file=", f"--cache-dir={tmp_path}", *files])
    assert (failed, "error" in said) == ("", False), said


def test_every_command_and_exit_code_is_documented() -> None:
    from gitlease.cli.app import application
    from gitlease.verbs.table import CODES

    text = page("commands")
    group = application()
    with click.Context(group) as context:
        for verb in group.list_commands(context):
            assert re.search(rf"^\| .*`{verb}\b", text, re.MULTILINE), verb
    for code in CODES.values():
        assert re.search(rf"^\| {code.exit} \|", text, re.MULTILINE), code


def test_the_readme_is_short_and_leads_to_every_page() -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.encode()) <= 10_240
    linked = re.findall(r"\]\((gitlease/[a-z/-]+\.md)\)", text)
    assert sorted(linked) == sorted(str(file.relative_to(ROOT)) for file in PAGES.values())
    examples_of = [x for x in PAGES if EXAMPLE.search(page(x))]
    assert not set(examples_of) - set(WITH_EXAMPLES), "their examples are run"


def test_links_between_files_lead_to_files() -> None:
    for file in (README, *PAGES.values()):
        links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", file.read_text(encoding="utf-8"))
        assert [x for x in links if not (file.parent / x).exists()] == [], file.name


def test_what_ends_no_command_is_named_where_nothing_is_promised() -> None:
    """The page and the help of ``run`` say it; that it is so, the stories of runs show."""
    from gitlease.runs.verbs import run_verb

    section = page("contract").partition("## What is not promised\n")[2].partition("\n#")[0]
    (point,) = (x for x in re.split(r"^- ", section, flags=re.MULTILINE) if "SIGSTOP" in x)
    for said in (point, run_verb.help or ""):
        for word in ("guardian", "both", "SIGSTOP", "nothing ends it"):
            assert word in said


def test_every_policy_is_documented() -> None:
    from gitlease.kernel.rules.policy import KEYS

    text = page("settings")
    assert [key for key in KEYS if f"`{key}`" not in text] == []
