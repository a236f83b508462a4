"""The gateway's own API of leases: each endpoint is a verb of the engine."""

from __future__ import annotations

from collections.abc import Sequence

from gitlease.core.duration import format_duration
from gitlease.core.errors import GitleaseError, LeaseLost, UsageError
from gitlease.core.frozen import replace
from gitlease.core.lease import State
from gitlease.core.resources.pattern import fold
from gitlease.core.resources.resource import WHOLE, Resource, parse_resource
from gitlease.core.view import LeaseView
from gitlease.engine import claim, end, hold
from gitlease.engine.answers import Answer, ClaimOptions
from gitlease.engine.ledger_session import LedgerSession
from gitlease.engine.queue.queueing import TaskQueue
from gitlease.engine.reading import read_leases, read_log
from gitlease.faces import wire
from gitlease.faces.http.replaying import answered_before
from gitlease.faces.http.request_handler import Answered, Asked
from gitlease.gateway.joiner import AppliedBefore
from gitlease.gateway.known_keys import CLAIMED, COMPLETED, EXTENDED, RELEASED, RENEWED
from gitlease.guard.rules import Severity, Touched, Viewpoint

LONGEST_WAIT = 60  # seconds for which a claim may wait: proxies end what takes longer
PAGE, LONGEST_PAGE = 200, 1_000
STATES = ("active", "expired", "completed", "all")


def put_lease(asked: Asked) -> Answered:
    """Claim one resource; with ``If-None-Match: *`` only where the caller has it not yet."""
    new = asked.headers.get("if-none-match") == "*" or asked.values.get("new", False)
    resource = parse_resource(asked.resource)
    if asked.token is not None:
        session = _session(asked)
        if not asked.gateway.held(asked.caller.holder, resource, asked.values.get("scope")):
            raise LeaseLost(f"you do not hold {resource}", resource=resource.text)
        _check_token(asked, session, resource)
    return _claimed(asked, [resource], new=new)


def claim_several(asked: Asked) -> Answered:
    return _claimed(asked, asked.values["resources"], new=asked.values.get("new", False))


def _claimed(asked: Asked, resources: Sequence[Resource], *, new: bool) -> Answered:
    values, session = asked.values, _session(asked)
    wait = values.get("wait")
    if wait is not None and wait > LONGEST_WAIT:
        raise UsageError(
            f"wait is {format_duration(LONGEST_WAIT)} at most here",
            hints=("ask again, or listen at /v1/events",),
        )
    options = ClaimOptions(
        scope=values.get("scope", WHOLE),
        ttl=values.get("ttl"),
        paths=values.get("paths", ()),
        reason=values.get("reason"),
        takeover=values.get("takeover", False),
        expect_holder=values.get("expect_holder"),
        reopen=values.get("reopen", False),
        any_name=values.get("any", False),
        new=new,
    )
    if options.takeover and not options.reason:
        raise UsageError("a takeover needs a reason")
    try:
        answer = claim.claim(session, resources, options, wait=wait)
    except AppliedBefore as before:
        answer = answered_before(
            asked, session, resources, before, CLAIMED | RENEWED, options.scope
        )
    status = 201 if answer.status in ("claimed", "taken_over") else 200
    return status, *_document("claim", wire.claimed(answer), answer)


def patch_lease(asked: Asked) -> Answered:
    """Renew a lease, or with ``extend`` stretch it; ``If-Match`` has the token that is meant."""
    resource, values, session = parse_resource(asked.resource), asked.values, _session(asked)
    if "extend" in values and "ttl" in values:
        raise UsageError("ttl is of a renewal: it goes not with extend")
    _check_token(asked, session, resource)
    scope = values.get("scope")
    if "extend" not in values:
        return _renewed(asked, session, [resource])
    try:
        answer = hold.extend(session, resource, values["extend"], scope=scope)
    except AppliedBefore as before:
        answer = answered_before(asked, session, [resource], before, EXTENDED, scope)
        most = session.look().policy.ttl_max
        answer = replace(answer, max_ttl_seconds=most)
    capped = {"capped_to_max": answer.capped_to_max, "max_ttl_seconds": answer.max_ttl_seconds}
    return 200, *_document("extend", wire.changed(answer) | capped, answer)


def renew_several(asked: Asked) -> Answered:
    """Renew several leases; all or none: what is lost is said before anything is renewed."""
    return _renewed(asked, _session(asked), asked.values["resources"])


def _renewed(asked: Asked, session: LedgerSession, resources: Sequence[Resource]) -> Answered:
    scope, ttl = asked.values.get("scope"), asked.values.get("ttl")
    try:
        answer = asked.gateway.renew(session, resources, scope=scope, ttl=ttl)
    except AppliedBefore as before:
        answer = answered_before(asked, session, resources, before, RENEWED, scope)
    return 200, *_document("renew", wire.changed(answer), answer)


def delete_lease(asked: Asked) -> Answered:
    """Release a lease, or with ``done=true`` finish its work."""
    resource, values, session = parse_resource(asked.resource), asked.values, _session(asked)
    done = values.get("done", "false")
    if done not in ("true", "false"):
        raise UsageError("done must be true or false")
    _check_token(asked, session, resource)
    scope = values.get("scope")
    command, expected = ("done", COMPLETED) if done == "true" else ("release", RELEASED)
    try:
        if done == "true":
            answer = end.complete(session, resource, scope=scope)
        else:
            answer = end.release(session, [resource], scope=scope, note=values.get("note"))
    except AppliedBefore as before:
        answer = answered_before(asked, session, [resource], before, expected)
    return 200, *_document(command, wire.ended(answer), answer)


