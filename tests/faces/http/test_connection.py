"""The library's verbs through a gateway: the same types, the same refusals."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support.clock import ManualClock
from support.gateway import LONG, Served
from support.running import until
from support.snapshots import raises
from support.stubborn import Stubborn

import gitlease

pytestmark = pytest.mark.sampled(2)


def connected(gate: Served, name: str, session: str | None = None) -> gitlease.Connection:
    return gitlease.connect(gate.url, token=gate.secret(name), session=session)


def test_the_verbs_answer_with_the_librarys_types(gate: Served) -> None:
    jo, kim = connected(gate, "jo", "build-7"), connected(gate, "kim")
    with jo:
        lease = jo.claim("F001", ttl="10m", paths=["src/**"], reason="rate limits")
    assert isinstance(lease, gitlease.Lease)
    assert (lease.holder, lease.session, lease.ttl_seconds) == ("jo@example.com", "build-7", 600)
    assert lease.mine
    assert lease.lapses_at == lease.free_at
    assert lease.is_current(lease.expires_at)
    assert lease.paths == ("src/**",)
    with pytest.raises(gitlease.LeaseHeld) as held:
        kim.claim("F001")
    assert held.value.lease == gitlease_but_mine(lease, held.value)
    assert held.value.free_at is not None
    assert kim.held_paths(["src/a.py", "docs/b.md"]).keys() == {"src/a.py"}
    assert jo.renew("F001").token == lease.token
    assert jo.extend("F001", "2h").expires_in > 7_000
    assert [x.resource for x in kim.list(holder="jo@example.com")] == ["F001"]
    assert [x.token for x in kim.show("F001")] == [lease.token]
    jo.release("F001", note="half done")
    with pytest.raises(gitlease.LeaseLost):
        jo.renew("F001")
    both = jo.claim_all(["a", "b"])
    assert [x.resource for x in both] == ["a", "b"]
    jo.done("a")
    with pytest.raises(gitlease.PolicyRefused):
        kim.claim("a")
    with pytest.raises(gitlease.NothingLeft):
        kim.claim_next()


def test_a_lease_is_parked_noted_and_read_by_the_log(gate: Served) -> None:
    jo, kim = connected(gate, "jo", "build é"), connected(gate, "kim")
    token = jo.claim("F001", ttl="10m", reason="rate limits").token
    kim.note("F001", "the fixture is flaky")
    parked = jo.park("F001", "90m", reason="lunch")
    assert (parked.parked, parked.token, parked.session) == (True, token, None)
    with pytest.raises(gitlease.PolicyRefused, match="admin"):
        kim.revoke("F001", reason="gone")
    kinds = ["parked", "noted", "claimed"]
    for found in (kim.log("F001"), kim.log("F001", since="1h"), kim.log("F001", limit=3)):
        assert [x.kind for x in found] == kinds
        assert all(isinstance(x, gitlease.LogEntry) for x in found)
    assert (found[2].by, found[2].session, found[2].token) == ("jo@example.com", "build é", token)
    assert found[2].at <= found[0].at
    assert kim.log("F001", limit=1) == found[:1]
    assert kim.show("F002") == ()
    assert kim.log() == kim.log("F001")
    assert kim.whoami().holder == "kim@example.com"
    with pytest.raises(TypeError, match=r"Connection.note\(\) missing"):
        kim.note("F001")  # type: ignore[call-arg]
    got = jo.claim("F003")
    assert jo.fence("F003", got.token).token == got.token
    with pytest.raises(gitlease.LeaseLost):
        jo.fence("F003", got.token + 1)


def test_the_next_task_is_shown_before_it_is_claimed(project: Served) -> None:
    jo = connected(project, "jo")
    task = jo.next_task()
    assert isinstance(task, gitlease.Task)
    assert jo.claim_next().resource == task.resource.text


def gitlease_but_mine(lease: gitlease.Lease, held: gitlease.LeaseHeld) -> Any:
    """The same lease as another sees it."""
    from gitlease.core import replace

    assert held.lease is not None
    return replace(lease, mine=False, expires_in=held.lease.expires_in)


def test_word_for_the_holder_is_in_their_next_answer(gate: Served) -> None:
    jo, kim = connected(gate, "jo", "build-7"), connected(gate, "kim")
    with pytest.raises(gitlease.NotFound):
        kim.note("F001", "hurry", to_holder=True)
    jo.claim("F001")
    kim.note("F001", "hurry", to_holder=True)
    shown = []
    for _ in range(2):
        jo.list()
        shown.append([x for x in jo.warnings if "hurry" in x])
    assert [len(x) for x in shown] == [1, 0]


LOSING: dict[str, Callable[[gitlease.Connection], object]] = {
    "renew": lambda jo: jo.renew("task-api"),
    "extend": lambda jo: jo.extend("task-api", "1h"),
    "done": lambda jo: jo.done("task-api"),
}


def test_every_verb_says_that_a_lease_was_taken(project: Served, manual_clock: ManualClock) -> None:
    jo, kim = connected(project, "jo"), connected(project, "kim")
    jo.claim("task-api")
    assert jo.extend("task-api", "9h").capped
    assert not jo.extend("task-api", "1m").capped
    manual_clock.advance(seconds=9 * 3_600)
    with pytest.raises(gitlease.LeaseLost) as lapsed:
        jo.renew("task-api")
    assert lapsed.value.loss is gitlease.Loss.EXPIRED
    kim.claim("task-api", takeover=True, reason="ada is away")
    for verb, act in LOSING.items():
        with pytest.raises(gitlease.LeaseLost) as lost:
            act(jo)
        assert lost.value.loss is gitlease.Loss.TAKEN_OVER, verb
        assert lost.value.holder == "kim@example.com"
    awaited = gitlease.connect_async(project.url, token=project.secret("jo"))
    with pytest.raises(gitlease.LeaseLost):
        asyncio.run(awaited.renew("task-api"))
    with pytest.raises(gitlease.NotHolder):
        connected(project, "eve").renew("task-api")
    with pytest.raises(gitlease.LeaseHeld):
        connected(project, "eve").done("task-api")


def test_it_is_awaited_as_well(gate: Served) -> None:
    async def play() -> str:
        made = gitlease.connect_async(gate.url, token=gate.secret("jo"))
        async with made as leases:
            one, other = await asyncio.gather(leases.claim("a"), leases.claim("b"))
            with pytest.raises(gitlease.LeaseHeld):
                await gitlease.connect_async(gate.url, token=gate.secret("kim")).claim("a")
            await leases.release("b")
            return f"{one.resource} {other.resource} {len(await leases.list())}"

    assert asyncio.run(play()) == "a b 1"


def test_events_come_as_they_happen(gate: Served) -> None:
    jo, kim = connected(gate, "jo"), connected(gate, "kim")
    jo.claim("before")
    with ThreadPoolExecutor(1) as pool:
        stream = kim.events(after="0-0")
        first = next(stream)
        heard = pool.submit(next, stream)
        jo.claim("F001")
        event = heard.result(LONG)
        stream.close()
    assert (first.kind, first.resource, first.id) == ("claimed", "before", "1-0")
    assert (event.kind, event.resource, event.holder) == ("claimed", "F001", "jo@example.com")
    assert next(kim.events(after=first.id)) == event


def test_events_are_awaited_as_well(gate: Served) -> None:
    async def hear() -> list[str]:
        leases = gitlease.connect_async(gate.url, token=gate.secret("jo"))
        await leases.claim("F001")
        events, heard = leases.events(after="0-0"), list[str]()
        async for event in events:
            heard.append(str(event.resource))
            if len(heard) == 1:
                await leases.claim("F002")
            else:
                break
        await events.aclose()
        return heard

    assert asyncio.run(hear()) == ["F001", "F002"]
    until(lambda: not gate.app.follower._listeners, "nobody listens any more")


def test_an_answer_that_is_lost_is_asked_for_again(gate: Served) -> None:
    """The gateway did what was asked; the way back broke."""
    with Stubborn(gate.url, loses=2) as proxy:
        lease = gitlease.connect(proxy.url, token=gate.secret("jo")).claim("F001", new=True)
    assert lease.token == 1
    assert proxy.lost == 2
    with Stubborn(gate.url, loses=9) as proxy:
        jo = gitlease.connect(proxy.url, token=gate.secret("jo"))
        with pytest.raises(gitlease.UnknownOutcome):
            jo.claim("F002")
        with pytest.raises(gitlease.Unavailable):
            jo.list()


def test_what_is_wrong_is_named(gate: Served) -> None:
    for url in ("ftp://x", "http://", "nonsense", "http://jo:secret@host"):
        with pytest.raises(gitlease.UsageError):
            gitlease.connect(url, token="x")
    with pytest.raises(gitlease.Denied, match="token"):
        gitlease.connect(gate.url, token="x").list()
    with raises(gitlease.Unavailable):
        gitlease.connect("http://127.0.0.1:1", token="x").list()
    assert "secret" not in repr(gitlease.connect("http://127.0.0.1:1", token="secret"))
    with pytest.raises(gitlease.UsageError):
        connected(gate, "jo").claim("F001", ttl="soon")


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (b"HTTP/1.1 204 No Content\r\n\r\n", gitlease.UnknownOutcome),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", gitlease.UnknownOutcome),
        (b"HTTP/1.1 301 Moved\r\nContent-Length: 0\r\n\r\n", gitlease.UnknownOutcome),
        (b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n", gitlease.UnknownOutcome),
        (b"HTTP/1.1 429 Slow\r\nContent-Length: 0\r\n\r\n", gitlease.Unavailable),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnope", gitlease.Unavailable),
    ],
)
def test_whatever_else_answers_is_no_success(
    answer: bytes, kind: type[gitlease.GitleaseError]
) -> None:
    with Stubborn("http://127.0.0.1:1", says=answer) as proxy:
        leases = gitlease.connect(proxy.url, token="x")
        with pytest.raises(kind):
            leases.release("F001")
        with pytest.raises(gitlease.Unavailable):
            leases.list()


@pytest.mark.parametrize("token", ["", "two words", "line\n", "é"])
def test_what_is_no_token_is_never_shown(token: str) -> None:
    with pytest.raises(gitlease.UsageError) as wrong:
        gitlease.connect("http://127.0.0.1:1", token=token)
    assert not token or token not in str(wrong.value)


def test_list_has_what_blocks_others_until_its_lapse(
    project: Served, manual_clock: ManualClock
) -> None:
    jo, kim = connected(project, "jo"), connected(project, "kim")
    jo.claim("task-api", ttl="10s")
    states = []
    for seconds in (5, 25, 60):
        manual_clock.advance(seconds)
        states.append([x.state for x in kim.list()])
    assert states == [["active"], ["expired"], []]
    assert kim.list(state="active") == ()
