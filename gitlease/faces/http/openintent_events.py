"""OpenIntent's events: the gateway's own stream in its words, at both spellings of the address."""

from __future__ import annotations

import json
from collections.abc import AsyncIterable, AsyncIterator, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from gitlease.core.resources.pattern import fold
from gitlease.core.resources.resource import reads_as_name
from gitlease.faces.http.openintent import ROOTS
from gitlease.gateway.follower import LAPSED

ACQUIRED, RELEASED = "LEASE_ACQUIRED", "LEASE_RELEASED"
_TYPES = {
    "claimed": ACQUIRED,
    "taken_over": ACQUIRED,
    **dict.fromkeys(("released", "completed", "revoked", "retired", "run_out"), RELEASED),
}


def routes(own: Callable[..., Any]) -> list[BaseRoute]:
    """The streams, made of the gateway's ``own``: of one intent, or for an agent all of them.

    An agent waits for what others release, so its stream is not of its own leases alone.
    """

    async def answer(request: Request) -> Response:
        response: Response = await own(request)
        if isinstance(response, StreamingResponse):
            intent = request.path_params.get("intent")
            wanted = None if intent is None else fold(intent)
            response.body_iterator = _translated(response.body_iterator, wanted)
        return response

    paths = ("/{what}/{id}/subscribe", "/subscribe/{what}/{id}")
    names = (("agents", "agent"), ("intents", "intent"))
    return [
        Route(root + path.replace("{what}", what).replace("{id}", f"{{{id}}}"), answer)
        for root in ROOTS
        for path in paths
        for what, id in names
    ]


async def _translated(lines: AsyncIterable[Any], intent: str | None) -> AsyncIterator[str]:
    """What is about leases of names, of one intent or of all; and what says nothing."""
    async for event in lines:
        fields = dict(x.split(": ", 1) for x in str(event).splitlines() if ": " in x)
        if "data" not in fields:
            yield str(event)
        elif told := _event(fields, intent):
            yield told


def _event(fields: dict[str, str], intent: str | None) -> str:
    kind, number = fields["event"], fields.get("id")
    # A lapse is told when it happens, without a number; a numbered one was cleared away later.
    type = RELEASED if kind == LAPSED and number is None else _TYPES.get(kind)
    said = json.loads(fields["data"])
    resource = said.get("resource") or ""
    if type is None or not reads_as_name(resource) or intent not in (None, fold(resource)):
        return ""
    data = {
        "intent_id": resource,
        "scope": said["scope"],
        "agent_id": said["session"] or said["holder"],
        "reason": "expired" if kind == LAPSED else kind,
    }
    id = f"id: {number}\n" if number else ""
    return f"event: {type}\n{id}data: {json.dumps(data)}\n\n"
