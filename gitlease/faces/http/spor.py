"""Spor's endpoints, so that its own command line and hooks lease here unmodified.

A node is a task, or where names need not be tasks any name. Its leases are a person's: to renew,
extend and reserve, whoever has the person's token speaks for the run that has the lease, whichever
session a request names; so does a claim that names none. A claim that names a session is that
run's, which another run of the person keeps out; the nonce of a dispatch counts as its run.

An assignment stands in the ledger and ends with the lease: task files are read, never written.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from starlette.routing import BaseRoute, Route

from gitlease.core.duration import LONGEST
from gitlease.core.edge import Progress
from gitlease.core.errors import GitleaseError, LeaseLost, UsageError
from gitlease.core.instant import MS
from gitlease.core.resources.pattern import fold
from gitlease.core.resources.resource import Resource
from gitlease.engine import claim, end, hold, sessions
from gitlease.engine.answers import Answer, ClaimOptions
from gitlease.engine.ledger_session import LedgerSession
from gitlease.faces.http.compat import Answered, CompatDoor, CompatRequest, Verb
from gitlease.faces.http.fields import MOST_NAMES
from gitlease.faces.http.request_handler import MAX_SESSION, Door
from gitlease.faces.http.spor_reading import get_me, get_node, get_queue
from gitlease.faces.http.spor_shapes import (
    LONGEST_NODE,
    code_of,
    error_of,
    is_node,
    lease,
    node_of,
    refused,
    told,
)
from gitlease.faces.statuses import read_status

IN_PROGRESS = "active"  # Spor's own word for it
DISPATCH = "dispatch:"


def routes(door: Door) -> list[BaseRoute]:
    """The endpoints of a gateway for Spor's clients."""
    spor = CompatDoor(door, "spor", refused)
    pool = ThreadPoolExecutor(MOST_NAMES, "several")
    actions = (claim_node, renew_node, extend_node, release_node, reserve_node, set_status)
    found: list[BaseRoute] = [
        Route(
            f"/v1/nodes/{{id}}/{verb.__name__.removeprefix('set_').removesuffix('_node')}",
            spor.endpoint(verb, "write"),
            methods=["POST"],
        )
        for verb in actions
    ]
    found += [
        Route(
            f"/v1/queue/{word}", spor.endpoint(_bulk(word, verb, pool), "write"), methods=["POST"]
        )
        for word, verb in (
            ("claim", claim_node),
            ("renew", renew_node),
            ("release", release_node),
        )
    ]
    reading: Mapping[str, Verb] = {
        "/v1/nodes/{id}": get_node,
        "/v1/queue": get_queue,
        "/v1/me": get_me,
    }
    return found + [
        Route(path, spor.endpoint(verb, "read"), methods=["GET"]) for path, verb in reading.items()
    ]


# --- what is done to one node -------------------------------------------------------------------


def claim_node(asked: CompatRequest) -> Answered:
    node, run = node_of(asked.path["id"]), _run(asked)
    dispatch = asked.text("dispatch", limit=MAX_SESSION - len(DISPATCH))
    if run is None and dispatch is None:
        session = _speaker(asked, node)
    else:
        session = asked.session(run if dispatch is None else DISPATCH + dispatch)
    return _claimed(claim.claim(session, [node], ClaimOptions(commit=False)))


def renew_node(asked: CompatRequest) -> Answered:
    """Renew; what lapsed is claimed again where ``reclaim`` says so, what is reserved always."""
    node = node_of(asked.path["id"])
    reclaim = asked.body.get("reclaim", False)
    if not isinstance(reclaim, bool):
        raise UsageError("reclaim must be true or false")
    session = _speaker(asked, node)
    try:
        answer = _kept(asked, session, node)
    except LeaseLost:
        if not reclaim:
            raise
        answer = claim.claim(session, [node], ClaimOptions(commit=False))
    return _leased("renewed", answer)


