"""The library's verbs through a gateway: the same types, the same refusals."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support.clock import ManualClock
from support.gateway import Served
from support.running import LONG
from support.snapshots import raises
from support.stubborn import Stubborn

import gitlease


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


@pytest.mark.nightly
def test_what_is_read_comes_in_the_librarys_types(project: Served) -> None:
    jo, kim = connected(project, "jo", "build é"), connected(project, "kim")
    task = jo.next_task()
    assert isinstance(task, gitlease.Task)
    token = jo.claim_next().token
    kim.note(task.resource, "the fixture is flaky")
    noted, claimed = kim.log(task.resource, since="1h")
    assert (noted.kind, claimed.kind, claimed.session) == ("noted", "claimed", "build é")
    assert claimed.at <= noted.at
    assert jo.fence(task.resource, token).token == token
    assert task.resource.text in [x.resource for x in kim.board().rows]
    assert kim.whoami().holder == "kim@example.com"
    entry = next(x for x in kim.queue() if x.task.resource == task.resource)
    assert (entry.who, entry.lease and entry.lease.token) == ("jo@example.com", token)
    page = jo.brief()
    assert [(x.resource, x.state.value) for x in page.carried] == [(task.resource.text, "live")]
    assert [x.author for x in page.notes] == ["kim@example.com"]


def gitlease_but_mine(lease: gitlease.Lease, held: gitlease.LeaseHeld) -> Any:
    """The same lease as another sees it."""
    from gitlease.kernel.rules.frozen import replace

    assert held.lease is not None
    return replace(lease, mine=False, expires_in=held.lease.expires_in)


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


@pytest.mark.slow
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


@pytest.mark.slow
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
    with raises(gitlease.UsageError):
        connected(gate, "jo").claim_all(["F001", "30s"])


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
