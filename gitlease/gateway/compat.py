"""The part that the APIs for other systems' clients share: their requests and routes."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import timedelta
from functools import wraps
from typing import Any

import anyio
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from gitlease.gateway.gateway import Gateway
from gitlease.gateway.request_handler import (
    MAX_SESSION,
    Failure,
    RequestHandler,
    body_of,
    without_paths,
)
from gitlease.gateway.routes import GatewayDoor
from gitlease.gateway.tokens import Token
from gitlease.kernel.ledger.edges import Planned, find_task
from gitlease.kernel.ledger.stepping import is_in_ledger
from gitlease.kernel.rules.edge import Task
from gitlease.kernel.rules.errors import (
    GitleaseError,
    LeaseHeld,
    LeaseLost,
    NotFound,
    NotHolder,
    UsageError,
    check_text,
)
from gitlease.kernel.rules.lease import Lease, same_person
from gitlease.kernel.rules.resources import Resource
from gitlease.verbs import wire
from gitlease.verbs.claiming import BY_NAME, claim_by_name
from gitlease.verbs.table import Result, find_verb, read_values


class CompatRequest:
    """A request of another system's client, with its ``path``, ``query`` and ``body``."""

    def __init__(self, gateway: Gateway, caller: Token, request: Request, body: Any) -> None:
        """Raises UsageError if the body is not an object."""
        if not isinstance(body, dict):
            raise UsageError("the body must be a JSON object")
        self.gateway, self.caller, self.headers = gateway, caller, request.headers
        self.path: Mapping[str, str] = request.path_params
        self.query: Mapping[str, str] = request.query_params
        # Read leniently, since those clients send fields of their own. The token alone determines
        # the holder, whatever a body says.
        self.body: Mapping[str, Any] = body
        self._doors: list[GatewayDoor] = []

    def at(self, **path: str) -> CompatRequest:
        """The same request for another path."""
        other = copy.copy(self)
        other.path = path
        return other

    def text(self, name: str, *, limit: int) -> str | None:
        """A string of the body, None if absent. Raises UsageError for anything else."""
        value = self.body.get(name)
        return None if value is None else check_text(value, what=name, limit=limit)

    def number(self, name: str, default: int) -> int:
        """A whole number of the query. Raises UsageError for anything else."""
        value = self.query.get(name, str(default))
        if not value.isascii() or not value.isdigit() or len(value) > 9:
            raise UsageError(f"{name} must be a number")
        return int(value)

    def door(self, name: str | None = None) -> GatewayDoor:
        """The token's holder, in the session of this name."""
        if name is not None:
            check_text(name, what="a session", limit=MAX_SESSION)
        door = GatewayDoor(self.gateway, self.caller, name)
        self._doors.append(door)
        return door

    def leave_messages(self, messages: Iterable[str] = ()) -> None:
        """Leave these, and all that the answer has not reported, to the holder's next answer."""
        left = [text for door in self._doors for text in door.ledger.messages.take()]
        self.gateway.leave_messages(self.caller.email, (*left, *messages))

    def held(self, resource: Resource | None = None) -> list[Lease]:
        """The holder's live leases in all sessions, of one resource if named."""
        return self.gateway.held(self.caller.email, resource)

    def task(self, resource: Resource, *, given: bool = False) -> Task | None:
        """The task of a name; None for another name that may be leased.

        That is a name in the ledger, one ``given`` as an intent, or any name where the project does
        not require tasks. Raises NotFound for others.
        """
        session = self.door().ledger
        edges = session.edges
        task = find_task(edges.files.read(), resource, lenient=True) or edges.away(resource)
        if task is not None or given or not edges.is_unknown(Planned(resource=resource)):
            return task
        # The remote is asked only where what is known does not tell.
        known = is_in_ledger(session.known_look(), resource)
        if not known and not is_in_ledger(session.look(), resource):
            raise NotFound(f"there is no task {resource}", resource=resource.text)
        return None


