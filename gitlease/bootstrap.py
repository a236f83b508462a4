"""The composition root: a repository and its settings become a ready service."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from gitlease.adapters import libgit2
from gitlease.adapters.git import run_git
from gitlease.adapters.identity import Identity, resolve_identity
from gitlease.adapters.repository import Repository, discover
from gitlease.adapters.settings import (
    Location,
    Setting,
    Settings,
    load_settings,
    resolve_remote,
    set_config,
)
from gitlease.adapters.settings_file import FILE, CommittedFile
from gitlease.adapters.system_clock import SystemClock
from gitlease.adapters.task_files import GitTaskFiles
from gitlease.adapters.transport import TIME_LIMIT, without_secrets
from gitlease.bootstrap_ledger import LedgerPlace
from gitlease.domain.edge import People, Progress
from gitlease.domain.errors import Invalid, UsageError
from gitlease.domain.lease import Actor
from gitlease.domain.resource import LOCAL_LAYER
from gitlease.edges import EdgeRules, Edges
from gitlease.guarding import GuardService
from gitlease.ports import Clock, Words
from gitlease.queueing import TaskQueue
from gitlease.service import LeaseService
from gitlease.swapping import PATIENCE

if TYPE_CHECKING:
    from gitlease.adapters.recognise import Fitting


@dataclass(frozen=True)
class Workspace:
    """One opened repository: who and where we are, and the service for it.

    ``again`` opens the same place once more, with whatever other arguments of ``open_workspace``.
    """

    repository: Repository
    settings: Settings
    identity: Identity
    location: Location
    layer: str
    service: LeaseService
    queue: TaskQueue
    guard: GuardService
    words: Words
    again: Callable[..., Workspace]


def open_workspace(
    directory: str = ".",
    *,
    layer: str | None = None,
    local: bool = False,
    remote: str | None = None,
    session: str | None = None,
    no_session: bool = False,
    ttl: str | None = None,
    environ: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    time_limit: float = TIME_LIMIT,
    patience: float = PATIENCE,
    anonymous: bool = False,
    run: str | None = None,
    committed: CommittedFile | None = None,
) -> Workspace:
    """Open the repository around ``directory``. Asks no remote.

    ``time_limit`` is that of each contact with the remote, ``patience`` that of all tries of one
    change, in seconds. ``run`` is the session where none is given. ``anonymous``: whoever only
    reads need not have a ``user.email``. ``committed`` stands for the work tree's settings file.

    Raises NotARepository, Invalid for bad settings or a missing ``user.email``, and UsageError for
    bad flags.
    """
    if local and (layer or remote):
        raise UsageError("--local is a layer of its own: it goes with neither --layer nor --remote")
    environ = os.environ if environ is None else environ
    repository = discover(directory)
    flags = {"ttl": ttl or "", "remote": remote or "", "layer": layer or ""}
    settings = load_settings(repository, environ=environ, flags=flags, committed=committed)
    try:
        identity = resolve_identity(
            repository,
            environ=environ,
            session_flag=session,
            no_session=no_session,
            run=run,
        )
    except Invalid:
        if not anonymous:
            raise
        identity = Identity(Actor(holder=""), "none", "none")
    location = Location(None, None, True) if local else resolve_remote(settings, repository)
    clock = clock or SystemClock()
    name = LOCAL_LAYER if local else settings.layer
    place = LedgerPlace(repository, settings, location, local=local)
    words = place.words(identity.actor)
    service = LeaseService(
        place.store(clock, time_limit=time_limit),
        clock=clock,
        actor=identity.actor,
        layer=name,
        edges=_edges(
            repository, settings, holder=identity.actor.holder, state=f"{place.key}/{name}"
        ),
        words=words,
        default_ttl=settings.ttl,
        ttl_is_default=settings.ttl_is_default,
        patience=patience,
    )
    guard = place.guard(identity.actor, clock, layer=name)
    again = partial(
        open_workspace,
        os.path.abspath(directory),
        layer=layer,
        local=local,
        remote=remote,
        environ=environ,
        clock=clock,
    )
    return Workspace(
        repository=repository,
        settings=settings,
        identity=identity,
        location=location,
        layer=name,
        service=service,
        queue=TaskQueue(service),
        guard=guard,
        words=words,
        again=again,
    )


def _edges(repository: Repository, settings: Settings, *, holder: str, state: str) -> Edges:
    """The task files of this work tree; intents are kept beside the ledger they go with."""
    folder = os.path.join(repository.common_dir, "gitlease")
    rules = EdgeRules(
        people=People(settings.people, handles=settings.handles),
        statuses={Progress(name): words for name, words in settings.tasks.statuses.items()},
        required=settings.tasks.required,
        commit=settings.edges_commit,
    )
    files = GitTaskFiles(
        repository,
        settings.tasks,
        folder=os.path.join(folder, "tasks"),
        journal=os.path.join(folder, "state", state, "edges"),
    )
    return Edges(files, rules, holder=holder)


def own_process() -> None:
    """Say that this process serves nobody but gitlease, which lets it start faster."""
    libgit2.own_process()


def find_repository(directory: str = ".") -> Repository:
    """The repository around a directory, before its settings are read: to repair one, say."""
    return discover(directory)


def write_setting(repository: Repository, key: str, value: str) -> str:
    """Set a setting in the clone's git config (an empty value unsets) and say what it is called."""
    return set_config(repository, key, value)


def write_default_settings(repository: Repository) -> tuple[str, Fitting] | None:
    """Write a commented ``.gitlease.yaml`` that fits the task files, where there is none.

    Its path, and what was recognised; None where nothing was written.
    """
    if repository.toplevel is None:
        return None
    path = os.path.join(repository.toplevel, FILE)
    if os.path.lexists(path):
        return None
    from gitlease.adapters.recognise import fitting_settings

    fitting = fitting_settings(repository)
    try:
        with open(path, "x", encoding="utf-8") as file:
            file.write(fitting.text)
    except FileExistsError:
        return None
    except OSError as error:
        raise Invalid(f"{path} cannot be written: {error.strerror}") from None
    return path, fitting


def is_tracked(repository: Repository, name: str) -> bool:
    """Whether a file of this name at the root is tracked."""
    top = repository.toplevel
    if top is None or not os.path.lexists(os.path.join(top, name)):
        return False
    words = ["--literal-pathspecs", "ls-files", "--error-unmatch", "--", name]
    return run_git(words, cwd=top, timeout=10, repository=True).code == 0


__all__ = [
    "Repository",
    "Setting",
    "Workspace",
    "find_repository",
    "is_tracked",
    "open_workspace",
    "own_process",
    "without_secrets",
    "write_default_settings",
    "write_setting",
]
