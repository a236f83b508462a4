"""A watch under load: every event, in order and once, with the times of the ledger's history."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from ledger_checker.checker import verify
from ledger_checker.state import JudgedStep
from support.ledgers import REF
from support.remotes import Remote
from support.repos import git
from support.workers import Workers

import gitlease
from gitlease.core import MS
from gitlease.engine import Watcher, WatchEvent

Clones = Callable[..., list[Path]]
Told = tuple[str, str, int | None, int]
"""What happened to which resource, the token of its lease, and when (milliseconds)."""
LOAD, LONG = 8.0, 60.0  # seconds
NAMES = [f"F{number}" for number in range(6)]
LAST = "the-end"
OF_THE_CLOCK = ("renewed", "lapsed")  # a renewal may be replaced by the next; nothing lapses here


def expected(step: JudgedStep) -> list[Told]:
    """The events of a step, from its records alone and by rules that no watch has a part in."""
    found: list[Told] = []
    for old, new in step.changed.values():
        same = old is not None and new is not None and old.lease_id == new.lease_id
        if old is not None and not old.completed and not same:
            found.append(("released", old.resource, old.token, step.at))
            if new is None:
                found.append(("available", old.resource, None, step.at))
        if new is not None and new.completed and not (same and old is not None and old.completed):
            found.append(("completed", new.resource, new.token, new.renewed_at))
        elif new is not None and not new.completed and not same:
            found.append(("claimed", new.resource, new.token, new.claimed_at))
    return found


def told(event: WatchEvent) -> Told:
    return (event.kind, event.resource, event.token, round(event.at.timestamp() * MS))


def play(workers: Workers, dice: random.Random) -> int:
    """Claims, releases, ends of work and its reopening, four at the same moment; how many went."""
    held: list[set[str]] = [set() for _ in range(len(workers))]
    end, went = time.monotonic() + LOAD, 0
    while time.monotonic() < end:
        lines: list[list[str]] = []
        for own in held:
            if own and dice.random() < 0.6:
                verb = "done" if dice.random() < 0.2 else "release"
                lines.append([verb, dice.choice(sorted(own))])
            else:
                lines.append(["claim", dice.choice(NAMES), "--reopen"])
        for own, (verb, name, *_), answer in zip(held, lines, workers.at_once(lines), strict=True):
            went += answer.exit == 0
            if answer.exit == 0:
                (own.add if verb == "claim" else own.discard)(name)
    return went


def in_order(events: Iterable[Told], steps: Iterable[list[Told]]) -> list[Told]:
    """The same events, those of one step in one order, so that two lists can be compared."""
    left, found = list(events), list[Told]()
    for step in steps:
        found += sorted(left[: len(step)], key=str)
        left = left[len(step) :]
    return found + left


@pytest.mark.slow
def test_a_watch_tells_what_the_checker_reads_in_history(
    path_remote: Remote, clones: Clones
) -> None:
    *makers, watching = clones(5)
    begun, heard = list[str](), list[WatchEvent]()
    ready = threading.Event()

    def watch() -> None:
        with gitlease.open(str(watching), environ={}) as leases:

            def begin(head: object) -> None:
                begun.append(git(watching, "ls-remote", "origin", REF).partition("\t")[0])
                ready.set()

            for event in Watcher(leases._ledger, on_begin=begin).events(seconds=int(2 * LONG)):
                heard.append(event)
                if (event.kind, event.resource) == ("claimed", LAST):
                    return

    with Workers([(["-C", str(clone)], path_remote.env) for clone in makers]) as workers:
        assert workers.one(0, "claim", "before").exit == 0
        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        assert ready.wait(LONG)
        went = play(workers, random.Random(15))
        assert workers.one(0, "claim", LAST).exit == 0
        watcher.join(LONG)
    assert not watcher.is_alive()

    bare = path_remote.bare
    steps = list[JudgedStep]()
    verify(bare, git(bare, "rev-parse", REF), on_step=steps.append)
    first = next(n for n, step in enumerate(steps) if step.id == begun[0]) + 1
    by_step = [expected(step) for step in steps[first:]]
    wanted = [event for step in by_step for event in step]
    seen = [told(event) for event in heard if event.kind not in OF_THE_CLOCK]
    assert in_order(seen, by_step) == in_order(wanted, by_step)
    assert len(wanted) > went > 20, "it was a load"
    assert {kind for kind, *_ in wanted} == {"claimed", "released", "completed", "available"}
