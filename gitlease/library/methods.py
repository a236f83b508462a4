"""The methods of the library that are verbs of the table, described for their generator.

And how public functions are called: their arguments, and refusals at the caller's line.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import Any, TypeVar

from gitlease.kernel.rules import errors
from gitlease.kernel.rules.errors import GitleaseError, Hint, UsageError, around
from gitlease.kernel.rules.frozen import dataclass, replace
from gitlease.kernel.rules.instant import format_duration, moment_of, utc_text
from gitlease.kernel.rules.resources import WHOLE, Resource, fold, word_anywhere
from gitlease.library import values
from gitlease.verbs import sentences
from gitlease.verbs.next_steps import steps_after
from gitlease.verbs.table import (
    CODES,
    HTTP,
    LIBRARY,
    TABLE,
    Called,
    DeclaredVerb,
    Parameter,
    Result,
    find_verb,
    is_duration,
    path_text,
    read_values,
)

Duration = str | int | timedelta
"""``"15m"``, a number of seconds, or a timedelta."""

StrPath = str | os.PathLike[str]

ResourceLike = StrPath | Resource
"""A name or a path as on the command line; a ``Path`` is always a path."""

POSITIONAL, KEYWORD = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
C = TypeVar("C", bound=type)
F = TypeVar("F", bound=Callable[..., Any])
_STRINGS = ("str", "str | None")
T = TypeVar("T")
ANOTHER_DAY = moment_of(0)  # as seen from it, times have their dates

# The methods of verbs that hints name, and what they take without a name.
_METHODS = {x: f"leases.{x}" for x in ("config", "init", "claim", "show", "queue")}
_METHODS |= {"": "", "session list": "leases.sessions"}
_FIRST = ("key", "value", "resource", "resources")


def in_python(text: str) -> str:
    """Return a hint with its call in Python, where the library has it."""
    if not isinstance(text, Hint) or text.verb not in _METHODS or "help" in text.arguments:
        return str(text)
    first, named = list[str](), list[str]()
    left_out = ("layer", "session", "all") if text.verb else ()
    for name, value in text.arguments.items():
        if name in _FIRST:
            first += map(repr, value if isinstance(value, list) else [value])
        elif value not in (None, False) and name not in left_out:
            value = format_duration(value) if name == "wait" and isinstance(value, int) else value
            named.append(f"{name}={value!r}")
    call = ", ".join([*first, *named]).replace("set_upstream", "upstream")
    return around(text.why, f"{_METHODS[text.verb]}({call})" if text.verb else call)


def refusal(error: GitleaseError) -> GitleaseError:
    """The refusal as a caller gets it: hints in Python, and without the traceback below."""
    given = {"resources": [word_anywhere(error.resource or "")], "scope": error.scope}
    given |= {"scope": None} if error.scope == WHOLE else {}
    claim = Called(verb="claim" if error.resource else "", values=given, door=HTTP)
    # A program waits by claiming, as at a gateway.
    steps = steps_after(None, error, claim)
    hints = tuple(dict.fromkeys(map(in_python, (*error.hints, *steps))))
    # Full times and the holder in the text: a log has only that.
    shown = error.with_(text=_text(error), hints=hints)
    for hint in hints:
        shown.add_note(f"hint: {hint}")
    return shown


def _text(error: GitleaseError) -> str:
    # The fact, and who has the lease, where, until when and why; full timestamps, for logs, in
    # which the time left is that of the refusal.
    view = error.lease
    if view is None or error.code not in sentences.IN_THE_WAY:
        return error.message
    text = error.message + sentences.where_held(error, view)
    if error.by_edge:
        text += f", last held until {utc_text(view.expires_at)}"
    elif view.state in ("active", "expired"):
        text += sentences.lasts(view, ANOTHER_DAY)
        if error.resource is not None and fold(error.resource) == fold(view.resource):
            text += sentences.afterwards(view, ANOTHER_DAY)
    return text + sentences.quoted(view.reason)


def bind(function: Callable[..., Any], args: Any, options: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call by name. UsageError, with how it is called, if they do not fit."""
    name, signature = function.__name__, inspect.signature(function)
    try:
        return signature.bind(*args, **options).arguments
    except TypeError as error:
        forms = dict[Any, str]({POSITIONAL: "{}", inspect.Parameter.VAR_POSITIONAL: "*{}"})
        known = (x for x in signature.parameters.values() if x.name != "self")
        takes = ", ".join(forms.get(x.kind, "{}=…").format(x.name) for x in known)
        timed = "ttl" in signature.parameters and args and is_duration(args[-1])
        ways = [f"for a time, write ttl={args[-1]!r} instead"] if timed else []
        ways += [f"call it as {name}({takes})"]
        raise UsageError(f"{name}(): {error}", hints=tuple(ways)) from None


