"""The table from ``error.code`` to exit status, HTTP status and MCP error.

``internal`` is 70 (EX_SOFTWARE of sysexits.h). A command that was interrupted, or whose reader
left, exits with 128 + the signal, as in a shell.
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
    """A check found something."""

    code: ClassVar[str] = "violations"


class Fault(GitleaseError):
    """An internal error of gitlease."""

    code: ClassVar[str] = INTERNAL


@dataclass(frozen=True, slots=True)
class Code:
    """Exit status, HTTP status, and whether an MCP client gets a tool error or a protocol error.

    ``meaning`` is its line in the help of verbs.
    """

    exit: int
    http: int
    mcp: str
    meaning: str


def _tool(exit_status: int, http: int, meaning: str) -> Code:
    return Code(exit_status, http, "tool", meaning)


CODES: Mapping[str, Code] = {
    "held": _tool(1, 409, "someone else holds it"),
    "wait_timeout": _tool(1, 409, "someone else still held it when the wait ran out"),
    "violations": _tool(1, 409, "the check found something"),
    "nothing_left": _tool(1, 404, "no task is left to claim"),
    "usage": _tool(2, 400, "bad arguments; the remote was not asked"),
    "lost": _tool(3, 412, "you no longer hold it: stop the work under it"),
    "not_holder": _tool(3, 412, "you do not hold it"),
    "denied": _tool(4, 403, "the remote refused: authentication, permission or its policy"),
    "unavailable": _tool(5, 503, "the remote cannot be reached, or the outcome is unknown"),
    "unknown_outcome": _tool(5, 504, "it is unknown whether the change landed: do not rely on it"),
    "policy": _tool(6, 422, "refused by policy: the ledger's limits, or finished work"),
    "invalid": _tool(7, 500, "a damaged record, setting or task file, no user.email, no such task"),
    "not_found": _tool(7, 404, "no such task, resource or record"),
    "rollback": _tool(7, 409, "the ledger was rolled back or replaced"),
    "not_a_repository": _tool(128, 404, "not in a git repository"),
    INTERNAL: Code(70, 500, "protocol", "an internal error of gitlease"),
}


def http_of(code: str) -> int:
    """Return the HTTP status of an error code."""
    return CODES[code].http if code in CODES else CODES[INTERNAL].http


def exit_of(code: str) -> int:
    """Return the exit status of an error code; an unknown code counts as ``internal``."""
    return CODES[code].exit if code in CODES else CODES[INTERNAL].exit
