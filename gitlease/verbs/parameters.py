"""The parameters of all verbs, each declared once: what it is, how it is read, and its help.

A verb's signature names them: ``def renew(door: Door, resources: Resources = (), *, ttl: Ttl)``.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from gitlease.core.errors import MAX_WORD, UsageError, check_text
from gitlease.core.frozen import replace
from gitlease.core.instant import MS, parse_duration
from gitlease.core.lease import MAX_NOTE, MAX_REASON
from gitlease.core.resources import Resource, parse_scope
from gitlease.verbs.table import AT_A_CLONE, COMMAND, HTTP, LIBRARY, TOOL, Kind, Parameter

if TYPE_CHECKING:
    from typing import Annotated
else:

    class Annotated:
        """Stands in for that of ``typing``, which takes a hundredth of a command's time here."""

        def __class_getitem__(cls, words):
            return _Annotation(words[1:])

    class _Annotation:
        def __init__(self, metadata):
            self.__metadata__ = metadata


MOST_NAMES = 64  # resources of a request, which is one step
_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT, "minItems": 1, "maxItems": MOST_NAMES}
_SHORT_TEXTS = {"type": ["array", "string"], "items": _TEXT}
_TIME = {"oneOf": [{"type": "integer", "minimum": 1}, {"type": "string", "examples": ["15m"]}]}


def name_of_type(data: Any) -> str:
    """The type of a value in words of JSON, else its name in Python."""
    kinds = {dict: "an object", list: "a list", str: "a string", bool: "true or false"}
    kinds |= {int: "a number", float: "a number", type(None): "null"}
    return kinds.get(type(data), type(data).__name__)


def read_text(_door: Any, data: Any, name: str) -> str:
    """Read a string. UsageError for anything else."""
    if not isinstance(data, str):
        raise UsageError(f"{name} must be a string, not {name_of_type(data)}")
    return data


def read_words(data: Any, name: str) -> list[Any]:
    """Read a list of words; a single word counts as one. UsageError for anything else."""
    if isinstance(data, str | os.PathLike | Resource):
        data = [data]
    if not isinstance(data, Iterable) or isinstance(data, dict | bytes):
        raise UsageError(f"{name} must be a list of strings, not {name_of_type(data)}")
    words = [*data]
    if not 1 <= len(words) <= MOST_NAMES:
        raise UsageError(f"{name} must have 1 to {MOST_NAMES} entries, not {len(words)}")
    for word in words:
        if not isinstance(word, str | os.PathLike | Resource):
            raise UsageError(f"{name} must be a string, not {name_of_type(word)}")
    return words


def _duration(_door: Any, data: Any, name: str) -> int:
    if isinstance(data, timedelta):
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
            return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * MS)
    try:
        now: datetime = door.now()
        return round(now.timestamp() * MS) - _duration(door, data, name) * MS
    except UsageError:
        expected = "a time (2026-01-31, 2026-01-31T10:00Z) or a duration (2d)"
        raise UsageError(f"invalid {name} {str(data)[:40]!r}: expected {expected}") from None


def number_up_to(most: int | None = None) -> Callable[[Any, Any, str], int]:
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


def _text(what: str, limit: int, *, lines: bool = False) -> Kind:
    def read(door: Any, data: Any, name: str) -> str:
        return check_text(read_text(door, data, what), what=what, limit=limit, lines=lines)

    schema = {**_TEXT, "minLength": 1, "maxLength": limit}
    return Kind(read=read, schema=schema, tool_schema=_TEXT, python="str", metavar="TEXT")


def _resource(door: Any, data: Any, name: str) -> Resource:
    words = [data] if not isinstance(data, list) else data
    if len(words) != 1:
        raise UsageError("this takes one resource at a time")
    found: Resource = door.resources(words)[0]
    return found


def _resources(*, claiming: bool) -> Callable[[Any, Any, str], list[Resource]]:
    def read(door: Any, data: Any, name: str) -> list[Resource]:
        found: list[Resource] = door.resources(read_words(data, name), claiming=claiming)
        return found

    return read


def _texts(door: Any, data: Any, name: str) -> list[str]:
    return [read_text(door, one, name) for one in data]


def _paths(door: Any, data: Any, name: str) -> list[Resource]:
    found: list[Resource] = door.paths(read_words(data, name))
    return found


