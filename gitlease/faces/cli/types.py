"""How words of several verbs are read, as types of options: a bad one is told before all else."""

from __future__ import annotations

from collections.abc import Callable


def duration(what: str) -> Callable[[str], int]:
    """Whole seconds; ``what`` names it in messages."""

    def read(text: str) -> int:
        from gitlease.core.duration import parse_duration

        return parse_duration(text, what=what)

    return read


def scope(text: str) -> str:
    """A scope of a resource's work. UsageError for a bad one."""
    from gitlease.core.resources.resource import parse_scope

    return parse_scope(text)


def note(text: str) -> str:
    """A note that may be stored and shown. UsageError otherwise."""
    from gitlease.core.moves.operations import MAX_NOTE, check_text

    return check_text(text, what="note", limit=MAX_NOTE, lines=True)


def reason(text: str) -> str:
    """A reason that may be stored and shown. UsageError otherwise."""
    from gitlease.core.moves.operations import MAX_REASON, check_text

    return check_text(text, what="reason", limit=MAX_REASON)


def holder(text: str) -> str:
    """A holder, as they are called in the ledger. UsageError for what can be none."""
    from gitlease.core.moves.operations import check_text

    return check_text(text, what="a holder")
