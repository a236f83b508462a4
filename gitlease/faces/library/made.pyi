# Written by: pytest --record tests/faces/test_library_stub.py

from collections.abc import Iterable
from typing import Protocol

from gitlease.core.edge import Task
from gitlease.core.view import Lease
from gitlease.faces.library.methods import Duration, ResourceLike, StrPath

class LeaseVerbs(Protocol):
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
    ) -> Lease:
        """Take a lease, or renew your own; ``wait`` blocks for at most that long.

        The assignee of a task is written to its file. Raises LeaseHeld with the holder and when
        it is free, WaitTimeout, PolicyRefused for a TTL outside the limits or completed work,
        NotFound for a name that is not a task, Invalid for a task file that cannot be edited,
        Unavailable, Denied or UnknownOutcome.

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
    ) -> tuple[Lease, ...]:
        """Take several leases, all or none.

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

    def renew(
        self,
        resource: ResourceLike,
        *,
        ttl: Duration | None = None,
        scope: str | None = None,
    ) -> Lease:
        """The heartbeat: expiry becomes now + TTL. Raises LeaseLost or NotHolder.

        ttl: The TTL from now on (default: as before).
        scope: Only this scope (default: all scopes you hold).
        """

    def renew_all(
        self,
        *,
        ttl: Duration | None = None,
    ) -> tuple[Lease, ...]:
        """Renew everything of this session in every layer that this clone uses, a push for each.

        Raises LeaseLost if any was lost; the rest is renewed first.

        ttl: The TTL from now on (default: as before).
        """

    def extend(
        self,
        resource: ResourceLike,
        duration: Duration,
        *,
        scope: str | None = None,
    ) -> Lease:
        """Stretch to at least now + ``duration``; ``capped`` if the policy's maximum is less.

        scope: Only this scope (default: all scopes you hold).
        """

    def park(
        self,
        resource: ResourceLike,
        duration: Duration | None = None,
        *,
        reason: str | None = None,
        note: str | None = None,
        scope: str | None = None,
    ) -> Lease:
        """Keep a lease for a later session of its holder: others are refused for ``duration``.

        The policy's ``park_max`` is the maximum and the default. Nothing renews it; a ``claim``
        by any session of the person resumes it, under a new token. Raises LeaseLost, NotHolder,
        and PolicyRefused if the policy forbids it.

        duration: How long to keep others out (3h, 1d).
        reason: Why; shown to anyone who is refused.
        note: Leave a note for the next session.
        scope: Only this scope (default: all scopes you hold).
        """

    def release(
        self,
        resource: ResourceLike,
        *,
        note: str | None = None,
        keep_status: bool = False,
        commit: bool | None = None,
        scope: str | None = None,
    ) -> None:
        """Drop your lease and edge, if any. Raises LeaseHeld for someone else's.

        note: Leave a note for the next holder.
        keep_status: Leave the status in the task file as it is.
        commit: Commit the edit of the task file by itself, or leave it in the work tree
          (default: edges.commit).
        scope: Only this scope (default: all scopes you hold).
        """

    def done(
        self,
        resource: ResourceLike,
        *,
        any: bool = False,
        commit: bool | None = None,
        scope: str | None = None,
    ) -> None:
        """Finish: the lease ends completed, the task's status is done, and claims need ``reopen``.

        Raises NotFound for a name in no task file and no record, unless ``any``, LeaseLost if
        others ended your lease and one of them has it, and LeaseHeld for another's.

        any: Accept names that are not tasks.
        commit: Commit the edit of the task file by itself, or leave it in the work tree
          (default: edges.commit).
        scope: Only this scope (default: all scopes you hold).
        """

    def revoke(
        self,
        resource: ResourceLike | None = None,
        *,
        reason: str,
        expect_holder: str | None = None,
        record: str | None = None,
        scope: str | None = None,
    ) -> tuple[Lease, ...]:
        """End someone else's lease, as an admin of the ledger. Returns the ended leases.

        reason: Why; shown to the holder.
        expect_holder: Only if H holds it.
        record: Remove this damaged record instead.
        scope: Only this scope (default: all).
        """

    def note(
        self,
        resource: ResourceLike,
        text: str,
    ) -> None:
        """Leave a note for the next holder."""

    def next_task(
        self,
        *,
        ref: str | None = None,
        cached: bool = False,
    ) -> Task:
        """The next task of the queue, without claiming it. Raises NothingLeft.

        ref: Read the task files of this branch, tag or commit (default: the work tree).
        cached: Answer from what this clone knows, without asking the remote.
        """

    def claim_next(
        self,
        *,
        ttl: Duration | None = None,
        reason: str | None = None,
        commit: bool | None = None,
    ) -> Lease:
        """Claim the next task atomically: two callers never get the same. Raises NothingLeft.

        ttl: How long the lease lasts unless renewed (15m, 1h).
        reason: Why; shown to anyone who is refused.
        commit: Commit the edit of the task file by itself, or leave it in the work tree
          (default: edges.commit).
        """

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
        """Claim a task and set its status to in progress. Raises what ``claim`` does.

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
        """

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
        """Set a task's status: ``todo``, ``in_progress``, ``done``, or a word of the project.

        An in-progress status claims it, a done status finishes it; the leases concerned are
        returned. Raises UsageError for an unknown status, LeaseHeld for another's task, and
        LeaseLost if a task is to be finished whose lease others ended.

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
        """

