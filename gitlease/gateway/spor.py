"""Spor's endpoints, so that its own command line and hooks work against a gateway unmodified.

A node is a task, or any name where the project does not require tasks. To extend and
reserve, a person's token acts in the session that has the lease, whichever one a request names; so
does a claim or a renewal that names none. A claim that names a session is bound to it, and another
session of the person is refused, to renew as well; the nonce of a dispatch counts as its session.

An assignment is kept in the ledger and ends with the lease: task files are read, never written.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

from gitlease.gateway.compat import (
    CompatAnswer,
    CompatRequest,
    CompatVerb,
    blocks_until,
    carry_out,
    claim_named,
    compat_routes,
    telling_sessions,
    warnings_in,
)
from gitlease.gateway.request_handler import (
    MAX_SESSION,
    Failure,
    Refused,
    RequestHandler,
    own_hints,
    without_paths,
)
from gitlease.gateway.routes import GatewayDoor
from gitlease.kernel.ledger.stepping import read_leases
from gitlease.kernel.rules.edge import Progress, same_name
from gitlease.kernel.rules.errors import (
    GitleaseError,
    LeaseHeld,
    LeaseLost,
    NotHolder,
    UsageError,
    shown,
)
from gitlease.kernel.rules.instant import LONGEST, MS, rfc3339_ms
from gitlease.kernel.rules.lease import State
from gitlease.kernel.rules.lease_view import LeaseView
from gitlease.kernel.rules.ledger import is_kept
from gitlease.kernel.rules.resources import Resource, fold, name_resource
from gitlease.tasks.queue import Carried, WhyNot
from gitlease.tasks.verbs import read_status
from gitlease.verbs.claiming import BY_NAME
from gitlease.verbs.table import MOST_NAMES, Result, http_of

IN_PROGRESS = "active"  # Spor's own word for it
DISPATCH = "dispatch:"


def routes(handler: RequestHandler) -> list[BaseRoute]:
    """The endpoints of a gateway for Spor's clients."""
    pool = ThreadPoolExecutor(MOST_NAMES, "several")
    node, queue = "/v1/nodes/{id}", "/v1/queue"
    verbs: list[tuple[str, str, CompatVerb]] = [
        ("POST", f"{node}/claim", claim_node),
        ("POST", f"{node}/renew", renew_node),
        ("POST", f"{node}/extend", extend_node),
        ("POST", f"{node}/release", release_node),
        ("POST", f"{node}/reserve", reserve_node),
        ("POST", f"{node}/status", set_status),
        ("POST", f"{queue}/claim", _bulk("claim", claim_node, pool)),
        ("POST", f"{queue}/renew", _bulk("renew", renew_node, pool)),
        ("POST", f"{queue}/release", _bulk("release", release_node, pool)),
        ("GET", node, get_node),
        ("GET", queue, get_queue),
        ("GET", "/v1/me", get_me),
    ]
    return compat_routes(handler, "spor", verbs, refused)


# --- one node ------------------------------------------------------------------------------------


def claim_node(asked: CompatRequest) -> CompatAnswer:
    node, name = node_of(asked.path["id"]), asked.text("session", limit=MAX_SESSION)
    dispatch = asked.text("dispatch", limit=MAX_SESSION - len(DISPATCH))
    if name is None and dispatch is None:
        door = _door(asked, node)
    else:
        door = asked.door(name if dispatch is None else DISPATCH + dispatch)
    return _claimed(claim_named(asked, door, node))


def renew_node(asked: CompatRequest) -> CompatAnswer:
    """Renew; a reserved node is claimed again, and with ``reclaim`` so is a lapsed one."""
    node = node_of(asked.path["id"])
    reclaim = asked.body.get("reclaim", False)
    if not isinstance(reclaim, bool):
        raise UsageError("reclaim must be true or false")
    door = _door(asked, node)
    try:
        _check_session(asked, node)
        verb = "claim" if _is_reserved(door, node) else "renew"
        result = carry_out(verb, door, resources=[node])
    except LeaseLost:
        if not reclaim:
            raise
        result = carry_out("claim", door, resources=[node])
    return _leased("renewed", result)


