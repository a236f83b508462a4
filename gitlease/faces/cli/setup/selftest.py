"""``selftest``: prove on the remote itself that leases hold there.

Each worker is a process with a private state of its own, so it knows no more of the others than
another machine would. They speak the real verbs, in a layer that is there for this alone.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import pairwise
from math import ceil
from statistics import median
from typing import Any

import click

import gitlease
from gitlease.core.errors import (
    Denied,
    GitleaseError,
    Invalid,
    PolicyRefused,
    Unavailable,
    UnknownOutcome,
    UsageError,
)
from gitlease.core.lease import State
from gitlease.core.ledger import MAX_STEP
from gitlease.core.resources import parse_resource
from gitlease.engine import acts
from gitlease.faces.cli import output, refusals
from gitlease.faces.cli.app import run
from gitlease.faces.cli.call import Call, open_real
from gitlease.faces.cli.verb import option, verb
from gitlease.verbs.table import Result, Violations
from gitlease.wiring.push import push_on_trial
from gitlease.wiring.workspace import Workspace

LAYER, BESIDE = "selftest", "probe"  # the latter is what the fence guards, as work is
TTL = "2m"  # of leases that are not meant to lapse
TOO_SLOW = "the remote is too slow: a lease lapsed before it could be tested"
MOST_TTL = 120  # seconds, of one that is, unless the policy has more
SAMPLES = 5
TRIES = 20
PATIENCE = 180.0  # seconds for one push, which waits until a lease has lapsed
LEFT_OVER = 600_000  # milliseconds after which a lease of an earlier selftest is ended as well
MEASURES = "claim_ms", "push_ms", "claims_per_minute"
EXPECTED = ("held", "lost", "not_holder")
KINDS: Sequence[type[GitleaseError]] = (Denied, PolicyRefused, Unavailable, UnknownOutcome)
ERRORS = {x.code: x for x in KINDS}
# git has read the remote's refs, and has sent nothing: here a holder that was paused wakes up.
HOOK = """#!/bin/sh
cat >/dev/null
: >"$0.reached"
while kill -0 PARENT && [ ! -e "$0.go" ]; do sleep 0.1; done 2>/dev/null
[ -e "$0.go" ]
"""
CODE = "from gitlease.faces.cli.setup.selftest import work; work()"


def work() -> None:
    """Carry out what the parent of this worker asks, a line each, until it is gone."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # git, if it runs, is stopped on the way
    answers, given = os.fdopen(os.dup(1), "w"), json.loads(sys.stdin.readline())

    def opener(_directory: str, **options: Any) -> Workspace:
        opened = open_real(given["directory"], **options | given["options"])
        return opened.again(time_limit=PATIENCE).as_machine(given["folder"])

    for line in sys.stdin:
        asked, began = json.loads(line), time.monotonic()
        if asked[0] != "push":
            with contextlib.redirect_stdout(io.StringIO()) as out:
                run([*asked, "--json"], opener=opener)
            answer: dict[str, Any] = json.loads(out.getvalue())
        else:
            lease = parse_resource(asked[1]) if asked[1] else None
            try:
                answer = push_on_trial(opener(""), BESIDE, lease, hooks=asked[2])
            except GitleaseError as error:
                answer = {"ok": False, "error": {"code": error.code, "message": error.message}}
        print(json.dumps({"seconds": time.monotonic() - began, **answer}), file=answers, flush=True)


