"""The gateway's own API: its door to the verbs, its routes, and its OpenAPI document.

A verb of the table has a route of its own, ``POST /v1/leases:VERB`` if it changes leases, or
``GET /v1/VERB`` if it reads. Lists in pages, and ``check``, are of this door alone.
"""

from __future__ import annotations

import contextlib
import json
import queue
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from gitlease import __version__
from gitlease.gateway.events import LOOK
from gitlease.gateway.follower import Follower
from gitlease.gateway.gateway import Gateway, RecordsOf
from gitlease.gateway.joiner import CLAIMED, AppliedBefore, events_under
from gitlease.gateway.request_handler import (
    IGNORED,
    RequestHandler,
    body_of,
    check_scope,
    failed,
    operation_id,
    other_request,
    query_of,
    session_in,
    without_paths,
)
from gitlease.gateway.tokens import READ, WRITE, Token
from gitlease.kernel.ledger import acts
from gitlease.kernel.ledger.answers import Answer, EndedLease
from gitlease.kernel.ledger.ledger_session import FILE, RECORD, LedgerSession
from gitlease.kernel.ledger.stepping import foremost, read_leases
from gitlease.kernel.rules.errors import GitleaseError, LeaseHeld, LeaseLost, NotHolder, UsageError
from gitlease.kernel.rules.frozen import dataclass, replace
from gitlease.kernel.rules.lease import State
from gitlease.kernel.rules.lease_view import LeaseView
from gitlease.kernel.rules.resources import (
    PATH_PREFIX,
    Resource,
    any_overlap,
    check_braces,
    fold,
    parse_layer,
    parse_resource,
    word_anywhere,
)
from gitlease.kernel.rules.viewpoint import Severity, Touched, Viewpoint
from gitlease.tasks.queue import TaskQueue
from gitlease.verbs import wire
from gitlease.verbs.table import (
    HTTP,
    NUMBER,
    PATHS,
    SWITCH,
    TABLE,
    TEXT,
    Act,
    DeclaredVerb,
    Door,
    Kind,
    Parameter,
    check_encodes,
    find_verb,
    name_of_type,
    read_text,
    read_values,
)

PAGE = 200
ENDED = (State.RELEASED.value, State.REVOKED.value)  # listed for a while, from the audit trail
STATES = (*(x.value for x in State), "all")
OUTCOMES = {  # of each verb, in the ledger's record of a request
    "claim": CLAIMED | {"renewed"},
    "next": CLAIMED | {"renewed"},
    "renew": {"renewed"},
    "extend": {"extended"},
    # Without a lease to end, the edge or a note; with ``keep`` the task stays its holder's.
    "release": {"released", "unassigned", "noted", "run_out"},
    "done": {"completed"},
    "note": {"noted"},
    "revoke": {"revoked"},
}
KEEPING = ("renew", "extend", "done")  # refused without a lease: if it was lost, why
EDGES = ("claim", "next", "release", "done")  # may change an assignment
ENDING = ("release", "done")  # and then a file that this gateway never writes may still assign it


Places = Sequence[Sequence[str]]  # that assign each of some resources to the caller


