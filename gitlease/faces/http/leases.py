"""The gateway's own lease API: each endpoint is a verb of the engine."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

from gitlease.core.errors import LeaseHeld, LeaseLost, NotHolder, UsageError
from gitlease.core.frozen import replace
from gitlease.core.instant import format_duration, moment_of
from gitlease.core.lease import State
from gitlease.core.resources.pattern import any_overlap, fold
from gitlease.core.resources.resource import Resource, parse_resource, word_anywhere
from gitlease.core.view import LeaseView
from gitlease.engine import acts, claim
from gitlease.engine.answers import Answer, ClaimOptions, EndedLease
from gitlease.engine.ledger_session import LedgerSession
from gitlease.engine.queue import TaskQueue
from gitlease.engine.reading import read_leases, read_log
from gitlease.faces.http.fields import claim_options
from gitlease.faces.http.request_handler import ANOTHER_REQUEST, ApiAnswer, ApiRequest
from gitlease.gateway.joiner import (
    CLAIMED,
    COMPLETED,
    EXTENDED,
    RELEASED,
    RENEWED,
    AppliedBefore,
    events_under,
)
from gitlease.guard.rules import Severity, Touched, Viewpoint
from gitlease.verbs import wire

LONGEST_WAIT = 60  # seconds a claim may wait: proxies time out after that
PAGE, LONGEST_PAGE = 200, 1_000
ENDED = (State.RELEASED.value, State.REVOKED.value)  # listed for a while, from the audit trail
STATES = (*(x.value for x in State), "all")


def put_lease(request: ApiRequest) -> ApiAnswer:
    """Claim one resource; with ``If-None-Match: *`` only if the caller does not hold it yet."""
    new = request.headers.get("if-none-match") == "*" or request.values.get("new", False)
    resource = parse_resource(request.resource)
    if request.token is not None:
        _check_held(request, resource)
    return _claimed(request, [resource], new=new)


def claim_several(request: ApiRequest) -> ApiAnswer:
    return _claimed(request, request.values["resources"], new=request.values.get("new", False))


def _claimed(request: ApiRequest, resources: Sequence[Resource], *, new: bool) -> ApiAnswer:
    values, session = request.values, _session(request)
    wait = values.get("wait")
    if wait is not None and wait > LONGEST_WAIT:
        raise UsageError(
            f"wait is at most {format_duration(LONGEST_WAIT)} here",
            hints=("repeat the request, or listen at /v1/events",),
        )
    options = claim_options(values, paths=values.get("paths", ()), new=new)
    answer = _once(
        request,
        session,
        resources,
        lambda: claim.claim(session, resources, options, wait=wait),
        CLAIMED | RENEWED,
        options.scope,
    )
    status = 201 if answer.status in CLAIMED else 200
    body = wire.claimed(answer) | _edge(request, session, resources, answer)
    return status, *_document("claim", body, answer)


def patch_lease(request: ApiRequest) -> ApiAnswer:
    """Renew a lease, or with ``extend`` stretch it; ``If-Match`` names its token."""
    resource, values, session = parse_resource(request.resource), request.values, _session(request)
    if "extend" in values and "ttl" in values:
        raise UsageError("ttl and extend exclude each other: ttl is for a renewal")
    _check_token(request, session, resource)
    scope = values.get("scope")
    if "extend" not in values:
        return _renewed(request, session, [resource])
    with _explained(session):
        answer = _once(
            request,
            session,
            [resource],
            lambda: acts.extend(session, resource, values["extend"], scope=scope),
            EXTENDED,
            scope,
        )
    if not answer.max_ttl_seconds:  # from the record
        answer = replace(answer, max_ttl_seconds=session.look().policy.ttl_max)
    capped = {"capped_to_max": answer.capped_to_max, "max_ttl_seconds": answer.max_ttl_seconds}
    return 200, *_document("extend", wire.changed(answer) | capped, answer)


def renew_several(request: ApiRequest) -> ApiAnswer:
    """Renew several leases, all or none."""
    return _renewed(request, _session(request), request.values["resources"])


def _renewed(
    request: ApiRequest, session: LedgerSession, resources: Sequence[Resource]
) -> ApiAnswer:
    scope, ttl = request.values.get("scope"), request.values.get("ttl")
    with _explained(session):
        answer = _once(
            request,
            session,
            resources,
            lambda: request.gateway.renew(session, resources, scope=scope, ttl=ttl),
            RENEWED,
            scope,
        )
    return 200, *_document("renew", wire.changed(answer), answer)


def delete_lease(request: ApiRequest) -> ApiAnswer:
    """Release a lease, or with ``done=true`` finish its work."""
    resource, values, session = parse_resource(request.resource), request.values, _session(request)
    done = values.get("done", "false")
    if done not in ("true", "false"):
        raise UsageError("done must be true or false")
    _check_token(request, session, resource)
    scope = values.get("scope")
    command, expected = ("done", COMPLETED) if done == "true" else ("release", RELEASED)

    def act() -> Answer:
        if done == "true":
            with _explained(session):
                return acts.complete(session, resource, scope=scope)
        return acts.release(session, [resource], scope=scope, note=values.get("note"))

    session.look()  # a gateway that has just begun knows nothing of the ledger
    before = request.gateway.assigned_in(session, resource)
    answer = _once(request, session, [resource], act, expected)
    body = wire.ended(answer) | _edge(request, session, [resource], answer, bool(before))
    return 200, *_document(command, body, answer)


def get_lease(request: ApiRequest) -> ApiAnswer:
    """The leases and notes of one resource; with ``If-Match`` only if the caller holds it so."""
    resource = parse_resource(request.resource)
    if request.token is not None:
        _check_held(request, resource)
    reading = read_leases(_session(request), resource=resource)
    leases = [wire.lease(view) for view in reading.leases]
    body: wire.Document = {
        "leases": leases,
        "notes": [wire.note(x) for x in reading.notes],
        "waiting": wire.waiting(reading.waiting),
    }
    if len(leases) == 1:
        body["lease"] = leases[0]
    return 200, wire.success("show", body=body, warnings=reading.warnings), _etag(reading.leases)


def list_leases(request: ApiRequest) -> ApiAnswer:
    """List leases by resource, a page at a time."""
    values, state = request.values, request.values.get("state")
    if state not in (None, *STATES):
        raise UsageError(f"state must be one of {', '.join(STATES)}")
    limit = _number(values.get("limit", str(PAGE)), "limit")
    after = values.get("cursor", "")
    if after and "\t" not in after:
        raise UsageError("invalid cursor: pass the next_cursor of the page before, unchanged")
    session = _session(request)
    reading = read_leases(session, ended=state in ("all", *ENDED))
    now = moment_of(session.clock.now().wall_ms)
    views = [
        x
        for x in reading.leases
        if (x.is_current(now) if state is None else state in ("all", x.state))
    ]
    ended = [x for x in reading.ended if state in ("all", x.state.value)]
    if path := values.get("path"):
        about = parse_resource(f"path:{path}")
        covering = {x.lease_id for x in read_leases(session, resource=about).leases}
        views = [x for x in views if x.lease_id in covering]
        ended = [x for x in ended if _overlaps(x, about)]
    found = {_place(x): wire.lease(x) for x in views}
    found |= {_place(x): wire.ended_lease(x) for x in ended}
    if holder := values.get("holder"):
        found = {x: y for x, y in found.items() if fold(y["holder"]) == fold(holder)}
    places = sorted(x for x in found if x > after)
    body = {
        "leases": [found[x] for x in places[:limit]],
        "next_cursor": places[limit - 1] if len(places) > limit else None,
    }
    return 200, wire.success("list", body=body, warnings=reading.warnings), {}


def check_paths(request: ApiRequest) -> ApiAnswer:
    """Check who holds paths that are about to be changed; blocking leases come first."""
    session = _session(request)
    look = session.look()
    view = Viewpoint(session.actor, look.policy, look.moment)
    touched = [Touched(path) for path in request.values["paths"]]
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


def list_tasks(request: ApiRequest) -> ApiAnswer:
    """List open tasks, whether each may be claimed, and why not; or what the caller carries."""
    mine, queue = request.values.get("mine", "false"), TaskQueue(_session(request), lambda: [])
    if mine not in ("true", "false"):
        raise UsageError("mine must be true or false")
    reading = queue.mine() if mine == "true" else queue.queue()
    entries = [wire.entry(x, reading.views) for x in reading.entries]
    body = {"tasks": wire.carried(reading) if mine == "true" else entries}
    return 200, wire.success("queue", body=body, warnings=reading.warnings), {}


def next_task(request: ApiRequest) -> ApiAnswer:
    """The next task of the queue; with ``claim`` it is claimed in the same step."""
    session = _session(request)
    queue = TaskQueue(session, lambda: [])
    if not request.values.get("claim", False):
        reading = queue.next_task()
        first = reading.next_up[0] if reading.next_up else None
        found = wire.entry(first, reading.views) if first else None
        return 200, wire.success("next", body={"task": found}, warnings=reading.warnings), {}
    task = None

    def claim_next() -> Answer:
        nonlocal task
        answer, task = queue.claim_next(ClaimOptions(ttl=request.values.get("ttl"), commit=False))
        return answer

    answer = _once(request, session, (), claim_next, CLAIMED | RENEWED)
    name = answer.leases[0].resource
    body = {"task": wire.task(task, resource=name)} | wire.claimed(answer)
    return 201, *_document("next", body, answer)


def history(request: ApiRequest) -> ApiAnswer:
    """The audit trail of one resource, newest first."""
    limit = _number(request.values.get("limit", "100"), "limit")
    reading = read_log(_session(request), resource=parse_resource(request.resource), limit=limit)
    body = {"events": [wire.event(x) for x in reading.events]}
    return 200, wire.success("log", body=body, warnings=reading.warnings), {}


# --- repeated requests ------------------------------------------------------------------------


def _once(
    request: ApiRequest,
    session: LedgerSession,
    wanted: Sequence[Resource],
    act: Callable[[], Answer],
    expected: frozenset[str],
    scope: str | None = None,
) -> Answer:
    """The answer of ``act``; if the ledger has its operation already, one from the record.

    ``wanted`` is empty for a request that chose its resource itself, ``scope`` None for any. Raises
    LeaseLost if its lease has ended since, and UsageError if its outcome is not ``expected``: then
    the key belongs to another request.
    """
    try:
        return act()
    except AppliedBefore as before:
        outcome = before.outcome
    holder, key = session.actor.holder, request.key or ""
    events = events_under(key, holder, session.store, session.layer)
    names = [x.resource for x in events if x.resource is not None]
    ledger = session.store.fetch(session.layer).ledger
    resources = tuple(ledger.spelt(x) if ledger else x for x in wanted)
    resources = resources or tuple(parse_resource(x) for x in dict.fromkeys(names))
    others = {fold(x.text) for x in resources} - {fold(x) for x in names}
    if outcome not in expected or (events and others):
        raise UsageError(ANOTHER_REQUEST, hints=("use a new key for each request",))
    if outcome in RELEASED | COMPLETED:
        return Answer(status=outcome, changed=False)
    own = {x: request.gateway.own(session, x, scope) for x in resources}
    leases = [lease for some in own.values() for lease in some]
    granted = {x.token for x in events if x.kind in CLAIMED}
    if outcome in CLAIMED and not any(x.token in granted for x in leases):
        leases = []
    if not leases or not all(own.values()):
        message = f"this request was carried out before ({outcome}), and its lease has ended"
        raise LeaseLost(message, resource=resources[0].text if resources else None)
    head = session.store.fetch(session.layer)
    return Answer(status=outcome, leases=session.views_in(head, leases), changed=False)


# --- helpers ----------------------------------------------------------------------------------


def _session(request: ApiRequest) -> LedgerSession:
    holder = request.caller.email
    return request.gateway.session(holder, request.session, key=request.key, check=request.check)


@contextlib.contextmanager
def _explained(session: LedgerSession) -> Iterator[None]:
    """Have a refusal of the block say if and why the caller has lost its lease."""
    try:
        yield
    except (LeaseHeld, LeaseLost, NotHolder) as refusal:
        if lost := acts.loss_of(session, refusal):
            refusal.loss = lost.loss
        raise


def _check_token(request: ApiRequest, session: LedgerSession, resource: Resource) -> None:
    if (token := request.token) is not None:
        scope = request.values.get("scope")
        with _explained(session):
            request.gateway.check_token(session, resource, token, scope)


def _edge(
    request: ApiRequest,
    session: LedgerSession,
    resources: Sequence[Resource],
    answer: Answer,
    before: bool = False,
) -> wire.Document:
    """The outcome for the assignments, which a gateway keeps in the ledger, and where they stand.

    Of several resources, the first that is assigned counts. ``before``: it was before an end.
    """
    found = (request.gateway.assigned_in(session, x) for x in resources if not x.is_path)
    places = next((x for x in found if x), ())
    edge = "kept" if places else "none"
    if places and answer.status in CLAIMED and answer.changed:
        edge = "added"
    elif not places and answer.status in RELEASED | COMPLETED:
        edge = "removed" if before else "none"
    return {"edge": edge, "edge_in": list(places)}


def _check_held(request: ApiRequest, resource: Resource) -> None:
    """Raise LeaseLost unless the caller holds it under the token of ``If-Match``."""
    session = _session(request)
    if not request.gateway.held(request.caller.email, resource, request.values.get("scope")):
        with _explained(session):
            raise LeaseLost(f"you do not hold {resource}", resource=resource.text)
    _check_token(request, session, resource)


def _document(
    command: str, body: wire.Document, answer: Answer
) -> tuple[wire.Document, dict[str, str]]:
    if answer.refused:
        body["refused"] = [x.code for x in answer.refused]
    return wire.success(command, body=body, warnings=answer.warnings), _etag(answer.leases)


def _etag(views: Sequence[LeaseView]) -> dict[str, str]:
    return {"ETag": f'"{views[0].token}"'} if len(views) == 1 else {}


def _place(lease: LeaseView | EndedLease) -> str:
    return f"{lease.resource}\t{lease.scope}\t{lease.token}"


def _overlaps(ended: EndedLease, about: Resource) -> bool:
    # The audit trail has no further paths of a lease.
    pattern = parse_resource(word_anywhere(ended.resource)).pattern
    return pattern is not None and any_overlap([pattern], [about.pattern or ""])


def _number(word: str, name: str) -> int:
    digits = word.isascii() and word.isdigit() and len(word) <= len(str(LONGEST_PAGE))
    if not digits or not 1 <= int(word) <= LONGEST_PAGE:
        raise UsageError(f"{name} must be a number from 1 to {LONGEST_PAGE}")
    return int(word)