class Machine:
    """A worker process with its private folder."""

    def __init__(self, folder: str, **given: Any) -> None:
        package = os.path.dirname(os.path.dirname(os.path.abspath(gitlease.__file__)))
        paths = filter(None, (package, os.environ.get("PYTHONPATH")))
        os.mkdir(folder)
        self.folder = folder
        try:
            self._process = subprocess.Popen(
                (sys.executable, "-P", "-c", CODE),
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                encoding="utf-8",
                start_new_session=True,  # Ctrl-C is for the parent, which ends this one
            )
        except OSError as error:
            why = f"a worker cannot be started: {error.strerror}"
            raise Invalid(why, hints=("try fewer: gitlease selftest --workers 2",)) from None
        if (asked := self._process.stdin) is None or (answers := self._process.stdout) is None:
            raise ValueError("the process has no pipes")
        self._asked, self._answers = asked, answers
        self.begin({"folder": folder, **given})

    def begin(self, asked: object) -> None:
        """Have it carry out a verb, or a push on trial, without waiting for the answer."""
        with contextlib.suppress(BrokenPipeError):  # the answer says so
            self._asked.write(json.dumps(asked) + "\n")
            self._asked.flush()

    @property
    def has_answered(self) -> bool:
        return bool(select.select([self._answers], [], [], 0)[0])

    def answer(self) -> dict[str, Any]:
        """Wait for its answer. Raises any error but a refusal for a lease's sake."""
        if not (line := self._answers.readline()):
            raise Invalid(f"a worker process ended with {self._process.wait()}")
        found: dict[str, Any] = json.loads(line)
        code = (error := found.get("error", {})).get("code")
        if code == "rollback":
            raise Violations(f"a change that the remote had confirmed was lost: {error['message']}")
        if code is not None and code not in EXPECTED:
            raise ERRORS.get(code, Invalid)(error["message"], hints=(*error.get("hints", ()),))
        return found

    def ask(self, *asked: str) -> dict[str, Any]:
        """Carry out a verb, or a push on trial; returns its JSON."""
        self.begin(asked)
        return self.answer()

    def stop(self) -> None:
        """End it, and what it has started."""
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        self._process.kill()
        self._process.wait()


