"""The table of verbs: a verb is one typed function, and its signature declares what it takes.

A door (the command line, the library, the gateway, the tool server) reads the parameters of a verb
from here, calls it with a ``Door`` and the given values, and prints its ``Result`` in its own form.
A parameter's kind says how it is read at each of them; ``parameters.py`` lists the parameters.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import cache, partial
from importlib import import_module
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from gitlease.kernel.rules.errors import (
    MAX_WORD,
    USE_ANY,
    GitleaseError,
    Hint,
    LeaseHeld,
    UsageError,
    check_text,
)
from gitlease.kernel.rules.frozen import dataclass, field, replace
from gitlease.kernel.rules.instant import MS, moment_of, parse_duration
from gitlease.kernel.rules.lease import Actor
from gitlease.kernel.rules.lease_view import LeaseView
from gitlease.kernel.rules.resources import Resource, parse_resource, parse_scope, path_resource

Act = Callable[["LedgerSession", Sequence[Resource]], "Answer"]

COMMAND, LIBRARY, HTTP, TOOL = "command", "library", "http", "tool"
ANY_DOOR = frozenset({COMMAND, LIBRARY, HTTP, TOOL})
AT_A_CLONE = frozenset({COMMAND, LIBRARY})

# The module of each verb: its part brings it.
TABLE = {
    "claim": "verbs.claiming",
    "renew": "verbs.leases",
    "extend": "verbs.leases",
    "release": "verbs.leases",
    "done": "verbs.leases",
    "land": "landing.verbs",
    "note": "verbs.leases",
    "revoke": "verbs.leases",
    "session list": "verbs.sessions",
    "session end": "verbs.sessions",
    "fence": "landing.verbs",
    "run": "runs.verbs",
    "dispatch": "runs.verbs",
    "work": "runs.verbs",
    "wait": "verbs.waiting",
    "watch": "verbs.waiting",
    "next": "tasks.verbs",
    "set": "tasks.verbs",
    "add": "tasks.verbs",
    "list": "verbs.reading",
    "log": "verbs.reading",
    "status": "verbs.reading",
    "whoami": "verbs.reading",
    "check": "check.verbs",
    "verify": "check.verbs",
    "init": "tools.settings_verbs",
    "config": "tools.settings_verbs",
    "board": "board.verbs",
    "queue": "tasks.queue_verbs",
    "brief": "tasks.queue_verbs",
    "show": "tasks.queue_verbs",
}
LEASE_EXITS = (1, 2, 4, 5, 6, 7, 128)
OWN_EXITS = (2, 3, 4, 5, 6, 7, 128)
READING_EXITS = (2, 4, 5, 7, 128)


class Door(Protocol):
    """A caller, wherever the call comes from: a person in a clone, or a token's holder.

    What is usual stands here; a door that inherits it overrides the rest.
    """

    @property
    def ledger(self) -> LedgerSession: ...
    @property
    def queue(self) -> TaskQueue: ...

    def now(self) -> datetime:
        """The time of the ledger's clock, in the time zone in which the door shows it."""
        return moment_of(self.ledger.clock.now().wall_ms)

    def resources(self, words: Iterable[Any], *, claiming: bool = False) -> list[Resource]:
        """The resources of words as they are meant here. Raises UsageError."""
        return [parse_resource(word) for word in words]

    def paths(self, words: Iterable[Any]) -> list[Resource]:
        """The paths of words as they are meant here: from the root. Raises UsageError."""
        return [path_resource(word) for word in words]

    def check_claim(
        self, wanted: Sequence[Resource], covered: Sequence[Resource], *, any_name: bool
    ) -> Sequence[str]:
        """Warnings for a claim. Raises UsageError for a name that may be meant as a file."""
        return ()

    def who(self) -> tuple[Actor, str, str, GitleaseError | None]:
        """The caller, where holder and session come from, and why there is no holder, if so."""
        actor = self.ledger.actor
        return actor, "the token", "the request" if actor.session else "none", None

    def every_ledger(self) -> Sequence[LedgerSession]:
        """The ledgers of all layers that are in use here, or of the layer that was chosen."""
        return [self.ledger]

    def act(self, verb: str, resources: Sequence[Resource], act: Act, **terms: Any) -> Answer:
        """Carry out a change of leases, once for each request, in the session that has them.

        ``act`` is called with the ledger in that session, and with its resources: all of them, or
        several times with a part. The ``terms`` are the ``scope``, the ``ttl`` of renewals, which a
        gateway joins by itself, and ``dry_run``: nothing is changed.
        """
        return act(self.ledger, resources)

    def on_wait(self, held: LeaseHeld, seconds: int) -> None:
        """Take note that a claim waits, for at most so many seconds, because of this refusal."""
        return

    def tell(self, line: str) -> None:
        """Take note of a line that a hook of the repository or the server printed."""
        return

    def on_watch(self, names: Sequence[str], warnings: Sequence[str]) -> None:
        """Take note that a watch has begun, of these names or of all: nothing is missed now."""
        return

    def on_trouble(self, error: GitleaseError) -> None:
        """Take note that a watch goes on, although the remote does not answer."""
        return

    def granted(self, answer: Answer) -> Sequence[str]:
        """Take note of claimed leases, and return warnings."""
        return ()

    def take_messages(self) -> tuple[str, ...]:
        """Return the messages of the ledger's session that no answer has reported yet."""
        return self.ledger.messages.take()

    def own(self, view: LeaseView) -> LeaseView:
        """The lease as the caller's, if it is; a door may speak for more than one session."""
        return view

    def check_names(self, resources: Sequence[Resource]) -> None:
        """Raise NotFound for a name that was probably mistyped; programs do not mistype."""
        return

    def needs_any(self, name: str) -> bool:
        """Return whether a claim of this name must say that it is no task."""
        return False

    def is_anothers(self, name: str) -> bool:
        """Return whether the task file here assigns this name to others only."""
        return False

    def is_known(self, resource: Resource) -> bool:
        """Return whether a name is a task's, or the ledger has a record of it."""
        from gitlease.kernel.ledger.stepping import is_in_ledger

        return is_in_ledger(self.ledger.look(), resource)

    def file_called(self, resource: Resource) -> NamedFile | None:
        """The file or folder that was meant by a name without a record, if there is one."""
        return None

    def agrees(self, facts: Sequence[str], question: str, *, usually: bool = False) -> bool:
        """Decide whether to do what these facts call for: a person may be asked, no program is."""
        return True

    @property
    def chose_ledger(self) -> bool:
        """Return whether the call names another ledger than the configured one."""
        return False

    @property
    def in_memory(self) -> bool:
        """Return whether the ledger is one of tests, which no git knows."""
        return False

    def option(self, parameter: str) -> str:
        """A parameter's name as the caller knows it, for messages."""
        return parameter

    @property
    def for_agent(self) -> bool:
        """Return whether a coding agent reads the answer: it runs what it reads."""
        return False