class GatewayDoor(Door):
    """The holder of a token: paths start at the root, and no task file is written."""

    def __init__(
        self,
        gateway: Gateway,
        caller: Token,
        session: str | None = None,
        *,
        key: str | None = None,
        check: Callable[[], None] = lambda: None,
        follower: Follower | None = None,
        begun: bool = False,
    ) -> None:
        """``key`` makes a repeated request known; ``check`` raises once it may not go on.

        ``begun``: the session is one of this request, which the caller does not know yet.
        """
        self.begun = begun
        self.gateway, self._key, self.alone = gateway, key or "", session is not None
        self._check, self._follower = check, follower
        self._ledger = gateway.session(caller.email, session, key=key, check=check)

    @property
    def ledger(self) -> LedgerSession:
        return self._ledger

    @property
    def queue(self) -> TaskQueue:
        return TaskQueue(self._ledger)

    def resources(self, words: Iterable[Any], *, claiming: bool = False) -> list[Resource]:
        return [self.resource(word) for word in words]

    def granted(self, answer: Answer) -> Sequence[str]:
        if not self.begun or not answer.leases:
            return ()
        return (f"name the session {self.ledger.actor.session} to renew, extend or release this",)

    def take_messages(self) -> tuple[str, ...]:
        actor = self._ledger.actor
        left = self.gateway.take_messages(actor.holder, actor.session)
        return (*left, *super().take_messages()) if left else super().take_messages()

    def every_ledger(self) -> Sequence[LedgerSession]:
        # Only what this gateway was asked for can be held through it.
        others = [self.gateway.in_layer(x) for x in self.gateway.other_layers()]
        actor = self.ledger.actor
        return [
            self.ledger,
            *(x.session(actor.holder, actor.session) for x in others if x.held(actor.holder)),
        ]

    def paths(self, words: Iterable[Any]) -> list[Resource]:
        return [self.resource(f"path:{read_text(self, word, 'paths')}") for word in words]

    def resource(self, word: Any) -> Resource:
        """The resource of a word. UsageError for braces, unless a lease has just that name."""
        resource = parse_resource(word)
        if resource.is_path and "{" in word and not self._is_leased(resource):
            check_braces(word.removeprefix(PATH_PREFIX))
        return resource

    def _is_leased(self, resource: Resource) -> bool:
        """Return whether the ledger has a record of a resource."""
        ledger = self.ledger.store.fetch(self.ledger.layer).ledger
        return ledger is not None and bool(ledger.leases_of(resource))

    def act(self, verb: str, resources: Sequence[Resource], act: Act, **terms: Any) -> Answer:
        """Carry out a change; if the ledger has the request's already, answer from the record."""
        before: Places = ()
        if verb in ENDING:
            # A gateway that has just begun knows nothing of the ledger.
            self.ledger.read(lambda head: head)
            before = self._places(resources)
        try:
            with self.explained() if verb in KEEPING else contextlib.nullcontext():
                # Most renewals are answered from the record.
                if verb == "renew":
                    return self.gateway.renew(self.ledger, resources, **terms)
                answer = act(self.ledger, resources)
        except AppliedBefore as applied:
            scope, one = terms.get("scope"), bool(terms.get("one"))
            return self._repeated(verb, resources, act, applied.outcome, scope, one=one)
        return self._with_edge(answer, resources, before) if verb in ENDING else answer

    def _places(self, resources: Sequence[Resource], earlier: RecordsOf | None = None) -> Places:
        """The places where each of some resources is assigned to the caller, or was."""
        return [self.gateway.assigned_in(self.ledger, x, earlier) for x in resources]

    def _with_edge(self, answer: Answer, resources: Sequence[Resource], before: Places) -> Answer:
        """The answer with what became of the caller's edges, by their places ``before``."""
        words, now = set[str](), self._places(resources)
        for old, new in zip(before, now, strict=True):
            begins = answer.status in CLAIMED and not old
            words.add(("added" if begins else "kept") if new else "removed" if old else "none")
        places = tuple(x for x in (RECORD, FILE) if any(x in new for new in now))
        return replace(answer, edge=foremost(words), edge_in=places)

    def _repeated(
        self,
        verb: str,
        resources: Sequence[Resource],
        act: Act,
        outcome: str,
        scope: str | None,
        *,
        one: bool = False,
    ) -> Answer:
        """Return the answer of a change that the ledger has already.

        ``one``: it was asked for any of the resources. Raises LeaseLost if its lease has ended
        since, and UsageError for another request's key.
        """
        ledger = self.ledger
        head = ledger.store.fetch(ledger.layer)
        events = events_under(self._key, ledger.actor.holder, ledger.store, ledger.layer)
        names = [x.resource for x in events if x.resource is not None]
        wanted = [head.ledger.spelt(x) if head.ledger else x for x in resources]
        if one:
            taken = {fold(x.resource or "") for x in events if x.kind in CLAIMED}
            wanted = [x for x in wanted if fold(x.text) in taken]
            names = [x.text for x in wanted]
            if len(names) != 1:
                raise other_request()
        # A verb without resources chose its own.
        wanted = wanted or [parse_resource(x) for x in dict.fromkeys(names)]
        asked, did = {fold(x.text) for x in wanted}, {fold(x) for x in names}
        # A key is all that the ledger has of a request: what it did must be what this one asks for.
        # A release does nothing where nothing is held.
        others = did - asked if verb == "release" else asked - did
        if outcome not in OUTCOMES[verb] or (events and others):
            raise other_request()
        # What has ended has no lease to show, and needs none: asked again, it is done as before.
        status = {"run_out": acts.KEPT}.get(outcome, "released") if verb == "release" else outcome
        answer = Answer(status=status, changed=False)
        if verb not in ("release", "done", "note", "revoke"):
            each = [self.gateway.own(ledger, x, scope) for x in wanted]
            leases = [lease for some in each for lease in some]
            granted = {x.token for x in events if x.kind in CLAIMED}
            lost = outcome in CLAIMED and not any(x.token in granted for x in leases)
            if lost or not leases or not all(each):
                why = f"this request was carried out before ({outcome}), and its lease has ended"
                raise LeaseLost(why, resource=wanted[0].text if wanted else None)
            newest = ledger.store.fetch(ledger.layer)
            answer, most = replace(answer, leases=ledger.views_in(newest, leases)), newest.policy
            answer = replace(answer, max_ttl_seconds=most.ttl_max)
        if verb in EDGES:
            then = self.gateway.before(head, [x.operation for x in events])
            answer = self._with_edge(answer, wanted, self._places(wanted, then))
        if verb in ENDING and not any(self.gateway.own(ledger, x) for x in wanted):
            # What it said of the task files holds as long as nothing was claimed since.
            with contextlib.suppress(GitleaseError):
                return replace(answer, warnings=act(ledger.for_dry_run(), resources).warnings)
        return answer

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """Have a refusal of the block say if and why the caller has lost its lease."""
        try:
            yield
        except (LeaseHeld, LeaseLost, NotHolder) as refusal:
            if lost := acts.loss_of(self.ledger, refusal):
                raise refusal.with_(loss=lost.loss) from None
            raise

    def follow(self, tell: Callable[[], None]) -> None:
        """Call ``tell`` once it has begun, and then at every change of leases."""
        events = queue.SimpleQueue[object]()
        # Listening begins first: what happens while it is told is not missed.
        leave = self._follower.listen(events.put) if self._follower else lambda: None
        try:
            tell()
            while True:
                self._check()
                with contextlib.suppress(queue.Empty):
                    events.get(timeout=LOOK)
                    tell()
        finally:
            leave()

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


