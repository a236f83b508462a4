"""Opens a repository for git's hooks: light, since that happens with every commit."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from gitlease.guard.callers import pushing_git
from gitlease.guard.hooks import Hooks, HookWorktree
from gitlease.guard.notes import is_due, start_detached
from gitlease.guard.service import GuardService, retry_interval
from gitlease.kernel.git.repository import Repository, discover
from gitlease.kernel.git.run import SystemClock, clean_environment, wait_for_end
from gitlease.kernel.ledger.ports import Clock, Inbox
from gitlease.kernel.rules.frozen import dataclass
from gitlease.kernel.settings.identity import Identity, resolve_identity
from gitlease.wiring.ledger import LedgerPlace, open_place

if TYPE_CHECKING:
    from gitlease.kernel.ledger.ledger_session import LedgerSession
    from gitlease.wiring.workspace import Workspace


LONGEST_PUSH = 600.0  # seconds for which the end of a push is waited for


@dataclass(frozen=True)
class HookContext:
    """The services of a hook of git."""

    repository: Repository
    identity: Identity
    place: LedgerPlace
    hooks: Hooks
    guard: GuardService
    inbox: Inbox
    clock: Clock
    environ: Mapping[str, str]

    def start_beat(self) -> bool:
        """Start a process that renews what this run holds, if that is due; whether it was started.

        Of git's environment it gets only where the repository is.
        """
        renewable = self.guard.renewable()
        if not self.guard.due(renewable):
            return False
        every = retry_interval(lease for _, lease in renewable)
        run = f"{self.identity.actor.holder} {self.identity.actor.session}"
        if not is_due(self.place.private, run, every=every):
            return False
        return self._start("beat")

    def look_for_landed(self, *, pushed: bool = True) -> bool:
        """Start a process that completes leases of landed tasks, if any are held.

        ``pushed``: this push lands them. Git has no hook for its end, so the process waits for git
        itself.
        """
        if not any(lease.edge for _, lease in self.guard.renewable()):
            return False
        if not pushed:
            return self._start("landed")
        pid, started = pushing_git()
        return pid > 0 and self._start("landed", str(pid), started)

    def wait_for_end(self, pid: int, started: str) -> None:
        """Wait until the process that started then has ended, but not for ever."""
        wait_for_end(pid, started, seconds=LONGEST_PUSH)

    def _start(self, *words: str) -> bool:
        env = clean_environment(self.environ)
        env |= {k: v for k, v in self.environ.items() if k in ("GIT_DIR", "GIT_WORK_TREE")}
        top = self.repository.toplevel or self.repository.git_dir
        return start_detached(["hook", *words], cwd=top, env=env)

    def beat(self) -> None:
        """Renew what this run holds, one push for each due layer. What has landed is completed."""
        renewable = self.guard.renewable()
        if self.guard.due(renewable):
            from gitlease.wiring.workspace import beat

            beat(self._workspace(), self.guard, renewable)

    def end_landed(self) -> None:
        """Complete leases of landed tasks; messages go to the inbox."""
        from gitlease.wiring.workspace import end_landed

        self.inbox.leave(end_landed(self._workspace()))
        self.guard.refresh()

    def _workspace(self) -> Workspace:
        # Loaded only here: most hooks decide from what this clone knows already, and every commit
        # would pay for the rest.
        from gitlease.wiring.workspace import open_workspace

        top = self.repository.toplevel or self.repository.git_dir
        return open_workspace(top, environ=self.environ, clock=self.clock, brief=True)


def open_hooks(
    directory: str = ".",
    *,
    environ: Mapping[str, str] | None = None,
    clock: Clock | None = None,
) -> HookContext:
    """Open the repository around ``directory`` for a hook of git. Asks no remote.

    Raises what ``open_workspace`` raises.
    """
    environ = os.environ if environ is None else environ
    clock = clock or SystemClock()
    repository = discover(directory)
    place = open_place(repository, environ, brief=True)
    settings = place.settings
    identity = resolve_identity(repository, environ=environ, session_flag=None, no_session=False)
    guard = place.guard(identity.actor, clock)

    def ledger() -> LedgerSession:
        # Only a commit that starts a task asks the ledger itself, and then no longer than a guard
        # may wait for a remote.
        from gitlease.wiring.workspace import open_workspace

        limit = float(settings.guard_timeout)
        return open_workspace(
            directory, environ=environ, clock=clock, time_limit=limit, brief=True
        ).ledger

    worktree = HookWorktree(
        repository,
        settings.tasks,
        environ=environ,
        ref_prefix=settings.ref_prefix,
        shared=place.location.name,
        holder=identity.actor.holder,
        people=settings.people,
        bots=settings.bots,
    )
    return HookContext(
        repository=repository,
        identity=identity,
        place=place,
        hooks=Hooks(
            worktree,
            guard,
            ledger,
            mode=settings.guard_mode,
            offline=settings.guard_offline,
        ),
        guard=guard,
        inbox=place.inbox(identity.actor),
        clock=clock,
        environ=environ,
    )


def has_hooks(repository: Repository) -> bool:
    """Tell whether hooks were installed in this clone, as its private folder says."""
    return os.path.exists(os.path.join(repository.common_dir, "gitlease", "program"))


def probe_answer(name: str, program: str) -> str:
    """The answer to the probe whether git calls us; ``""`` if this is not one."""
    if not os.environ.get("GITLEASE_PROBE"):  # asked here, so that no hook loads the rest
        return ""
    from gitlease.guard.hook_places import ANSWER, HOOKS, VERSION

    return f"{ANSWER} {name} v{VERSION} {program}" if name in HOOKS else ""
