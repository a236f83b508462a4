"""A push whose answer is lost, late or false: never two winners, and never a silent one.

Each story: Ann's claim meets a fault; Bob claims the same; what was held back arrives; Ann's next
command. Whatever was reported must be what the ref says in the end.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from support.clock import ManualClock
from support.faults import (
    FaultProxy,
    HttpFault,
    TcpFault,
    answer,
    cut_after,
    delay,
    duplicate,
    lose_answer,
    replay,
    stall,
    swallow_down,
)
from support.fences import clean_env
from support.ledgers import door, read_files, text_of
from support.remotes import Remote
from support.repos import git
from support.running import LONG
from support.session import LeaseService

from gitlease.kernel.rules.errors import GitleaseError
from gitlease.library.leases import Leases

pytestmark = pytest.mark.slow

Clones = Callable[..., list[Path]]
ROOT = Path(__file__).parents[2]
ANN, BOB = "w1@example.com", "w2@example.com"
POST = b"POST "
LIMIT = {"http": 1.5, "ssh": 4.0}  # seconds for a push that meets a fault


@dataclass
class Stage:
    """Two clones of one remote; Ann's goes through the proxy, Bob's does not."""

    remote: Remote
    proxy: FaultProxy
    ann_clone: Path
    bob_clone: Path
    clock: ManualClock = field(
        default_factory=lambda: ManualClock(wall_ms=int(time.time() * 1_000))
    )  # started now, since some of the clients are processes with a clock of their own

    def ann(self, time_limit: float = LONG) -> Leases:
        """Ann in a new process of her clone."""
        return door(self.ann_clone, clock=self.clock, time_limit=time_limit)

    def bob(self) -> Leases:
        """Bob in a new process of his clone."""
        return door(self.bob_clone, clock=self.clock)

    def holder(self, resource: str = "F001") -> str | None:
        """Who holds it, as the ref says; None when nobody does."""
        for file in read_files(self.remote.bare):
            if file.startswith("leases/") and f"/{resource.lower()}-" in file:
                lines = text_of(self.remote.bare, file).splitlines()
                return next(x for x in lines if x.startswith("holder:")).split('"')[1]
        return None

    def settle(self) -> None:
        """Let go of whatever is held back, and wait until the server has nothing more to do."""
        self.proxy.release()
        if self.remote.kind == "http":
            self.remote.disarm()
        quiet, until = 0, time.monotonic() + LONG
        while quiet < 8:
            assert time.monotonic() < until, "the server does not come to rest"
            quiet = 0 if _busy(self.remote.bare) else quiet + 1
            time.sleep(0.02)


def _busy(bare: Path) -> bool:
    """Whether any git process works in, or was started for, this repository."""
    wanted = os.fsencode(bare)
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            words = Path("/proc", name, "cmdline").read_bytes()
            where = os.fsencode(os.readlink(f"/proc/{name}/cwd"))
        except OSError:
            continue
        if b"receive-pack" in words and (wanted in words or where == wanted):
            return True
    return False


@contextmanager
def stage(remote: Remote, clones: Clones, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    remote.open_to(monkeypatch)
    with FaultProxy(remote.port) as proxy:
        (ann,) = clones(1, remote.through(proxy.port))
        (bob,) = clones(1, remote)
        made = Stage(remote, proxy, ann, bob)
        made.bob().claim("F000")
        made.ann().list()
        yield made


@pytest.fixture
def http(http_remote: Remote, clones: Clones, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    with stage(http_remote, clones, monkeypatch) as made:
        yield made


@pytest.fixture
def ssh(ssh_remote: Remote, clones: Clones, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    with stage(ssh_remote, clones, monkeypatch) as made:
        yield made


def attempt(action: Callable[[], object]) -> str:
    """``ok``, or the code of the refusal; anything else is no answer."""
    try:
        action()
    except GitleaseError as error:
        return error.code
    return "ok"


def tell(on: Stage, *, early: bool) -> tuple[str, str]:
    """The story from Ann's claim to the end; what Ann and Bob were told.

    ``early``: Bob claims while what was held back is still on its way.
    """
    ann = attempt(lambda: on.ann(LIMIT[on.remote.kind]).claim("F001"))
    bob = attempt(lambda: on.bob().claim("F001")) if early else ""
    between = on.holder()
    on.settle()
    if not early:
        if ann in ("unavailable", "denied"):
            assert on.holder() is None, f"{ann} was said, and later it was held all the same"
        bob = attempt(lambda: on.bob().claim("F001"))
    holder = on.holder()
    assert ann in ("ok", "unavailable", "unknown_outcome", "denied"), ann
    assert bob in ("ok", "held"), bob
    assert (ann, bob) != ("ok", "ok"), "two winners"
    assert (holder == BOB) == (bob == "ok"), (ann, bob, holder)
    if early and between is not None:
        assert holder == between, "a held lease changed hands when a late push arrived"
    if ann == "ok":
        assert holder == ANN
    if ann in ("unavailable", "denied"):
        assert holder == BOB, f"{ann} was said, and then it was held all the same"
    after_that(on, ann)
    return ann, bob


def after_that(on: Stage, ann: str) -> None:
    """Ann's next commands know what became of it."""
    holder, next_one = on.holder(), on.ann()
    next_one.note("F009", "my next command")
    messages = [line for line in next_one.warnings if "claim of F001" in line]
    assert all("barrier" not in line for line in next_one.warnings), next_one.warnings
    landed = any(" had reached the remote" in line for line in messages)
    if ann in ("unknown_outcome", "killed"):
        assert landed == (holder == ANN), next_one.warnings
    if ann == "unknown_outcome":  # the hint promised an answer, whatever it is
        assert len(messages) == 1, next_one.warnings
    if holder == ANN:
        assert attempt(lambda: on.ann().claim("F001")) == "ok"
        assert [x.resource for x in on.ann().list(mine=True)] == ["F001"]
        assert attempt(lambda: on.ann().release("F001")) == "ok"
    else:
        assert attempt(lambda: on.ann().claim("F001")) == "held"
        assert attempt(lambda: on.ann().renew("F001")) == "not_holder"
        assert attempt(lambda: on.bob().release("F001")) == "ok"
    assert attempt(lambda: on.ann().claim("F001")) == "ok"
    assert on.holder() == ANN
    git(on.remote.bare, "fsck", "--strict", "--no-dangling")


