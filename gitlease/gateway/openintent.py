"""OpenIntent's leases (RFC-0003), so that its own SDK works against a gateway unmodified.

An intent is a task, or any name where the project does not require tasks. ``POST /intents`` writes
no task file and no record: it returns an id made of the title, a random part, and a checksum by
which any gateway recognises it later. Only the leases of such an intent are stored.

The token determines the holder; ``created_by`` and ``agent_id`` of a body are ignored.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Collection
from datetime import datetime
from hashlib import sha256
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from gitlease import __version__
from gitlease.gateway.compat import (
    CompatAnswer,
    CompatRequest,
    blocks_until,
    carry_out,
    claim_named,
    compat_routes,
    warnings_in,
)
from gitlease.gateway.follower import LAPSED
from gitlease.gateway.request_handler import (
    IGNORED,
    Failure,
    Refused,
    RequestHandler,
    without_paths,
)
from gitlease.gateway.routes import GatewayDoor
from gitlease.kernel.ledger.acts import check_release, taken_from
from gitlease.kernel.ledger.answers import EndedLease
from gitlease.kernel.ledger.stepping import read_leases
from gitlease.kernel.rules.edge import Task
from gitlease.kernel.rules.errors import (
    GitleaseError,
    LeaseHeld,
    LeaseLost,
    NotFound,
    NotHolder,
    Rollback,
    UsageError,
    shown,
)
from gitlease.kernel.rules.instant import moment_of, parse_duration
from gitlease.kernel.rules.lease import Lease, State
from gitlease.kernel.rules.lease_view import LeaseView
from gitlease.kernel.rules.resources import (
    WHOLE,
    Resource,
    fold,
    name_resource,
    parse_scope,
    reads_as_name,
)
from gitlease.verbs import wire
from gitlease.verbs.claiming import BY_NAME
from gitlease.verbs.table import http_of

ROOTS = ("/api/v1", "/v1")
AGENT = "x-agent-id"
DURATIONS = ("duration_seconds", "ttl_seconds")  # of the SDK, and of the RFC
LONGEST_TITLE, WORDS = 500, 60
_GIVEN = r"intent-([a-z0-9-]*)-([0-9a-f]{8})([0-9a-f]{8})"
_STATUS = {"completed": "released"}  # lease states that RFC-0003 names differently
ACQUIRED, RELEASED = "LEASE_ACQUIRED", "LEASE_RELEASED"
_TYPES = {
    "claimed": ACQUIRED,
    "taken_over": ACQUIRED,
    **dict.fromkeys(("released", "completed", "revoked", "retired", "run_out"), RELEASED),
}


def routes(
    handler: RequestHandler, stream: Callable[[Request], Awaitable[Response]]
) -> list[BaseRoute]:
    """The endpoints of a gateway for OpenIntent's clients; ``stream`` is the gateway's events."""
    intent, many = "/intents/{intent}", "/intents/{intent}/leases"
    verbs = (
        ("GET", "/intents", list_intents),
        ("POST", "/intents", create_intent),
        ("GET", intent, get_intent),
        ("GET", many, list_leases),
        ("POST", many, acquire),
        ("PATCH", many + "/{lease}", renew),
        ("DELETE", many + "/{lease}", release),
    )

    async def discover(request: Request) -> Response:
        handler.access.check_address(request.headers)
        return JSONResponse(_discovery(request.scope.get("root_path", "")))

    async def subscribe(request: Request) -> Response:
        response = await stream(request)
        if isinstance(response, StreamingResponse):
            # An agent gets the events of all intents.
            intent = request.path_params.get("intent")
            wanted = None if intent is None else fold(intent)
            response.body_iterator = _translated(response.body_iterator, wanted)
        return response

    watched = ("/agents/{agent}", intent)
    subscriptions = [y for x in watched for y in (f"{x}/subscribe", f"/subscribe{x}")]
    well_known = handler.endpoint("openintent_root", discover, refused)
    # The RFC's table says /v1, and its own SDK asks below /api/v1.
    each = [(method, root + path, verb) for root in ROOTS for method, path, verb in verbs]
    return [
        *compat_routes(handler, "openintent", each, refused),
        Route("/.well-known/openintent.json", well_known),
        *(Route(root + path, subscribe) for root in ROOTS for path in subscriptions),
    ]


def _discovery(root: str) -> dict[str, Any]:
    return {
        "protocol": "OpenIntent Coordination Protocol",
        "version": "0.17.0",
        "implementation": f"gitlease {__version__}",
        "rfcUrls": ["/rfc/0003"],
        "capabilities": ["intents", "leasing", "subscriptions"],
        "endpoints": {
            "intents": f"{root}/api/v1/intents",
            "leases": f"{root}/api/v1/intents/{{id}}/leases",
            "events": f"{root}/api/v1/intents/{{id}}/subscribe",
        },
    }


# --- intents ------------------------------------------------------------------------------------


def create_intent(asked: CompatRequest) -> CompatAnswer:
    title = asked.text("title", limit=LONGEST_TITLE)
    if title is None:
        raise UsageError("title must be a string")
    words = re.sub(r"[^a-z0-9]+", "-", title.lower())[:WORDS].strip("-")
    part = secrets.token_hex(4)
    id = f"intent-{words}-{part}{_check(words, part)}"
    made = _intent(name_resource(id), None)
    return 201, made | {"title": title, "created_by": asked.caller.email}


def get_intent(asked: CompatRequest) -> CompatAnswer:
    resource = _resource(asked)
    task = asked.task(resource, given=_title_of(resource) is not None)
    leases = read_leases(_door(asked).ledger, resource=task.resource if task else resource).leases
    return 200, _intent(resource, task, done=any(x.state == "completed" for x in leases))


def list_intents(asked: CompatRequest) -> CompatAnswer:
    """The tasks; other names are not listed."""
    wanted, start = asked.query.get("status"), asked.number("offset", 0)
    tasks = _door(asked).ledger.edges.everywhere().tasks
    intents = [_intent(x.resource, x) for x in tasks]
    intents = [x for x in intents if wanted in (None, x["status"])]
    return 200, {"intents": intents[start : start + asked.number("limit", 100)]}


# --- leases -------------------------------------------------------------------------------------


def acquire(asked: CompatRequest) -> CompatAnswer:
    """Claim a scope, or renew it if this agent holds it."""
    _check_fields(asked, {*BY_NAME, "scope", *DURATIONS})
    resource, scope = _resource(asked), asked.body.get("scope")
    if scope is None:
        raise UsageError("scope must be a string: * is the whole intent")
    result = claim_named(
        asked,
        _door(asked),
        resource,
        scope=parse_scope(scope),
        ttl=_duration(asked),
        any=_title_of(resource) is not None,
    )
    return 200 if result.body["status"] == "renewed" else 201, lease(result.leases[0])


def renew(asked: CompatRequest) -> CompatAnswer:
    """Renew a lease that this agent still holds."""
    _check_fields(asked, DURATIONS)
    door, active, seconds = _door(asked), _active_lease(asked), _duration(asked)
    resource, scope = active.resource, active.scope
    if active.answers_to(door.ledger.actor):
        door.check_condition(resource, active.token, scope, held=False)
    result = carry_out("renew", door, resources=[resource], scope=scope, ttl=seconds)
    return 200, lease(result.leases[0])


def release(asked: CompatRequest) -> CompatAnswer:
    try:
        active = _active_lease(asked)
    except NotFound:
        # A second DELETE succeeds like the first. That of a lease that was taken does, too, unless
        # another has the scope now: then it is refused like any release of theirs.
        door, resource = _door(asked), _resource(asked)
        taken = taken_from(door.ledger, resource)
        if taken is None:
            raise
        check_release(door.ledger, resource, scope=taken.scope)
        return 200, {"message": "Lease ended before", "id": asked.path["lease"]}
    terms: dict[str, Any] = {"resources": [active.resource], "scope": active.scope}
    keep = asked.query.get("keep", "false")
    if keep not in ("true", "false"):
        raise UsageError("keep must be true or false")
    door = _door(asked)
    carry_out("release", door, **terms, keep=keep == "true")
    return 200, {"message": "Lease released", "id": active.lease_id, **warnings_in(door)}


def list_leases(asked: CompatRequest) -> CompatAnswer:
    """The leases of an intent, with expired ones, and for a while with those that ended."""
    resource = _resource(asked)
    asked.task(resource, given=_title_of(resource) is not None)
    reading = read_leases(_door(asked).ledger, resource=resource, ended=True)
    # In an object: the SDK fails on a bare list.
    return 200, {"leases": [*map(lease, reading.leases), *map(_ended, reading.ended)]}


# --- shapes -------------------------------------------------------------------------------------


def lease(view: LeaseView) -> dict[str, Any]:
    status = _STATUS.get(view.state, view.state)
    ended = view.renewed_at if view.state == State.COMPLETED.value else None
    return _shape(view, view.lease_id, status, view.claimed_at, view.expires_at, ended)


def _ended(ended: EndedLease) -> dict[str, Any]:
    # The audit trail has no ids of leases. The SDK wants a time of expiry: that of its end.
    since = None if ended.claimed_at is None else moment_of(ended.claimed_at)
    until = moment_of(ended.ended_at)
    return _shape(ended, None, ended.state.value, since, until, until)


def _shape(
    lease: LeaseView | EndedLease,
    id: str | None,
    status: str,
    since: datetime | None,
    until: datetime,
    ended: datetime | None,
) -> dict[str, Any]:
    return {
        "id": id,
        "intent_id": lease.resource,
        "agent_id": lease.session or lease.holder,
        "holder": lease.holder,
        "scope": lease.scope,
        "status": status,
        "created_at": since and _naive(since),
        "acquired_at": since and _naive(since),
        "expires_at": _naive(until),
        "released_at": ended and _naive(ended),
    }


def refused(error: Failure) -> Response:
    """A refusal as the SDK reads it."""
    body: dict[str, Any] = {"error": error.code, "message": without_paths(error.message)}
    if isinstance(error, Refused):
        return JSONResponse(body, error.status, headers=error.headers)
    status = http_of(error.code)
    if isinstance(error, LeaseHeld | NotHolder | LeaseLost):
        # The SDK takes a 409 for a conflict of leases only with the word lease in its body.
        status, view = 409, error.lease
        body["message"] = f"the lease was refused: {_in_words(error)}"
        body["scope"] = view.scope if view else error.scope
        body["session"] = view.session if view else None
        body["expires_at"] = _naive(view.expires_at) if view else None
        in_the_way = view is not None and not isinstance(error, LeaseLost) and not error.by_edge
        if view is not None and (view.state == State.ACTIVE.value or in_the_way):
            body["existing_lease"] = lease(view)
    elif isinstance(error, Rollback):
        status = 503
    elif isinstance(error, UsageError):
        body["errors"] = [error.message]
    return JSONResponse(body, status, headers={"Retry-After": "2"} if status == 503 else {})


def _in_words(error: GitleaseError) -> str:
    """The fact, with scope, session and end of the lease in the way: the SDK shows only this."""
    view, message = error.lease, without_paths(error.message)
    if view is None or isinstance(error, LeaseLost) or error.by_edge:
        return message + blocks_until(error)
    parts = {"scope": None if view.scope == WHOLE else view.scope, "session": view.session}
    where = ", ".join(f"{x} {y}" for x, y in parts.items() if y and f"{x} {y}" not in message)
    until = blocks_until(error) or f" until {wire.seconds(view.expires_at)}"
    return f"{message}{f' ({where})' if where else ''}{until}"


def _intent(resource: Resource, task: Task | None, *, done: bool = False) -> dict[str, Any]:
    finished = done or (task is not None and task.is_done)
    return {
        "id": task.resource.text if task else resource.text,
        "title": (task.title if task else _title_of(resource)) or resource.text,
        "description": "",
        "status": "completed" if finished else "active",
        "state": {},
        "constraints": {},
        "depends_on": list(task.depends_on) if task else [],
        "version": 1,
        "created_by": None,
    }


def _naive(at: datetime) -> str:
    # UTC without a zone: the SDK compares times with ``datetime.now()``.
    return at.replace(tzinfo=None).isoformat()


# --- events -------------------------------------------------------------------------------------


async def _translated(lines: AsyncIterable[Any], intent: str | None) -> AsyncIterator[str]:
    """The events of one intent, or of all names, in OpenIntent's words; comments pass unchanged."""
    async for event in lines:
        fields = dict(x.split(": ", 1) for x in str(event).splitlines() if ": " in x)
        if "data" not in fields:
            yield str(event)
        elif line := _event(fields, intent):
            yield line


