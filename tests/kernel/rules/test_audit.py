"""The audit of a step: what the table does can be done again, and nothing else is legal."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from kernel.rules.values import (
    JO,
    KIM,
    TTL,
    as_stored,
    at,
    claim,
    complete,
    empty,
    fresh,
    holding,
    lease,
    moment,
    note,
    picture,
    release,
    renew,
    revoke,
    set_policy,
)

from gitlease.kernel.rules.edge import Assignee
from gitlease.kernel.rules.errors import GitleaseError
from gitlease.kernel.rules.lease import Actor, Lease, Moment, Policy, Rule, Sighting
from gitlease.kernel.rules.ledger import MAX_STEP, Ledger
from gitlease.kernel.rules.moves.operations import (
    Acknowledge,
    AddNote,
    Barrier,
    Bind,
    Claim,
    Complete,
    EndSession,
    Extend,
    Grant,
    LeaveTicket,
    Operation,
    Park,
    Pick,
    Release,
    Renew,
    Restore,
    Retire,
    Retirement,
    Revoke,
    RunOut,
    SetPolicy,
    TakeTicket,
    Unbind,
)
from gitlease.kernel.rules.moves.transitions import (
    Applied,
    Decided,
    Illegal,
    Pusher,
    StepRecord,
    apply,
    decide,
    judge,
)
from gitlease.kernel.rules.resources import Resource, parse_resource
from gitlease.kernel.store.records import BadStep, read_step, step_line
from gitlease.kernel.store.tree import changed_files

LIVE = 10
BASE = holding(
    lease(),
    lease(resource="F002", holder=KIM),
    lease(resource="src/", holder=KIM, ttl=8 * 3_600),
    lease(resource="F004", ttl=60, since=-3_600),
)


def pusher(*holders: str) -> Pusher:
    return Pusher(holders, holders[0])


def step(ledger: Ledger, *operations: Operation, seconds: float = LIVE) -> StepRecord:
    """What a client would write of some operations."""
    return decide(ledger, operations, moment(seconds)).record


def legal(
    record: StepRecord,
    *,
    who: Pusher | None = None,
    seconds: float = LIVE,
    before: Ledger | None = BASE,
) -> Applied:
    pushes = who or pusher(record.operations[0].actor.holder)
    return judge(before, record, pusher=pushes, now_ms=moment(seconds).now.wall_ms)


def refused(record: StepRecord, **how: Any) -> str:
    """The rule that a step breaks."""
    with pytest.raises(Illegal) as caught:
        legal(record, **how)
    assert caught.value.message.isprintable()
    return caught.value.rule


# --- whatever the table does is legal -------------------------------------------------------------

PEOPLE = (
    JO,
    KIM,
    replace(JO, holder="Jo@example.com", session="a", session_explicit=True, host="laptop:47"),
    replace(JO, session="b", host="desk:11"),
    replace(KIM, session="a", host="laptop", branch="work"),
)
NAMES = ("F001", "f002", "F003", "src/", "src/a.py", "*.py", "12", "GH-12")
OTHERS = (
    (),
    (Assignee("@x", ("x@example.com",)), Assignee("team", ("y@example.com", "z@example.com"))),
    (Assignee("nobody"), Assignee("jo", (JO.holder,))),
)


class Player:
    """Somebody who does this and that, the same every time that a seed is played."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)

    def resource(self) -> Resource:
        """One that others of the batch may overlap with."""
        name = self.dice.choice(NAMES)
        return parse_resource(name.swapcase() if self.dice.random() < 0.1 else name)

    def batch(self, ledger: Ledger, who: Actor, now_ms: int) -> list[Operation]:
        if self.dice.random() < 0.25:
            return [self.sweep(ledger, who)]
        return [self.one(ledger, who, now_ms) for _ in range(self.dice.choice((1, 1, 1, 2, 3)))]

    def sweep(self, ledger: Ledger, who: Actor) -> Operation:
        """An operation over many leases at once."""
        pick = self.dice.choice
        every = [x for x in ledger.every_lease() if self.dice.random() < 0.8]
        grants = tuple(_grant(x) for x in every)
        items = tuple(
            Retirement(
                resource=name,
                reason=pick(("tidy", "old")),
                grants=tuple(_grant(x) for x in every if x.resource == name),
                assigned=pick((True, False)),
                unassigned=pick(OTHERS),
                note=pick((None, "was retired")),
            )
            for name in dict.fromkeys(x.resource for x in every)
        )
        some, note = grants or (_grant(lease()),), pick((None, "bye"))
        park = {"park": pick((True, False)), "seconds": pick((None, 77))}
        made: dict[type[Operation], dict[str, Any]] = {
            Renew: pick(({"ttl": pick((None, 120))}, {"grants": some})),
            RunOut: {"grants": grants, "note": note},
            Unbind: {"grants": grants},
            EndSession: {"grants": grants, "note": note, **park},
            Retire: {"items": items},
        }
        kind = pick([*made])
        return kind(id=fresh(), actor=who, **made[kind])

    def one(self, ledger: Ledger, who: Actor, now_ms: int) -> Operation:
        pick, what = self.dice.choice, self.resource()
        scope, text = pick(("*", "*", "parser", "ui")), pick((None, "half done"))
        ticket, known = f"{who.holder[:1].lower()}{pick('12')}", ledger.notices(who.holder)
        some = {"resource": what, "scope": pick((None, scope))}
        made: dict[type[Operation], dict[str, Any]] = {
            Claim: {
                "resource": what,
                "lease_id": fresh(),
                "scope": scope,
                "ttl": pick((None, 60, 3_600)),
                "reason": pick((None, "because", "why")),
                "paths": pick(((), ("lib/x",), ("docs/**", "src/a.py"))),
                "takeover": pick((True, False)),
                "abandoned": pick((True, False, False)),
                "expect_holder": pick((None, None, None, JO.holder)),
                "reopen": pick((True, False)),
                "new": pick((True, False, False)),
                "edge": pick((True, False)),
                "assigned": pick(OTHERS),
                "ticket": pick((None, ticket)),
                "passing": pick((None, None, 0, 2)),
            },
            Bind: {"resources": (what, self.resource()), "scope": scope},
            Renew: {**some, "ttl": pick((None, 120))},
            Extend: {"resource": what, "seconds": pick((30, 5_000, 10**6))},
            Release: {**some, "note": text},
            Complete: {**some, "lease_id": fresh()},
            Park: {"resource": what, "seconds": pick((None, 100, 10**7)), "note": text},
            Revoke: {**some, "reason": "stuck"},
            AddNote: {"resource": what, "text": "hello\n\tthere"},
            SetPolicy: {"changes": tuple(pick(POLICIES).items())},
            Acknowledge: {"notices": tuple(n.id for n in known[: pick((1, 9))])},
            TakeTicket: {
                "resources": pick(((what,), (what, self.resource()))),
                "ticket": ticket,
                "until": now_ms + pick((10**5, 10**7, 10**9)),
                "scope": scope,
                "since": pick((None, now_ms - 5_000)),
            },
            LeaveTicket: {"resources": (what,), "ticket": ticket},
            Restore: {"above": ledger.header.token + pick((-1, 0, 1, 10**12))},
            Barrier: {},
        }
        kind: type[Operation] = pick([*made, Claim, Claim, Claim])
        return kind(id=fresh(), actor=who, **made[kind])


