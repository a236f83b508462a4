"""The verbs of ``gitlease.connect`` and ``connect_async``.

Written by `python tests/record.py library` from the table of verbs: do not edit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Protocol, TypeVar

from gitlease.kernel.rules.edge import Task
from gitlease.library.methods import Duration, ResourceLike, StrPath, library_verb
from gitlease.library.values import Board, Lease, LogEntry, QueueReading, WhoAmI
from gitlease.tasks.queue import Entry

T = TypeVar("T")


class GatewayVerbs(Protocol):
    """The verbs of ``Connection``."""

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
        scope: str | None = None,
    ) -> None:
        """Give leases back, so that others need not wait for them to expire.

        note: Leave a note for the next holder.
        keep: End the lease, and keep the task yours until you claim it by name.
        scope: Only this scope (default: all scopes you hold).

        Raises LeaseHeld, WaitTimeout, UsageError, Denied, Unavailable, UnknownOutcome,
        PolicyRefused, Invalid, NotFound, Rollback.
        """
        given: dict[str, Any] = {"resource": resource, "note": note, "keep": keep, "scope": scope}
        self._carry_out("release", given)

    @library_verb
    def done(self, resource: ResourceLike, *, any: bool = False, scope: str | None = None) -> None:
        """Finish the work: your lease is completed, and its notes are cleared.

        any: Accept names that are not tasks.
        scope: Only this scope (default: all scopes you hold).

        Raises LeaseHeld, WaitTimeout, UsageError, Denied, Unavailable, UnknownOutcome,
        PolicyRefused, Invalid, NotFound, Rollback.
        """
        given: dict[str, Any] = {"resource": resource, "any": any, "scope": scope}
        self._carry_out("done", given)

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
    def next_task(self) -> Task:
        """Show the next task: the first that you may claim and that waits for no other task.

        Raises NothingLeft, UsageError, Denied, Unavailable, UnknownOutcome, PolicyRefused,
        Invalid, NotFound, Rollback.
        """
        given: dict[str, Any] = {}
        answer: Task = self._carry_out("next_task", given)
        return answer

    @library_verb
    def claim_next(self, *, ttl: Duration | None = None, reason: str | None = None) -> Lease:
        """Claim the next task of the queue: two callers never get the same.

        ttl: How long the lease lasts unless renewed (15m, 1h).
        reason: Why; shown to anyone who is refused.

        Raises NothingLeft, UsageError, Denied, Unavailable, UnknownOutcome, PolicyRefused,
        Invalid, NotFound, Rollback.
        """
        given: dict[str, Any] = {"ttl": ttl, "reason": reason}
        answer: Lease = self._carry_out("claim_next", given)
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
    def show(self, resource: ResourceLike, *, scope: str | None = None) -> tuple[Lease, ...]:
        """Show one resource: its holder, where, until when and why, its notes, who waits for it,
        and which of its leases were released or revoked lately.

        scope: Only leases that overlap this scope.

        Raises UsageError, Denied, Unavailable, UnknownOutcome, Invalid, NotFound, Rollback.
        """
        given: dict[str, Any] = {"resource": resource, "scope": scope}
        answer: tuple[Lease, ...] = self._carry_out("show", given)
        return answer

    @library_verb
    def log(
        self,
        resource: ResourceLike | None = None,
        *,
        limit: int = 50,
        since: Duration | datetime | None = None,
    ) -> tuple[LogEntry, ...]:
        """Show the audit trail, newest first: who claimed, took over, released, revoked, and why.

        limit: Show at most N events (default: 50).
        since: Only events since a UTC time (2026-01-31T10:00Z) or for a duration (2d).

        Raises UsageError, Denied, Unavailable, UnknownOutcome, Invalid, NotFound, Rollback.
        """
        given: dict[str, Any] = {"resource": resource, "limit": limit, "since": since}
        answer: tuple[LogEntry, ...] = self._carry_out("log", given)
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
    def queue(self) -> tuple[Entry, ...]:
        """Every task, best first, and whether it may be claimed.

        Raises UsageError, Denied, Unavailable, UnknownOutcome, Invalid, NotFound, Rollback.
        """
        given: dict[str, Any] = {}
        answer: tuple[Entry, ...] = self._carry_out("queue", given)
        return answer

    @library_verb
    def brief(self) -> QueueReading:
        """Show one page to start a session with: who you are, your tasks and leases, recent losses
        and the reasons, notes for you, leases of others in the layers that this clone uses, and
        the next tasks.

        Raises UsageError, Denied, Unavailable, UnknownOutcome, Invalid, NotFound, Rollback.
        """
        given: dict[str, Any] = {}
        answer: QueueReading = self._carry_out("brief", given)
        return answer

    @library_verb
    def board(self) -> Board:
        """Show tasks and leases at a glance: held, waiting, expired, abandoned and free, with
        holder, place, reason and time left, those who wait, and recent events.

        Raises UsageError, Denied, Unavailable, UnknownOutcome, Invalid, NotFound, Rollback.
        """
        given: dict[str, Any] = {}
        answer: Board = self._carry_out("board", given)
        return answer

    @library_verb
    def revoke(
        self,
        resource: ResourceLike,
        *,
        reason: str,
        expect_holder: str | None = None,
        scope: str | None = None,
    ) -> tuple[Lease, ...]:
        """End someone else's lease. Only the ledger's admins may; the holder is notified.

        reason: Why; shown to the holder.
        expect_holder: Only if H holds it.
        scope: Only this scope (default: all).

        Raises LeaseHeld, WaitTimeout, UsageError, Denied, Unavailable, UnknownOutcome,
        PolicyRefused, Invalid, NotFound, Rollback.
        """
        given: dict[str, Any] = {
            "resource": resource,
            "reason": reason,
            "expect_holder": expect_holder,
            "scope": scope,
        }
        answer: tuple[Lease, ...] = self._carry_out("revoke", given)
        return answer


class AwaitedGatewayVerbs(Protocol):
    """The verbs of ``AsyncConnection``."""

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
            "dry_run": dry_run,
        }
        return await self._call(GatewayVerbs.claim, (resource,), options, grants=True)

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
            "dry_run": dry_run,
        }
        return await self._call(GatewayVerbs.claim_all, (resources,), options, grants=True)

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
            "dry_run": dry_run,
        }
        return await self._call(GatewayVerbs.claim_one, (resources,), options, grants=True)

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
        return await self._call(GatewayVerbs.renew, (resource,), options)

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
        return await self._call(GatewayVerbs.extend, (resource, duration), options)

    @library_verb
    async def release(
        self,
        resource: ResourceLike,
        *,
        note: str | None = None,
        keep: bool = False,
        scope: str | None = None,
    ) -> None:
        """Give leases back, so that others need not wait for them to expire.

        note: Leave a note for the next holder.
        keep: End the lease, and keep the task yours until you claim it by name.
        scope: Only this scope (default: all scopes you hold).

        Raises LeaseHeld, WaitTimeout, UsageError, Denied, Unavailable, UnknownOutcome,
        PolicyRefused, Invalid, NotFound, Rollback.
        """
        options: dict[str, Any] = {"note": note, "keep": keep, "scope": scope}
        await self._call(GatewayVerbs.release, (resource,), options)

    @library_verb
    async def done(
        self,
        resource: ResourceLike,
        *,
        any: bool = False,
        scope: str | None = None,
    ) -> None:
        """Finish the work: your lease is completed, and its notes are cleared.

        any: Accept names that are not tasks.
        scope: Only this scope (default: all scopes you hold).

        Raises LeaseHeld, WaitTimeout, UsageError, Denied, Unavailable, UnknownOutcome,
        PolicyRefused, Invalid, NotFound, Rollback.
        """
        options: dict[str, Any] = {"any": any, "scope": scope}
        await self._call(GatewayVerbs.done, (resource,), options)

    @library_verb
    async def note(self, resource: ResourceLike, text: str, *, to_holder: bool = False) -> None:
        """Leave a note for the next holder of ``resource``. Anyone may, with or without a lease.

        to_holder: Show it to whoever holds it now, too, once and soon.

        Raises UsageError, Denied, Unavailable, UnknownOutcome, PolicyRefused, Invalid,
        NotFound, Rollback.
        """
        options: dict[str, Any] = {"to_holder": to_holder}
        await self._call(GatewayVerbs.note, (resource, text), options)

    @library_verb
    async def next_task(self) -> Task:
        """Show the next task: the first that you may claim and that waits for no other task.

        Raises NothingLeft, UsageError, Denied, Unavailable, UnknownOutcome, PolicyRefused,
        Invalid, NotFound, Rollback.
        """
        options: dict[str, Any] = {}
        return await self._call(GatewayVerbs.next_task, (), options)

    @library_verb
    async def claim_next(self, *, ttl: Duration | None = None, reason: str | None = None) -> Lease:
        """Claim the next task of the queue: two callers never get the same.

        ttl: How long the lease lasts unless renewed (15m, 1h).
        reason: Why; shown to anyone who is refused.

        Raises NothingLeft, UsageError, Denied, Unavailable, UnknownOutcome, PolicyRefused,
        Invalid, NotFound, Rollback.
        """
        options: dict[str, Any] = {"ttl": ttl, "reason": reason}
        return await self._call(GatewayVerbs.claim_next, (), options, grants=True)

    @library_verb
    async def fence(self, resource: ResourceLike, token: int, *, scope: str | None = None) -> Lease:
        """Check whether the live lease of ``resource`` still has this ``token``: exit 0 if so,
        else 3.

        scope: Only this scope (default: the one with the token).

        Raises UsageError, LeaseLost, NotHolder, Denied, Unavailable, UnknownOutcome, Invalid,
        NotFound, Rollback.
        """
        options: dict[str, Any] = {"scope": scope}
        return await self._call(GatewayVerbs.fence, (resource, token), options)

    @library_verb
    async def show(self, resource: ResourceLike, *, scope: str | None = None) -> tuple[Lease, ...]:
        """Show one resource: its holder, where, until when and why, its notes, who waits for it,
        and which of its leases were released or revoked lately.

        scope: Only leases that overlap this scope.

        Raises UsageError, Denied, Unavailable, UnknownOutcome, Invalid, NotFound, Rollback.
        """
        options: dict[str, Any] = {"scope": scope}
        return await self._call(GatewayVerbs.show, (resource,), options)

    @library_verb
    async def log(
        self,
        resource: ResourceLike | None = None,
        *,
        limit: int = 50,
        since: Duration | datetime | None = None,
    ) -> tuple[LogEntry, ...]:
        """Show the audit trail, newest first: who claimed, took over, released, revoked, and why.

        limit: Show at most N events (default: 50).
        since: Only events since a UTC time (2026-01-31T10:00Z) or for a duration (2d).

        Raises UsageError, Denied, Unavailable, UnknownOutcome, Invalid, NotFound, Rollback.
        """
        options: dict[str, Any] = {"limit": limit, "since": since}
        return await self._call(GatewayVerbs.log, (resource,), options)

    @library_verb
    async def whoami(self) -> WhoAmI:
        """Show your holder and session in the ledger, and the source of each.

        Raises UsageError, Invalid, NotFound, Rollback.
        """
        options: dict[str, Any] = {}
        return await self._call(GatewayVerbs.whoami, (), options)

    @library_verb
    async def queue(self) -> tuple[Entry, ...]:
        """Every task, best first, and whether it may be claimed.

        Raises UsageError, Denied, Unavailable, UnknownOutcome, Invalid, NotFound, Rollback.
        """
        options: dict[str, Any] = {}
        return await self._call(GatewayVerbs.queue, (), options)

    @library_verb
    async def brief(self) -> QueueReading:
        """Show one page to start a session with: who you are, your tasks and leases, recent losses
        and the reasons, notes for you, leases of others in the layers that this clone uses, and
        the next tasks.

        Raises UsageError, Denied, Unavailable, UnknownOutcome, Invalid, NotFound, Rollback.
        """
        options: dict[str, Any] = {}
        return await self._call(GatewayVerbs.brief, (), options)

    @library_verb
    async def board(self) -> Board:
        """Show tasks and leases at a glance: held, waiting, expired, abandoned and free, with
        holder, place, reason and time left, those who wait, and recent events.

        Raises UsageError, Denied, Unavailable, UnknownOutcome, Invalid, NotFound, Rollback.
        """
        options: dict[str, Any] = {}
        return await self._call(GatewayVerbs.board, (), options)

    @library_verb
    async def revoke(
        self,
        resource: ResourceLike,
        *,
        reason: str,
        expect_holder: str | None = None,
        scope: str | None = None,
    ) -> tuple[Lease, ...]:
        """End someone else's lease. Only the ledger's admins may; the holder is notified.

        reason: Why; shown to the holder.
        expect_holder: Only if H holds it.
        scope: Only this scope (default: all).

        Raises LeaseHeld, WaitTimeout, UsageError, Denied, Unavailable, UnknownOutcome,
        PolicyRefused, Invalid, NotFound, Rollback.
        """
        options: dict[str, Any] = {"reason": reason, "expect_holder": expect_holder, "scope": scope}
        return await self._call(GatewayVerbs.revoke, (resource,), options)
