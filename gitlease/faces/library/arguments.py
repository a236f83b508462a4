"""How the words of the library's verbs become values."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import timedelta
from typing import TypeVar

from gitlease.core.duration import parse_duration
from gitlease.core.errors import UsageError, check_text
from gitlease.core.moves.operations import MAX_NOTE, MAX_REASON
from gitlease.core.resources.resource import (
    WHOLE,
    Resource,
    parse_scope,
    path_resource,
)
from gitlease.engine.answers import Answer, ClaimOptions, QueueReading, Reading
from gitlease.engine.ledger_session import LedgerSession
from gitlease.engine.sessions import SessionsReading
from gitlease.wiring.words import check_claim, path_here, resource_here
from gitlease.wiring.workspace import Workspace

Said = TypeVar("Said", Answer, Reading, QueueReading, SessionsReading)

Duration = str | int | timedelta
"""``"15m"``, a number of seconds, or a timedelta."""

StrPath = str | os.PathLike[str]

ResourceLike = StrPath | Resource
"""A name or a path as one types it; a ``Path`` is always a path."""


def to_folder(place: StrPath) -> str:
    """A folder's path as text. UsageError for what is no path."""
    return _path_text(place, "a folder")


def _path_text(place: StrPath, what: str) -> str:
    found = os.fspath(place) if isinstance(place, str | os.PathLike) else None
    if not isinstance(found, str):
        raise UsageError(f"{what} must be a string or a path, not {type(place).__name__}")
    return found


def to_resource(workspace: Workspace, word: ResourceLike) -> Resource:
    """The resource that a word means in an opened repository. UsageError for a bad one."""
    if isinstance(word, Resource):
        return word
    text = _path_text(word, "a resource")
    if isinstance(word, os.PathLike):
        return path_here(workspace.repository, text)
    return resource_here(workspace, text)


def to_resources(workspace: Workspace, words: Iterable[ResourceLike]) -> tuple[Resource, ...]:
    """Several resources, at least one."""
    if isinstance(words, str | os.PathLike) or not isinstance(words, Iterable):
        raise UsageError("several resources are given as a list")
    found = tuple(to_resource(workspace, word) for word in words)
    if not found:
        raise UsageError("name at least one resource")
    return found


def to_claim(
    workspace: Workspace, words: Iterable[ResourceLike], terms: ClaimOptions
) -> tuple[tuple[Resource, ...], tuple[str, ...]]:
    """The resources of a claim, and what there is to say of them.

    UsageError for a word that may mean a file as well as a name.
    """
    wanted = to_resources(workspace, words)
    covered = [path_resource(path) for path in terms.paths]
    return wanted, check_claim(workspace, wanted, covered, any_name=terms.any_name)


def to_paths(workspace: Workspace, words: Iterable[StrPath]) -> tuple[str, ...]:
    """Path words as patterns relative to the root."""
    if isinstance(words, str | os.PathLike) or not isinstance(words, Iterable):
        raise UsageError("paths are given as a list")
    found = (path_here(workspace.repository, _path_text(word, "a path")) for word in words)
    return tuple(path.pattern for path in found if path.pattern is not None)


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
