"""OpenIntent's leases (RFC-0003), so that its own SDK leases here unmodified.

An intent is a task, or where names need not be tasks any name. ``POST /intents`` writes no task
file and no record: it gives an id, which is a name that has the words of the title, a random part,
and a check by which any gateway knows later that it was given. All that is kept of such an intent
are its leases; its title is read from its id.

``X-Agent-ID`` is the session, so that two agents with one token keep each other out. Who holds a
lease is whom the token says; ``created_by`` and ``agent_id`` of a body are ignored. Times are UTC
without a zone: the SDK compares them with what ``datetime.now()`` gives.
"""

from __future__ import annotations

import re
import secrets
from datetime import datetime
from hashlib import sha256
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from gitlease import __version__
from gitlease.core.duration import parse_duration
from gitlease.core.edge import Task
from gitlease.core.errors import (
    LeaseHeld,
    LeaseLost,
    NotFound,
    NotHolder,
    Rollback,
    UsageError,
    shown,
)
from gitlease.core.lease import Lease, State
from gitlease.core.resources.resource import Resource, name_resource, parse_scope
from gitlease.core.view import LeaseView
from gitlease.engine import claim, end
from gitlease.engine.answers import ClaimOptions
from gitlease.engine.ledger_session import LedgerSession
from gitlease.engine.reading import read_leases
from gitlease.faces.codes import http_of
from gitlease.faces.http.access import Refused
from gitlease.faces.http.compat import Answered, CompatDoor, CompatRequest, Failure
from gitlease.faces.http.request_handler import Door

ROOTS = ("/api/v1", "/v1")
AGENT = "x-agent-id"
DURATION = 300  # seconds, where a request names none
LONGEST_TITLE, WORDS = 500, 60
_GIVEN = r"intent-([a-z0-9-]*)-([0-9a-f]{8})([0-9a-f]{8})"  # compiled where it is used
_STATUS = {"completed": "released"}  # of a lease, where RFC-0003 has another word


def routes(door: Door) -> list[BaseRoute]:
    """The endpoints of a gateway for OpenIntent's clients, at both roots, but for the events."""
    api = CompatDoor(door, "openintent", refused)
    one, many = "/intents/{intent}", "/intents/{intent}/leases"
    verbs = (
        ("GET", "/intents", list_intents),
        ("POST", "/intents", create_intent),
        ("GET", one, get_intent),
        ("GET", many, list_leases),
        ("POST", many, acquire),
        ("PATCH", many + "/{lease}", renew),
        ("DELETE", many + "/{lease}", release),
    )
    found: list[BaseRoute] = [
        Route(
            root + path,
            api.endpoint(verb, "read" if method == "GET" else "write"),
            methods=[method],
        )
        for root in ROOTS
        for method, path, verb in verbs
    ]

    async def discover(request: Request) -> Response:
        try:
            door.access.check_address(request.headers)
        except Refused as error:
            return refused(error)
        return JSONResponse(_discovery(request.scope.get("root_path", "")))

    return [*found, Route("/.well-known/openintent.json", discover)]


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


def create_intent(asked: CompatRequest) -> Answered:
    title = asked.text("title", limit=LONGEST_TITLE)
    if title is None:
        raise UsageError("title must be a text")
    words = re.sub(r"[^a-z0-9]+", "-", title.lower())[:WORDS].strip("-")
    part = secrets.token_hex(4)
    id = f"intent-{words}-{part}{_check(words, part)}"
    made = _intent(name_resource(id), None)
    return 201, made | {"title": title, "created_by": asked.caller.holder}


def get_intent(asked: CompatRequest) -> Answered:
    resource = _resource(asked)
    task = asked.task(resource, given=_title_of(resource) is not None)
    leases = read_leases(_session(asked), resource=task.resource if task else resource).leases
    return 200, _intent(resource, task, done=any(x.state == "completed" for x in leases))


def list_intents(asked: CompatRequest) -> Answered:
    """The tasks: names have no list."""
    wanted, start = asked.query.get("status"), _number(asked, "offset", 0)
    tasks = _session(asked).edges.files.read().tasks
    found = [_intent(x.resource, x) for x in tasks]
    found = [x for x in found if wanted in (None, x["status"])]
    return 200, {"intents": found[start : start + _number(asked, "limit", 100)]}


# --- leases -------------------------------------------------------------------------------------


