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
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

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
from support.ledgers import door, read_files, text_of, tip
from support.remotes import Remote
from support.repos import git
from support.session import LeaseService

from gitlease.core import GitleaseError
from gitlease.faces.library import Leases

pytestmark = pytest.mark.sampled(2)

Clones = Callable[..., list[Path]]
ROOT = Path(__file__).parents[2]
ANN, BOB = "w1@example.com", "w2@example.com"
POST = b"POST "
LIMIT = {"http": 1.5, "ssh": 4.0}
WAIT = 20.0


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

    def ann(self) -> Leases:
        """Ann in a new process of her clone."""
        return door(self.ann_clone, clock=self.clock, time_limit=LIMIT[self.remote.kind])

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
        quiet, until = 0, time.monotonic() + WAIT
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
    for name, value in remote.env.items():
        monkeypatch.setenv(name, value)
    with FaultProxy("127.0.0.1", remote.port) as proxy:
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
    ann = attempt(lambda: on.ann().claim("F001"))
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
    told = [line for line in next_one.warnings if "claim of F001" in line]
    assert all("barrier" not in line for line in next_one.warnings), next_one.warnings
    landed = any(" had reached the remote" in line for line in told)
    if ann in ("unknown_outcome", "killed"):
        assert landed == (holder == ANN), next_one.warnings
    if ann == "unknown_outcome":  # the hint promised an answer, whatever it is
        assert len(told) == 1, next_one.warnings
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


# --- http: what a network does ------------------------------------------------------------------


ONCE: dict[str, Callable[[], TcpFault]] = {
    "cut at connect": lambda: cut_after("up", 0, times=1),
    "cut in the question": lambda: cut_after("up", 60, times=1),
    "cut in the listing": lambda: cut_after("down", 250, times=1),
    "cut at the request": lambda: cut_after("up", 0, since=POST, times=1),
    "cut in the request's head": lambda: cut_after("up", 120, since=POST, times=1),
    "cut in the commands": lambda: cut_after("up", 450, since=POST, times=1),
    "cut in the pack": lambda: cut_after("up", 900, since=POST, times=1),
    "cut before the answer": lambda: cut_after("down", 0, since=POST, times=1),
    "cut in the answer's head": lambda: cut_after("down", 40, since=POST, times=1),
    "cut in the report": lambda: cut_after("down", 290, since=POST, times=1),
    "swallow the listing": lambda: swallow_down(100, quiet=0.5, times=1),
    "swallow the answer": lambda: swallow_down(since=POST, quiet=0.5, times=1),
    "swallow half the answer": lambda: swallow_down(270, since=POST, quiet=0.5, times=1),
    "stall the question": lambda: stall("up", 60, times=1),
    "stall the request": lambda: stall("up", 0, since=POST, times=1),
    "stall in the pack": lambda: stall("up", 900, since=POST, times=1),
    "stall the answer": lambda: stall("down", 0, since=POST, times=1),
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if number % 4 == 1 else pytest.mark.slow)
        for number, name in enumerate(ONCE)
    ],
)
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "early"),
    [
        ("request", False),
        *(
            pytest.param(name, early, marks=pytest.mark.slow)
            for name, early in [
                ("pack", True),
                ("request", True),
                ("pack", False),
                ("answer", True),
                ("answer", False),
            ]
        ),
    ],
)
def test_http_fault_that_lasts(name: str, early: bool, http: Stage) -> None:
    """The network is gone for good in the middle of the push; what it held back arrives late."""
    http.proxy.arm(LASTING[name]())
    ann, _ = tell(http, early=early)
    assert ann == "unknown_outcome"


@pytest.mark.slow
@pytest.mark.nightly(6)
@pytest.mark.parametrize("direction", ["up", "down"])
@pytest.mark.parametrize("after", range(0, 1300, 65))
def test_http_cut_at_every_place(direction: str, after: int, http: Stage) -> None:
    assert direction in ("up", "down")
    side = "up" if direction == "up" else "down"
    http.proxy.arm(cut_after(side, after, since=POST, times=1))  # type: ignore[arg-type]
    tell(http, early=False)


