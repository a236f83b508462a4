"""``doctor``: examine this clone. ``selftest``: prove on the remote that leases hold there."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from math import ceil
from secrets import token_hex
from statistics import median
from typing import Any

import click

from gitlease.cli import output
from gitlease.cli.app import flag, option, verb
from gitlease.cli.call import Call, tell
from gitlease.kernel.ledger import acts
from gitlease.kernel.ledger.answers import ClaimOptions
from gitlease.kernel.ledger.claim import claim
from gitlease.kernel.ledger.ports import Cause, Swapped
from gitlease.kernel.rules.errors import (
    Denied,
    GitleaseError,
    Hint,
    Invalid,
    LeaseHeld,
    LeaseLost,
    NotHolder,
    PolicyRefused,
    Rollback,
    Unavailable,
    UsageError,
)
from gitlease.kernel.rules.lease import State
from gitlease.kernel.rules.lease_view import LeaseView
from gitlease.kernel.rules.ledger import Fate
from gitlease.kernel.rules.resources import WHOLE, parse_resource
from gitlease.kernel.store.transport import held_up
from gitlease.tools.doctor import TrialPush, examine, scratch_folder
from gitlease.verbs import wire
from gitlease.verbs.table import Result, Violations, Whole
from gitlease.wiring.examined import Examined
from gitlease.wiring.workspace import Workspace

LAYER, BESIDE = "selftest", "probe"  # the latter is what the fence guards, as work is
TTL = 120  # seconds: of leases that are not meant to lapse, and the most of one that is
TOO_SLOW = "the remote is too slow: a lease lapsed before it could be tested"
SAMPLES = 5
TRIES = 20
PATIENCE = 180.0  # seconds for one push, which waits until a lease has lapsed
LOST = (LeaseHeld, LeaseLost, NotHolder)
MEASURES = "claim_ms", "push_ms", "claims_per_minute"


@verb(
    "doctor",
    """Examine git, this clone, its remote, hooks, agents and private files. Each line is good,
warning, bad, or unknown (for example offline), with the command that mends it. `help trouble` lists
what is examined.

It runs anywhere, and changes nothing, except that reading refreshes this clone's copy of the
ledger and what it has cached of task files.
--probe pushes to the layer `probe` (refs/gitlease/probe), which is used again and never deleted. It
shows that ledgers can be pushed there, that of two pushes at once one is refused, and that an
atomic push lands whole or not at all.

