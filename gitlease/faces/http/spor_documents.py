"""Spor's documents as its own clients read them: nodes, the queue, leases and refusals."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from starlette.responses import JSONResponse, Response

from gitlease.core.edge import Progress, same_name
from gitlease.core.errors import GitleaseError, LeaseHeld, NotHolder, UsageError, shown
from gitlease.core.instant import EPOCH, MS, rfc3339_ms
from gitlease.core.lease import State
from gitlease.core.resources.pattern import fold
from gitlease.core.resources.resource import Resource, name_resource
from gitlease.core.view import LeaseView
from gitlease.engine.queue.order import WhyNot
from gitlease.engine.queue.queueing import TaskQueue
from gitlease.engine.reading import read_leases
from gitlease.faces.codes import http_of
from gitlease.faces.http.access import Refused
from gitlease.faces.http.compat import CompatAnswer, CompatRequest, blocks_until
from gitlease.faces.http.fields import own_hints, own_words
from gitlease.faces.http.request_handler import Failure

NODE = r"[a-z0-9][a-z0-9-]*"  # compiled where it is used
LONGEST_NODE = 128
# Spor's own error codes; others keep their code and status.
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
PAGE, LONGEST_PAGE = 20, 100
FIELDS = ("takeover", "reason", "session")  # of a claim, which hints may name


def get_node(asked: CompatRequest) -> CompatAnswer:
    """A node as a small document; a finished one is ``inert``."""
    node = node_of(asked.path["id"])
    task = asked.task(node)
    session = asked.session()
    leases = read_leases(session, resource=task.resource if task else node).leases
    live = next((x for x in leases if x.state == State.ACTIVE.value), None)
    done = any(x.state == State.COMPLETED.value for x in leases) or bool(task and task.is_done)
    rules = session.edges.rules
    word = task.status if task else ""
    if done and not (task and task.is_done):
        word = rules.word(Progress.DONE)
    assignees = asked.gateway.assignees(session, node)
    front = {
        "id": node.key,
        "type": "task",
        "title": " ".join((task.title if task else "").split()) or node.text,
        "status": word or rules.word(Progress.TODO),
    }
    if assignees:
        front["assigned"] = ", ".join(x.name for x in assignees)
    raw = "".join(f"{name}: {value}\n" for name, value in front.items())
    document = {"id": node.key, "raw": f"---\n{raw}---\n", "frontmatter": front, "inert": done}
    return 200, document | {"lease": lease(live) if live else None}


def get_queue(asked: CompatRequest) -> CompatAnswer:
    """The claimable tasks, best first; with ``assignee`` the tasks of that person."""
    reading = TaskQueue(asked.session(), list).queue()
    who, people = asked.query.get("assignee") or "", asked.gateway.rules.people

    def is_theirs(name: str) -> bool:  # an email, or a name as task files have it
        emails = people.holders_of(who)
        return (
            same_name(name, who)
            or people.is_mine(who, name)
            or any(people.is_mine(name, email) for email in emails)
        )

    if not who:
        found = [(x.task.resource, x.task.title, x.lease) for x in reading.next_up]
    elif who == "me" or people.is_mine(who, asked.caller.email):
        found = [
            (name_resource(x.resource), x.task.title if x.task else "", x.lease)
            for x in reading.carried
            if re.fullmatch(NODE, fold(x.resource))
        ]
    else:
        found = [
            (x.task.resource, x.task.title, x.lease)
            for x in reading.entries
            if x.why_not is not WhyNot.DONE
            and (
                any(map(is_theirs, x.task.everyone))
                or (x.lease is not None and is_theirs(x.lease.holder))
            )
        ]
    views = reading.views
    items = [
        _item(resource, title, views.get(x.lease_id) if x else None)
        for resource, title, x in found
        if is_node(resource)
    ]
    start, limit = asked.number("offset", 0), asked.number("limit", PAGE)
    page = items[start : start + min(limit, LONGEST_PAGE)]
    more = start + len(page) < len(items)
    return 200, {
        "items": page,
        "count": len(page),
        "offset": start,
        "returned_count": len(page),
        "total_count": len(items),
        "truncated": more,
        "next_offset": start + len(page) if more else None,
        "generated_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
    }


def get_me(asked: CompatRequest) -> CompatAnswer:
    policy = asked.session().look().policy
    return 200, {
        "person": asked.caller.email,
        "name": asked.caller.name,
        "email": asked.caller.email,
        "bound": True,
        "is_admin": policy.is_admin(asked.caller.email),
        "org": "local",
    }


def _item(resource: Resource, title: str, view: LeaseView | None) -> dict[str, Any]:
    # A hook of Spor's renews the items whose ``lease_state`` is in_progress.
    item: dict[str, Any] = {"id": resource.key, "title": title or resource.text, "type": "task"}
    if view is not None and view.state == State.ACTIVE.value:
        state = "reserved" if view.parked else "in_progress"
        item |= {"lease_state": state, "lease_by": view.holder}
    return item


# --- shapes -------------------------------------------------------------------------------------


def node_of(id: Any) -> Resource:
    if not isinstance(id, str) or len(id) > LONGEST_NODE or not re.fullmatch(NODE, id):
        name = shown(id) if isinstance(id, str) else type(id).__name__
        raise UsageError(f"invalid node {name}: expected a-z, 0-9 and -, at most {LONGEST_NODE}")
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
    body = error_of(error)
    holder = body.pop("holder", None)
    headers = error.headers if isinstance(error, Refused) else {}
    status = code_of(error)[0]
    if status == 503:
        headers = {"Retry-After": "2"}
    document = {"error": body} | ({"holder": holder} if holder else {})
    return JSONResponse(document, status, headers=dict(headers))


def code_of(error: Failure) -> tuple[int, str]:
    status = error.status if isinstance(error, Refused) else http_of(error.code)
    return _CODES.get(error.code, (status, error.code))


def error_of(error: Failure) -> dict[str, Any]:
    """``code``, ``message``, ``details`` if any, and the ``holder`` of a conflict."""
    status, code = code_of(error)
    if isinstance(error, Refused):
        return {"code": code, "message": error.message}
    found: dict[str, Any] = {"code": code, "message": message_of(error)}
    if hints := own_hints(error.hints, FIELDS):
        found["details"] = hints
    view = error.lease
    if status == 409 and view is not None and (not view.mine or view.state == "active"):
        found["holder"] = lease(view)
    return found


def message_of(error: GitleaseError) -> str:
    view = error.lease
    if view is None or not isinstance(error, LeaseHeld | NotHolder) or view.state != "active":
        return own_words(error.message) + blocks_until(error)
    return f"{own_words(error.message)} until {rfc3339_ms(_ms(view.expires_at))}"


def _ms(at: datetime) -> int:
    return round((at - EPOCH).total_seconds() * MS)