def _event(fields: dict[str, str], intent: str | None) -> str:
    kind, number = fields["event"], fields.get("id")
    # A lapse is reported once it happens, without a number; a numbered one was cleared up later.
    type = RELEASED if kind == LAPSED and number is None else _TYPES.get(kind)
    event = json.loads(fields["data"])
    resource = event.get("resource") or ""
    if type is None or not reads_as_name(resource) or intent not in (None, fold(resource)):
        return ""
    data = {
        "intent_id": resource,
        "scope": event["scope"],
        "agent_id": event["session"] or event["holder"],
        "reason": "expired" if kind == LAPSED else kind,
    }
    id = f"id: {number}\n" if number else ""
    return f"event: {type}\n{id}data: {json.dumps(data)}\n\n"


# --- how ----------------------------------------------------------------------------------------


def _door(asked: CompatRequest) -> GatewayDoor:
    # As a session, so that two agents with one token exclude each other.
    return asked.door(asked.headers.get(AGENT) or None)


def _resource(asked: CompatRequest) -> Resource:
    try:
        return name_resource(asked.path["intent"])
    except UsageError:
        raise NotFound(f"no intent {shown(asked.path['intent'])}") from None


def _active_lease(asked: CompatRequest) -> Lease:
    resource, id = _resource(asked), asked.path["lease"]
    ledger = asked.gateway.store.fetch(asked.gateway.layer).ledger
    for active in ledger.leases_of(resource) if ledger else ():
        if active.lease_id == id and active.state is State.ACTIVE:
            return active
    raise NotFound(f"{resource} no longer has a lease {shown(id)}", resource=resource.text)


