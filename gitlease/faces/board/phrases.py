"""The phrases of the board: countdowns, holders and places, events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gitlease.core.errors import clean
from gitlease.core.instant import rfc3339
from gitlease.core.moves.operations import TAKEOVER
from gitlease.faces.board.shapes import BoardRow, Section

if TYPE_CHECKING:
    from gitlease.core.ledger import Note, Ticket
    from gitlease.core.moves.operations import Event

_HAPPENED = {
    "displaced": "taken over",
    "completed": "done",
    "run_out": "session ended",
    "noted": "note",
    "lapsed": "lapsed",
    "waiting": "joined the wait queue",
    "left": "left the wait queue",
}
RUNNING = (Section.HELD, Section.BLOCKED, Section.PARKED)  # their leases count down
_TAKEN = frozenset({"displaced", "revoked", "retired"})


def plain(text: str) -> str:
    """Others' text as one printable line, which cannot forge or hide anything."""
    return " ".join(clean(text).split())


def happened(event: Event) -> str:
    """An event of the audit trail, in a word or two."""
    if event.kind in TAKEOVER and event.detail:
        return "claimed"
    return _HAPPENED.get(event.kind, event.kind.replace("_", " "))


def by_whom(event: Event) -> str:
    """Former holder, actor and reason: ``from jo@example.com by kim@example.com: "stuck"``."""
    if event.kind in TAKEOVER and event.detail:
        why = f': "{plain(event.reason)}"' if event.reason else ""
        return f"by {plain(event.by)}, {plain(event.detail)}{why}"
    whose = f"from {plain(event.holder or 'nobody')} " if event.kind in _TAKEN else ""
    run = f" (session {plain(event.session)})" if event.session and not whose else ""
    why = plain(event.reason or event.detail or "")
    return f"{whose}by {plain(event.by)}{run}" + (f': "{why}"' if why else "")


def note_text(note: Note) -> str:
    """A note and its author."""
    return f"by {plain(note.author)}: {plain(note.text)}"


def waiting_words(tickets: Sequence[Ticket]) -> str:
    """The wait queue in order, or nothing."""
    waiting = [
        f"{number}. {plain(x.holder)}" + (f" ({plain(x.session)})" if x.session else "")
        for number, x in enumerate(tickets, start=1)
    ]
    return f"waiting: {', '.join(waiting)}" if waiting else ""


def where_words(row: BoardRow) -> str:
    """Session, host and branch: ``session build-7 on laptop, branch main``."""
    session = f"session {row.session}" if row.session else ""
    run = f"{session} on {row.host}".lstrip() if row.host else session
    return ", ".join(x for x in (run, f"branch {row.branch}" if row.branch else "") if x)


def time_of_day(at: int, *, round_up: bool = False) -> str:
    """The time of an instant in UTC: ``10:15:00Z``."""
    return rfc3339(at, round_up=round_up)[11:]


def clock_words(seconds: int) -> str:
    """A countdown: ``4s``, ``12m 04s``, ``1h 05m``, ``2d 3h``."""
    days, hours = divmod(max(0, seconds) // 3600, 24)
    minutes, rest = divmod(max(0, seconds) % 3600, 60)
    if days:
        return f"{days}d {hours}h"
    if hours:
        return f"{hours}h {minutes:02}m"
    return f"{minutes}m {rest:02}s" if minutes else f"{rest}s"


def time_words(row: BoardRow, now: int) -> str:
    """The time a row has left, or since it ended; nothing without a lease."""
    if row.ends is None:
        return "assigned" if row.section is Section.HELD else ""
    if row.section in RUNNING:
        return f"{clock_words((row.ends - now) // 1000)} left"
    return f"{clock_words((now - row.ends) // 1000)} ago"


def details(row: BoardRow, now: int) -> list[str]:
    """The other facts of a row, the most important first."""
    texts = [waiting_words(row.waiting), f'"{row.reason}"' if row.reason else ""]
    if row.section is Section.EXPIRED:
        after = "still assigned" if row.assigned else "free to take"
        if row.lapses is not None and row.lapses > now:
            at = time_of_day(row.lapses, round_up=True)
            after = f"blocks until {at}, then {after}" if row.assigned else f"free from {at}"
        texts.insert(0, after)
    if row.through:
        texts.insert(0, f"covered by the lease of {row.through}")
    if row.waits_for:
        texts.append(f"waits for {', '.join(row.waits_for)}")
    return [x for x in texts if x]
