"""Refusals, each with its subject, and hints.

A code is what programs read (``error.code``); its exit status belongs to the doors. ``hints`` are
sentences for a person, or calls, which each face prints in its own words.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Self

if TYPE_CHECKING:
    from gitlease.kernel.rules.lease import Lease
    from gitlease.kernel.rules.lease_view import LeaseView


MAX_WORD = 254
# Parameters that a command takes without their names.
POSITIONAL = "resource resources duration text token status key value range id"


class Hint(str):
    """A call that helps, as a value: each door has its own words for it, else it is a command.

    ``arguments`` have the names of the verb's parameters: True is a switch; None and False are left
    out. Without a ``verb`` they are to be added to the call that was refused. ``why`` is the
    purpose, or a sentence with ``{}`` in place of the call.
    """

    verb: str
    arguments: Mapping[str, object]
    why: str

    def __new__(cls, verb: str, arguments: Mapping[str, object], why: str = "") -> Self:
        words = command_words(f"gitlease {verb}" if verb else "", arguments)
        made = super().__new__(cls, around(why, shlex.join(words)))
        made.verb, made.arguments, made.why = verb, arguments, why
        return made


def around(why: str, call: str) -> str:
    """Return a hint with this call: the sentence around it, or the call with its purpose."""
    return why.replace("{}", call, 1) if "{}" in why else f"{call}  # {why}" if why else call


def command_words(verb: str, arguments: Mapping[str, object]) -> list[str]:
    """Return the words of a command: the verb, what it takes without a name, and the options."""
    names, options = list[str](), list[str]()
    for name, value in arguments.items():
        for item in value if isinstance(value, list | tuple) else (value,):
            if item is None or item is False:
                continue
            flag = f"--{name.replace('_', '-')}" if len(name) > 1 else f"-{name}"
            words = names if name in POSITIONAL.split() else options
            words += [flag] * (words is options) + ([] if item is True else [str(item)])
    # A resource that begins with a dash would be read as an option.
    dashed = any(name.startswith("-") for name in names)
    return [*verb.split(), *([*options, "--", *names] if dashed else [*names, *options])]


def hint(why: str, verb: str = "", **arguments: object) -> Hint:
    """Return a hint, with its arguments as keywords."""
    return Hint(verb, arguments, why)


ADMINS = {"ledger": True, "key": "admins", "value": "EMAIL"}
CLAIM_ANY = hint("to claim a name that is not a task, add {}", any=True)
USE_ANY = hint("to use a name that is not a task, add {}", any=True)


class GitleaseError(Exception):
    """Base of all refusals: one line of fact in lower case, and the subject it is about."""

    code: ClassVar[str] = "invalid"
    assignees: tuple[str, ...] = ()
    """Everybody to whom a task is assigned, if no lease names a holder."""
    layer: str | None = None
    """The layer it is about, if a command used several."""
    by_edge = False
    """Whether an assignment without a live lease blocks."""
    views: tuple[LeaseView, ...] = ()
    """``conflicts`` as the caller sees them, where the ledger was read."""
    warnings: tuple[str, ...] = ()
    """Further warnings for a person."""
    then = ()  # calls (hints) that are safe to make next, where the verb knows them
    loss: Loss | None = None  # why the caller no longer has it, where that is known

    def __init__(
        self,
        message: str,
        *,
        resource: str | None = None,
        scope: str | None = None,
        conflicts: tuple[Lease, ...] = (),
        free_at: int | None = None,
        hints: tuple[str, ...] = (),
        holder: str | None = None,
        **further: Any,
    ) -> None:
        """``further`` are other attributes of the class."""
        super().__init__(message)
        self.message = message
        self.resource = resource
        self.scope = scope
        self.conflicts = conflicts
        self.free_at_ms = free_at
        self.hints = hints
        self.whose = holder
        """The assignee of a task, if no lease names a holder."""
        self.__dict__.update(further)

    def with_(self, *, text: str = "", **changes: Any) -> Self:
        """Return a copy with other attributes; ``str()`` of it is ``text``, or its message."""
        copy = type(self).__new__(type(self))
        copy.__dict__.update(self.__dict__, **changes)
        copy.__dict__.pop("__notes__", None)
        copy.args = (text or copy.message,)
        return copy

    @property
    def lease(self) -> LeaseView | None:
        """The lease that it is about, as the caller sees it, where there is one and it was read."""
        return self.views[0] if self.views else None

    @property
    def holder(self) -> str | None:
        """The lease's holder, else the assignee of the task."""
        return self.lease.holder if self.lease is not None else self.whose

    @property
    def to_ask(self) -> str | None:
        """Those who may give it up, for a hint: the holder, or all assignees of the task."""
        return self.holder if self.lease is not None else " and ".join(self.assignees) or self.whose

    @property
    def expires_at(self) -> datetime | None:
        """When that lease runs out unless it is renewed."""
        return self.lease.expires_at if self.lease is not None else None

    @property
    def free_at(self) -> datetime | None:
        """When others may take it; None where nobody can tell, or an edge keeps them out."""
        from gitlease.kernel.rules.instant import moment_of

        return None if self.free_at_ms is None else moment_of(self.free_at_ms)


class LeaseHeld(GitleaseError):
    """Another holder, or another session, has the resource: see ``lease`` and ``free_at``.

    ``waiting`` are the tickets of those for whom what is free is left. ``each``: of several
    resources any would have done, and these are the refusals of all; the error itself is about the
    one that becomes free first.
    """

    code = "held"
    waiting: tuple[str, ...] = ()
    each: tuple[GitleaseError, ...] = ()