def extend_node(asked: CompatRequest) -> Answered:
    node, ms = node_of(asked.path["id"]), asked.body.get("ms")
    if isinstance(ms, bool) or not isinstance(ms, int | float) or not 0 < ms < math.inf:
        raise UsageError("ms must be a positive number of milliseconds")
    session = _speaker(asked, node)
    if any(x.parked for x in asked.held(node)):
        claim.claim(session, [node], ClaimOptions(commit=False))
    answer = hold.extend(session, node, min(-(-math.ceil(ms) // MS), LONGEST))
    capped = {"capped_to_max": True, "claim_ttl_max_ms": answer.max_ttl_seconds * MS}
    return _leased("extended", answer, **(capped if answer.capped_to_max else {}))


def release_node(asked: CompatRequest) -> Answered:
    node = node_of(asked.path["id"])
    ledger = asked.head.ledger
    assigned = {x.lease_id for x in (ledger.leases_of(node) if ledger else ()) if x.edge}
    answer = end.release(_speaker(asked, node), [node], commit=False)
    retired = any(x.lease_id in assigned for x in answer.leases)
    return 200, {
        "ok": True,
        "status": "released",
        "node_id": node.key,
        "edge": "removed" if retired else "skipped",
    }


def reserve_node(asked: CompatRequest) -> Answered:
    node = node_of(asked.path["id"])
    answer = sessions.park(_speaker(asked, node), [node])
    return _leased("reserved", answer, grace_window_ms=answer.max_park_seconds * MS)


def set_status(asked: CompatRequest) -> Answered:
    """A status in progress claims the task, one of what is done finishes it; no other is set."""
    node, word = node_of(asked.path["id"]), asked.text("status", limit=LONGEST_NODE)
    if word is None:
        raise UsageError("status must be a word")
    session = _speaker(asked, node)
    session.edges.task(node)
    role = Progress.IN_PROGRESS.value if fold(word) == IN_PROGRESS else word
    meant = read_status(role, session.edges).progress
    said = {"ok": True, "status": word, "node_id": node.key}
    if meant is Progress.IN_PROGRESS:
        try:
            _, claimed = _claimed(claim.claim(session, [node], ClaimOptions(commit=False)))
        except GitleaseError as error:
            if code_of(error)[0] != 409:
                raise
            why = {"error": code_of(error)[1], "message": told(error)}
            return 200, said | {"lease": why | ({"holder": error.holder} if error.holder else {})}
        return 200, said | {"lease": claimed["lease"]}
    if meant is Progress.DONE:
        end.complete(session, node, commit=False)
        return 200, said | {"lease": None}
    raise UsageError(
        f"a gateway writes no task files, so it cannot set {word}",
        hints=("set it where the repository is checked out",),
    )


# --- several ------------------------------------------------------------------------------------


def _bulk(word: str, verb: Verb, pool: ThreadPoolExecutor) -> Verb:
    """The same of several nodes: those that fail do not keep the others from it.

    They are asked at the same time, so that their steps are joined. A renewal that names none is of
    all that the person holds.
    """
    done = {"claim": "claimed", "renew": "renewed", "release": "released"}[word]

    def several(asked: CompatRequest) -> Answered:
        ids = asked.body.get("ids", asked.body.get("nodes"))
        if ids is None and word == "renew":
            live = (x for x in asked.held() if not x.parked)
            ids = list(dict.fromkeys(x.resource.key for x in live if is_node(x.resource)))
        elif not isinstance(ids, list) or not 1 <= len(ids) <= MOST_NAMES:
            raise UsageError(f"ids must be a list of 1 to {MOST_NAMES} nodes")
        if odd := next((x for x in ids if not isinstance(x, str)), None):
            raise UsageError(f"{odd!r:.60} is no node")
        nodes = list(dict.fromkeys(map(fold, ids)))
        answers = list(pool.map(lambda id: _one(asked, verb, id), nodes))
        good, failed = [], []
        for id, answer in zip(nodes, answers, strict=True):
            if isinstance(answer, GitleaseError):
                failed.append({"node_id": id, **error_of(answer)})
            else:
                good.append(id)
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


def _one(asked: CompatRequest, verb: Verb, id: str) -> Mapping[str, Any] | GitleaseError:
    try:
        return verb(asked.at(id=id))[1]
    except GitleaseError as error:
        return error


def _leased(status: str, answer: Answer, **more: Any) -> Answered:
    return 200, {"ok": True, "status": status, "lease": lease(answer.leases[0]), **more}


def _claimed(answer: Answer) -> Answered:
    """``edge`` is added where this claim made the assignment."""
    added = answer.status != "renewed" and answer.leases[0].assigned
    return _leased(answer.status, answer, edge="added" if added else "skipped")


# --- how ----------------------------------------------------------------------------------------


def _run(asked: CompatRequest) -> str | None:
    return asked.text("session", limit=MAX_SESSION)


def _speaker(asked: CompatRequest, node: Resource) -> LedgerSession:
    """The run of the person's that has the node, else the one that the request names."""
    said = _run(asked)
    runs = [x.session for x in asked.held(node) if x.session is not None]
    return asked.session(runs[0] if runs and said not in runs else said)


def _kept(asked: CompatRequest, session: LedgerSession, node: Resource) -> Answer:
    """Renewed: by the record where nothing is to be changed but the time."""
    held = asked.held(node)
    if any(x.parked for x in held):
        return claim.claim(session, [node], ClaimOptions(commit=False))
    if session.actor.session is not None and any(x.session is None for x in held):
        return hold.renew(session, [node])  # which binds it to the run
    return asked.gateway.renew(session, [node])