def _check_fields(asked: CompatRequest, known: Collection[str]) -> None:
    if odd := next((x for x in asked.body if x not in known and x not in IGNORED), None):
        raise UsageError(f"unknown field {odd[:60]!r}; known fields: {', '.join(sorted(known))}")


def _duration(asked: CompatRequest) -> int | None:
    """The time that a request asks for; None for the ledger's default, or as long as before."""
    given = {x: asked.body[x] for x in DURATIONS if asked.body.get(x) is not None}
    if not given:
        return None
    name, seconds = next(iter(given.items()))
    # By their text: 60 and 60.0, or 1 and true, are equal in Python.
    if len({*map(repr, given.values())}) > 1:
        raise UsageError(f"{' and '.join(DURATIONS)} are one and the same: send one of them")
    if isinstance(seconds, bool) or not isinstance(seconds, int):
        raise UsageError(f"{name} must be a whole number")
    return parse_duration(str(seconds)[:20], what=name)


def _title_of(resource: Resource) -> str | None:
    """The title in an id that a gateway gave; None for other names."""
    match = re.fullmatch(_GIVEN, resource.key)
    if match is None or _check(match[1], match[2]) != match[3]:
        return None
    return match[1].replace("-", " ") or resource.text


def _check(words: str, part: str) -> str:
    return sha256(f"{words}\0{part}".encode()).hexdigest()[:8]