ONCE: dict[str, Callable[[], TcpFault]] = {
    "cut in the question": lambda: cut_after("up", 60, times=1),
    "cut in the commands": lambda: cut_after("up", 450, since=POST, times=1),
    "cut in the pack": lambda: cut_after("up", 900, since=POST, times=1),
    "cut before the answer": lambda: cut_after("down", 0, since=POST, times=1),
    "cut in the report": lambda: cut_after("down", 290, since=POST, times=1),
    "swallow the answer": lambda: swallow_down(since=POST, quiet=0.5, times=1),
    "stall the request": lambda: stall("up", 0, since=POST, times=1),
    "stall in the pack": lambda: stall("up", 900, since=POST, times=1),
    "stall the answer": lambda: stall("down", 0, since=POST, times=1),
}


@pytest.mark.parametrize("name", ONCE)
def test_http_fault_once(name: str, http: Stage) -> None:
    """One fault, and then the network is well again: Ann gets an answer that holds."""
    fault = http.proxy.arm(ONCE[name]())
    ann, _ = tell(http, early=False)
    assert fault.fired == 1
    assert ann in ("ok", "unavailable")


LASTING: dict[str, Callable[[], TcpFault]] = {
    "request": lambda: stall("up", 0, since=POST),
    "pack": lambda: stall("up", 900, since=b"git-receive-pack HTTP"),
    "answer": lambda: stall("down", 0, since=POST),
}


@pytest.mark.parametrize(("name", "early"), [("request", False), ("pack", True), ("answer", True)])
def test_http_fault_that_lasts(name: str, early: bool, http: Stage) -> None:
    """The network is gone for good in the middle of the push; what it held back arrives late."""
    http.proxy.arm(LASTING[name]())
    ann, _ = tell(http, early=early)
    assert ann == "unknown_outcome"


SERVER: dict[str, tuple[Callable[[], HttpFault], tuple[str, ...]]] = {
    "applied twice over": (duplicate, ("ok",)),
    "applied and every answer lost": (lambda: lose_answer(times=None), ("ok",)),
    "replayed": (replay, ("ok",)),
    "500 to the question": (lambda: answer(500, stage="advertise"), ("unavailable",)),
    "403 to the question": (lambda: answer(403, stage="advertise"), ("denied",)),
    "403 to every request": (
        lambda: answer(403, stage="request", service="receive-pack", times=None),
        ("denied",),
    ),
    "429 to every request": (
        lambda: answer(429, stage="request", service="receive-pack", times=None),
        ("unavailable", "unknown_outcome"),
    ),
    "late": (lambda: delay(1.0, stage="request", service="receive-pack"), ("ok",)),
}


@pytest.mark.parametrize("name", SERVER)
def test_http_server_fault(name: str, http: Stage) -> None:
    make, expected = SERVER[name]
    http.remote.arm(make())
    ann, _ = tell(http, early=False)
    assert ann in expected


