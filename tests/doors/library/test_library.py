"""The library says and raises what the command line does, as values."""

from __future__ import annotations

import pickle
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from doors.fake import Desk, make_desks
from support.snapshots import check_words, raises
from support.tasks import task

import gitlease
from gitlease.kernel.ledger.edges import EdgeRules
from gitlease.kernel.rules.edge import Progress
from gitlease.library.leases import Leases
from gitlease.testing import MemoryLedger

RULES = EdgeRules(
    statuses={
        Progress.TODO: ("To Do",),
        Progress.IN_PROGRESS: ("In Progress", "doing"),
        Progress.DONE: ("Done", "closed"),
    }
)


def leases_of(desk: Desk, *, session: str | None = None) -> Leases:
    """The library at a desk."""
    options = {"layer": None, "local": False, "remote": None, "no_session": False}
    return Leases(desk.open(".", session=session, **options))


@pytest.fixture
def desk() -> Desk:
    """Ada's: F001 waits for F002, F003 is another's."""
    ada, _ = make_desks(
        task("F001", title="Rate limits", priority="high", depends_on=("F002",)),
        task("F002", title="Search"),
        task("F003", "@codex"),
        rules=RULES,
    )
    ada.tasks.refs["main"] = (task("M001"),)
    return ada


@pytest.fixture
def leases(desk: Desk) -> Leases:
    return leases_of(desk)


def test_the_queue_and_what_is_next(leases: Leases) -> None:
    found = leases.queue()
    assert [e.task.resource.text for e in found] == ["F001", "F002", "F003"]
    assert [e.why_not for e in found] == [None, None, gitlease.WhyNot.ASSIGNED]
    assert found[0].waits_for == ("F002",)
    assert leases.next_task().title == "Search"
    assert leases.next_task(ref="main").resource.text == "M001"
    assert leases.queue(ref="main")[0].task.resource.text == "M001"
    with pytest.raises(gitlease.NotFound):
        leases.queue(ref="nope")


@pytest.mark.parametrize("ttl", [600, 600.0, Decimal(600), "10m", timedelta(minutes=10)])
def test_a_computed_time_is_whole_seconds(leases: Leases, ttl: Any) -> None:
    assert leases.claim("F002", ttl=ttl).ttl_seconds == 600
    with pytest.raises(gitlease.UsageError):
        leases.renew("F002", ttl=600.5)  # type: ignore[arg-type]


def test_a_task_as_its_file_has_it(leases: Leases) -> None:
    found = leases.task("f001")
    assert isinstance(found, gitlease.Task)
    assert (found.resource.text, found.progress) == ("F001", gitlease.Progress.TODO)
    with raises(gitlease.NotFound):
        leases.task("F009")


def test_a_status_means_what_it_means_on_the_command_line(desk: Desk, leases: Leases) -> None:
    (claimed,) = leases.set_status("F001", "doing")
    assert (claimed.state, desk.tasks["F001"].status) == ("active", "doing")
    assert leases.set_status("F001", "to-do", commit=True) == ()
    assert desk.tasks["F001"].status == "To Do"
    (ended,) = leases.set_status("F001", "closed")
    assert (ended.state, desk.tasks["F001"].status) == ("completed", "closed")
    with raises(gitlease.UsageError):
        leases.set_status("F002", "blocked")
    with pytest.raises(gitlease.NotFound):
        leases.set_status("F009", "done")


def test_a_briefing(desk: Desk, leases: Leases) -> None:
    leases.claim("F001")
    brief = leases.brief()
    assert isinstance(brief, gitlease.QueueReading)
    assert [(c.resource, c.state) for c in brief.carried] == [("F001", gitlease.Carried.LIVE)]
    assert [e.task.resource.text for e in brief.next_up] == ["F002"]
    desk.tasks.refs["empty"] = ()
    leases.brief(ref="empty", cached=True)
    check_words(leases.warnings)


def test_answers_and_errors_survive_a_pickle() -> None:
    with MemoryLedger() as ledger:
        lease = ledger.open("ada@example.com").claim("F001")
        assert pickle.loads(pickle.dumps(lease)) == lease
        with pytest.raises(gitlease.LeaseHeld) as held:
            ledger.open("bob@example.com").claim("F001")
        back = pickle.loads(pickle.dumps(held.value))
        assert (str(back), back.lease) == (str(held.value), held.value.lease)
        refused = gitlease.PushRefused("no", refs=(), hints=("pull",))
        assert pickle.loads(pickle.dumps(refused)).hints == ("pull",)