ConflictError = LeaseHeld  # the name that users of the library know it by, too


class WaitTimeout(GitleaseError):
    """The resource was still held when the wait ran out."""

    code = "wait_timeout"


class NothingLeft(GitleaseError):
    """No claimable task is left in the queue. ``away`` names those that this checkout lacks."""

    code = "nothing_left"
    away: tuple[str, ...] = ()


class UsageError(GitleaseError):
    """Bad arguments; nothing was asked of the remote."""

    code = "usage"


class NotHolder(GitleaseError):
    """The caller does not hold the lease; someone else does, see ``lease``."""

    code = "not_holder"


class Loss(StrEnum):
    """Why a lease is lost."""

    TAKEN_OVER = "taken_over"
    REVOKED = "revoked"
    EXPIRED = "expired"
    RELEASED_ELSEWHERE = "released_elsewhere"
    UNREACHABLE = "unreachable_past_deadline"


class LeaseLost(GitleaseError):
    """The caller no longer holds the lease, and must stop what it did under it.

    ``loss`` is the reason, and ``lease_id`` the grant, if one was named. ``guessed``: the reason
    was inferred from the remaining records. ``never``: nobody ever held it as was asked, so there
    is no reason.
    """

    code = "lost"

    def __init__(
        self,
        message: str,
        *,
        loss: Loss | None = None,
        lease_id: str | None = None,
        never: bool = False,
        **subject: Any,
    ) -> None:
        super().__init__(message, **subject)
        self.guessed, self.lease_id = loss is None and not never, lease_id
        if loss is None and not never:
            # What is still recorded as live has run out; what is gone was ended by somebody.
            over = any(x.state.value == "active" and not x.parked for x in self.conflicts)
            loss = Loss.EXPIRED if over else Loss.RELEASED_ELSEWHERE
        self.loss = loss


class Denied(GitleaseError):
    """The remote refused: authentication, permission or a policy of the server."""

    code = "denied"


class Unavailable(GitleaseError):
    """The remote cannot be reached; nothing is held that was not held before."""

    code = "unavailable"


class UnknownOutcome(Unavailable):
    """It cannot be known now whether the change landed; the caller must not act as holder."""

    code = "unknown_outcome"


class HeadGone(Unavailable):
    """The state that was read is gone from this clone, and the remote has a newer one."""


class PolicyRefused(GitleaseError):
    """The ledger's policy says no: TTL limits, completed work, or a right only admins have.

    ``by_setting``: what it refuses is a TTL that was not asked for, but set.
    """

    code = "policy"
    by_setting = False


class Invalid(GitleaseError):
    """A damaged or foreign record, a bad setting, or a repository that cannot be used."""

    code = "invalid"


class PlaceLearnt(Invalid):
    """The remote told only now which layer is used here: nothing was done, so begin again."""


class Rollback(Invalid):
    """The ledger on the remote is older than this clone has seen, or is another ledger."""

    code = "rollback"
    version = ""
    """The version on the remote of the known ledger; ``""`` if it is another ledger."""
    token = 0
    """The last fencing token given there."""
    elsewhere = False
    """Whether this clone has seen more of it at another URL only, not at this one."""


class AnotherLedger(Rollback):
    """The remote has another ledger than the known one, or none: a person may confirm that."""

    gone = False  # whether there is none
    recorded = False  # whether the repository's settings record another than the remote has
    refused = False  # whether init refuses it, too


class NotFound(GitleaseError):
    """No such thing."""

    code = "not_found"

    @classmethod
    def of_copy(cls, layer: str) -> NotFound:
        """Return the refusal to answer from this clone's copy of a ledger, where there is none."""
        leave_out = hint("to read the ledger itself, leave out {}", cached=True)
        return cls(f"this clone has no copy of the ledger {layer}", hints=(leave_out,))


class NotARepository(GitleaseError):
    """There is no git repository here."""

    code = "not_a_repository"


def clean(text: str) -> str:
    """Text safe for a terminal: what does not print is spelt out, but for line ends and tabs."""
    if text.isprintable():
        return text
    # Records and remotes are not trusted: an escape sequence could hide or forge what is shown.
    return "".join(
        c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text
    )


def shown(text: str) -> str:
    """A text fit for a message: short, printable, quoted where it would be misread."""
    short = text if len(text) <= 60 else text[:60] + "…"
    return short if short and short.isprintable() and " " not in short else repr(short)


def check_text(
    text: str, *, what: str, limit: int = MAX_WORD, lines: bool = False, blank: bool = False
) -> str:
    """``text`` when it is printable and not too long, else UsageError."""
    if not isinstance(text, str):
        raise UsageError(f"{what} must be a string, not {type(text).__name__}")
    if not blank and not text.strip():
        raise UsageError(f"{what} must not be empty")
    if len(text) > limit:
        raise UsageError(f"{what} is longer than {limit} characters")
    # Every reader's terminal shows what one writer stored.
    shown = text.replace("\n", "").replace("\t", "") if lines else text
    if not shown.isprintable():
        foreign = any("\ud800" <= char <= "\udfff" for char in shown)  # of a word in other bytes
        why = "is not UTF-8, which records are" if foreign else "has control characters"
        raise UsageError(f"{what} {why}")
    return text
