"""The task files in a change, and the paths that it touches with the tasks they belong to."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from gitlease.core.edge import Progress, Task
from gitlease.core.frozen import dataclass, replace
from gitlease.engine.ports import TaskProblem
from gitlease.git.files import Unreadable
from gitlease.git.history import GITLINK, LINK, Changed
from gitlease.git.repository import Repository
from gitlease.guard.rules import Touched

if TYPE_CHECKING:
    from gitlease.git.objects import GitObjects
    from gitlease.settings.sources import Tasks
    from gitlease.tasks.scan import Wanted

MAX_READ = 2_000  # task files of one change; the others count by their names alone


@dataclass(frozen=True, slots=True)
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
        return self.keys | {task.resource.key for task in (self.before, self.after) if task}

    @property
    def starts(self) -> bool:
        """Whether a task becomes one in progress, or begins as one."""
        if self.after is None or self.after.progress is not Progress.IN_PROGRESS:
            return False
        before = self.before
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
    sides = _sides(changed, parser.wanted)
    if not sides:
        return []
    from gitlease.git.objects import objects_of

    blobs = _blobs(sides)[:MAX_READ]
    objects, allowed = objects or objects_of(repository), set(blobs)
    found = []
    for one, *both in sides:
        before, after = (parser.read(side, objects, allowed) for side in both)
        keys, problem = before.keys | after.keys, after.problem or before.problem
        found.append(TaskTouched(one.path, before.task, after.task, keys, problem))
    return _reunited(found)


def touched(changed: Iterable[Changed], task_touched: Iterable[TaskTouched]) -> list[Touched]:
    """Every path that the changes touch, each once: both of a rename, a submodule as a folder."""
    names: dict[str, frozenset[str]] = {}
    for task in task_touched:
        names[task.path] = names.get(task.path, frozenset()) | task.names
    found: dict[str, Touched] = {}
    for one in changed:
        tasks = names.get(one.path, frozenset())
        for path in (one.old, one.path) if one.kind == "R" and one.old else (one.path,):
            now = Touched(path, tasks, one.is_folder, one.lost)
            known = found.get(path)
            found[path] = now if known is None else known.joined(now)
    return list(found.values())


@dataclass(frozen=True, slots=True)
class _Side:
    file: str
    blob: str
    is_link: bool


Sides = tuple[Changed, _Side | None, _Side | None]


def _sides(changed: Iterable[Changed], wanted: Wanted) -> list[Sides]:
    found = []
    for one in changed:
        old = one.old or one.path
        before = None  # a copy leaves its source alone
        if one.kind != "C":
            before = _side(old, one.mode_before, one.blob_before, wanted)
        after = _side(one.path, one.mode_after, one.blob_after, wanted)
        if before or after:
            found.append((one, before, after))
    return found


def _blobs(sides: Iterable[Sides]) -> list[str]:
    files = (side for _, *both in sides for side in both)
    return list(dict.fromkeys(side.blob for side in files if side and not side.is_link))


def _side(file: str, mode: str, blob: str, wanted: Wanted) -> _Side | None:
    if not blob or mode == GITLINK or not wanted.covers(file):
        return None
    return _Side(file, blob, mode == LINK)


def _reunited(found: list[TaskTouched]) -> list[TaskTouched]:
    # A task that moved to another file keeps its own past, whatever git took for a rename.
    left = {x.before.resource.key: x.before for x in found if x.before and not _same_task(x)}
    again = []
    for x in found:
        past = left.get(x.after.resource.key) if x.after and not _same_task(x) else None
        again.append(replace(x, before=past, keys=x.names) if past else x)
    return again


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
        from gitlease.tasks.scan import Wanted

        self._tasks, self.wanted = tasks, Wanted(tasks)
        self._known: dict[tuple[str, str], _Parsed] = {}

    def read(self, side: _Side | None, objects: GitObjects, allowed: Collection[str]) -> _Parsed:
        """Parse one side of a change; blobs that are not ``allowed`` are a problem."""
        if side is None:
            return _Parsed()
        if (known := self._known.get((side.file, side.blob))) is not None and not side.is_link:
            return known
        from gitlease.git.objects import BLOB
        from gitlease.tasks.scan import MAX_BYTES, printable
        from gitlease.tasks.text import possible_keys, value_of

        try:
            if side.is_link:
                raise Unreadable("is a symbolic link")
            if side.blob not in allowed:
                raise Unreadable(f"was not read: the change has more than {MAX_READ} task files")
            data = objects.read(side.blob, BLOB, MAX_BYTES)
        except Unreadable as error:
            keys = possible_keys(b"", file=side.file, tasks=self._tasks)
            return _Parsed(None, keys, f"{printable(side.file)} {error}")
        value = value_of(data, file=side.file, tasks=self._tasks, wanted=self.wanted)
        if isinstance(value, TaskProblem):
            parsed = _Parsed(None, value.keys, value.message)
        else:
            parsed = _Parsed(value)
        self._known[side.file, side.blob] = parsed
        return parsed