LOCKING_HOOK = """\
#!/bin/sh
[ "$1" = prepared ] || exit 0
grep -q gitlease || exit 0
[ -e {gate} ] || exit 0
if mkdir {gate}/first 2>/dev/null; then
  while [ -e {gate} ]; do sleep 0.05; done
fi
exit 0
"""


@pytest.mark.parametrize("how", ["time limit", "interrupt"])
def test_a_claim_that_is_cut_off_leaves_no_lock_on_the_remote(
    how: str, path_remote: Remote, clones: Clones, tmp_path: Path
) -> None:
    """Over a path the server's side is our own child: how it is ended matters to everybody."""
    one, two = clones(2)
    clock = ManualClock(wall_ms=int(time.time() * 1_000))
    door(one, clock=clock).claim("F000")
    gate = tmp_path / "gate"
    gate.mkdir()
    hook = path_remote.bare / "hooks" / "reference-transaction"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(LOCKING_HOOK.format(gate=gate))
    hook.chmod(0o755)
    if how == "time limit":
        outcome = attempt(lambda: door(one, clock=clock, time_limit=1.5).claim("F001"))
        assert outcome in ("ok", "unavailable", "unknown_outcome")
    else:
        process = subprocess.Popen(
            [sys.executable, "-c", CLAIM, str(one)],
            env={**clean_env(), "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until = time.monotonic() + LONG
        while not (gate / "first").exists():
            assert time.monotonic() < until
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        assert process.wait(LONG) != 0
    (gate / "first").rmdir()
    gate.rmdir()
    until = time.monotonic() + LONG
    while _busy(path_remote.bare):
        assert time.monotonic() < until
        time.sleep(0.02)
    assert list(path_remote.bare.rglob("*.lock")) == []
    assert door(two, clock=clock).claim("F002").mine
    assert door(one, clock=clock).claim("F001").mine


@pytest.mark.nightly
def test_other_verbs_when_the_answer_is_lost(http: Stage) -> None:
    """Applied once, told as done, and a renewal counted once."""
    http.ann().claim("F001")
    http.ann().renew("F001")
    for verb, state in ((Leases.renew, "active"), (Leases.done, "completed")):
        http.remote.arm(lose_answer())
        assert attempt(lambda verb=verb: verb(http.ann(), "F001")) == "ok"  # type: ignore[misc]
        http.settle()
        (seen,) = http.bob().show("F001")
        assert (seen.renewals, seen.state) == (2, state)
    events = [e for e in LeaseService(http.bob()._ledger).log().events if e.operation]
    ids = [(e.operation, e.kind) for e in events]
    assert len(set(ids)) == len(ids), "applied twice"


@pytest.mark.parametrize(("direction", "share"), [("up", 1.0), ("down", 0.1)])
def test_ssh_cut_anywhere(direction: str, share: float, ssh: Stage) -> None:
    """Cut where that share of what a whole push sends has passed."""
    before = len(ssh.proxy.links)
    ssh.ann().note("F008", "to measure a push")
    link = ssh.proxy.links[before]
    link.closed.wait(LONG)
    total = link.up if direction == "up" else link.down
    fault = ssh.proxy.arm(
        cut_after(direction, int(total * share), times=1)  # type: ignore[arg-type]
    )
    ann, _ = tell(ssh, early=False)
    assert ann in ("ok", "unavailable"), fault


CLAIM = "import sys, gitlease; gitlease.open(sys.argv[1]).claim('F001')"


@contextmanager
def killed_claim(on: Stage, fault: TcpFault) -> Iterator[None]:
    """Ann's claim in a process of its own, killed as soon as the fault holds it up.

    The git that it started is left to itself.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", CLAIM, str(on.ann_clone)],
        env={**clean_env(on.remote.env), "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        until = time.monotonic() + LONG
        while not fault.fired:
            assert process.poll() is None, process.communicate()[1].decode()
            assert time.monotonic() < until, "the fault does not fire"
            time.sleep(0.01)
        process.kill()
        process.wait()
        yield
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("stalled", "early"),
    [(("up", 900), True), (("up", 0), False), (("down", 0), True)],
    ids=["in the pack", "before the request", "before the answer"],
)
def test_a_killed_client_s_push_lands_late(
    stalled: tuple[Literal["up", "down"], int], early: bool, http: Stage
) -> None:
    on = http
    fault = on.proxy.arm(stall(*stalled, since=POST, times=1))
    with killed_claim(on, fault):
        if early:
            bob = attempt(lambda: on.bob().claim("F001"))
            between = on.holder()
            on.settle()
            assert on.holder() == between
            assert (on.holder() == BOB) == (bob == "ok")
        else:
            on.settle()
            bob = attempt(lambda: on.bob().claim("F001"))
            assert bob == ("held" if on.holder() == ANN else "ok")
        after_that(on, "killed")