def acquire(asked: CompatRequest) -> Answered:
    """Take a scope, or renew it where this agent has it."""
    resource, scope = _resource(asked), asked.body.get("scope")
    if scope is None:
        raise UsageError("scope must be a text: * is all of the intent")
    options = ClaimOptions(
        scope=parse_scope(scope),
        ttl=_duration(asked),
        any_name=_title_of(resource) is not None,
        commit=False,
    )
    answer = claim.claim(_session(asked), [resource], options)
    return 200 if answer.status == "renewed" else 201, lease(answer.leases[0])


def renew(asked: CompatRequest) -> Answered:
    """Prolong a lease that this agent has still: one that is over is never renewed."""
    session, found, seconds = _session(asked), _found(asked), _duration(asked)
    if found.answers_to(session.actor):
        asked.gateway.check_token(session, found.resource, found.token, found.scope)
    answer = asked.gateway.renew(session, [found.resource], scope=found.scope, ttl=seconds)
    return 200, lease(answer.leases[0])


def release(asked: CompatRequest) -> Answered:
    found = _found(asked)
    end.release(_session(asked), [found.resource], scope=found.scope, commit=False)
    return 200, {"message": "Lease released", "id": found.lease_id}


def list_leases(asked: CompatRequest) -> Answered:
    """The leases of an intent that were not ended: those that ran out are ``expired``."""
    resource = _resource(asked)
    asked.task(resource, given=_title_of(resource) is not None)
    views = read_leases(_session(asked), resource=resource).leases
    return 200, {"leases": [lease(x) for x in views if x.state != State.COMPLETED.value]}


# --- shapes -------------------------------------------------------------------------------------


def lease(view: LeaseView) -> dict[str, Any]:
    since = _naive(view.claimed_at)
    return {
        "id": view.lease_id,
        "intent_id": view.resource,
        "agent_id": view.session or view.holder,
        "holder": view.holder,
        "scope": view.scope,
        "status": _STATUS.get(view.state, view.state),
        "created_at": since,
        "acquired_at": since,
        "expires_at": _naive(view.expires_at),
    }


def refused(error: Failure) -> Response:
    """A refusal as the SDK reads it.

    The word lease in a 409 makes it a conflict of leases, so that no other has it.
    """
    if isinstance(error, Refused):
        document = error.document
        return JSONResponse(
            {"error": document["code"], "message": document["message"]},
            error.status,
            headers=error.headers,
        )
    body: dict[str, Any] = {"error": error.code, "message": error.message}
    status = http_of(error.code)
    if isinstance(error, LeaseHeld | NotHolder | LeaseLost):
        status, view = 409, error.lease
        body["message"] = f"the lease cannot be had: {error.message}"
        if view is not None:
            body["existing_lease"] = lease(view)
    elif isinstance(error, Rollback):
        status = 503
    elif isinstance(error, UsageError):
        body["errors"] = [error.message]
    return JSONResponse(body, status, headers={"Retry-After": "2"} if status == 503 else {})


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
    return at.replace(tzinfo=None).isoformat()


# --- how ----------------------------------------------------------------------------------------


def _session(asked: CompatRequest) -> LedgerSession:
    return asked.session(asked.headers.get(AGENT) or None)


def _resource(asked: CompatRequest) -> Resource:
    """NotFound for what no intent can be called."""
    try:
        return name_resource(asked.path["intent"])
    except UsageError:
        raise NotFound(f"there is no intent {shown(asked.path['intent'])}") from None


def _found(asked: CompatRequest) -> Lease:
    """The lease of the intent that has this id now. NotFound where none has."""
    resource, id = _resource(asked), asked.path["lease"]
    for ledger in (asked.head.ledger, _session(asked).look().head.ledger):
        for one in ledger.leases_of(resource) if ledger else ():
            if one.lease_id == id and one.state is State.ACTIVE:
                return one
    raise NotFound(f"{resource} has no lease {shown(id)} any more", resource=resource.text)


def _duration(asked: CompatRequest) -> int:
    said = asked.body.get("duration_seconds", DURATION)
    if isinstance(said, bool) or not isinstance(said, int):
        raise UsageError("duration_seconds must be a whole number")
    return parse_duration(str(said)[:20], what="duration_seconds")


def _title_of(resource: Resource) -> str | None:
    """The title in an id that was given for one; None for any other name."""
    found = re.fullmatch(_GIVEN, resource.key)
    if found is None or _check(found[1], found[2]) != found[3]:
        return None
    return found[1].replace("-", " ") or resource.text


def _check(words: str, part: str) -> str:
    return sha256(f"{words}\0{part}".encode()).hexdigest()[:8]


def _number(asked: CompatRequest, name: str, default: int) -> int:
    said = asked.query.get(name, str(default))
    if not said.isascii() or not said.isdigit() or len(said) > 9:
        raise UsageError(f"{name} must be a number")
    return int(said)
