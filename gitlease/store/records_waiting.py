"""The record of those who wait for a resource: a line of tickets in one file.

waiting/<hh>/<slug>-<resource>.yaml

It is read like every other record, with a cap on its size before anything is parsed; what is
written can be read again.
"""

from __future__ import annotations

from gitlease.core.errors import Invalid
from gitlease.core.instant import rfc3339_ms
from gitlease.core.ledger import TICKETS_KEPT, Ticket
from gitlease.core.resources.resource import Resource
from gitlease.git.plain_yaml import write_plain
from gitlease.store.fields import BadRecord, read_fields
from gitlease.store.records import MAX_MESSAGES, notes_file

MAX_ID = 64


def waiting_file(resource: Resource) -> str:
    """Where the line for a resource lies in the tree."""
    return f"waiting/{notes_file(resource).partition('/')[2]}"


def write_tickets(resource: Resource, tickets: tuple[Ticket, ...]) -> bytes:
    """The file of a line; Invalid for what could not be read again."""
    items = [
        {
            "id": t.id,
            "scope": t.scope,
            "holder": t.holder,
            "session": t.session,
            "since": rfc3339_ms(t.since),
            "until": rfc3339_ms(t.until),
        }
        for t in tickets
    ]
    data = write_plain({"resource": resource.text, "tickets": items})
    try:
        same = read_tickets(data, file=waiting_file(resource)) == tickets
    except BadRecord as error:
        raise Invalid(f"who waits for {resource} cannot be recorded: {error}") from None
    if not same:
        raise Invalid(f"who waits for {resource} cannot be recorded as it is")
    return data


def read_tickets(data: bytes, *, file: str) -> tuple[Ticket, ...]:
    """The tickets in a file of this name; BadRecord says what is wrong."""
    fields = read_fields(data, MAX_MESSAGES)
    resource = fields.resource("resource")
    if waiting_file(resource) != file:
        raise BadRecord("its name and its content disagree")
    found = tuple(
        Ticket(
            id=item.word("id", MAX_ID),
            resource=resource,
            scope=item.scope("scope"),
            holder=item.word("holder"),
            session=item.maybe("session", 128),
            since=item.time("since"),
            until=item.time("until"),
        )
        for item in fields.items("tickets", TICKETS_KEPT)
    )
    if len({ticket.id for ticket in found}) != len(found):
        raise BadRecord("it has a ticket twice")
    return found