RESOURCE = Kind(
    read=_resource,
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
    tool_schema=_SHORT_TEXTS,
    python="Iterable[ResourceLike]",
    many=True,
)
WANTED = replace(RESOURCES, read=_resources(claiming=True))
PATHS = replace(RESOURCES, read=_paths, python="Iterable[StrPath]", metavar="P", complete="files")
DURATION = Kind(
    read=_duration,
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
SINCE = Kind(
    read=_since,
    schema=_TEXT,
    python="Duration | datetime",
    metavar="T",
)
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
_WORD, _SWITCH = Parameter(kind=TEXT), Parameter(kind=SWITCH)

# --- resources ------------------------------------------------------------------------------------

Named = Annotated[Resource, Parameter(kind=RESOURCE)]
Resources = Annotated[Sequence[Resource], Parameter(kind=RESOURCES)]
Wanted = Annotated[Sequence[Resource], Parameter(kind=WANTED)]
_SCOPE = Parameter(kind=SCOPE, tool="A part of the work.")
ClaimScope = Annotated[
    str | None, _SCOPE.but("Claim only this part of the work (default: all of it).")
]
OwnScope = Annotated[str | None, _SCOPE.but("Only this scope (default: all scopes you hold).")]
AnyScope = Annotated[str | None, _SCOPE.but("Only this scope (default: all).")]
_PATHS = Parameter(
    kind=PATHS, about="Cover this path, too.", tool="Paths to cover besides.", option="--path"
)
Paths = Annotated[Sequence[Resource], _PATHS]
PathsOfProgram = Annotated[
    Sequence[Resource], _PATHS.but("Cover these paths, too.", doors=frozenset({LIBRARY}))
]

# --- times ----------------------------------------------------------------------------------------

_TTL = Parameter(kind=DURATION, tool="15m, 2h or seconds.")
Ttl = Annotated[int | None, _TTL.but("How long the lease lasts unless renewed (15m, 1h).")]
NewTtl = Annotated[int | None, _TTL.but("The TTL from now on (default: as before).")]
Wait = Annotated[
    int | None,
    Parameter(
        kind=DURATION,
        about="Wait at most this long until it is free.",
        waits=True,
        doors=frozenset({COMMAND, LIBRARY, HTTP}),
    ),
]
Lasting = Annotated[int, Parameter(kind=DURATION, metavar="DURATION")]
ParkFor = Annotated[
    int | None,
    Parameter(kind=DURATION, about="How long to keep others out (3h, 1d).", option="--for"),
]

_TIMEOUT = Parameter(kind=DURATION)
WaitAtMost = Annotated[
    int | None, _TIMEOUT.but("Wait at most this long (default: forever).", waits=True)
]
StopAfter = Annotated[int | None, _TIMEOUT.but("Stop after this long (default: never).")]

# --- texts ----------------------------------------------------------------------------------------

Reason = Annotated[
    str | None,
    Parameter(
        kind=_text("reason", MAX_REASON),
        about="Why; shown to anyone who is refused.",
        tool="Shown to others.",
    ),
]
RevokeReason = Annotated[
    str,
    Parameter(
        kind=_text("reason", MAX_REASON), about="Why; shown to the holder.", option="--reason"
    ),
]
NOTE = _text("note", MAX_NOTE, lines=True)
_NOTE = Parameter(kind=NOTE, tool="How far you got, for the next holder.")
NextNote = Annotated[str | None, _NOTE.but("Leave a note for the next holder.")]
ParkNote = Annotated[str | None, _NOTE.but("Leave a note for the next session.")]
NoteText = Annotated[str, _NOTE.but("", tool="")]
ToHolder = Annotated[
    bool,
    _SWITCH.but(
        "Show it to whoever holds it now, too, once and soon.", tool="Tell who holds it now."
    ),
]

# --- how a claim is made --------------------------------------------------------------------------

Takeover = Annotated[
    bool,
    _SWITCH.but(
        "Replace someone else's assignment; needs a reason.",
        tool="If the user says so: replace an assignment; needs reason.",
        again=False,
    ),
]
ExpectHolder = Annotated[
    str | None,
    Parameter(
        kind=HOLDER,
        about="With a takeover: only if it is assigned to H.",
        tool="Take over only from this holder.",
        again=False,
    ),
]
ExpectedHolder = Annotated[str | None, Parameter(kind=HOLDER, about="Only if H holds it.")]
Reopen = Annotated[
    bool, _SWITCH.but("Claim completed work again.", tool="Claim completed work.", again=False)
]
New = Annotated[
    bool,
    _SWITCH.but(
        "Refuse a lease you already hold instead of renewing it.",
        tool="Refuse if you hold it already.",
    ),
]
AnyName = Annotated[
    bool, _SWITCH.but("Accept names that are not tasks.", tool="Allow names that are not tasks.")
]
KnownName = Annotated[
    bool, _SWITCH.but("Accept names that are not tasks.", doors=frozenset({COMMAND}))
]
DryRun = Annotated[
    bool,
    _SWITCH.but(
        "Say what the claim would do, and write nothing.",
        tool="Only say what it would do.",
        again=False,
        plans=True,
    ),
]
Commit = Annotated[
    bool | None,
    _SWITCH.but(
        "Commit the edit of the task file by itself, or leave it in the work tree "
        "(default: edges.commit).",
        option="--commit/--no-commit",
        doors=AT_A_CLONE,
    ),
]
KeepStatus = Annotated[
    bool, _SWITCH.but("Leave the status in the task file as it is.", doors=AT_A_CLONE)
]
Verbose = Annotated[
    bool, _SWITCH.but("Also print the id of each lease.", option="-v", doors=frozenset({COMMAND}))
]
_ALL = Parameter(kind=SWITCH, doors=frozenset({COMMAND, LIBRARY, TOOL}))
RenewAll = Annotated[bool, _ALL.but("Renew everything this session holds.")]
ReleaseAll = Annotated[bool, _ALL.but("Release everything this session holds.")]
Record = Annotated[
    str | None, _WORD.but("Remove this damaged record instead.", metavar="FILE", doors=AT_A_CLONE)
]

# --- tasks ----------------------------------------------------------------------------------------

STATUS = Kind(
    read=read_text,
    schema=_TEXT,
    python="str",
    metavar="STATUS",
    complete="known_statuses",
)
Title = Annotated[str, Parameter(kind=_text("the title", MAX_REASON), metavar="TITLE")]
NewId = Annotated[
    Resource | None,
    Parameter(kind=RESOURCE, about="The task's id (default: the next one).", option="--id"),
]
DependsOn = Annotated[
    Sequence[Resource],
    Parameter(
        kind=replace(RESOURCES, tool_schema=_SHORT_TEXTS),
        about="A task that has to be done before.",
        tool="Tasks to be done before.",
        option="--depends-on",
    ),
]
TaskPaths = Annotated[
    Sequence[Resource],
    _PATHS.but("A path that its work is about.", tool="Paths of its work.", option="--paths"),
]
Priority = Annotated[
    str | None,
    Parameter(
        kind=_text("the priority", MAX_WORD),
        about="Its priority, as other tasks have them.",
        metavar="P",
    ),
]


def _command(door: Any, data: Any, name: str) -> tuple[str, ...]:
    """Read the words of a command. UsageError for none, or for quotes that do not end."""
    try:
        words = shlex.split(data) if isinstance(data, str) else read_words(data, name)
    except ValueError as error:
        raise UsageError(f"invalid {name}: {str(error).lower()}") from None
    if not words or not all(isinstance(x, str) and x and "\0" not in x for x in words):
        raise UsageError(f"{name} must be a command, such as 'make test'")
    return tuple(words)


def _way(door: Any, data: Any, name: str) -> str:
    if data not in WAYS:
        raise UsageError(f"invalid {name}: expected {' or '.join(WAYS)}")
    return str(data)


WAYS = ("rebase", "merge")
_BY = 'Literal["rebase", "merge"]'
_WAY = Kind(read=_way, schema={"enum": [*WAYS]}, python=_BY, metavar="rebase|merge")
COMMAND_WORDS = Kind(
    read=_command, schema=_SHORT_TEXTS, python="str | Sequence[str]", metavar="CMD"
)
Base = Annotated[
    str | None, _WORD.but("Land on this branch (default: the remote's main branch).", metavar="B")
]
By = Annotated[
    str | None,
    Parameter(kind=_WAY, about="How to bring it onto a base that has moved on."),
]
Check = Annotated[
    tuple[str, ...] | None,
    Parameter(kind=COMMAND_WORDS, about="Run CMD on the result first; no shell reads it."),
]
Unfenced = Annotated[
    bool, _SWITCH.but("Land where the host has no atomic pushes, without a fence.", again=False)
]
NoVerify = Annotated[bool, _SWITCH.but("Without your pre-push hooks; the fence stays.")]
NewStatus = Annotated[str, Parameter(kind=STATUS, doors=AT_A_CLONE)]
PartScope = Annotated[str | None, _SCOPE.but("Claim or finish only this part of the work.")]
Claiming = Annotated[bool, _SWITCH.but("Claim the task.", changes=True)]
Ref = Annotated[
    str | None,
    _WORD.but(
        "Read the task files of this branch, tag or commit (default: the work tree).",
        metavar="REF",
        doors=AT_A_CLONE,
    ),
]
Cached = Annotated[
    bool,
    _SWITCH.but("Answer from what this clone knows, without asking the remote.", doors=AT_A_CLONE),
]

# --- sessions -------------------------------------------------------------------------------------


def _park(door: Any, data: Any, name: str) -> int | bool:
    if data is True or data == "":
        return True
    try:
        return _duration(door, data, name)
    except UsageError as error:
        raise error.with_(hints=(f"name the session before {door.option(name)}",)) from None


SessionId = Annotated[
    str | None, Parameter(kind=replace(_text("the session", MAX_WORD), metavar="ID"))
]
EndAll = Annotated[bool, _ALL.but("End all your sessions.")]
ReleaseToo = Annotated[bool, _SWITCH.but("Also unassign yourself from the tasks.")]
ParkInstead = Annotated[
    int | bool,
    Parameter(
        kind=replace(DURATION, read=_park, python="bool | Duration", metavar="[D]", bare=""),
        about="Park the leases for D, or as long as the ledger allows, instead of ending them.",
    ),
]
EachNote = Annotated[str | None, _NOTE.but("Leave a note on each resource.")]

# --- what is read ---------------------------------------------------------------------------------

Of = Annotated[Resource | None, Parameter(kind=RESOURCE)]
Mine = Annotated[bool, _SWITCH.but("Only leases of this session.", own=True)]
EndedToo = Annotated[bool, _SWITCH.but("Include lapsed, completed, released and revoked leases.")]
Limit = Annotated[
    int,
    Parameter(kind=NUMBER, about="Show at most N events (default: 50).", option="-n --limit"),
]
Token = Annotated[int, Parameter(kind=NUMBER, metavar="TOKEN")]
Exec = Annotated[
    str | None,
    _WORD.but(
        "Run CMD for each event, with its JSON on stdin.",
        option="--exec",
        metavar="CMD",
        doors=frozenset({COMMAND}),
    ),
]
Since = Annotated[
    int | None,
    Parameter(
        kind=SINCE,
        about="Only events since a UTC time (2026-01-31T10:00Z) or for a duration (2d).",
    ),
]
WholeScope = Annotated[str | None, _SCOPE.but("Only this part of the work (default: all of it).")]
TokenScope = Annotated[str | None, _SCOPE.but("Only this scope (default: the one with the token).")]
OverlapScope = Annotated[str | None, _SCOPE.but("Only leases that overlap this scope.")]
MyTasks = Annotated[
    bool, _SWITCH.but("List your tasks and leases.", doors=frozenset({COMMAND, HTTP}), own=True)
]
AllTasks = Annotated[
    bool,
    _SWITCH.but(
        "Include tasks that you may not claim, with the reason.", doors=frozenset({COMMAND})
    ),
]

# --- what is checked and set ----------------------------------------------------------------------

CommitRange = Annotated[str | None, _WORD.but("Like main..HEAD.", metavar="RANGE")]
StaleToo = Annotated[bool, _SWITCH.but("Find stale claims.")]
FixStale = Annotated[
    bool,
    _SWITCH.but(
        "With --stale: release claims as the project's policy allows, each after a question.",
        changes=True,
    ),
]
LedgerCommit = Annotated[
    str | None, _WORD.but("A branch, ref or commit that holds a ledger.", metavar="REF")
]
SeenTips = Annotated[
    Sequence[str],
    Parameter(
        kind=replace(TEXT, read=_texts, python="Iterable[str]", many=True),
        about="A commit seen at the ledger's ref.",
        option="--tip",
        metavar="COMMIT",
    ),
]
SettingKey = Annotated[
    str | None,
    Parameter(kind=replace(TEXT, complete="known_keys"), metavar="KEY"),
]
SettingValue = Annotated[
    str | None, _WORD.but("Set it to this value.", metavar="VALUE", changes=True)
]
UndoRollback = Annotated[bool, _SWITCH.but("Restore the ledger that this clone has seen.")]
AcceptRollback = Annotated[bool, _SWITCH.but("Accept a rolled-back ledger as it is now.")]
NewLedger = Annotated[
    bool, _SWITCH.but("Use a ledger of this remote's own in place of the recorded one.")
]
OfLedger = Annotated[bool, _SWITCH.but("The ledger's policy instead of this clone's settings.")]