class DoorOfClone(Door, Protocol):
    """A caller in a clone, or with one."""

    prog: str = "gitlease"
    directory: str = ""
    """The folder that the call is made for, if that is not the current one."""
    layer: str | None = None
    """The layer that the caller named."""

    if TYPE_CHECKING:

        @property
        def workspace(self) -> Workspace: ...

    @property
    def ledger(self) -> LedgerSession:
        return self.workspace.ledger

    @property
    def queue(self) -> TaskQueue:
        return self.workspace.queue

    def who(self) -> tuple[Actor, str, str, GitleaseError | None]:
        known = self.workspace.identity
        return known.actor, known.holder_source, known.session_source, known.no_holder

    def every_ledger(self) -> Sequence[LedgerSession]:
        return [space.ledger for space in self.workspace.in_use]

    def is_known(self, resource: Resource) -> bool:
        from gitlease.wiring.words import is_known

        return is_known(self.workspace, resource)

    def file_called(self, resource: Resource) -> NamedFile | None:
        from gitlease.kernel.ledger.stepping import is_in_ledger

        if resource.is_path or is_in_ledger(self.ledger.known_look(), resource):
            return None
        from gitlease.wiring.words import file_called

        return file_called(self.workspace.repository, resource.text)

    def needs_any(self, name: str) -> bool:
        from gitlease.wiring.doors import needs_any

        return needs_any(self.workspace, name)

    def is_anothers(self, name: str) -> bool:
        from gitlease.wiring.doors import task_called

        task = task_called(self.workspace, name)
        return task is not None and bool(task.others)

    def place(self) -> Mapping[str, Any]:
        """The arguments that open the same place again."""

    def workspace_by(
        self,
        committed: Mapping[str, Found] | None,
        repository: Repository,
        *,
        anonymous: bool,
    ) -> Workspace:
        """The workspace with the settings of a commit, if given, in place of those of the files."""

    def command_of(self, hint: Hint) -> str:
        """A call as it is typed where this one was made."""
        return str(hint)

    def open_at(self, folder: str) -> Workspace:
        """Open the same ledger in another work tree."""

    def say(self, lines: Sequence[str], warnings: Sequence[str] = ()) -> None:
        """Take note of what becomes of a command that runs."""
        return

    def on_job(self, event: PoolEvent) -> None:
        """Take note of an event of a pool."""
        return

    def pause(self, seconds: float, running: Sequence[Job], pool: RunRecord) -> None:
        """Sleep for some seconds, or until a signal comes, while these jobs of a pool run."""
        time.sleep(seconds)


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of values: how one is read, its JSON schema, its type in Python.

    ``read`` takes the door, what was given and the parameter's name, and raises UsageError.
    ``tool_schema`` is the short form that models read. ``at_door``: its meaning depends on where
    the caller is. ``complete`` names what shells complete. ``bare`` is the value of an option that
    is typed without one, if it may be. ``no_single``: no word stands for a list of it.
    """

    read: Callable[[Any, Any, str], Any]
    schema: Mapping[str, object]
    python: str
    tool_schema: Mapping[str, object] | None = None
    metavar: str = ""
    many: bool = False
    no_single: bool = False
    switch: bool = False
    at_door: bool = False
    complete: str = ""
    bare: str | None = None


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """A parameter: declared once, as metadata of the annotation in a verb's signature.

    ``about`` is its help, and ``tool`` the shorter one that models read. ``option`` is its form on
    the command line, if that is not its name with dashes. ``again``: a hint that repeats the call
    may repeat it. ``waits``: it is the longest time to wait. ``changes``: with it, a verb that
    reads changes leases, ``plans``: with it, none does. ``own``: the verb is then about the caller,
    who must be known. Name, position and default are those of the signature.
    """

    kind: Kind
    about: str = ""
    tool: str = ""
    option: str = ""
    metavar: str = ""
    doors: frozenset[str] = ANY_DOOR
    again: bool = True
    waits: bool = False
    changes: bool = False
    plans: bool = False
    own: bool = False
    name: str = ""
    positional: bool = False
    required: bool = False
    default: Any = None

    def but(self, about: str, **changes: Any) -> Parameter:
        """The same parameter, with the help that it needs at another verb."""
        return replace(self, about=about, **changes)

    @property
    def words(self) -> str:
        """Its option or options as typed on the command line."""
        return self.option or "--" + self.name.replace("_", "-")


# --- kinds of parameters, and how each is read ----------------------------------------------------

if TYPE_CHECKING:
    from typing import Annotated as Annotated

    from gitlease.kernel.ledger.answers import Answer
    from gitlease.kernel.ledger.ledger_session import LedgerSession
    from gitlease.runs.pool import Job, PoolEvent
    from gitlease.runs.records import RunRecord
    from gitlease.tasks.queue import TaskQueue
    from gitlease.wiring.words import NamedFile
    from gitlease.wiring.workspace import Found, Repository, Workspace
else:

    class Annotated:
        """Stands in for that of ``typing``, which takes a hundredth of a command's time here."""

        def __class_getitem__(cls, words):
            return SimpleNamespace(__metadata__=words[1:])


