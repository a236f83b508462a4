"""The composition root: makes services of a repository and its settings."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gitlease.guard.notes import CarriedLeases, is_due
from gitlease.kernel.git.files import Unreadable
from gitlease.kernel.git.repository import Repository, discover, without_secrets
from gitlease.kernel.git.run import SystemClock, WokenClock
from gitlease.kernel.ledger.chores import Chore, in_order
from gitlease.kernel.ledger.edges import EdgeRules, Edges
from gitlease.kernel.ledger.ledger_session import Caller, Decisions, LedgerSession, Terms
from gitlease.kernel.ledger.ports import Clock, Inbox, Snapshot, TaskList
from gitlease.kernel.ledger.transaction import PATIENCE
from gitlease.kernel.rules.edge import People, Progress, Task
from gitlease.kernel.rules.errors import Invalid
from gitlease.kernel.rules.frozen import dataclass, replace
from gitlease.kernel.rules.instant import MS, Instant, moment_of
from gitlease.kernel.rules.lease import Actor, Lease
from gitlease.kernel.rules.moves.operations import Operation
from gitlease.kernel.rules.resources import GLOBAL_LAYER, Resource
from gitlease.kernel.settings.identity import Identity, here, resolve_identity
from gitlease.kernel.settings.schema import (
    BUILT_IN,
    FILE,
    LEDGER,
    PREFIX,
    Found,
    Location,
    Setting,
    Settings,
    load_settings,
    recorded_id,
    remotes_of_work,
    set_config,
)
from gitlease.kernel.store.git_ledger import RefLedgerStore
from gitlease.kernel.store.transport import TIME_LIMIT, Watched
from gitlease.wiring.ledger import LEARN, LedgerPlace, open_place

if TYPE_CHECKING:
    from gitlease.guard.service import GuardService
    from gitlease.kernel.ledger.answers import Answer
    from gitlease.kernel.settings.text import SuggestedSettings
    from gitlease.landing.landing import Landed, LandOptions
    from gitlease.runs.records import RunsFolder
    from gitlease.tasks.landed import LandedTasks
    from gitlease.tasks.queue import TaskQueue


@dataclass(frozen=True, kw_only=True)
class Workspace:
    """One opened repository: who and where we are, and the session of its ledger.

    ``time_limit`` is that of each contact with the remote, ``patience`` that of all tries of one
    change, in seconds. ``alone``: a flag asked for this one layer. Nothing is read anew of the
    settings: git itself reads anew only how it reaches a URL.
    """

    place: LedgerPlace
    identity: Identity
    clock: Clock
    time_limit: float
    patience: float
    alone: bool

    @property
    def repository(self) -> Repository:
        return self.place.repository

    @property
    def layer(self) -> str:
        return self.place.layer

    @property
    def settings(self) -> Settings:
        return self.place.settings

    @property
    def location(self) -> Location:
        return self.place.location

    @property
    def actor(self) -> Actor:
        return self.identity.actor

    @cached_property
    def ledger(self) -> LedgerSession:
        """The session of the ledger."""
        settings, place, actor = self.settings, self.place, self.actor

        watched = Watched()
        store = place.store(self.clock, time_limit=self.time_limit, watched=watched)
        if self.identity.no_holder is None:
            store.opener = actor
        return LedgerSession(
            store,
            caller=Caller(
                actor=actor,
                run_tokens=self.identity.run_tokens,
                no_holder=self.identity.no_holder,
                live_runs=self._live_runs,
                inbox=place.inbox(actor),
            ),
            clock=self.clock,
            layer=self.layer,
            edges=Edges(
                place.task_files(),
                edge_rules(settings, place.mailmap()),
                Decisions(store, self.layer, actor.holder),
            ),
            terms=Terms(
                default_ttl=settings.ttl,
                ttl_is_default=settings.ttl_is_default,
                ttl_source=settings.found["lease.ttl"].source,
                patience=self.patience,
            ),
            chores=in_order(_LearntMain(self), _DeadRuns(self), _LandedTasks(self, watched)),
        )

    def _live_runs(self) -> frozenset[str]:
        runs = _recorded_runs(self.place.private, self.clock)
        return frozenset() if runs is None else runs.live(self.layer)

    def check_remote(self) -> None:
        """Raise Invalid if this clone has no remote although its ledger is at one."""
        ledgers = self.ledger.store
        lost = ledgers.lost() if isinstance(ledgers, RefLedgerStore) else None
        if lost is not None:
            raise lost

    @property
    def inbox(self) -> Inbox:
        return self.ledger.mailbox

    @cached_property
    def in_use(self) -> tuple[Workspace, ...]:
        """The same person in every layer that this clone uses; the own layer is the first."""
        layers = () if self.alone else self.place.layers_in_use()
        others = [self.place.of_layer(x) for x in layers if x != self.layer]
        return (self, *map(self._beside, others))

    def everywhere(self) -> tuple[LedgerSession, ...]:
        """The sessions of all layers that this clone has used by now; the own one is the first."""
        _, *others = self.place.everywhere()
        return (self.ledger, *(self._beside(place).ledger for place in others))

    def _beside(self, place: LedgerPlace) -> Workspace:
        return self._with(place=replace(place, beside=True), alone=True)

    @cached_property
    def queue(self) -> TaskQueue:
        """The queue of tasks."""
        from gitlease.tasks.queue import TaskQueue

        return TaskQueue(self.ledger, lambda: [space.ledger for space in self.in_use[1:]])

    @cached_property
    def carried(self) -> CarriedLeases:
        """The leases of the person that this session carries."""
        return CarriedLeases(self.place.private, self.actor.holder, self.actor.session)

    @cached_property
    def guard(self) -> GuardService:
        """The guard of what others hold, for hooks and for edits."""
        return self.place.guard(self.actor, self.clock)

    def waking_clock(self, woken: threading.Event) -> Clock:
        """The same clock; its ``sleep`` raises InterruptedError once ``woken`` is set."""
        make: Callable[[threading.Event], Clock] = getattr(self.clock, "woken", WokenClock)
        return make(woken)

    def again(
        self,
        *,
        session: str | None = None,
        no_session: bool = False,
        run: str | None = None,
        pid: int | None = None,
        clock: Clock | None = None,
        time_limit: float = TIME_LIMIT,
        patience: float = PATIENCE,
    ) -> Workspace:
        """The same person at the same ledger, with objects of their own for a thread.

        ``session`` speaks as that session, ``no_session`` as the person, and ``run`` as a session
        that was not asked for; all as process ``pid`` if given (0: one that is still to start).
        Whatever the settings say by now: they are not read again. Asks no remote.
        """
        actor, source = self.actor, self.identity.session_source
        if pid is not None or run is not None:
            actor = replace(actor, host=here(pid or 0, self.repository.worktree))
        if no_session:
            actor = replace(actor, session=None, session_explicit=False)
            source = "flag --no-session"
        elif run is not None:
            actor = replace(actor, session=run, session_explicit=False)
            source = "this run alone"
        elif session is not None:
            source = source if session == actor.session else "flag --session"
            actor = replace(actor, session=session, session_explicit=True)
        return self._with(
            identity=replace(self.identity, actor=actor, session_source=source),
            clock=clock or self.clock,
            time_limit=time_limit,
            patience=patience,
        )

    def in_layer(self, layer: str | None) -> Workspace:
        """The same person in another layer, which the caller names; None: in this one."""
        if layer is None or layer == self.layer:
            return self
        return self._with(place=self.place.of_layer(layer))

    def as_machine(self, folder: str) -> Workspace:
        """The same person on another machine: a clone that knows nothing, and has no task files.

        Its private state is in ``folder``; that of this clone is not touched.
        """
        settings = replace(self.settings, tasks=replace(self.settings.tasks, files=()))
        return self._with(place=replace(self.place, folder=folder, settings=settings), alone=True)

    def _with(self, **changes: Any) -> Workspace:
        """The same with other fields, and with a ledger of its own."""
        return Workspace(**{x: getattr(self, x) for x in Workspace.__annotations__} | changes)

    def learn_main(self, commit: str = "") -> None:
        """Learn what this clone lacks of the main branch, or of a ``commit`` it has moved on to.

        No contact where nothing is lacking.
        """
        now, seconds = self.clock.now().wall_ms / MS, min(self.time_limit, LEARN)
        self.place.learn_main(now=now, seconds=seconds, commit=commit)

    def main_branch(self) -> str | None:
        """The main branch of the remote as this clone knows it: a full ref."""
        return self.place.main_branch()

    def learn_main_branch(self) -> str | None:
        """The same; where none is known, the remote is asked for its default branch."""
        return self.place.main_branch(now=self.clock.now().wall_ms / MS)

    def land(
        self,
        resource: Resource | None,
        options: LandOptions,
        *,
        tell: Callable[[str], None] = lambda _line: None,
    ) -> Landed:
        """Land the work of this work tree's branch, and finish its task: see ``Lander.land``.

        ``tell`` gets the lines that hooks and the server print.
        """
        from gitlease.landing.opening import land

        return land(self, resource, options, tell)

    def add_task(self, title: str, **fields: Any) -> tuple[Task, tuple[str, ...]]:
        """Write the file of a new task, with these fields of a ``NewTask``; with warnings."""
        from gitlease.tasks.propose import NewTask, add_task

        now = moment_of(self.clock.now().wall_ms)
        return add_task(
            self.repository,
            self.settings.tasks,
            self.ledger,
            NewTask(
                title=title, status=edge_rules(self.settings).word(Progress.TODO), at=now, **fields
            ),
            main=self.learn_main_branch(),
        )


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
    committed: Mapping[str, Found] | None = None,
    repository: Repository | None = None,
    store: RefLedgerStore | None = None,
    brief: bool = False,
) -> Workspace:
    """Open the repository around ``directory``. Asks no remote.

    ``time_limit`` and ``patience`` are as in ``Workspace``. ``anonymous``: no ``user.email`` is
    needed to read. ``committed`` replaces the work tree's settings file, ``store`` the ledgers that
    the settings name; ``repository`` is that around ``directory`` if it was found already.
    ``brief``: this process is one command or hook, which handles few objects of the ledger.

    Raises NotARepository, Invalid for bad settings or a missing ``user.email``, and UsageError for
    bad flags.
    """
    environ = os.environ if environ is None else environ
    repository = repository or discover(directory)
    flags = {"ttl": ttl, "remote": remote, "layer": layer}
    place = open_place(
        repository, environ, flags, local=local, committed=committed, store=store, brief=brief
    )
    identity = resolve_identity(
        repository,
        environ=environ,
        session_flag=session,
        no_session=no_session,
        anonymous=anonymous,
    )
    opened = Workspace(
        place=place,
        identity=identity,
        clock=clock or SystemClock(),
        time_limit=time_limit,
        patience=patience,
        alone=local or bool(layer),
    )
    opened.ledger  # whose trouble is the opening's  # noqa: B018
    return opened


FETCH_EVERY = 60  # seconds between two tries
LEARN_EVERY = 60_000  # milliseconds


def end_landed(workspace: Workspace) -> tuple[str, ...]:
    """Complete the caller's leases of landed tasks in every layer in use; return messages."""
    return tuple(x for space in workspace.in_use for x in space.ledger.finish_landed().warnings)