# --- http: what servers and what stands before them do ------------------------------------------


SERVER: dict[str, tuple[Callable[[], HttpFault], tuple[str, ...]]] = {
    "applied twice over": (duplicate, ("ok",)),
    "applied and the answer lost": (lose_answer, ("ok",)),
    "applied and every answer lost": (lambda: lose_answer(times=None), ("ok",)),
    "replayed": (replay, ("ok",)),
    "500 to the question": (lambda: answer(500, stage="advertise"), ("unavailable",)),
    "503 to the request": (lambda: answer(503, stage="request"), ("ok",)),
    "502 to every request": (
        lambda: answer(502, stage="request", service="receive-pack", times=None),
        ("unavailable", "unknown_outcome"),
    ),
    "401 to the question": (lambda: answer(401, stage="advertise"), ("denied",)),
    "403 to the question": (lambda: answer(403, stage="advertise"), ("denied",)),
    "403 to every request": (
        lambda: answer(403, stage="request", service="receive-pack", times=None),
        ("denied",),
    ),
    "401 to every request": (
        lambda: answer(401, stage="request", service="receive-pack", times=None),
        ("denied",),
    ),
    "429 to every request": (
        lambda: answer(429, stage="request", service="receive-pack", times=None),
        ("unavailable", "unknown_outcome"),
    ),
    "late": (lambda: delay(1.0, stage="request", service="receive-pack"), ("ok",)),
}


@pytest.mark.one_in(6)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if number % 2 else pytest.mark.slow)
        for number, name in enumerate(SERVER)
    ],
)
def test_http_server_fault(name: str, http: Stage) -> None:
    make, expected = SERVER[name]
    http.remote.arm(make())
    ann, _ = tell(http, early=False)
    assert ann in expected


@pytest.mark.slow
def test_a_request_that_lies_in_the_server_longer_than_ann_waits(http: Stage) -> None:
    http.remote.arm(delay(60, stage="request", service="receive-pack", times=None))
    said = attempt(lambda: http.ann().claim("F001"))
    assert said == "unknown_outcome"
    http.settle()
    after_that_unless_bob(http, said)


@pytest.mark.slow
@pytest.mark.parametrize(
    "status", [503, *(pytest.param(status, marks=pytest.mark.slow) for status in (403, 401))]
)
def test_a_push_in_flight_and_the_next_one_refused_at_the_door(status: int, http: Stage) -> None:
    """The first try may still land: that the second could not even be sent says nothing of it."""
    http.remote.arm(delay(60, stage="request", service="receive-pack", times=1))
    # The first question of the push passes, later ones are turned away.
    passed = http.proxy.arm(stall("up", 10**9))
    assert passed.fired == 0
    turned = answer(status, stage="advertise", service="receive-pack", times=None)

    class Later:
        """Arms the refusal once the first push is on its way."""

        def __init__(self) -> None:
            self.naps = 0

        def __call__(self, seconds: float) -> None:
            if self.naps == 0:
                http.remote.arm(turned)
            self.naps += 1
            http.clock.advance(seconds)

    later = Later()
    ann = http.ann()
    http.clock.sleep = later  # type: ignore[method-assign]
    said = attempt(lambda: ann.claim("F001"))
    assert turned.fired > 0
    http.settle()
    holder = http.holder()
    if said in ("unavailable", "denied"):
        assert holder is None, f"{said} was said, and later it was held all the same"
    after_that_unless_bob(http, said)


def after_that_unless_bob(on: Stage, ann: str) -> None:
    """Like ``after_that`` where nobody else may have claimed in between."""
    if on.holder() is None:
        on.bob().claim("F001")
    after_that(on, ann)


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