MOST_NAMES = 64  # resources of a request, which is one step
_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT, "minItems": 1, "maxItems": MOST_NAMES}
SHORT_TEXTS = {"type": ["array", "string"], "items": _TEXT}
_TIME = {"oneOf": [{"type": "integer", "minimum": 1}, {"type": "string", "examples": ["15m"]}]}


def name_of_type(data: Any) -> str:
    """The type of a value in words of JSON, else its name in Python."""
    kinds = {dict: "an object", list: "a list", str: "a string", bool: "true or false"}
    kinds |= {int: "a number", float: "a number", type(None): "null"}
    return kinds.get(type(data), type(data).__name__)


def check_encodes(data: Any, has: str) -> None:
    """Raise UsageError for a lone surrogate: JSON can hold one, a record or an answer cannot."""
    try:
        json.dumps(data, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise UsageError(f"{has} a lone surrogate") from None


def read_text(_door: Any, data: Any, name: str) -> str:
    """Read a string. UsageError for anything else."""
    if not isinstance(data, str):
        raise UsageError(f"{name} must be a string, not {name_of_type(data)}")
    return data


def path_text(place: Any, what: str) -> str:
    """The text of a string or path. UsageError for anything else."""
    text = os.fspath(place) if isinstance(place, str | os.PathLike) else None
    if not isinstance(text, str):
        raise UsageError(f"{what} must be a string or a path, not {type(place).__name__}")
    return text


def read_words(data: Any, name: str) -> list[Any]:
    """Read a list of words; a single word counts as one. UsageError for anything else."""
    if isinstance(data, str | os.PathLike | Resource):
        data = [data]
    # Both can be iterated: keys, and numbers of bytes, would pass for words.
    if not isinstance(data, Iterable) or isinstance(data, dict | bytes):
        raise UsageError(f"{name} must be a list of strings, not {name_of_type(data)}")
    words = [*data]
    if not 1 <= len(words) <= MOST_NAMES:
        raise UsageError(f"{name} must have 1 to {MOST_NAMES} entries, not {len(words)}")
    for word in words:
        if not isinstance(word, str | os.PathLike | Resource):
            raise UsageError(f"{name} must be a string, not {name_of_type(word)}")
    return words


def read_duration(_door: Any, data: Any, name: str) -> int:
    """Read seconds, or a duration as people write it. UsageError for anything else."""
    if isinstance(data, timedelta):
        # As a plain number: str() would give an exponent for a microsecond.
        return parse_duration(f"{data.total_seconds():f}", what=name)
    # To Python, true is an int as well.
    if isinstance(data, bool) or not isinstance(data, str | int):
        known = name_of_type(data)
        raise UsageError(f"{name} must be seconds, or a duration such as 15m, not {known}")
    return parse_duration(str(data), what=name)


def _since(door: Any, data: Any, name: str) -> int:
    if isinstance(data, str | date):
        with contextlib.suppress(ValueError):
            at = datetime.fromisoformat(str(data))
            # All answers give times in UTC, so a time without a zone is one, too.
            return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * MS)
    try:
        now: datetime = door.now()
        return round(now.timestamp() * MS) - read_duration(door, data, name) * MS
    except UsageError:
        expected = "a time (2026-01-31, 2026-01-31T10:00Z) or a duration (2d)"
        raise UsageError(f"invalid {name} {str(data)[:40]!r}: expected {expected}") from None