class GatewayVerbs(Protocol):
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
    ) -> Lease:
        """Take a lease, or renew your own; ``wait`` blocks for at most that long, a minute at
        most.

        Raises LeaseHeld with the holder and when it is free, WaitTimeout, PolicyRefused,
        NotFound, Unavailable or UnknownOutcome.

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
        """

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
    ) -> tuple[Lease, ...]:
        """Take several leases, all or none.

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
        """

    def renew(
        self,
        resource: ResourceLike,
        *,
        ttl: Duration | None = None,
        scope: str | None = None,
    ) -> Lease:
        """The heartbeat; while two thirds of its time are left, the lease is returned unchanged.

        Raises LeaseLost or NotHolder.

        ttl: The TTL from now on (default: as before).
        scope: Only this scope (default: all scopes you hold).
        """

    def extend(
        self,
        resource: ResourceLike,
        duration: Duration,
        *,
        scope: str | None = None,
    ) -> Lease:
        """Stretch to at least now + ``duration``; ``capped`` if the policy's maximum is less.

        scope: Only this scope (default: all scopes you hold).
        """

    def release(
        self,
        resource: ResourceLike,
        *,
        note: str | None = None,
        scope: str | None = None,
    ) -> None:
        """Drop your lease, if any. Raises LeaseHeld for someone else's.

        note: Leave a note for the next holder.
        scope: Only this scope (default: all scopes you hold).
        """

    def done(
        self,
        resource: ResourceLike,
        *,
        scope: str | None = None,
    ) -> None:
        """Finish: the lease ends completed.

        scope: Only this scope (default: all scopes you hold).
        """

    def claim_next(
        self,
        *,
        ttl: Duration | None = None,
    ) -> Lease:
        """Claim the next task of the queue. Raises NothingLeft.

        ttl: How long the lease lasts unless renewed (15m, 1h).
        """

