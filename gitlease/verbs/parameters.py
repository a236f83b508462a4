"""The parameters of all verbs, each declared once: what it is, and its help.

A verb's signature names them: ``def renew(door: Door, resources: Resources = (), *, ttl: Ttl)``.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from gitlease.kernel.rules.errors import UsageError
from gitlease.kernel.rules.frozen import replace
from gitlease.kernel.rules.lease import MAX_NOTE, MAX_REASON
from gitlease.kernel.rules.resources import Resource
from gitlease.verbs.table import (
    AT_A_CLONE,
    COMMAND,
    DURATION,
    HOLDER,
    HTTP,
    LIBRARY,
    NUMBER,
    PATHS,
    RESOURCE,
    RESOURCES,
    SCOPE,
    SHORT_TEXTS,
    SINCE,
    SWITCH,
    TEXT,
    TOOL,
    WANTED,
    Annotated,
    Kind,
    Parameter,
    read_resource,
    read_text,
    read_texts,
    read_words,
    text_kind,
)

_WORD, _SWITCH = Parameter(kind=TEXT), Parameter(kind=SWITCH)

# --- resources ------------------------------------------------------------------------------------


def _task(door: Any, data: Any, name: str) -> Resource:
    # As a claim has it, without a warning that the name is a file's: a path is no task.
    try:
        return read_resource(door, data, name, claiming=True)
    except UsageError as error:
        others = (x for x in error.hints if not str(x).startswith(("for a file", "for the folder")))
        raise error.with_(hints=tuple(others)) from None


_TASK = replace(RESOURCE, read=_task)
Named = Annotated[Resource, Parameter(kind=RESOURCE)]
OfTask = Annotated[Resource, Parameter(kind=_TASK)]
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
        # Hosts end a tool's call after a minute: models have the tool `wait`.
        doors=frozenset({COMMAND, LIBRARY, HTTP}),
    ),
]
Lasting = Annotated[int, Parameter(kind=DURATION, metavar="DURATION")]

_TIMEOUT = Parameter(kind=DURATION)
WaitAtMost = Annotated[
    int | None, _TIMEOUT.but("Wait at most this long (default: forever).", waits=True)
]
StopAfter = Annotated[int | None, _TIMEOUT.but("Stop after this long (default: never).")]

# --- texts ----------------------------------------------------------------------------------------

Reason = Annotated[
    str | None,
    Parameter(
        kind=text_kind("reason", MAX_REASON),
        about="Why; shown to anyone who is refused.",
        tool="Shown to others.",
    ),
]
RevokeReason = Annotated[
    str,
    Parameter(
        kind=text_kind("reason", MAX_REASON), about="Why; shown to the holder.", option="--reason"
    ),
]
NOTE = text_kind("note", MAX_NOTE, lines=True)
_NOTE = Parameter(kind=NOTE, tool="How far you got, for the next holder.")
NextNote = Annotated[str | None, _NOTE.but("Leave a note for the next holder.")]
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
        # A model runs what it reads: replacing somebody's assignment is not its to decide.
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
One = Annotated[
    bool,
    _SWITCH.but(
        "Take the first RESOURCE that is free instead of all of them.",
        tool="Take the first that is free, not all.",
    ),
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
    # Only people mistype, so only the command line checks names.
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
Keep = Annotated[
    bool,
    _SWITCH.but(
        "End the lease, and keep the task yours until you claim it by name.",
        tool="Keep the task for its person.",
    ),
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
    read=read_text, schema=TEXT.schema, python="str", metavar="STATUS", complete="known_statuses"
)
Title = Annotated[str, Parameter(kind=text_kind("the title", MAX_REASON), metavar="TITLE")]
NewId = Annotated[
    Resource | None,
    Parameter(kind=_TASK, about="The task's id (default: the next one).", option="--id"),
]
DependsOn = Annotated[
    Sequence[Resource],
    Parameter(
        kind=replace(RESOURCES, tool_schema=SHORT_TEXTS),
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
        kind=text_kind("the priority"),
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
COMMAND_WORDS = Kind(read=_command, schema=SHORT_TEXTS, python="str | Sequence[str]", metavar="CMD")
Base = Annotated[
    str | None, _WORD.but("Land on this branch (default: the remote's main branch).", metavar="B")
]
By = Annotated[
    str | None, Parameter(kind=_WAY, about="How to bring it onto a base that has moved on.")
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


SessionId = Annotated[str | None, Parameter(kind=replace(text_kind("the session"), metavar="ID"))]
EndAll = Annotated[bool, _ALL.but("End all your sessions.")]
ReleaseToo = Annotated[bool, _SWITCH.but("Also unassign yourself from the tasks.")]
EachNote = Annotated[str | None, _NOTE.but("Leave a note on each resource.")]

# --- what is read ---------------------------------------------------------------------------------

Of = Annotated[Resource | None, Parameter(kind=RESOURCE)]
Mine = Annotated[bool, _SWITCH.but("Only leases of this session.", own=True)]
EndedToo = Annotated[bool, _SWITCH.but("Include lapsed, completed, released and revoked leases.")]
Limit = Annotated[
    int, Parameter(kind=NUMBER, about="Show at most N events (default: 50).", option="-n --limit")
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
        kind=SINCE, about="Only events since a UTC time (2026-01-31T10:00Z) or for a duration (2d)."
    ),
]
Pushes = Annotated[
    bool,
    _SWITCH.but("Show the last pushes of this clone instead.", doors=frozenset({COMMAND})),
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
        kind=replace(TEXT, read=read_texts, python="Iterable[str]", many=True),
        about="A commit seen at the ledger's ref.",
        option="--tip",
        metavar="COMMIT",
    ),
]
SettingKey = Annotated[
    str | None, Parameter(kind=replace(TEXT, complete="known_keys"), metavar="KEY")
]
SettingValue = Annotated[
    str | None, _WORD.but("Set it to this value.", metavar="VALUE", changes=True)
]
UndoRollback = Annotated[bool, _SWITCH.but("Restore the ledger that this clone has seen.")]
MoveLedger = Annotated[bool, _SWITCH.but("Move the ledger to where the default branch says.")]
AcceptRollback = Annotated[bool, _SWITCH.but("Accept a rolled-back ledger as it is now.")]
RestoreLedger = Annotated[
    bool, _SWITCH.but("Bring a deleted ledger back, as this clone has seen it last.")
]
Now = Annotated[
    bool, _SWITCH.but("End the wait of a restored ledger: only once everybody has been asked.")
]
NewLedger = Annotated[
    bool, _SWITCH.but("Use a ledger of this remote's own in place of the recorded one.")
]
OfLedger = Annotated[bool, _SWITCH.but("The ledger's policy instead of this clone's settings.")]
