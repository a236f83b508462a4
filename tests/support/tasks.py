"""Task files as values: the port of the service, for tests that need no work tree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from gitlease.kernel.ledger.edges import EdgeRules
from gitlease.kernel.ledger.ports import Intent, TaskChange, TaskList, TaskProblem, Written
from gitlease.kernel.rules.edge import EdgeEdit, Task, same_name
from gitlease.kernel.rules.errors import Invalid
from gitlease.kernel.rules.resources import Resource, parse_resource


def task(name: str, *assigned: str, **more: object) -> Task:
    """A task in ``tasks/NAME.md``."""
    fields: dict[str, object] = {
        "resource": parse_resource(name),
        "file": f"tasks/{name}.md",
        "assigned": assigned,
    }
    return Task(**(fields | more))  # type: ignore[arg-type]


class Killed(BaseException):
    """The process is gone: nothing after it is done."""


@dataclass
class MemoryTasks:
    """The task files of one clone. ``killed_at`` is the next step that kills the process."""

    writes = True
    tasks: dict[str, Task] = field(default_factory=dict)
    problems: tuple[TaskProblem, ...] = ()
    unwritable: set[str] = field(default_factory=set)
    intents: dict[str, Intent] = field(default_factory=dict)
    alive: set[str] = field(default_factory=set)
    commits: list[str] = field(default_factory=list)
    rules: EdgeRules = field(default_factory=EdgeRules)
    killed_at: str | None = None
    steps: list[str] = field(default_factory=list)
    since: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, *tasks: Task) -> MemoryTasks:
        return cls({t.file: t for t in tasks})

    def __getitem__(self, name: str) -> Task:
        return self.tasks[f"tasks/{name}.md"]

    def reached(self, step: str) -> None:
        """A step is reached: the process goes on, or is killed here."""
        self.steps.append(step)
        if step == self.killed_at:
            self.killed_at = None
            self.alive.clear()
            raise Killed

    def read(self, ref: str | None = None) -> TaskList:
        return TaskList(tuple(self.tasks.values()), self.problems)

    def places(self) -> Sequence[str]:
        return ()

    def doubt(self) -> str:
        return ""

    def elsewhere(self, here: TaskList) -> Sequence[tuple[str, TaskList]]:
        return ()

    def on_a_branch(self, resource: Resource) -> tuple[str, Task] | None:
        return None

    def assigned_since(self, task: Task, name: str, ref: str | None) -> int | None:
        return self.since.get(name)

    def check(self, changes: Sequence[TaskChange], *, commit: bool) -> None:
        for change in changes:
            if change.file in self.unwritable or change.file not in self.tasks:
                raise Invalid(f"{change.file}: cannot be written")

    def write(self, changes: Sequence[TaskChange], *, commit: bool) -> tuple[Written, ...]:
        self.reached("before write")
        return tuple(self._write(change, commit) for change in changes)

    def _write(self, change: TaskChange, commit: bool) -> Written:
        try:
            self.check([change], commit=commit)
        except Invalid as error:
            return Written(change, False, problem=error.message)
        before = self.tasks[change.file]
        after = self._edited(before, change.edit)
        self.tasks[change.file] = after
        self.reached("after write")
        if not commit:
            return Written(change, after != before)
        self.commits.append(change.message)
        return Written(change, after != before, f"{len(self.commits):040x}")

    def _edited(self, found: Task, edit: EdgeEdit) -> Task:
        names = [n for n in found.assigned if not any(same_name(n, r) for r in edit.remove)]
        if edit.add is not None and not any(same_name(n, edit.add) for n in names):
            names.append(edit.add)
        status = found.status if edit.status is None else edit.status
        progress = found.progress if edit.status is None else self.rules.progress(status)
        return replace(found, assigned=tuple(names), status=status, progress=progress)

    def intend(self, intent: Intent) -> None:
        self.reached("before intent")
        self.intents[intent.id] = intent
        self.alive.add(intent.id)
        self.reached("after intent")

    def settled(self, intent: Intent) -> None:
        self.reached("before settling")
        self.intents.pop(intent.id, None)

    def leave(self, intent: Intent) -> None:
        self.alive.discard(intent.id)

    def at(self, root: str) -> MemoryTasks:
        return self

    def left_behind(self) -> Sequence[Intent]:
        left = [i for i in self.intents.values() if i.id not in self.alive]
        self.alive |= {i.id for i in left}
        return left