class Selftest:
    """One run against a remote; ``results`` has what was proven, ``measured`` what it cost."""

    def __init__(self, call: Call, space: Workspace, folder: str) -> None:
        self._call, self._folder, self._name = call, folder, f"{LAYER}-{os.urandom(4).hex()}"
        self._options = {"layer": LAYER, "remote": space.location.name or space.location.url}
        self._ledger = space.as_machine(os.path.join(folder, "observer")).ledger
        self._machines: list[Machine] = []
        self._tokens: list[int] = []
        self._slowest = 0.0  # seconds of a claim
        self.results: list[dict[str, str]] = []
        self.measured: dict[str, int | None] = dict.fromkeys(MEASURES)

    def run(self, workers: int, rounds: int) -> None:
        """Prove everything. Raises Violations for what does not hold, and what the remote gives."""
        self.say(f"testing layer {LAYER} on {self._ledger.store.place}")
        acts.confirm(self._ledger)  # which shows whether it may be written
        if self._ledger.look().policy.skew:
            # All workers read one clock; where only admins may say so, the wait is longer.
            with contextlib.suppress(PolicyRefused):
                acts.set_policy(self._ledger, {"skew": "0s"})
        for number in range(workers):
            options = {**self._options, "session": f"{self._name}-{number}"}
            folder, directory = f"{self._folder}/{number}", self._call.directory or "."
            self._machines.append(Machine(folder, directory=directory, options=options))
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
        except Violations as error:
            self.results.append({"name": name, "result": "disproven", "detail": error.message})
            raise
        self.results.append({"name": name, "result": result, "detail": text})
        self.say(f"{result.replace('_', ' ')}: {text}")

    def _claim(self, number: int, *words: str, ttl: str = TTL) -> dict[str, Any]:
        answer = self._machines[number].ask("claim", "--any", "--ttl", ttl, *words)
        self._tokens += [answer["lease"]["token"]] if answer["ok"] else []
        self._slowest = max(self._slowest, answer["seconds"])
        return answer

    def _is_there(self, name: str, token: int) -> bool:
        """Whether anybody who looks now finds a lease with its token."""
        there = [x for x in self._ledger.look().leases if x.resource.text == name]
        return [x.token for x in there if x.state is State.ACTIVE] == [token]

    def one_wins(self, rounds: int) -> str:
        """Race for one name, and see that all agree on who has it."""
        name, many = f"{self._name}-race", len(self._machines)
        for number in range(1, rounds + 1):
            for machine in self._machines:
                machine.begin(("claim", name, "--any", "--ttl", TTL))
            answers = [machine.answer() for machine in self._machines]
            won = [x for x, answer in enumerate(answers) if answer["ok"]]
            if len(won) != 1:
                raise Violations(f"of {many} simultaneous claims {len(won)} won, in round {number}")
            self._tokens.append(token := answers[won[0]]["lease"]["token"])
            told = {(x["error"]["lease"] or {}).get("token") for x in answers if not x["ok"]}
            if told != {token} or not self._is_there(name, token):
                raise Violations(f"not everybody sees who won, in round {number}")
            self._machines[won[0]].ask("release", name)
        return f"of {many} simultaneous claims exactly one won (rounds: {rounds})"

    def overlap_is_refused(self) -> str:
        """Claim what overlaps a lease, and what does not."""
        task, folder = f"{self._name}-task", f"/{self._name}"
        for number, granted, *words in (
            (0, True, f"{folder}/src/"),
            (1, False, f"{folder}/src/login.py"),
            (1, False, f"{folder}/*/login.py"),
            (0, True, task, "--scope", "parser"),
            (1, False, task),
            (1, True, task, "--scope", "lexer"),
        ):
            if self._claim(number, *words)["ok"] is not granted:
                was = "refused although it is free" if granted else "granted over another's lease"
                raise Violations(f"a claim of {' '.join(words)} was {was}")
        return "overlapping paths, patterns and scopes were refused, and nothing else"

    def _tokens_grow(self) -> str:
        if any(after <= before for before, after in pairwise(self._tokens)):
            raise Violations(f"tokens did not grow: {', '.join(map(str, self._tokens))}")
        return f"tokens grew with every grant, from {self._tokens[0]} to {self._tokens[-1]}"

    def lapse_and_fence(self) -> None:
        """Have a lease lapse, and be taken over, while its holder is about to push."""
        name = f"{self._name}-fence"
        os.mkdir(hooks := f"{self._machines[0].folder}/hooks")
        hook = f"{hooks}/pre-push"
        with open(os.open(hook, os.O_WRONLY | os.O_CREAT, 0o700), "w", encoding="utf-8") as file:
            file.write(HOOK.replace("PARENT", str(os.getpid())))
        # Two pushes and a claim have to fit in; of a slow remote that is more than the shortest.
        ttl = max(self._ledger.look().policy.ttl_min, min(ceil(8 * self._slowest), MOST_TTL))
        self._claim(0, name, ttl=f"{ttl}s")
        pushed = self._pushed(name)
        if "does not support --atomic" in pushed["detail"]:
            self._prove("lapse", lambda: self._lapses(name))
            text = "the remote takes no atomic pushes: work can land although its lease is lost"
            self._prove("fence", lambda: text, "not_enforced")
            return
        if not pushed["ok"]:
            raise Denied(f"the remote refused a push of two refs at once: {pushed['detail']}")
        late = self._pushed(name, hooks, lambda: os.path.exists(f"{hook}.reached"))
        if late["seconds"]:
            raise Invalid(
                f"the push could not be held up by a hook of git: {late['detail']}",
                hints=("TMPDIR must name a folder from which programs may run",),
            )
        self._prove("lapse", lambda: self._lapses(name))
        os.mkdir(f"{hook}.go")
        self._prove("fence", lambda: self.fence_holds(name, pushed["revision"]))

    def _pushed(
        self, name: str, hooks: str = "", is_held_up: Callable[[], bool] = lambda: False
    ) -> dict[str, Any]:
        """Push under a lease, again if the ledger moved; no ``seconds`` while it is held up."""
        first = self._machines[0]
        for _ in range(TRIES):
            first.begin(("push", name, hooks))
            while not first.has_answered:
                if is_held_up():
                    return {"seconds": 0}
                time.sleep(0.02)
            pushed = first.answer()
            if "error" in pushed:
                raise Unavailable(TOO_SLOW)
            if not pushed["moved"]:
                return pushed
        raise Unavailable(f"a push was overtaken {TRIES} times: others change layer {LAYER}")

    def _lapses(self, name: str) -> str:
        ends = [x.expires_at for x in self._ledger.look().leases if x.resource.text == name]
        if (answer := self._claim(1, name))["ok"]:
            if ends and self._ledger.clock.now().wall_ms >= max(ends):
                raise Unavailable(TOO_SLOW)
            raise Violations("a live lease was taken over")
        wait = datetime.fromisoformat(answer["error"]["free_at"]).timestamp() - time.time()
        self.say(f"waiting {wait:.0f}s for a lease to lapse")
        for pause in (max(0.0, wait), 1, 1):  # times are told in whole seconds
            time.sleep(pause)
            if (answer := self._claim(1, name))["ok"]:
                self._tokens_grow()
                return "a lapsed lease was taken by another worker, and not before it had lapsed"
        raise Violations(f"a lapsed lease could not be taken: {answer['error']['message']}")

    def fence_holds(self, name: str, revision: int) -> str:
        """Let the push go on, and see that nothing comes of it, as something did before."""
        late, beside = self._machines[0].answer(), self._ledger.store.fetch(BESIDE)
        if beside.ledger is None or beside.ledger.header.revision < revision:
            raise Violations("the remote confirmed a push of two refs and did not carry it out")
        if late["ok"] or beside.version == late["version"]:
            raise Violations("a push landed whose lease another worker had taken over meanwhile")
        if not self._is_there(name, self._tokens[-1]):
            raise Violations("a push replaced the lease of the worker that had taken it over")
        if self._machines[0].ask("renew", name)["ok"]:
            raise Violations("a lost lease was renewed")
        return "a push was refused whose lease was taken over while it was under way"

    def measure(self) -> None:
        """Time claims, and bare pushes."""
        machine, name, claims, pushes = self._machines[0], f"{self._name}-time", [], []
        for _ in range(SAMPLES):
            claims.append(self._claim(0, name)["seconds"])
            machine.ask("release", name)
            pushes.append(machine.ask("push", "", "")["seconds"])
        claim, push = (round(median(x) * 1000) for x in (claims, pushes))
        most = max(1, 30_000 // claim)
        self.measured = dict(zip(MEASURES, (claim, push, most), strict=True))
        self.say(f"one claim takes {claim}ms, a bare push {push}ms (medians of {SAMPLES})")
        self.say(
            f"this remote bears about {most} claims a minute, half of what fits in one after "
            "another, so that few have to try again; GitHub asks for at most 6 pushes a minute"
        )

    def end(self) -> None:
        """End all processes and leases; those that an earlier selftest left, too."""
        for machine in self._machines:
            machine.stop()
        if self._ledger.known_ledger() is None:
            return
        old, me = self._ledger.clock.now().wall_ms - LEFT_OVER, self._ledger.actor
        try:
            own = [x for x in self._ledger.look().leases if x.same_holder(me)]
            own = [x for x in own if self._name in (x.session or "") or x.expires_at < old]
            ended = [*{x.resource: x for x in own if x.state is State.ACTIVE}]
            for start in range(0, len(ended), MAX_STEP):
                acts.release(self._ledger, ended[start : start + MAX_STEP])
        except GitleaseError as error:
            text = f"the leases of this test could not be ended, and lapse within {TTL}"
            self._call.warnings.append(f"{text}: {error.message}")


@verb(
    "selftest",
    f"""Prove on your own remote that leases hold there, in about half a minute.

Each worker is a process that knows nothing of the others, as on another machine. Of simultaneous
claims exactly one wins; what overlaps a lease is refused; tokens grow; a lease is taken once it has
lapsed, and not before; and a push is refused whose lease was taken over while it was under way. A
remote without atomic pushes cannot do the last: it is reported as not enforced. Then a claim is
timed, beside a bare push.

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
)
@option(
    "--workers",
    metavar="N",
    type=click.IntRange(2, 32),
    default=4,
    help="Use so many processes (4).",
)
@option("--rounds", metavar="N", type=click.IntRange(1, 100), default=5, help="Race so often (5).")
def selftest_verb(call: Call, *, workers: int, rounds: int) -> int:
    if any((call.layer, call.local, call.session, call.no_session)):
        raise UsageError(f"selftest has a layer and sessions of its own: {LAYER}")
    space = call.with_words(layer=LAYER, no_session=True).opened()
    if space.location.url is None:
        hints = ("git remote add origin URL",)
        raise UsageError("there is no remote: the ledger is local to this clone", hints=hints)
    began, failure = time.monotonic(), None
    try:
        made = tempfile.TemporaryDirectory(prefix="gitlease-selftest-", ignore_cleanup_errors=True)
    except OSError as error:
        hints = ("TMPDIR names the folder for temporary files",)
        raise Invalid(f"there is no temporary folder: {error.strerror}", hints=hints) from None
    with made as folder:
        test = Selftest(call, space, os.path.realpath(folder))
        try:
            test.run(workers, rounds)
        except GitleaseError as error:
            failure = error
        finally:
            test.end()
    body = {
        "place": space.ledger.store.place,
        "layer": LAYER,
        "workers": workers,
        "rounds": rounds,
        "results": test.results,
        **test.measured,
        "seconds": round(time.monotonic() - began, 1),
    }
    if failure is not None:
        return refusals.tell(call, failure, body=body)
    return call.respond(Result(body=body), lambda: None)