def _check_strings(function: Callable[..., Any], args: Any, options: dict[str, Any]) -> None:
    """Raise UsageError for anything but a string where the annotation says str."""
    for name, value in bind(function, args, options).items():
        parameter = inspect.signature(function).parameters[name]
        values = value if parameter.kind is parameter.VAR_POSITIONAL else (value,)
        if parameter.annotation not in _STRINGS:
            continue
        for text in values:
            if not isinstance(text, str) and (text is not None or parameter.annotation == "str"):
                raise UsageError(f"{name} must be a string, not {type(text).__name__}")


def refusing(function: F) -> F:
    """Decorate a public function or coroutine: a refusal's traceback ends in the caller's line."""

    @functools.wraps(function)
    def called(*args: Any, **options: Any) -> Any:
        try:
            _check_strings(function, args, options)
            return function(*args, **options)
        except GitleaseError as error:
            raise refusal(error) from None

    @functools.wraps(function)
    async def awaited(*args: Any, **options: Any) -> Any:
        try:
            return await function(*args, **options)
        except GitleaseError as error:
            raise refusal(error) from None

    wrapper: Any = awaited if inspect.iscoroutinefunction(function) else called
    return wrapper  # type: ignore[no-any-return]


def library_verb(function: F) -> F:
    """Decorate a method that is a verb of the table, whose refusals say how it is called."""

    @functools.wraps(function)
    def called(*args: Any, **options: Any) -> Any:
        try:
            bind(function, args, options)
            return function(*args, **options)
        except GitleaseError as error:
            raise refusal(error) from None

    @functools.wraps(function)
    async def awaited(*args: Any, **options: Any) -> Any:
        try:
            bind(function, args, options)
        except GitleaseError as error:
            raise refusal(error) from None
        return await function(*args, **options)

    wrapper: Any = awaited if inspect.iscoroutinefunction(function) else called
    return wrapper  # type: ignore[no-any-return]


def refusing_class(cls: C) -> C:
    """Decorate all public methods of a class."""
    for name, method in list(vars(cls).items()):
        dunder = name in ("__enter__", "__exit__", "__aenter__", "__aexit__")
        plain = inspect.isfunction(method) and not inspect.isasyncgenfunction(method)
        if plain and (dunder or not name.startswith("_")):
            setattr(cls, name, refusing(method))
    return cls


def refusing_events(events: Iterator[T]) -> Iterator[T]:
    """The events; a refusal's traceback ends in the line that asks for the next one."""
    try:
        yield from events
    except GitleaseError as error:
        raise refusal(error) from None


# --- arguments ------------------------------------------------------------------------------------


def to_folder(place: StrPath) -> str:
    """A folder's path. UsageError for anything that is not a path."""
    return path_text(place, "a folder")


def to_list(words: Iterable[T], what: str) -> list[T]:
    """The items of an iterable. UsageError for a single string or path, or no iterable."""
    if isinstance(words, str | os.PathLike) or not isinstance(words, Iterable):
        raise UsageError(f"{what} must be a list")
    return [*words]


def to_resources(door: Any, words: Sequence[ResourceLike]) -> list[Resource]:
    """Several resources, at least one."""
    if not words:
        raise UsageError("name at least one resource")
    resources: list[Resource] = door.resources(words)
    return resources


def check_resource(word: Any) -> Any:
    """A resource as it was given, of a kind that can name one. Raises UsageError."""
    if not isinstance(word, Resource):
        path_text(word, "a resource")
    return word


