"""The assigned edge: whose work a task is, durably, according to its tracked task file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import Enum

from gitlease.core.errors import Invalid
from gitlease.core.frozen import dataclass, field
from gitlease.core.holder import person_key
from gitlease.core.lease import same_person
from gitlease.core.resources.resource import Resource

LONGEST_SHOWN = 100
LONGEST_EMAIL = 254
_EMAIL = re.compile(r"[^\s@]+@[^\s@]+")


class Progress(Enum):
    """What a status word means; the words themselves are settings of each project."""

    TODO = "todo"
    IN_PROGRESS = "in_progress"
    DONE = "done"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One task as in its file: texts as written there, ``""`` if absent.

    ``paths`` are patterns relative to the root. ``file`` is relative to the root, and ``line`` is
    that of the assigned field (or the first line), for messages. ``exempt``: a label or a field
    says that its claims are never called stale. ``outdated`` has the names in the file whose
    assignment the ledger ended since; they are not among the assigned. ``records`` has the names
    of those to whom the ledger's records assign it. ``ref``: what has it where the work tree lacks
    it (a branch, or the index).
    """

    resource: Resource
    file: str
    title: str = ""
    status: str = ""
    progress: Progress = Progress.TODO
    assigned: tuple[str, ...] = ()
    priority: str = ""
    depends_on: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    created: str = ""
    line: int = 1
    exempt: bool = False
    outdated: tuple[str, ...] = ()
    records: tuple[str, ...] = ()
    ref: str = ""

    @property
    def everyone(self) -> dict[str, str]:
        """Everyone to whom it is assigned, and where that stands: record, file, or both."""
        files = {name: "both" if name in self.records else "file" for name in self.assigned}
        return files | {name: "record" for name in self.records if name not in files}

    @property
    def is_done(self) -> bool:
        return self.progress is Progress.DONE


@dataclass(frozen=True, slots=True)
class EdgeEdit:
    """A change of one task file: the names to remove and to add, and the new status.

    Names are compared by ``same_name``, so making the same edit again changes nothing. None leaves
    the status, or adds no name.
    """

    remove: tuple[str, ...] = ()
    add: str | None = None
    status: str | None = None


@dataclass(frozen=True, slots=True)
class Assignee:
    """A name in a task file that is not the caller's, and the holders that it stands for.

    ``handle``: if there are none, it stands for anyone whose email has this local part.
    """

    name: str
    holders: tuple[str, ...] = ()
    handle: bool = False

    def is_holder(self, holder: str) -> bool:
        if self.handle and not self.holders:
            return same_name(self.name, handle_of(holder))
        return any(same_person(holder, mine) for mine in self.holders)

    @property
    def known(self) -> str:
        """The printable text for a message: the holder if there is exactly one, else the name."""
        return self.holders[0] if len(self.holders) == 1 else printable(self.name)


@dataclass(frozen=True, slots=True)
class People:
    """How holders are called in task files: by the map, else by their email.

    ``handles``: holders not in the map are called ``@localpart`` of their email, as in Backlog.md.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    handles: bool = False

    def name_of(self, holder: str) -> str:
        """The name to write for a holder. Invalid if the map gives it to somebody else."""
        for email, name in self.names.items():
            if same_person(email, holder):
                return name
        name = handle_of(holder) if self.handles else holder
        others = self._mapped_to(name)
        if others:
            raise Invalid(
                f"{holder} would be {name} in task files, but that name belongs to {others[0]}",
                hints=(f"add {holder} to people in .gitlease.yaml",),
            )
        return name

    def is_mine(self, name: str, holder: str) -> bool:
        """Whether a name in a task file means this holder."""
        mapped = self._mapped_to(name)
        if mapped:
            return any(same_person(email, holder) for email in mapped)
        if same_person(name, holder):
            return True
        in_map = any(same_person(email, holder) for email in self.names)
        return self.handles and not in_map and same_name(name, handle_of(holder))

    def holders_of(self, name: str) -> tuple[str, ...]:
        """The holders that a name stands for: by the map, or as an email."""
        return self._mapped_to(name) or ((name,) if _is_email(name) else ())

    def others(self, assigned: Iterable[str], holder: str) -> tuple[Assignee, ...]:
        """Everyone in a list of assignees; nobody if the holder is among them."""
        names = tuple(assigned)
        if any(self.is_mine(name, holder) for name in names):
            return ()
        return tuple(Assignee(n, self.holders_of(n), self.handles) for n in names)

    def _mapped_to(self, name: str) -> tuple[str, ...]:
        return tuple(email for email, known in self.names.items() if same_name(known, name))


def handle_of(holder: str) -> str:
    """``@localpart`` of an email: how Backlog.md calls people."""
    return "@" + holder.partition("@")[0]


def same_name(one: str, other: str) -> bool:
    """Whether two names in task files mean the same: neither ASCII case nor a leading @ matters."""
    return bare_name(one) == bare_name(other)


def bare_name(name: str) -> str:
    """The name as it is compared: without a leading @, ASCII letters in lower case."""
    return person_key(name.strip()).removeprefix("@")


def printable(name: str) -> str:
    """A name fit for a line of a message, however it was written."""
    short = name if len(name) <= LONGEST_SHOWN else name[:LONGEST_SHOWN] + "…"
    return short if short.isprintable() and short.strip() == short and short else ascii(short)


def _is_email(name: str) -> bool:
    return len(name) <= LONGEST_EMAIL and _EMAIL.fullmatch(name) is not None and name.isprintable()