def get_lease(asked: Asked) -> Answered:
    """The leases and notes of one resource; none where it is free."""
    reading = read_leases(_session(asked), resource=parse_resource(asked.resource))
    leases = [wire.lease(view) for view in reading.leases]
    body: wire.Document = {
        "leases": leases,
        "notes": [wire.note(x) for x in reading.notes],
        "waiting": wire.waiting(reading.waiting),
    }
    if len(leases) == 1:
        body["lease"] = leases[0]
    return 200, wire.success("show", body=body, warnings=reading.warnings), _etag(reading.leases)


def list_leases(asked: Asked) -> Answered:
    """Leases by their resources, a page at a time."""
    values, state = asked.values, asked.values.get("state", "active")
    if state not in STATES:
        raise UsageError(f"state must be one of {', '.join(STATES)}")
    limit = _number(values.get("limit", str(PAGE)), "limit")
    reading = read_leases(_session(asked))
    found = [x for x in reading.leases if state in ("all", x.state)]
    if holder := values.get("holder"):
        found = [x for x in found if fold(x.holder) == fold(holder)]
    if path := values.get("path"):
        about = parse_resource(f"path:{path}")
        covering = {x.lease_id for x in read_leases(_session(asked), resource=about).leases}
        found = [x for x in found if x.lease_id in covering]
    found.sort(key=_place)
    after = values.get("cursor", "")
    found = [x for x in found if _place(x) > after] if after else found
    page = found[:limit]
    body = {
        "leases": [wire.lease(x) for x in page],
        "next_cursor": _place(page[-1]) if len(found) > limit else None,
    }
    return 200, wire.success("list", body=body, warnings=reading.warnings), {}


def check_paths(asked: Asked) -> Answered:
    """Who holds what of some paths that are about to be changed: what blocks first."""
    session = _session(asked)
    look = session.look()
    view = Viewpoint(session.actor, look.policy, look.moment)
    touched = [Touched(path) for path in asked.values["paths"]]
    live = [x for x in look.leases if x.state is State.ACTIVE]
    found = view.judge(touched, live)
    seen = {x.lease_id: v for x, v in zip(live, session.views(look, live), strict=True)}
    body = {
        "free": not any(x.severity is Severity.BLOCK for x in found),
        "findings": [
            {
                "path": x.path,
                "severity": x.severity.value,
                "lease": wire.lease(seen[x.lease.lease_id]),
            }
            for x in found
        ],
    }
    return 200, wire.success("check", body=body, warnings=look.warnings), {}


def list_tasks(asked: Asked) -> Answered:
    """Every open task, whether it may be claimed, and if not why."""
    reading = TaskQueue(_session(asked), lambda: []).queue()
    body = {"tasks": [wire.entry(x, reading.views) for x in reading.entries]}
    return 200, wire.success("queue", body=body, warnings=reading.warnings), {}


def next_task(asked: Asked) -> Answered:
    """The task that is to be done next; with ``claim`` it is the caller's in the same step."""
    session = _session(asked)
    queue = TaskQueue(session, lambda: [])
    if not asked.values.get("claim", False):
        reading = queue.next_task()
        first = reading.next_up[0] if reading.next_up else None
        found = wire.entry(first, reading.views) if first else None
        return 200, wire.success("next", body={"task": found}, warnings=reading.warnings), {}
    try:
        answer, task = queue.claim_next(ClaimOptions(ttl=asked.values.get("ttl"), commit=False))
    except AppliedBefore as before:
        answer, task = answered_before(asked, session, (), before, CLAIMED | RENEWED), None
    name = answer.leases[0].resource
    body = {"task": wire.task(task, resource=name)} | wire.claimed(answer)
    return 201, *_document("next", body, answer)


def history(asked: Asked) -> Answered:
    """The audit trail of one resource, newest first."""
    limit = _number(asked.values.get("limit", "100"), "limit")
    reading = read_log(_session(asked), resource=parse_resource(asked.resource), limit=limit)
    body = {"events": [wire.event(x) for x in reading.events]}
    return 200, wire.success("log", body=body, warnings=reading.warnings), {}


# --- how --------------------------------------------------------------------------------------


def _session(asked: Asked) -> LedgerSession:
    holder = asked.caller.holder
    return asked.gateway.session(holder, asked.session, key=asked.key, check=asked.check)


def _check_token(asked: Asked, session: LedgerSession, resource: Resource) -> None:
    if (token := asked.token) is not None:
        asked.gateway.check_token(session, resource, token, asked.values.get("scope"))


def _document(
    command: str, body: wire.Document, answer: Answer
) -> tuple[wire.Document, dict[str, str]]:
    refused = list[GitleaseError](answer.refused)
    if refused:
        body["refused"] = [x.code for x in refused]
    return wire.success(command, body=body, warnings=answer.warnings), _etag(answer.leases)


def _etag(views: Sequence[LeaseView]) -> dict[str, str]:
    """The token of a lease: what ``If-Match`` names."""
    return {"ETag": f'"{views[0].token}"'} if len(views) == 1 else {}


def _place(view: LeaseView) -> str:
    return f"{view.resource}\t{view.scope}"


def _number(word: str, name: str) -> int:
    digits = word.isascii() and word.isdigit() and len(word) <= len(str(LONGEST_PAGE))
    if not digits or not 1 <= int(word) <= LONGEST_PAGE:
        raise UsageError(f"{name} must be a number from 1 to {LONGEST_PAGE}")
    return int(word)
