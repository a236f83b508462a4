"""The composition root: a repository and its settings become a ready service."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from gitlease.adapters import libgit2
from gitlease.adapters.git import run_git
from gitlease.adapters.git_ledger import GitLedgerStore
from gitlease.adapters.identity import Identity, resolve_identity
from gitlease.adapters.private_store import make_bare, make_folder
from gitlease.adapters.repository import Repository, discover
from gitlease.adapters.settings import (
    Location,
    Setting,
    Settings,
    load_settings,
    resolve_remote,
    set_config,
)
from gitlease.adapters.settings_file import FILE
from gitlease.adapters.system_clock import SystemClock
from gitlease.adapters.task_files import GitTaskFiles
from gitlease.adapters.transport import Remote, without_secrets
from gitlease.domain.edge import People, Progress
from gitlease.domain.errors import Invalid, UsageError
from gitlease.domain.resource import LOCAL_LAYER
from gitlease.edges import EdgeRules, Edges
from gitlease.ports import Clock
from gitlease.queueing import TaskQueue
from gitlease.service import LeaseService

if TYPE_CHECKING:
    from gitlease.adapters.recognise import Fitting


@dataclass(frozen=True)
class Workspace:
    """One opened repository: who and where we are, and the service for it."""

    repository: Repository
    settings: Settings
    identity: Identity
    location: Location
    layer: str
    service: LeaseService
    queue: TaskQueue


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
) -> Workspace:
    """Open the repository around ``directory``. Asks no remote.

    Raises NotARepository, Invalid for bad settings or a missing ``user.email``, and UsageError for
    bad flags.
    """
    if local and (layer or remote):
        raise UsageError("--local is a layer of its own: it goes with neither --layer nor --remote")
    environ = os.environ if environ is None else environ
    repository = discover(directory)
    flags = {"ttl": ttl or "", "remote": remote or "", "layer": layer or ""}
    settings = load_settings(repository, environ=environ, flags=flags)
    identity = resolve_identity(
        repository, environ=environ, session_flag=session, no_session=no_session
    )
    location = Location(None, None, True) if local else resolve_remote(settings, repository)
    clock = clock or SystemClock()
    name = LOCAL_LAYER if local else settings.layer
    key = LOCAL_LAYER if local else _key(settings, location, repository)
    service = LeaseService(
        _store(repository, settings, location, clock, key=key, local=local),
        clock=clock,
        actor=identity.actor,
        layer=name,
        edges=_edges(repository, settings, holder=identity.actor.holder, state=f"{key}/{name}"),
        default_ttl=settings.ttl,
        ttl_is_default=settings.ttl_is_default,
    )
    queue = TaskQueue(service)
    return Workspace(repository, settings, identity, location, name, service, queue)


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


def _store(
    repository: Repository,
    settings: Settings,
    location: Location,
    clock: Clock,
    *,
    key: str,
    local: bool,
) -> GitLedgerStore:
    folder = os.path.join(repository.common_dir, "gitlease")
    if location.url is None:
        own = os.path.join(folder, "local.git")
        make_folder(folder)
        make_bare(own)
        remote = Remote(url=own, folder=folder)
        place = "the local ledger of this clone"
        why = "" if local else "there is no remote: "
        warnings: tuple[str, ...] = (
            f"{why}this is the local ledger of this clone, which nobody else sees",
        )
    else:
        remote = _remote(repository, location.url, location.name)
        shown = without_secrets(location.url)
        place = f"{location.name} ({shown})" if location.name else shown
        warnings = ()
    return GitLedgerStore(
        remote,
        store=os.path.join(folder, "store.git"),
        state=lambda layer: os.path.join(folder, "state", key, layer),
        clock=clock,
        place=place,
        prefix="refs/gitlease" if location.url is None else settings.ref_prefix,
        warnings=warnings,
    )


def _key(settings: Settings, location: Location, repository: Repository) -> str:
    """What the known state of a place is filed under.

    The configured place is one whatever it is called, so that a remote that was renamed, added or
    gone is noticed; a place that a flag names for one command has a state of its own.
    """
    if settings.remote_explicit:
        usual = repository.config.get("lease.remote") or "origin"
        if location.url != (repository.remote_url(usual) or usual):
            return "at-" + sha256(f"{location.url}".encode()).hexdigest()[:16]
    return "default"


def _remote(repository: Repository, url: str, name: str | None) -> Remote:
    """How git reaches a URL: with the clone's own settings, which a URL alone would not have."""
    config = repository.config
    settings = [("include.path", os.path.join(repository.common_dir, "config"))]
    if (config.get("extensions.worktreeConfig") or "").lower() == "true":
        settings.append(("include.path", os.path.join(repository.git_dir, "config.worktree")))
    if name is not None and (proxy := config.get(f"remote.{name}.proxy")) is not None:
        settings.append(("http.proxy", proxy))
    return Remote(
        url=url,
        folder=repository.toplevel or repository.git_dir,
        settings=tuple(settings),
        upload_pack=config.get(f"remote.{name}.uploadpack") if name else None,
        receive_pack=config.get(f"remote.{name}.receivepack") if name else None,
    )


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