POLICIES = (
    {"ttl_max": "4h", "skew": "90s"},
    {"admins": "jo@example.com, kim@example.com"},
    {"skew": "60s", "park_max": "1h"},
    {"edges.abandoned_after": "1d"},
    {"edges.abandoned_after": "never"},
    {"issues": "github"},
    {"issues": "none"},
)


def _grant(x: Any) -> Grant:
    return Grant(x.resource, x.scope, x.session, x.lease_id, x.token)


class Eyes:
    """When somebody first saw which records: at a first contact long ago, or as they changed."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._since: dict[str, Sighting] = {}

    def moment(self, seconds: float) -> Moment:
        def seen(lease: Lease) -> Sighting:
            key = f"{lease.lease_id} {lease.operation}"
            if key not in self._since:
                first = at(seconds - self._dice.choice((0, 5, 200, 5_000)))
                self._since[key] = Sighting(first, changed=self._dice.random() < 0.5)
            return self._since[key]

        return Moment(now=at(seconds), seen=seen)


def carried_out_again(before: Ledger | None, decided: Decided, off_ms: int) -> Applied:
    """What a judge makes of the line that a commit has of a step."""
    line = step_line(decided.record)
    record = read_step(line)
    assert record == decided.record
    if any(isinstance(operation, Restore) for operation in record.operations):
        # Not as often as it is played here.
        return apply(before or empty(), record.operations, record.moment, together=False)
    holder = record.operations[0].actor.holder
    return judge(before, record, pusher=pusher(holder), now_ms=record.at + off_ms)


def play(seed: int, steps: int) -> int:
    """Play, and see that each step comes to the same again; how many there were."""
    player, seconds, done = Player(seed), 0.0, 0
    eyes = {who: Eyes(player.dice) for who in PEOPLE}
    ledger, before = empty(), None
    for _ in range(steps):
        seconds += player.dice.choice((0.123, 1, 30, 400, 1_000, 1_000, 100_000))
        who = player.dice.choice(PEOPLE)
        when = eyes[who].moment(seconds)
        operations = player.batch(ledger, who, when.now.wall_ms)
        try:
            decided = decide(ledger, operations, when, together=player.dice.random() < 0.5)
        except GitleaseError:
            continue
        applied = decided.applied
        if not applied.changed:
            continue
        again = carried_out_again(before, decided, player.dice.choice((-3_000, 0, 2_000)))
        files = changed_files(applied.ledger)
        assert changed_files(again.ledger) == files
        assert (again.events, again.only_renews) == (applied.events, applied.only_renews)
        ledger = before = as_stored(applied.ledger)
        done += 1
    return done


@pytest.mark.parametrize("seed", range(20))
def test_every_move_of_the_table_comes_to_the_same_again(seed: int) -> None:
    assert play(seed, 60) > 5


@pytest.mark.slow
def test_every_move_comes_to_the_same_again_in_many_plays() -> None:
    assert all(play(seed, 60) > 5 for seed in range(20, 620))


# --- what only a server can say -------------------------------------------------------------------


def test_a_step_is_its_pushers_own() -> None:
    record = step(BASE, claim(KIM, "F009"))
    legal(record)
    legal(record, who=Pusher(("kim@home.org", "KIM@example.com"), "kim"))
    legal(record, who=Pusher(None, "somebody"))
    assert refused(record, who=pusher(JO.holder)) == "identity"
    assert refused(record, who=Pusher((), "nobody")) == "identity"
    both = replace(record, operations=(*record.operations, note(JO, "hello")))
    assert refused(both) == "identity"
    nobody = claim(replace(KIM, holder=" "), "F009")
    assert refused(replace(record, operations=(nobody,)), who=pusher(" ")) == "identity"
    assert (
        refused(replace(record, gateway="gate@example.com"), who=pusher(KIM.holder)) == "identity"
    )


def test_a_grant_has_a_nonce_of_its_own() -> None:
    (theirs,) = BASE.leases_of(parse_resource("F001"))
    stolen = replace(claim(KIM, "F009"), lease_id=theirs.lease_id)
    assert refused(step(BASE, stolen)) == "nonce"
    twice = (claim(KIM, "F008"), replace(claim(KIM, "F009"), lease_id="n"))
    both = (replace(twice[0], lease_id="n"), twice[1])
    assert refused(step(BASE, *both)) == "nonce"


def test_an_epoch_is_begun_by_who_may_and_one_at_a_time() -> None:
    """S4: nobody uses them up."""
    above = BASE.header.token + 1
    asked = Restore(id=fresh(), actor=KIM, above=above)
    legal(step(BASE, asked))
    assert refused(step(BASE, asked, replace(asked, id=fresh(), above=10**12 + 1))) == "restore"
    after = as_stored(decide(BASE, [asked], moment(LIVE)).applied.ledger)
    again = replace(asked, id=fresh(), above=10**12 + 1)
    assert refused(step(after, again), before=after) == "restore"
    ruled = holding(lease(holder=KIM), policy=Policy(admins=(JO.holder,)))
    assert refused(step(ruled, asked), before=ruled) == "restore"
    legal(step(ruled, replace(asked, actor=JO)), before=ruled)


GATE = Pusher(("gate@example.com",), "gate", gateway=True)


def test_a_gateway_brings_what_others_ask_for() -> None:
    record = step(BASE, claim(KIM, "F009"), note(JO, "hello"), renew(KIM, "F002"))
    assert refused(record, who=GATE) == "identity"
    legal(record.brought_by("gate@example.com"), who=GATE)
    assert refused(record, who=replace(GATE, gateway=False)) == "identity"
    nobody = replace(record, operations=(claim(replace(KIM, holder=" "), "F009"),))
    assert refused(nobody, who=GATE) == "identity"
    asked = step(BASE, replace(claim(KIM, "F009"), id="0" * 40))
    assert refused(asked) == "operation-id"
    legal(asked, who=GATE)


def test_a_gateway_governs_only_as_an_admin_like_whoever_asks() -> None:
    free = set_policy(JO, ttl_max="1h")
    assert refused(step(BASE, free), who=GATE) == "gateway"
    ruled = holding(lease(holder=KIM), policy=Policy(admins=(JO.holder,)))
    shared = holding(lease(holder=KIM), policy=Policy(admins=(JO.holder, "GATE@example.com")))
    for operation in (free, revoke(JO)):
        record = step(ruled, operation)
        legal(record, before=ruled)
        assert refused(record, who=GATE, before=ruled) == "gateway"
        assert refused(record, who=replace(GATE, holders=()), before=shared) == "gateway"
        legal(record, who=GATE, before=shared)
        others = replace(operation, actor=KIM)
        assert refused(replace(record, operations=(others,)), who=GATE, before=shared) == "policy"
    own = replace(free, actor=Actor("gate@example.com"))
    legal(step(BASE, own), who=GATE)


@pytest.mark.parametrize(("off", "fine"), [(59, True), (-59, True), (61, False), (-61, False)])
def test_time_may_differ_by_the_allowance_and_no_more(off: int, fine: bool) -> None:
    """And by ten seconds under any policy, so that none makes a push impossible."""
    record, strict = step(BASE, renew(KIM, "F002")), holding(lease(), policy=Policy(skew=0))
    if fine:
        legal(record, seconds=LIVE + off)
        legal(step(strict, renew(JO)), seconds=LIVE + off * 9 / 59, before=strict)
    else:
        assert refused(record, seconds=LIVE + off) == "clock"
        late = step(strict, renew(JO))
        assert refused(late, seconds=LIVE + off * 11 / 61, before=strict) == "clock"


@pytest.mark.parametrize("joined", [False, True])
def test_a_takeover_waits_for_the_end_by_the_judges_clock(joined: bool) -> None:
    """By the rule ``observed`` only the taker knows how long it has seen the record.

    In a joined step it is the taker's, not whoever's who asked first in it (S2).
    """
    policy, long_ago = Policy(rule=Rule.OBSERVED), Sighting(at=at(-100_000), changed=True)
    observed = holding(lease(margins=policy.margins), policy=policy)
    asked = [note(JO, "hello", "F007"), claim(KIM)] if joined else [claim(KIM)]
    how: dict[str, Any] = {"who": GATE if joined else None, "before": observed}
    for seconds, fine in ((TTL - 100, False), (TTL, True)):
        record = decide(observed, asked, moment(seconds, seen=long_ago)).record
        record = record.brought_by("gate@example.com") if joined else record
        if fine:
            legal(record, seconds=seconds, **how)
        else:
            assert refused(record, seconds=seconds, **how) == "takeover"
    ahead = step(BASE, claim(KIM), seconds=TTL + 61)
    legal(ahead, seconds=TTL + 2)
    assert refused(ahead, seconds=TTL) == "clock", "what a holder believes in is not taken"


# --- what the writer alone could know -------------------------------------------------------------


def test_what_the_writer_saw_change_lately_is_told_along() -> None:
    lately = moment(TTL + 100, seen=Sighting(at=at(TTL), changed=True))
    batch = [claim(KIM), claim(KIM, "F009")]
    decided = decide(BASE, batch, lately, together=False)
    (theirs,) = BASE.leases_of(parse_resource("F001"))
    assert decided.record.recent == (theirs.lease_id,)
    again = legal(decided.record, seconds=TTL + 100)
    assert picture(again.ledger) == picture(decided.applied.ledger)
    assert [getattr(result, "code", "") for result in again.results] == ["held", ""]


def test_what_ran_out_for_its_writer_by_the_boot_clock_is_told_along() -> None:
    slept = Moment(now=at(LIVE, boot=TTL + LIVE), seen=lambda _: Sighting(at(0), changed=True))
    decided = decide(BASE, [claim(KIM, "F002")], slept)
    (mine,) = BASE.leases_of(parse_resource("F002"))
    assert decided.record.over == (mine.lease_id,)
    again = legal(decided.record)
    assert picture(again.ledger) == picture(decided.applied.ledger)
    (granted,) = again.ledger.leases_of(parse_resource("F002"))
    assert granted.token > mine.token


def test_a_search_is_named_by_what_it_found() -> None:
    claims = tuple(claim(KIM, name) for name in ("F001", "F010", "F011"))
    picked = decide(BASE, [Pick(id=fresh(), actor=KIM, claims=claims)], moment(LIVE)).record
    (named,) = picked.operations
    assert isinstance(named, Claim)
    assert named.resource.text == "F010"
    everything = decide(BASE, [Renew(id=fresh(), actor=KIM)], moment(LIVE)).record
    (renewed,) = everything.operations
    assert isinstance(renewed, Renew)
    assert {grant.resource.text for grant in renewed.grants} == {"F002", "path:src"}


# --- what is no legal step ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "rule"),
    [
        (claim(KIM), "held"),
        (claim(KIM, "src/a.py", ttl=10**6), "policy"),
        (renew(KIM), "not-holder"),
        (renew(JO, "F004"), "lost"),
        (release(KIM), "held"),
        (complete(KIM), "held"),
        (revoke(KIM), "policy"),
        (Acknowledge(id=fresh(), actor=KIM, notices=("x",)), "nothing"),
        (Acknowledge(id=fresh(), actor=KIM, notices=("x",) * 51), "usage"),
        (release(KIM, "F099"), "nothing"),
    ],
)
def test_what_the_table_refuses_is_refused_with_its_reason(operation: Operation, rule: str) -> None:
    """And what was done once is never done again; policy is an admin's word."""
    assert refused(StepRecord(at=moment(LIVE).now.wall_ms, operations=(operation,))) == rule
    record = step(BASE, claim(KIM, "F009"))
    assert refused(record, before=as_stored(legal(record).ledger)) == "invalid"
    ruled = holding(policy=Policy(admins=(JO.holder,)))
    record = step(BASE, set_policy(KIM, skew="5s"))
    assert refused(record, before=ruled) == "policy"