ApiAnswer = tuple[int, wire.Document, dict[str, str]]  # status, body, headers


@dataclass(frozen=True)
class ApiRequest:
    """A request, with its body or query; ``check`` raises once it may not be carried out."""

    gateway: Gateway
    caller: Token
    resource: str
    data: Any
    headers: Mapping[str, str]
    key: str | None
    check: Callable[[], None]

    @property
    def token(self) -> int | None:
        """The fencing token in ``If-Match``. UsageError for anything else there."""
        condition = self.headers.get("if-match")
        if condition is None or condition == "*":
            return None
        number = condition.strip().removeprefix("W/").strip('"')
        if not number.isascii() or not number.isdigit() or len(number) > 18:
            raise UsageError('If-Match must be the token of a lease in quotes, such as "7"')
        return int(number)

    @property
    def is_for_new(self) -> bool:
        """Whether ``If-None-Match`` asks for what is not held yet. UsageError for other values."""
        condition = self.headers.get("if-none-match")
        if condition is not None and condition.strip() != "*":
            raise UsageError("If-None-Match can only be *: that you do not hold it yet")
        return condition is not None


def _success(command: str, body: Mapping[str, Any], warnings: Sequence[str]) -> wire.Document:
    return wire.success(command, body=body, warnings=[*map(without_paths, warnings)])