class AwaitedLeaseVerbs(Protocol):
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
    ) -> Lease:
        """Take a lease, or renew your own; ``wait`` blocks for at most that long.

        The assignee of a task is written to its file. Raises LeaseHeld with the holder and when
        it is free, WaitTimeout, PolicyRefused for a TTL outside the limits or completed work,
        NotFound for a name that is not a task, Invalid for a task file that cannot be edited,
        Unavailable, Denied or UnknownOutcome.

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
    ) -> tuple[Lease, ...]:
        """Take several leases, all or none.

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

    async def renew(
        self,
        resource: ResourceLike,
        *,
        ttl: Duration | None = None,
        scope: str | None = None,
    ) -> Lease:
        """The heartbeat: expiry becomes now + TTL. Raises LeaseLost or NotHolder.

        ttl: The TTL from now on (default: as before).
        scope: Only this scope (default: all scopes you hold).
        """

    async def renew_all(
        self,
        *,
        ttl: Duration | None = None,
    ) -> tuple[Lease, ...]:
        """Renew everything of this session in every layer that this clone uses, a push for each.

        Raises LeaseLost if any was lost; the rest is renewed first.

        ttl: The TTL from now on (default: as before).
        """

    async def extend(
        self,
        resource: ResourceLike,
        duration: Duration,
        *,
        scope: str | None = None,
    ) -> Lease:
        """Stretch to at least now + ``duration``; ``capped`` if the policy's maximum is less.

        scope: Only this scope (default: all scopes you hold).
        """

    async def park(
        self,
        resource: ResourceLike,
        duration: Duration | None = None,
        *,
        reason: str | None = None,
        note: str | None = None,
        scope: str | None = None,
    ) -> Lease:
        """Keep a lease for a later session of its holder: others are refused for ``duration``.

        The policy's ``park_max`` is the maximum and the default. Nothing renews it; a ``claim``
        by any session of the person resumes it, under a new token. Raises LeaseLost, NotHolder,
        and PolicyRefused if the policy forbids it.

        duration: How long to keep others out (3h, 1d).
        reason: Why; shown to anyone who is refused.
        note: Leave a note for the next session.
        scope: Only this scope (default: all scopes you hold).
        """

    async def release(
        self,
        resource: ResourceLike,
        *,
        note: str | None = None,
        keep_status: bool = False,
        commit: bool | None = None,
        scope: str | None = None,
    ) -> None:
        """Drop your lease and edge, if any. Raises LeaseHeld for someone else's.

        note: Leave a note for the next holder.
        keep_status: Leave the status in the task file as it is.
        commit: Commit the edit of the task file by itself, or leave it in the work tree
          (default: edges.commit).
        scope: Only this scope (default: all scopes you hold).
        """

    async def done(
        self,
        resource: ResourceLike,
        *,
        any: bool = False,
        commit: bool | None = None,
        scope: str | None = None,
    ) -> None:
        """Finish: the lease ends completed, the task's status is done, and claims need ``reopen``.

        Raises NotFound for a name in no task file and no record, unless ``any``, LeaseLost if
        others ended your lease and one of them has it, and LeaseHeld for another's.

        any: Accept names that are not tasks.
        commit: Commit the edit of the task file by itself, or leave it in the work tree
          (default: edges.commit).
        scope: Only this scope (default: all scopes you hold).
        """

    async def revoke(
        self,
        resource: ResourceLike | None = None,
        *,
        reason: str,
        expect_holder: str | None = None,
        record: str | None = None,
        scope: str | None = None,
    ) -> tuple[Lease, ...]:
        """End someone else's lease, as an admin of the ledger. Returns the ended leases.

        reason: Why; shown to the holder.
        expect_holder: Only if H holds it.
        record: Remove this damaged record instead.
        scope: Only this scope (default: all).
        """

    async def note(
        self,
        resource: ResourceLike,
        text: str,
    ) -> None:
        """Leave a note for the next holder."""

    async def next_task(
        self,
        *,
        ref: str | None = None,
        cached: bool = False,
    ) -> Task:
        """The next task of the queue, without claiming it. Raises NothingLeft.

        ref: Read the task files of this branch, tag or commit (default: the work tree).
        cached: Answer from what this clone knows, without asking the remote.
        """

    async def claim_next(
        self,
        *,
        ttl: Duration | None = None,
        reason: str | None = None,
        commit: bool | None = None,
    ) -> Lease:
        """Claim the next task atomically: two callers never get the same. Raises NothingLeft.

        ttl: How long the lease lasts unless renewed (15m, 1h).
        reason: Why; shown to anyone who is refused.
        commit: Commit the edit of the task file by itself, or leave it in the work tree
          (default: edges.commit).
        """

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
        """Claim a task and set its status to in progress. Raises what ``claim`` does.

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
        """

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
        """Set a task's status: ``todo``, ``in_progress``, ``done``, or a word of the project.

        An in-progress status claims it, a done status finishes it; the leases concerned are
        returned. Raises UsageError for an unknown status, LeaseHeld for another's task, and
        LeaseLost if a task is to be finished whose lease others ended.

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
        """

class AwaitedGatewayVerbs(Protocol):
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
    ) -> Lease:
        """Take a lease, or renew your own; ``wait`` blocks for at most that long, a minute at
        most.

        Raises LeaseHeld with the holder and when it is free, WaitTimeout, PolicyRefused,
        NotFound, Unavailable or UnknownOutcome.

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
        """

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
    ) -> tuple[Lease, ...]:
        """Take several leases, all or none.

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
        """

    async def renew(
        self,
        resource: ResourceLike,
        *,
        ttl: Duration | None = None,
        scope: str | None = None,
    ) -> Lease:
        """The heartbeat; while two thirds of its time are left, the lease is returned unchanged.

        Raises LeaseLost or NotHolder.

        ttl: The TTL from now on (default: as before).
        scope: Only this scope (default: all scopes you hold).
        """

    async def extend(
        self,
        resource: ResourceLike,
        duration: Duration,
        *,
        scope: str | None = None,
    ) -> Lease:
        """Stretch to at least now + ``duration``; ``capped`` if the policy's maximum is less.

        scope: Only this scope (default: all scopes you hold).
        """

    async def release(
        self,
        resource: ResourceLike,
        *,
        note: str | None = None,
        scope: str | None = None,
    ) -> None:
        """Drop your lease, if any. Raises LeaseHeld for someone else's.

        note: Leave a note for the next holder.
        scope: Only this scope (default: all scopes you hold).
        """

    async def done(
        self,
        resource: ResourceLike,
        *,
        scope: str | None = None,
    ) -> None:
        """Finish: the lease ends completed.

        scope: Only this scope (default: all scopes you hold).
        """

    async def claim_next(
        self,
        *,
        ttl: Duration | None = None,
    ) -> Lease:
        """Claim the next task of the queue. Raises NothingLeft.

        ttl: How long the lease lasts unless renewed (15m, 1h).
        """