def extend_node(asked: CompatRequest) -> CompatAnswer:
    node, ms = node_of(asked.path["id"]), asked.body.get("ms")
    if isinstance(ms, bool) or not isinstance(ms, int | float) or not 0 < ms < math.inf:
        raise UsageError("ms must be a positive number of milliseconds")
    door = _door(asked, node)
    if _is_reserved(door, node):
        carry_out("claim", door, resources=[node])
    # Spor stretches a lease by that time, and the verb to so long from now. In whole seconds,
    # rounded up: no client gets less than it asked for.
    ends = [x.expires_at for x in asked.held(node) if x.answers_to(door.ledger.actor)]
    left = max(ends, default=0) - door.ledger.clock.now().wall_ms
    seconds = min(-(-(math.ceil(ms) + max(0, left)) // MS), LONGEST)
    result = carry_out("extend", door, resource=node, duration=seconds)
    most = {"capped_to_max": True, "claim_ttl_max_ms": result.body["max_ttl_seconds"] * MS}
    return _leased("extended", result, **(most if result.body["capped_to_max"] else {}))


def release_node(asked: CompatRequest) -> CompatAnswer:
    node = node_of(asked.path["id"])
    door = _door(asked, node)
    result = carry_out("release", door, resources=[node])
    places = result.body["edge_in"]
    return 200, {
        "ok": True,
        "status": "released",
        "node_id": node.key,
        # Spor prints that the edge was retired for any other word than skipped.
        "edge": "removed" if result.body["edge"] == "removed" else "skipped",
        **({"edge_in": places} if places else {}),
        **warnings_in(door),
    }


def reserve_node(asked: CompatRequest) -> CompatAnswer:
    """End the lease and keep the task: only its person may claim it, until it is abandoned."""
    node = node_of(asked.path["id"])
    door = _door(asked, node)
    result = carry_out("release", door, resources=[node], keep=True)
    after = door.ledger.look().policy.abandoned_after
    window = {"grace_window_ms": after * MS} if after else {}
    status, body = _leased("reserved", result, **window)
    return status, {**body, "lease": {**body["lease"], "reserved": True}}


def _is_reserved(door: GatewayDoor, node: Resource) -> bool:
    return any(map(is_kept, door.ledger.decisions.own_records(node)))


def set_status(asked: CompatRequest) -> CompatAnswer:
    """An in-progress status claims the task, a done status finishes it; others are refused."""
    node, word = node_of(asked.path["id"]), asked.text("status", limit=LONGEST_NODE)
    if word is None:
        raise UsageError("status must be a word")
    door = _door(asked, node)
    edges = door.ledger.edges
    edges.task(node, away=True)
    # A project may call that otherwise, and Spor's clients know no other word.
    role = Progress.IN_PROGRESS.value if fold(word) == IN_PROGRESS else word
    progress = read_status(role, edges).progress
    body = {"ok": True, "status": word, "node_id": node.key}
    if progress is Progress.IN_PROGRESS:
        _, claimed = _claimed(claim_named(asked, door, node))
        return 200, body | {"lease": claimed["lease"]}
    if progress is Progress.DONE:
        carry_out("done", door, resource=node)
        return 200, body | {"lease": None, **warnings_in(door)}
    raise UsageError(
        f"a gateway does not write task files, so it cannot set {word}",
        hints=("set it in a clone: gitlease set TASK STATUS",),
    )


# --- several ------------------------------------------------------------------------------------


def _bulk(word: str, verb: CompatVerb, pool: ThreadPoolExecutor) -> CompatVerb:
    """A verb for several nodes, each for itself."""
    done = {"claim": "claimed", "renew": "renewed", "release": "released"}[word]

    def several(asked: CompatRequest) -> CompatAnswer:
        ids = asked.body.get("ids", asked.body.get("nodes"))
        # Spor's hooks send an empty body: all leases of the person.
        if ids is None and word == "renew":
            ids = list(dict.fromkeys(x.resource.key for x in asked.held() if is_node(x.resource)))
        elif not isinstance(ids, list) or not 1 <= len(ids) <= MOST_NAMES:
            raise UsageError(f"ids must be a list of 1 to {MOST_NAMES} nodes")
        for odd in (x for x in ids if not isinstance(x, str) or not x.isprintable()):
            raise UsageError(f"invalid node {ascii(odd)[:60]}: expected a name")
        nodes = list(dict.fromkeys(map(fold, ids)))
        # All at once, so that their steps are joined into one push: its hooks wait 3 seconds.
        answers = list(pool.map(lambda id: _answered(asked, verb, id), nodes))
        each = [*zip(nodes, answers, strict=True)]
        failed = [{"node_id": id, **error_of(x)} for id, x in each if isinstance(x, GitleaseError)]
        good = [id for id, x in each if not isinstance(x, GitleaseError)]
        return 200, {
            "ok": True,
            "status": done,
            "count": len(good),
            done: good,
            "leases": [x["lease"] for x in answers if isinstance(x, Mapping) and "lease" in x],
            "failed": failed,
        }

    several.__name__ = f"{word}_several"
    return several


def _answered(asked: CompatRequest, verb: CompatVerb, id: str) -> Mapping[str, Any] | GitleaseError:
    try:
        answer = telling_sessions(verb)(asked.at(id=id))[1]
    except GitleaseError as error:
        asked.leave_messages(error.warnings)
        return error
    asked.leave_messages(answer.get("warnings", ()))
    return answer


def _leased(status: str, result: Result, **more: Any) -> CompatAnswer:
    return 200, {"ok": True, "status": status, "lease": lease(result.leases[0]), **more}


def _claimed(result: Result) -> CompatAnswer:
    former = [x.holder for x in result.answer.displaced] if result.answer else []
    return _leased(
        result.body["status"],
        result,
        edge="added" if result.body["edge"] == "added" else "skipped",
        **({"taken_over_from": former[0]} if former else {}),
    )


# --- how ----------------------------------------------------------------------------------------


def _door(asked: CompatRequest, node: Resource) -> GatewayDoor:
    """The person, in the session that has the node, else in the one that the request names."""
    named = asked.text("session", limit=MAX_SESSION)
    holding = [x.session for x in asked.held(node) if x.session is not None]
    return asked.door(holding[0] if holding and named not in holding else named)


def _check_session(asked: CompatRequest, node: Resource) -> None:
    """Raise NotHolder for another session than the one that a lease is bound to."""
    # A dispatch is none: the run that it launches has a session of its own.
    named = asked.text("session", limit=MAX_SESSION)
    bound = [x.session for x in asked.held(node) if x.session is not None]
    if named is None or not bound or named in bound or bound[0].startswith(DISPATCH):
        return
    carry_out("renew", asked.door(named), resources=[node])


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


def get_node(asked: CompatRequest) -> CompatAnswer:
    """A node as a small document; a finished one is ``inert``."""
    node = node_of(asked.path["id"])
    task = asked.task(node)
    session = asked.door().ledger
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
    reading = asked.door().queue.queue()
    who, people = asked.query.get("assignee") or "", asked.gateway.rules.people
    reserved = set[str]()

    def is_theirs(name: str) -> bool:
        # An email, or a name as task files have it.
        emails = people.holders_of(who)
        return (
            same_name(name, who)
            or people.is_mine(who, name)
            or any(people.is_mine(name, email) for email in emails)
        )

    if not who:
        tasks = [(x.task.resource, x.task.title, x.lease) for x in reading.next_up]
    elif who == "me" or people.is_mine(who, asked.caller.email):
        carried = [x for x in reading.carried if re.fullmatch(NODE, fold(x.resource))]
        reserved = {fold(x.resource) for x in carried if x.state is Carried.WAITING}
        tasks = [
            (name_resource(x.resource), x.task.title if x.task else "", x.lease) for x in carried
        ]
    else:
        tasks = [
            (x.task.resource, x.task.title, x.lease)
            for x in reading.entries
            if x.why_not is not WhyNot.DONE
            and (
                any(map(is_theirs, x.task.everyone))
                or (x.lease is not None and is_theirs(x.lease.holder))
            )
        ]
    items = [
        _item(resource, title, x, reserved=resource.key in reserved)
        for resource, title, x in tasks
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
    policy = asked.door().ledger.look().policy
    return 200, {
        "person": asked.caller.email,
        "name": asked.caller.name,
        "email": asked.caller.email,
        "bound": True,
        "is_admin": policy.is_admin(asked.caller.email),
        "org": "local",
    }


def _item(
    resource: Resource, title: str, view: LeaseView | None, *, reserved: bool = False
) -> dict[str, Any]:
    # A hook of Spor's renews the items whose ``lease_state`` is in_progress.
    item: dict[str, Any] = {"id": resource.key, "title": title or resource.text, "type": "task"}
    if view is not None and view.state == State.ACTIVE.value:
        item |= {"lease_state": "in_progress", "lease_by": view.holder}
    elif view is not None and reserved:
        item |= {"lease_state": "reserved", "lease_by": view.holder}
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
    }


def refused(error: Failure) -> Response:
    body = error_of(error)
    holder = body.pop("holder", None)
    status, headers = code_of(error)[0], error.headers if isinstance(error, Refused) else {}
    headers = {"Retry-After": "2"} if status == 503 else headers
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
    body: dict[str, Any] = {"code": code, "message": message_of(error)}
    if hints := own_hints(error.hints, (*BY_NAME, "session")):
        body["details"] = hints
    view = error.lease
    if status == 409 and view is not None and (not view.mine or view.state == "active"):
        body["holder"] = lease(view)
    return body


def message_of(error: GitleaseError) -> str:
    view = error.lease
    if view is None or not isinstance(error, LeaseHeld | NotHolder) or view.state != "active":
        return without_paths(error.message) + blocks_until(error)
    return f"{without_paths(error.message)} until {rfc3339_ms(_ms(view.expires_at))}"


def _ms(at: datetime) -> int:
    return round(at.timestamp() * MS)
