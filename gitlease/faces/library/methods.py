"""The methods of the library that are verbs of the table, made from the verbs' parameters."""

from __future__ import annotations

import functools
import inspect
import os
import textwrap
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import timedelta
from inspect import iscoroutinefunction
from types import MappingProxyType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from gitlease.core.errors import UsageError, check_text
from gitlease.core.frozen import dataclass
from gitlease.core.instant import parse_duration
from gitlease.core.lease import MAX_NOTE, MAX_REASON
from gitlease.core.resources.resource import (
    WHOLE,
    Resource,
    parse_scope,
    path_resource,
)
from gitlease.core.view import Lease
from gitlease.engine.answers import Answer, ClaimOptions, QueueReading, Reading
from gitlease.engine.ledger_session import LedgerSession
from gitlease.engine.sessions import SessionsReading
from gitlease.faces.library.refusals import in_python, refusing
from gitlease.verbs.table import (
    HTTP,
    LIBRARY,
    DeclaredVerb,
    Parameter,
    Result,
    find_verb,
    read_values,
)
from gitlease.wiring.words import check_claim, dead_hooks, path_here, resource_here
from gitlease.wiring.workspace import Workspace

LEASE, LEASES, NONE = "Lease", "tuple[Lease, ...]", "None"
P = ParamSpec("P")
T = TypeVar("T")
POSITIONAL, KEYWORD = (
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.KEYWORD_ONLY,
)
WithWarnings = TypeVar("WithWarnings", Answer, Reading, QueueReading, SessionsReading, Result)

Duration = str | int | timedelta
"""``"15m"``, a number of seconds, or a timedelta."""

StrPath = str | os.PathLike[str]

ResourceLike = StrPath | Resource
"""A name or a path as on the command line; a ``Path`` is always a path."""


