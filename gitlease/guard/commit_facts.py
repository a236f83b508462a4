"""What commits did: who stands for them, when, what they touch, and which grants they name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from gitlease.core.errors import Invalid
from gitlease.core.frozen import dataclass, replace
from gitlease.core.instant import LATEST, MS
from gitlease.core.policy import person_key
from gitlease.core.trailers import Authorship, Named, read_trailer
from gitlease.git.history import COMMITS_AT_ONCE, NO_RENAMES, Changed, committed, differs, read
from gitlease.git.message import KEY
from gitlease.git.objects import objects_of
from gitlease.git.repository import Repository, answered, ask, commits_as_words
from gitlease.guard.changes_tasks import (
    TaskParser,
    TaskTouched,
    task_status_changes,
    touched,
)
from gitlease.guard.rules import Touched
from gitlease.settings.sources import Tasks

AT_ONCE = 500  # addresses in the arguments of one process, and commits whose files are kept
SECONDS = 60.0  # for one call of git
LINES = 500  # trailers of one commit that are looked at
SKEW = 60 * MS  # what an author date may lie in the future, as the clocks of two machines may
HOSTS = frozenset({"noreply@github.com"})  # who commits what a host itself merges or squashes

"""What commits change, by their full ids."""

_NAME = KEY.decode()
_TRAILERS = "%(trailers:key={},valueonly,unfold)"
_FIELDS = ("%H", "%P", "%aE", "%ae", "%at", "%cE", "%ce", "%ct")
_FORMAT = "%x00".join((*_FIELDS, _TRAILERS.format(_NAME), _TRAILERS.format("Co-authored-by"), "%B"))
_WIDTH = len(_FIELDS) + 3
_QUIET = ("--no-walk=unsorted", "-s", "-z", "--no-show-signature", "--no-notes", "--no-color")
_ADDRESS = re.compile(r"<([^<>]*)>[^<>]*")
_PLAIN = re.compile(r"[^<>\s\x00-\x1f]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitFacts:
    """What one commit did. Times are the milliseconds at which its seconds begin.

    ``emails`` are those of its people: the author's first, as the project's mailmap has them, and
    then as they wrote them, for a mailmap makes nobody stop being that. ``helpers`` are those of
    the co-authors that its message claims, ``committer`` is the committer's as it was written.
    ``written`` is the author date, ``recorded`` the committer date, None where there is none.
    ``named`` are its trailers, ``mentioned`` the lines like them in the rest of its message, as a
    squash has them, ``unreadable`` the texts of trailers that name nothing. ``only_tasks``: it
    touches nothing but task files.
    """

    id: str
    emails: tuple[str, ...]
    helpers: tuple[str, ...] = ()
    committer: str = ""
    written: int | None
    recorded: int | None
    touched: tuple[Touched, ...] = ()
    named: tuple[Named, ...] = ()
    mentioned: tuple[Named, ...] = ()
    unreadable: tuple[str, ...] = ()
    only_tasks: bool = False
    parents: tuple[str, ...] = ()

    def made(self, now: int) -> int | None:
        """When it was made, as far as anybody can know."""
        if self.written is not None and 0 < self.written <= now + SKEW:
            return self.written
        return self.recorded

    @property
    def dated_by_host(self) -> bool:
        """Whether its author date may be that of a merge by the host: its work may be older."""
        return person_key(self.committer) in HOSTS and self.written == self.recorded


class CommitReader:
    """Reads the commits of one repository.

    Only the mailmap of ``base`` counts, a commit that was there before: who could bring one along
    could be anybody.
    """

    def __init__(self, repository: Repository, tasks: Tasks, *, base: str = "") -> None:
        self._repository, self._tasks, self._base = repository, tasks, base
        self._parser = TaskParser(tasks)

    def read(self, commits: Sequence[str]) -> list[CommitFacts]:
        """What each of some commits did, by their full ids and in their order. Raises Invalid."""
        told = self.people(commits)
        changes = committed(self._repository, commits)
        asked = {email for one in told for email in one.helpers}
        asked |= {p for c in changes.values() for x in c for w in x.lost for p in w.people}
        known = self.canonical(asked)
        found = []
        for start in range(0, len(told), AT_ONCE):
            some = told[start : start + AT_ONCE]
            files = self._task_files({one.id: changes[one.id] for one in some})
            for one in some:
                changed = [_as_known(x, known) for x in changes[one.id]]
                found.append(
                    replace(
                        one,
                        helpers=tuple(known.get(email, email) for email in one.helpers),
                        touched=tuple(touched(changed, files[one.id])),
                        only_tasks=0 < len(files[one.id]) == len(changed),
                    )
                )
        return found

    def differing(self, tip: str) -> frozenset[str] | None:
        """Files in which a commit differs from ``base``; None where that cannot be known."""
        if not self._base:
            return None
        try:
            out = differs(self._repository, self._base, tip, NO_RENAMES)
        except Invalid:
            return None
        return frozenset(one.path for one in read(out))

    def canonical(self, emails: Iterable[str]) -> dict[str, str]:
        """What the project's mailmap makes of addresses."""
        asked = [email for email in dict.fromkeys(emails) if _PLAIN.fullmatch(email)]
        found: dict[str, str] = {}
        for start in range(0, len(asked), AT_ONCE):
            some = asked[start : start + AT_ONCE]
            said = self._ask("check-mailmap", *(f"<{email}>" for email in some))
            lines = said.decode("utf-8", "replace").splitlines()
            if len(lines) == len(some):
                for email, line in zip(some, lines, strict=True):
                    found[email] = line.rpartition("<")[2].removesuffix(">") or email
        return found

    def people(self, commits: Sequence[str]) -> list[CommitFacts]:
        """Who stands for some commits, and what they name, without their changes."""
        found = {}
        for start in range(0, len(commits), COMMITS_AT_ONCE):
            some = commits[start : start + COMMITS_AT_ONCE]
            words = ("log", *_QUIET, "--encoding=none", f"--format=tformat:{_FORMAT}")
            with commits_as_words(some) as (named, source):
                fields = self._ask(*words, *named, "--", source=source).split(b"\0")
            for at in range(0, len(fields) - _WIDTH + 1, _WIDTH):
                one = _read([x.decode("utf-8", "replace") for x in fields[at : at + _WIDTH]])
                found[one.id] = one
        if any(commit not in found for commit in commits):
            raise Invalid("git's answer about commits cannot be read")
        return [found[commit] for commit in commits]

    def _task_files(self, changes: Mapping[str, list[Changed]]) -> dict[str, list[TaskTouched]]:
        objects = objects_of(self._repository)
        return {
            commit: task_status_changes(self._repository, self._tasks, found, objects, self._parser)
            for commit, found in changes.items()
        }

    def _ask(self, *words: str, source: str | None = None) -> bytes:
        """git's answer, by the mailmap of the base and none of the work tree's."""
        mailmap = f"mailmap.blob={self._base}:.mailmap" if self._base else "mailmap.blob="
        settings = ("-c", mailmap, "-c", "trailer.separators=:")
        place = replace(self._repository, toplevel=None)
        said = ask(place, "--bare", *settings, *words, timeout=SECONDS, source=source)
        return answered(said, "the commits cannot be read")


