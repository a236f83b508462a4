"""The doors of programs with a clone: the library's, and what the tool server's has of it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from gitlease.kernel.ledger import acts
from gitlease.kernel.ledger.answers import Answer
from gitlease.kernel.ledger.edges import Planned
from gitlease.kernel.rules.errors import GitleaseError, LeaseHeld, LeaseLost, NotHolder
from gitlease.kernel.rules.loss import explained
from gitlease.kernel.rules.resources import Resource, parse_resource, word_anywhere
from gitlease.verbs.table import Act, DoorOfClone, path_text
from gitlease.wiring import words
from gitlease.wiring.workspace import Found, Repository, Workspace, open_workspace


class WorkTreeDoor(DoorOfClone, Protocol):
    """A caller with a clone: paths are those of its work tree, and claims edit its task files."""

    workspace: Workspace

    @property
    def in_memory(self) -> bool:
        return getattr(self.ledger.store, "in_memory", False)

    def place(self) -> Mapping[str, Any]:
        repository, location = self.workspace.repository, self.workspace.location
        return {
            # A bare repository has no work tree.
            "directory": repository.toplevel or repository.git_dir,
            "layer": self.layer,
            "local": location.url is None and location.explicit,
            "remote": location.name or location.url,
        }

    def workspace_by(
        self, committed: Mapping[str, Found] | None, repository: Repository, *, anonymous: bool
    ) -> Workspace:
        actor = self.workspace.actor
        if committed is None:
            return self.workspace
        return open_workspace(
            **self.place(),
            session=actor.session if actor.session_explicit else None,
            committed=committed,
            repository=repository,
        )

    def open_at(self, folder: str) -> Workspace:
        return open_workspace(**{**self.place(), "directory": folder})

    def resource(self, word: Any) -> Resource:
        """The resource of a word; a ``PathLike`` is always a path. Raises UsageError."""
        if isinstance(word, Resource):
            return word
        text = path_text(word, "a resource")
        # A pathlib.Path says that it is a path; a string may also be a task's name.
        if isinstance(word, os.PathLike):
            return words.path_here(self.workspace.repository, text)
        return words.resource_here(self.workspace, text)

    def resources(self, names: Iterable[Any], *, claiming: bool = False) -> list[Resource]:
        return [self.resource(name) for name in names]

    def paths(self, names: Iterable[Any]) -> list[Resource]:
        repository = self.workspace.repository
        return [words.path_here(repository, path_text(name, "a path")) for name in names]

    def check_claim(
        self, wanted: Sequence[Resource], covered: Sequence[Resource], *, any_name: bool
    ) -> Sequence[str]:
        return words.check_claim(self.workspace, wanted, covered, any_name=any_name)

    @contextlib.contextmanager
    def explaining(self, verb: str) -> Iterator[None]:
        """Have a refusal of the block say if and why the caller has lost its lease."""
        before = self.ledger.unread_notices()  # a refused renewal marks them as read
        try:
            yield
        except LeaseLost as lost:
            raise explained(lost, (*before, *self.ledger.unread_notices())) from None
        except (LeaseHeld, NotHolder) as refusal:
            if isinstance(refusal, LeaseHeld) and verb != "done":  # what was never held is not lost
                raise
            raise acts.loss_of(self.ledger, refusal) or refusal from None

    def granted(self, answer: Answer) -> Sequence[str]:
        return words.dead_hooks(self.workspace) if answer.leases else ()


class CloneDoor(WorkTreeDoor):
    """A program with a clone, in one session."""

    def __init__(
        self,
        workspace: Workspace,
        layer: str | None = None,
        opener: Callable[[str], Workspace] = open_workspace,
    ) -> None:
        self.workspace, self.layer, self._opener = workspace, layer, opener

    def open_at(self, folder: str) -> Workspace:
        return self._opener(folder)

    def act(self, verb: str, resources: Sequence[Resource], act: Act, **terms: Any) -> Answer:
        with self.explaining(verb):
            return act(self.ledger, resources)


def needs_any(workspace: Workspace, name: str) -> bool:
    """Return whether a claim of this name must say that it is no task: no task file has it."""
    task = task_called(workspace, name)
    if task is None or task.task is not None or task.resource.is_path:
        return False
    # A claim refuses a bare name that is also a file's, as it may be meant as that.
    named = words.file_called(workspace.repository, task.resource.text) is not None
    # What the caller has already was no slip when it was claimed.
    is_own = workspace.ledger.decisions.own_records(task.resource)
    return not is_own and (named or workspace.ledger.edges.is_unknown(task))


def task_called(workspace: Workspace, name: str) -> Planned | None:
    """The task of a name by the task files here; None if they cannot be read."""
    try:
        resource = parse_resource(word_anywhere(name))
        return workspace.ledger.edges.plan_end([resource], keep_status=True)[0]
    except GitleaseError:
        return None
