"""The arguments of the library's verbs, checked and converted."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import timedelta
from inspect import iscoroutinefunction
from typing import TypeVar

from gitlease.core.errors import UsageError, check_text
from gitlease.core.instant import parse_duration
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
from gitlease.wiring.words import check_claim, dead_hooks, path_here, resource_here
from gitlease.wiring.workspace import Workspace

T = TypeVar("T")
WithWarnings = TypeVar("WithWarnings", Answer, Reading, QueueReading, SessionsReading)

Duration = str | int | timedelta
"""``"15m"``, a number of seconds, or a timedelta."""

StrPath = str | os.PathLike[str]

ResourceLike = StrPath | Resource
"""A name or a path as on the command line; a ``Path`` is always a path."""


def to_folder(place: StrPath) -> str:
    """A folder's path. UsageError for anything that is not a path."""
    return _path_text(place, "a folder")


def _path_text(place: StrPath, what: str) -> str:
    found = os.fspath(place) if isinstance(place, str | os.PathLike) else None
    if not isinstance(found, str):
        raise UsageError(f"{what} must be a string or a path, not {type(place).__name__}")
    return found


def to_resource(workspace: Workspace, word: ResourceLike) -> Resource:
    """The resource of a word in an opened repository. Raises UsageError."""
    if isinstance(word, Resource):
        return word
    text = _path_text(word, "a resource")
    if isinstance(word, os.PathLike):
        return path_here(workspace.repository, text)
    return resource_here(workspace, text)


def to_list(words: Iterable[T], what: str) -> list[T]:
    """The items of an iterable. UsageError for a single string or path, or no iterable."""
    if isinstance(words, str | os.PathLike) or not isinstance(words, Iterable):
        raise UsageError(f"{what} must be a list")
    return [*words]


def to_resources(workspace: Workspace, words: Iterable[ResourceLike]) -> tuple[Resource, ...]:
    """Several resources, at least one."""
    found = tuple(to_resource(workspace, word) for word in to_list(words, "resources"))
    if not found:
        raise UsageError("name at least one resource")
    return found


def to_claim(
    workspace: Workspace, words: Iterable[ResourceLike], terms: ClaimOptions
) -> tuple[tuple[Resource, ...], tuple[str, ...]]:
    """The resources of a claim, and warnings.

    Raises UsageError for a word that may be a file as well as a name.
    """
    wanted = to_resources(workspace, words)
    covered = [path_resource(path) for path in terms.paths]
    warnings = check_claim(workspace, wanted, covered, any_name=terms.any_name)
    return wanted, (*warnings, *dead_hooks(workspace))


def to_paths(workspace: Workspace, words: Iterable[StrPath]) -> tuple[str, ...]:
    """Paths as patterns relative to the root."""
    words = to_list(words, "paths")
    found = (path_here(workspace.repository, _path_text(word, "a path")) for word in words)
    return tuple(path.pattern for path in found if path.pattern is not None)


def to_seconds(value: Duration | None, what: str) -> int | None:
    """A duration in whole seconds; None stays None. Raises UsageError."""
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
    """The options of a claim; without a ``workspace`` its paths are left out. Raises UsageError."""
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
    """Every layer that this clone uses."""
    return [space.ledger for space in workspace.in_use]


def to_scope(word: str | None) -> str | None:
    """A scope; None stays None. Raises UsageError."""
    return None if word is None else parse_scope(word)


def check_listener(on_lost: object) -> None:
    """UsageError for anything that cannot be called in a thread, such as a coroutine function."""
    if on_lost is not None and (not callable(on_lost) or iscoroutinefunction(on_lost)):
        raise UsageError("on_lost must be a plain function, not a coroutine function")


def to_note(text: str | None) -> str | None:
    """A note; None stays None. UsageError for one that cannot be stored or shown."""
    return None if text is None else check_text(text, what="note", limit=MAX_NOTE, lines=True)


def to_reason(text: str | None) -> str | None:
    """A reason; None stays None. UsageError for one that cannot be stored or shown."""
    return None if text is None else check_text(text, what="reason", limit=MAX_REASON)
