"""What Spor's clients read: a node, the queue, and who they are."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from gitlease.core.edge import Progress
from gitlease.core.errors import UsageError
from gitlease.core.lease import State, same_person
from gitlease.core.resources.pattern import fold
from gitlease.core.resources.resource import Resource, name_resource
from gitlease.core.view import LeaseView
from gitlease.engine.queue.queueing import TaskQueue
from gitlease.engine.reading import read_leases
from gitlease.faces.http.compat import Answered, CompatRequest
from gitlease.faces.http.spor_shapes import NODE, is_node, lease, node_of

PAGE, LONGEST_PAGE = 20, 100


def get_node(asked: CompatRequest) -> Answered:
    """A node as a small document: ``inert`` says whether it is finished."""
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
    front = {
        "id": node.key,
        "type": "task",
        "title": " ".join((task.title if task else "").split()) or node.text,
        "status": word or rules.word(Progress.TODO),
    }
    raw = "".join(f"{name}: {value}\n" for name, value in front.items())
    document = {"id": node.key, "raw": f"---\n{raw}---\n", "frontmatter": front, "inert": done}
    return 200, document | {"lease": lease(live) if live else None}


def get_queue(asked: CompatRequest) -> Answered:
    """What may be claimed, best first; with ``assignee`` what that person carries."""
    reading = TaskQueue(asked.session(), list).queue()
    who = asked.query.get("assignee")
    if who in (None, ""):
        found = [(x.task.resource, x.task.title, x.lease) for x in reading.next_up]
    elif who == "me" or same_person(who or "", asked.caller.holder):
        found = [
            (name_resource(x.resource), x.task.title if x.task else "", x.lease)
            for x in reading.carried
            if re.fullmatch(NODE, fold(x.resource))
        ]
    else:
        found = [
            (x.task.resource, x.task.title, x.lease)
            for x in reading.entries
            if x.lease is not None and same_person(x.lease.holder, who or "")
        ]
    views = reading.views
    items = [
        _item(resource, title, views.get(x.lease_id) if x else None)
        for resource, title, x in found
        if is_node(resource)
    ]
    start, limit = _number(asked, "offset", 0), _number(asked, "limit", PAGE)
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


def get_me(asked: CompatRequest) -> Answered:
    policy = asked.session().look().policy
    return 200, {
        "person": asked.caller.holder,
        "name": asked.caller.name,
        "email": asked.caller.holder,
        "bound": True,
        "is_admin": policy.is_admin(asked.caller.holder),
        "org": "local",
    }


def _item(resource: Resource, title: str, view: LeaseView | None) -> dict[str, Any]:
    """``lease_state`` is there where somebody has it: a hook renews what is in progress."""
    item: dict[str, Any] = {"id": resource.key, "title": title or resource.text, "type": "task"}
    if view is not None and view.state == State.ACTIVE.value:
        state = "reserved" if view.parked else "in_progress"
        item |= {"lease_state": state, "lease_by": view.holder}
    return item


def _number(asked: CompatRequest, name: str, default: int) -> int:
    said = asked.query.get(name, str(default))
    if not said.isascii() or not said.isdigit() or len(said) > 9:
        raise UsageError(f"{name} must be a number")
    return int(said)
