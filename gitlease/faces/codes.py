"""The one table from ``error.code`` to what each face makes of it.

A test holds the exit statuses to the contract. ``internal`` is a
fault of gitlease itself (70, EX_SOFTWARE of sysexits.h). A command that was interrupted or whose
reader went away ends as the shell would say it, with 128 + the signal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from gitlease.core.errors import GitleaseError
from gitlease.core.frozen import dataclass

INTERNAL = "internal"
INTERRUPTED = 130
BROKEN_PIPE = 141


class Violations(GitleaseError):
    """What was looked at is not as it should be."""

    code: ClassVar[str] = "violations"


class Fault(GitleaseError):
    """A fault of gitlease itself."""

    code: ClassVar[str] = INTERNAL


@dataclass(frozen=True, slots=True)
class Code:
    """Exit status, HTTP status, and whether an MCP client gets a tool error or a protocol error.

    ``meaning`` is the line of the exit codes' table in every command's help.
    """

    exit: int
    http: int
    mcp: str
    meaning: str


def _tool(exit_status: int, http: int, meaning: str) -> Code:
    return Code(exit_status, http, "tool", meaning)


CODES: Mapping[str, Code] = {
    "held": _tool(1, 409, "another holds it"),
    "wait_timeout": _tool(1, 409, "another still held it when the wait ran out"),
    "violations": _tool(1, 409, "the check found something"),
    "nothing_left": _tool(1, 404, "no task is left to claim"),
    "usage": _tool(2, 400, "bad arguments; nothing was asked of the remote"),
    "lost": _tool(3, 412, "you do not hold it any more: stop what you did under it"),
    "not_holder": _tool(3, 412, "you are not its holder"),
    "denied": _tool(4, 403, "the remote refused: authentication, permission or its policy"),
    "unavailable": _tool(5, 503, "the remote cannot be reached: nothing is held that was not"),
    "unknown_outcome": _tool(5, 504, "whether the change landed cannot be known: do not act on it"),
    "policy": _tool(6, 422, "refused by policy: the ledger's limits, or finished work"),
    "invalid": _tool(7, 500, "a damaged record, setting or task file, no user.email; no such task"),
    "not_found": _tool(7, 404, "no such thing"),
    "rollback": _tool(7, 409, "the ledger is older than, or not the one, known here"),
    "not_a_repository": _tool(128, 404, "no git repository here"),
    INTERNAL: Code(70, 500, "protocol", "a fault of gitlease itself"),
}


def http_of(code: str) -> int:
    """The HTTP status of an error code."""
    return CODES[code].http if code in CODES else CODES[INTERNAL].http


def exit_of(code: str) -> int:
    """The exit status of an error code; a code that no table knows is a fault of gitlease."""
    return CODES[code].exit if code in CODES else CODES[INTERNAL].exit