--fix repairs damaged hooks of gitlease, removes damaged copies (which are fetched again), records
and files that killed processes have left, and restricts access to private files. Leases, and what
others own, are not touched.""",
    examples=("gitlease doctor", "gitlease doctor --probe", "gitlease doctor --fix"),
    exits=(1, 2),
    done="nothing is bad",
    no=("violations",),
    session=False,
)
@flag("--fix", help="Repair what is safe to repair, and say what was done.")
@flag("--probe", help="Prove by pushes to the layer `probe` that the remote can be relied on.")
def doctor_verb(call: Call, *, fix: bool, probe: bool) -> int:
    flags = {"layer": call.layer, "remote": call.remote}
    with scratch_folder("gitlease-doctor") as folder:
        of = Examined(call.directory or ".", folder, probes=probe, local=call.local, **flags)
        findings, done = examine(of, fix=fix)
    checks: list[dict[str, Any]] = []
    for x in findings:
        command = call.command_of(x.fix) if isinstance(x.fix, Hint) else x.fix
        checks.append(wire.diagnosis(x, command or None))
    count = Counter(x.state for x in findings)
    summary = ", ".join(f"{x}: {count[x]}" for x in ("bad", "warning", "unknown", "good"))

    def lines() -> Iterator[str]:
        yield from done
        for x in checks:
            yield f"{x['state']:<8} {x['check']:<10} {x['what']}"
            yield from [Whole(f"{'':<19} fix: {x['fix']}")] if x["fix"] else []
        yield summary

    failure = Violations(summary) if count["bad"] else None
    body = {"checks": checks, "fixed": done}
    return call.respond(Result(body=body, lines=lines, failure=failure, summed_up=True))


# --- selftest ---------------------------------------------------------------------------------


class Selftest:
    """One run against a remote; ``results`` has what was proven, ``measured`` what it cost."""

    def __init__(self, call: Call, space: Workspace, folder: str, workers: int) -> None:
        self._call, self._folder, self._name = call, folder, f"{LAYER}-{token_hex(4)}"
        self._space = space.as_machine(f"{folder}/observer")
        self._ledger = self._space.ledger
        # Each has a private state of its own, so it knows no more of the others than on another
        # machine.
        self._workers = [
            space.again(session=f"{self._name}-{n}").as_machine(f"{folder}/{n}")
            for n in range(workers)
        ]
        self._trial = TrialPush(self._workers[0].again(time_limit=PATIENCE))
        self._tokens: list[int] = []
        self._claims, self._pushes = list[float](), list[float]()  # the seconds of each
        self.results: list[dict[str, str]] = []
        self.measured: dict[str, int | None] = dict.fromkeys(MEASURES)

    def run(self, rounds: int) -> None:
        """Prove everything. Raises Violations for what does not hold, and what the remote gives."""
        self.say(f"testing layer {LAYER} on {self._ledger.store.place}")
        TrialPush(self._space).prove_writable()
        if self._ledger.look().policy.skew:
            # All workers read one clock; where only admins may say so, the wait is longer.
            with contextlib.suppress(PolicyRefused):
                acts.set_policy(self._ledger, {"skew": "0s"})
        self._prove("one_winner", lambda: self.one_wins(rounds))
        self._prove("overlap", self.overlap_is_refused)
        self._prove("tokens", self._tokens_grow)
        self.lapse_and_fence()
        self.measure()

    def say(self, text: str) -> None:
        """Print a line at once, since the next one may take long."""
        if not self._call.json:
            output.line(text)
            sys.stdout.flush()

    def _prove(self, name: str, check: Callable[[], str], result: str = "proven") -> None:
        try:
            text = check()
        except (Violations, Rollback) as error:
            lost = "a change that the remote had confirmed was lost: "
            text = f"{'' if isinstance(error, Violations) else lost}{error.message}"
            self.results.append({"name": name, "result": "disproven", "detail": text})
            raise Violations(text) from None
        self.results.append({"name": name, "result": result, "detail": text})
        self.say(f"{result.replace('_', ' ')}: {text}")

    def _claim(self, number: int, name: str, scope: str = WHOLE, ttl: int = TTL) -> LeaseView:
        """Claim as a worker; return the lease, which is its own or is in the way."""
        began, options = time.monotonic(), ClaimOptions(scope=scope, ttl=ttl, any_name=True)
        try:
            (lease,) = claim(self._workers[number].ledger, [parse_resource(name)], options).leases
        except LeaseHeld as refusal:
            if refusal.lease is None:
                raise
            return refusal.lease
        self._claims.append(time.monotonic() - began)
        self._tokens.append(lease.token)
        return lease

    def _release(self, number: int, name: str) -> None:
        acts.release(self._workers[number].ledger, [parse_resource(name)])

    def _is_there(self, name: str, token: int) -> bool:
        """Return whether anybody who looks now finds a lease with its token."""
        there = [x for x in self._ledger.look().leases if x.resource.text == name]
        return [x.token for x in there if x.state is State.ACTIVE] == [token]

    def one_wins(self, rounds: int) -> str:
        """Race for one name, and see that all agree on who has it."""
        name, many = f"{self._name}-race", len(self._workers)
        # All at once: each answers after it has met the others on the remote.
        with ThreadPoolExecutor(many) as pool:
            for number in range(1, rounds + 1):
                answers = [*pool.map(self._claim, range(many), [name] * many)]
                won = [x for x, answer in enumerate(answers) if answer.mine]
                if len(won) != 1:
                    what = f"of {many} simultaneous claims {len(won)} won"
                    raise Violations(f"{what}, in round {number}")
                token = self._tokens[-1]
                if {x.token for x in answers} != {token} or not self._is_there(name, token):
                    raise Violations(f"not everybody sees who won, in round {number}")
                self._release(won[0], name)
        return f"of {many} simultaneous claims exactly one won (rounds: {rounds})"

    def overlap_is_refused(self) -> str:
        """Claim what overlaps a lease, and what does not."""
        task, folder = f"{self._name}-task", self._name
        for number, granted, name, scope in (
            (0, True, f"{folder}/src/", WHOLE),
            (1, False, f"{folder}/src/login.py", WHOLE),
            (1, False, f"{folder}/*/login.py", WHOLE),
            (0, True, task, "parser"),
            (1, False, task, WHOLE),
            (1, True, task, "lexer"),
        ):
            if self._claim(number, name, scope).mine is not granted:
                was = "refused although it is free" if granted else "granted over another's lease"
                raise Violations(f"a claim of {name}, scope {scope}, was {was}")
        return "overlapping paths, patterns and scopes were refused, and nothing else"

    def _tokens_grow(self) -> str:
        if any(after <= before for before, after in pairwise(self._tokens)):
            raise Violations(f"tokens did not grow: {', '.join(map(str, self._tokens))}")
        return f"tokens grew with every grant, from {self._tokens[0]} to {self._tokens[-1]}"

    def lapse_and_fence(self) -> None:
        """Have a lease lapse, and be taken over, while its holder is about to push."""
        name = f"{self._name}-fence"
        # Two pushes and a claim have to fit in; of a slow remote that is more than the shortest.
        ttl = max(self._ledger.look().policy.ttl_min, min(ceil(8 * max(self._claims)), TTL))
        self._claim(0, name, ttl=ttl)
        before, _, pushed = self._pushed(name)
        if "does not support --atomic" in pushed.detail:
            self._prove("lapse", lambda: self._lapses(name))
            text = "the remote takes no atomic pushes: work can land although its lease is lost"
            self._prove("fence", lambda: text, "not_enforced")
            return
        if pushed.fate is not Fate.APPLIED:
            refs = " and ".join(f"{self._space.settings.ref_prefix}/{x}" for x in (BESIDE, LAYER))
            raise Denied(f"the remote refused a push of {refs} at once: {pushed.detail}")
        # Git waits in its own pre-push hook, after it has read the refs and before it sends
        # anything.
        with held_up(lambda hooks: self._pushed(name, hooks), f"{self._folder}/hooks") as late:
            if late.done():
                raise Invalid(
                    f"the push could not be held up by a hook of git: {late.result()[2].detail}",
                    hints=("TMPDIR must name a folder from which programs may run",),
                )
            self._prove("lapse", lambda: self._lapses(name))
        self._prove("fence", lambda: self.fence_holds(name, before, *late.result()[1:]))

    def _pushed(self, name: str = "", hooks: str = "") -> tuple[str, str, Swapped]:
        """Push a step of the layer beside, and with it a lease; again if others were faster.

        Returns the version that was there, the one of this step, and what came of it.
        """
        for _ in range(TRIES):
            moves = [self._trial.step(BESIDE)]
            try:
                moves += [self._trial.step(LAYER, parse_resource(name))] if name else []
            except LOST:
                raise Unavailable(TOO_SLOW) from None
            began = time.monotonic()
            pushed = self._trial.push(*moves, hooks=hooks)
            self._pushes.append(time.monotonic() - began)
            was_held = hooks and os.path.exists(f"{hooks}/pre-push.reached")
            if was_held or pushed.cause not in (Cause.MOVED, Cause.BUSY):
                return moves[0].expected, moves[0].new, pushed
        raise Unavailable(f"a push was overtaken {TRIES} times: others change layer {LAYER}")

    def _lapses(self, name: str) -> str:
        ends = [x.expires_at for x in self._ledger.look().leases if x.resource.text == name]
        if (lease := self._claim(1, name)).mine:
            # It had lapsed before this claim came: that is slow, and no fault of the remote's.
            if ends and self._ledger.clock.now().wall_ms >= max(ends):
                raise Unavailable(TOO_SLOW)
            raise Violations("a live lease was taken over")
        wait = max(0.0, lease.free_at.timestamp() - time.time()) if lease.free_at else 0.0
        self.say(f"waiting {wait:.0f}s for a lease to lapse")
        for pause in (wait, 1, 1):
            time.sleep(pause)
            if self._claim(1, name).mine:
                self._tokens_grow()
                return "a lapsed lease was taken by another worker, and not before it had lapsed"
        raise Violations("a lapsed lease could not be taken")

    def fence_holds(self, name: str, before: str, new: str, late: Swapped) -> str:
        """See that nothing came of the late push, as something did of the one before."""
        tip = self._trial.tip(BESIDE) or ""
        if tip == before:
            raise Violations("the remote confirmed a push of two refs and did not carry it out")
        if late.fate is Fate.APPLIED or tip == new:
            raise Violations("a push landed whose lease another worker had taken over meanwhile")
        if not self._is_there(name, self._tokens[-1]):
            raise Violations("a push replaced the lease of the worker that had taken it over")
        with contextlib.suppress(*LOST):
            acts.renew(self._workers[0].ledger, [parse_resource(name)])
            raise Violations("a lost lease was renewed")
        return "a push was refused whose lease was taken over while it was under way"

    def measure(self) -> None:
        """Time claims, and bare pushes."""
        for _ in range(SAMPLES):
            self._claim(0, f"{self._name}-time")
            self._release(0, f"{self._name}-time")
            self._pushed()
        claim, push = (round(median(x[-SAMPLES:]) * 1000) for x in (self._claims, self._pushes))
        # Half of a minute: of what fits in one after another, so that few have to try again.
        most = max(1, 30_000 // claim)
        self.measured = dict(zip(MEASURES, (claim, push, most), strict=True))
        self.say(f"one claim takes {claim}ms, a bare push {push}ms (medians of {SAMPLES})")
        self.say(
            f"this remote bears about {most} claims a minute, half of what fits in one after "
            "another, so that few have to try again; GitHub asks for at most 6 pushes a minute"
        )

    def end(self) -> None:
        """End all leases."""
        if self._ledger.known_ledger() is None:
            return
        try:
            leases = [x for x in self._ledger.look().leases if self._name in (x.session or "")]
            if ended := [*{x.resource: x for x in leases if x.state is State.ACTIVE}]:
                acts.release(self._ledger, ended)
        except GitleaseError as error:
            text = f"the leases of this test could not be ended, and lapse within {TTL}s"
            self._call.warnings.append(f"{text}: {error.message}")


@verb(
    "selftest",
    f"""Prove on your own remote that leases hold there, in about half a minute.

