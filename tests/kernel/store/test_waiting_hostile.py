"""Whatever lies where those who wait are written down: it never keeps anybody from claiming."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.clock import ManualClock
from support.ledgers import (
    EPOCH_MS,
    Entry,
    Files,
    door,
    make_lease,
    place,
    record_of,
    write_object,
)
from support.remotes import Remote

from gitlease.kernel.rules.errors import Invalid, WaitTimeout
from gitlease.kernel.rules.ledger import TICKETS_KEPT, Ticket
from gitlease.kernel.rules.resources import parse_resource
from gitlease.kernel.store.records import MAX_MESSAGES, TICKETS, BadRecord, waiting_file

Clones = Callable[..., list[Path]]
F001 = parse_resource("F001")
FILE = waiting_file(F001)
FOLDER = FILE.rsplit("/", 1)[0]


def ticket(number: int = 0, *, holder: str = "eve@example.com", since: int = EPOCH_MS) -> Ticket:
    until = EPOCH_MS + 600_000
    return Ticket(f"{number:020x}", F001, "*", holder, None, since, until)


GOOD = TICKETS.write(F001, (ticket(),))


def changed(old: str, new: str, data: bytes = GOOD) -> bytes:
    assert old.encode() in data
    return data.replace(old.encode(), new.encode(errors="surrogatepass"))


def crowd(number: int) -> bytes:
    """More of them than may be written."""
    head, _, item = GOOD.partition(b"  - id:")
    items = (b"  - id:" + changed(f"{0:020x}", f"{n:020x}", item) for n in range(number))
    return head + b"".join(items)


DAMAGED: dict[str, bytes] = {
    "empty": b"",
    "noise": bytes(range(256)) * 4,
    "a bomb": b"a: &a {k: v}\nb: {<<: [*a, *a]}\n",
    "too large": GOOD + b"# " + b"x" * MAX_MESSAGES + b"\n",
    "too deep": b"resource: F001\ntickets: " + b"[" * 5_000 + b"]" * 5_000 + b"\n",
    "another resource": changed("resource: F001", "resource: F002"),
    "too many": crowd(TICKETS_KEPT + 1),
    "control characters": changed("eve@example.com", "eve\\u001b[2J"),
    "a number for an id": changed(f'id: "{0:020x}"', "id: [1]"),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_what_is_wrong_with_it_is_said_in_a_few_words(what: str) -> None:
    with pytest.raises(BadRecord) as bad:
        TICKETS.read(DAMAGED[what], file=FILE)
    assert len(str(bad.value)) < 200
    assert str(bad.value).isprintable()


def test_a_sound_line_is_read_as_it_was_written() -> None:
    tickets = tuple(ticket(n) for n in range(TICKETS_KEPT))
    data = TICKETS.write(F001, tickets)
    assert TICKETS.read(data, file=FILE) == tickets
    assert len(data) < MAX_MESSAGES
    assert TICKETS.read(crowd(TICKETS_KEPT), file=FILE) == tickets


@pytest.mark.parametrize(
    "bad", [ticket(holder="x" * 300), ticket(holder="a\nb"), ticket(holder=" ")]
)
def test_what_could_not_be_read_again_is_not_written(bad: Ticket) -> None:
    with pytest.raises((Invalid, ValueError)):
        TICKETS.write(F001, (bad,))


@pytest.mark.default("noise")
@pytest.mark.slow
@pytest.mark.parametrize("what", ["noise", "too many", "a link", "no top folder", "much else"])
def test_a_line_that_is_none_keeps_nobody_from_claiming(
    path_remote: Remote, clones: Clones, what: str
) -> None:
    """It can be waited and claimed, and it is said where it is damaged."""
    (clone,), bare, sound = clones(1), path_remote.bare, make_lease("F001")
    shapes: dict[str, Files] = {
        "a link": {FILE: Entry("120000", write_object(bare, GOOD))},
        "no top folder": {"waiting": Entry("100644", write_object(bare, GOOD))},
        "much else": {f"{FOLDER}/{n}": b"x" for n in range(20)} | {"waiting/odd": b"x"},
    }
    files, held = shapes.get(what) or {FILE: DAMAGED[what]}, what in ("noise", "a link")
    place(bare, {**files, **({"leases" + FILE[7:]: record_of(sound)} if held else {})})
    clock = ManualClock()
    one = door(clone, clock=clock)
    one.show("F001")
    said = [text for text in one.warnings if "waits" in text or "waiting" in text]
    assert len(said) == (what != "much else")
    if held:
        with pytest.raises(WaitTimeout):
            one.claim("F001", wait=10)
        clock.advance(1_000)
    assert one.claim("F001", wait=10).holder == "w1@example.com"
    one.release("F001")
    assert one.claim("F001").holder == "w1@example.com"


def test_a_forged_crowd_cannot_keep_a_waiter_out_for_longer_than_its_wait(
    path_remote: Remote, clones: Clones
) -> None:
    """A line full of the dead: it is waited for them, but the last try looks at nobody."""
    (clone,) = clones(1)
    place(path_remote.bare, {FILE: crowd(TICKETS_KEPT)})
    clock = ManualClock()
    assert door(clone, clock=clock).claim("F001", wait=120).holder == "w1@example.com"
    assert clock.wall_ms - EPOCH_MS <= 121_000
