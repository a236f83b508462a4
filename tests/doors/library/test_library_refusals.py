"""A refusal of the library ends in the caller's line, and speaks of arguments, not of options."""

from __future__ import annotations

import asyncio
import re
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.snapshots import raises

import gitlease
from gitlease.kernel.rules.errors import Hint
from gitlease.library.methods import in_python
from gitlease.testing import MemoryLedger

pytest_plugins = ["gitlease.testing"]
OURS = str(Path(gitlease.__file__).parent)
ADA, BOB = "ada@example.com", "bob@example.com"

CALLS: dict[str, Callable[[gitlease.Leases], Any]] = {
    "held": lambda bob: bob.claim("F001"),
    "not the holder": lambda bob: bob.renew("F001"),
    "a bad word": lambda bob: bob.claim("F001", ttl="x"),
    "completed": lambda bob: bob.claim("F009"),
    "a bad name": lambda bob: bob.show("a b"),
    "no session": lambda bob: bob.end_session(),
    "policy": lambda bob: bob.claim("F002", ttl="9d"),
    "no admin": lambda bob: bob.revoke("F001", reason="x"),
    "a wait": lambda bob: bob.wait("F001", timeout="1s"),
    "an event": lambda bob: next(bob.watch("a b")),
    "no repository": lambda _bob: gitlease.open("/"),
    "a session there": lambda _bob: gitlease.session(directory="/"),
    "a hold": lambda _bob: gitlease.hold("F001", directory="/").__enter__(),
    "a run": lambda _bob: gitlease.run(["true"], "F001", directory="/"),
    "not a word": lambda bob: bob.run("make test"),
    "asynchronous": lambda _bob: asyncio.run(_entered()),
}


async def _entered() -> None:
    async with gitlease.open_async("/"):
        pass


@pytest.fixture
def bob(gitlease_ledger: MemoryLedger) -> gitlease.Leases:
    with gitlease_ledger.open(ADA) as ada:
        ada.claim("F001")
        ada.done("F009", any=True)
    return gitlease_ledger.open(BOB)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_refusal_ends_in_the_callers_line(
    bob: gitlease.Leases, call: Callable[[gitlease.Leases], Any]
) -> None:
    with pytest.raises(gitlease.GitleaseError) as refused:
        call(bob)
    error = refused.value
    frames = traceback.extract_tb(error.__traceback__)
    ours = [x for x in frames if x.filename.startswith(OURS)]
    assert 1 <= len(ours) <= 3
    assert "\nDuring handling" not in "".join(traceback.format_exception(error))
    said = " ".join((str(error), *error.hints))
    assert not re.search(r"(?<!\w)--\w|`gitlease ", said), said


WRONG: dict[str, Callable[[Any], Any]] = {  # as no type checker has seen it
    "a duration": lambda leases: leases.claim("F001", "1h"),
    "nothing": lambda leases: leases.renew(),
    "an unknown name": lambda leases: leases.note("F001", "a note", to="holder"),
    "a list": lambda leases: leases.wait(["F001", "F002"]),
    "the command last": lambda leases: leases.run("F004", ["true"]),
    "two lists": lambda leases: leases.run(["true"], ["F004"]),
    "the command twice": lambda leases: leases.run("F004", command=["true"]),
    "a gateway": lambda _leases: gitlease.connect("http://x", token="x").fence("F001"),  # type: ignore[call-arg]
}


@pytest.mark.parametrize("call", WRONG.values(), ids=WRONG)
def test_what_is_called_wrongly_is_refused_with_the_call(
    bob: gitlease.Leases, call: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gitlease.Leases, "_to_run", lambda self, *_, **__: self._door)
    with raises(gitlease.UsageError):
        call(bob)


def test_a_refusal_says_who_where_until_when_and_what_to_call(
    gitlease_ledger: MemoryLedger,
) -> None:
    ada = gitlease_ledger.open(ADA, session="s1")
    bob = gitlease_ledger.open(BOB, directory=Path(__file__).parent)
    lease = ada.claim("path:src/a.py", scope="api", ttl="10m", reason="rate limits")
    who = f"src/a.py is held by {ADA} (scope api, session s1 on {lease.host}) until "
    until = f'{lease.expires_at:%Y-%m-%dT%H:%M:%SZ}, expires in 10m: "rate limits"'
    with pytest.raises(gitlease.NotHolder) as other:
        bob.renew("/src/a.py")
    assert str(other.value) == who + until
    assert other.value.hints == ("`leases.show('/src/a.py')` shows who holds it",)
    with pytest.raises(gitlease.LeaseHeld) as held:
        bob.claim("/src/a.py", scope="api")
    assert str(held.value) == who + until
    (hint,) = held.value.hints
    assert hint == "`leases.claim('/src/a.py', wait='15m', scope='api')` waits for it"
    assert held.value.__notes__ == [f"hint: {hint}"], "a traceback has it too"
    with pytest.raises(gitlease.WaitTimeout, match=r"waited 1m: src/a.py is held by ada.* until"):
        bob.claim("/src/a.py", wait="1m")
    leases = bob
    assert eval(hint.split("`")[1], {"leases": leases}).holder == BOB
    ada.claim("F001")
    gitlease_ledger.advance(minutes=15, seconds=30)
    with pytest.raises(gitlease.LeaseHeld, match=r", expired at .*Z, free from .*Z"):
        bob.claim("F001")


def test_a_fault_of_ours_keeps_its_traceback(
    bob: gitlease.Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bob._ledger.store, "fetch", lambda _layer: 1 / 0)
    with pytest.raises(ZeroDivisionError) as fault:
        bob.list()
    assert len(traceback.extract_tb(fault.value.__traceback__)) > 4


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        (Hint("", {"any": True}, "to claim it, add {}"), "to claim it, add any=True"),
        (Hint("", {"set_upstream": True}, "say {}"), "say upstream=True"),
        (Hint("", {"expect_holder": "a@b", "layer": "x"}, "{}"), "expect_holder='a@b', layer='x'"),
        (Hint("session list", {}, "name one; `{}` lists"), "name one; `leases.sessions()` lists"),
        (Hint("config", {"key": "a", "value": "B"}, "set: {}"), "set: leases.config('a', 'B')"),
        (Hint("config", {"ledger": True, "key": "x"}, "{}"), "leases.config('x', ledger=True)"),
        (Hint("init", {"help": True}, "read {}"), "read gitlease init --help"),
        (Hint("hooks install", {}, "first: {}"), "first: gitlease hooks install"),
        ("git worktree add --any x", "git worktree add --any x"),
    ],
)
def test_hint_in_python_is_a_call_or_arguments(hint: str, expected: str) -> None:
    assert in_python(hint) == expected


def test_a_warning_points_at_the_block_that_ended(gitlease_ledger: MemoryLedger) -> None:
    with warnings.catch_warnings(record=True) as told, gitlease_ledger.stand_in(ADA):
        warnings.simplefilter("always")
        with gitlease.hold("F001"):
            gitlease_ledger.failing = gitlease.Unavailable("away")
    assert [x.filename for x in told] == [__file__]
