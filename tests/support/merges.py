"""Merges made at random, and a small oracle that knows who landed what.

Every version of a file is one line that no other has, so that two changes of a file always
conflict, and no file looks like another's new name. All history before a merge is a tree: each
commit has one parent, so that any two have one merge base. The oracle goes by this alone and asks
git for nothing.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from support.repos import git, run_git

HELD = ("src/auth/login.py", "src/auth/token.py", "src/auth/deep/key.py")
FREE = ("docs/guide.md", "src/web/page.py")
PATHS = (*HELD, *FREE)
HOLDER, MERGER = "kim@example.com", "jo@example.com"
PEOPLE = (HOLDER, HOLDER, "lee@example.com", "mo@example.com")
INVENTED = "nobody@example.com"
STRATEGIES = ("-sours", "-Xours", "-Xtheirs", "-soctopus", "-sort")

Files = Mapping[str, str]  # what is not in it is not there


@dataclass(frozen=True, eq=False)
class Made:
    """One commit: whose work it is, what it stands on, what it changed and what there is then.

    ``named``: it has the trailer of the holder's lease.
    """

    number: int
    by: str
    parent: Made | None
    changed: frozenset[str]
    files: Files
    named: bool = False

    def line(self) -> list[Made]:
        """It and all that it stands on, the newest first."""
        return [self, *(self.parent.line() if self.parent is not None else [])]


@dataclass
class Landed:
    """Branches at random, and what the oracle says of a merge of some of them."""

    dice: random.Random
    trailer: str
    made: list[Made] = field(default_factory=list)
    stream: list[str] = field(default_factory=list)
    began: int = field(default_factory=lambda: int(time.time()))  # no work is from before its lease

    def __post_init__(self) -> None:
        self.commit(None, "main", "lee@example.com", PATHS)
        for _ in range(self.dice.randint(2, 5)):
            self.commit(self.made[-1], "main")
        self.main = self.made[-1]
        self.tips = {"main": self.main}
        for name in ("one", "two", "three"):
            tip = self.dice.choice(self.made)
            for _ in range(self.dice.randint(0, 3)):
                tip = self.commit(tip, name)
            self.tips[name] = tip

    def commit(
        self, parent: Made | None, branch: str, by: str = "", paths: Sequence[str] = ()
    ) -> Made:
        by = by or self.dice.choice(PEOPLE)
        files = dict(parent.files) if parent is not None else {}
        changed = paths or self.dice.sample(PATHS, self.dice.randint(1, 2))
        for path in changed:
            if path in files and self.dice.random() < 0.2 and parent is not None:
                del files[path]
            else:
                files[path] = self.text()
        # Whose work it is may stand in nothing but the trailer.
        hidden = by == HOLDER and self.dice.random() < 0.3
        made = Made(len(self.made) + 1, by, parent, frozenset(changed), files, hidden)
        self.made.append(made)
        who = f"Somebody <{INVENTED if hidden else by}> {self.began + made.number} +0000"
        message = f"work\n\n{self.trailer}\n" if hidden else "work\n"
        self.stream += [f"commit refs/heads/{branch}", f"mark :{made.number}"]
        self.stream += [f"author {who}", f"committer {who}", _data(message)]
        self.stream += [f"from :{parent.number}"] if parent is not None else []
        for path in changed:
            there = path in files
            self.stream += [f"M 100644 inline {path}\n{_data(files[path])}"] if there else []
            self.stream += [] if there else [f"D {path}"]
        return made

    def text(self) -> str:
        return f"{self.dice.getrandbits(320):x}\n"

    def put_into(self, bare: Path) -> None:
        """Make these branches those of a repository, whatever it had; past every hook."""
        names = git(bare, "for-each-ref", "--format=%(refname)", "refs/heads").split()
        gone = "".join(f"delete {name}\n" for name in names)
        assert run_git(bare, "update-ref", "--stdin", input=gone).returncode == 0
        resets = [f"reset refs/heads/{n}\nfrom :{tip.number}\n" for n, tip in self.tips.items()]
        stream = "\n".join([*self.stream, *resets, ""])
        done = run_git(bare, "fast-import", "--quiet", "--force", input=stream)
        assert done.returncode == 0, done.stderr

    # --- a merge ----------------------------------------------------------------------------------

    def parents(self) -> list[str]:
        """Two to four branches, main among them; some are named twice."""
        names = ["main", *self.dice.sample(["one", "two", "three"], self.dice.randint(1, 3))]
        names += self.dice.sample(names, 1) if self.dice.random() < 0.2 else []
        self.dice.shuffle(names)
        return names

    def by_hand(self, names: Sequence[str]) -> dict[str, str]:
        """A tree that nobody merged: mostly as some parent has it."""
        tips = [self.tips[name] for name in names]
        alone, _ = merged_alone(tips)
        found = dict(alone)
        for path in PATHS:
            if self.dice.random() < 0.5:
                self.decide(path, found, [tip.files for tip in tips])
        return found

    def decide(self, path: str, files: dict[str, str], sides: Sequence[Files]) -> None:
        """One path of a merge: as a side has it, gone, or something else."""
        kind = self.dice.random()
        chosen = self.dice.choice(sides).get(path)
        text = self.text() if kind > 0.9 else None if kind > 0.85 else chosen
        files.pop(path, None)
        if text is not None:
            files[path] = text

    def broken(self, names: Sequence[str], files: Files) -> set[str]:
        """The held paths that a merge of these branches changes though they are the holder's."""
        tips = list(dict.fromkeys(self.tips[name] for name in names))
        alone, conflicts = merged_alone(tips)
        return {
            path
            for path in HELD
            if (path in conflicts or files.get(path) != alone.get(path))
            and self._gives_up(path, files, tips)
        }

    def landing(self, names: Sequence[str], files: Files) -> set[str]:
        """The held paths that commits change on main which are not known to be the holder's."""
        landed = set(self.main.line())
        new = {one for name in names for one in self.tips[name].line()} - landed
        changed = {path for one in new if not one.named for path in one.changed}
        return {x for x in HELD if x in changed and files.get(x) != self.main.files.get(x)}

    def _gives_up(self, path: str, files: Files, tips: Sequence[Made]) -> bool:
        followed = [tip for tip in tips if tip.files.get(path) == files.get(path)]
        if not followed:
            return True
        kept = {one for tip in followed for one in tip.line()}
        lost = {one for tip in tips for one in tip.line() if tip not in followed} - kept
        return any(one.by == HOLDER and path in one.changed for one in lost)


def merged_alone(tips: Sequence[Made]) -> tuple[Files, set[str]]:
    """What anybody would make of some commits, one after the other, and what conflicts in it."""
    first, *others = dict.fromkeys(tips)
    files, past, conflicts = dict(first.files), set(first.line()), set[str]()
    for other in others:
        base = next(one for one in other.line() if one in past).files
        for path in PATHS:
            ours, theirs, was = files.get(path), other.files.get(path), base.get(path)
            if theirs in (was, ours):
                continue
            if ours != was:
                conflicts.add(path)
            elif theirs is None:
                files.pop(path)
            else:
                files[path] = theirs
        past |= set(other.line())
    return files, conflicts


def _data(text: str) -> str:
    return f"data {len(text.encode())}\n{text}"
