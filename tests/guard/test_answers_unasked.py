"""What answers and verbs come to where nobody asked for more."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from kernel.rules.values import at

from gitlease.guard import notes
from gitlease.guard.commits import CommitReader
from gitlease.guard.reports import CachedLedger, GuardReport
from gitlease.kernel.ledger import acts
from gitlease.kernel.ledger.answers import Reading
from gitlease.kernel.ledger.ports import INDEX, Pending, TaskList
from gitlease.kernel.rules.edge import Addresses
from gitlease.kernel.rules.lease_rows import LeaseRows
from gitlease.tasks.queue import _RANKS, MEDIUM
from gitlease.verbs.findings import Finding


def test_what_nobody_said_is_empty() -> None:
    pending = Pending((), "global", "", 1, "", "claim")
    assert (pending.at, pending.resources, pending.decision) == (None, (), False)
    assert (Reading().revision, Reading().ledger_id) == (0, None)
    assert (TaskList().tasks, TaskList().problems) == ((), ())
    known = CachedLedger(layer="global", version="", received=at(0), leases=LeaseRows.of(()))
    assert (known.damage, known.notices, known.doubt) == ((), (), "")
    report = GuardReport()
    assert (report.offline, report.old, report.superseded) == ("", frozenset(), ())
    found: Any = {x.name: x.default for x in inspect.signature(Finding).parameters.values()}
    assert (found["resource"], found["file"], found["line"]) == (None, None, None)


@pytest.mark.parametrize(
    ("verb", "name"),
    [
        (acts.release_all, "keep_status"),
        (acts.note, "to_holder"),
        (acts.confirm, "rolled_back"),
        (acts.confirm, "another"),
    ],
)
def test_no_verb_goes_further_than_asked(verb: Any, name: str) -> None:
    assert inspect.signature(verb).parameters[name].default is False


def test_names_that_others_read() -> None:
    assert INDEX == ":", "git's own name of it"
    assert notes.WORDS == "words", "other versions work in the same clone"
    assert [_RANKS[x] for x in ("medium", "normal", "default", "moderate")] == [MEDIUM] * 4


def test_people_are_known_by_their_names_in_task_files(monkeypatch: pytest.MonkeyPatch) -> None:
    names, usual = {"kim@example.com": "Kim"}, {"k@example.com": "kim@example.com"}
    monkeypatch.setattr(CommitReader, "canonical", lambda _, emails: usual)
    reader = CommitReader.__new__(CommitReader)
    known = reader.makers(["jo@example.com"], names=names, bots=("bot@example.com",))
    assert known.bots == {"bot@example.com"}
    expected = Addresses(canonical=usual, names=names)
    for email in ("k@example.com", "kim@example.com"):
        assert known.addresses.of(email) == expected.of(email)
        assert known.addresses.of(email) != Addresses(canonical=usual).of(email)