def number_up_to(most: int | None = None) -> Callable[[Any, Any, str], int]:
    """A reader of positive numbers."""
    expected = f"a number from 1 to {most}" if most else "a positive whole number"

    def read(_door: Any, data: Any, name: str) -> int:
        text = "" if isinstance(data, bool) else str(data)
        # Other scripts have digits too, and int() refuses numbers that are very long.
        number = int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else 0
        if not 1 <= number <= (most or number):
            raise UsageError(f"invalid {name} {str(data)[:40]!r}: expected {expected}")
        return number

    return read


def _switch(_door: Any, data: Any, name: str) -> bool:
    if not isinstance(data, bool):
        raise UsageError(f"{name} must be true or false, not {name_of_type(data)}")
    return data


def text_kind(what: str, limit: int = MAX_WORD, *, lines: bool = False) -> Kind:
    """The kind of a text of at most ``limit`` characters, in one line or several."""

    def read(door: Any, data: Any, name: str) -> str:
        return check_text(read_text(door, data, what), what=what, limit=limit, lines=lines)

    schema = {**_TEXT, "minLength": 1, "maxLength": limit}
    return Kind(read=read, schema=schema, tool_schema=_TEXT, python="str", metavar="TEXT")


def read_resource(door: Any, data: Any, name: str, *, claiming: bool = False) -> Resource:
    """Read one resource. UsageError for more, and for what is neither a name nor a path."""
    words = [data] if not isinstance(data, list) else data
    if len(words) != 1:
        raise UsageError("this takes one resource at a time")
    found: Resource = door.resources(words, claiming=claiming)[0]
    return found


def _resources(*, claiming: bool) -> Callable[[Any, Any, str], list[Resource]]:
    def read(door: Any, data: Any, name: str) -> list[Resource]:
        found: list[Resource] = door.resources(read_words(data, name), claiming=claiming)
        return found

    return read


def read_texts(door: Any, data: Any, name: str) -> list[str]:
    """Read a list of strings. UsageError for anything else in it."""
    return [read_text(door, one, name) for one in data]


