"""The verbs of ``gitlease.open`` and ``open_async``.

Written by `python tests/record.py library` from the table of verbs: do not edit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from gitlease.kernel.ledger.sessions import OwnSession
from gitlease.kernel.ledger.watch import WatchEvent
from gitlease.kernel.rules.edge import Task
from gitlease.library.methods import Duration, ResourceLike, StrPath, library_verb
from gitlease.library.values import (
    Board,
    InitResult,
    Lease,
    LedgerStatus,
    LogEntry,
    QueueReading,
    RunResult,
    WhoAmI,
    WorkResult,
)
from gitlease.tasks.queue import Entry
from gitlease.wiring.workspace import Setting

if TYPE_CHECKING:
    from gitlease.check.replay import Verified
    from gitlease.check.rules import CheckResult
    from gitlease.landing.landing import Landed
    from gitlease.runs.verbs import WorkEvent

T = TypeVar("T")


class LeaseVerbs(Protocol):
    """The verbs of ``Leases``."""

    def _carry_out(self, name: str, given: Mapping[str, Any]) -> Any:
        """Carry out the method of this name with these arguments."""

    @library_verb
    def claim(
        self,
        resource: ResourceLike,
        *,
        paths: Iterable[StrPath] = (),
        scope: str | None = None,
        ttl: Duration | None = None,
        wait: Duration | None = None,
        reason: str | None = None,
        takeover: bool = False,
        expect_holder: str | None = None,
        reopen: bool = False,
        any: bool = False,
        new: bool = False,
        commit: bool | None = None,
        dry_run: bool = False,
    ) -> Lease:
        """Take a lease on each ``resource``: on all of them, or on none.

        paths: Cover this path, too.
        scope: Claim only this part of the work (default: all of it).
        ttl: How long the lease lasts unless renewed (15m, 1h).
        wait: Wait at most this long until it is free.
        reason: Why; shown to anyone who is refused.
        takeover: Replace someone else's assignment; needs a reason.
        expect_holder: With a takeover: only if it is assigned to H.
        reopen: Claim completed work again.
        any: Accept names that are not tasks.
        new: Refuse a lease you already hold instead of renewing it.
        commit: Commit the edit of the task file by itself, or leave it in the work tree
          (default: edges.commit).
        dry_run: Say what the claim would do, and write nothing.

        Raises LeaseHeld, WaitTimeout, UsageError, Denied, Unavailable, UnknownOutcome,
        PolicyRefused, Invalid, NotFound, Rollback.
        """
        given: dict[str, Any] = {
            "resource": resource,
            "paths": paths,
            "scope": scope,
            "ttl": ttl,
            "wait": wait,
            "reason": reason,
            "takeover": takeover,
            "expect_holder": expect_holder,
            "reopen": reopen,
            "any": any,
            "new": new,
            "commit": commit,
            "dry_run": dry_run,
        }
        answer: Lease = self._carry_out("claim", given)
        return answer

    @library_verb
    def claim_all(
        self,
        resources: Iterable[ResourceLike],
        *,
        paths: Iterable[StrPath] = (),
        scope: str | None = None,
        ttl: Duration | None = None,
        wait: Duration | None = None,
        reason: str | None = None,
        takeover: bool = False,
        expect_holder: str | None = None,
        reopen: bool = False,
        any: bool = False,
        new: bool = False,
        commit: bool | None = None,
        dry_run: bool = False,
    ) -> tuple[Lease, ...]:
        """Take a lease on each ``resource``: on all of them, or on none.

        paths: Cover this path, too.
        scope: Claim only this part of the work (default: all of it).
        ttl: How long the lease lasts unless renewed (15m, 1h).
        wait: Wait at most this long until it is free.
        reason: Why; shown to anyone who is refused.
        takeover: Replace someone else's assignment; needs a reason.
        expect_holder: With a takeover: only if it is assigned to H.
        reopen: Claim completed work again.
        any: Accept names that are not tasks.
        new: Refuse a lease you already hold instead of renewing it.
        commit: Commit the edit of the task file by itself, or leave it in the work tree
          (default: edges.commit).
        dry_run: Say what the claim would do, and write nothing.

        Raises LeaseHeld, WaitTimeout, UsageError, Denied, Unavailable, UnknownOutcome,
        PolicyRefused, Invalid, NotFound, Rollback.
        """
        given: dict[str, Any] = {
            "resources": resources,
            "paths": paths,
            "scope": scope,
            "ttl": ttl,
            "wait": wait,
            "reason": reason,
            "takeover": takeover,
            "expect_holder": expect_holder,
            "reopen": reopen,
            "any": any,
            "new": new,
            "commit": commit,
            "dry_run": dry_run,
        }
        answer: tuple[Lease, ...] = self._carry_out("claim_all", given)
        return answer

    @library_verb
    def claim_one(
        self,
        resources: Iterable[ResourceLike],
        *,
        paths: Iterable[StrPath] = (),
        scope: str | None = None,
        ttl: Duration | None = None,
        wait: Duration | None = None,
        reason: str | None = None,
        reopen: bool = False,
        any: bool = False,
        commit: bool | None = None,
        dry_run: bool = False,
    ) -> Lease:
        """Take a lease on the first of these that is free, or with `wait` on the first that
        becomes free. Your own live leases count as taken.

        paths: Cover this path, too.
        scope: Claim only this part of the work (default: all of it).
        ttl: How long the lease lasts unless renewed (15m, 1h).
        wait: Wait at most this long until it is free.
        reason: Why; shown to anyone who is refused.
        reopen: Claim completed work again.
        any: Accept names that are not tasks.
        commit: Commit the edit of the task file by itself, or leave it in the work tree
          (default: edges.commit).
        dry_run: Say what the claim would do, and write nothing.

        Raises LeaseHeld, WaitTimeout, UsageError, Denied, Unavailable, UnknownOutcome,
        PolicyRefused, Invalid, NotFound, Rollback.
        """
        given: dict[str, Any] = {
            "resources": resources,
            "paths": paths,
            "scope": scope,
            "ttl": ttl,
            "wait": wait,
            "reason": reason,
            "reopen": reopen,
            "any": any,
            "commit": commit,
            "dry_run": dry_run,
        }
        answer: Lease = self._carry_out("claim_one", given)
        return answer

    @library_verb
    def renew(
        self,
        resource: ResourceLike,
        *,
        ttl: Duration | None = None,
        scope: str | None = None,
    ) -> Lease:
        """The heartbeat: each lease lasts for its full TTL again, counted from now.

        ttl: The TTL from now on (default: as before).
        scope: Only this scope (default: all scopes you hold).

        Raises UsageError, LeaseLost, NotHolder, Denied, Unavailable, UnknownOutcome,
        PolicyRefused, Invalid, NotFound, Rollback.
        """
        given: dict[str, Any] = {"resource": resource, "ttl": ttl, "scope": scope}
        answer: Lease = self._carry_out("renew", given)
        return answer

    @library_verb
    def renew_all(self, *, ttl: Duration | None = None) -> tuple[Lease, ...]:
        """Renew everything of this session in every layer that this clone uses, a push for each.
        If any was lost, the rest is renewed first.

        ttl: The TTL from now on (default: as before).

        Raises UsageError, LeaseLost, NotHolder, Denied, Unavailable, UnknownOutcome,
        PolicyRefused, Invalid, NotFound, Rollback.
        """
        given: dict[str, Any] = {"ttl": ttl}
        answer: tuple[Lease, ...] = self._carry_out("renew_all", given)
        return answer

    @library_verb
    def extend(
        self,
        resource: ResourceLike,
        duration: Duration,
        *,
        scope: str | None = None,
    ) -> Lease:
        """Make a lease last at least ``duration`` from now, for a gap without renewals.

        scope: Only this scope (default: all scopes you hold).

        Raises UsageError, LeaseLost, NotHolder, Denied, Unavailable, UnknownOutcome,
        PolicyRefused, Invalid, NotFound, Rollback.
        """
        given: dict[str, Any] = {"resource": resource, "duration": duration, "scope": scope}
        answer: Lease = self._carry_out("extend", given)
        return answer

    @library_verb
    def release(
        self,
        resource: ResourceLike,
        *,
        note: str | None = None,
        keep: bool = False,
        keep_status: bool = False,
        commit: bool | None = None,
        scope: str | None = None,
    ) -> None:
        """Give leases back, so that others need not wait for them to expire.

        note: Leave a note for the next holder.
        keep: End the lease, and keep the task yours until you claim it by name.
        keep_status: Leave the status in the task file as it is.
        commit: Commit the edit of the task file by itself, or leave it in the work tree
          (default: edges.commit).
        scope: Only this scope (default: all scopes you hold).

        Raises LeaseHeld, WaitTimeout, UsageError, Denied, Unavailable, UnknownOutcome,
        PolicyRefused, Invalid, NotFound, Rollback.
        """
        given: dict[str, Any] = {
            "resource": resource,
            "note": note,
            "keep": keep,
            "keep_status": keep_status,
            "commit": commit,
            "scope": scope,
        }
        self._carry_out("release", given)

    @library_verb
    def done(
        self,
        resource: ResourceLike,
        *,
        any: bool = False,
        commit: bool | None = None,
        scope: str | None = None,
    ) -> None:
        """Finish the work: your lease is completed, and its notes are cleared.

        any: Accept names that are not tasks.
        commit: Commit the edit of the task file by itself, or leave it in the work tree
          (default: edges.commit).
        scope: Only this scope (default: all scopes you hold).

        Raises LeaseHeld, WaitTimeout, UsageError, Denied, Unavailable, UnknownOutcome,
        PolicyRefused, Invalid, NotFound, Rollback.
        """
        given: dict[str, Any] = {"resource": resource, "any": any, "commit": commit, "scope": scope}
        self._carry_out("done", given)

    @library_verb
    def land(
        self,
        resource: ResourceLike | None = None,
        *,
        base: str | None = None,
        by: Literal["rebase", "merge"] | None = None,
        check: str | Sequence[str] | None = None,
        unfenced: bool = False,
        no_verify: bool = False,
    ) -> Landed:
        """Finish a task and push its work, in one step that cannot half happen.

        base: Land on this branch (default: the remote's main branch).
        by: How to bring it onto a base that has moved on.
        check: Run CMD on the result first; no shell reads it.
        unfenced: Land where the host has no atomic pushes, without a fence.
        no_verify: Without your pre-push hooks; the fence stays.

        Raises LeaseHeld, UsageError, LeaseLost, NotHolder, Denied, Unavailable, UnknownOutcome,
        PolicyRefused, Invalid, NotFound, Rollback.
        """
        given: dict[str, Any] = {
            "resource": resource,
            "base": base,
            "by": by,
            "check": check,
            "unfenced": unfenced,
            "no_verify": no_verify,
        }
        answer: Landed = self._carry_out("land", given)
        return answer

    @library_verb
    def note(self, resource: ResourceLike, text: str, *, to_holder: bool = False) -> None:
        """Leave a note for the next holder of ``resource``. Anyone may, with or without a lease.

        to_holder: Show it to whoever holds it now, too, once and soon.

        Raises UsageError, Denied, Unavailable, UnknownOutcome, PolicyRefused, Invalid,
        NotFound, Rollback.
        """
        given: dict[str, Any] = {"resource": resource, "text": text, "to_holder": to_holder}
        self._carry_out("note", given)

    @library_verb
    def next_task(self, *, ref: str | None = None, cached: bool = False) -> Task:
        """Show the next task: the first that you may claim and that waits for no other task.

        ref: Read the task files of this branch, tag or commit (default: the work tree).
        cached: Answer from what this clone knows, without asking the remote.

        Raises NothingLeft, UsageError, Denied, Unavailable, UnknownOutcome, PolicyRefused,
        Invalid, NotFound, Rollback.
        """
        given: dict[str, Any] = {"ref": ref, "cached": cached}
        answer: Task = self._carry_out("next_task", given)
        return answer

    @library_verb
    def claim_next(
        self,
        *,
        ttl: Duration | None = None,
        reason: str | None = None,
        commit: bool | None = None,
    ) -> Lease:
        """Claim the next task of the queue: two callers never get the same.

        ttl: How long the lease lasts unless renewed (15m, 1h).
        reason: Why; shown to anyone who is refused.
        commit: Commit the edit of the task file by itself, or leave it in the work tree
          (default: edges.commit).

        Raises NothingLeft, UsageError, Denied, Unavailable, UnknownOutcome, PolicyRefused,
        Invalid, NotFound, Rollback.
        """
        given: dict[str, Any] = {"ttl": ttl, "reason": reason, "commit": commit}
        answer: Lease = self._carry_out("claim_next", given)
        return answer

    @library_verb
    def start(
        self,
        resource: ResourceLike,
        *,
        ttl: Duration | None = None,
        wait: Duration | None = None,
        reason: str | None = None,
        takeover: bool = False,
        expect_holder: str | None = None,
        reopen: bool = False,
        commit: bool | None = None,
        scope: str | None = None,
        paths: Iterable[StrPath] = (),
    ) -> Lease:
        """Claim a task and set its status to in progress.

        ttl: How long the lease lasts unless renewed (15m, 1h).
        wait: Wait at most this long until it is free.
        reason: Why; shown to anyone who is refused.
        takeover: Replace someone else's assignment; needs a reason.
        expect_holder: With a takeover: only if it is assigned to H.
        reopen: Claim completed work again.
        commit: Commit the edit of the task file by itself, or leave it in the work tree
          (default: edges.commit).
        scope: Claim or finish only this part of the work.
        paths: Cover these paths, too.

        Raises LeaseHeld, WaitTimeout, UsageError, Denied, Unavailable, UnknownOutcome,
        PolicyRefused, Invalid, NotFound, Rollback.
        """
        given: dict[str, Any] = {
            "resource": resource,
            "ttl": ttl,
            "wait": wait,
            "reason": reason,
            "takeover": takeover,
            "expect_holder": expect_holder,
            "reopen": reopen,
            "commit": commit,
            "scope": scope,
            "paths": paths,
        }
        answer: Lease = self._carry_out("start", given)
        return answer

    @library_verb
    def set_status(
        self,
        resource: ResourceLike,
        status: str,
        *,
        ttl: Duration | None = None,
        wait: Duration | None = None,
        reason: str | None = None,
        takeover: bool = False,
        expect_holder: str | None = None,
        reopen: bool = False,
        commit: bool | None = None,
        scope: str | None = None,
        paths: Iterable[StrPath] = (),
    ) -> tuple[Lease, ...]:
        """Set the status of a task in its task file.

        ttl: How long the lease lasts unless renewed (15m, 1h).
        wait: Wait at most this long until it is free.
        reason: Why; shown to anyone who is refused.
        takeover: Replace someone else's assignment; needs a reason.
        expect_holder: With a takeover: only if it is assigned to H.
        reopen: Claim completed work again.
        commit: Commit the edit of the task file by itself, or leave it in the work tree
          (default: edges.commit).
        scope: Claim or finish only this part of the work.
        paths: Cover these paths, too.

        Raises LeaseHeld, WaitTimeout, UsageError, Denied, Unavailable, UnknownOutcome,
        PolicyRefused, Invalid, NotFound, Rollback.
        """
        given: dict[str, Any] = {
            "resource": resource,
            "status": status,
            "ttl": ttl,
            "wait": wait,
            "reason": reason,
            "takeover": takeover,
            "expect_holder": expect_holder,
            "reopen": reopen,
            "commit": commit,
            "scope": scope,
            "paths": paths,
        }
        answer: tuple[Lease, ...] = self._carry_out("set_status", given)
        return answer

    @library_verb
    def add(
        self,
        title: str,
        *,
        id: ResourceLike | None = None,
        depends_on: Iterable[ResourceLike] = (),
        paths: Iterable[StrPath] = (),
        priority: str | None = None,
    ) -> Task:
        """Add a task: a file in the form of the task files that are there.

        id: The task's id (default: the next one).
        depends_on: A task that has to be done before.
        paths: A path that its work is about.
        priority: Its priority, as other tasks have them.

        Raises UsageError, Denied, Unavailable, UnknownOutcome, Invalid, NotFound, Rollback.
        """
        given: dict[str, Any] = {
            "title": title,
            "id": id,
            "depends_on": depends_on,
            "paths": paths,
            "priority": priority,
        }
        answer: Task = self._carry_out("add", given)
        return answer

    @library_verb
    def run(
        self,
        command: Sequence[str],
        *resources: ResourceLike,
        next: bool = False,
        done: bool = False,
        note: str | None = None,
        grace: Duration | None = None,
        cwd: StrPath | None = None,
        one: bool = False,
        paths: Iterable[StrPath] = (),
        scope: str | None = None,
        ttl: Duration | None = None,
        wait: Duration | None = None,
        reason: str | None = None,
        takeover: bool = False,
        expect_holder: str | None = None,
        reopen: bool = False,
        any: bool = False,
        new: bool = False,
        commit: bool | None = None,
    ) -> RunResult:
        """Run a command under leases: claim all or none, renew, release at its end.

        The command is a list of words, not a shell line. Resources, or with `next` the first
        task of the queue, are claimed as by `claim`; each run has a session of its own unless
        one was named or it is in a `Session`. Its environment is this program's with
        ``GITLEASE_RESOURCE``, ``GITLEASE_TOKEN`` and the others of `gitlease run`.

        Signals sent to this program go to the command. Only for the main thread; elsewhere use
        `gitlease.hold` around your own command. Raises what `claim` raises, NotFound or Invalid
        for a command that cannot be executed, before anything is claimed, and LeaseLost if a
        lease was lost: then the command was stopped.

        next: Take the first task of the queue.
        done: Mark each task as done if COMMAND exits with 0.
        note: Leave a note for the next holder at the end.
        grace: Time from TERM to KILL (default: 10s; at most a sixth of the TTL).
        cwd: Its folder (default: the current one).
        one: Take the first RESOURCE that is free instead of all of them.
        paths: Cover this path, too.
        scope: Claim only this part of the work (default: all of it).
        ttl: How long the lease lasts unless renewed (15m, 1h).
        wait: Wait at most this long until it is free.
        reason: Why; shown to anyone who is refused.
        takeover: Replace someone else's assignment; needs a reason.
        expect_holder: With a takeover: only if it is assigned to H.
        reopen: Claim completed work again.
        any: Accept names that are not tasks.
        new: Refuse a lease you already hold instead of renewing it.
        commit: Commit the edit of the task file by itself, or leave it in the work tree
          (default: edges.commit).
        """
        given: dict[str, Any] = {
            "command": command,
            "resources": resources,
            "next": next,
            "done": done,
            "note": note,
            "grace": grace,
            "cwd": cwd,
            "one": one,
            "paths": paths,
            "scope": scope,
            "ttl": ttl,
            "wait": wait,
            "reason": reason,
            "takeover": takeover,
            "expect_holder": expect_holder,
            "reopen": reopen,
            "any": any,
            "new": new,
            "commit": commit,
        }
        answer: RunResult = self._carry_out("run", given)
        return answer

    @library_verb
    def work(
        self,
        command: Sequence[str],
        *,
        jobs: int = 1,
        worktrees: bool = False,
        base: str | None = None,
        forever: bool = False,
        done_on_success: bool = False,
        land: bool = False,
        pr: str | Sequence[str] | None = None,
        max_failures: int | None = None,
        budget: int | None = None,
        limit: Duration | None = None,
        share_log: int = 0,
        grace: Duration | None = None,
        cwd: StrPath | None = None,
        on_event: Callable[[WorkEvent], object] | None = None,
        by: Literal["rebase", "merge"] | None = None,
        check: str | Sequence[str] | None = None,
        unfenced: bool = False,
        no_verify: bool = False,
        ttl: Duration | None = None,
        reason: str | None = None,
        commit: bool | None = None,
    ) -> WorkResult:
        """A pool: run the command for one task of the queue after the other.

        As many as `jobs` run at once, each in the background with a lease, a session and a log
        of its own; the outcomes are those of `gitlease work`. It returns when the queue is
        empty, with `forever` when interrupted. Ctrl-C once: no new tasks; twice, or a TERM
        signal: the runs are stopped and their tasks released. If `on_event` raises, the runs
        are stopped and the pool ends.

        Each run is a fork of this program, so this is only for the main thread of a program
        without other threads. Raises UsageError otherwise, NotFound or Invalid for a command
        that cannot be executed, and permanent failures of a claim, once all runs have ended.

        jobs: Number of tasks at once (1 to 64; default: 1).
        worktrees: Give each task its own linked work tree and branch.
        base: With --worktrees: where branches start (default: the remote's main branch).
        forever: Wait for more when no task is left to claim.
        done_on_success: Mark a task as done if its command exits with 0.
        land: Land the work of a command that exits with 0 (implies --worktrees).
        pr: Instead hand its branch to CMD, for example 'gh pr create --fill'; no shell reads
          it.
        max_failures: Take no new tasks once N have failed.
        budget: Take no new tasks once N were taken.
        limit: Stop a command that takes longer, as a failure.
        share_log: Add the last N lines (1 to 100) of a failed command's log to its note.
        grace: Time from TERM to KILL (default: 10s; at most a sixth of the TTL).
        cwd: Its folder (default: the current one).
        on_event: Called with each event, in this thread.
        by: How to bring it onto a base that has moved on.
        check: Run CMD on the result first; no shell reads it.
        unfenced: Land where the host has no atomic pushes, without a fence.
        no_verify: Without your pre-push hooks; the fence stays.
        ttl: How long the lease lasts unless renewed (15m, 1h).
        reason: Why; shown to anyone who is refused.
        commit: Commit the edit of the task file by itself, or leave it in the work tree
          (default: edges.commit).

        Raises UsageError, Denied, Unavailable, UnknownOutcome, Invalid, NotFound, Rollback.
        """
        given: dict[str, Any] = {
            "command": command,
            "jobs": jobs,
            "worktrees": worktrees,
            "base": base,
            "forever": forever,
            "done_on_success": done_on_success,
            "land": land,
            "pr": pr,
            "max_failures": max_failures,
            "budget": budget,
            "limit": limit,
            "share_log": share_log,
            "grace": grace,
            "cwd": cwd,
            "on_event": on_event,
            "by": by,
            "check": check,
            "unfenced": unfenced,
            "no_verify": no_verify,
            "ttl": ttl,
            "reason": reason,
            "commit": commit,
        }
        answer: WorkResult = self._carry_out("work", given)
        return answer

    @library_verb
    def fence(self, resource: ResourceLike, token: int, *, scope: str | None = None) -> Lease:
        """Check whether the live lease of ``resource`` still has this ``token``: exit 0 if so,
        else 3.

        scope: Only this scope (default: the one with the token).

        Raises UsageError, LeaseLost, NotHolder, Denied, Unavailable, UnknownOutcome, Invalid,
        NotFound, Rollback.
        """
        given: dict[str, Any] = {"resource": resource, "token": token, "scope": scope}
        answer: Lease = self._carry_out("fence", given)
        return answer

    @library_verb
    def wait(
        self,
        *resources: ResourceLike,
        timeout: Duration | None = None,
        scope: str | None = None,
    ) -> None:
        """Wait until all RESOURCEs are free at the same time, so that you could claim them.

        timeout: Wait at most this long (default: forever).
        scope: Only this part of the work (default: all of it).

        Raises WaitTimeout, UsageError, Denied, Unavailable, UnknownOutcome, PolicyRefused,
        Invalid, NotFound, Rollback.
        """
        given: dict[str, Any] = {"resources": resources, "timeout": timeout, "scope": scope}
        self._carry_out("wait", given)

    @library_verb
    def watch(
        self,
        *resources: ResourceLike,
        timeout: Duration | None = None,
        scope: str | None = None,
    ) -> Iterator[WatchEvent]:
        """Yield the events of leases, of these resources or of all. The first `next` reads the
        remote, and raises what that raises; later an unreachable remote is waited for.

        timeout: Stop after this long (default: never).
        scope: Only leases that overlap this scope.

        Raises UsageError, Denied, Unavailable, UnknownOutcome, Invalid, NotFound, Rollback.
        """
        given: dict[str, Any] = {"resources": resources, "timeout": timeout, "scope": scope}
        answer: Iterator[WatchEvent] = self._carry_out("watch", given)
        return answer

    @library_verb
    def sessions(self, *, cached: bool = False) -> tuple[OwnSession, ...]:
        """List your sessions that hold leases.

        cached: Answer from what this clone knows, without asking the remote.

        Raises UsageError, Denied, Unavailable, UnknownOutcome, Invalid, NotFound, Rollback.
        """
        given: dict[str, Any] = {"cached": cached}
        answer: tuple[OwnSession, ...] = self._carry_out("sessions", given)
        return answer

    @library_verb
    def end_session(
        self,
        id: str | None = None,
        *,
        all: bool = False,
        release: bool = False,
        note: str | None = None,
        commit: bool | None = None,
    ) -> tuple[Lease, ...]:
        """End the leases of one of your sessions (default: this one) in every layer in use. Your
        tasks stay assigned to you; leases on anything else are released.

        all: End all your sessions.
        release: Also unassign yourself from the tasks.
        note: Leave a note on each resource.
        commit: Commit the edit of the task file by itself, or leave it in the work tree
          (default: edges.commit).

        Raises LeaseHeld, UsageError, Denied, Unavailable, UnknownOutcome, PolicyRefused,
        Invalid, NotFound, Rollback.
        """
        given: dict[str, Any] = {
            "id": id,
            "all": all,
            "release": release,
            "note": note,
            "commit": commit,
        }
        answer: tuple[Lease, ...] = self._carry_out("end_session", given)
        return answer

    @library_verb
    def list(
        self,
        *,
        mine: bool = False,
        all: bool = False,
        cached: bool = False,
    ) -> tuple[Lease, ...]:
        """List the leases of the ledger, and whose they are.

        mine: Only leases of this session.
        all: Include lapsed, completed, released and revoked leases.
        cached: Answer from what this clone knows, without asking the remote.

        Raises UsageError, Denied, Unavailable, UnknownOutcome, Invalid, NotFound, Rollback.
        """
        given: dict[str, Any] = {"mine": mine, "all": all, "cached": cached}
        answer: tuple[Lease, ...] = self._carry_out("list", given)
        return answer

    @library_verb
    def show(
        self,
        resource: ResourceLike,
        *,
        ref: str | None = None,
        scope: str | None = None,
        cached: bool = False,
    ) -> tuple[Lease, ...]:
        """Show one resource: its holder, where, until when and why, its notes, who waits for it,
        and which of its leases were released or revoked lately.

        ref: Read the task files of this branch, tag or commit (default: the work tree).
        scope: Only leases that overlap this scope.
        cached: Answer from what this clone knows, without asking the remote.

        Raises UsageError, Denied, Unavailable, UnknownOutcome, Invalid, NotFound, Rollback.
        """
        given: dict[str, Any] = {"resource": resource, "ref": ref, "scope": scope, "cached": cached}
        answer: tuple[Lease, ...] = self._carry_out("show", given)
        return answer

    @library_verb
    def log(
        self,
        resource: ResourceLike | None = None,
        *,
        limit: int = 50,
        since: Duration | datetime | None = None,
        cached: bool = False,
    ) -> tuple[LogEntry, ...]:
        """Show the audit trail, newest first: who claimed, took over, released, revoked, and why.

        limit: Show at most N events (default: 50).
        since: Only events since a UTC time (2026-01-31T10:00Z) or for a duration (2d).
        cached: Answer from what this clone knows, without asking the remote.

        Raises UsageError, Denied, Unavailable, UnknownOutcome, Invalid, NotFound, Rollback.
        """
        given: dict[str, Any] = {
            "resource": resource,
            "limit": limit,
            "since": since,
            "cached": cached,
        }
        answer: tuple[LogEntry, ...] = self._carry_out("log", given)
        return answer

    @library_verb
    def status(self, *, cached: bool = False) -> LedgerStatus:
        """Show the ledger at a glance: where it is, how many leases are live, and which sessions
        are active.

        cached: Answer from what this clone knows, without asking the remote.

        Raises UsageError, Denied, Unavailable, UnknownOutcome, Invalid, NotFound, Rollback.
        """
        given: dict[str, Any] = {"cached": cached}
        answer: LedgerStatus = self._carry_out("status", given)
        return answer

    @library_verb
    def whoami(self) -> WhoAmI:
        """Show your holder and session in the ledger, and the source of each.

        Raises UsageError, Invalid, NotFound, Rollback.
        """
        given: dict[str, Any] = {}
        answer: WhoAmI = self._carry_out("whoami", given)
        return answer

    @library_verb
    def queue(self, *, ref: str | None = None, cached: bool = False) -> tuple[Entry, ...]:
        """Every task, best first, and whether it may be claimed.

        ref: Read the task files of this branch, tag or commit (default: the work tree).
        cached: Answer from what this clone knows, without asking the remote.

        Raises UsageError, Denied, Unavailable, UnknownOutcome, Invalid, NotFound, Rollback.
        """
        given: dict[str, Any] = {"ref": ref, "cached": cached}
        answer: tuple[Entry, ...] = self._carry_out("queue", given)
        return answer

    @library_verb
    def brief(self, *, ref: str | None = None, cached: bool = False) -> QueueReading:
        """Show one page to start a session with: who you are, your tasks and leases, recent losses
        and the reasons, notes for you, leases of others in the layers that this clone uses, and
        the next tasks.

        ref: Read the task files of this branch, tag or commit (default: the work tree).
        cached: Answer from what this clone knows, without asking the remote.

        Raises UsageError, Denied, Unavailable, UnknownOutcome, Invalid, NotFound, Rollback.
        """
        given: dict[str, Any] = {"ref": ref, "cached": cached}
        answer: QueueReading = self._carry_out("brief", given)
        return answer

    @library_verb
    def init(
        self,
        *,
        undo_rollback: bool = False,
        accept_rollback: bool = False,
        restore: bool = False,
        now: bool = False,
        new_ledger: bool = False,
        move: bool = False,
    ) -> InitResult:
        """Set the repository up: make the ledger, and write ``.gitlease.yaml`` if there is none.

        Idempotent; accepts a ledger that was replaced. For one that was rolled back it raises
        Rollback, unless the choice is given; see `gitlease init --help`. A ledger that the
        settings do not record is refused, unless this remote is to have its own (`new_ledger`).
        An unreachable remote is a warning.

        undo_rollback: Restore the ledger that this clone has seen.
        accept_rollback: Accept a rolled-back ledger as it is now.
        restore: Bring a deleted ledger back, as this clone has seen it last.
        now: End the wait of a restored ledger: only once everybody has been asked.
        new_ledger: Use a ledger of this remote's own in place of the recorded one.
        move: Move the ledger to where the default branch says.

        Raises UsageError, Denied, Invalid, NotFound, Rollback.
        """
        given: dict[str, Any] = {
            "undo_rollback": undo_rollback,
            "accept_rollback": accept_rollback,
            "restore": restore,
            "now": now,
            "new_ledger": new_ledger,
            "move": move,
        }
        answer: InitResult = self._carry_out("init", given)
        return answer

    @library_verb
    def config(
        self,
        key: str | None = None,
        value: str | None = None,
        *,
        ledger: bool = False,
        cached: bool = False,
    ) -> tuple[Setting, ...]:
        """Show the effective settings with their sources, show one (KEY), or set one (KEY
        ``value``).

        value: Set it to this value.
        ledger: The ledger's policy instead of this clone's settings.
        cached: Answer from what this clone knows, without asking the remote.

        Raises UsageError, Denied, Unavailable, UnknownOutcome, PolicyRefused, Invalid,
        NotFound, Rollback.
        """
        given: dict[str, Any] = {"key": key, "value": value, "ledger": ledger, "cached": cached}
        answer: tuple[Setting, ...] = self._carry_out("config", given)
        return answer

    @library_verb
    def check_commits(self, range: str | None = None, *, cached: bool = False) -> CheckResult:
        """Check commits for changes to what others hold now: those of `range`, else the pull
        request or push that CI runs for, else the commits of HEAD that the default branch
        lacks. The settings are those of the commit before them.

        range: Like main..HEAD.
        cached: Answer from what this clone knows, without asking the remote.

        Raises UsageError, Denied, Unavailable, UnknownOutcome, PolicyRefused, Invalid,
        NotFound, Rollback.
        """
        given: dict[str, Any] = {"range": range, "cached": cached}
        answer: CheckResult = self._carry_out("check_commits", given)
        return answer

    @library_verb
    def check_stale(self, *, fix: bool = False, cached: bool = False) -> CheckResult:
        """Find claims that nobody works under any more, by the settings of the work tree, or in CI
        for a pull request by those of its base branch.

        fix: With --stale: release claims as the project's policy allows, each after a question.
        cached: Answer from what this clone knows, without asking the remote.

        Raises UsageError, Denied, Unavailable, UnknownOutcome, PolicyRefused, Invalid,
        NotFound, Rollback.
        """
        given: dict[str, Any] = {"fix": fix, "cached": cached}
        answer: CheckResult = self._carry_out("check_stale", given)
        return answer

    @library_verb
    def verify(
        self,
        ref: str | None = None,
        *,
        tips: Iterable[str] = (),
        cached: bool = False,
    ) -> Verified:
        """Replay a ledger's whole history, and compare each commit with what its operations come
        to.

        ref: A branch, ref or commit that holds a ledger.
        tips: A commit seen at the ledger's ref.
        cached: Answer from what this clone knows, without asking the remote.

        Raises UsageError, Denied, Unavailable, UnknownOutcome, Invalid, NotFound, Rollback.
        """
        given: dict[str, Any] = {"ref": ref, "tips": tips, "cached": cached}
        answer: Verified = self._carry_out("verify", given)
        return answer

    @library_verb
    def board(self, *, cached: bool = False) -> Board:
        """Show tasks and leases at a glance: held, waiting, expired, abandoned and free, with
        holder, place, reason and time left, those who wait, and recent events.

        cached: Answer from what this clone knows, without asking the remote.

        Raises UsageError, Denied, Unavailable, UnknownOutcome, Invalid, NotFound, Rollback.
        """
        given: dict[str, Any] = {"cached": cached}
        answer: Board = self._carry_out("board", given)
        return answer

    @library_verb
    def revoke(
        self,
        resource: ResourceLike | None = None,
        *,
        reason: str,
        expect_holder: str | None = None,
        record: str | None = None,
        scope: str | None = None,
    ) -> tuple[Lease, ...]:
        """End someone else's lease. Only the ledger's admins may; the holder is notified.

        reason: Why; shown to the holder.
        expect_holder: Only if H holds it.
        record: Remove this damaged record instead.
        scope: Only this scope (default: all).

        Raises LeaseHeld, WaitTimeout, UsageError, Denied, Unavailable, UnknownOutcome,
        PolicyRefused, Invalid, NotFound, Rollback.
        """
        given: dict[str, Any] = {
            "resource": resource,
            "reason": reason,
            "expect_holder": expect_holder,
            "record": record,
            "scope": scope,
        }
        answer: tuple[Lease, ...] = self._carry_out("revoke", given)
        return answer


class AwaitedLeaseVerbs(Protocol):
    """The verbs of ``AsyncLeases``."""

    async def _call(
        self, verb: Callable[..., T], args: Any, options: Any, *, grants: bool = False
    ) -> T:
        """Carry out a method in a thread of its own."""
        raise NotImplementedError

    @library_verb
    async def claim(
        self,
        resource: ResourceLike,
        *,
        paths: Iterable[StrPath] = (),
        scope: str | None = None,
        ttl: Duration | None = None,
        wait: Duration | None = None,
        reason: str | None = None,
        takeover: bool = False,
        expect_holder: str | None = None,
        reopen: bool = False,
        any: bool = False,
        new: bool = False,
        commit: bool | None = None,
        dry_run: bool = False,
    ) -> Lease:
        """Take a lease on each ``resource``: on all of them, or on none.

        paths: Cover this path, too.
        scope: Claim only this part of the work (default: all of it).
        ttl: How long the lease lasts unless renewed (15m, 1h).
        wait: Wait at most this long until it is free.
        reason: Why; shown to anyone who is refused.
        takeover: Replace someone else's assignment; needs a reason.
        expect_holder: With a takeover: only if it is assigned to H.
        reopen: Claim completed work again.
        any: Accept names that are not tasks.
        new: Refuse a lease you already hold instead of renewing it.
        commit: Commit the edit of the task file by itself, or leave it in the work tree
          (default: edges.commit).
        dry_run: Say what the claim would do, and write nothing.

        Raises LeaseHeld, WaitTimeout, UsageError, Denied, Unavailable, UnknownOutcome,
        PolicyRefused, Invalid, NotFound, Rollback.
        """
        options: dict[str, Any] = {
            "paths": paths,
            "scope": scope,
            "ttl": ttl,
            "wait": wait,
            "reason": reason,
            "takeover": takeover,
            "expect_holder": expect_holder,
            "reopen": reopen,
            "any": any,
            "new": new,
            "commit": commit,
            "dry_run": dry_run,
        }
        return await self._call(LeaseVerbs.claim, (resource,), options, grants=True)

    @library_verb
    async def claim_all(
        self,
        resources: Iterable[ResourceLike],
        *,
        paths: Iterable[StrPath] = (),
        scope: str | None = None,
        ttl: Duration | None = None,
        wait: Duration | None = None,
        reason: str | None = None,
        takeover: bool = False,
        expect_holder: str | None = None,
        reopen: bool = False,
        any: bool = False,
        new: bool = False,
        commit: bool | None = None,
        dry_run: bool = False,
    ) -> tuple[Lease, ...]:
        """Take a lease on each ``resource``: on all of them, or on none.

        paths: Cover this path, too.
        scope: Claim only this part of the work (default: all of it).
        ttl: How long the lease lasts unless renewed (15m, 1h).
        wait: Wait at most this long until it is free.
        reason: Why; shown to anyone who is refused.
        takeover: Replace someone else's assignment; needs a reason.
        expect_holder: With a takeover: only if it is assigned to H.
        reopen: Claim completed work again.
        any: Accept names that are not tasks.
        new: Refuse a lease you already hold instead of renewing it.
        commit: Commit the edit of the task file by itself, or leave it in the work tree
          (default: edges.commit).
        dry_run: Say what the claim would do, and write nothing.

        Raises LeaseHeld, WaitTimeout, UsageError, Denied, Unavailable, UnknownOutcome,
        PolicyRefused, Invalid, NotFound, Rollback.
        """
        options: dict[str, Any] = {
            "paths": paths,
            "scope": scope,
            "ttl": ttl,
            "wait": wait,
            "reason": reason,
            "takeover": takeover,
            "expect_holder": expect_holder,
            "reopen": reopen,
            "any": any,
            "new": new,
            "commit": commit,
            "dry_run": dry_run,
        }
        return await self._call(LeaseVerbs.claim_all, (resources,), options, grants=True)

    @library_verb
    async def claim_one(
        self,
        resources: Iterable[ResourceLike],
        *,
        paths: Iterable[StrPath] = (),
        scope: str | None = None,
        ttl: Duration | None = None,
        wait: Duration | None = None,
        reason: str | None = None,
        reopen: bool = False,
        any: bool = False,
        commit: bool | None = None,
        dry_run: bool = False,
    ) -> Lease:
        """Take a lease on the first of these that is free, or with `wait` on the first that
        becomes free. Your own live leases count as taken.

        paths: Cover this path, too.
        scope: Claim only this part of the work (default: all of it).
        ttl: How long the lease lasts unless renewed (15m, 1h).
        wait: Wait at most this long until it is free.
        reason: Why; shown to anyone who is refused.
        reopen: Claim completed work again.
        any: Accept names that are not tasks.
        commit: Commit the edit of the task file by itself, or leave it in the work tree
          (default: edges.commit).
        dry_run: Say what the claim would do, and write nothing.

        Raises LeaseHeld, WaitTimeout, UsageError, Denied, Unavailable, UnknownOutcome,
        PolicyRefused, Invalid, NotFound, Rollback.
        """
        options: dict[str, Any] = {
            "paths": paths,
            "scope": scope,
            "ttl": ttl,
            "wait": wait,
            "reason": reason,
            "reopen": reopen,
            "any": any,
            "commit": commit,
            "dry_run": dry_run,
        }
        return await self._call(LeaseVerbs.claim_one, (resources,), options, grants=True)

    @library_verb
    async def renew(
        self,
        resource: ResourceLike,
        *,
        ttl: Duration | None = None,
        scope: str | None = None,
    ) -> Lease:
        """The heartbeat: each lease lasts for its full TTL again, counted from now.

        ttl: The TTL from now on (default: as before).
        scope: Only this scope (default: all scopes you hold).

        Raises UsageError, LeaseLost, NotHolder, Denied, Unavailable, UnknownOutcome,
        PolicyRefused, Invalid, NotFound, Rollback.
        """
        options: dict[str, Any] = {"ttl": ttl, "scope": scope}
        return await self._call(LeaseVerbs.renew, (resource,), options)

    @library_verb
    async def renew_all(self, *, ttl: Duration | None = None) -> tuple[Lease, ...]:
        """Renew everything of this session in every layer that this clone uses, a push for each.
        If any was lost, the rest is renewed first.

        ttl: The TTL from now on (default: as before).

        Raises UsageError, LeaseLost, NotHolder, Denied, Unavailable, UnknownOutcome,
        PolicyRefused, Invalid, NotFound, Rollback.
        """
        options: dict[str, Any] = {"ttl": ttl}
        return await self._call(LeaseVerbs.renew_all, (), options)

    @library_verb
    async def extend(
        self,
        resource: ResourceLike,
        duration: Duration,
        *,
        scope: str | None = None,
    ) -> Lease:
        """Make a lease last at least ``duration`` from now, for a gap without renewals.

        scope: Only this scope (default: all scopes you hold).

        Raises UsageError, LeaseLost, NotHolder, Denied, Unavailable, UnknownOutcome,
        PolicyRefused, Invalid, NotFound, Rollback.
        """
        options: dict[str, Any] = {"scope": scope}
        return await self._call(LeaseVerbs.extend, (resource, duration), options)

    @library_verb
    async def release(
        self,
        resource: ResourceLike,
        *,
        note: str | None = None,
        keep: bool = False,
        keep_status: bool = False,
        commit: bool | None = None,
        scope: str | None = None,
    ) -> None:
        """Give leases back, so that others need not wait for them to expire.

        note: Leave a note for the next holder.
        keep: End the lease, and keep the task yours until you claim it by name.
        keep_status: Leave the status in the task file as it is.
        commit: Commit the edit of the task file by itself, or leave it in the work tree
          (default: edges.commit).
        scope: Only this scope (default: all scopes you hold).

        Raises LeaseHeld, WaitTimeout, UsageError, Denied, Unavailable, UnknownOutcome,
        PolicyRefused, Invalid, NotFound, Rollback.
        """
        options: dict[str, Any] = {
            "note": note,
            "keep": keep,
            "keep_status": keep_status,
            "commit": commit,
            "scope": scope,
        }
        await self._call(LeaseVerbs.release, (resource,), options)

    @library_verb
    async def done(
        self,
        resource: ResourceLike,
        *,
        any: bool = False,
        commit: bool | None = None,
        scope: str | None = None,
    ) -> None:
        """Finish the work: your lease is completed, and its notes are cleared.

        any: Accept names that are not tasks.
        commit: Commit the edit of the task file by itself, or leave it in the work tree
          (default: edges.commit).
        scope: Only this scope (default: all scopes you hold).

        Raises LeaseHeld, WaitTimeout, UsageError, Denied, Unavailable, UnknownOutcome,
        PolicyRefused, Invalid, NotFound, Rollback.
        """
        options: dict[str, Any] = {"any": any, "commit": commit, "scope": scope}
        await self._call(LeaseVerbs.done, (resource,), options)

    @library_verb
    async def land(
        self,
        resource: ResourceLike | None = None,
        *,
        base: str | None = None,
        by: Literal["rebase", "merge"] | None = None,
        check: str | Sequence[str] | None = None,
        unfenced: bool = False,
        no_verify: bool = False,
    ) -> Landed:
        """Finish a task and push its work, in one step that cannot half happen.

        base: Land on this branch (default: the remote's main branch).
        by: How to bring it onto a base that has moved on.
        check: Run CMD on the result first; no shell reads it.
        unfenced: Land where the host has no atomic pushes, without a fence.
        no_verify: Without your pre-push hooks; the fence stays.

        Raises LeaseHeld, UsageError, LeaseLost, NotHolder, Denied, Unavailable, UnknownOutcome,
        PolicyRefused, Invalid, NotFound, Rollback.
        """
        options: dict[str, Any] = {
            "base": base,
            "by": by,
            "check": check,
            "unfenced": unfenced,
            "no_verify": no_verify,
        }
        return await self._call(LeaseVerbs.land, (resource,), options)

    @library_verb
    async def note(self, resource: ResourceLike, text: str, *, to_holder: bool = False) -> None:
        """Leave a note for the next holder of ``resource``. Anyone may, with or without a lease.

        to_holder: Show it to whoever holds it now, too, once and soon.

        Raises UsageError, Denied, Unavailable, UnknownOutcome, PolicyRefused, Invalid,
        NotFound, Rollback.
        """
        options: dict[str, Any] = {"to_holder": to_holder}
        await self._call(LeaseVerbs.note, (resource, text), options)

    @library_verb
    async def next_task(self, *, ref: str | None = None, cached: bool = False) -> Task:
        """Show the next task: the first that you may claim and that waits for no other task.

        ref: Read the task files of this branch, tag or commit (default: the work tree).
        cached: Answer from what this clone knows, without asking the remote.

        Raises NothingLeft, UsageError, Denied, Unavailable, UnknownOutcome, PolicyRefused,
        Invalid, NotFound, Rollback.
        """
        options: dict[str, Any] = {"ref": ref, "cached": cached}
        return await self._call(LeaseVerbs.next_task, (), options)

    @library_verb
    async def claim_next(
        self,
        *,
        ttl: Duration | None = None,
        reason: str | None = None,
        commit: bool | None = None,
    ) -> Lease:
        """Claim the next task of the queue: two callers never get the same.

        ttl: How long the lease lasts unless renewed (15m, 1h).
        reason: Why; shown to anyone who is refused.
        commit: Commit the edit of the task file by itself, or leave it in the work tree
          (default: edges.commit).

        Raises NothingLeft, UsageError, Denied, Unavailable, UnknownOutcome, PolicyRefused,
        Invalid, NotFound, Rollback.
        """
        options: dict[str, Any] = {"ttl": ttl, "reason": reason, "commit": commit}
        return await self._call(LeaseVerbs.claim_next, (), options, grants=True)

    @library_verb
    async def start(
        self,
        resource: ResourceLike,
        *,
        ttl: Duration | None = None,
        wait: Duration | None = None,
        reason: str | None = None,
        takeover: bool = False,
        expect_holder: str | None = None,
        reopen: bool = False,
        commit: bool | None = None,
        scope: str | None = None,
        paths: Iterable[StrPath] = (),
    ) -> Lease:
        """Claim a task and set its status to in progress.

        ttl: How long the lease lasts unless renewed (15m, 1h).
        wait: Wait at most this long until it is free.
        reason: Why; shown to anyone who is refused.
        takeover: Replace someone else's assignment; needs a reason.
        expect_holder: With a takeover: only if it is assigned to H.
        reopen: Claim completed work again.
        commit: Commit the edit of the task file by itself, or leave it in the work tree
          (default: edges.commit).
        scope: Claim or finish only this part of the work.
        paths: Cover these paths, too.

        Raises LeaseHeld, WaitTimeout, UsageError, Denied, Unavailable, UnknownOutcome,
        PolicyRefused, Invalid, NotFound, Rollback.
        """
        options: dict[str, Any] = {
            "ttl": ttl,
            "wait": wait,
            "reason": reason,
            "takeover": takeover,
            "expect_holder": expect_holder,
            "reopen": reopen,
            "commit": commit,
            "scope": scope,
            "paths": paths,
        }
        return await self._call(LeaseVerbs.start, (resource,), options, grants=True)

    @library_verb
    async def set_status(
        self,
        resource: ResourceLike,
        status: str,
        *,
        ttl: Duration | None = None,
        wait: Duration | None = None,
        reason: str | None = None,
        takeover: bool = False,
        expect_holder: str | None = None,
        reopen: bool = False,
        commit: bool | None = None,
        scope: str | None = None,
        paths: Iterable[StrPath] = (),
    ) -> tuple[Lease, ...]:
        """Set the status of a task in its task file.

        ttl: How long the lease lasts unless renewed (15m, 1h).
        wait: Wait at most this long until it is free.
        reason: Why; shown to anyone who is refused.
        takeover: Replace someone else's assignment; needs a reason.
        expect_holder: With a takeover: only if it is assigned to H.
        reopen: Claim completed work again.
        commit: Commit the edit of the task file by itself, or leave it in the work tree
          (default: edges.commit).
        scope: Claim or finish only this part of the work.
        paths: Cover these paths, too.

        Raises LeaseHeld, WaitTimeout, UsageError, Denied, Unavailable, UnknownOutcome,
        PolicyRefused, Invalid, NotFound, Rollback.
        """
        options: dict[str, Any] = {
            "ttl": ttl,
            "wait": wait,
            "reason": reason,
            "takeover": takeover,
            "expect_holder": expect_holder,
            "reopen": reopen,
            "commit": commit,
            "scope": scope,
            "paths": paths,
        }
        return await self._call(LeaseVerbs.set_status, (resource, status), options)

    @library_verb
    async def add(
        self,
        title: str,
        *,
        id: ResourceLike | None = None,
        depends_on: Iterable[ResourceLike] = (),
        paths: Iterable[StrPath] = (),
        priority: str | None = None,
    ) -> Task:
        """Add a task: a file in the form of the task files that are there.

        id: The task's id (default: the next one).
        depends_on: A task that has to be done before.
        paths: A path that its work is about.
        priority: Its priority, as other tasks have them.

        Raises UsageError, Denied, Unavailable, UnknownOutcome, Invalid, NotFound, Rollback.
        """
        options: dict[str, Any] = {
            "id": id,
            "depends_on": depends_on,
            "paths": paths,
            "priority": priority,
        }
        return await self._call(LeaseVerbs.add, (title,), options)

    @library_verb
    async def fence(self, resource: ResourceLike, token: int, *, scope: str | None = None) -> Lease:
        """Check whether the live lease of ``resource`` still has this ``token``: exit 0 if so,
        else 3.

        scope: Only this scope (default: the one with the token).

        Raises UsageError, LeaseLost, NotHolder, Denied, Unavailable, UnknownOutcome, Invalid,
        NotFound, Rollback.
        """
        options: dict[str, Any] = {"scope": scope}
        return await self._call(LeaseVerbs.fence, (resource, token), options)

    @library_verb
    async def wait(
        self,
        *resources: ResourceLike,
        timeout: Duration | None = None,
        scope: str | None = None,
    ) -> None:
        """Wait until all RESOURCEs are free at the same time, so that you could claim them.

        timeout: Wait at most this long (default: forever).
        scope: Only this part of the work (default: all of it).

        Raises WaitTimeout, UsageError, Denied, Unavailable, UnknownOutcome, PolicyRefused,
        Invalid, NotFound, Rollback.
        """
        options: dict[str, Any] = {"timeout": timeout, "scope": scope}
        await self._call(LeaseVerbs.wait, resources, options)

    @library_verb
    async def sessions(self, *, cached: bool = False) -> tuple[OwnSession, ...]:
        """List your sessions that hold leases.

        cached: Answer from what this clone knows, without asking the remote.

        Raises UsageError, Denied, Unavailable, UnknownOutcome, Invalid, NotFound, Rollback.
        """
        options: dict[str, Any] = {"cached": cached}
        return await self._call(LeaseVerbs.sessions, (), options)

    @library_verb
    async def end_session(
        self,
        id: str | None = None,
        *,
        all: bool = False,
        release: bool = False,
        note: str | None = None,
        commit: bool | None = None,
    ) -> tuple[Lease, ...]:
        """End the leases of one of your sessions (default: this one) in every layer in use. Your
        tasks stay assigned to you; leases on anything else are released.

        all: End all your sessions.
        release: Also unassign yourself from the tasks.
        note: Leave a note on each resource.
        commit: Commit the edit of the task file by itself, or leave it in the work tree
          (default: edges.commit).

        Raises LeaseHeld, UsageError, Denied, Unavailable, UnknownOutcome, PolicyRefused,
        Invalid, NotFound, Rollback.
        """
        options: dict[str, Any] = {"all": all, "release": release, "note": note, "commit": commit}
        return await self._call(LeaseVerbs.end_session, (id,), options)

    @library_verb
    async def list(
        self,
        *,
        mine: bool = False,
        all: bool = False,
        cached: bool = False,
    ) -> tuple[Lease, ...]:
        """List the leases of the ledger, and whose they are.

        mine: Only leases of this session.
        all: Include lapsed, completed, released and revoked leases.
        cached: Answer from what this clone knows, without asking the remote.

        Raises UsageError, Denied, Unavailable, UnknownOutcome, Invalid, NotFound, Rollback.
        """
        options: dict[str, Any] = {"mine": mine, "all": all, "cached": cached}
        return await self._call(LeaseVerbs.list, (), options)

    @library_verb
    async def show(
        self,
        resource: ResourceLike,
        *,
        ref: str | None = None,
        scope: str | None = None,
        cached: bool = False,
    ) -> tuple[Lease, ...]:
        """Show one resource: its holder, where, until when and why, its notes, who waits for it,
        and which of its leases were released or revoked lately.

        ref: Read the task files of this branch, tag or commit (default: the work tree).
        scope: Only leases that overlap this scope.
        cached: Answer from what this clone knows, without asking the remote.

        Raises UsageError, Denied, Unavailable, UnknownOutcome, Invalid, NotFound, Rollback.
        """
        options: dict[str, Any] = {"ref": ref, "scope": scope, "cached": cached}
        return await self._call(LeaseVerbs.show, (resource,), options)

    @library_verb
    async def log(
        self,
        resource: ResourceLike | None = None,
        *,
        limit: int = 50,
        since: Duration | datetime | None = None,
        cached: bool = False,
    ) -> tuple[LogEntry, ...]:
        """Show the audit trail, newest first: who claimed, took over, released, revoked, and why.

        limit: Show at most N events (default: 50).
        since: Only events since a UTC time (2026-01-31T10:00Z) or for a duration (2d).
        cached: Answer from what this clone knows, without asking the remote.

        Raises UsageError, Denied, Unavailable, UnknownOutcome, Invalid, NotFound, Rollback.
        """
        options: dict[str, Any] = {"limit": limit, "since": since, "cached": cached}
        return await self._call(LeaseVerbs.log, (resource,), options)

    @library_verb
    async def status(self, *, cached: bool = False) -> LedgerStatus:
        """Show the ledger at a glance: where it is, how many leases are live, and which sessions
        are active.

        cached: Answer from what this clone knows, without asking the remote.

        Raises UsageError, Denied, Unavailable, UnknownOutcome, Invalid, NotFound, Rollback.
        """
        options: dict[str, Any] = {"cached": cached}
        return await self._call(LeaseVerbs.status, (), options)

    @library_verb
    async def whoami(self) -> WhoAmI:
        """Show your holder and session in the ledger, and the source of each.

        Raises UsageError, Invalid, NotFound, Rollback.
        """
        options: dict[str, Any] = {}
        return await self._call(LeaseVerbs.whoami, (), options)

    @library_verb
    async def queue(self, *, ref: str | None = None, cached: bool = False) -> tuple[Entry, ...]:
        """Every task, best first, and whether it may be claimed.

        ref: Read the task files of this branch, tag or commit (default: the work tree).
        cached: Answer from what this clone knows, without asking the remote.

        Raises UsageError, Denied, Unavailable, UnknownOutcome, Invalid, NotFound, Rollback.
        """
        options: dict[str, Any] = {"ref": ref, "cached": cached}
        return await self._call(LeaseVerbs.queue, (), options)

    @library_verb
    async def brief(self, *, ref: str | None = None, cached: bool = False) -> QueueReading:
        """Show one page to start a session with: who you are, your tasks and leases, recent losses
        and the reasons, notes for you, leases of others in the layers that this clone uses, and
        the next tasks.

        ref: Read the task files of this branch, tag or commit (default: the work tree).
        cached: Answer from what this clone knows, without asking the remote.

        Raises UsageError, Denied, Unavailable, UnknownOutcome, Invalid, NotFound, Rollback.
        """
        options: dict[str, Any] = {"ref": ref, "cached": cached}
        return await self._call(LeaseVerbs.brief, (), options)

    @library_verb
    async def init(
        self,
        *,
        undo_rollback: bool = False,
        accept_rollback: bool = False,
        restore: bool = False,
        now: bool = False,
        new_ledger: bool = False,
        move: bool = False,
    ) -> InitResult:
        """Set the repository up: make the ledger, and write ``.gitlease.yaml`` if there is none.

        Idempotent; accepts a ledger that was replaced. For one that was rolled back it raises
        Rollback, unless the choice is given; see `gitlease init --help`. A ledger that the
        settings do not record is refused, unless this remote is to have its own (`new_ledger`).
        An unreachable remote is a warning.

        undo_rollback: Restore the ledger that this clone has seen.
        accept_rollback: Accept a rolled-back ledger as it is now.
        restore: Bring a deleted ledger back, as this clone has seen it last.
        now: End the wait of a restored ledger: only once everybody has been asked.
        new_ledger: Use a ledger of this remote's own in place of the recorded one.
        move: Move the ledger to where the default branch says.

        Raises UsageError, Denied, Invalid, NotFound, Rollback.
        """
        options: dict[str, Any] = {
            "undo_rollback": undo_rollback,
            "accept_rollback": accept_rollback,
            "restore": restore,
            "now": now,
            "new_ledger": new_ledger,
            "move": move,
        }
        return await self._call(LeaseVerbs.init, (), options)

    @library_verb
    async def config(
        self,
        key: str | None = None,
        value: str | None = None,
        *,
        ledger: bool = False,
        cached: bool = False,
    ) -> tuple[Setting, ...]:
        """Show the effective settings with their sources, show one (KEY), or set one (KEY
        ``value``).

        value: Set it to this value.
        ledger: The ledger's policy instead of this clone's settings.
        cached: Answer from what this clone knows, without asking the remote.

        Raises UsageError, Denied, Unavailable, UnknownOutcome, PolicyRefused, Invalid,
        NotFound, Rollback.
        """
        options: dict[str, Any] = {"ledger": ledger, "cached": cached}
        return await self._call(LeaseVerbs.config, (key, value), options)

    @library_verb
    async def check_commits(self, range: str | None = None, *, cached: bool = False) -> CheckResult:
        """Check commits for changes to what others hold now: those of `range`, else the pull
        request or push that CI runs for, else the commits of HEAD that the default branch
        lacks. The settings are those of the commit before them.

        range: Like main..HEAD.
        cached: Answer from what this clone knows, without asking the remote.

        Raises UsageError, Denied, Unavailable, UnknownOutcome, PolicyRefused, Invalid,
        NotFound, Rollback.
        """
        options: dict[str, Any] = {"cached": cached}
        return await self._call(LeaseVerbs.check_commits, (range,), options)

    @library_verb
    async def check_stale(self, *, fix: bool = False, cached: bool = False) -> CheckResult:
        """Find claims that nobody works under any more, by the settings of the work tree, or in CI
        for a pull request by those of its base branch.

        fix: With --stale: release claims as the project's policy allows, each after a question.
        cached: Answer from what this clone knows, without asking the remote.

        Raises UsageError, Denied, Unavailable, UnknownOutcome, PolicyRefused, Invalid,
        NotFound, Rollback.
        """
        options: dict[str, Any] = {"fix": fix, "cached": cached}
        return await self._call(LeaseVerbs.check_stale, (), options)

    @library_verb
    async def verify(
        self,
        ref: str | None = None,
        *,
        tips: Iterable[str] = (),
        cached: bool = False,
    ) -> Verified:
        """Replay a ledger's whole history, and compare each commit with what its operations come
        to.

        ref: A branch, ref or commit that holds a ledger.
        tips: A commit seen at the ledger's ref.
        cached: Answer from what this clone knows, without asking the remote.

        Raises UsageError, Denied, Unavailable, UnknownOutcome, Invalid, NotFound, Rollback.
        """
        options: dict[str, Any] = {"tips": tips, "cached": cached}
        return await self._call(LeaseVerbs.verify, (ref,), options)

    @library_verb
    async def board(self, *, cached: bool = False) -> Board:
        """Show tasks and leases at a glance: held, waiting, expired, abandoned and free, with
        holder, place, reason and time left, those who wait, and recent events.

        cached: Answer from what this clone knows, without asking the remote.

        Raises UsageError, Denied, Unavailable, UnknownOutcome, Invalid, NotFound, Rollback.
        """
        options: dict[str, Any] = {"cached": cached}
        return await self._call(LeaseVerbs.board, (), options)

    @library_verb
    async def revoke(
        self,
        resource: ResourceLike | None = None,
        *,
        reason: str,
        expect_holder: str | None = None,
        record: str | None = None,
        scope: str | None = None,
    ) -> tuple[Lease, ...]:
        """End someone else's lease. Only the ledger's admins may; the holder is notified.

        reason: Why; shown to the holder.
        expect_holder: Only if H holds it.
        record: Remove this damaged record instead.
        scope: Only this scope (default: all).

        Raises LeaseHeld, WaitTimeout, UsageError, Denied, Unavailable, UnknownOutcome,
        PolicyRefused, Invalid, NotFound, Rollback.
        """
        options: dict[str, Any] = {
            "reason": reason,
            "expect_holder": expect_holder,
            "record": record,
            "scope": scope,
        }
        return await self._call(LeaseVerbs.revoke, (resource,), options)
