"""When claims are stale: whose edges nobody works under, and which leases nobody cleaned up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from core.values import JO, KIM, NOON, SKEW, TTL, lease, moment
from support.tasks import task

from gitlease.check import (
    STALE_RULES,
    Board,
    BranchWork,
    Deleted,
    Edge,
    Held,
    Judged,
    Past,
    Signs,
    StaleRules,
    Version,
    doubtful,
    gone_names,
    held,
    judge,
    of_idle,
    of_leases,
    of_unknown,
    open_edges,
    unnamed,
)
from gitlease.core import (
    DEFAULT_POLICY,
    MS,
    Assignee,
    Event,
    Finding,
    Lease,
    Level,
    People,
    Persons,
    Progress,
    State,
    Task,
    moment_of,
)

DAY = 86_400
AFTER = 7 * DAY
LAPSED = TTL + SKEW + 1
KIM_AT_WORK, KIM_HOME = "kim@work.example", "kim@home.example"
LEE = "lee@example.com"


def when(days: float) -> int:
    """So many days after noon, in wall-clock milliseconds."""
    return NOON + round(days * DAY * MS)


def records(*leases: Lease, days: float = 10, layer: str = "global") -> list[Held]:
    return held(leases, layer, DEFAULT_POLICY, moment(days * DAY))


def persons(*known: str, mailmap: dict[str, str] | None = None, **people: Any) -> Persons:
    pairs = mailmap or {}
    return Persons(
        People(**people), pairs, (*(known or (JO.holder, KIM.holder)), *pairs, *pairs.values())
    )


def version(
    days: float, *after: str, before: Sequence[str] = (), commit: str = "c0ffee"
) -> Version:
    return Version(commit, when(days), KIM.holder, tuple(before), after)


def past(*versions: Version, committed: Sequence[str] | None = (KIM.holder,), **more: Any) -> Past:
    return Past(
        versions=versions, committed=None if committed is None else tuple(committed), **more
    )


def event(
    kind: str, days: float, *, holder: str | None = KIM.holder, by: str = KIM.holder
) -> Event:
    return Event(kind, "op", when(days), by, resource="F001", scope="*", holder=holder)


# --- who is who ---------------------------------------------------------------------------------


def test_a_name_means_whoever_the_map_the_address_or_the_handle_says() -> None:
    who = persons(JO.holder, KIM.holder, names={KIM.holder: "Kimberley"}, handles=True)
    assert who.emails("Kimberley") == (KIM.holder,)
    assert who.emails("@jo") == (JO.holder,)
    assert who.emails("JO@Example.com") == (JO.holder,)
    assert who.emails("@kim") == ()  # who is in the map has that name only
    assert who.emails("nobody") == who.emails("lee@example.com") == ()
    assert persons(JO.holder).emails("@jo") == ()  # handles are Backlog.md's


def test_the_mailmap_makes_one_person_of_several_addresses() -> None:
    who = persons(mailmap={KIM_HOME: KIM_AT_WORK, KIM_AT_WORK: KIM_AT_WORK})
    assert set(who.emails(KIM_AT_WORK)) == {KIM_AT_WORK, KIM_HOME}
    assert who.stands_for(KIM_AT_WORK, KIM_HOME)
    assert who.stands_for(KIM_HOME.upper(), KIM_AT_WORK)
    assert not who.stands_for(KIM_AT_WORK, KIM.holder)
    mapped = persons(mailmap={KIM_HOME: KIM_AT_WORK}, names={KIM_HOME: "@kim"})
    assert mapped.stands_for("@kim", KIM_AT_WORK)


def test_the_login_in_an_address_that_a_host_made_is_a_name() -> None:
    address = "12345+kim@users.noreply.github.com"
    who = persons(KIM.holder, mailmap={address: address})
    assert who.stands_for("@kim", address)
    assert not who.stands_for("@jo", address)


def test_how_somebody_is_called() -> None:
    who = persons(KIM.holder, names={KIM.holder: "@kim"})
    assert who.called("@kim") == KIM.holder
    assert who.called("the\x1bteam") == "'the\\x1bteam'"
    assert who.assignee("@kim") == Assignee("@kim", (KIM.holder,))


# --- which edges nobody holds -------------------------------------------------------------------

F001 = task("F001", KIM.holder, paths=("src/api",))
EDGE = Edge(F001, KIM.holder)


def test_an_edge_with_a_live_lease_is_none_of_them() -> None:
    def edges(*leases: Lease, days: float = 0.0) -> list[Edge]:
        return open_edges([F001], records(*leases, days=days), persons())

    assert edges() == [EDGE]
    assert edges(lease(holder=KIM)) == []
    assert edges(lease(holder=KIM, scope="parser")) == []
    assert edges(lease(holder=JO)) == [EDGE]
    assert edges(lease(holder=KIM, resource="F002")) == [EDGE]
    assert edges(lease(holder=KIM), days=(TTL + 1) / DAY) == []  # nobody else may have it yet
    assert edges(lease(holder=KIM), days=1) == [EDGE]


def test_a_live_lease_of_another_address_is_theirs_as_well() -> None:
    mailmap = {KIM.holder: KIM_AT_WORK, KIM_HOME: KIM_AT_WORK}
    live = records(lease(holder=replace(KIM, holder=KIM_HOME)), days=0)
    assert open_edges([F001], live, persons(mailmap=mailmap)) == []
    assert open_edges([F001], live, persons()) == [EDGE]


def test_what_is_done_or_exempt_has_no_open_edge() -> None:
    done = replace(F001, progress=Progress.DONE)
    exempt = replace(F001, exempt=True)
    assert open_edges([done, exempt], [], persons()) == []
    completed = lease(holder=KIM, state=State.COMPLETED)
    assert open_edges([F001], records(completed), persons()) == []
    part = lease(holder=KIM, state=State.COMPLETED, scope="parser")
    assert open_edges([F001], records(part), persons()) == [EDGE]
    assert open_edges([F001], records(completed, days=31), persons()) == [EDGE]  # long ago


# --- since when ---------------------------------------------------------------------------------


def judged(
    the_past: Past,
    *,
    days: float = 30,
    works: Iterable[BranchWork] = (),
    leases: Sequence[Lease] = (),
    events: Sequence[Event] = (),
    who: Persons | None = None,
    horizon: int | None = None,
    edge: Edge = EDGE,
) -> Judged:
    now, pasts = when(days), {edge.task.file: the_past}
    signs = Signs(who or persons(), records(*leases, days=days), events, now)
    asked = doubtful([edge], signs, pasts, after=AFTER, now=now)
    seen = signs.in_commits(asked, pasts, works)
    return judge(asked, signs, pasts, seen, after=AFTER, now=now, horizon=horizon)


def since(judgement: Judged) -> list[float]:
    return [(idle.since - NOON) / (DAY * MS) for idle in judgement.idle]


WRITTEN = past(version(0, KIM.holder))


def test_it_counts_from_the_commit_that_wrote_it() -> None:
    assert since(judged(WRITTEN, days=7)) == []
    assert since(judged(WRITTEN, days=7.01)) == [0]
    again = past(
        version(5, KIM.holder, before=[]),
        version(3, before=[KIM.holder]),
        version(0, KIM.holder),
    )
    assert since(judged(again, days=11)) == []
    assert since(judged(again, days=13)) == [5]
    kept = past(version(5, KIM.holder, before=[KIM.holder]), version(0, KIM.holder))
    assert since(judged(kept, days=8)) == [0]  # that commit assigned nobody


def test_it_counts_from_the_end_of_their_last_lease() -> None:
    lapsed = lease(holder=KIM, since=4 * DAY)
    assert since(judged(WRITTEN, days=11, leases=[lapsed])) == []
    assert since(judged(WRITTEN, days=11.02, leases=[lapsed])) == [4 + TTL / DAY]
    assert since(judged(WRITTEN, days=11, leases=[lease(since=4 * DAY)])) == [0]
    said = [event("released", 6)]
    assert since(judged(WRITTEN, days=12, events=said)) == []
    assert since(judged(WRITTEN, days=14, events=said)) == [6]
    taken = [event("displaced", 6, by=JO.holder)]
    assert since(judged(WRITTEN, days=14, events=taken)) == [6]
    theirs = [event("claimed", 6, holder=JO.holder, by=JO.holder)]
    assert since(judged(WRITTEN, days=12, events=theirs)) == [0]


def test_a_note_of_the_assignees_is_a_sign_of_life() -> None:
    noted = [event("noted", 6, holder=None)]
    assert since(judged(WRITTEN, days=12, events=noted)) == []


@pytest.mark.parametrize(
    ("who", "path", "counts"),
    [
        (KIM.holder, "tasks/F001.md", True),
        (KIM.holder, "src/api/limits.py", True),
        (KIM.holder.upper(), "src/api", True),
        (KIM.holder, "src/web/page.py", False),
        (JO.holder, "src/api/limits.py", False),
        (KIM.holder, "tasks/F001.md.old", False),
    ],
)
def test_a_commit_of_theirs_that_touches_the_task_or_its_paths_counts(
    who: str, path: str, counts: bool
) -> None:
    work = BranchWork("beef", ((who, when(6)),), ("README", path))
    assert since(judged(WRITTEN, days=12, works=[work])) == ([] if counts else [0])
    assert since(judged(WRITTEN, days=14, works=[work])) == ([6] if counts else [0])


def test_a_commit_under_another_address_counts() -> None:
    who = persons(mailmap={KIM.holder: KIM_AT_WORK, KIM_HOME: KIM_AT_WORK})
    work = BranchWork("beef", ((KIM_AT_WORK, when(6)),), ("src/api/x.py",))
    assert since(judged(WRITTEN, days=12, works=[work], who=who)) == []


def test_the_rebase_of_another_is_no_work_of_the_authors() -> None:
    work = BranchWork("beef", ((KIM.holder, when(1)), (JO.holder, when(6))), ("src/api/x.py",))
    assert since(judged(WRITTEN, days=12, works=[work])) == [1]


def test_the_name_that_a_file_had_before_counts_as_the_file() -> None:
    moved = past(version(0, KIM.holder), former=("tasks/old.md",))
    work = BranchWork("beef", ((KIM.holder, when(6)),), ("tasks/old.md",))
    assert since(judged(moved, days=12, works=[work])) == []


def test_nobody_was_seen_in_the_future() -> None:
    work = BranchWork("beef", ((KIM.holder, when(9_999)),), ("src/api/x.py",))
    assert since(judged(WRITTEN, days=12, works=[work])) == since(judged(WRITTEN, days=12)) != []
    slow = BranchWork("beef", ((KIM.holder, when(12.5)),), ("src/api/x.py",))
    assert since(judged(WRITTEN, days=12, works=[slow])) == []
    far = past(version(9_999, KIM.holder))
    assert since(judged(far, days=12)) == []


def test_an_edge_that_is_not_committed_is_young() -> None:
    assert judged(past(version(0, KIM.holder), committed=[])) == Judged()
    assert judged(past(committed=None)) == Judged()
    assert judged(Past(committed=(JO.holder,))) == Judged()


def test_what_cannot_be_known_is_not_stale() -> None:
    shallow = past(whole=False)
    assert judged(shallow) == Judged(unknown=(EDGE,))
    seen = past(version(0, KIM.holder), whole=False)
    assert judged(seen) == Judged(unknown=(EDGE,))
    work = BranchWork("beef", ((KIM.holder, when(28)),), ("src/api/x.py",))
    assert judged(shallow, works=[work]) == Judged()  # what is seen is enough
    assert judged(past(), days=30) == Judged(unknown=(EDGE,))  # nowhere written


def test_of_what_was_not_looked_at_it_counts_as_if_all_had_been_done_last() -> None:
    old = past(horizon=when(2))
    assert since(judged(old, days=30)) == [2]
    assert since(judged(WRITTEN, days=30, horizon=when(20))) == [20]
    assert judged(WRITTEN, days=30, horizon=when(29)) == Judged(unknown=(EDGE,))


def test_the_evidence_names_every_sign_the_newest_first() -> None:
    work = BranchWork("beefbeefbeef", ((KIM.holder, when(2)),), ("src/api/x.py",))
    (idle,) = judged(WRITTEN, days=20, works=[work], events=[event("released", 1)]).idle
    assert [sign.what for sign in idle.signs] == [
        "worked on it in beefbeefbe",
        "released, says the ledger",
        "assigned in c0ffee",
    ]
    own = BranchWork("c0ffee", ((KIM.holder, when(0)),), ("tasks/F001.md",))
    (idle,) = judged(WRITTEN, days=20, works=[own]).idle
    assert [sign.what for sign in idle.signs] == ["assigned in c0ffee"]


# --- leases -------------------------------------------------------------------------------------


def board(
    *held_by: Lease,
    tasks: Sequence[Task] = (F001,),
    days: float = 1,
    own: str = JO.holder,
    release: bool = False,
    required: bool = True,
    **more: Any,
) -> Board:
    return Board(
        tasks={t.resource.key: t for t in tasks},
        records=records(*held_by, days=days),
        persons=persons(),
        rules=StaleRules(release=release, required=required),
        now=when(days),
        own=lambda holder: holder == own,
        **more,
    )


def found(
    on: Board, *, pasts: dict[str, Past] | None = None, deleted: dict[str, Deleted] | None = None
) -> list[Finding]:
    return [finding for _, finding in of_leases(on, pasts or {}, deleted or {})]


def rules_of(findings: Iterable[Finding]) -> list[str]:
    return [finding.rule.id for finding in findings]


def test_a_lapsed_lease_is_told_of_unless_an_edge_explains_it() -> None:
    kims = lease(holder=KIM, edge=True)
    assert found(board(kims)) == []  # assigned, and at home: that is what edges are for
    assert found(board(kims, days=30)) == []  # told of with the edge
    (plain,) = found(board(lease(holder=KIM, resource="deploy")))
    assert (plain.rule.id, plain.holder, plain.since) == (
        "lapsed-lease",
        KIM.holder,
        moment_of(NOON + TTL * MS),
    )
    assert "lapsed 23h 45m, since 2026-11-20T12:15:00Z" in plain.message
    (path,) = found(board(lease(holder=KIM, resource="src/web/")))
    assert path.resource == "src/web"
    assert found(board(lease(holder=KIM, resource="deploy"), days=0)) == []


def test_an_edge_that_is_on_its_way_explains_a_lapsed_lease_for_as_long_as_an_edge_is_young() -> (
    None
):
    kims = lease(holder=KIM, edge=True)
    nobodys = replace(F001, assigned=())
    assert found(board(kims, tasks=[nobodys], days=7)) == []
    assert rules_of(found(board(kims, tasks=[nobodys], days=8))) == ["lapsed-lease"]
    assert rules_of(found(board(kims, tasks=[], days=8))) == ["lapsed-lease"]
    without = replace(kims, edge=False)
    assert rules_of(found(board(without, tasks=[nobodys]))) == ["lapsed-lease"]


def test_a_lease_on_a_task_that_is_done() -> None:
    done = replace(F001, progress=Progress.DONE)
    (live,) = found(board(lease(holder=KIM), tasks=[done], days=0))
    assert (live.rule.id, live.message) == (
        "lease-on-done",
        "kim@example.com holds F001, which is done",
    )
    assert (live.file, live.since) == ("tasks/F001.md", moment_of(NOON))
    (lapsed,) = found(board(lease(holder=KIM, scope="parser"), tasks=[done]))
    assert (
        lapsed.message == "kim@example.com has a lapsed lease on F001 (scope parser), which is done"
    )
    by_ledger = (lease(state=State.COMPLETED), lease(holder=KIM, scope="parser"))
    assert rules_of(found(board(*by_ledger, days=0))) == ["lease-on-done"]


def test_a_lease_on_a_task_whose_file_was_deleted() -> None:
    kims = lease(holder=KIM, resource="F009", edge=True)
    gone = {"f009": Deleted("tasks/F009.md", "c0ffeec0ffee", NOON, JO.holder)}
    on = board(kims, days=0)
    assert gone_names(on) == {"f009"}
    (finding,) = found(on, deleted=gone)
    assert finding.rule.id == "lease-on-gone"
    assert finding.evidence[0] == "tasks/F009.md was deleted in c0ffeec0ff by jo@example.com"
    assert found(on) == []  # it may be on a branch that is not merged
    name = replace(kims, edge=False)
    assert gone_names(board(name)) == frozenset()  # it never was a task
    assert gone_names(board(kims, required=False)) == frozenset()
    assert gone_names(board(kims, broken=frozenset({"f009"}))) == frozenset()


def test_a_live_lease_whose_holder_no_file_names() -> None:
    nobodys = replace(F001, assigned=())
    on = board(lease(holder=KIM), tasks=[nobodys], days=0)
    assert unnamed(on) == [(nobodys, KIM.holder)]
    assert found(on) == []  # within a TTL of the claim its edge may be on its way
    on = replace(on, rules=replace(on.rules, grace=0), now=on.now + 1)
    (finding,) = found(on)
    assert (finding.rule.id, finding.message) == (
        "lease-without-edge",
        "kim@example.com holds F001, but tasks/F001.md does not name them",
    )
    branch = {"tasks/F001.md": past(version(0, KIM.holder), committed=())}
    assert found(on, pasts=branch) == []  # a branch names them
    cut = {"tasks/F001.md": past(committed=(), whole=False)}
    assert found(on, pasts=cut) == []  # nobody can say
    taken_back = past(version(1, before=[KIM.holder]), version(0, KIM.holder), committed=())
    assert rules_of(found(on, pasts={"tasks/F001.md": taken_back})) == ["lease-without-edge"]
    assert found(board(lease(holder=KIM), days=0)) == []


def test_exempt_tasks_broken_files_and_completed_work_are_left_alone() -> None:
    exempt = replace(F001, exempt=True, assigned=())
    assert found(board(lease(holder=KIM), tasks=[exempt], days=0)) == []
    assert found(board(lease(holder=KIM), tasks=[exempt], days=30)) == []
    broken = frozenset({"f001"})
    assert found(board(lease(holder=KIM), tasks=[], broken=broken, days=30)) == []
    assert found(board(lease(holder=KIM, state=State.COMPLETED))) == []


# --- what is said -------------------------------------------------------------------------------


def idle_finding(**more: Any) -> Finding:
    (idle,) = judged(WRITTEN, days=20, edge=EDGE).idle
    return of_idle(idle, board(days=20, **more))


def test_a_finding_says_who_since_when_where_and_what_to_type() -> None:
    finding = idle_finding()
    assert (finding.level, finding.holder, finding.since) == (
        Level.ERROR,
        KIM.holder,
        moment_of(NOON),
    )
    assert (finding.file, finding.line) == ("tasks/F001.md", 1)
    assert finding.message == (
        "F001 is assigned to kim@example.com, who has not worked on it for 20d,"
        " since 2026-11-20T12:00:00Z"
    )
    assert finding.evidence == ("2026-11-20T12:00:00Z: assigned in c0ffee",)
    assert finding.next_steps == ("gitlease show F001", "gitlease note F001 'still on it?'")
    assert idle_finding(release=True).next_steps[-1] == "gitlease check --stale --fix"
    assert idle_finding(own=KIM.holder).next_steps == (
        "gitlease claim F001",
        "gitlease release F001",
    )


def test_nothing_to_type_takes_a_lease_from_its_holder() -> None:
    done = replace(F001, progress=Progress.DONE)
    boards = [
        board(lease(holder=KIM), tasks=tasks, days=days, release=True)
        for tasks in ([F001], [done], [replace(F001, assigned=())], [])
        for days in (0, 1, 30)
    ]
    steps = [step for on in boards for finding in found(on) for step in finding.next_steps]
    assert steps
    assert not any(word in step for step in steps for word in ("takeover", "revoke", "release"))


def test_a_name_for_the_shell_is_quoted() -> None:
    odd = task("#12", KIM.holder)
    (idle,) = judged(WRITTEN, days=20, edge=Edge(odd, KIM.holder)).idle
    assert of_idle(idle, board(tasks=[odd])).next_steps[0] == "gitlease show '#12'"


def test_a_name_that_is_nobodys() -> None:
    edge = Edge(task("F001", "sam\x07"), "sam\x07")
    finding = of_unknown(edge, past(version(0, "sam\x07"), committed=["sam\x07"]))
    assert finding.rule.id == "unknown-assignee"
    assert finding.message == "F001 is assigned to 'sam\\x07', a name that nobody here has"
    assert (finding.since, finding.evidence[0]) == (
        moment_of(NOON),
        f"written in c0ffee by {KIM.holder}",
    )
    assert of_unknown(edge, None).since is None


def test_every_rule_has_a_name_of_its_own() -> None:
    assert len({rule.id for rule in STALE_RULES}) == len(STALE_RULES) == 8
    assert all(rule.id == rule.id.lower() and rule.meaning for rule in STALE_RULES)
