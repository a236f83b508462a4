"""What an audit is about: what a commit wrote, who pushes it, and why it is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from gitlease.domain.errors import GitleaseError
from gitlease.domain.frozen import dataclass
from gitlease.domain.lease import Lease, LeaseKey, same_person
from gitlease.domain.ledger import Header, Note, Notice, Ticket
from gitlease.domain.outcome import Event
from gitlease.domain.resource import Resource

LONGEST_SHOWN = 80
NEWER = "a newer gitlease than the server's may have written it: then upgrade the server's"
# What libgit2 takes from both ends of a name or an email before it writes a signature.
_CRUD = "".join(map(chr, range(33))) + ".,:;<>\"\\'"


class Illegal(GitleaseError):
    """What was pushed is no legal move: ``rule`` is a stable word for why."""

    code: ClassVar[str] = "denied"

    def __init__(self, rule: str, message: str, *, hints: tuple[str, ...] = ()) -> None:
        super().__init__(message, hints=hints)
        self.rule = rule


@dataclass(frozen=True, slots=True)
class Pusher:
    """Who pushes: the holders that they are, and how to call them. None: that is not known."""

    holders: tuple[str, ...] | None
    known: str

    def may_be(self, holder: str) -> bool:
        """Whether this holder pushes; where nobody is known, whoever is named."""
        return self.holders is None or any(same_person(holder, mine) for mine in self.holders)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Everything that one commit makes different in a ledger, as it stands there.

    ``leases`` has None for a record that is gone. Of ``notes``, ``notices`` and ``tickets`` each
    value is the whole list as it is now, by resource key or folded holder. ``dropped`` are files
    that could not be read and are gone. ``author`` and ``at`` (milliseconds, whole seconds) are the
    commit's; ``events`` and ``renewal`` its message's, of whose events the first are kept:
    ``cut`` says that there is room for no more.
    """

    header: Header
    leases: Mapping[LeaseKey, Lease | None]
    notes: Mapping[str, tuple[Resource, tuple[Note, ...]]]
    notices: Mapping[str, tuple[str, tuple[Notice, ...]]]
    tickets: Mapping[str, tuple[Resource, tuple[Ticket, ...]]]
    dropped: tuple[str, ...]
    events: tuple[Event, ...]
    cut: bool
    renewal: bool
    author: str
    at: int


def bare(email: str) -> str:
    """An email as a commit's signature can have it."""
    return email.replace("<", "").replace(">", "").strip(_CRUD)


def quoted(text: str) -> str:
    """A word of somebody else's, fit for a line."""
    short = text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + "…"
    return short if short.isprintable() and short.strip() == short and short else ascii(short)
