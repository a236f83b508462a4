"""One worker of a soak: it makes calls in all places, is killed and stopped, and logs it all."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from support.fences import clean_env
from support.soak.places import NAMES, PATHS, TASKS, Place, commit_work

ROOT = Path(__file__).parents[3]
LONGEST = 60.0  # seconds that a call may take, and it is no hanging command
_EXITS = frozenset({0, 1, 2, 3, 4, 5, 6, 7, 75, 125})
_WRONG_CLOCK = Path(__file__).parent / "wrong_clock"

# How often each verb is called, of a hundred calls.
_WEIGHTS: dict[str, int] = {
    "claim": 34,
    "renew": 14,
    "release": 14,
    "extend": 3,
    "done": 2,
    "takeover": 3,
    "wait": 3,
    "run": 4,
    "push": 6,
    "next": 3,
    "note": 2,
    "session end": 2,
    "revoke": 1,
    "list": 3,
    "status": 3,
    "log": 2,
    "show": 1,
}
_SPOKEN = {"takeover": "claim", "wait": "claim", "session end": "session"}
_OF_ALL = ("next", "session end", "list", "status", "log", "push")  # they name no resource


@dataclass
class Journal:
    """What came to pass: a line of JSON for every call and every fault, and what was wrong."""

    file: IO[str]
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def call(self, entry: dict[str, Any]) -> None:
        with self._lock:
            self.counts["operations"] += 1
            self.file.write(json.dumps(entry, sort_keys=True) + "\n")

    def fault(self, kind: str, what: str = "") -> None:
        """Note a fault that was brought about: its kind is counted."""
        with self._lock:
            self.counts[kind] += 1
            line = {"fault": kind, "what": what, "at": time.time()}
            self.file.write(json.dumps(line, sort_keys=True) + "\n")

    def violation(self, text: str) -> None:
        with self._lock:
            self.wrong.append(text)
            self.file.write(json.dumps({"violation": text, "at": time.time()}) + "\n")
            self.file.flush()


@dataclass
class Harm:
    """What is done to a call, and when: seconds after its start."""

    kind: str = ""
    after: float = 0.0
    lasts: float = 0.0


class Client:
    """A worker with a session of its own; everything it chooses comes from its seed."""

    def __init__(self, number: int, seed: int, places: Sequence[Place], journal: Journal) -> None:
        self.session = f"w{number}"
        self._random = random.Random(f"{seed}/client/{number}")
        self._places, self._journal = places, journal
        self._calls = 0

    def work(self, done: Callable[[], bool]) -> None:
        """Make calls until it is done."""
        while not done():
            try:
                self.one_call()
            except Exception as error:
                self._journal.violation(f"{self.session}: the soak itself failed: {error!r}")
                raise

    def one_call(self) -> None:
        choose = self._random
        place = choose.choice(self._places)
        verb = choose.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
        resources = [choose.choice((*NAMES, *TASKS, *PATHS))]
        if verb == "claim" and choose.random() < 0.2:
            resources.append(choose.choice((*NAMES, *TASKS)))
        ttl = f"{choose.randint(3, 12)}s"
        harm = self._harm()
        env = {**place.env, **self._clock()}
        argv = self._words(verb, resources, ttl, place)
        entry: dict[str, Any] = {
            "client": f"{place.holder}/{self.session}",
            "place": place.name,
            "holder": place.holder,
            "session": self.session,
            "number": self._calls,
            "verb": _SPOKEN.get(verb, verb),
            "resources": [] if verb in _OF_ALL else resources,
            "argv": argv,
            "harm": vars(harm),
            "clock": env.get("WRONG_CLOCK_MS"),
            "start": time.time(),
        }
        self._calls += 1
        started = time.monotonic()
        ended = self._command(argv, place, env, harm)
        took = time.monotonic() - started
        entry |= {"end": time.time(), "took": round(took, 3), **ended}
        self._judge(entry, took - harm.lasts)
        self._journal.call(entry)

    def _words(self, verb: str, resources: list[str], ttl: str, place: Place) -> list[str]:
        choose, one = self._random, resources[0]
        words = {
            "claim": ["claim", *resources, "--ttl", ttl, "--any"],
            "takeover": ["claim", one, "--ttl", ttl, "--takeover", "--reason", "gone", "--reopen"],
            "wait": ["claim", one, "--ttl", ttl, "--wait", "3s", "--any"],
            "extend": ["extend", one, ttl],
            "run": ["run", one, "--ttl", "4s", "--wait", "2s", "--", "sleep", "0.5"],
            "next": ["next", "--claim", "--ttl", ttl],
            "note": ["note", one, "so far so good"],
            "session end": ["session", "end", *choose.choice(([], ["--release"]))],
            "revoke": ["revoke", one, "--reason", "needed now"],
            "push": ["push", "origin", f"HEAD:refs/heads/{place.name}"],
            "done": ["done", one, "--any"],
        }.get(verb, [verb] if verb in ("list", "status", "log") else [verb, one])
        if verb in ("claim", "release", "takeover") and choose.random() < 0.15:
            words.append("--commit")
        if verb == "push":
            path = choose.choice(("src/a/x.py", "docs/guide.md", "tasks/T0.md", "other.txt"))
            commit_work(place, path, f"{choose.random()}\n")
        session = ["--session", self.session]
        if verb == "run":
            return ["--json", *session, *words]
        return ["--json", *words, *session] if verb != "note" else ["--json", *session, *words]

    def _harm(self) -> Harm:
        choose = self._random
        what = choose.random()
        after, lasts = choose.uniform(0, 0.9), choose.choice((0.2, 1.0, 3.0, 8.0, 16.0))
        if what < 0.10:
            return Harm("client killed", after)
        if what < 0.16:
            return Harm("client and its children killed", after)
        if what < 0.20:
            return Harm("client stopped", after, lasts)
        return Harm()

    def _clock(self) -> dict[str, str]:
        # Together with the servers' right clock this stays within the ledger's allowance.
        offset = self._random.randint(-900, 900)
        if self._random.random() > 0.3:
            return {}
        self._journal.fault("wrong clock", f"{offset:+} ms")
        return {"WRONG_CLOCK_MS": str(offset)}

    def _command(
        self, argv: list[str], place: Place, env: Mapping[str, str], harm: Harm
    ) -> dict[str, Any]:
        # Files instead of pipes: what outlives a killed command does not keep them open.
        with _scratch() as out, _scratch() as err:
            process = subprocess.Popen(
                [sys.executable, "-m", "gitlease", *argv],
                cwd=place.tree,
                env=_environment(place, env),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
            hung = not self._see_through(process, harm)
            out.seek(0)
            err.seek(0)
            said, complained = out.read(), err.read()
        text = complained if "run" in argv[:4] else said
        return _answer(process.returncode, text, complained, hung)

    def _see_through(self, process: subprocess.Popen[Any], harm: Harm) -> bool:
        """Wait for the end of a call, and do it harm in between; False where it hangs."""
        if harm.kind and not _ended(process, harm.after):
            self._journal.fault(harm.kind)
            if harm.kind == "client stopped":
                _signal(process, signal.SIGSTOP, group=True)
                time.sleep(harm.lasts)
                _signal(process, signal.SIGCONT, group=True)
            else:
                _signal(process, signal.SIGKILL, group="children" in harm.kind)
        if _ended(process, LONGEST):
            return True
        _signal(process, signal.SIGKILL, group=True)
        process.wait()
        return False

    def _judge(self, entry: dict[str, Any], took: float) -> None:
        named = f"{entry['client']} in {entry['place']}: {' '.join(entry['argv'])}"
        if entry["hung"]:
            self._journal.violation(f"hangs for {took:.0f}s: {named}")
        answer, code = entry["answer"], entry["exit"]
        trace = "Traceback" in f"{entry['err']}{answer}"
        if trace or code == 70 or (answer and _code(answer) == "internal"):
            self._journal.violation(f"fault of its own: {named}: {entry['err'] or answer}")
        elif code is not None and code >= 0 and not entry["harm"]["kind"]:
            if code not in _EXITS:
                self._journal.violation(f"exit {code}: {named}: {entry['err']}")
            elif answer is None:
                self._journal.violation(f"exit {code} without an answer: {named}: {entry['err']}")


def _code(answer: dict[str, Any]) -> str | None:
    return None if answer.get("ok") else str(answer.get("error", {}).get("code"))


def _scratch() -> IO[str]:
    return tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")


def _environment(place: Place, env: Mapping[str, str]) -> dict[str, str]:
    paths = ":".join(map(str, (_WRONG_CLOCK, ROOT, ROOT / "tests")))
    return clean_env({**place.env, **env, "PYTHONPATH": paths})


def _ended(process: subprocess.Popen[Any], limit: float) -> bool:
    try:
        process.wait(limit)
    except subprocess.TimeoutExpired:
        return False
    return True


def _signal(process: subprocess.Popen[Any], signum: int, *, group: bool) -> None:
    with contextlib.suppress(ProcessLookupError):
        if group:
            os.killpg(process.pid, signum)
        else:
            process.send_signal(signum)


def _answer(code: int, text: str, err: str, hung: bool) -> dict[str, Any]:
    answer = None
    start = text.find("{")
    with contextlib.suppress(ValueError):
        answer = json.loads(text[start:]) if start >= 0 else None
    return {"exit": code, "answer": answer, "err": err[-3000:], "hung": hung}