def number_text(value: Any) -> Any:
    """A float or Decimal as text, for it may be whole seconds; any other value as it is."""
    is_number = hasattr(value, "as_integer_ratio") and not isinstance(value, int)
    return str(value) if is_number else value


def to_note(text: str | None) -> str | None:
    """A note; None stays None. UsageError for one that cannot be stored or shown."""
    kind = find_verb("note").parameters["text"].kind
    return None if text is None else kind.read(None, text, "note")


def check_listener(on_lost: object) -> None:
    """UsageError for anything that cannot be called in a thread, such as a coroutine function."""
    if on_lost is not None and (not callable(on_lost) or inspect.iscoroutinefunction(on_lost)):
        raise UsageError("on_lost must be a plain function, not a coroutine function")


LEASE, LEASES, NONE = "Lease", "tuple[Lease, ...]", "None"
BODY = "Mapping[str, Any]"  # the answer as JSON has it
MADE: Mapping[str, Callable[[Result], Any]] = {
    "Board": values.board,
    "InitResult": values.init_result,
    BODY: values.body_of,
    "Iterator[WatchEvent]": lambda result: refusing_events(result.value),
    "LedgerStatus": values.ledger_status,
    "QueueReading": values.briefing,
    "RunResult": values.run_result,
    "Task": values.next_task,
    "WhoAmI": values.who_am_i,
    "WorkResult": values.work_result,
    "tuple[Entry, ...]": values.queued,
    "tuple[LogEntry, ...]": values.log_entries,
    "tuple[Setting, ...]": values.settings,
}
# Where a gateway has a method's request, if not at the address of its verb.
ROUTES_OF = {
    "claim": "PUT /v1/leases/{}",
    "renew": "PATCH /v1/leases/{}",
    "extend": "PATCH /v1/leases/{}",
    "release": "DELETE /v1/leases/{}",
    "done": "DELETE /v1/leases/{}?done=true",
    "show": "GET /v1/leases/{}",
    "queue": "GET /v1/tasks",
    "next_task": "POST /v1/tasks:next",
    "claim_next": "POST /v1/tasks:next",
}
WIDTH = 88  # of help

KINDS: Mapping[str, type[GitleaseError]] = {
    kind.code: kind
    for kind in vars(errors).values()
    if isinstance(kind, type)
    and issubclass(kind, GitleaseError)
    and kind.__name__ not in ("GitleaseError", "HeadGone", "PlaceLearnt", "AnotherLedger")
}


