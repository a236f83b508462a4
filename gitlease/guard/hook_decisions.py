"""What the hooks of git decide: whether a commit or push may go on, and what is to be said.

gitlease's own faults never stop anybody's work: whatever cannot be found out is a warning.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gitlease.core.errors import Denied, GitleaseError, LeaseHeld, TooMuch
from gitlease.core.frozen import dataclass, replace
from gitlease.core.holder import person_key
from gitlease.core.lease import Lease
from gitlease.core.resources.resource import GLOBAL_LAYER, WHOLE
from gitlease.core.view import LeaseView
from gitlease.guard.findings import GuardReport
from gitlease.guard.ports import PushedWork, StagedChange, Started, Worktree
from gitlease.guard.rules import GuardFinding, Severity
from gitlease.guard.service import GuardService

if TYPE_CHECKING:
    from gitlease.engine.ledger_session import LedgerSession

BLOCK, WARN, OFF = "block", "warn", "off"


@dataclass(frozen=True, slots=True, kw_only=True)
class HookRules:
    """The settings of the guard: what it does about a finding, and where nothing can be read.

    ``offline``: a commit is only warned about, whatever was held when the remote last answered, and
    a push stopped, with ``warn``; ``block`` stops both. With ``off`` that nobody answered is not
    said of a commit, and of a push it is a warning.
    """

    mode: str = BLOCK
    offline: str = WARN


@dataclass(frozen=True, slots=True, kw_only=True)
class HookDecision:
    """What a hook came to. ``blocked``: git must stop.

    ``guarded`` has what was found, ``refused`` why the whole of it is refused, as a claim that the
    commit implies is, ``claimed`` what it claimed and ``written`` the task files that this changed.
    """

    blocked: bool = False
    guarded: GuardReport = GuardReport()
    refused: GitleaseError | None = None
    claimed: tuple[LeaseView, ...] = ()
    written: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class Hooks:
    """The decisions of git's hooks, for one actor in one work tree.

    ``service`` is opened only for what changes the ledger.
    """

    def __init__(
        self,
        worktree: Worktree,
        guard: GuardService,
        service: Callable[[], LedgerSession],
        rules: HookRules,
    ) -> None:
        self._worktree, self._guard, self._open, self._rules = worktree, guard, service, rules

    def pre_commit(self) -> HookDecision:
        """Whether what is staged may be committed; claims the tasks that it starts."""
        if self._rules.mode == OFF:
            return HookDecision()
        staged = self._worktree.staged()
        if not staged.touched:
            return HookDecision()
        guarded = self._guard.check(staged.touched)
        if self._rules.offline != BLOCK:
            guarded = guarded.lenient()
        said = guarded.warnings + staged.problems
        said += (guarded.offline,) if guarded.offline and self._rules.offline != OFF else ()
        stops = bool(guarded.offline) and self._rules.offline == BLOCK
        decision = HookDecision(
            blocked=self._stops(guarded, offline=stops), guarded=guarded, warnings=said
        )
        return decision if decision.blocked else self._started(staged, decision)

    def pre_push(self, lines: Sequence[str], remote: str) -> HookDecision:
        """Whether what is to be pushed may be, with what the remote knows now."""
        if self._rules.mode == OFF:
            return HookDecision()
        try:
            work = self._worktree.pushed(lines, remote)
        except TooMuch as error:  # a server would refuse it too
            self._guard.check((), strict=True)
            if not self._guard.others_hold():
                return HookDecision(warnings=(error.message,))
            return HookDecision(blocked=self._rules.mode == BLOCK, refused=_unjudged(error))
        refused = next(map(_of_a_ledger, work.ledgers), None)
        stops = refused is not None and self._rules.mode == BLOCK
        if not work.touched and not work.unknown:
            return HookDecision(blocked=stops, refused=refused)
        guarded = self._guard.check(work.touched, strict=True)
        if any(found.severity is Severity.BLOCK for found in guarded.findings):
            guarded = self._but_their_own(guarded, lines, remote, work)
        if work.unknown and refused is None and self._guard.others_hold():
            refused = _blind(work.unknown, remote)
            stops = self._rules.mode == BLOCK
        said = guarded.warnings + ((guarded.offline,) if guarded.offline else ()) + work.warnings
        strict = bool(guarded.offline) and self._rules.offline != OFF
        stops = self._stops(guarded, offline=strict) or stops
        return HookDecision(blocked=stops, guarded=guarded, refused=refused, warnings=said)

    def name_leases(self, message_file: str, *, amended: bool | None = False) -> tuple[str, ...]:
        """Name the leases that a commit falls under in its message; what was named.

        ``amended`` is None where git does not say whether a commit is being replaced.
        """
        held = [trailer(x, layer) for layer, x in self._guard.held(parents=True) if not x.parked]
        if not held:
            return ()
        touched = self._worktree.staged(amended=amended).touched
        trailers = tuple(trailer(lease, layer) for layer, lease in self._guard.under(touched))
        stale = [text for text in held if text not in trailers]
        self._worktree.set_trailers(message_file, trailers, stale=stale)
        return trailers

    def end_message(self, message_file: str) -> None:
        """Have git refuse a message into which nobody wrote anything, as it does without us."""
        self._worktree.empty_if_bare(message_file)

    # --- how ----------------------------------------------------------------------------------

    def _but_their_own(
        self, guarded: GuardReport, lines: Sequence[str], remote: str, work: PushedWork
    ) -> GuardReport:
        """Without what a push only carries along: the holders' own work, and what has landed."""
        try:
            carried = self._worktree.carried(lines, remote)
        except GitleaseError:
            return guarded
        return self._guard.but_their_own(guarded, carried, lost=work.lost)

    def _stops(self, guarded: GuardReport, *, offline: bool) -> bool:
        found = any(f.severity is Severity.BLOCK for f in guarded.findings)
        return self._rules.mode == BLOCK and (found or offline)

    def _started(self, staged: StagedChange, decision: HookDecision) -> HookDecision:
        """A task that becomes one in progress is claimed with the commit, by the same lease."""
        if not staged.started:
            return decision
        if decision.guarded.offline:
            names = ", ".join(x.resource.text for x in staged.started)
            return replace(decision, warnings=(*decision.warnings, f"{names}: not claimed"))
        from gitlease.engine import claim  # most commits start no task
        from gitlease.engine.answers import ClaimOptions

        try:
            service = self._open()
            self._check_taken(staged.started, service)
            # What a run of theirs holds is a warning to whoever speaks without a session.
            warned = {
                f.lease.resource.key for f in decision.guarded.findings if _is_run(f, service)
            }
            news = (x for x in staged.started if not _is_news_of_others(x, service))
            mine = [x.resource for x in news if x.resource.key not in warned]
            if not mine:
                return decision
            answer = claim.claim(service, mine, ClaimOptions(any_name=True, commit=False))
        except LeaseHeld as refused:
            return replace(decision, blocked=self._rules.mode == BLOCK, refused=refused)
        except GitleaseError as error:
            said = f"not claimed: {error.message}"
            return replace(decision, warnings=(*decision.warnings, said))
        return replace(
            decision,
            claimed=answer.leases if answer.status != "renewed" else (),
            written=tuple(dict.fromkeys(w.change.file for w in answer.written if not w.problem)),
            warnings=decision.warnings + answer.warnings,
        )

    def _check_taken(self, started: Sequence[Started], service: LedgerSession) -> None:
        """Raise LeaseHeld where the commit takes a task from its assignee, and no claim did.

        The file alone would not refuse it any more: the edge is out of it already.
        """
        from gitlease.core.moves.conflicts import assigned_error

        people, holder = service.edges.rules.people, service.actor.holder
        held = {lease.resource.key for _, lease in self._guard.held()}
        for one in started:
            kept = {person_key(name) for name in one.after}
            out = [x for x in people.others(one.before, holder) if person_key(x.name) not in kept]
            if out and one.resource.key not in held:
                raise assigned_error(one.resource, WHOLE, tuple(out))


