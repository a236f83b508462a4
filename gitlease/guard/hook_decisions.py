"""The decisions of git's hooks: whether a commit or push may go on, and the messages to print.

gitlease's own faults never block anybody's work: whatever cannot be found out is a warning.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gitlease.core.errors import Denied, GitleaseError, LeaseHeld, TooMuch
from gitlease.core.frozen import dataclass, replace
from gitlease.core.policy import person_key
from gitlease.core.resources.resource import WHOLE
from gitlease.core.view import LeaseView
from gitlease.guard.findings import GuardReport
from gitlease.guard.ports import StagedChange, Started
from gitlease.guard.rules import GuardFinding, Severity
from gitlease.guard.service import GuardService

if TYPE_CHECKING:
    from gitlease.engine.ledger_session import LedgerSession
    from gitlease.guard.worktree import HookWorktree

BLOCK, WARN, OFF = "block", "warn", "off"


@dataclass(frozen=True, slots=True, kw_only=True)
class HookRules:
    """The guard's settings: what a finding does, and what an unreachable remote does.

    ``offline``: ``warn`` warns about a commit and blocks a push; ``block`` blocks both; ``off``
    ignores it for a commit and warns about a push.
    """

    mode: str = BLOCK
    offline: str = WARN


@dataclass(frozen=True, slots=True, kw_only=True)
class HookDecision:
    """The outcome of a hook. ``blocked``: git must stop.

    ``refused`` is why the whole is refused, such as a claim that the commit implies; ``claimed``
    are the leases it claimed, and ``written`` the task files that this changed.
    """

    blocked: bool = False
    report: GuardReport = GuardReport()
    refused: GitleaseError | None = None
    claimed: tuple[LeaseView, ...] = ()
    written: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class Hooks:
    """The decisions of git's hooks, for one actor in one work tree.

    ``service`` is opened only for changes to the ledger.
    """

    def __init__(
        self,
        worktree: HookWorktree,
        guard: GuardService,
        service: Callable[[], LedgerSession],
        rules: HookRules,
    ) -> None:
        self._worktree, self._guard, self._open = worktree, guard, service
        self._blocks, self._offline = rules.mode == BLOCK, rules.offline
        self._is_off = rules.mode == OFF

    def pre_commit(self) -> HookDecision:
        """Decide whether the staged change may be committed; claim the tasks that it starts."""
        staged = StagedChange() if self._is_off else self._worktree.staged()
        if not staged.touched:
            return HookDecision()
        report = self._guard.check(staged.touched)
        if self._offline != BLOCK:
            report = report.lenient()
        warnings = report.warnings + staged.problems
        if report.offline and self._offline != OFF:
            warnings += (report.offline,)
        blocked = self._is_blocked(report, offline=self._offline == BLOCK)
        decision = HookDecision(blocked=blocked, report=report, warnings=warnings)
        return decision if blocked or not staged.started else self._claim(staged.started, decision)

    def pre_push(self, lines: Sequence[str], remote: str) -> HookDecision:
        """Decide whether a push may go on, by the remote's present state."""
        if self._is_off:
            return HookDecision()
        try:
            work = self._worktree.pushed(lines, remote)
        except TooMuch as error:  # a server would refuse it too
            self._guard.check((), strict=True)
            if not self._guard.others_hold():
                return HookDecision(warnings=(error.message,))
            return HookDecision(blocked=self._blocks, refused=_too_much(error))
        refused = next(map(_ledger_ref, work.ledgers), None)
        if not work.touched and not work.unknown:
            return HookDecision(blocked=refused is not None and self._blocks, refused=refused)
        report = self._guard.check(work.touched, strict=True)
        if any(found.severity is Severity.BLOCK for found in report.findings):
            # Without what the push only carries along: the holders' own work, and what has landed.
            with contextlib.suppress(GitleaseError):
                carried = self._worktree.carried(lines, remote)
                report = self._guard.without_own_work(report, carried, lost=work.lost)
        if work.unknown and refused is None and self._guard.others_hold():
            refused = _unknown_branch(work.unknown, remote)
        blocked = self._is_blocked(report, offline=self._offline != OFF)
        return HookDecision(
            blocked=blocked or (refused is not None and self._blocks),
            report=report,
            refused=refused,
            warnings=(*report.warnings, *filter(None, [report.offline]), *work.warnings),
        )

    def name_leases(self, message_file: str, *, amended: bool | None = False) -> tuple[str, ...]:
        """Add a trailer for each lease that a commit falls under to its message; return them.

        ``amended`` is None if git does not say whether a commit is being replaced.
        """
        from gitlease.core.trailers import trailer

        held = [trailer(x, layer) for layer, x in self._guard.held(parents=True) if not x.parked]
        if not held:
            return ()
        touched = self._worktree.staged(amended=amended).touched
        trailers = tuple(trailer(lease, layer) for layer, lease in self._guard.under(touched))
        stale = [text for text in held if text not in trailers]
        self._worktree.set_trailers(message_file, trailers, stale=stale)
        return trailers

    def end_message(self, message_file: str) -> None:
        """Have git refuse a message with nothing but our trailers, as it does an empty one."""
        self._worktree.empty_if_bare(message_file)

    def _is_blocked(self, report: GuardReport, *, offline: bool) -> bool:
        found = any(f.severity is Severity.BLOCK for f in report.findings)
        return self._blocks and (found or (offline and bool(report.offline)))

    def _claim(self, started: Sequence[Started], decision: HookDecision) -> HookDecision:
        # A task that becomes one in progress is claimed with the commit, by the same lease.
        if decision.report.offline:
            names = ", ".join(x.resource.text for x in started)
            return replace(decision, warnings=(*decision.warnings, f"{names}: not claimed"))
        from gitlease.engine import claim  # most commits start no task
        from gitlease.engine.answers import ClaimOptions

        try:
            service = self._open()
            self._check_taken(started, service)
            # The person, without a session, is only warned about what a run of theirs holds.
            warned = {
                f.lease.resource.key for f in decision.report.findings if _is_own_run(f, service)
            }
            mine = [
                x.resource
                for x in started
                if not _is_handed_over(x, service) and x.resource.key not in warned
            ]
            if not mine:
                return decision
            answer = claim.claim(service, mine, ClaimOptions(any_name=True, commit=False))
        except LeaseHeld as refused:
            return replace(decision, blocked=self._blocks, refused=refused)
        except GitleaseError as error:
            warning = f"not claimed: {error.message}"
            return replace(decision, warnings=(*decision.warnings, warning))
        return replace(
            decision,
            claimed=answer.leases if answer.status != "renewed" else (),
            written=tuple(dict.fromkeys(w.change.file for w in answer.written if not w.problem)),
            warnings=decision.warnings + answer.warnings,
        )

    def _check_taken(self, started: Sequence[Started], service: LedgerSession) -> None:
        # Refuse to take a task from its assignee without a claim: the edge is out of the file
        # already, so the claim itself would not refuse it.
        from gitlease.core.moves.claiming import assigned_error

        people, holder = service.edges.rules.people, service.actor.holder
        held = {lease.resource.key for _, lease in self._guard.held()}
        for one in started:
            kept = {person_key(name) for name in one.after}
            out = [x for x in people.others(one.before, holder) if person_key(x.name) not in kept]
            if out and one.resource.key not in held:
                raise assigned_error(one.resource, WHOLE, tuple(out))


def _ledger_ref(ref: str) -> Denied:
    return Denied(
        f"{ref} holds everybody's leases, and only gitlease changes it: push branches and tags only"
    )


def _too_much(error: TooMuch) -> Denied:
    hint = "leave it out of the push, or wait until nobody holds anything"
    return Denied(f"{error.message} while others hold leases", hints=(hint,))


def _unknown_branch(names: Sequence[str], remote: str) -> Denied:
    return Denied(
        f"this clone does not have the remote's {', '.join(names)}, so it cannot tell whose work "
        "would be lost",
        hints=(shlex.join(["git", "fetch", *([] if "://" in remote else [remote])]),),
    )


def _is_handed_over(started: Started, service: LedgerSession) -> bool:
    # The commit hands the work to somebody else: that is their claim to make. A task that was
    # theirs before is claimed all the same, and refused: the edge protects it.
    people, holder = service.edges.rules.people, service.actor.holder
    others = people.others(started.after, holder)
    before = {person_key(name) for name in started.before}
    return bool(others) and not any(person_key(x.name) in before for x in others)


def _is_own_run(found: GuardFinding, service: LedgerSession) -> bool:
    return found.severity is Severity.WARN and found.lease.same_holder(service.actor)
