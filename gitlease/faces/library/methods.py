"""The methods of the library that are verbs of the table, made from the verbs' parameters."""

from __future__ import annotations

import functools
import inspect
import re
import textwrap
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from gitlease.core import errors
from gitlease.core.errors import GitleaseError, UsageError
from gitlease.core.frozen import dataclass, replace
from gitlease.faces.library import values
from gitlease.faces.library.refusals import (
    KEYWORD,
    POSITIONAL,
    bind,
    check_resource,
    number_text,
    refusal,
    refusing_events,
    to_list,
)
from gitlease.verbs.table import (
    CODES,
    HTTP,
    LIBRARY,
    TABLE,
    DeclaredVerb,
    Parameter,
    Result,
    find_verb,
    read_values,
)

LEASE, LEASES, NONE = "Lease", "tuple[Lease, ...]", "None"
WIDTH = 88  # of help
P = ParamSpec("P")
T = TypeVar("T")

KINDS: Mapping[str, type[GitleaseError]] = {
    kind.code: kind
    for kind in vars(errors).values()
    if isinstance(kind, type)
    and issubclass(kind, GitleaseError)
    and kind.__name__ not in ("GitleaseError", "HeadGone", "TooMuch", "AnotherLedger")
}


@dataclass(frozen=True, slots=True)
class Method:
    """A method that is a verb of the table, of the library at ``door``.

    ``answer`` is the type of what it returns, which ``made`` makes of the result if that is neither
    its leases nor its value. ``one``: it takes one resource where the verb takes several;
    ``spread``: each of them as an argument. ``given`` are parameters of the verb that it decides,
    ``without`` those that it lacks; ``positional`` are those that it takes by position besides the
    verb's. ``grants``: the leases it returns are
    released if an awaited call is cancelled. ``streams``: a class whose methods are awaited has its
    own. ``about`` is its help if that of the verb does not
    fit, ``route`` its request at a gateway.
    """

    name: str
    verb: str
    answer: str = LEASES
    door: str = LIBRARY
    one: bool = False
    spread: bool = False
    grants: bool = False
    streams: bool = False
    made: Callable[[Result], Any] | None = None
    given: Mapping[str, Any] = MappingProxyType({})
    without: Sequence[str] = ()
    positional: Sequence[str] = ()
    about: str = ""
    route: str = ""

    @property
    def declared(self) -> DeclaredVerb:
        return find_verb(self.verb)

    @property
    def parameters(self) -> dict[str, Parameter]:
        """The verb's parameters that it takes."""
        left_out = {*self.without, *self.given, *(("all",) if self.one else ())}
        offered = self.declared.at(self.door)
        if self.door == HTTP and "resource" in offered and not self.declared.reads:
            offered["resource"] = replace(offered["resource"], required=True)
        return {name: x for name, x in offered.items() if name not in left_out}

    @property
    def signature(self) -> inspect.Signature:
        """Its parameters as those of a method, with annotations as text."""
        by_place, by_name = [inspect.Parameter("self", POSITIONAL)], list[inspect.Parameter]()
        for name, one in self.parameters.items():
            kind, default = one.kind.python, one.default
            if self.one and name == "resources":
                name, kind, default = "resource", "ResourceLike", inspect.Parameter.empty
            elif one.required:
                default = inspect.Parameter.empty
            elif default is None:
                kind = f"{kind} | None"
            placed = one.positional or name in self.positional
            how: Any = POSITIONAL if placed else KEYWORD
            if self.spread and name == "resources":
                how, kind = inspect.Parameter.VAR_POSITIONAL, "ResourceLike"
                default = inspect.Parameter.empty
            (by_place if placed else by_name).append(
                inspect.Parameter(name, how, default=default, annotation=kind)
            )
        return inspect.Signature([*by_place, *by_name], return_annotation=self.answer)

    @property
    def doc(self) -> str:
        """Its text of help, with its parameters and refusals."""
        verb = self.declared
        exits = {*verb.exits} - {1, 128}
        raised = [
            KINDS[code].__name__
            for code, one in CODES.items()
            if code in KINDS and (one.exit in exits or (1 in verb.exits and code in verb.no))
        ]
        about = self.about or verb.help.partition("\n\n")[0].replace("\n", " ")
        about = re.sub(r"\b[A-Z]{4,}\b", lambda word: f"``{word[0].lower()}``", about)
        known = [f"{x}: {one.about}" for x, one in self.parameters.items() if one.about]
        shown = [textwrap.fill(text, WIDTH, subsequent_indent="  ") for text in known]
        parts = [textwrap.fill(about, WIDTH), "\n".join(shown)]
        parts.append(textwrap.fill(f"Raises {', '.join(raised)}.", WIDTH))
        return "\n\n".join(x for x in parts if x)

    def values(self, door: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        """The verb's values for the arguments of a call. Raises UsageError."""
        decided = {*self.without, *self.given}
        offered = {**self.declared.at(self.door), **self.parameters}
        known = {x: y for x, y in offered.items() if x not in decided}
        read = dict[str, Any]()
        for name, value in given.items():
            if name == "resource" and self.one:
                read["resources"] = [check_resource(value)]
            elif name == "resource" and value is not None:
                read[name] = check_resource(value)
            elif name == "resources" and self.spread:
                read[name] = [check_resource(one) for one in value] or None
                if not value and known[name].required:
                    raise UsageError("name at least one resource")
            elif "Duration" in known[name].kind.python:
                read[name] = number_text(value)
            elif known[name].kind.python == "int" and isinstance(value, str):  # of a query, typed
                raise UsageError(f"{name} must be a number, not a string")
            else:
                read[name] = tuple(to_list(value, name)) if known[name].kind.many else value
        return {**self.given, **read_values(known, door, read, what=f"{self.name}()")}

    def answer_of(self, result: Result) -> Any:
        """What it returns of a verb's result."""
        planned = "dry_run" in result.body and result.value  # nobody has them
        if self.answer in (LEASE, LEASES):
            leases = tuple(result.leases or planned or ())
            return leases[0] if self.answer == LEASE else leases
        if self.answer == NONE:
            return None
        return self.made(result) if self.made else result.value


def make_methods(methods: Iterable[Method], plain: type, awaited: type) -> None:
    """Give these methods to a class, and to the one whose methods are awaited."""
    for one in methods:
        verb = _function(one, plain.__module__)
        setattr(plain, one.name, verb)
        if not one.streams:
            setattr(awaited, one.name, AwaitedVerb(verb, grants=one.grants))


def _function(method: Method, home: str) -> Callable[..., Any]:
    signature = method.signature

    def call(self: Any, *args: Any, **options: Any) -> Any:
        given = bind(call, (self, *args), options)
        del given["self"]
        try:
            return self._carry_out(method, given)
        except GitleaseError as error:
            raise refusal(error) from None

    call.__name__, call.__doc__, call.__module__ = method.name, method.doc, home
    call.__qualname__ = f"{'Leases' if method.door == LIBRARY else 'Connection'}.{method.name}"
    kinds = {x.name: x.annotation for x in signature.parameters.values() if x.name != "self"}
    call.__annotations__ = kinds | {"return": method.answer}
    vars(call)["__signature__"] = signature
    return call


class AwaitedVerb(Generic[P, T]):
    """A verb, to be awaited, with its own parameters and answer.

    ``grants``: the leases it returns are released if the call was cancelled.
    """

    def __init__(self, verb: Callable[Concatenate[Any, P], T], *, grants: bool = False) -> None:
        self._verb, self._grants = verb, grants

    def __get__(self, owner: Any, kind: type) -> Callable[P, Coroutine[Any, Any, T]]:
        def call(*args: P.args, **options: P.kwargs) -> Coroutine[Any, Any, T]:
            return owner._call(self._verb, args, options, grants=self._grants)  # type: ignore[no-any-return]

        return functools.update_wrapper(call, self._verb)


# How to claim, for what runs under it.
TERMS = Method("claim", "claim", without=("resources", "dry_run"))
OF_A_CLONE: tuple[Method, ...] = (
    Method("claim", "claim", LEASE, one=True, grants=True),
    Method("claim_all", "claim", grants=True),
    Method("renew", "renew", LEASE, one=True),
    Method(
        "renew_all",
        "renew",
        given={"all": True},
        without=("resources", "scope"),
        about="Renew everything of this session in every layer that this clone uses, a push for "
        "each. If any was lost, the rest is renewed first.",
    ),
    Method("extend", "extend", LEASE),
    Method("park", "park", LEASE, one=True, positional=("duration",)),
    Method("release", "release", NONE, one=True),
    Method("done", "done", NONE),
    Method("note", "note", NONE),
    Method(
        *("next_task", "next", "Task"),
        made=values.next_task,
        without=("claim", "ttl", "reason", "commit"),
    ),
    Method(
        "claim_next",
        "next",
        LEASE,
        grants=True,
        given={"claim": True},
        without=("ref", "cached"),
        about="Claim the next task of the queue: two callers never get the same.",
    ),
    Method(
        "start",
        "set",
        LEASE,
        grants=True,
        given={"status": "in_progress"},
        about="Claim a task and set its status to in progress.",
    ),
    Method("set_status", "set"),
    Method("fence", "fence", LEASE),
    Method("wait", "wait", NONE, spread=True),
    Method(
        *("watch", "watch", "Iterator[WatchEvent]"),
        made=lambda result: refusing_events(result.value),
        spread=True,
        streams=True,
        about="Yield the events of leases, of these resources or of all. The first `next` reads "
        "the remote, and raises what that raises; later an unreachable remote is waited for.",
    ),
    Method("sessions", "session list", "tuple[OwnSession, ...]"),
    Method(
        "end_session",
        "session end",
        about="End the leases of one of your sessions (default: this one) in every layer in use. "
        "Your tasks stay assigned to you; leases on anything else are released.",
    ),
    Method("list", "list"),
    Method("show", "show"),
    Method("log", "log", "tuple[LogEntry, ...]", made=values.log_entries),
    Method("status", "status", "LedgerStatus", made=values.ledger_status),
    Method("whoami", "whoami", "WhoAmI", made=values.who_am_i),
    Method(
        "queue",
        "queue",
        "tuple[Entry, ...]",
        made=lambda result: result.value.entries,
        given={"all": True},
        about="Every task, best first, and whether it may be claimed.",
    ),
    Method("brief", "brief", "QueueReading", made=values.briefing),
    Method("config", "config", "tuple[Setting, ...]", made=values.settings),
    Method(
        "check_commits",
        "check",
        "CheckResult",
        without=("stale", "fix"),
        about="Check commits for changes to what others held then or hold now: those of `range`, "
        "else the pull request or push that CI runs for, else the commits of HEAD that the default "
        "branch lacks. The settings are those of the commit before them.",
    ),
    Method(
        "check_stale",
        "check",
        "CheckResult",
        given={"stale": True},
        without=("range",),
        about="Find claims that nobody works under any more, by the settings of the work tree, or "
        "in CI for a pull request by those of its base branch.",
    ),
    Method("verify", "verify", "Verified"),
    Method("board", "board", "Board", made=values.board),
)
LEASE_ROUTE = "/v1/leases/{}"
OF_A_GATEWAY: tuple[Method, ...] = (
    Method("claim", "claim", LEASE, HTTP, one=True, route=f"PUT {LEASE_ROUTE}"),
    Method("claim_all", "claim", LEASES, HTTP, route="POST /v1/leases:claim"),
    Method("renew", "renew", LEASE, HTTP, one=True, route=f"PATCH {LEASE_ROUTE}"),
    Method("extend", "extend", LEASE, HTTP, route=f"PATCH {LEASE_ROUTE}"),
    Method(
        *("park", "park", LEASE, HTTP),
        one=True,
        positional=("duration",),
        route="POST /v1/leases:park",
    ),
    Method("release", "release", NONE, HTTP, one=True, route=f"DELETE {LEASE_ROUTE}"),
    Method("done", "done", NONE, HTTP, route=f"DELETE {LEASE_ROUTE}?done=true"),
    Method("note", "note", NONE, HTTP, route="POST /v1/leases:note"),
    Method("fence", "fence", LEASE, HTTP, route="GET /v1/fence"),
    Method("show", "show", LEASES, HTTP, route=f"GET {LEASE_ROUTE}"),
    Method("whoami", "whoami", "WhoAmI", HTTP, made=values.who_am_i, route="GET /v1/whoami"),
    Method(
        *("log", "log", "tuple[LogEntry, ...]", HTTP),
        made=values.log_entries,
        route="GET /v1/log",
    ),
    Method("board", "board", "Board", HTTP, made=values.board, route="GET /v1/board"),
    Method(
        *("next_task", "next", "Task", HTTP),
        made=values.next_task,
        without=("claim", "ttl", "reason"),
        route="POST /v1/tasks:next",
    ),
    Method(
        "claim_next",
        "next",
        LEASE,
        HTTP,
        given={"claim": True},
        about="Claim the next task of the queue: two callers never get the same.",
        route="POST /v1/tasks:next",
    ),
)


def _others(known: Sequence[Method], door: str) -> tuple[Method, ...]:
    """Methods for the verbs that change leases and have none; each returns leases."""
    named = {x.verb for x in known}
    verbs = (find_verb(name) for name in TABLE if name not in named)
    return tuple(
        Method(x.name, x.name, LEASES, door, route=f"POST /v1/leases:{x.name}")
        for x in verbs
        if door in x.doors and not x.reads and x.name.isidentifier()
    )


OF_A_CLONE += _others(OF_A_CLONE, LIBRARY)
OF_A_GATEWAY += _others(OF_A_GATEWAY, HTTP)