def _as_known(changed: Changed, known: Mapping[str, str]) -> Changed:
    """A change with what people are called beside what they wrote."""

    def named(work: Authorship) -> Authorship:
        called = (known.get(email, email) for email in work.people)
        return replace(work, people=tuple(dict.fromkeys((*called, *work.people))))

    return replace(changed, lost=tuple(map(named, changed.lost))) if changed.lost else changed


def _read(fields: Sequence[str]) -> CommitFacts:
    commit, parents, author, wrote, written, *fields = fields
    committer, signed, recorded, named, helpers, text = fields
    trailers = [value for value in named.split("\n") if value][:LINES]
    lines = (line.rstrip("\r") for line in text.split("\n") if line.startswith(f"{_NAME}: "))
    return CommitFacts(
        id=commit.strip(),
        parents=tuple(parents.split()),
        # A mailmap may map an address with one name only, and a holder's is known without one.
        emails=tuple(dict.fromkeys((author, committer, wrote, signed))),
        committer=signed,
        written=_time(written),
        recorded=_time(recorded),
        named=_named(trailers),
        mentioned=_named(line.removeprefix(f"{_NAME}: ") for line in lines),
        unreadable=tuple(dict.fromkeys(x for x in trailers if read_trailer(x) is None)),
        helpers=tuple(
            found[1] for line in helpers.split("\n")[:LINES] if (found := _ADDRESS.search(line))
        ),
    )


def _named(values: Iterable[str]) -> tuple[Named, ...]:
    read = (read_trailer(value) for value, _ in zip(values, range(LINES), strict=False))
    return tuple(named for named in read if named is not None)


def _time(seconds: str) -> int | None:
    """Milliseconds; None for a date that is none."""
    if not seconds.isascii() or not seconds.isdigit() or len(seconds) > 12:
        return None
    return int(seconds) * MS if int(seconds) * MS <= LATEST else None