def claim_named(
    asked: CompatRequest, door: GatewayDoor, resource: Resource, **given: Any
) -> Result:
    """Claim the task that a request names, on its own terms. Raises UsageError for those."""
    known = find_verb("claim").parameters
    terms = {name: asked.body.get(name) for name in BY_NAME}
    read = read_values({name: known[name] for name in BY_NAME}, door, terms, what="the body")
    return _with_messages_left(door, claim_by_name(door, resource, **given, **read))


def blocks_until(error: GitleaseError) -> str:
    """Until when an expired lease still blocks, for the end of a message; else an empty text."""
    view = error.lease
    if view is None or view.lapses_at is None or error.by_edge:
        return ""
    # The view has the time that was left when it was read: after its lapse it blocks nobody.
    if not view.is_lapsing(view.expires_at - timedelta(seconds=view.expires_in)):
        return ""
    # A lost lease is called expired already.
    how = "; it" if isinstance(error, LeaseLost) else ", has expired, and"
    return f"{how} blocks others until {wire.seconds(view.lapses_at, round_up=True)}"


def warnings_in(door: GatewayDoor) -> dict[str, Any]:
    """The ``warnings`` of an end, such as files that still assign the task; empty without any."""
    texts = [without_paths(text) for text in door.take_messages()]
    return {"warnings": texts} if texts else {}


def carry_out(verb: str, door: GatewayDoor, **values: Any) -> Result:
    """Carry out a verb of the table, and leave its messages to whatever the answer reports."""
    return _with_messages_left(door, find_verb(verb).answer(door, **values))


def _with_messages_left(door: GatewayDoor, result: Result) -> Result:
    # Most answers have no place for them.
    door.ledger.messages.add(result.warnings)
    return result


CompatAnswer = tuple[int, Mapping[str, Any]]  # status, body
CompatVerb = Callable[[CompatRequest], CompatAnswer]


def telling_sessions(verb: CompatVerb) -> CompatVerb:
    """The verb; a refusal for the sake of another session of the caller's person names it."""

    @wraps(verb)
    def with_session(asked: CompatRequest) -> CompatAnswer:
        try:
            return verb(asked)
        except (LeaseHeld, NotHolder) as error:
            view = error.lease
            if view is not None and same_person(view.holder, asked.caller.email):
                # Else they would read that they are refused for the sake of themselves.
                whose = f"your own session {view.session}" if view.session else "you"
                raise error.with_(message=f"{error.message} ({whose})") from None
            raise

    return with_session


def leaving_messages(verb: CompatVerb) -> CompatVerb:
    """The verb; what its answer or refusal cannot report is left to the holder's next answer."""

    @wraps(verb)
    def with_messages_left(asked: CompatRequest) -> CompatAnswer:
        try:
            answer = verb(asked)
        except GitleaseError as refusal:
            asked.leave_messages(refusal.warnings)
            raise
        asked.leave_messages()
        return answer

    return with_messages_left


def compat_routes(
    handler: RequestHandler,
    api: str,
    verbs: Iterable[tuple[str, str, CompatVerb]],
    failed: Callable[[Failure], Response],
    media: str | None = None,
) -> list[BaseRoute]:
    """Routes from methods, paths and verbs; ``failed`` shapes the refusals of this API.

    ``media`` is the type of its answers, if that is not plain JSON.
    """
    return [
        Route(
            path,
            handler.endpoint(
                f"{api}_{verb.__name__}",
                _endpoint(handler, method, leaving_messages(telling_sessions(verb)), media),
                failed,
            ),
            methods=[method],
        )
        for method, path, verb in verbs
    ]


def _endpoint(
    handler: RequestHandler, method: str, verb: CompatVerb, media: str | None
) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        caller = handler.access.admit(request.headers, "read" if method == "GET" else "write")
        body = await body_of(request) if method in ("POST", "PATCH") else {}
        asked = CompatRequest(handler.gateway.since_now(), caller, request, body)
        status, document = await anyio.to_thread.run_sync(verb, asked, limiter=handler.threads)
        return JSONResponse(document, status, media_type=media)

    return answer
