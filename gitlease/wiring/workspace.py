"""The composition root: a repository and its settings become what faces work on."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING

from gitlease.core.edge import People, Progress, Task
from gitlease.core.errors import Invalid, UsageError
from gitlease.core.frozen import dataclass, replace
from gitlease.core.instant import MS
from gitlease.core.lease import Actor
from gitlease.core.resources.resource import LOCAL_LAYER
from gitlease.engine.edges import EdgeRules, Edges
from gitlease.engine.ledger_session import LedgerSession
from gitlease.engine.ports import Clock, Inbox, LastSeen, LedgerStore
from gitlease.engine.transaction import PATIENCE
from gitlease.git import run
from gitlease.git.query import without_secrets
from gitlease.git.repository import Repository, discover
from gitlease.git.system_clock import SystemClock
from gitlease.settings.file import FILE, CommittedFile
from gitlease.settings.identity import Identity, here, resolve_identity
from gitlease.settings.sources import (
    Location,
    Setting,
    Settings,
    load_settings,
    remotes_of_work,
    resolve_remote,
    set_config,
)
from gitlease.store.transport import TIME_LIMIT
from gitlease.wiring.ledger import LedgerPlace

if TYPE_CHECKING:
    from gitlease.engine.queue.queueing import TaskQueue
    from gitlease.guard.inbox import CarriedFolder
    from gitlease.guard.service import GuardService
    from gitlease.settings.recognise import Fitting


@dataclass(frozen=True, slots=True)
class Workspace:
    """One opened repository: who and where we are, and the session of its ledger.

    ``key`` tells the ledger, and the way there, from those of other workspaces. ``again`` makes
    the services of this very workspace once more, as ``_again`` says. ``others`` makes those of the
    other layers that this clone uses; of none where one layer was asked for by a flag.
    """

    repository: Repository
    settings: Settings
    identity: Identity
    location: Location
    layer: str
    ledger: LedgerSession
    open_guard: Callable[[], GuardService]
    inbox: Inbox
    open_carried: Callable[[], CarriedFolder]
    key: Hashable
    again: Callable[..., Workspace]
    others: Callable[[], tuple[Workspace, ...]]

    @property
    def actor(self) -> Actor:
        """Who speaks here, in which session."""
        return self.identity.actor

    @cached_property
    def in_use(self) -> tuple[Workspace, ...]:
        """The same person in every layer that this clone uses; the own layer is the first."""
        return (self, *self.others())

    @cached_property
    def queue(self) -> TaskQueue:
        """The queue of tasks."""
        from gitlease.engine.queue.queueing import TaskQueue

        return TaskQueue(self.ledger, lambda: [space.ledger for space in self.in_use[1:]])

    @cached_property
    def carried(self) -> CarriedFolder:
        """Which leases of the person's this session carries."""
        return self.open_carried()

    @cached_property
    def guard(self) -> GuardService:
        """What others hold, for hooks and whoever edits."""
        return self.open_guard()

    def main_branch(self) -> str | None:
        """The main branch of the remote as this clone knows it: a full ref."""
        from gitlease.git.remote_branches import main_branch

        return main_branch(self.repository, remotes_of_work(self.location, self.repository))

    def note_run(self, run_id: str) -> None:
        """Note for other sessions that this process runs something in the work tree."""
        from gitlease.guard.sharing import note_run

        note_run(self.repository, run_id, self.actor, now=self.ledger.clock.now().wall_ms / MS)

    def forget_run(self, run_id: str) -> None:
        """Forget a run that has ended."""
        from gitlease.guard.sharing import forget_run

        forget_run(self.repository, run_id)


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
    committed: CommittedFile | None = None,
    repository: Repository | None = None,
    store: LedgerStore | None = None,
) -> Workspace:
    """Open the repository around ``directory``. Asks no remote.

    ``time_limit`` is that of each contact with the remote, ``patience`` that of all tries of one
    change, in seconds. ``anonymous``: whoever only reads need not have a ``user.email``.
    ``committed`` stands for the work tree's settings file; ``repository`` is that around
    ``directory`` where it was found already, and ``store`` for the ledgers that its settings name.

    Raises NotARepository, Invalid for bad settings or a missing ``user.email``, and UsageError for
    bad flags.
    """
    if local and (layer or remote):
        raise UsageError("--local is a layer of its own: it goes with neither --layer nor --remote")
    environ = os.environ if environ is None else environ
    repository = repository or discover(directory)
    flags = {"ttl": ttl or "", "remote": remote or "", "layer": layer or ""}
    settings = load_settings(repository, environ=environ, flags=flags, committed=committed)
    try:
        identity = resolve_identity(
            repository,
            environ=environ,
            session_flag=session,
            no_session=no_session,
        )
    except Invalid:
        if not anonymous:
            raise
        identity = Identity(Actor(holder=""), "none", "none")
    location = Location(None, None, True) if local else resolve_remote(settings, repository)
    return _made(
        LedgerPlace(repository, settings, location, local=local, given=store),
        identity,
        LOCAL_LAYER if local else settings.layer,
        clock or SystemClock(),
        time_limit=time_limit,
        patience=patience,
        alone=local or bool(layer),
    )