def carry_out(
    request: ApiRequest, door: GatewayDoor, verb: DeclaredVerb, values: dict[str, Any]
) -> ApiAnswer:
    """Carry out a verb of the table, on the resource in the path if there is one."""
    known = verb.parameters
    # Elsewhere it may be a cache's, which an answer in full satisfies.
    if "new" in known and request.is_for_new:
        values["new"] = True
    if request.resource:
        resource = door.resource(request.resource)
        name = "resource" if "resource" in known else "resources"
        values[name] = resource if name == "resource" else [resource]
        held = verb.name in ("claim", "show")
        door.check_condition(resource, request.token, values.get("scope"), held=held)
    result = verb.answer(door, **values)
    status = 201 if result.body.get("status") in CLAIMED else 200
    document = _success(verb.name, result.body, result.warnings)
    # A planned lease has no token.
    one_token = len(result.leases) == 1 and result.leases[0].token
    if not one_token or (verb.only_reads(values) and not request.resource):
        return status, document, {}
    only = {"lease": document["leases"][0]}
    return status, document | only, {"ETag": f'"{result.leases[0].token}"'}


def list_leases(request: ApiRequest, door: GatewayDoor, values: dict[str, Any]) -> ApiAnswer:
    """List leases by resource, a page at a time."""
    state, limit, after = values.get("state"), values.get("limit", PAGE), values.get("cursor", "")
    if state not in (None, *STATES):
        raise UsageError(f"state must be one of {', '.join(STATES)}")
    if after and "\t" not in after:
        raise UsageError("invalid cursor: pass the next_cursor of the page before, unchanged")
    path = values.get("path")
    about = door.resource(f"path:{path}") if path else None
    reading, now = read_leases(door.ledger, ended=state in ("all", *ENDED)), door.now()
    messages = door.ledger.messages
    messages.add(reading.warnings)
    views = [
        x
        for x in reading.leases
        if (x.is_current(now) if state is None else state in ("all", x.state))
    ]
    ended = [x for x in reading.ended if state in ("all", x.state.value)]
    if about is not None:
        of_path = read_leases(door.ledger, resource=about)
        messages.add(of_path.warnings)
        covering = {x.lease_id for x in of_path.leases}
        views = [x for x in views if x.lease_id in covering]
        # The audit trail has no further paths of a lease than its own.
        patterns = [(x, parse_resource(word_anywhere(x.resource)).pattern) for x in ended]
        covered = [about.pattern or ""]
        ended = [x for x, y in patterns if y is not None and any_overlap([y], covered)]
    leases = {_place(x): wire.lease(x) for x in views}
    leases |= {_place(x): wire.ended_lease(x) for x in ended}
    if holder := values.get("holder"):
        leases = {x: y for x, y in leases.items() if fold(y["holder"]) == fold(holder)}
    places = sorted(x for x in leases if x > after)
    body = {
        "leases": [leases[x] for x in places[:limit]],
        "next_cursor": places[limit - 1] if len(places) > limit else None,
    }
    return 200, _success("list", body, door.take_messages()), {}