def _paths(door: Any, data: Any, name: str) -> list[Resource]:
    found: list[Resource] = door.paths(read_words(data, name))
    return found


RESOURCE = Kind(
    read=read_resource,
    schema=_TEXT,
    python="ResourceLike",
    metavar="RESOURCE",
    at_door=True,
    complete="known_names",
)
RESOURCES = replace(
    RESOURCE,
    read=_resources(claiming=False),
    schema=_TEXTS,
    tool_schema=SHORT_TEXTS,
    python="Iterable[ResourceLike]",
    many=True,
)
WANTED = replace(RESOURCES, read=_resources(claiming=True))
PATHS = replace(RESOURCES, read=_paths, python="Iterable[StrPath]", metavar="P", complete="files")
DURATION = Kind(
    read=read_duration,
    schema=_TIME,
    tool_schema={"type": ["string", "integer"]},
    python="Duration",
    metavar="D",
)
SWITCH = Kind(
    read=_switch,
    schema={"type": "boolean", "default": False},
    tool_schema={"type": "boolean"},
    python="bool",
    switch=True,
)
SINCE = Kind(read=_since, schema=_TEXT, python="Duration | datetime", metavar="T")
NUMBER = Kind(
    read=number_up_to(),
    schema={"type": "integer", "minimum": 1},
    tool_schema={"type": "integer"},
    python="int",
    metavar="N",
)
SCOPE = Kind(
    read=lambda *given: parse_scope(read_text(*given)), schema=_TEXT, python="str", metavar="S"
)
TEXT = Kind(read=read_text, schema=_TEXT, python="str", metavar="TEXT")
HOLDER = Kind(
    read=lambda *given: check_text(read_text(*given), what="a holder"),
    schema=_TEXT,
    python="str",
    metavar="H",
)


