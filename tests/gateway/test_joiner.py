"""Many actors on one ledger through one joiner: fewer pushes, and each as if it were alone."""

from __future__ import annotations

import gc
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest
from support.clock import ManualClock
from support.memory import Fault, MemoryClone, MemoryRemote, memory_ledger_store
from support.running import until
from support.session import NoTaskFiles, ledger_session
from support.snapshots import raises

from gitlease.gateway.gateway import Gateway, JoinedSteps, SharedStore
from gitlease.gateway.joiner import MOST, AppliedBefore, Joiner, keyed
from gitlease.kernel.ledger.acts import release
from gitlease.kernel.ledger.claim import claim
from gitlease.kernel.ledger.edges import EdgeRules
from gitlease.kernel.ledger.ledger_session import LedgerSession, Terms
from gitlease.kernel.ledger.transaction import Step, fresh_id
from gitlease.kernel.ledger.wait import WaitQueue
from gitlease.kernel.rules.errors import GitleaseError, LeaseHeld, Unavailable
from gitlease.kernel.rules.frozen import replace
from gitlease.kernel.rules.lease import DEFAULT_POLICY, Actor, Moment
from gitlease.kernel.rules.ledger import RING_SIZE
from gitlease.kernel.rules.moves.operations import Claim, Create, Operation, Release
from gitlease.kernel.rules.moves.transitions import create, decide
from gitlease.kernel.rules.resources import parse_resource
from gitlease.kernel.store.records import read_step, step_line

GATE = Actor("gate@example.com")
MINUTES, KEY = 6, "5" * 20
PEOPLE = [Actor(f"p{n}@example.com", session=f"s{n}") for n in range(8)]


@dataclass
class Gate:
    """A joiner on a remote in memory, whose pushes wait until they are let go."""

    remote: MemoryRemote = field(default_factory=MemoryRemote)
    clock: ManualClock = field(default_factory=ManualClock)

    def __post_init__(self) -> None:
        store = memory_ledger_store(
            self.remote, clock=self.clock, clone=MemoryClone(), place="origin"
        )
        self.store = SharedStore(store, self.clock)
        self.joiner = Joiner(
            store,
            clock=self.clock,
            actor=GATE,
            layer="global",
            on_step=lambda step: self.store.adopt(step.head),
        )
        self.go = threading.Event()
        self.go.set()
        self.pushing = threading.Event()
        self.remote.during = self._during

    def _during(self, request: str) -> None:
        if request == "push":
            self.pushing.set()
            assert self.go.wait(60)

    def session(self, actor: Actor, key: str | None = None) -> LedgerSession:
        return ledger_session(
            self.store,
            clock=self.clock,
            actor=actor,
            carry=JoinedSteps(self.joiner, actor, key),
        )

    def asks(self, actor: Actor, *operations: Operation, together: bool = True) -> Step:
        """What one request comes to."""
        return JoinedSteps(self.joiner, actor)(operations, together=together, what="this")

    def holders(self) -> dict[str, str]:
        ledger = self.remote.ledger(self.remote.refs["global"])
        return {x.resource.text: x.holder for x in ledger.every_lease()}


@pytest.fixture
def gate() -> Gate:
    return Gate()


def claims(actor: Actor, *names: str) -> list[Operation]:
    how: dict[str, Any] = {"actor": actor, "scope": "*", "ttl": 900}
    return [
        Claim(id=fresh_id(), resource=parse_resource(name), lease_id=fresh_id(), **how)
        for name in names
    ]


def together(gate: Gate, requests: Sequence[tuple[Actor, list[Operation]]]) -> list[object]:
    """Requests that all come while a push is under way, in this order; what each came to."""
    gate.go.clear()
    gate.pushing.clear()
    with ThreadPoolExecutor(len(requests) + 1) as pool:
        first = pool.submit(gate.asks, GATE, *claims(GATE, f"first-{fresh_id()}"))
        assert gate.pushing.wait(60)
        asked = [
            gate.joiner.ask(actor, operations, together=True, what="this")
            for actor, operations in requests
        ]
        gate.go.set()
        first.result()
        return [one.exception() or one.result() for one in asked]