def check_paths(request: ApiRequest, door: GatewayDoor, values: dict[str, Any]) -> ApiAnswer:
    """Check who holds paths that are about to be changed; blocking leases come first."""
    known = door.ledger.look()
    view = Viewpoint(door.ledger.actor, known.policy, known.moment)
    touched = [Touched(x.pattern) for x in values["paths"] if x.pattern is not None]
    live = [x for x in known.leases if x.state is State.ACTIVE]
    findings = view.judge(touched, live)
    views = zip(live, door.ledger.views_in(known.head, live), strict=True)
    seen = {x.lease_id: y for x, y in views}
    body = {
        "free": not any(x.severity is Severity.BLOCK for x in findings),
        "findings": [
            {
                "path": x.path,
                "severity": x.severity.value,
                "lease": wire.lease(seen[x.lease.lease_id]),
            }
            for x in findings
        ],
    }
    warnings = (*door.ledger.store.warnings, *door.take_messages())
    return 200, _success("check", body, warnings), {}


def _place(lease: LeaseView | EndedLease) -> str:
    return f"{lease.resource}\t{lease.scope}\t{lease.token}"


# --- the routes -------------------------------------------------------------------------------

# Seconds, since proxies time out after that; entries.
MOST = {"wait": (60, "1m"), "limit": (1_000, "1000")}
LEASE, LEASES = "/v1/leases/{key}", "/v1/leases"

Respond = Callable[[ApiRequest, GatewayDoor, dict[str, Any]], ApiAnswer]


@dataclass(frozen=True, kw_only=True)
class ApiRoute:
    """A route, its fields, and what answers with their values.

    ``verb`` is the one of the table, if it is one. A request has its fields in its body, except for
    a GET or DELETE.
    """

    method: str
    path: str
    name: str
    summary: str
    fields: Mapping[str, Parameter]
    answer: Respond
    verb: DeclaredVerb | None = None

    @property
    def writes(self) -> bool:
        """Return whether it may change leases."""
        verb = self.verb
        return verb is not None and not (
            verb.reads and not any(x.changes for x in verb.at(HTTP).values())
        )

    def only_reads(self, data: Any) -> bool:
        """Return whether a request with these fields changes no lease."""
        known = self.verb.parameters if self.verb and isinstance(data, dict) else ()
        return not self.verb or self.verb.only_reads({x: data[x] for x in known if x in data})

    @property
    def in_query(self) -> bool:
        """Return whether a request has its fields in its query."""
        return self.method in ("GET", "DELETE")

    def endpoint(self, handler: RequestHandler) -> Callable[[Request], Awaitable[Response]]:
        """Its endpoint in a gateway's application."""

        async def answer(request: Request) -> Response:
            status, body, headers = await self._answer(handler, request)
            return JSONResponse(body, status, headers=headers)

        return handler.endpoint(
            self.name, answer, lambda error: failed(error, self.fields, in_query=self.in_query)
        )

    async def _answer(self, handler: RequestHandler, request: Request) -> ApiAnswer:
        gateway = handler.gateway.since_now()
        # A token that may only read may look at the next task: whether this request writes is seen
        # below.
        caller = handler.access.admit(request.headers, *((READ, WRITE) if self.writes else (READ,)))
        data = dict(request.query_params) if self.in_query else await body_of(request)
        if request.method == "DELETE" and (body := await body_of(request)):
            known = {x: body[x] for x in body if x in self.fields} if isinstance(body, dict) else {}
            raise UsageError(
                "a DELETE takes its fields in the query, not in a body",
                hints=(query_of(known),) if known else (),
            )
        # A field in the wrong place would be ignored, and the lease taken on other terms.
        if not self.in_query and (odd := next(iter(request.query_params.items()), None)):
            raise UsageError(
                f"a {self.method} takes its fields in the body, not {odd[0][:60]!r} in the query",
                hints=(json.dumps(dict([odd]))[:200],),
            )
        # By what is asked: `next` only reads unless it claims.
        if not (reads := self.only_reads(data)):
            check_scope(caller, WRITE)
        given = None if reads else request.headers.get("idempotency-key")
        key = None if given is None else operation_id(caller.email, given)
        resource = request.path_params.get("key", "")
        if not resource and "key" in request.path_params:
            raise UsageError("a resource must not be empty")
        check_encodes(data, "the query has" if self.in_query else "the body has")
        async with handler.keyed(key, request, data):
            return await handler.carry_out(
                request,
                caller,
                lambda check: self.respond(
                    ApiRequest(gateway, caller, resource, data, request.headers, key, check)
                ),
                wait=isinstance(data, dict) and data.get("wait") is not None,
            )

    def respond(self, request: ApiRequest) -> ApiAnswer:
        """Answer a request. Raises UsageError for its fields, and what the verb may raise."""
        data, what = request.data, "the query" if self.in_query else "the body"
        if not isinstance(data, dict):
            raise UsageError(f"{what} must be a JSON object, not {name_of_type(data)}")
        # To ignore it would let its sender believe that somebody else has the lease.
        if odd := next((x for x in data if x in IGNORED and x not in self.fields), None):
            raise UsageError(f"leave out {odd}: the token alone determines the holder")
        given = dict(data)
        for name in given if self.in_query else ():
            if name in self.fields and self.fields[name].kind.switch:
                if given[name] not in ("true", "false"):
                    raise UsageError(f"{name} must be true or false")
                given[name] = given[name] == "true"
        session, layer = given.get("session"), given.get("layer")
        if session is not None:
            read_text(None, session, "session")
        if layer is not None:
            layer = parse_layer(read_text(None, layer, "layer"))
        door = GatewayDoor(
            request.gateway.in_layer(layer),
            request.caller,
            session_in(request.headers, session),
            key=request.key,
            check=request.check,
        )
        values = read_values(self.fields, door, given, what=what)
        for name in _PLACE:
            values.pop(name, None)
        try:
            return self.answer(request, door, values)
        except GitleaseError as refusal:
            # A problem has no place for them.
            left = (*refusal.warnings, *door.take_messages())
            session = door.ledger.actor.session
            door.gateway.leave_messages(request.caller.email, left, session=session)
            raise


