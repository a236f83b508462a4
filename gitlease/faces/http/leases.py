"""The gateway's door to the verbs: one token's holder, and requests that may be repeated."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from gitlease.core.errors import LeaseHeld, LeaseLost, NotHolder, UsageError
from gitlease.core.frozen import replace
from gitlease.core.lease import State
from gitlease.core.resources.pattern import any_overlap, fold
from gitlease.core.resources.resource import Resource, parse_resource, word_anywhere
from gitlease.core.view import LeaseView
from gitlease.engine import acts
from gitlease.engine.answers import Answer, EndedLease
from gitlease.engine.ledger_session import LedgerSession
from gitlease.engine.queue import TaskQueue
from gitlease.engine.reading import read_leases
from gitlease.faces.http.request_handler import (
    ANOTHER_REQUEST,
    ApiAnswer,
    ApiRequest,
    session_in,
)
from gitlease.gateway.gateway import Gateway
from gitlease.gateway.joiner import CLAIMED, AppliedBefore, events_under
from gitlease.guard.rules import Severity, Touched, Viewpoint
from gitlease.verbs import wire
from gitlease.verbs.parameters import read_text
from gitlease.verbs.table import Act, DeclaredVerb, Door

PAGE = 200
ENDED = (State.RELEASED.value, State.REVOKED.value)  # listed for a while, from the audit trail
STATES = (*(x.value for x in State), "all")
OUTCOMES = {  # of each verb, in the ledger's record of a request
    "claim": CLAIMED | {"renewed"},
    "next": CLAIMED | {"renewed"},
    "renew": {"renewed"},
    "extend": {"extended"},
    "park": {"parked"},
    "release": {"released", "noted"},  # without a lease to end, only the note
    "done": {"completed"},
    "note": {"noted"},
    "revoke": {"revoked"},
}
KEEPING = ("renew", "extend", "park", "done")  # refused without a lease: if it was lost, why
EDGES = ("claim", "next", "release", "done")  # may change an assignment


class GatewayDoor(Door):
    """The holder of a token: paths start at the root, and no task file is written."""

    def __init__(self, request: ApiRequest, given: Mapping[str, Any]) -> None:
        """``given`` are the request's fields. Raises UsageError for its session."""
        session = given.get("session")
        if session is not None:
            read_text(self, session, "session")
        self.gateway: Gateway = request.gateway
        self._key = request.key or ""
        self._ledger = request.gateway.session(
            request.caller.email,
            session_in(request.headers, session),
            key=request.key,
            check=request.check,
        )

    @property
    def ledger(self) -> LedgerSession:
        return self._ledger

    @property
    def queue(self) -> TaskQueue:
        return TaskQueue(self._ledger)

    def paths(self, words: Iterable[Any]) -> list[Resource]:
        return [parse_resource(f"path:{read_text(self, word, 'paths')}") for word in words]

    def act(
        self,
        verb: str,
        resources: Sequence[Resource],
        act: Act,
        *,
        scope: str | None = None,
        ttl: int | None = None,
    ) -> Answer:
        """Carry out a change; if the ledger has the request's already, answer from the record."""
        before = False
        if verb in ("release", "done"):
            self.ledger.look()  # a gateway that has just begun knows nothing of the ledger
            before = bool(self._places(resources))
        try:
            with self.explained() if verb in KEEPING else contextlib.nullcontext():
                if verb == "renew":  # most renewals are answered from the record
                    answer = self.gateway.renew(self.ledger, resources, scope=scope, ttl=ttl)
                else:
                    answer = act(self.ledger, resources)
        except AppliedBefore as applied:
            answer = self._from_record(verb, resources, applied.outcome, scope)
        if verb not in EDGES:
            return answer
        places = self._places(resources or [parse_resource(x.resource) for x in answer.leases])
        edge = "kept" if places else "removed" if before else "none"
        if places and answer.status in CLAIMED and answer.changed:
            edge = "added"
        return replace(answer, edge=edge, edge_in=places)

    def _places(self, resources: Sequence[Resource]) -> tuple[str, ...]:
        """Where the first of some resources that is assigned to the caller is so."""
        names = (x for x in resources if not x.is_path)
        return next(filter(None, (self.gateway.assigned_in(self.ledger, x) for x in names)), ())

    def _from_record(
        self, verb: str, resources: Sequence[Resource], outcome: str, scope: str | None
    ) -> Answer:
        """Return the answer of a change that the ledger has already.

        A verb without resources chose its own. Raises LeaseLost if its lease has ended since, and
        UsageError if the outcome is not one of the verb: then the key belongs to another request.
        """
        ledger = self.ledger
        head = ledger.store.fetch(ledger.layer)
        events = events_under(self._key, ledger.actor.holder, ledger.store, ledger.layer)
        names = [x.resource for x in events if x.resource is not None]
        wanted = [head.ledger.spelt(x) if head.ledger else x for x in resources]
        wanted = wanted or [parse_resource(x) for x in dict.fromkeys(names)]
        others = {fold(x.text) for x in wanted} - {fold(x) for x in names}
        if outcome not in OUTCOMES[verb] or (events and others):
            raise UsageError(ANOTHER_REQUEST, hints=("use a new key for each request",))
        if verb in ("release", "done", "note", "revoke"):
            return Answer(status="released" if verb == "release" else outcome, changed=False)
        own = [self.gateway.own(ledger, x, scope) for x in wanted]
        leases = [lease for some in own for lease in some]
        granted = {x.token for x in events if x.kind in CLAIMED}
        if outcome in CLAIMED and not any(x.token in granted for x in leases):
            leases = []
        if not leases or not all(own):
            message = f"this request was carried out before ({outcome}), and its lease has ended"
            raise LeaseLost(message, resource=wanted[0].text if wanted else None)
        head = ledger.store.fetch(ledger.layer)
        return Answer(
            status=outcome,
            leases=ledger.views_in(head, leases),
            changed=False,
            max_ttl_seconds=head.policy.ttl_max,
            max_park_seconds=head.policy.park_max,
        )

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """Have a refusal of the block say if and why the caller has lost its lease."""
        try:
            yield
        except (LeaseHeld, LeaseLost, NotHolder) as refusal:
            if lost := acts.loss_of(self.ledger, refusal):
                raise refusal.with_(loss=lost.loss) from None
            raise

    def check_condition(
        self, resource: Resource, token: int | None, scope: str | None, *, held: bool
    ) -> None:
        """Raise LeaseLost unless the caller's lease has the token of ``If-Match``, if there is one.

        ``held``: nor without a lease; else the verb itself says so.
        """
        if token is None:
            return
        with self.explained():
            if held and not self.gateway.held(self.ledger.actor.holder, resource, scope):
                raise LeaseLost(f"you do not hold {resource}", resource=resource.text)
            self.gateway.check_token(self.ledger, resource, token, scope)


