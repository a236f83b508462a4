"""The values of a board. Times are wall-clock milliseconds; texts are printable."""

from __future__ import annotations

from enum import Enum

from gitlease.core.frozen import dataclass, field
from gitlease.core.ledger import Note, Ticket
from gitlease.core.moves.operations import Event
from gitlease.core.resources.pattern import fold
from gitlease.core.resources.resource import WHOLE, Resource


class Section(Enum):
    """The state of a task or lease. BLOCKED: another's lease of a path covers a path of the task,
    or it is left to those who wait for it.

    ABANDONED: expired so long ago that it is free.
    """

    HELD = "held"
    BLOCKED = "blocked"
    PARKED = "parked"
    EXPIRED = "expired"
    ABANDONED = "abandoned"
    FREE = "free"


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardRow:
    """A lease, or a task without one. Texts are empty where there is nothing to show.

    ``ends`` is the lease's expiry; ``lapses`` is when an expired one stops blocking others. If it
    is ``assigned``, the task stays its holder's then. ``mine``: the viewer may act on it.
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
    lapses: int | None = None
    assigned: bool = False
    mine: bool = False
    through: str = ""
    waiting: tuple[Ticket, ...] = ()
    waits_for: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Identifies the row."""
        return f"{self.resource.key} {fold(self.scope)}"


@dataclass(frozen=True, slots=True)
class NewsItem:
    """A recent event; ``loss``: somebody lost a lease."""

    at: int
    what: str
    name: str
    text: str
    loss: bool = False

    @property
    def key(self) -> str:
        """Identifies the item."""
        return f"{self.at} {self.what} {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardView:
    """A board at one moment. ``changes_at`` is when time alone will change it.

    ``trouble`` is why it may be out of date; ``warnings`` are about parts that cannot be read.
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
        """The rows of one section, in order."""
        return tuple(row for row in self.rows if row.section is section)


@dataclass(frozen=True, slots=True)
class OpenedResource:
    """A resource of the board with its notes and its last events, newest first."""

    name: str
    rows: tuple[BoardRow, ...]
    notes: tuple[Note, ...]
    events: tuple[Event, ...]