def end_at_start(workspace: Workspace) -> tuple[str, ...]:
    """Complete them within the time that a hook has."""
    limit = float(workspace.settings.guard_timeout)
    return end_landed(workspace.again(time_limit=limit, patience=limit))


def beat(
    workspace: Workspace, service: GuardService, renewable: Sequence[tuple[str, Lease]]
) -> None:
    """Renew those of these leases, given with their layers, whose layer is due.

    What has landed is completed instead. Nobody waits for it: messages go to the inbox.
    """
    from gitlease.guard.service import renew_known

    due = service.due(renewable)
    for space in workspace.in_use if due else ():
        ended = space.ledger.finish_landed()
        workspace.inbox.leave(ended.warnings)
        ids = {view.lease_id for view in ended.leases}
        here = [lease for layer, lease in renewable if layer == space.layer and layer in due]
        leases = [lease for lease in here if lease.lease_id not in ids]
        messages = renew_known(space.ledger, leases) if leases else []
        if leases or ids:
            service.refresh()
            workspace.inbox.leave([*messages, *service.lost()])


class _CloneChore(Chore):
    """A chore that only a clone has."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace


class _LearntMain(_CloneChore):
    """Learns what this clone lacks of the main branch: once a minute, if a process lives long."""

    _at: Instant | None = None  # when it last learned

    def learn(self, session: LedgerSession) -> None:
        now = session.clock.now()
        if self._at is None or self._at.elapsed_at_most(now) >= LEARN_EVERY:
            self._at = now
            self._workspace.learn_main()

    def read(self, session: LedgerSession, head: Snapshot) -> tuple[str, ...]:
        self.learn(session)
        return ()


class _DeadRuns(_CloneChore):
    """Ends what dead runs of this clone hold; ``runs`` is loaded once there is a record of one."""

    def before(self, session: LedgerSession) -> tuple[str, ...]:
        runs = _recorded_runs(self._workspace.place.private, self._workspace.clock)
        if runs is None:
            return ()
        from gitlease.runs.dead_runs import end_dead_runs

        return end_dead_runs(session, runs, lambda: self._workspace.everywhere()[1:])

    def rehearsed(self, session: LedgerSession) -> Sequence[Operation]:
        runs = _recorded_runs(self._workspace.place.private, self._workspace.clock)
        if runs is None:
            return ()
        from gitlease.runs.dead_runs import dead_runs_of

        return [end for _, ends in dead_runs_of(session, runs) for end in ends]


class _LandedTasks(_CloneChore):
    """Ends leases of landed tasks; ``tasks.landed`` is loaded once it matters what has landed."""

    _loaded: LandedTasks | None = None

    def __init__(self, workspace: Workspace, watched: Watched) -> None:
        super().__init__(workspace)
        self._watched = watched

    def watch(self, session: LedgerSession) -> None:
        # Only a task file can say that work is done.
        files = self._workspace.place.task_files()
        if files.may_exist() and any(lease.edge for lease in session.own_live()):
            self._chore.watch(session)

    def has_landed(self, session: LedgerSession) -> bool:
        return self._loaded is not None and self._loaded.has_landed(session)

    def landed(
        self, session: LedgerSession, leases: Sequence[Lease], *, ended: str | None = None
    ) -> Answer | None:
        has_tasks = any(lease.edge for lease in leases)
        return self._chore.landed(session, leases, ended=ended) if has_tasks else None

    def remarks(self, session: LedgerSession, leases: Sequence[Lease]) -> tuple[str, ...]:
        has_tasks = any(lease.edge for lease in leases)
        return self._chore.remarks(session, leases) if has_tasks else ()

    @property
    def _chore(self) -> LandedTasks:
        if self._loaded is None:
            from gitlease.tasks.landed import LandedTasks

            self._loaded = LandedTasks(
                self._workspace, self._watched, running=self._running, may_fetch=self._may_fetch
            )
        return self._loaded

    def _running(self) -> Sequence[str]:
        runs = _recorded_runs(self._workspace.place.private, self._workspace.clock)
        if runs is None:
            return ()
        return [run.session for run in runs.alive() if not runs.is_dead(run)]

    def _may_fetch(self, main: str) -> bool:
        private, now = self._workspace.place.private, self._workspace.clock.now().wall_ms
        return is_due(private, f"main {main}", every=FETCH_EVERY, now=now / MS)


def _recorded_runs(private: str, clock: Clock) -> RunsFolder | None:
    """The runs of a clone; their module is loaded once there is a record of one."""
    with contextlib.suppress(OSError):
        if os.listdir(os.path.join(private, "alive")):
            from gitlease.runs.records import RunsFolder

            return RunsFolder(private, clock.now().boot_id)
    return None


def edge_rules(settings: Settings, mailmap: Mapping[str, str] | None = None) -> EdgeRules:
    """The settings of edges, with the mailmap that says which addresses are one person's."""
    return EdgeRules(
        people=People(
            settings.people,
            handles=settings.handles,
            usual={} if mailmap is None else mailmap,
        ),
        statuses={Progress(name): words for name, words in settings.tasks.statuses.items()},
        required=settings.tasks.required,
        commit=settings.edges_commit,
    )