def carry_out(
    request: ApiRequest, door: GatewayDoor, verb: DeclaredVerb, values: dict[str, Any]
) -> ApiAnswer:
    """Carry out a verb of the table, on the resource in the path if there is one."""
    known = verb.parameters
    if "new" in known and request.headers.get("if-none-match") == "*":
        values["new"] = True
    if request.resource:
        resource = parse_resource(request.resource)
        name = "resource" if "resource" in known else "resources"
        values[name] = resource if name == "resource" else [resource]
        creates = "new" in known
        door.check_condition(resource, request.token, values.get("scope"), held=creates)
    result = verb.function(door, **values)
    status = 201 if result.body.get("status") in CLAIMED else 200
    document = wire.success(verb.name, body=result.body, warnings=result.warnings)
    return status, document, _etag(result.leases)


def get_lease(request: ApiRequest, door: GatewayDoor, values: dict[str, Any]) -> ApiAnswer:
    """The leases and notes of one resource; with ``If-Match`` only if the caller holds it so."""
    resource = parse_resource(request.resource)
    door.check_condition(resource, request.token, None, held=True)
    reading = read_leases(door.ledger, resource=resource)
    leases = [wire.lease(view) for view in reading.leases]
    body: wire.Document = {
        "leases": leases,
        "notes": [wire.note(x) for x in reading.notes],
        "waiting": wire.waiting(reading.waiting),
    }
    if len(leases) == 1:
        body["lease"] = leases[0]
    return 200, wire.success("show", body=body, warnings=reading.warnings), _etag(reading.leases)


def list_leases(request: ApiRequest, door: GatewayDoor, values: dict[str, Any]) -> ApiAnswer:
    """List leases by resource, a page at a time."""
    state, limit, after = values.get("state"), values.get("limit", PAGE), values.get("cursor", "")
    if state not in (None, *STATES):
        raise UsageError(f"state must be one of {', '.join(STATES)}")
    if after and "\t" not in after:
        raise UsageError("invalid cursor: pass the next_cursor of the page before, unchanged")
    reading, now = read_leases(door.ledger, ended=state in ("all", *ENDED)), door.now()
    views = [
        x
        for x in reading.leases
        if (x.is_current(now) if state is None else state in ("all", x.state))
    ]
    ended = [x for x in reading.ended if state in ("all", x.state.value)]
    if path := values.get("path"):
        about = parse_resource(f"path:{path}")
        covering = {x.lease_id for x in read_leases(door.ledger, resource=about).leases}
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


def check_paths(request: ApiRequest, door: GatewayDoor, values: dict[str, Any]) -> ApiAnswer:
    """Check who holds paths that are about to be changed; blocking leases come first."""
    look = door.ledger.look()
    view = Viewpoint(door.ledger.actor, look.policy, look.moment)
    touched = [Touched(x.pattern) for x in values["paths"] if x.pattern is not None]
    live = [x for x in look.leases if x.state is State.ACTIVE]
    found = view.judge(touched, live)
    seen = {x.lease_id: v for x, v in zip(live, door.ledger.views(look, live), strict=True)}
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


def list_tasks(request: ApiRequest, door: GatewayDoor, values: dict[str, Any]) -> ApiAnswer:
    """List open tasks, whether each may be claimed, and why not; or what the caller carries."""
    mine = "mine" in values
    reading = door.queue.mine() if mine else door.queue.queue()
    entries = [wire.entry(x, reading.views) for x in reading.entries]
    body = {"tasks": wire.carried(reading) if mine else entries}
    return 200, wire.success("queue", body=body, warnings=reading.warnings), {}


def _etag(views: Sequence[LeaseView]) -> dict[str, str]:
    return {"ETag": f'"{views[0].token}"'} if len(views) == 1 else {}


def _place(lease: LeaseView | EndedLease) -> str:
    return f"{lease.resource}\t{lease.scope}\t{lease.token}"


def _overlaps(ended: EndedLease, about: Resource) -> bool:
    # The audit trail has no further paths of a lease.
    pattern = parse_resource(word_anywhere(ended.resource)).pattern
    return pattern is not None and any_overlap([pattern], [about.pattern or ""])
