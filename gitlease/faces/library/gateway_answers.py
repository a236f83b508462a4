"""What a gateway answers, as the library's own types and refusals."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gitlease.core import errors
from gitlease.core.errors import GitleaseError, Unavailable, UnknownOutcome
from gitlease.core.view import Lease


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayEvent:
    """Something that happened: ``kind`` as the audit trail has it, ``lapsed``, or ``gap``.

    ``id`` is what ``events(after=…)`` goes on after; a lapse has none. After a gap events are
    missing that the gateway could not find any more: read the leases anew.
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


_TIMES = ("claimed_at", "renewed_at", "expires_at", "free_at")


def leases_of(document: Mapping[str, Any]) -> tuple[Lease, ...]:
    """The leases of an answer."""
    return tuple(lease_of(one) for one in document.get("leases", ()))


def lease_in(document: Mapping[str, Any]) -> Lease:
    """The one lease of an answer. UnknownOutcome where it tells of none."""
    found = leases_of(document)
    if not found:
        raise UnknownOutcome("the gateway's answer has no lease")
    return found[0]


def lease_of(said: Mapping[str, Any]) -> Lease:
    """A lease as the library has it; what a newer gateway says besides is passed over."""
    times = {x: datetime.fromisoformat(said[x]) for x in _TIMES if said.get(x)}
    known = {x: y for x, y in said.items() if x in Lease.__annotations__}
    return Lease(**{"free_at": None, **known, **times, "paths": tuple(said["paths"])})


_KINDS: dict[str, type[GitleaseError]] = {
    kind.code: kind
    for kind in vars(errors).values()
    if isinstance(kind, type)
    and issubclass(kind, GitleaseError)
    and kind.__name__ not in ("GitleaseError", "HeadGone", "TooMuch", "AnotherLedger")
}


def refusal_of(status: int, said: Mapping[str, Any], *, changes: bool = False) -> GitleaseError:
    """The refusal that an answer is, as the library raises it."""
    code = str(said.get("code", ""))
    kind = _KINDS.get(code)
    if kind is None:
        kind = errors.Denied if status in (401, 403, 421) else Unavailable
        kind = errors.UsageError if status in (405, 413) else kind
        if changes and status in (500, 502, 504):  # a proxy's word: it may have landed
            kind = UnknownOutcome
    error = kind(
        str(said.get("message") or f"the gateway answered with HTTP {status}"),
        resource=said.get("resource"),
        scope=said.get("scope"),
        hints=tuple(map(str, said.get("hints", ()))),
        holder=said.get("holder"),
    )
    if said.get("free_at"):
        error.free_at_ms = round(datetime.fromisoformat(said["free_at"]).timestamp() * 1_000)
    error.views = tuple(lease_of(one) for one in said.get("conflicts", ()))
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
            said = json.loads(line.removeprefix("data: "))
            known = {x: said.get(x) for x in ("kind", "resource", "scope", "holder", "session")}
            at = datetime.fromisoformat(said["at"])
            more = {"token": said.get("token"), "by": said.get("by"), "at": at}
            yield GatewayEvent(**known, **more, id=number)