def _of_a_ledger(ref: str) -> Denied:
    return Denied(
        f"{ref} belongs to everybody's leases, and only gitlease changes it: "
        "push branches and tags only"
    )


def _unjudged(error: TooMuch) -> Denied:
    hint = "leave it out of the push, or wait until nobody holds anything"
    return Denied(f"{error.message} while others hold leases", hints=(hint,))


def _blind(names: Sequence[str], remote: str) -> Denied:
    """A branch that everybody builds on would be replaced by who does not know what it has."""
    shown = ", ".join(names)
    return Denied(
        f"what {shown} has there is not known here, nor whose work would be taken away",
        hints=(shlex.join(["git", "fetch", *([] if "://" in remote else [remote])]),),
    )


def _is_news_of_others(started: Started, service: LedgerSession) -> bool:
    """Whether the commit hands the work to somebody else: that is their claim to make.

    A task that was theirs before is claimed all the same, and refused: the edge protects it.
    """
    people, holder = service.edges.rules.people, service.actor.holder
    others = people.others(started.after, holder)
    before = {person_key(name) for name in started.before}
    return bool(others) and not any(person_key(x.name) in before for x in others)


def _is_run(found: GuardFinding, service: LedgerSession) -> bool:
    return found.severity is Severity.WARN and found.lease.same_holder(service.actor)


def _one_word(text: str) -> str:
    """A text as it is, or in quotes where it would not be read as one word."""
    plain = not any(letter.isspace() or letter in '"\\' for letter in text)
    return text if plain else json.dumps(text, ensure_ascii=False)


def trailer(lease: Lease, layer: str) -> str:
    """``F001 token=42``, with the scope and the layer where they are not the usual ones."""
    words = [lease.resource.text, f"token={lease.token}"]
    words += [] if lease.scope == WHOLE else [f"scope={_one_word(lease.scope)}"]
    words += [] if layer == GLOBAL_LAYER else [f"layer={layer}"]
    return " ".join(words)