Each worker knows nothing of the others, as on another machine. Of simultaneous claims exactly one
wins; what overlaps a lease is refused; tokens grow; a lease is taken once it has lapsed, and not
before; and a push is refused whose lease was taken over while it was under way. A remote without
atomic pushes cannot do the last: it is reported as not enforced. Then a claim is timed, beside a
bare push.

It writes to the refs of the layers {LAYER} and {BESIDE}, which stay, and ends its leases. It
touches no branch, no task file, and nothing in this clone. git must reach the remote without a
prompt.""",
    examples=(
        "gitlease selftest",
        "gitlease selftest --workers 8 --rounds 20",
        "gitlease selftest --remote upstream --json",
    ),
    exits=(1, 2, 4, 5, 6, 7, 128),
    done="proven",
    no=("violations",),
    session=False,
    refuses=("layer", "local"),
)
@option(
    "--workers", metavar="N", type=click.IntRange(2, 32), default=4, help="Use so many workers (4)."
)
@option("--rounds", metavar="N", type=click.IntRange(1, 100), default=5, help="Race so often (5).")
def selftest_verb(call: Call, *, workers: int, rounds: int) -> int:
    if any((call.layer, call.local, call.session, call.no_session)):
        raise UsageError(f"selftest has a layer and sessions of its own: {LAYER}")
    space = call.with_words(layer=LAYER, no_session=True).opened()
    if space.location.url is None:
        hints = ("git remote add origin URL",)
        raise UsageError("there is no remote that could be tried", hints=hints)
    began, failure = time.monotonic(), None
    with scratch_folder("gitlease-selftest") as folder:
        test = Selftest(call, space, folder, workers)
        try:
            test.run(rounds)
        except GitleaseError as error:
            failure = error
        finally:
            test.end()
    place, seconds = space.ledger.store.place, round(time.monotonic() - began, 1)
    body = {"place": place, "layer": LAYER, "workers": workers, "rounds": rounds}
    body |= {"results": test.results, **test.measured, "seconds": seconds}
    if failure is not None:
        return tell(call, failure, body=body)
    return call.respond(Result(body=body), lambda: None)
