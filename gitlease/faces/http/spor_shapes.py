"""Spor's shapes: a node's id, a lease, and a refusal, as its own clients read them."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from starlette.responses import JSONResponse, Response

from gitlease.core.errors import GitleaseError, LeaseHeld, NotHolder, UsageError, shown
from gitlease.core.instant import EPOCH, MS, rfc3339_ms
from gitlease.core.resources.pattern import fold
from gitlease.core.resources.resource import Resource, name_resource
from gitlease.core.view import LeaseView
from gitlease.faces.codes import http_of
from gitlease.faces.http.access import Refused
from gitlease.faces.http.compat import Failure

NODE = r"[a-z0-9][a-z0-9-]*"  # compiled where it is used
LONGEST_NODE = 128
# The codes of the table of Spor's errors; any other is told as it is, with its usual status.
_CODES = {
    "held": (409, "conflict"),
    "lost": (409, "lease_lost"),
    "not_holder": (409, "lease_lost"),
    "policy": (409, "transition_denied"),
    "usage": (422, "invalid_node"),
    "denied": (403, "forbidden"),
    "too_many_requests": (429, "rate_limited"),
    "invalid": (500, "internal"),
    "rollback": (503, "unavailable"),
}


def node_of(id: Any) -> Resource:
    if not isinstance(id, str) or len(id) > LONGEST_NODE or not re.fullmatch(NODE, id):
        said = shown(id) if isinstance(id, str) else "this"
        raise UsageError(f"{said} is no node: a-z, 0-9 and -, {LONGEST_NODE} at most")
    return name_resource(id)


def is_node(resource: Resource) -> bool:
    return re.fullmatch(NODE, resource.key) is not None


def lease(view: LeaseView) -> dict[str, Any]:
    """A lease as Spor shows it; ``expires`` is in milliseconds since 1970."""
    expires = _ms(view.expires_at)
    return {
        "node_id": fold(view.resource),
        "by": view.holder,
        "expires": expires,
        "expires_at": rfc3339_ms(expires),
        "expires_in_ms": max(0, view.expires_in) * MS,
        "session": view.session,
        "claimed_at": rfc3339_ms(_ms(view.claimed_at)),
    } | ({"reserved": True} if view.parked else {})


def refused(error: Failure) -> Response:
    """A refusal as Spor's clients read it."""
    body = error_of(error)
    holder = body.pop("holder", None)
    headers = error.headers if isinstance(error, Refused) else {}
    status = code_of(error)[0]
    if status == 503:
        headers = {"Retry-After": "2"}
    document = {"error": body} | ({"holder": holder} if holder else {})
    return JSONResponse(document, status, headers=dict(headers))


def code_of(error: Failure) -> tuple[int, str]:
    if isinstance(error, Refused):
        code = str(error.document["code"])
        return _CODES.get(code, (error.status, code))
    return _CODES.get(error.code, (http_of(error.code), error.code))


def error_of(error: Failure) -> dict[str, Any]:
    """``code``, ``message``, ``details`` where there are any, and of a conflict the ``holder``."""
    status, code = code_of(error)
    if isinstance(error, Refused):
        return {"code": code, "message": error.document["message"]}
    found: dict[str, Any] = {"code": code, "message": told(error)}
    if error.hints:
        found["details"] = list(error.hints)
    view = error.lease
    if status == 409 and view is not None and (not view.mine or view.state == "active"):
        found["holder"] = lease(view)
    return found


def told(error: GitleaseError) -> str:
    view = error.lease
    if view is None or not isinstance(error, LeaseHeld | NotHolder) or view.state != "active":
        return error.message
    return f"{error.message} until {rfc3339_ms(_ms(view.expires_at))}"


def _ms(at: datetime) -> int:
    return round((at - EPOCH).total_seconds() * MS)
