"""How the words of the library's verbs become values."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import TypeVar

from gitlease.core.duration import parse_duration
from gitlease.core.errors import UsageError
from gitlease.core.moves.operations import MAX_NOTE, MAX_REASON, check_text
from gitlease.core.resources.resource import (
    WHOLE,
    Resource,
    parse_resource,
    parse_scope,
    resolve_path,
)
from gitlease.engine.answers import Answer, ClaimOptions, QueueReading, Reading
from gitlease.engine.ledger_session import LedgerSession
from gitlease.engine.sessions import SessionsReading
from gitlease.wiring.workspace import Workspace

Said = TypeVar("Said", Answer, Reading, QueueReading, SessionsReading)

Duration = str | int | timedelta
"""``"15m"``, a number of seconds, or a timedelta."""


def to_resource(workspace: Workspace, word: str) -> Resource:
    """The resource that a word means in an opened repository. UsageError for a bad one."""
    repository = workspace.repository
    return parse_resource(word, folder=repository.folder, root=repository.toplevel)


def to_resources(workspace: Workspace, words: Iterable[str]) -> tuple[Resource, ...]:
    """Several resources, at least one."""
    if isinstance(words, str) or not isinstance(words, Iterable):
        raise UsageError("several resources are given as a list")
    found = tuple(to_resource(workspace, word) for word in words)
    if not found:
        raise UsageError("name at least one resource")
    return found


def to_paths(workspace: Workspace, words: Iterable[str]) -> tuple[str, ...]:
    """Path words as patterns relative to the root."""
    if isinstance(words, str) or not isinstance(words, Iterable):
        raise UsageError("paths are given as a list")
    repository = workspace.repository
    return tuple(
        resolve_path(word, folder=repository.folder, root=repository.toplevel) for word in words
    )


def to_seconds(value: Duration | None, what: str) -> int | None:
    """Whole seconds; None where nothing was given. UsageError for what is no duration."""
    if value is None:
        return None
    if isinstance(value, timedelta):
        return parse_duration(f"{value.total_seconds():f}", what=what)
    return parse_duration(str(value), what=what)


def to_terms(
    workspace: Workspace | None,
    scope: str = WHOLE,
    ttl: Duration | None = None,
    paths: Iterable[str] = (),
    reason: str | None = None,
    takeover: bool = False,
    reopen: bool = False,
    any: bool = False,
    commit: bool | None = None,
    *,
    expect_holder: str | None = None,
    new: bool = False,
) -> ClaimOptions:
    """How a claim is to be made; its paths lie in the workspace. UsageError for a bad word."""
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
    """What is spoken of where no layer was chosen: every layer that this clone uses."""
    return [space.ledger for space in workspace.in_use]


def to_scope(word: str | None) -> str | None:
    """A scope that was given. UsageError for a bad one."""
    return None if word is None else parse_scope(word)


def check_listener(on_lost: object) -> None:
    """UsageError for what cannot be called in a thread of its own, as nothing would await it."""
    if on_lost is None:
        return
    import inspect  # costs more than all the rest of this module

    if not callable(on_lost) or inspect.iscoroutinefunction(on_lost):
        raise UsageError("on_lost must be a function that is called, not one to be awaited")


def to_note(text: str | None) -> str | None:
    """A note that may be stored and shown, where one was given. UsageError otherwise."""
    return None if text is None else check_text(text, what="note", limit=MAX_NOTE, lines=True)


def to_reason(text: str | None) -> str | None:
    """A reason that may be stored and shown, where one was given. UsageError otherwise."""
    return None if text is None else check_text(text, what="reason", limit=MAX_REASON)
