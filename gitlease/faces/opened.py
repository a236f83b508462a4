"""An opened repository, as the library's verbs need it, and how their words become values."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import TypeVar

from gitlease.answers import Answer, QueueReading, Reading
from gitlease.bootstrap import Workspace
from gitlease.domain.duration import parse_duration
from gitlease.domain.errors import UsageError
from gitlease.domain.operations import check_text
from gitlease.domain.resource import Resource, parse_resource, parse_scope, resolve_path

Said = TypeVar("Said", Answer, Reading, QueueReading)

Duration = str | int | timedelta
"""``"15m"``, a number of seconds, or a timedelta."""


class Opened:
    """One repository, for one holder and session on one layer.

    ``warnings`` has what a person should know of the last answer.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace, self._service = workspace, workspace.service
        self.warnings: tuple[str, ...] = ()

    @property
    def holder(self) -> str:
        """The person that claims are made for: git's ``user.email``."""
        return self._workspace.identity.actor.holder

    @property
    def session(self) -> str | None:
        """Which run of the holder this is, where it is known."""
        return self._workspace.identity.actor.session

    def _resource(self, word: str) -> Resource:
        return to_resource(self._workspace, word)

    def _resources(self, words: Iterable[str]) -> tuple[Resource, ...]:
        return to_resources(self._workspace, words)

    def _paths(self, words: Iterable[str]) -> tuple[str, ...]:
        return to_paths(self._workspace, words)

    def _heard(self, answer: Said) -> Said:
        self.warnings = answer.warnings
        return answer


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


def to_text(value: str | None, what: str, limit: int, *, lines: bool = False) -> str | None:
    """A text that may be stored and shown, where one was given. UsageError otherwise."""
    return None if value is None else check_text(value, what=what, limit=limit, lines=lines)
