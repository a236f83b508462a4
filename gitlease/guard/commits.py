"""Facts of commits: their people, the paths that they touch, the tasks and grants in them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from gitlease.guard.history import (
    COMMITS_AT_ONCE,
    GITLINK,
    LINK,
    Changed,
    commits_as_words,
    committed,
    paths_between,
    usual_addresses,
)
from gitlease.kernel.git.files import Unreadable
from gitlease.kernel.git.objects import BLOB, GitObjects, objects_of
from gitlease.kernel.git.repository import Repository, ask
from gitlease.kernel.ledger.ports import TaskProblem
from gitlease.kernel.rules.edge import Addresses, Progress, Task
from gitlease.kernel.rules.errors import Invalid
from gitlease.kernel.rules.frozen import dataclass, replace
from gitlease.kernel.rules.instant import LATEST, MS
from gitlease.kernel.rules.viewpoint import Touched
from gitlease.kernel.rules.work import KEY, Authorship, Named, read_trailer
from gitlease.kernel.settings.schema import Tasks
from gitlease.tasks.scan import MAX_BYTES, Wanted, printable

if TYPE_CHECKING:
    from gitlease.guard.whose import Makers


MAX_READ = 2_000  # task files of one change; the others count by their names alone


@dataclass(frozen=True)
class TaskTouched:
    """A changed task file at ``path``, with its task before and after.

    A side is None if there was no file, or no task. Of an unreadable one, ``keys`` has the folded
    names that it may be about, and ``problem`` the reason (the later side's).
    """

    path: str
    before: Task | None
    after: Task | None
    keys: frozenset[str] = frozenset()
    problem: str = ""

    @property
    def names(self) -> frozenset[str]:
        """The folded names of every task that this file was or is about, or may be."""
        # An unreadable file may be about any of its keys: the guard must not miss its holder.
        return self.keys | {task.resource.key for task in (self.before, self.after) if task}

    @property
    def starts(self) -> bool:
        """Tell whether a task becomes one in progress, or begins as one."""
        if self.after is None or self.after.progress is not Progress.IN_PROGRESS:
            return False
        before = self.before
        # A file that is about another task now starts that one.
        if before is None or before.resource != self.after.resource:
            return True
        return before.progress is not Progress.IN_PROGRESS


def task_status_changes(
    repository: Repository,
    tasks: Tasks,
    changed: Sequence[Changed],
    objects: GitObjects | None = None,
    parser: TaskParser | None = None,
) -> list[TaskTouched]:
    """The changed files that the settings call task files, with their tasks before and after.

    ``objects`` has their blobs, ``parser`` the versions parsed earlier. Raises Invalid for unusable
    settings; an unreadable file is reported in its TaskTouched.
    """
    parser = parser or TaskParser(tasks)
    sides = list[tuple[str, _Side | None, _Side | None]]()
    for change in changed:
        # A copy leaves its source alone.
        blob = "" if change.kind == "C" else change.blob_before
        before = _side(change.old or change.path, change.mode_before, blob, parser.wanted)
        after = _side(change.path, change.mode_after, change.blob_after, parser.wanted)
        if before or after:
            sides.append((change.path, before, after))
    if not sides:
        return []
    both_sides = (side for _, *both in sides for side in both)
    blobs = list(dict.fromkeys(side.blob for side in both_sides if side and not side.is_link))
    objects, allowed = objects or objects_of(repository), set(blobs[:MAX_READ])
    files = []
    for path, *both in sides:
        old, new = (parser.read(side, objects, allowed) for side in both)
        keys, problem = old.keys | new.keys, new.problem or old.problem
        files.append(TaskTouched(path, old.task, new.task, keys, problem))
    return _with_own_past(files)


def touched(changed: Iterable[Changed], task_touched: Iterable[TaskTouched]) -> list[Touched]:
    """Every path that the changes touch, each once: both of a rename, a submodule as a folder."""
    names: dict[str, frozenset[str]] = {}
    for task in task_touched:
        names[task.path] = names.get(task.path, frozenset()) | task.names
    return list(
        merged(
            Touched(path, names.get(change.path, frozenset()), change.is_folder, change.lost)
            for change in changed
            for path in (
                (change.old, change.path) if change.kind == "R" and change.old else (change.path,)
            )
        )
    )


@dataclass(frozen=True)
class _Side:
    file: str
    blob: str
    is_link: bool


def _side(file: str, mode: str, blob: str, wanted: Wanted) -> _Side | None:
    if not blob or mode == GITLINK or not wanted.covers(file):
        return None
    return _Side(file, blob, mode == LINK)


def _with_own_past(files: list[TaskTouched]) -> list[TaskTouched]:
    # A task that moved to another file keeps its own past, whatever git took for a rename.
    moved = {x.before.resource.key: x.before for x in files if x.before and not _same_task(x)}
    pasts = [
        moved.get(x.after.resource.key) if x.after and not _same_task(x) else None for x in files
    ]
    return [
        replace(x, before=p, keys=x.names) if p else x for x, p in zip(files, pasts, strict=True)
    ]


def _same_task(x: TaskTouched) -> bool:
    return bool(x.before and x.after and x.before.resource == x.after.resource)


class _Parsed(NamedTuple):
    """A version of a task file: its task, or a problem and the names that it may be about."""

    task: Task | None = None
    keys: frozenset[str] = frozenset()
    problem: str = ""


class TaskParser:
    """Parses versions of task files, each once."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks, self.wanted = tasks, Wanted(tasks)
        self._known: dict[tuple[str, str], _Parsed] = {}

    def read(self, side: _Side | None, objects: GitObjects, allowed: Collection[str]) -> _Parsed:
        """Parse one side of a change; blobs that are not ``allowed`` are a problem."""
        if side is None:
            return _Parsed()
        if (known := self._known.get((side.file, side.blob))) is not None and not side.is_link:
            return known
        try:
            if side.is_link:
                # Its blob is the path that it leads to, not a task.
                raise Unreadable("is a symbolic link")
            if side.blob not in allowed:
                raise Unreadable(f"was not read: the change has more than {MAX_READ} task files")
            data = objects.read(side.blob, BLOB, MAX_BYTES)
        except Unreadable as error:
            from gitlease.tasks.reading import possible_keys

            keys = possible_keys(b"", file=side.file, tasks=self._tasks)
            return _Parsed(None, keys, f"{printable(side.file)} {error}")
        from gitlease.tasks.reading import value_of

        value = value_of(data, file=side.file, tasks=self._tasks, wanted=self.wanted)
        if isinstance(value, TaskProblem):
            parsed = _Parsed(None, value.keys, value.message)
        else:
            parsed = _Parsed(value)
        self._known[side.file, side.blob] = parsed
        return parsed


SECONDS = 60.0  # for one call of git
LINES = 500  # trailers of one commit that are looked at

_NAME = KEY
_TRAILERS = "%(trailers:key={},valueonly,unfold)"
# %aE and %cE as the mailmap has them, %ae and %ce as they were written.
_FIELDS = ("%H", "%P", "%aE", "%ae", "%at", "%cE", "%ce", "%ct")
_FORMAT = "%x00".join((*_FIELDS, _TRAILERS.format(_NAME), _TRAILERS.format("Co-authored-by"), "%B"))
_WIDTH = len(_FIELDS) + 3
# The person's settings may have git log show signatures, notes and colours among the fields.
_QUIET = ("--no-walk=unsorted", "-s", "-z", "--no-show-signature", "--no-notes", "--no-color")
_ADDRESS = re.compile(r"<([^<>]*)>[^<>]*")


@dataclass(frozen=True, kw_only=True)
class CommitFacts:
    """The facts of one commit. Times are the milliseconds at which its seconds begin.

    ``helpers`` are the emails of the co-authors that its message claims, ``author`` and
    ``committer`` are theirs as they were written. ``written`` is the author date, ``recorded`` the
    committer date, None where there is none. ``named`` are its trailers, ``unreadable`` the texts
    of trailers that name nothing. ``only_tasks``: it touches nothing but task files.
    """

    id: str
    # The author's first, as the project's mailmap has them, and then as people wrote them: a
    # mailmap makes nobody stop being that.
    emails: tuple[str, ...]
    helpers: tuple[str, ...] = ()
    author: str = ""
    committer: str = ""
    written: int | None
    recorded: int | None
    touched: tuple[Touched, ...] = ()
    named: tuple[Named, ...] = ()
    # Lines like trailers in the rest of the message: a squash keeps those of its commits there.
    mentioned: tuple[Named, ...] = ()
    unreadable: tuple[str, ...] = ()
    only_tasks: bool = False
    parents: tuple[str, ...] = ()


class CommitReader:
    """Reads the commits of one repository, with the mailmap of ``base``."""

    def __init__(self, repository: Repository, tasks: Tasks, *, base: str = "") -> None:
        self._repository, self._tasks, self._base = repository, tasks, base
        self._parser, self._bare = TaskParser(tasks), replace(repository, toplevel=None)
        # The mailmap of a commit that was there before: whoever brought one along with the commits
        # could be anybody. With --bare git does not read that of the work tree either.
        mailmap = f"mailmap.blob={base}:.mailmap" if base else "mailmap.blob="
        self._by_mailmap = ("--bare", "-c", mailmap)

    def read(self, commits: Sequence[str]) -> list[CommitFacts]:
        """Read some commits, by their full ids and in their order. Raises Invalid."""
        facts = self.people(commits)
        changes = committed(self._repository, commits)
        asked = {email for fact in facts for email in fact.helpers}
        asked |= {p for c in changes.values() for x in c for w in x.lost for p in w.people}
        known = self.canonical(asked)
        complete = []
        objects = objects_of(self._repository)
        for fact in facts:
            changed = [
                replace(x, lost=tuple(_with_mailmap(w, known) for w in x.lost)) if x.lost else x
                for x in changes[fact.id]
            ]
            files = task_status_changes(
                self._repository, self._tasks, changes[fact.id], objects, self._parser
            )
            complete.append(
                replace(
                    fact,
                    helpers=tuple(known.get(email, email) for email in fact.helpers),
                    touched=tuple(touched(changed, files)),
                    only_tasks=0 < len(files) == len(changed),
                )
            )
        return complete

    def differing(self, tip: str) -> frozenset[str] | None:
        """Files in which a commit differs from ``base``; None where that cannot be known."""
        try:
            return paths_between(self._repository, self._base, tip) if self._base else None
        except Invalid:
            return None

    def canonical(self, emails: Iterable[str]) -> dict[str, str]:
        """Map addresses by the project's mailmap."""
        return usual_addresses(self._bare, emails, self._by_mailmap)

    def makers(
        self, holders: Iterable[str], *, names: Mapping[str, str], bots: Iterable[str]
    ) -> Makers:
        """Know people by the mailmap, by their ``names`` in task files, and as ``bots``."""
        from gitlease.guard.whose import Makers

        canonical = self.canonical((*holders, *names))
        return Makers.of(Addresses(canonical=canonical, names=names), bots)

    def people(self, commits: Sequence[str]) -> list[CommitFacts]:
        """Read the people of some commits and the names in them, without their changes."""
        facts = {}
        for start in range(0, len(commits), COMMITS_AT_ONCE):
            some = commits[start : start + COMMITS_AT_ONCE]
            # Other separators of the person's would make other lines trailers here than elsewhere.
            words = [*self._by_mailmap, "-c", "trailer.separators=:", "log", *_QUIET]
            # Any other encoding would re-encode ids and addresses along with the message.
            words += ["--encoding=none", f"--format=tformat:{_FORMAT}"]
            with commits_as_words(some) as (named, source):
                answer = ask(self._bare, *words, *named, "--", timeout=SECONDS, source=source)
            fields = answer.checked("the commits cannot be read").split(b"\0")
            for at in range(0, len(fields) - _WIDTH + 1, _WIDTH):
                fact = _read([x.decode("utf-8", "replace") for x in fields[at : at + _WIDTH]])
                facts[fact.id] = fact
        # An answer in part would let a commit pass unjudged.
        if any(commit not in facts for commit in commits):
            raise Invalid("git's answer about commits cannot be read")
        return [facts[commit] for commit in commits]


def _with_mailmap(work: Authorship, known: Mapping[str, str]) -> Authorship:
    canonical = (known.get(email, email) for email in work.people)
    return replace(work, people=tuple(dict.fromkeys((*canonical, *work.people))))


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
        author=wrote,
        committer=signed,
        written=_time(written),
        recorded=_time(recorded),
        named=_named(trailers),
        mentioned=_named(line.removeprefix(f"{_NAME}: ") for line in lines),
        unreadable=tuple(dict.fromkeys(x for x in trailers if read_trailer(x) is None)),
        helpers=tuple(
            address[1] for line in helpers.split("\n")[:LINES] if (address := _ADDRESS.search(line))
        ),
    )


def _named(values: Iterable[str]) -> tuple[Named, ...]:
    read = (read_trailer(value) for value, _ in zip(values, range(LINES), strict=False))
    return tuple(named for named in read if named is not None)


def _time(seconds: str) -> int | None:
    # Anybody can write any date into a commit; int() alone would read other scripts' digits, too.
    if not seconds.isascii() or not seconds.isdigit() or len(seconds) > 12:
        return None
    return int(seconds) * MS if int(seconds) * MS <= LATEST else None


def merged(touched: Iterable[Touched]) -> tuple[Touched, ...]:
    """Each path once, with every task that it is or was the file of."""
    by_path: dict[str, Touched] = {}
    for path in touched:
        known = by_path.get(path.path)
        by_path[path.path] = path if known is None else known.joined(path)
    return tuple(by_path.values())
