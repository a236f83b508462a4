"""Steps of a ledger as an audit reads them, made of what the table of transitions came to."""

from __future__ import annotations

from collections.abc import Sequence

from gitlease.domain.audit import Pusher, Written
from gitlease.domain.frozen import replace
from gitlease.domain.ledger import Ledger
from gitlease.domain.outcome import Event
from gitlease.domain.pattern import fold
from gitlease.domain.resource import Resource
from gitlease.domain.transitions import Applied

ROOM = 200  # events of one message


def pusher(*holders: str) -> Pusher:
    return Pusher(holders, holders[0])


def written_of(
    before: Ledger, applied: Applied, by: str, at_ms: int, *, resources: Sequence[Resource] = ()
) -> Written:
    """What a client would write of a step."""
    after = applied.ledger
    changes = after.changes
    leases = {
        key: new
        for key, (old, new) in changes.leases.items()
        if old != new or (old and new and old.resource.text != new.resource.text)
    }
    notes = {
        key: (changes.note_resources[key], items)
        for key, items in changes.notes.items()
        if items != before.notes(changes.note_resources[key])
    }
    notices = {
        holder: (
            items[0].to if items else holder,
            tuple(replace(notice, to=items[0].to) for notice in items),
        )
        for holder, items in changes.notices.items()
        if items != before.notices(holder)
    }
    tickets = {
        key: (resource, items)
        for key, (resource, items) in changes.tickets.items()
        if items != before.tickets(resource)
    }
    events: tuple[Event, ...] = applied.events
    return Written(
        header=after.header,
        leases=leases,
        notes=notes,
        notices={fold(to): (to, items) for to, items in notices.values()},
        tickets=tickets,
        dropped=changes.dropped,
        events=events[:ROOM],
        cut=len(events) >= ROOM,
        renewal=applied.only_renews,
        author=by,
        at=at_ms // 1_000 * 1_000,
    )


def with_header(written: Written, **changes: object) -> Written:
    return replace(written, header=replace(written.header, **changes))  # type: ignore[arg-type]