def test_what_comes_while_a_push_is_under_way_goes_into_the_next_one(gate: Gate) -> None:
    """64 at most."""
    requests = gate.remote.requests
    pushes = requests.count("push")
    steps = together(gate, [(p, claims(p, f"n{i}")) for i, p in enumerate(PEOPLE)])
    assert requests.count("push") - pushes == 2
    assert all(isinstance(step, Step) for step in steps)
    ours = {name: holder for name, holder in gate.holders().items() if name.startswith("n")}
    assert ours == {f"n{i}": p.holder for i, p in enumerate(PEOPLE)}
    many = [(PEOPLE[i % 8], claims(PEOPLE[i % 8], f"m{i}")) for i in range(MOST + 1)]
    assert all(isinstance(x, Step) for x in together(gate, many))
    assert requests.count("push") - pushes == 5


def test_answers_wait_until_the_next_push_has_begun(gate: Gate) -> None:
    """Or the threads that they wake would hold up the step that waits."""
    answers, done = list[Future[Step]](), list[list[bool]]()

    def ask(name: str) -> None:
        asked = claims(PEOPLE[0], name)
        answers.append(gate.joiner.ask(PEOPLE[0], asked, together=True, what="this"))

    def during(request: str) -> None:
        if request == "push" and gate.pushing.is_set():
            done.append([x.done() for x in answers])
        elif request == "push":
            gate.pushing.set()
            until(lambda: len(answers) == 2, "another one waits")

    def under_way() -> None:
        if done:
            done.append([x.done() for x in answers])

    gate.remote.during, gate.remote.under_way = during, under_way
    ask("first")
    assert gate.pushing.wait(60)
    ask("second")
    assert all(x.result(60).applied.changed for x in answers)
    assert done == [[False, False], [True, False]]


def test_one_that_is_refused_harms_no_other_and_leaves_nothing(gate: Gate) -> None:
    jo, kim, lee = PEOPLE[:3]
    both = (kim, claims(kim, "b", "a"))  # all or none: b is free after all
    asked = [(jo, claims(jo, "a")), both, (lee, claims(lee, "b")), (kim, claims(kim, "c"))]
    came = together(gate, asked)
    assert isinstance(came[1], LeaseHeld)
    assert came[1].views[0].holder == jo.holder
    assert [isinstance(x, Step) for x in came] == [True, False, True, True]
    held = gate.holders()
    assert (held["a"], held["b"], held["c"]) == (jo.holder, lee.holder, kim.holder)
    step = gate.remote.steps[gate.remote.refs["global"]]
    assert len(step.events) == 3, "what was refused is not in the step"
    assert step.header.revision == 2


def test_a_refusal_is_given_on_the_newest_state(gate: Gate) -> None:
    """What this gateway knows is old: another clone has given back, and taken, meanwhile."""
    jo, kim = PEOPLE[:2]
    gate.asks(jo, *claims(jo, "a", "b"))
    other = memory_ledger_store(gate.remote, clock=gate.clock, clone=MemoryClone(), place="origin")
    there = ledger_session(other, clock=gate.clock, actor=jo)
    release(there, [parse_resource("a")])
    asked = gate.remote.requests.count("fetch")
    assert gate.asks(kim, *claims(kim, "a")).applied.changed
    with pytest.raises(LeaseHeld):
        gate.asks(kim, *claims(kim, "b"))
    assert gate.remote.requests.count("fetch") - asked >= 2


@pytest.mark.parametrize("fault", [Fault.UNREACHABLE, Fault.UNANSWERED, Fault.LOST])
def test_what_the_remote_does_to_a_step_holds_for_all_in_it(gate: Gate, fault: Fault) -> None:
    gate.asks(GATE, *claims(GATE, "begin"))
    gate.remote.pushes.extend([fault] * 2)
    came = [_try(gate, p, f"x{i}") for i, p in enumerate(PEOPLE[:2])]
    landed = {x for x in gate.holders() if x.startswith("x")}
    told = {f"x{i}" for i, one in enumerate(came) if isinstance(one, Step)}
    assert told <= landed
    assert {f"x{i}" for i, one in enumerate(came) if _certainly_not(one)}.isdisjoint(landed)


def _try(gate: Gate, actor: Actor, name: str) -> object:
    try:
        return gate.asks(actor, *claims(actor, name))
    except GitleaseError as error:
        return error


def _certainly_not(came: object) -> bool:
    return isinstance(came, GitleaseError) and came.code != "unknown_outcome"


