"""What the faces for other systems' clients share: their requests, and whose leases they mean.

No rule lives here. A request is read leniently, since those clients send fields of their own; who
speaks is said by the token alone, whatever else a body says of it.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from typing import Any

import anyio
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from gitlease.core.edge import Task
from gitlease.core.errors import GitleaseError, NotFound, UsageError, check_text
from gitlease.core.expiry import Moment, holder_has
from gitlease.core.lease import Actor, Lease, State
from gitlease.core.resources.resource import Resource
from gitlease.engine.edges import Planned, find_task
from gitlease.engine.ledger_session import LedgerSession
from gitlease.engine.ports import Snapshot
from gitlease.engine.reading import is_in_ledger
from gitlease.faces.http.access import Caller, Refused
from gitlease.faces.http.request_handler import MAX_SESSION, Door, body_of
from gitlease.gateway.gateway import Gateway

Failure = Refused | GitleaseError
Shape = Callable[[Failure], Response]
"""Gives a refusal in the shape of one API."""


class CompatRequest:
    """A request of another system's client: ``path``, ``query`` and ``body`` as they came."""

    def __init__(self, gateway: Gateway, caller: Caller, request: Request, body: Any) -> None:
        """UsageError for a body that is no object."""
        if not isinstance(body, dict):
            raise UsageError("the body must be a JSON object")
        self.gateway, self.caller, self.headers = gateway, caller, request.headers
        self.path: Mapping[str, str] = request.path_params
        self.query: Mapping[str, str] = request.query_params
        self.body: Mapping[str, Any] = body

    def at(self, **path: str) -> CompatRequest:
        """The same request of another address."""
        other = copy.copy(self)
        other.path = path
        return other

    def text(self, name: str, *, limit: int) -> str | None:
        """A field of the body; None where it is left out. UsageError for anything but a text."""
        said = self.body.get(name)
        return None if said is None else check_text(said, what=name, limit=limit)

    def session(self, run: str | None = None) -> LedgerSession:
        """The session of the token's holder, and of this one of its runs."""
        if run is not None:
            check_text(run, what="a session", limit=MAX_SESSION)
        return self.gateway.session(self.caller.holder, run)

    @cached_property
    def head(self) -> Snapshot:
        """The ledger as the remote has it now."""
        return self.gateway.store.follow(self.gateway.layer)

    def held(self, resource: Resource | None = None) -> list[Lease]:
        """What the token's holder has now, in whichever of its runs; of one resource, if named."""
        ledger, actor = self.head.ledger, Actor(holder=self.caller.holder)
        if ledger is None:
            return []
        moment = Moment(now=self.gateway.clock.now(), seen=self.head.seen)
        found = ledger.every_lease() if resource is None else ledger.leases_of(resource)
        own = (x for x in found if x.state is State.ACTIVE and x.same_holder(actor))
        return [x for x in own if holder_has(x, moment)]

    def task(self, resource: Resource, *, given: bool = False) -> Task | None:
        """The task of a name; None for a name that is no task and may be used all the same.

        It may where names need not be tasks, where the ledger knows it, or where it was ``given``
        as one. NotFound for any other.
        """
        session = self.session()
        task = find_task(session.edges.files.read(), resource, lenient=True)
        if task is not None or given or not session.edges.is_unknown(Planned(resource=resource)):
            return task
        known = is_in_ledger(session.known_look(), resource)
        if not known and not is_in_ledger(session.look(), resource):
            raise NotFound(f"there is no task {resource}", resource=resource.text)
        return None


Answered = tuple[int, Mapping[str, Any]]
Verb = Callable[[CompatRequest], Answered]


class CompatDoor:
    """Answers the requests of one API: each refusal has its ``shape``."""

    def __init__(self, door: Door, name: str, shape: Shape) -> None:
        self._door, self._name, self._shape = door, name, shape

    def endpoint(self, verb: Verb, scope: str) -> Callable[[Request], Awaitable[Response]]:
        """The endpoint of a verb; ``scope`` is what a token must be good for."""

        async def answer(request: Request) -> Response:
            try:
                response = await self._answer(request, verb, scope)
            except (Refused, GitleaseError) as error:
                response = self._shape(error)
            except ClientDisconnect:
                return Response(status_code=499)
            self._door.count(f"{self._name}_{verb.__name__}", response.status_code)
            return response

        return answer

    async def _answer(self, request: Request, verb: Verb, scope: str) -> Response:
        caller = self._door.access.caller(request.headers, scope)
        body = await body_of(request) if request.method in ("POST", "PATCH") else {}
        asked = CompatRequest(self._door.gateway, caller, request, body)
        status, document = await anyio.to_thread.run_sync(
            lambda: verb(asked), limiter=self._door.threads
        )
        return JSONResponse(document, status)