def _field(kind: Kind, about: str, *, required: bool = False) -> Parameter:
    default = False if kind.switch else None
    return Parameter(kind=kind, about=about, required=required, default=default)


_LAYER = {"layer": _field(TEXT, "The layer whose ledger is meant (default: the gateway's own).")}
_PLACE = {
    "session": _field(TEXT, "The session of the token's holder; also as Gitlease-Session."),
    **_LAYER,
}


def _capped(name: str, declared: Parameter) -> Parameter:
    if name not in MOST:
        return declared
    kind, (most, shown) = declared.kind, MOST[name]

    def read(door: Any, data: Any, name: str) -> Any:
        if (value := kind.read(door, data, name)) > most:
            hints = ("repeat the request, or listen at /v1/events",) if name == "wait" else ()
            raise UsageError(f"{name} is at most {shown} here", hints=hints)
        return value

    schema = {**kind.schema, "maximum": most}
    return replace(declared, kind=replace(kind, read=read, schema=schema))


def _parameters(verb: str, path: str) -> dict[str, Parameter]:
    """Return the parameters of a verb; a resource is in the path, or required of a change."""
    declared = find_verb(verb)
    fields = {name: _capped(name, x) for name, x in declared.at(HTTP).items()}
    for name in fields.keys() & {"resource", "resources"}:
        field = fields.pop(name)
        if "{key}" not in path:
            fields = {name: replace(field, required=field.required or not declared.reads)} | fields
        else:
            fields.pop("one", None)  # of the one in the path there is no choice
    return fields


def _of_verb(
    method: str,
    path: str,
    verb: str,
    name: str = "",
    *,
    given: Mapping[str, Any] = MappingProxyType({}),
) -> ApiRoute:
    """Return the route of a verb of the table; ``given`` are what it decides."""
    declared = find_verb(verb)
    return ApiRoute(
        method=method,
        path=path,
        name=name or verb,
        summary=declared.help.partition("\n\n")[0].replace("\n", " "),
        fields=_parameters(verb, path) | _PLACE,
        answer=lambda request, door, values: carry_out(
            request, door, declared, {**given, **values}
        ),
        verb=declared,
    )