def test_a_request_that_is_sent_again_is_known(gate: Gate) -> None:
    jo = PEOPLE[0]
    names = [parse_resource("a")]
    claim(gate.session(jo, key=KEY), names)
    again = Gate(remote=gate.remote, clock=gate.clock)  # one that remembers nothing
    with pytest.raises(AppliedBefore) as known:
        claim(again.session(jo, key=KEY), names)
    assert known.value.outcome == "claimed"
    pushes = gate.remote.requests.count("push")
    with pytest.raises(AppliedBefore):
        claim(gate.session(jo, key=KEY), names)
    assert gate.remote.requests.count("push") == pushes


def test_a_key_that_somebody_else_wrote_burns_nothing(gate: Gate) -> None:
    """S6: who may push can guess a key, and write an id that begins with it."""
    jo, kim = PEOPLE[:2]
    released = Release(id=KEY + fresh_id(), actor=kim, resource=parse_resource("b"), note="x")
    gate.asks(kim, released)
    assert claim(gate.session(jo, key=KEY), [parse_resource("a")]).status == "claimed"
    with pytest.raises(AppliedBefore):
        claim(gate.session(jo, key=KEY), [parse_resource("a")])


def test_a_key_that_landed_elsewhere_grants_nothing_anew(gate: Gate) -> None:
    """S3: by a gateway that knows an older ledger, and decides on that."""
    jo, kim = PEOPLE[:2]
    names = [parse_resource("a")]
    claim(gate.session(kim), [parse_resource("known")])
    other = Gate(remote=gate.remote, clock=gate.clock)
    claim(other.session(jo, key=KEY), names)
    release(other.session(jo), names)
    claim(other.session(kim), names)
    with pytest.raises(AppliedBefore):
        claim(gate.session(jo, key=KEY), names)
    assert gate.holders() == {"a": kim.holder, "known": kim.holder}


def test_a_key_that_lands_elsewhere_meanwhile_takes_no_other_request_along(gate: Gate) -> None:
    """S6: a step is not there because one of its requests is."""
    jo, kim = PEOPLE[:2]
    other, landed = Gate(remote=gate.remote, clock=gate.clock), list[str]()

    def during(request: str) -> None:
        if request == "push" and not landed:
            landed.append(request)
            claim(other.session(jo, key=KEY), [parse_resource("a")])

    gate.remote.during = during
    with ThreadPoolExecutor(2) as pool:
        with gate.joiner._news:  # so that both go into one step
            asked = [
                pool.submit(claim, gate.session(jo, key=KEY), [parse_resource("a")]),
                pool.submit(claim, gate.session(kim), [parse_resource("b")]),
            ]
        came = [x.exception(30) or x.result() for x in asked]
    assert isinstance(came[0], AppliedBefore), came[0]
    assert not isinstance(came[1], BaseException), came[1]
    assert gate.holders() == {"a": jo.holder, "b": kim.holder}


def test_a_key_is_known_when_the_ring_has_forgotten_it(gate: Gate) -> None:
    jo, names = PEOPLE[0], [parse_resource("a")]
    claim(gate.session(jo, key=KEY), names)
    release(gate.session(jo), names)
    for n in range(RING_SIZE):
        gate.asks(GATE, *claims(GATE, f"n{n}"))
    again = Gate(remote=gate.remote, clock=gate.clock)
    for one in (gate, again):
        with pytest.raises(AppliedBefore) as known:
            claim(one.session(jo, key=KEY), names)
        assert known.value.outcome == "claimed"


def test_one_key_twice_in_a_step_is_done_once(gate: Gate) -> None:
    jo = PEOPLE[0]
    gate.go.clear()
    gate.pushing.clear()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(gate.asks, GATE, *claims(GATE, "first"))
        assert gate.pushing.wait(60)
        ask = gate.joiner.ask
        asked = [
            ask(jo, keyed(claims(jo, name), KEY), together=True, what="this", key=KEY)
            for name in ("a", "b")
        ]
        given_up = ask(jo, claims(jo, "c"), together=True, what="this")
        assert given_up.cancel()
        gate.go.set()
        first.result(60)
        assert asked[0].result(60).applied.changed
        assert isinstance(asked[1].exception(30), Unavailable)
    gate.joiner.close()
    assert gate.holders() == {"first": GATE.holder, "a": jo.holder}


