"""What commits did, for their check: who stands for them, when, what they touch and name.

Only the mailmap of what was there before counts: who could bring one along could be anybody.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence

from gitlease.adapters.asking import ask, refusal
from gitlease.adapters.changes import GITLINK, Changed, committed
from gitlease.adapters.changes_tasks import TaskTouched, task_status_changes, touched
from gitlease.adapters.message import KEY
from gitlease.adapters.repository import Repository
from gitlease.adapters.settings import Tasks
from gitlease.adapters.task_scan import OWN, Wanted
from gitlease.domain.deeds import Deed
from gitlease.domain.errors import Invalid
from gitlease.domain.frozen import dataclass, replace
from gitlease.domain.instant import LATEST, MS
from gitlease.domain.trailers import Named, read_trailer
from gitlease.ports_check import Chosen

AT_ONCE = 500  # ids in the arguments of one process
FILES_AT_ONCE = 900  # changed task files whose contents are read in one go
LINES = 500  # trailers of one commit that are looked at
SUBJECT = 200

_NAME = KEY.decode()
_TRAILERS = "%(trailers:key={},valueonly,unfold)"
_FIELDS = ("%H", "%P", "%aE", "%ae", "%at", "%cE", "%ce", "%ct", "%s")
_FORMAT = "%x00".join((*_FIELDS, _TRAILERS.format(_NAME), _TRAILERS.format("Co-authored-by"), "%B"))
_WIDTH = len(_FIELDS) + 3
_QUIET = ("--no-walk=unsorted", "-s", "-z", "--no-show-signature", "--no-notes", "--no-color")
_ADDRESS = re.compile(r"<([^<>]*)>[^<>]*")
_PLAIN = re.compile(r"[^<>\s\x00-\x1f]+")


@dataclass(frozen=True, slots=True)
class _Said:
    """What a commit says of itself."""

    id: str
    merge: bool
    emails: tuple[str, ...]
    committer: str
    written: int | None
    recorded: int | None
    subject: str
    named: tuple[Named, ...]
    mentioned: tuple[Named, ...]
    unreadable: tuple[str, ...]
    helpers: tuple[str, ...]


class GitCommits:
    """The commits of one repository, or of the store beside it: see ``ports_check.Commits``."""

    def __init__(self, repository: Repository, tasks: Tasks) -> None:
        self._repository, self._tasks = repository, tasks

    def read(self, chosen: Chosen) -> Sequence[Deed]:
        where = self._where(chosen)
        said = self._said(where, chosen)
        helpers = self.canonical(chosen, {email for one in said for email in one.helpers})
        changed = committed(where, chosen.commits)
        files = _task_files(where, self._tasks, changed)
        return [
            Deed(
                id=one.id,
                subject=one.subject,
                emails=one.emails,
                committer=one.committer,
                helpers=tuple(helpers.get(email, email) for email in one.helpers),
                written=one.written,
                recorded=one.recorded,
                merge=one.merge,
                touched=tuple(touched(changed[one.id], [x for x in files[one.id] if x])),
                named=one.named,
                mentioned=one.mentioned,
                unreadable=one.unreadable,
                only_tasks=bool(files[one.id]) and all(files[one.id]),
            )
            for one in said
        ]

    def canonical(self, chosen: Chosen, emails: Iterable[str]) -> Mapping[str, str]:
        asked = [email for email in dict.fromkeys(emails) if _PLAIN.fullmatch(email)]
        found: dict[str, str] = {}
        for start in range(0, len(asked), AT_ONCE):
            some = asked[start : start + AT_ONCE]
            words = ("check-mailmap", *(f"<{email}>" for email in some))
            said = _ask(self._where(chosen), chosen.base, *words)
            lines = said.decode("utf-8", "replace").splitlines()
            if len(lines) == len(some):
                for email, line in zip(some, lines, strict=True):
                    address = line.rpartition("<")[2].removesuffix(">")
                    found[email] = address or email
        return found

    def _where(self, chosen: Chosen) -> Repository:
        return place_of(self._repository, chosen)

    def _said(self, where: Repository, chosen: Chosen) -> list[_Said]:
        found = {}
        for start in range(0, len(chosen.commits), AT_ONCE):
            some = chosen.commits[start : start + AT_ONCE]
            words = ("log", *_QUIET, "--encoding=UTF-8", f"--format=tformat:{_FORMAT}", *some, "--")
            fields = _ask(where, chosen.base, *words).split(b"\0")
            for at in range(0, len(fields) - _WIDTH + 1, _WIDTH):
                one = _read([x.decode("utf-8", "replace") for x in fields[at : at + _WIDTH]])
                found[one.id] = one
        if any(commit not in found for commit in chosen.commits):
            raise Invalid("git's answer about commits cannot be read")
        return [found[commit] for commit in chosen.commits]


def place_of(repository: Repository, chosen: Chosen) -> Repository:
    """The repository with the objects of these commits."""
    place = chosen.place
    if not place:
        return repository
    return replace(
        repository, common_dir=place, git_dir=place, toplevel=None, folder="", worktree=None
    )


def _ask(where: Repository, base: str, *words: str) -> bytes:
    """git's answer, by the mailmap of a commit and none of the work tree's."""
    mailmap = f"mailmap.blob={base}:.mailmap" if base else "mailmap.blob="
    settings = ("-c", mailmap, "-c", "trailer.separators=:")
    said = ask(replace(where, toplevel=None), "--bare", *settings, *words)
    if said.code != 0:
        raise refusal(said, "the commits cannot be read")
    return said.out


def _read(fields: Sequence[str]) -> _Said:
    commit, parents, author, wrote, written, *fields = fields
    committer, signed, recorded, subject, named, helpers, text = fields
    trailers = [value for value in named.split("\n") if value][:LINES]
    lines = (line.rstrip("\r") for line in text.split("\n") if line.startswith(f"{_NAME}: "))
    return _Said(
        id=commit.strip(),
        merge=" " in parents,
        # A mailmap may map an address with one name only, and a holder's is known without one.
        emails=tuple(dict.fromkeys((author, committer, wrote, signed))),
        committer=signed,
        written=_time(written),
        recorded=_time(recorded),
        subject=subject[:SUBJECT],
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


# --- task files ---------------------------------------------------------------------------------


def _task_files(
    where: Repository, tasks: Tasks, changed: Mapping[str, Sequence[Changed]]
) -> dict[str, list[TaskTouched | None]]:
    """What each change of each commit did to a task file; None for any other file.

    Many commits are read in one go, since to open the repository for each would take its time.
    """
    wanted = Wanted(tasks)
    every = [(commit, one) for commit, found in changed.items() for one in found]
    ours = [n for n, (_, one) in enumerate(every) if _is_task(one, wanted)]
    read: dict[int, TaskTouched] = {}
    for start in range(0, len(ours), FILES_AT_ONCE):
        some = ours[start : start + FILES_AT_ONCE]
        found = task_status_changes(where, tasks, [every[n][1] for n in some])
        if [x.path for x in found] != [every[n][1].path for n in some]:
            raise Invalid("the task files of the commits cannot be told apart")
        read.update(zip(some, found, strict=True))
    sides: dict[str, list[TaskTouched | None]] = {commit: [] for commit in changed}
    for n, (commit, _) in enumerate(every):
        sides[commit].append(read.get(n))
    return sides


def _is_task(one: Changed, wanted: Wanted) -> bool:
    """Whether a change has a side that lies where task files lie."""
    before = (one.old or one.path, one.mode_before, one.blob_before)
    after = (one.path, one.mode_after, one.blob_after)
    return any(
        blob and mode != GITLINK and _covers(path, wanted)
        for path, mode, blob in ((after,) if one.kind == "C" else (before, after))
    )


def _covers(path: str, wanted: Wanted) -> bool:
    own = os.path.basename(path).startswith(OWN)
    return not own and any(rule.covers(path) for rule in wanted.rules)