def _of_two(
    method: str,
    verb: str,
    other: str,
    chosen_by: str,
    field: Parameter,
    *,
    why: str,
    renamed: str = "",
) -> ApiRoute:
    """Return the route of a verb of one lease, and of another one that a field chooses instead.

    ``why`` that field excludes one of the first verb. ``renamed`` is the other's parameter that the
    field is, if it is one.
    """
    first, second = _of_verb(method, LEASE, verb), find_verb(other)
    more = {name: x for name, x in _parameters(other, LEASE).items() if name != renamed}

    def answer(request: ApiRequest, door: GatewayDoor, values: dict[str, Any]) -> ApiAnswer:
        chosen = values.pop(chosen_by, None)
        known = more if chosen else first.fields
        if odd := next((x for x in values if x not in known), None):
            way = f"and {chosen_by} exclude each other: {why}" if chosen else f"needs {chosen_by}"
            raise UsageError(f"{odd} {way}")
        if not chosen:
            return first.answer(request, door, values)
        values |= {renamed: chosen} if renamed else {}
        return carry_out(request, door, second, values)

    fields = {**first.fields, **more, chosen_by: replace(field, name=chosen_by, required=False)}
    return replace(first, fields=fields, answer=answer)


def _of_door(
    method: str,
    path: str,
    name: str,
    answer: Respond,
    fields: Mapping[str, Parameter] | None = None,
) -> ApiRoute:
    """Return the route of what only this door has."""
    summary = (answer.__doc__ or "").partition("\n")[0].rstrip(".")
    return ApiRoute(
        method=method, path=path, name=name, summary=summary, fields=fields or {}, answer=answer
    )


def _others(routed: Collection[str]) -> list[ApiRoute]:
    """Return routes for the verbs of this door that have none, or only one for one lease."""
    routes = []
    for verb in TABLE:
        declared = find_verb(verb)
        if HTTP not in declared.doors or (
            verb in routed and "resources" not in declared.parameters
        ):
            continue
        if declared.reads:
            routes.append(_of_verb("GET", f"/v1/{verb}", verb))
        else:
            name = f"{verb}_several" if verb in routed else verb
            routes.append(_of_verb("POST", f"{LEASES}:{verb}", verb, name))
    return routes


_LIST = {
    "holder": _field(TEXT, "Only leases of this holder."),
    "state": _field(
        TEXT,
        "Only leases in this state: active, expired, completed, released and revoked (lately), or "
        "all (default: those that block others: active, and expired until they lapse).",
    ),
    "path": _field(TEXT, "Only leases that cover this path."),
    "cursor": _field(TEXT, "The next_cursor of the page before."),
    "limit": _capped("limit", _field(NUMBER, "The most to return: 1 to 1000 (default: 200).")),
    **_LAYER,
}
ROUTES: tuple[ApiRoute, ...] = (
    _of_verb("PUT", LEASE, "claim"),
    _of_two(
        *("PATCH", "renew", "extend", "extend"),
        find_verb("extend")
        .parameters["duration"]
        .but("Stretch it to at least this long from now, instead of renewing it."),
        why="ttl is for a renewal",
        renamed="duration",
    ),
    _of_two(
        *("DELETE", "release", "done", "done"),
        _field(SWITCH, "The work is finished, and the lease ends completed."),
        why="the work is finished",
    ),
    _of_verb("POST", "/v1/tasks:next", "next"),
    *_others(("claim", "renew", "extend", "release", "done", "next", "list", "show", "queue")),
    _of_verb("GET", LEASE, "show"),
    _of_door("GET", LEASES, "list", list_leases, _LIST),
    _of_door(
        *("POST", "/v1/check", "check", check_paths),
        {"paths": _field(PATHS, "Paths about to be changed.", required=True)} | _PLACE,
    ),
    _of_verb("GET", "/v1/tasks", "queue", "tasks", given={"all": True}),
    _of_verb("GET", "/v1/history/{key}", "log", "history"),
)

