"""What commits say of task files, as a test has it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kernel.rules.values import JO, KIM

from gitlease.check.task_history import Deleted, Lack, Past, Version
from gitlease.kernel.rules.edge import Task
from support.clock import ManualClock

BEGINNING = ManualClock().wall_ms


@dataclass
class Told:
    """Every file was written by one version, by default at the beginning with all of its names."""

    missing: Lack | None = None
    absent: tuple[str, ...] = ()
    asked: list[str] = field(default_factory=list)
    written: Version | None = None
    gone: Mapping[str, Deleted] = field(default_factory=dict)

    def authors(self) -> Mapping[str, str]:
        return {email: email for email in (JO.holder, KIM.holder)}

    def usual(self, emails: Iterable[str]) -> Mapping[str, str]:
        return {email: email for email in emails}

    def pasts(self, asked: Sequence[tuple[Task, str]]) -> Mapping[str, Past]:
        self.asked += [task.file for task, _ in asked]
        usual = {x.file: Version("c0ffee", BEGINNING, KIM.holder, (), x.assigned) for x, _ in asked}
        return {file: Past((self.written or version,)) for file, version in usual.items()}

    def lack(self, *, cached: bool, branches: bool) -> Lack | None:
        self.asked += ["branches"] * branches
        return self.missing if branches else None

    def partial(self) -> Lack | None:
        return None

    def left_out(self) -> Sequence[str]:
        return self.absent

    def deleted(self, keys: frozenset[str]) -> Mapping[str, Deleted]:
        return {key: at for key, at in self.gone.items() if key in keys}