def test_the_tickets_of_all_who_wait_go_along(gate: Gate) -> None:
    claim(gate.session(GATE), [parse_resource("a")])
    gate.go.clear()
    gate.pushing.clear()
    before = gate.joiner.steps
    with ThreadPoolExecutor(9) as pool:
        first = pool.submit(claim, gate.session(GATE), [parse_resource("b")])
        assert gate.pushing.wait(60)
        lines = [WaitQueue(gate.session(x), [parse_resource("a")], "*") for x in PEOPLE]
        taken = [pool.submit(line.take, 60.0) for line in lines]
        until(lambda: len(gate.joiner._waiting) == len(PEOPLE), "all have asked")
        gate.go.set()
        first.result(60)
        assert all(x.result(60) for x in taken)
    assert gate.joiner.steps == before + 2


def test_a_gateway_that_stops_answers_what_it_was_asked(gate: Gate) -> None:
    jo = PEOPLE[0]
    gate.go.clear()
    asked = [gate.joiner.ask(jo, claims(jo, f"z{i}"), together=True, what="this") for i in range(3)]
    closing = threading.Thread(target=gate.joiner.close)
    closing.start()
    gate.go.set()
    closing.join(60)
    assert [x.result(60).applied.changed for x in asked] == [True] * 3
    with raises(Unavailable):
        gate.asks(jo, *claims(jo, "late"))


def test_a_step_of_several_names_the_gateway_and_one_of_one_does_not(gate: Gate) -> None:
    jo, kim = PEOPLE[:2]
    alone = [*claims(jo, "a"), *claims(replace(jo, session="other"), "b")]
    moment = Moment(now=gate.clock.now(), seen=lambda _lease: None)
    ledger = create(Create(id="c", actor=GATE, ledger_id="l", policy=DEFAULT_POLICY))
    for operations, writer in ((alone, jo.holder), ([*alone, *claims(kim, "c")], GATE.holder)):
        record = decide(ledger, operations, moment, together=False).record.brought_by(GATE.holder)
        assert record.writer == writer
        assert read_step(step_line(record)) == record


# --- renewals -----------------------------------------------------------------------------------


def in_memory(remote: MemoryRemote, clock: ManualClock) -> Gateway:
    return Gateway(
        memory_ledger_store(remote, clock=clock, clone=MemoryClone(), place="origin"),
        clock=clock,
        actor=GATE,
        layer="global",
        files=NoTaskFiles(),
        rules=EdgeRules(),
        terms=Terms(default_ttl=900, ttl_is_default=True),
    )


def test_renewals_of_a_thousand_leases_are_a_few_pushes() -> None:
    remote, clock = MemoryRemote(), ManualClock()
    gateway = in_memory(remote, clock)
    names = [parse_resource(f"t{n}") for n in range(1_000)]
    people = [f"c{n}@example.com" for n in range(64)]
    mine = {who: names[n::64] for n, who in enumerate(people)}
    for who, own in mine.items():
        claim(gateway.session(who), own)
    remote.requests.clear()
    for tick in range(MINUTES * 12):
        clock.advance(5)
        for n, who in enumerate(people):
            if tick % 60 == n % 60:  # every client at a time of its own
                gateway.renew(gateway.session(who), mine[who])
    gateway.close()
    assert remote.requests.count("push") <= 6 * MINUTES
    ledger = remote.ledger(remote.refs["global"])
    assert all(x.expires_at > clock.wall_ms for x in ledger.every_lease())
    assert sum(1 for _ in ledger.every_lease()) == 1_000


def test_no_renewal_is_kept_of_a_lease_that_has_ended() -> None:
    remote, clock = MemoryRemote(), ManualClock()
    gateway, other = in_memory(remote, clock), in_memory(remote, clock)

    def kept(turns: int, ends_at: Gateway) -> int:
        """The renewals that gateways keep in mind, after so many leases have ended."""
        for turn in range(turns):
            who, names = PEOPLE[turn % 4].holder, [parse_resource(f"t{turn % 8}-{n}") for n in "ab"]
            claim(gateway.session(who), names)
            assert not gateway.renew(gateway.session(who), names).changed
            release(ends_at.session(who), names)
            clock.advance(10)
        gc.collect()
        return sum(type(x).__qualname__ == "_SeenLease" for x in gc.get_objects())

    assert kept(20, gateway) == 0
    assert kept(40, other) == 80, "a lease may end elsewhere: its renewal is kept for a while"
    assert kept(120, other) < 260
    gateway.close()
    other.close()