@dataclass(frozen=True, slots=True)
class Method:
    """A method that is a verb of the table, of the library at ``door``.

    ``answer`` is the type of what it returns. ``one``: it takes one resource where the verb takes
    several. ``given`` are parameters of the verb that it decides, ``without`` those that it lacks;
    ``positional`` are those that it takes by position besides the verb's. ``grants``: the leases it
    returns are released if an awaited call is cancelled. ``route`` is its request at a gateway.
    """

    name: str
    verb: str
    answer: str
    about: str
    door: str = LIBRARY
    one: bool = False
    given: Mapping[str, Any] = MappingProxyType({})
    without: Sequence[str] = ()
    positional: Sequence[str] = ()
    grants: bool = False
    route: str = ""

    @property
    def declared(self) -> DeclaredVerb:
        return find_verb(self.verb)

    @property
    def parameters(self) -> dict[str, Parameter]:
        """The verb's parameters that it takes."""
        left_out = {*self.without, *self.given, *(("all",) if self.one else ())}
        offered = self.declared.at(self.door)
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
            (by_place if placed else by_name).append(
                inspect.Parameter(
                    name, POSITIONAL if placed else KEYWORD, default=default, annotation=kind
                )
            )
        return inspect.Signature([*by_place, *by_name], return_annotation=self.answer)

    @property
    def doc(self) -> str:
        """Its text of help, with that of its parameters."""
        about = "\n\n".join(textwrap.fill(x, 88) for x in self.about.split("\n\n"))
        told = [f"{x}: {in_python(one.about)}" for x, one in self.parameters.items() if one.about]
        lines = "\n".join(textwrap.fill(x, 88, subsequent_indent="  ") for x in told)
        return f"{about}\n\n{lines}" if told else about

    def values(self, door: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        """The verb's values for the arguments of a call. Raises UsageError."""
        known, read = self.declared.at(self.door), dict[str, Any](self.given)
        for name, value in given.items():
            if name == "resource" and self.one:
                read["resources"] = [value]
            elif known[name].kind.many:
                read[name] = tuple(to_list(value, name))
            else:
                read[name] = value
        return read_values(known, door, read, what=f"{self.name}()")

    def answer_of(self, leases: Sequence[Lease], value: Any = None) -> Any:
        """What it returns of a verb's leases, or its value."""
        if self.answer in (LEASE, NONE):
            return leases[0] if self.answer == LEASE else None
        return tuple(leases) if self.answer == LEASES else value


def method(one: Method, home: str) -> Callable[..., Any]:
    """The function of a method, which has the object carry the call out; ``home`` is its module."""
    signature = one.signature

    def call(self: Any, *args: Any, **options: Any) -> Any:
        given = signature.bind(self, *args, **options).arguments
        del given["self"]
        return self._carry_out(one, given)

    call.__name__, call.__doc__, call.__module__ = one.name, one.doc, home
    call.__qualname__ = f"{'Leases' if one.door == LIBRARY else 'Connection'}.{one.name}"
    annotations = {x.name: x.annotation for x in signature.parameters.values() if x.name != "self"}
    call.__annotations__ = annotations | {"return": one.answer}
    vars(call)["__signature__"] = signature
    return refusing(call)


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


def make_methods(methods: Iterable[Method], plain: type, awaited: type) -> None:
    """Give these methods to a class, and to the one whose methods are awaited."""
    for one in methods:
        verb = method(one, plain.__module__)
        setattr(plain, one.name, verb)
        setattr(awaited, one.name, AwaitedVerb(verb, grants=one.grants))


# --- the arguments of the other methods ---------------------------------------------------------


def to_folder(place: StrPath) -> str:
    """A folder's path. UsageError for anything that is not a path."""
    return _path_text(place, "a folder")


def _path_text(place: StrPath, what: str) -> str:
    found = os.fspath(place) if isinstance(place, str | os.PathLike) else None
    if not isinstance(found, str):
        raise UsageError(f"{what} must be a string or a path, not {type(place).__name__}")
    return found


def to_resource(workspace: Workspace, word: ResourceLike) -> Resource:
    """The resource of a word in an opened repository. Raises UsageError."""
    if isinstance(word, Resource):
        return word
    text = _path_text(word, "a resource")
    if isinstance(word, os.PathLike):
        return path_here(workspace.repository, text)
    return resource_here(workspace, text)


def to_list(words: Iterable[T], what: str) -> list[T]:
    """The items of an iterable. UsageError for a single string or path, or no iterable."""
    if isinstance(words, str | os.PathLike) or not isinstance(words, Iterable):
        raise UsageError(f"{what} must be a list")
    return [*words]


def to_resources(workspace: Workspace, words: Iterable[ResourceLike]) -> tuple[Resource, ...]:
    """Several resources, at least one."""
    found = tuple(to_resource(workspace, word) for word in to_list(words, "resources"))
    if not found:
        raise UsageError("name at least one resource")
    return found


def to_claim(
    workspace: Workspace, words: Iterable[ResourceLike], terms: ClaimOptions
) -> tuple[tuple[Resource, ...], tuple[str, ...]]:
    """The resources of a claim, and warnings.

    Raises UsageError for a word that may be a file as well as a name.
    """
    wanted = to_resources(workspace, words)
    covered = [path_resource(path) for path in terms.paths]
    warnings = check_claim(workspace, wanted, covered, any_name=terms.any_name)
    return wanted, (*warnings, *dead_hooks(workspace))


def to_paths(workspace: Workspace, words: Iterable[StrPath]) -> tuple[str, ...]:
    """Paths as patterns relative to the root."""
    words = to_list(words, "paths")
    found = (path_here(workspace.repository, _path_text(word, "a path")) for word in words)
    return tuple(path.pattern for path in found if path.pattern is not None)


def to_seconds(value: Duration | None, what: str) -> int | None:
    """A duration in whole seconds; None stays None. Raises UsageError."""
    if value is None:
        return None
    if isinstance(value, timedelta):
        return parse_duration(f"{value.total_seconds():f}", what=what)
    return parse_duration(str(value), what=what)


def to_terms(
    workspace: Workspace | None,
    scope: str = WHOLE,
    ttl: Duration | None = None,
    paths: Iterable[StrPath] = (),
    reason: str | None = None,
    takeover: bool = False,
    reopen: bool = False,
    any: bool = False,
    commit: bool | None = None,
    *,
    expect_holder: str | None = None,
    new: bool = False,
) -> ClaimOptions:
    """The options of a claim; without a ``workspace`` its paths are left out. Raises UsageError."""
    if expect_holder is not None:
        check_text(expect_holder, what="a holder")
    return ClaimOptions(
        scope=parse_scope(scope),
        ttl=to_seconds(ttl, "ttl"),
        paths=to_paths(workspace, paths) if workspace else (),
        reason=to_reason(reason),
        takeover=takeover,
        expect_holder=expect_holder,
        new=new,
        reopen=reopen,
        any_name=any,
        commit=commit,
    )


def layers_of(workspace: Workspace) -> list[LedgerSession]:
    """Every layer that this clone uses."""
    return [space.ledger for space in workspace.in_use]


def to_scope(word: str | None) -> str | None:
    """A scope; None stays None. Raises UsageError."""
    return None if word is None else parse_scope(word)


def check_listener(on_lost: object) -> None:
    """UsageError for anything that cannot be called in a thread, such as a coroutine function."""
    if on_lost is not None and (not callable(on_lost) or iscoroutinefunction(on_lost)):
        raise UsageError("on_lost must be a plain function, not a coroutine function")


def to_note(text: str | None) -> str | None:
    """A note; None stays None. UsageError for one that cannot be stored or shown."""
    return None if text is None else check_text(text, what="note", limit=MAX_NOTE, lines=True)


def to_reason(text: str | None) -> str | None:
    """A reason; None stays None. UsageError for one that cannot be stored or shown."""
    return None if text is None else check_text(text, what="reason", limit=MAX_REASON)


OF_A_CLONE = (
    Method(
        "claim",
        "claim",
        LEASE,
        """Take a lease, or renew your own; ``wait`` blocks for at most that long.

The assignee of a task is written to its file. Raises LeaseHeld with the holder and when it is free,
WaitTimeout, PolicyRefused for a TTL outside the limits or completed work, NotFound for a name that
is not a task, Invalid for a task file that cannot be edited, Unavailable, Denied or
UnknownOutcome.""",
        one=True,
        grants=True,
    ),
    Method("claim_all", "claim", LEASES, "Take several leases, all or none.", grants=True),
    Method(
        "renew",
        "renew",
        LEASE,
        "The heartbeat: expiry becomes now + TTL. Raises LeaseLost or NotHolder.",
        one=True,
    ),
    Method(
        "renew_all",
        "renew",
        LEASES,
        """Renew everything of this session in every layer that this clone uses, a push for each.

Raises LeaseLost if any was lost; the rest is renewed first.""",
        given={"all": True},
        without=("resources", "scope"),
    ),
    Method(
        "extend",
        "extend",
        LEASE,
        "Stretch to at least now + ``duration``; ``capped`` if the policy's maximum is less.",
    ),
    Method(
        "park",
        "park",
        LEASE,
        """Keep a lease for a later session of its holder: others are refused for ``duration``.

The policy's ``park_max`` is the maximum and the default. Nothing renews it; a ``claim`` by any
session of the person resumes it, under a new token. Raises LeaseLost, NotHolder, and PolicyRefused
if the policy forbids it.""",
        one=True,
        positional=("duration",),
    ),
    Method(
        "release",
        "release",
        NONE,
        "Drop your lease and edge, if any. Raises LeaseHeld for someone else's.",
        one=True,
    ),
    Method(
        "done",
        "done",
        NONE,
        """Finish: the lease ends completed, the task's status is done, and claims need ``reopen``.

Raises NotFound for a name in no task file and no record, unless ``any``, LeaseLost if others ended
your lease and one of them has it, and LeaseHeld for another's.""",
    ),
    Method(
        "revoke",
        "revoke",
        LEASES,
        "End someone else's lease, as an admin of the ledger. Returns the ended leases.",
    ),
    Method("note", "note", NONE, "Leave a note for the next holder."),
    Method(
        "next_task",
        "next",
        "Task",
        "The next task of the queue, without claiming it. Raises NothingLeft.",
        without=("claim", "ttl", "reason", "commit"),
    ),
    Method(
        "claim_next",
        "next",
        LEASE,
        "Claim the next task atomically: two callers never get the same. Raises NothingLeft.",
        given={"claim": True},
        without=("ref", "cached"),
        grants=True,
    ),
    Method(
        "start",
        "set",
        LEASE,
        "Claim a task and set its status to in progress. Raises what ``claim`` does.",
        given={"status": "in_progress"},
        grants=True,
    ),
    Method(
        "set_status",
        "set",
        LEASES,
        """Set a task's status: ``todo``, ``in_progress``, ``done``, or a word of the project.

An in-progress status claims it, a done status finishes it; the leases concerned are returned.
Raises UsageError for an unknown status, LeaseHeld for another's task, and LeaseLost if a task is to
be finished whose lease others ended.""",
    ),
)
OF_A_GATEWAY = (
    Method(
        "claim",
        "claim",
        LEASE,
        """Take a lease, or renew your own; ``wait`` blocks for at most that long, a minute at most.

Raises LeaseHeld with the holder and when it is free, WaitTimeout, PolicyRefused, NotFound,
Unavailable or UnknownOutcome.""",
        HTTP,
        one=True,
        route="PUT /v1/leases/{}",
    ),
    Method(
        "claim_all",
        "claim",
        LEASES,
        "Take several leases, all or none.",
        HTTP,
        route="POST /v1/leases:claim",
    ),
    Method(
        "renew",
        "renew",
        LEASE,
        """The heartbeat; while two thirds of its time are left, the lease is returned unchanged.

Raises LeaseLost or NotHolder.""",
        HTTP,
        one=True,
        route="PATCH /v1/leases/{}",
    ),
    Method(
        "extend",
        "extend",
        LEASE,
        "Stretch to at least now + ``duration``; ``capped`` if the policy's maximum is less.",
        HTTP,
        route="PATCH /v1/leases/{}",
    ),
    Method(
        "release",
        "release",
        NONE,
        "Drop your lease, if any. Raises LeaseHeld for someone else's.",
        HTTP,
        one=True,
        route="DELETE /v1/leases/{}?",
    ),
    Method(
        "done",
        "done",
        NONE,
        "Finish: the lease ends completed.",
        HTTP,
        without=("any",),
        route="DELETE /v1/leases/{}?done=true&",
    ),
    Method(
        "claim_next",
        "next",
        LEASE,
        "Claim the next task of the queue. Raises NothingLeft.",
        HTTP,
        given={"claim": True},
        without=("reason",),
        route="POST /v1/tasks:next",
    ),
)