def test_the_first_step_makes_the_ledger() -> None:
    record = step(empty(), claim(KIM, "F009"))
    made = legal(record, before=None)
    assert (made.ledger.header.ledger_id, made.ledger.header.revision) == ("ledger-1", 1)
    assert refused(replace(record, ledger_id=None), before=None) == "ledger-id"
    assert step(BASE, claim(KIM, "F009")).ledger_id is None


# --- the line of a step ---------------------------------------------------------------------------


LINE = step_line(step(BASE, claim(KIM, "F009", paths=("src/x",), reason="why \u00fc")))


def test_a_search_is_never_read() -> None:
    pick = Pick(id="x", actor=KIM, claims=())
    with pytest.raises(BadStep):
        read_step(step_line(StepRecord(at=1, operations=(pick,))))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        *(
            # Its operation's id differs from one worker to the next.
            pytest.param(LINE, x, id=f"the whole line {number}")
            for number, x in enumerate(
                ("", "[]", "{}", "{" * 100_000, LINE + " ", LINE.replace(":", ": "))
            )
        ),
        *(('"at":', x) for x in ('"at":"', '"at":9' + "9" * 30, '"at":1.5e')),
        *(('"op":"Claim"', f'"op":{x}') for x in ('"Steal"', '["Claim"]', '"Claim","cargo":1')),
        *(('"resource":"F009",', x) for x in ('"resource":"../x",', '"resource":9,', "")),
        *(('["src/x"]', x) for x in ('"src/x"', '[["src/x"]]', '[],"scope":"*"')),
        *(("why \u00fc", x) for x in ("why \\u0000", "x" * 9_000)),
        ('"do":[', '"do":[],"not":['),
        ('"do":[', '"do":[' + '{"op":"Barrier","id":"x"},' * MAX_STEP),
        ('"holder":', '"holder":null,"x":'),
    ],
)
def test_only_what_is_written_so_is_read(old: str, new: str) -> None:
    line = LINE.replace(old, new, 1)
    assert line != LINE
    with pytest.raises(BadStep) as caught:
        read_step(line)
    assert caught.value.message.isprintable()
