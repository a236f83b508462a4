"""The values that a board is made of. Times are wall-clock milliseconds, texts print."""

from __future__ import annotations

from enum import Enum

from gitlease.core.frozen import dataclass, field
from gitlease.core.ledger import Note, Ticket
from gitlease.core.outcome import Event
from gitlease.core.resources.pattern import fold
from gitlease.core.resources.resource import WHOLE, Resource


class Section(Enum):
    """How a task or a lease stands. EXPIRED has run out, ABANDONED so long ago that it is free."""

    HELD = "held"
    PARKED = "parked"
    EXPIRED = "expired"
    ABANDONED = "abandoned"
    FREE = "free"


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardRow:
    """A lease, or a task without one. Texts are printable, and ``""`` where there is nothing.

    ``ends`` is when the lease runs out or did, ``free`` when others may take what has run out; None
    where an assignment keeps them out. ``mine``: it answers to whoever looks.
    """

    section: Section
    resource: Resource
    name: str
    title: str = ""
    holder: str = ""
    session: str = ""
    host: str = ""
    branch: str = ""
    reason: str = ""
    scope: str = WHOLE
    ends: int | None = None
    lasts: int = 0
    free: int | None = None
    mine: bool = False
    through: str = ""
    waiting: tuple[Ticket, ...] = ()
    waits_for: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """What tells it from the other rows."""
        return f"{self.resource.key} {fold(self.scope)}"


@dataclass(frozen=True, slots=True)
class NewsItem:
    """One thing that happened; ``loss``: somebody has lost what they held."""

    at: int
    what: str
    name: str
    text: str
    loss: bool = False

    @property
    def key(self) -> str:
        """What tells it from other news."""
        return f"{self.at} {self.what} {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardView:
    """All of it at one moment. ``changes_at`` is when the clock alone makes another board of it.

    ``trouble`` is why it may be out of date, ``warnings`` what of it cannot be read.
    """

    layer: str
    place: str
    revision: int
    rows: tuple[BoardRow, ...]
    news: tuple[NewsItem, ...]
    now: int = field(compare=False)
    changes_at: int | None = None
    trouble: str = ""
    warnings: tuple[str, ...] = ()

    def section(self, section: Section) -> tuple[BoardRow, ...]:
        """The rows of one section, in their order."""
        return tuple(row for row in self.rows if row.section is section)


@dataclass(frozen=True, slots=True)
class OpenedResource:
    """One resource of the board with its notes and its last events, newest first."""

    name: str
    rows: tuple[BoardRow, ...]
    notes: tuple[Note, ...]
    events: tuple[Event, ...]
