"""What a change does to task files, and what it touches by path and by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from gitlease.core.edge import Progress, Task
from gitlease.core.frozen import dataclass, replace
from gitlease.engine.ports import TaskProblem
from gitlease.git.changes_raw import GITLINK, LINK, Changed
from gitlease.git.files import Unreadable
from gitlease.git.repository import Repository
from gitlease.guard.rules import Touched

if TYPE_CHECKING:
    from gitlease.git.objects import GitObjects
    from gitlease.settings.sources import Tasks
    from gitlease.tasks.scan import Wanted

MAX_READ = 2_000  # task files of one change; of those beyond only the names are known


@dataclass(frozen=True, slots=True)
class TaskTouched:
    """A changed task file at ``path``, with its task before and after.

    A side is None where the file was not there, or no task. Of one that cannot be read, ``keys``
    has the folded names that it may be about, and ``problem`` says why (the later side's reason).
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
    words: TaskWords | None = None,
) -> list[TaskTouched]:
    """What the changed files that the settings call task files were, and what they become.

    ``objects`` has their blobs, ``words`` what is known of them of earlier changes. Raises Invalid
    for settings that cannot be used; whatever is wrong with a file is said in it.
    """
    words = words or TaskWords(tasks)
    sides = _sides(changed, words.wanted)
    if not sides:
        return []
    from gitlease.git.objects import BatchObjects

    some = _blobs(sides)[:MAX_READ]
    said = _Said(words, objects or BatchObjects(repository, some), set(some))
    return _reunited([_touched(one, said, before, after) for one, before, after in sides])


def blobs_of_tasks(words: TaskWords, changed: Iterable[Changed]) -> list[str]:
    """The blobs of the changed files that the settings call task files, to read them at once."""
    return _blobs(_sides(changed, words.wanted))


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


# --- the sides of a change ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Side:
    file: str
    blob: str
    is_link: bool


Sides = tuple[Changed, _Side | None, _Side | None]


def _sides(changed: Iterable[Changed], wanted: Wanted) -> list[Sides]:
    """What was there and what is, of the changes of task files; a copy leaves its source alone."""
    found = []
    for one in changed:
        was = one.old or one.path
        before = _side(was, one.mode_before, one.blob_before, wanted) if one.kind != "C" else None
        after = _side(one.path, one.mode_after, one.blob_after, wanted)
        if before or after:
            found.append((one, before, after))
    return found


def _blobs(sides: Iterable[Sides]) -> list[str]:
    every = (side for _, *both in sides for side in both)
    return list(dict.fromkeys(side.blob for side in every if side and not side.is_link))


def _side(file: str, mode: str, blob: str, wanted: Wanted) -> _Side | None:
    if not blob or mode == GITLINK or not wanted.covers(file):
        return None
    return _Side(file, blob, mode == LINK)


def _touched(one: Changed, said: _Said, before: _Side | None, after: _Side | None) -> TaskTouched:
    was, keys_before, problem_before = said.of(before)
    now, keys_after, problem = said.of(after)
    return TaskTouched(one.path, was, now, keys_before | keys_after, problem or problem_before)


def _reunited(found: list[TaskTouched]) -> list[TaskTouched]:
    """A task that is in another file now has its own past, whatever git took for a rename."""
    left = {x.before.resource.key: x.before for x in found if x.before and not _same_task(x)}
    again = []
    for x in found:
        past = left.get(x.after.resource.key) if x.after and not _same_task(x) else None
        again.append(replace(x, before=past, keys=x.names) if past else x)
    return again


def _same_task(x: TaskTouched) -> bool:
    return bool(x.before and x.after and x.before.resource == x.after.resource)


# --- reading ------------------------------------------------------------------------------------

Says = tuple[Task | None, frozenset[str], str]


class TaskWords:
    """What versions of task files say, each of which is parsed once."""

    def __init__(self, tasks: Tasks) -> None:
        from gitlease.tasks.scan import Wanted

        self.tasks, self.wanted = tasks, Wanted(tasks)
        self._known: dict[tuple[str, str], Says] = {}

    def of(self, file: str, blob: str, data: bytes) -> Says:
        """What the bytes of a blob say at a path."""
        from gitlease.tasks.text import value_of

        if (said := self._known.get((file, blob))) is None:
            value = value_of(data, file=file, tasks=self.tasks, wanted=self.wanted)
            if isinstance(value, TaskProblem):
                said = None, value.keys, value.message
            else:
                said = value, frozenset(), ""
            self._known[file, blob] = said
        return said


class _Said:
    """What files say: a task, or the names they may be about and a problem."""

    def __init__(self, words: TaskWords, objects: GitObjects, allowed: set[str]) -> None:
        self._words, self._objects, self._allowed = words, objects, allowed

    def of(self, side: _Side | None) -> Says:
        if side is None:
            return None, frozenset(), ""
        from gitlease.git.objects import BLOB
        from gitlease.tasks.scan import MAX_BYTES, printable
        from gitlease.tasks.text import possible_keys

        try:
            if side.is_link:
                raise Unreadable("is a symbolic link")
            if side.blob not in self._allowed:
                raise Unreadable(f"was not read: the change has more than {MAX_READ} task files")
            data = self._objects.read(side.blob, BLOB, MAX_BYTES)
        except Unreadable as error:
            keys = possible_keys(b"", file=side.file, tasks=self._words.tasks)
            return None, keys, f"{printable(side.file)} {error}"
        return self._words.of(side.file, side.blob, data)