def _made(
    place: LedgerPlace,
    identity: Identity,
    name: str,
    clock: Clock,
    *,
    time_limit: float = TIME_LIMIT,
    patience: float = PATIENCE,
    alone: bool = False,
) -> Workspace:
    """The services of one person on one layer of a place, with objects of their own for a thread.

    Nothing is read anew of the settings: git itself reads anew only how it reaches a URL. ``alone``
    looks at no other layer.
    """

    def others() -> tuple[Workspace, ...]:
        found = () if alone else place.layers_in_use()
        limits = {"time_limit": time_limit, "patience": patience}
        return tuple(
            _made(place.of_layer(layer), identity, layer, clock, alone=True, **limits)
            for layer in found
            if layer != name
        )

    repository, settings, location = place.repository, place.settings, place.location
    inbox = place.inbox(identity.actor)

    def look_for_life(task: Task, holders: Sequence[str], sure: bool) -> LastSeen:
        from gitlease.wiring.stale import open_staleness

        return open_staleness(workspace).last_seen(task, holders, sure)

    session = LedgerSession(
        place.store(clock, time_limit=time_limit),
        clock=clock,
        actor=identity.actor,
        layer=name,
        edges=Edges(place.task_files(name), edge_rules(settings), holder=identity.actor.holder),
        inbox=inbox,
        default_ttl=settings.ttl,
        ttl_is_default=settings.ttl_is_default,
        patience=patience,
        look_for_life=look_for_life,
    )
    url = location.url
    way = None if url is None else place.remote_at(url, location.name)
    workspace = Workspace(
        repository=repository,
        settings=settings,
        identity=identity,
        location=location,
        layer=name,
        ledger=session,
        open_guard=lambda: place.guard(identity.actor, clock, layer=name),
        inbox=inbox,
        open_carried=lambda: place.carried(identity.actor),
        key=(repository.common_dir, place.key, settings.ref_prefix, name, way),
        again=partial(_again, place, identity, name, clock, alone),
        others=others,
    )
    return workspace


def _again(
    place: LedgerPlace,
    identity: Identity,
    name: str,
    usual: Clock,
    alone: bool,
    *,
    session: str | None = None,
    no_session: bool = False,
    run: str | None = None,
    pid: int = 0,
    clock: Clock | None = None,
    time_limit: float = TIME_LIMIT,
    patience: float = PATIENCE,
) -> Workspace:
    """The same person at the same ledger, whatever the settings say by now. Asks nobody.

    ``session`` speaks as that session, ``no_session`` as the person, and ``run`` as a session that
    was not asked for, of process ``pid`` (0: one that is still to be). The others are as in
    ``open_workspace``.
    """
    actor, source = identity.actor, identity.session_source
    if no_session:
        actor, source = replace(actor, session=None, session_explicit=False), "flag --no-session"
    elif run is not None:
        actor = replace(actor, session=run, session_explicit=False, host=here(pid))
        source = "this run alone"
    elif session is not None:
        actor, source = replace(actor, session=session, session_explicit=True), "flag --session"
    identity = Identity(actor, identity.holder_source, source)
    clock = clock or usual
    return _made(
        place, identity, name, clock, time_limit=time_limit, patience=patience, alone=alone
    )


def edge_rules(settings: Settings) -> EdgeRules:
    """What settings say of edges."""
    return EdgeRules(
        people=People(settings.people, handles=settings.handles),
        statuses={Progress(name): words for name, words in settings.tasks.statuses.items()},
        required=settings.tasks.required,
        commit=settings.edges_commit,
    )


def own_process() -> None:
    """Say that this process serves nobody but gitlease, which lets it start faster."""
    run.is_own_process = True


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
    from gitlease.settings.recognise import fitting_settings

    fitting = fitting_settings(repository)
    try:
        with open(path, "x", encoding="utf-8") as file:
            file.write(fitting.text)
    except FileExistsError:
        return None
    except OSError as error:
        raise Invalid(f"{path} cannot be written: {error.strerror}") from None
    return path, fitting


__all__ = [
    "Repository",
    "Setting",
    "Workspace",
    "find_repository",
    "open_workspace",
    "own_process",
    "without_secrets",
    "write_default_settings",
    "write_setting",
]