@pytest.mark.slow
def test_a_push_that_holds_the_ref_s_lock_while_the_next_ones_wait(
    http: Stage, tmp_path: Path
) -> None:
    """The server is slow with the lock in its hand: the retries are told that it is locked."""
    gate = tmp_path / "gate"
    gate.mkdir()
    hook = http.remote.bare / "hooks" / "reference-transaction"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(LOCKING_HOOK.format(gate=gate))
    hook.chmod(0o755)
    said = attempt(lambda: http.ann().claim("F001"))
    assert (gate / "first").exists()
    (gate / "first").rmdir()
    gate.rmdir()
    http.settle()
    if said == "unavailable":
        assert http.holder() is None, "unavailable was said, and later it was held all the same"
    assert said in ("unknown_outcome", "unavailable", "ok")
    after_that_unless_bob(http, said)


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
        said = attempt(lambda: door(one, clock=clock, time_limit=1.5).claim("F001"))
        assert said in ("ok", "unavailable", "unknown_outcome")
    else:
        process = subprocess.Popen(
            [sys.executable, "-c", CLAIM, str(one)],
            env={**clean_env(), "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until = time.monotonic() + WAIT
        while not (gate / "first").exists():
            assert time.monotonic() < until
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT) != 0
    (gate / "first").rmdir()
    gate.rmdir()
    until = time.monotonic() + WAIT
    while _busy(path_remote.bare):
        assert time.monotonic() < until
        time.sleep(0.02)
    assert list(path_remote.bare.rglob("*.lock")) == []
    assert door(two, clock=clock).claim("F002").mine
    assert door(one, clock=clock).claim("F001").mine


@pytest.mark.parametrize("verb", ["renew", "release", "extend", "done"])
@pytest.mark.parametrize("fault", ["lose", pytest.param("cut", marks=pytest.mark.slow)])
def test_other_verbs_when_the_answer_is_lost(verb: str, fault: str, http: Stage) -> None:
    """Applied once, told as done, and a renewal counted once."""
    http.ann().claim("F001")
    http.ann().renew("F001")
    if fault == "lose":
        http.remote.arm(lose_answer())
    else:
        http.proxy.arm(cut_after("down", 0, since=POST, times=1))
    ann = http.ann()
    actions: dict[str, Callable[[], object]] = {
        "renew": lambda: ann.renew("F001"),
        "release": lambda: ann.release("F001"),
        "extend": lambda: ann.extend("F001", "1h"),
        "done": lambda: ann.done("F001"),
    }
    assert attempt(actions[verb]) == "ok"
    http.settle()
    seen = http.bob().show("F001")
    if verb == "release":
        assert seen == ()
    else:
        assert seen[0].renewals == {"renew": 2, "extend": 2, "done": 1}[verb]
        assert seen[0].state == ("completed" if verb == "done" else "active")
    events = [e for e in LeaseService(http.bob()._ledger).log().events if e.operation]
    ids = [(e.operation, e.kind) for e in events]
    assert len(set(ids)) == len(ids), "applied twice"


# --- ssh ----------------------------------------------------------------------------------------


def _ssh_points(rounds: int) -> list[float]:
    return [round(0.55 + 0.5 * i / rounds, 3) for i in range(rounds)]


def _ssh_cut(direction: str, share: float, ssh: Stage) -> None:
    """Cut where that share of what a whole push sends has passed."""
    before = len(ssh.proxy.links)
    ssh.ann().note("F008", "to measure a push")
    link = ssh.proxy.links[before]
    link.closed.wait(WAIT)
    total = link.up if direction == "up" else link.down
    fault = ssh.proxy.arm(
        cut_after(direction, int(total * share), times=1)  # type: ignore[arg-type]
    )
    ann, _ = tell(ssh, early=False)
    assert ann in ("ok", "unavailable"), fault


@pytest.mark.slow
@pytest.mark.parametrize(
    ("direction", "share"),
    [
        ("up", 1.0),
        pytest.param("up", 0.75, marks=pytest.mark.slow),
        pytest.param("down", 0.1, marks=pytest.mark.slow),
        pytest.param("down", 0.92, marks=pytest.mark.slow),
    ],
)
def test_ssh_cut(direction: str, share: float, ssh: Stage) -> None:
    _ssh_cut(direction, share, ssh)


@pytest.mark.slow
@pytest.mark.nightly(6)
@pytest.mark.parametrize("direction", ["up", "down"])
@pytest.mark.parametrize("share", _ssh_points(16))
def test_ssh_cut_at_every_place(direction: str, share: float, ssh: Stage) -> None:
    _ssh_cut(direction, share, ssh)


# --- a client that is killed --------------------------------------------------------------------


CLAIM = "import sys, gitlease; gitlease.open(sys.argv[1]).claim('F001')"


@contextmanager
def killed_claim(on: Stage, fault: TcpFault, *, whole: bool) -> Iterator[None]:
    """Ann's claim in a process of its own, killed as soon as the fault holds it up.

    ``whole``: the git that it started is killed with it; otherwise that is left to itself.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", CLAIM, str(on.ann_clone)],
        env={**clean_env(on.remote.env), "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        until = time.monotonic() + WAIT
        while not fault.fired:
            assert process.poll() is None, process.communicate()[1].decode()
            assert time.monotonic() < until, "the fault does not fire"
            time.sleep(0.01)
        children = _descendants(process.pid)
        process.kill()
        process.wait()
        if whole:
            for child in children:
                with suppress(ProcessLookupError):  # it may have ended by itself
                    os.kill(child, signal.SIGKILL)
        yield
    finally:
        process.kill()
        process.communicate()


def _descendants(pid: int) -> list[int]:
    found, waiting = [], [pid]
    while waiting:
        parent = waiting.pop()
        for task in Path(f"/proc/{parent}/task").iterdir():
            children = [int(word) for word in (task / "children").read_text().split()]
            found += children
            waiting += children
    return found


STALLS: dict[str, Callable[[], TcpFault]] = {
    "http before the request": lambda: stall("up", 0, since=POST, times=1),
    "http in the pack": lambda: stall("up", 900, since=POST, times=1),
    "http before the answer": lambda: stall("down", 0, since=POST, times=1),
}
OFTEN = {
    ("http in the pack", True, False),
    ("http in the pack", False, True),
    ("http before the answer", True, True),
    ("ssh in the pack", True, False),
    ("ssh in the pack", False, True),
}
KILLS = [
    pytest.param(
        where,
        early,
        whole,
        id=f"{where}-bob {'before' if early else 'after'}-{'all' if whole else 'git lives on'}",
        marks=() if (where, early, whole) in OFTEN else pytest.mark.slow,
    )
    for where in (*STALLS, "ssh in the pack")
    for early in (True, False)
    for whole in (True, False)
]


@pytest.mark.one_in(5)
@pytest.mark.parametrize(("where", "early", "whole"), KILLS)
def test_a_killed_client_s_push_lands_late(
    where: str, early: bool, whole: bool, request: pytest.FixtureRequest
) -> None:
    on: Stage = request.getfixturevalue(where.partition(" ")[0])
    if where not in STALLS:
        before = len(on.proxy.links)
        on.ann().note("F008", "to measure a push")
        link = on.proxy.links[before]
        link.closed.wait(WAIT)
        fault = on.proxy.arm(stall("up", int(link.up * 0.9), times=1))
    else:
        fault = on.proxy.arm(STALLS[where]())
    with killed_claim(on, fault, whole=whole):
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


def test_the_remote_is_gone(http: Stage) -> None:
    """Nothing was sent: that is certain, and said as such."""
    before = tip(http.remote.bare)
    http.proxy.close()
    ann = http.ann()
    with pytest.raises(GitleaseError) as raised:
        ann.claim("F001")
    assert raised.value.code == "unavailable"
    assert tip(http.remote.bare) == before
    assert http.holder() is None
    assert list(ann._ledger.store.pending("global")) == []