@dataclass(frozen=True)
class Method:
    """A method that is a verb of the table, of the library at ``door``.

    ``answer`` is the type of what it returns, which ``MADE`` makes of the result if that is neither
    its leases nor its value. ``one``: it takes one resource where the verb takes several;
    ``spread``: each of them as an argument. ``given`` are parameters of the verb that it decides,
    ``without`` those that it lacks; ``positional`` are those that it takes by position besides the
    verb's. ``grants``: the leases it returns are released if an awaited call is cancelled.
    ``streams``: a class whose methods are awaited has its own. ``about`` is help of its own.
    """

    name: str
    verb: str
    answer: str = LEASES
    door: str = LIBRARY
    one: bool = False
    spread: bool = False
    grants: bool = False
    streams: bool = False
    given: Mapping[str, Any] = MappingProxyType({})
    without: Sequence[str] = ()
    positional: Sequence[str] = ()
    about: str = ""

    @property
    def declared(self) -> DeclaredVerb:
        return find_verb(self.verb)

    @property
    def parameters(self) -> dict[str, Parameter]:
        """The verb's parameters that it takes."""
        left_out = {*self.without, *self.given, *(("all",) if self.one else ())}
        known = self.declared.at(LIBRARY)
        offered = {x: y for x, y in self.declared.at(self.door).items() if x in known}
        if self.door == HTTP and "resource" in offered and not self.declared.reads:
            offered["resource"] = replace(offered["resource"], required=True)
        return {name: x for name, x in offered.items() if name not in left_out}

    @property
    def route(self) -> str:
        """Its request at a gateway."""
        usual = f"GET /v1/{self.verb}" if self.declared.reads else f"POST /v1/leases:{self.verb}"
        return ROUTES_OF.get(self.name, usual)

    @property
    def signature(self) -> inspect.Signature:
        """Its parameters as those of a method, with annotations as text."""
        by_place, by_name = [inspect.Parameter("self", POSITIONAL)], list[inspect.Parameter]()
        for name, declared in self.parameters.items():
            kind, default = declared.kind.python, declared.default
            if self.one and name == "resources":
                name, kind, default = "resource", "ResourceLike", inspect.Parameter.empty
            elif declared.required:
                default = inspect.Parameter.empty
            elif default is None:
                kind = f"{kind} | None"
            placed = declared.positional or name in self.positional
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
            for code, x in CODES.items()
            if code in KINDS and (x.exit in exits or (1 in verb.exits and code in verb.no))
        ]
        about = self.about or re.sub(
            r"\b[A-Z]{4,}\b",
            lambda word: f"``{word[0].lower()}``",
            verb.help.partition("\n\n")[0].replace("\n", " "),
        )
        known = [f"{x}: {y.about}" for x, y in self.parameters.items() if y.about]
        shown = [textwrap.fill(text, WIDTH, subsequent_indent="  ") for text in known]
        parts = [*(textwrap.fill(x, WIDTH) for x in about.split("\n\n")), "\n".join(shown)]
        parts += [textwrap.fill(f"Raises {', '.join(raised)}.", WIDTH)] if raised else []
        return "\n\n".join(x for x in parts if x)

    def differing(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call that are not their defaults."""
        known = self.signature.parameters
        usual = {x.name: () if x.kind is x.VAR_POSITIONAL else x.default for x in known.values()}
        return {x: y for x, y in arguments.items() if y is not usual[x]}

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
                self.refuse_list(value, given)
                read[name] = [check_resource(x) for x in value] or None
                if not value and known[name].required:
                    raise UsageError("name at least one resource")
            elif "Duration" in known[name].kind.python:
                read[name] = number_text(value)
            # The kind itself reads text, which the command line and a query have.
            elif known[name].kind.python == "int" and isinstance(value, str):
                raise UsageError(f"{name} must be a number, not a string")
            else:
                listed = known[name].kind.many and not known[name].kind.no_single
                read[name] = tuple(to_list(value, name)) if listed else value
        return {**self.given, **read_values(known, door, read, what=f"{self.name}()")}

    def refuse_list(self, words: Iterable[Any], given: Mapping[str, Any]) -> None:
        """Raise UsageError, with the call that was meant, for a list among several resources."""
        command, runs = given.get("command"), self.declared.runs
        for listed in (x for x in words if isinstance(x, list | tuple)):
            meant = [listed, command] if isinstance(command, str) else [command, *listed]
            call = f"{self.name}({', '.join(map(repr, meant if runs else listed))})"
            takes = f"{self.name}() takes {'the command first, then ' * runs}"
            raise UsageError(f"{takes}each resource by itself", hints=(call,))

    def answer_of(self, result: Result) -> Any:
        """The value that a method returns of a verb's result."""
        # Leases that were only planned, which nobody has.
        planned = "dry_run" in result.body and result.value
        if self.answer in (LEASE, LEASES):
            leases = tuple(result.leases or planned or ())
            if self.verb == "list":  # with `all` those that ended, too
                leases += tuple(map(values.ended_of, result.value or ()))
            return leases[0] if self.answer == LEASE else leases
        if self.answer == NONE:
            return None
        made = MADE.get(self.answer)
        return made(result) if made else result.value


# How to claim, for what runs under it.
TERMS = Method("claim", "claim", without=("resources", "dry_run"))
OF_A_CLONE: tuple[Method, ...] = (
    Method("claim", "claim", LEASE, one=True, grants=True, without=("one",)),
    Method("claim_all", "claim", grants=True, without=("one",)),
    Method(
        "claim_one",
        "claim",
        LEASE,
        grants=True,
        given={"one": True},
        without=("new", "takeover", "expect_holder"),
        about="Take a lease on the first of these that is free, or with `wait` on the first that "
        "becomes free. Your own live leases count as taken.",
    ),
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
    Method("release", "release", NONE, one=True),
    Method("done", "done", NONE),
    Method("land", "land", "Landed"),
    Method("note", "note", NONE),
    Method(*("next_task", "next", "Task"), without=("claim", "ttl", "reason", "commit")),
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
    Method("add", "add", "Task"),
    Method(
        *("run", "run", "RunResult"),
        spread=True,
        streams=True,
        about="""Run a command under leases: claim all or none, renew, release at its end.

The command is a list of words, not a shell line. Resources, or with `next` the first task of the
queue, are claimed as by `claim`; each run has a session of its own unless one was named or it is in
a `Session`. Its environment is this program's with ``GITLEASE_RESOURCE``, ``GITLEASE_TOKEN`` and
the others of `gitlease run`.

Signals sent to this program go to the command. Only for the main thread; elsewhere use
`gitlease.hold` around your own command. Raises what `claim` raises, NotFound or Invalid for a
command that cannot be executed, before anything is claimed, and LeaseLost if a lease was lost: then
the command was stopped.""",
    ),
    Method(
        *("work", "work", "WorkResult"),
        streams=True,
        about="""A pool: run the command for one task of the queue after the other.

As many as `jobs` run at once, each in the background with a lease, a session and a log of its own;
the outcomes are those of `gitlease work`. It returns when the queue is empty, with `forever` when
interrupted. Ctrl-C once: no new tasks; twice, or a TERM signal: the runs are stopped and their
tasks released. If `on_event` raises, the runs are stopped and the pool ends.

Each run is a fork of this program, so this is only for the main thread of a program without other
threads. Raises UsageError otherwise, NotFound or Invalid for a command that cannot be executed, and
permanent failures of a claim, once all runs have ended.""",
    ),
    Method("fence", "fence", LEASE),
    Method("wait", "wait", NONE, spread=True),
    Method(
        *("watch", "watch", "Iterator[WatchEvent]"),
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
    Method("log", "log", "tuple[LogEntry, ...]"),
    Method("status", "status", "LedgerStatus"),
    Method("whoami", "whoami", "WhoAmI"),
    Method(
        "queue",
        "queue",
        "tuple[Entry, ...]",
        given={"all": True},
        about="Every task, best first, and whether it may be claimed.",
    ),
    Method("brief", "brief", "QueueReading"),
    Method(
        *("init", "init", "InitResult"),
        about="""Set the repository up: make the ledger, and write ``.gitlease.yaml`` if there is
none.

Idempotent; accepts a ledger that was replaced. For one that was rolled back it raises Rollback,
unless the choice is given; see `gitlease init --help`. A ledger that the settings do not record is
refused, unless this remote is to have its own (`new_ledger`). An unreachable remote is a
warning.""",
    ),
    Method("config", "config", "tuple[Setting, ...]"),
    Method(
        "check_commits",
        "check",
        "CheckResult",
        without=("stale", "fix"),
        about="Check commits for changes to what others hold now: those of `range`, "
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
    Method("board", "board", "Board"),
)
# Every other verb of this door is a method, too. Unless a line above says what it returns, a verb
# that reads returns its JSON, since leases are seldom what it answers with.
OF_A_CLONE += tuple(
    Method(x.name.replace(" ", "_"), x.name, BODY if x.reads else LEASES)
    for x in map(find_verb, TABLE)
    if LIBRARY in x.doors and x.name not in {y.verb for y in OF_A_CLONE}
)
# What a gateway serves has its answers in pages, and keeps no session's leases together.
OF_A_GATEWAY = tuple(
    replace(x, door=HTTP, given={y: z for y, z in x.given.items() if y in x.declared.at(HTTP)})
    for x in OF_A_CLONE
    if HTTP in x.declared.doors and x.name not in ("list", "renew_all")
)
CLONE_METHODS = {x.name: x for x in OF_A_CLONE}
GATEWAY_METHODS = {x.name: x for x in OF_A_GATEWAY}