def write_default_settings(
    repository: Repository, accept: Callable[[SuggestedSettings], bool] = lambda _: True
) -> tuple[str, SuggestedSettings] | None:
    """Write a commented ``.gitlease.yaml`` that fits the task files, unless there is one.

    The file has only defaults where a proposal is not accepted. Returns its path and what was
    written; None if nothing was.
    """
    path = os.path.join(repository.toplevel or "", FILE)
    if repository.toplevel is None or os.path.lexists(path):
        return None
    from gitlease.tasks.propose import fitting_settings

    suggested = fitting_settings(repository)
    from gitlease.kernel.settings.text import SuggestedSettings

    if suggested.proposed and not accept(suggested):
        from gitlease.kernel.settings.text import settings_yaml

        suggested = SuggestedSettings(settings_yaml(), headed=suggested.headed)
    try:
        with open(path, "x", encoding="utf-8") as file:
            file.write(suggested.text)
    except FileExistsError:
        return None
    except OSError as error:
        raise Invalid(f"{path} cannot be written: {error.strerror}") from None
    return path, suggested


def proposed_settings(workspace: Workspace, known: Sequence[Task]) -> SuggestedSettings | None:
    """Settings that fit the tasks seen, or if there are none, files that no setting is about."""
    settings = workspace.settings
    if known:
        from gitlease.tasks.propose import fitting_words

        people = edge_rules(settings).people
        return fitting_words(workspace.repository, known, settings.tasks.statuses, people)
    about_tasks = (x.source for name, x in settings.found.items() if name.startswith("tasks."))
    if workspace.repository.toplevel is None or {*about_tasks} != {BUILT_IN}:
        return None
    from gitlease.tasks.propose import fitting_settings

    return fitting_settings(workspace.repository)


