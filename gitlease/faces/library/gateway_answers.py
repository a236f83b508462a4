"""A gateway's answers as the library's own types and refusals."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from gitlease.core import errors
from gitlease.core.errors import GitleaseError, LeaseLost, Unavailable, UnknownOutcome
from gitlease.core.loss import Loss, reason_text
from gitlease.core.view import Lease


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayEvent:
    """An event: its ``kind`` is that of the audit trail, ``lapsed``, or ``gap``.

    ``events(after=…)`` continues after its ``id``; a lapse has none. At a gap events are missing
    that history no longer has: read the leases again.
    """

    kind: str
    resource: str | None
    scope: str | None
    holder: str | None
    session: str | None
    token: int | None
    by: str | None
    at: datetime
    id: str | None = None


_TIMES = ("claimed_at", "renewed_at", "expires_at", "free_at", "lapses_at")


def leases_of(document: Mapping[str, Any]) -> tuple[Lease, ...]:
    """The leases of an answer."""
    return tuple(lease_of(one) for one in document.get("leases", ()))


def lease_in(document: Mapping[str, Any]) -> Lease:
    """The only lease of an answer. UnknownOutcome if there is none."""
    found = leases_of(document)
    if not found:
        raise UnknownOutcome("the gateway's answer has no lease")
    return found[0]


def lease_of(data: Mapping[str, Any]) -> Lease:
    """A lease as the library has it; unknown fields of a newer gateway are ignored."""
    times = {x: datetime.fromisoformat(data[x]) for x in _TIMES if data.get(x)}
    if ended := data.get("ended_at"):  # released or revoked: known from the audit trail alone
        at = datetime.fromisoformat(ended)
        times = dict.fromkeys(("claimed_at", "renewed_at", "expires_at"), at) | times
        seconds = min(0, int((at - datetime.now(UTC)).total_seconds()))  # by two clocks
        data = {**data, "lease_id": "", "ttl_seconds": 0, "renewals": 0, "expires_in": seconds}
    known = {x: y for x, y in data.items() if x in Lease.__annotations__}
    return Lease(**{"free_at": None, **known, **times, "paths": tuple(data["paths"] or ())})


_KINDS: dict[str, type[GitleaseError]] = {
    kind.code: kind
    for kind in vars(errors).values()
    if isinstance(kind, type)
    and issubclass(kind, GitleaseError)
    and kind.__name__ not in ("GitleaseError", "HeadGone", "TooMuch", "AnotherLedger")
}


def refusal_of(status: int, data: Mapping[str, Any], *, changes: bool = False) -> GitleaseError:
    """The refusal that an answer is, as the library raises it."""
    code = str(data.get("code", ""))
    kind = _KINDS.get(code)
    if kind is None:
        kind = errors.Denied if status in (401, 403, 421) else Unavailable
        kind = errors.UsageError if status in (405, 413) else kind
        if changes and status in (500, 502, 504):  # sent by a proxy: it may have landed
            kind = UnknownOutcome
    fact = str(
        data.get("fact") or data.get("message") or f"the gateway answered with HTTP {status}"
    )
    subject: dict[str, Any] = {
        "resource": data.get("resource"),
        "scope": data.get("scope"),
        "hints": tuple(re.sub(r'"(\w+)": true', r"\1=True", str(x)) for x in data.get("hints", ())),
        "holder": data.get("holder"),
    }
    loss = next((x for x in Loss if x == data.get("loss")), None)
    if loss is None:
        error = kind(fact, **subject)
    else:  # whoever had the lease hears from every verb that it is lost
        if kind is not LeaseLost:
            fact = (
                f"you no longer hold {subject['resource']}: {reason_text(loss, data.get('holder'))}"
            )
        error = LeaseLost(fact, loss=loss, **subject)
    if data.get("free_at"):
        error.free_at_ms = round(datetime.fromisoformat(data["free_at"]).timestamp() * 1_000)
    error.views = tuple(lease_of(one) for one in data.get("conflicts", ()))
    return error


def events_of(lines: Iterable[bytes]) -> Iterator[GatewayEvent]:
    """The events of a stream."""
    number: str | None = None
    for raw in lines:
        line = raw.decode("utf-8", "replace").rstrip("\r\n")
        if not line:
            number = None
        elif line.startswith("id: "):
            number = line.removeprefix("id: ")
        elif line.startswith("data: "):
            data = json.loads(line.removeprefix("data: "))
            known = {x: data.get(x) for x in ("kind", "resource", "scope", "holder", "session")}
            at = datetime.fromisoformat(data["at"])
            more = {"token": data.get("token"), "by": data.get("by"), "at": at}
            yield GatewayEvent(**known, **more, id=number)