class Whole(str):
    """A line of an answer that is meant to be copied: no door folds it."""

    __slots__ = ()


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of an answer under headings; ``styles`` has the style of each row on a terminal."""

    headings: Sequence[str]
    rows: Sequence[tuple[str, ...]]
    styles: Sequence[str] = ()
    otherwise: str = ""


@dataclass(frozen=True, kw_only=True)
class Details:
    """Names with their values; those without one are not shown."""

    rows: Sequence[tuple[str, str]]


@dataclass(frozen=True, kw_only=True)
class Result:
    """The answer of a verb: the contract's JSON, lines for people, and what to call next.

    ``value`` is what the library answers with if it is not the leases: in the kernel's form, if
    the library has one of its own. ``answer`` is the kernel's, for a door that keeps leases alive.
    ``refused`` has the refusals of a call for several leases. ``failure``: the answer amounts to
    one for a caller who asks for an exit status; it is ``summed_up`` if the lines say it already.
    ``then`` are calls that are safe to make, ``commands`` those of other programs. ``hints`` are
    for people only.
    """

    body: Mapping[str, Any]
    lines: Callable[[], Iterable[str | Table | Details]] = tuple
    leases: Sequence[LeaseView] = ()
    value: Any = None
    answer: Answer | None = None
    refused: Sequence[GitleaseError] = ()
    failure: GitleaseError | None = None
    summed_up: bool = False
    warnings: Sequence[str] = ()
    then: Sequence[Hint] = ()
    commands: Sequence[str] = ()
    hints: Sequence[str | Hint] = ()


def changed(
    answer: Answer, body: Mapping[str, Any], lines: Callable[[], Sequence[str]], **more: Any
) -> Result:
    """Return the result of a verb that changes leases."""
    return Result(
        body=body,
        lines=lines,
        leases=answer.leases,
        answer=answer,
        refused=answer.refused,
        **{"warnings": answer.warnings, **more},
    )


@dataclass(frozen=True)
class DeclaredVerb:
    """A verb: its function, its help, and its exit statuses besides 0.

    ``no`` are the error codes behind exit status 1, ``done`` the meaning of 0. ``tool`` is the help
    that models read, of a tool that is the verb as it is. ``reads``: it changes no lease, unless a
    parameter ``changes`` that. ``doors`` are those that offer it, ``session``:
    it depends on the caller's. ``refuses`` are options of all
    verbs that it has no use for. ``runs``: it runs the words of its parameter ``command``, and has
    ``own_exits`` with their meanings. ``shares`` are verbs whose parameters it takes besides its
    own, each but some, as ``**terms``.
    """

    function: Callable[..., Result]
    name: str
    help: str
    examples: Sequence[str]
    exits: Sequence[int]
    done: str
    no: Sequence[str] = ("held", "wait_timeout")
    advice: Sequence[str] = ()
    tool: str = ""
    session: bool = True
    refuses: Sequence[str] = ()
    reads: bool = False
    runs: bool = False
    own_exits: Sequence[tuple[int, str]] = ()
    shares: Mapping[str, Sequence[str]] = field(default_factory=dict)
    doors: frozenset[str] = ANY_DOOR

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """Its parameters by name, in the order of the signature, without the door."""
        found = {**_parameters_of(self.function)}
        for name, but in self.shares.items():
            shared = find_verb(name).parameters.items()
            found |= {x: one for x, one in shared if x not in but and x not in found}
        return found

    def at(self, door: str) -> dict[str, Parameter]:
        """The parameters that a door offers."""
        known = self.parameters if door in self.doors else {}
        return {name: one for name, one in known.items() if door in one.doors}

    def answer(self, door: Door, **values: Any) -> Result:
        """Carry out the verb; its result or refusal reports all messages that are left."""
        try:
            result = self.function(door, **values)
        except GitleaseError as refusal:
            left = door.take_messages()
            if not left:
                raise
            raise refusal.with_(warnings=(*refusal.warnings, *left)) from refusal.__cause__
        left = door.take_messages()
        return replace(result, warnings=(*result.warnings, *left)) if left else result

    def only_reads(self, given: Mapping[str, Any]) -> bool:
        """Return whether a call with these parameters changes no lease."""
        known = [self.parameters[x] for x in given if given[x]]
        return any(x.plans for x in known) or (self.reads and not any(x.changes for x in known))

    def is_for_anyone(self, given: Mapping[str, Any]) -> bool:
        """Return whether a call with these parameters needs no identity."""
        # A dry run changes nothing, but its answer depends on who would claim.
        own = any(y.own or y.plans for x, y in self.parameters.items() if given.get(x))
        return self.only_reads(given) and not own


@dataclass(frozen=True, kw_only=True)
class Called:
    """A call of a verb, with its values as hints have them.

    ``command`` is the name that was called, if that is not the verb's, and ``more`` what only this
    door takes.
    """

    verb: str = ""
    values: Mapping[str, object] = field(default_factory=dict)
    command: str = ""
    more: Mapping[str, object] = field(default_factory=dict)
    door: str = COMMAND


def verb(name: str, help: str, **traits: Any) -> Callable[[Callable[..., Result]], DeclaredVerb]:
    """Declare a function as the verb ``name``; it gets a ``Door`` and the given values."""
    return partial(DeclaredVerb, name=name, help=help, **traits)


def find_verb(name: str) -> DeclaredVerb:
    """Return a verb of the table; only its module is imported."""
    module = import_module(f"gitlease.{TABLE[name]}")
    found: DeclaredVerb = getattr(module, f"{name.replace(' ', '_')}_verb")
    return found


def read_values(
    known: Mapping[str, Parameter], door: Any, given: Mapping[str, Any], *, what: str
) -> dict[str, Any]:
    """Read the values of a call; what is at its default is not given.

    ``what`` names the call's arguments in messages. Raises UsageError for an unknown, a missing or
    an invalid one.
    """
    check_names(known, given, what=what)
    # By identity: 0 equals false, and is none.
    given = {x: y for x, y in given.items() if y is not None and y is not known[x].default}
    # What any door reads alike comes first: it costs no look at the repository.
    ordered = sorted(given, key=lambda name: known[name].kind.at_door)
    values = {name: known[name].kind.read(door, given[name], name) for name in ordered}
    refuse_durations(door, () if values.get("any") else values.get("resources", ()), known)
    return {name: values[name] for name in known if name in values}


def is_duration(word: object) -> bool:
    """Return whether a word reads as a duration, even one that is not valid (``1.5.1h``)."""
    return isinstance(word, str) and re.fullmatch(r"([0-9.]+[wdhms])+", word) is not None


def refuse_durations(door: Any, words: Sequence[Any], known: Mapping[str, Parameter]) -> None:
    """Raise UsageError for a further resource that is probably meant as a time, such as ``1h``."""
    why = ("for a time, write {} instead", "to wait that long, write {} instead")
    for word in words[1:]:
        if not is_duration(str(word)) or door.is_known(word):
            continue
        times = [x for x in known.values() if "Duration" in x.kind.python]
        times = [x for x in times if x.name == "ttl" or x.waits] or times
        ways = []
        for x in times:
            # No door suggests what it would refuse.
            with contextlib.suppress(UsageError):
                x.kind.read(door, str(word), x.name)
                ways.append(Hint("", {x.name: str(word)}, why[x.waits]))
        file = door.file_called(word)
        also = [f"for the {file.kind}, write {file.word}"] if file else []
        also += [USE_ANY] if "any" in known else []
        raise UsageError(f"{word} is a duration, not a task or a leased name", hints=(*ways, *also))


def check_names(known: Mapping[str, Parameter], given: Mapping[str, Any], *, what: str) -> None:
    """Raise UsageError for an argument that is unknown, or for a required one that lacks."""
    if (odd := next((name for name in given if name not in known), None)) is not None:
        raise UsageError(f"unknown field {odd[:60]!r} in {what}; known fields: {', '.join(known)}")
    missing = (x for x, one in known.items() if one.required and given.get(x) is None)
    if (name := next(missing, None)) is not None:
        raise UsageError(f"{what} lacks {name}")


@cache
def _parameters_of(function: Callable[..., Result]) -> dict[str, Parameter]:
    # Read by hand: every command would pay for loading `inspect`.
    code, plain = function.__code__, function.__defaults__ or ()
    names = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
    first = code.co_argcount - 1 - len(plain)  # of the positional ones that have a default
    defaults = dict(zip(names[first:], plain, strict=False)) | (function.__kwdefaults__ or {})
    found = {}
    for at, name in enumerate(names):
        # Annotations are text here (PEP 563), such as `takes.Named | None`: the first word is ours.
        annotation, _, _ = function.__annotations__[name].partition(" ")
        module, _, alias = annotation.rpartition(".")
        known = vars(function.__globals__[module]) if module else function.__globals__
        declared: Parameter = known[alias].__metadata__[0]
        found[name] = replace(
            declared,
            name=name,
            positional=at < code.co_argcount - 1,
            required=name not in defaults,
            default=defaults.get(name),
        )
    return found


# --- refusals -------------------------------------------------------------------------------------

INTERNAL = "internal"  # exits with EX_SOFTWARE of sysexits.h
# A command that was interrupted, or whose reader left, exits with 128 + the signal, as in a shell.
INTERRUPTED = 130
BROKEN_PIPE = 141


class Violations(GitleaseError):
    """A check found something."""

    code: ClassVar[str] = "violations"


class Fault(GitleaseError):
    """An internal error of gitlease."""

    code: ClassVar[str] = INTERNAL


@dataclass(frozen=True)
class Code:
    """Exit status, HTTP status, and the meaning, which is its line in the help of verbs."""

    exit: int
    http: int
    meaning: str


CODES: Mapping[str, Code] = {
    "held": Code(1, 409, "someone else holds it"),
    "wait_timeout": Code(1, 409, "someone else still held it when the wait ran out"),
    "violations": Code(1, 409, "the check found something"),
    "nothing_left": Code(1, 404, "no task is left to claim"),
    "usage": Code(2, 400, "bad arguments; the remote was not asked"),
    "lost": Code(3, 412, "you no longer hold it: stop the work under it"),
    "not_holder": Code(3, 412, "you do not hold it"),
    "denied": Code(4, 403, "the remote refused: authentication, permission or its policy"),
    "unavailable": Code(5, 503, "the remote cannot be reached, or the outcome is unknown"),
    "unknown_outcome": Code(5, 504, "it is unknown whether the change landed: do not rely on it"),
    "policy": Code(6, 422, "refused by policy: the ledger's limits, or finished work"),
    "invalid": Code(7, 500, "a damaged record, setting or task file, no user.email, no such task"),
    "not_found": Code(7, 404, "no such task, resource or record"),
    "rollback": Code(7, 409, "the ledger was rolled back or replaced"),
    "not_a_repository": Code(128, 404, "not in a git repository"),
    INTERNAL: Code(70, 500, "an internal error of gitlease"),
}


def http_of(code: str) -> int:
    """Return the HTTP status of an error code."""
    # A code that the table lacks is a fault of ours.
    return CODES[code].http if code in CODES else CODES[INTERNAL].http


def exit_of(code: str) -> int:
    """Return the exit status of an error code; an unknown code counts as ``internal``."""
    return CODES[code].exit if code in CODES else CODES[INTERNAL].exit