def tasks_seen(workspace: Workspace) -> TaskList:
    """The tasks of the work tree by the settings file as it is now."""
    now = load_settings(workspace.repository, environ={}, flags={})
    # The place of the ledger, beside which edges are noted, stays as it is.
    settings = replace(workspace.settings, tasks=now.tasks)
    return replace(workspace.place, settings=settings).task_files().read()


def record_ledger(workspace: Workspace, ledger_id: str | None) -> tuple[bool, tuple[str, ...]]:
    """Record the id of the global ledger on the remote in the work tree's settings file.

    With it goes the prefix of its refs, where that file does not set it. Returns whether it was
    written, and warnings. What is committed already stays as it is.
    """
    location, repository = workspace.location, workspace.repository
    shared = location.url is not None and workspace.layer == GLOBAL_LAYER
    if not shared or ledger_id is None or repository.toplevel is None:
        return False, ()
    committed = None
    with contextlib.suppress(Unreadable):
        committed = recorded_id(repository, remotes_of_work(location, repository))
    found, wanted = workspace.settings.found, {LEDGER: ledger_id}
    if not found[PREFIX].source.startswith((BUILT_IN, FILE)):
        wanted[PREFIX] = found[PREFIX].value
    elif ledger_id in (committed, found[LEDGER].value):
        return False, ()
    from gitlease.kernel.settings.text import record

    if (written := record(repository, wanted)) is not False:
        return bool(written), ()
    words = ", ".join(f"{name.removeprefix('lease.')}: {wanted[name]}" for name in wanted)
    return False, (f"add this to {FILE} by hand, and commit it: lease: {{{words}}}",)


__all__ = [
    "Found",
    "Repository",
    "Setting",
    "Workspace",
    "discover",
    "open_workspace",
    "proposed_settings",
    "record_ledger",
    "set_config",
    "tasks_seen",
    "without_secrets",
    "write_default_settings",
]