# --- the OpenAPI document ---------------------------------------------------------------------

_ERRORS = {
    400: "bad arguments",
    401: "no token, or an invalid one",
    403: "the token or the remote does not allow it",
    404: "not found",
    408: "the body arrived too slowly",
    409: "another holder has it, or the ledger was replaced",
    412: "the caller does not hold it, or no longer does",
    413: "the body is too large",
    421: "the gateway does not answer for this host",
    422: "refused by policy",
    429: "too many requests",
    500: "a damaged record, or a bug in gitlease",
    503: "the remote cannot be reached",
    504: "the outcome of the change is unknown",
}
_TEXT = {"type": "string"}


def openapi_document(bases: Iterable[str]) -> dict[str, Any]:
    """The OpenAPI 3.1 document of the API, which is served below these paths."""
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    published = files("gitlease").joinpath("docs/answers.schema.json").read_text(encoding="utf-8")
    answer = json.loads(published.replace("#/$defs/", "#/components/schemas/"))
    shapes = answer.pop("$defs")
    # A request that no verb has seen has no lease, and so not all of a refusal.
    always = ["type", "title", "status", "detail", "code", "message"]
    shapes |= {"Answer": answer, "Problem": shapes["error"] | {"required": always}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "gitlease",
            "version": __version__,
            "description": "Leases for a repository. The token determines the holder.",
        },
        "servers": [{"url": base or "/"} for base in bases],
        "security": [{"bearer": []}, {"basic": []}, {"key": []}],
        "paths": paths,
        "components": {
            "schemas": shapes,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "basic": {"type": "http", "scheme": "basic"},
                "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
            },
        },
    }


def _operation(route: ApiRoute) -> dict[str, Any]:
    headers = {"Gitlease-Session": "The session of the token's holder."}
    if route.writes:
        headers["Idempotency-Key"] = "A request repeated under one key is done once."
    if route.path == LEASE:
        headers["If-Match"] = "The fencing token of the lease, in quotes."
    if route.name == "claim":
        headers["If-None-Match"] = "`*`: only if the caller does not hold it yet."
    parameters = [_described(x, "header", about, _TEXT) for x, about in headers.items()]
    if "{key}" in route.path:
        about = "A resource: a task id, a name, or a path; URL-encoded."
        key = _described("key", "path", about, {**_TEXT, "minLength": 1}, required=True)
        parameters.append(key)
    operation: dict[str, Any] = {"operationId": route.name, "summary": route.summary}
    if route.in_query:
        parameters += [
            _described(name, "query", x.about, x.kind.schema, required=x.required)
            for name, x in route.fields.items()
        ]
    else:
        required = [name for name, x in route.fields.items() if x.required]
        schema = {
            "type": "object",
            "additionalProperties": False,
            "required": required,
            "properties": {
                name: {**x.kind.schema, "description": x.about} for name, x in route.fields.items()
            },
        }
        content = {"application/json": {"schema": schema}}
        operation["requestBody"] = {"required": bool(required), "content": content}
    grants = route.name in ("claim", "claim_several", "next")
    done = {200: "done"} | ({201: "done"} if grants else {})
    responses = {
        str(status): _response(text, "application/json", "Answer") for status, text in done.items()
    }
    for status, text in _ERRORS.items():
        responses[str(status)] = _response(text, "application/problem+json", "Problem")
    return operation | {"parameters": parameters, "responses": responses}


def _response(text: str, media: str, schema: str) -> dict[str, Any]:
    content = {media: {"schema": {"$ref": f"#/components/schemas/{schema}"}}}
    return {"description": text, "content": content}


def _described(
    name: str, where: str, about: str, schema: Mapping[str, object], *, required: bool = False
) -> dict[str, Any]:
    described = {"name": name, "in": where, "schema": schema, "description": about}
    return described | ({"required": True} if required else {})
