"""What commits did to the claims of others, by value: leases, grants, dates and people."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kernel.rules.values import F001, JO, KIM, NOON, at, lease

from gitlease.check.judging import Granted, Judgement, LedgerFacts, granted
from gitlease.guard.commits import CommitFacts
from gitlease.guard.whose import Makers
from gitlease.kernel.rules.edge import Addresses
from gitlease.kernel.rules.instant import MS
from gitlease.kernel.rules.lease import DEFAULT_POLICY, Lease, Moment
from gitlease.kernel.rules.moves.operations import Event
from gitlease.kernel.rules.viewpoint import Touched
from gitlease.kernel.rules.work import Authorship, Named, read_trailer, trailer

HOUR = 3_600
TOUCHED = (Touched("src/a.py"),)
LEASE = lease(holder=KIM, paths=("src",))


def commit(
    made: float = 0,
    *,
    by: tuple[str, ...] = (JO.holder,),
    recorded: float | None = None,
    touched: tuple[Touched, ...] = TOUCHED,
    named: tuple[Named, ...] = (),
) -> CommitFacts:
    """A commit, made so many seconds after noon."""
    return CommitFacts(
        id="c" * 40,
        emails=by,
        written=at(made).wall_ms,
        recorded=at(made if recorded is None else recorded).wall_ms,
        touched=touched,
        named=named,
    )


def held(holder: str = KIM.holder) -> Lease:
    return replace(LEASE, holder=holder, lease_id=holder)


def found(
    one: CommitFacts,
    *leases: Lease,
    grants: tuple[Granted, ...] = (),
    now: float = 60,
    pushers: frozenset[str] = frozenset(),
    requesters: tuple[str, ...] = (),
    tokens: int = 0,
    trailer: bool = False,
    addresses: Addresses | None = None,
    others: tuple[CommitFacts, ...] = (),
) -> list[tuple[str, str]]:
    facts = LedgerFacts(
        "global",
        leases,
        {x.token: x for x in grants},
        tokens,
        DEFAULT_POLICY,
        Moment(now=at(now)),
    )
    people = addresses or Addresses()
    by = Judgement(
        addresses=people,
        pushers=pushers,
        requesters={name: people.of(name) for name in requesters},
        trailer=trailer,
        ledgers={"global": facts},
    )
    return [(x.rule.id, x.level.value) for x in by.find([one, *others])]


NOW, MAYBE = [("held-now", "error")], [("held-now", "warning")]


# --- whose claims are broken ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "recorded"),
    [(-1, -1), (0, 0), (60, 60), (30, 500), (-50, 30), (-50, 500), (500, 30), (30 * HOUR, 30)],
)
def test_no_date_of_a_commit_decides(made: float, recorded: float) -> None:
    for one in (
        commit(made, recorded=recorded),
        replace(commit(made, recorded=recorded), written=None),
        replace(commit(made), written=None, recorded=None),
    ):
        assert found(one, held()) == NOW
        assert found(one) == []


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        (Authorship(("KIM@example.com",)), NOW),
        (Authorship(("lee@example.com",)), []),
        (Authorship(("lee@example.com",), (Named("F001", "f001", LEASE.token),)), NOW),
        (Authorship(("9+kim@users.noreply.github.com",)), NOW),
    ],
)
def test_what_a_merge_gives_up_breaks_only_the_claim_of_whose_work_it_is(
    work: Authorship, expected: object
) -> None:
    touched = tuple(replace(one, lost=(work,)) for one in TOUCHED)
    people = Addresses(names={KIM.holder: "@kim"})
    assert found(commit(30, touched=touched), held(), addresses=people) == expected
    assert found(commit(30, touched=touched), addresses=people) == []


NAMES_KIMS = (Named("F001", "f001", LEASE.token),)


@pytest.mark.parametrize(
    ("by", "named", "expected"),
    [
        (JO.holder, (), NOW),
        (JO.holder, NAMES_KIMS, NOW),
        (KIM.holder, (), [("held-unproven", "warning")]),
        (KIM.holder, NAMES_KIMS, []),
        (KIM.holder, (replace(NAMES_KIMS[0], token=9),), [("held-unproven", "warning")]),
    ],
)
def test_a_holder_vouches_for_what_they_merge(
    by: str, named: tuple[Named, ...], expected: object
) -> None:
    early = replace(commit(-50, by=("x@example.com",)), id="1" * 40)
    side = replace(commit(30, touched=()), id="2" * 40, parents=("0" * 40, early.id))
    main = replace(commit(-60, touched=()), id="3" * 40)
    merge = commit(50, by=(by,), touched=(), named=named)
    merge = replace(merge, id="4" * 40, parents=(main.id, side.id))
    later = replace(commit(55, touched=()), id="5" * 40, parents=(merge.id, early.id))
    broken = found(early, held(), others=(side, main, merge, later))
    assert [x for x in broken if not x[0].startswith("token-")] == expected


def test_everybody_who_stands_for_a_commit_may_be_the_holder() -> None:
    for people in ((KIM.holder,), (JO.holder, KIM.holder), (JO.holder, "x@y.z", "KIM@Example.com")):
        assert found(commit(30, by=people), held()) == [("held-unproven", "warning")]
    keys = Addresses().of(KIM.holder)
    assert found(commit(30), held(), pushers=keys) == []
    assert found(commit(30, by=("",)), held()) == NOW
    assert found(commit(30, by=()), held()) == NOW


def test_a_co_author_is_a_claim_of_the_message_and_only_pointed_out() -> None:
    one = replace(commit(30), helpers=("x@y.z", "KIM@Example.com"))
    assert found(one, held()) == MAYBE
    assert found(one, held("lee@x.y")) == NOW
    assert found(one, held(), pushers=Addresses().of(KIM.holder)) == []
    stands = held("lee@x.y")
    helped = replace(commit(30), helpers=(KIM.holder,))
    later = [("held-now", "warning"), ("held-now", "error")]
    assert sorted(found(helped, held(), stands, now=100)) == sorted(later)
    same = Addresses(canonical={"k@home.example": KIM.holder})
    assert found(replace(one, helpers=("k@home.example",)), held(), addresses=same) == MAYBE


def test_who_opened_a_request_is_only_pointed_out_like_a_co_author() -> None:
    one, asked = commit(30), ("lee@x.y", KIM.holder)
    assert found(one, held(), requesters=asked) == MAYBE
    assert found(one, held("mo@x.y"), requesters=asked) == NOW
    named = commit(50, named=(NAMED,), touched=())
    theirs = (replace(MINE, holder=KIM.holder),)
    assert found(named, grants=theirs, requesters=asked) == [("token-unknown", "warning")]
    squashed = replace(commit(50), mentioned=(NAMED,))
    owed = found(squashed, trailer=True, grants=theirs, requesters=asked)
    assert owed == [("no-trailer", "warning")]


def test_a_lease_that_stands_is_held_now() -> None:
    stands = held()
    assert found(commit(-50), stands, now=60) == [("held-now", "error")]
    assert found(commit(50), stands, now=60) == NOW
    assert found(commit(50), now=60) == []  # it was ended
    assert found(commit(-50), stands, now=HOUR) == []  # it lapsed


@pytest.mark.parametrize(
    ("change", "pusher", "expected"),
    [
        ({}, "", [("held-unproven", "warning")]),
        ({}, JO.holder, [("held-unproven", "error")]),
        ({}, KIM.holder, []),
        ({"named": (Named("F001", "f001", LEASE.token),)}, JO.holder, []),
        ({"mentioned": (Named("F001", "f001", LEASE.token),)}, "", []),  # as a squash has it
        ({"named": (Named("F001", "f001", LEASE.token - 1),)}, "", [("held-unproven", "warning")]),
        ({"emails": (JO.holder, KIM.holder)}, "", [("held-unproven", "warning")]),
        ({"only_tasks": True}, JO.holder, []),
        (
            {"named": (Named("F001", "f001", LEASE.token),), "recorded": at(-99).wall_ms},
            "",
            [("held-unproven", "warning")],
        ),
    ],
)
def test_address_alone_proves_no_holder_of_a_live_lease(
    change: dict[str, object], pusher: str, expected: object
) -> None:
    one = replace(commit(30, by=(KIM.holder,)), **change)  # type: ignore[arg-type]
    pushers = Addresses().of(pusher) if pusher else frozenset[str]()
    stands = held()
    broken = found(one, stands, now=60, pushers=pushers)
    assert [x for x in broken if x[0] != "token-unknown"] == expected
    assert found(replace(one, named=()), stands, now=HOUR, pushers=pushers) == [], "it lapsed"


# --- tokens ---------------------------------------------------------------------------------------

MINE = Granted(1, "F001", "f001", "*", JO.holder, NOON, NOON + 60 * MS)
NAMED = Named("F001", "f001", 1)


def next_one(since: float, **changes: object) -> Granted:
    grant = Granted(2, "F001", "f001", "*", KIM.holder, at(since).wall_ms)
    return replace(grant, **changes)  # type: ignore[arg-type]


SUPERSEDED = [("token-superseded", "error")]


@pytest.mark.parametrize("made", [-900, 99, 100, 101, 900])
def test_a_token_ends_with_the_next_grant_whoever_has_it(made: float) -> None:
    """By the order of grants: no date of a commit decides anything."""
    one = commit(made, named=(NAMED,), touched=())
    assert found(one, grants=(MINE,)) == []
    assert found(one, grants=(MINE, next_one(100))) == SUPERSEDED
    assert found(one, grants=(MINE, next_one(100, holder="Jo@example.com"))) == SUPERSEDED
    assert found(one, grants=(MINE, next_one(100, key="f002"))) == []
    assert found(one, grants=(MINE, next_one(100, scope="parser"))) == SUPERSEDED
    parser = replace(MINE, scope="parser")
    named = replace(one, named=(replace(NAMED, scope="parser"),))
    assert found(named, grants=(parser, next_one(100, scope="lexer"))) == []
    by_host = replace(one, committer="noreply@github.com")
    assert found(by_host, grants=(MINE, next_one(100))) == SUPERSEDED
    revoked = replace(MINE, how="revoked", ended_by=KIM.holder)
    assert found(one, grants=(revoked,)) == SUPERSEDED


def test_a_token_of_somebody_else_or_something_else_was_never_given() -> None:
    unknown = [("token-unknown", "error")]
    one = commit(50, named=(NAMED,), touched=())
    assert found(one, tokens=0) == unknown
    assert found(one, tokens=2) == [("token-unknown", "warning")]  # history does not reach it
    assert found(one, grants=(replace(MINE, holder=KIM.holder),)) == unknown
    assert found(one, grants=(replace(MINE, key="f002"),)) == unknown
    assert found(one, grants=(replace(MINE, scope="x"),)) == unknown
    assert found(replace(one, emails=(KIM.holder, JO.holder)), grants=(MINE,)) == []
    claimed = replace(one, emails=(KIM.holder,), helpers=(JO.holder,))
    assert found(claimed, grants=(MINE,)) == [("token-unknown", "warning")]
    late = replace(claimed, written=at(90).wall_ms)
    lee = next_one(80, holder="lee@x.y")
    assert found(late, grants=(MINE, lee)) == [("token-superseded", "error")]
    assert found(replace(one, named=(NAMED, NAMED)), grants=()) == unknown


def test_a_required_trailer_is_owed_by_what_changes_files() -> None:
    owed = [("no-trailer", "error")]
    one = commit(50)
    assert found(one, trailer=True) == owed
    assert found(one) == []
    for exempt in (
        replace(one, parents=("a" * 40, "b" * 40)),
        replace(one, touched=()),
        replace(one, only_tasks=True),
        replace(one, mentioned=(NAMED,)),
    ):
        assert found(exempt, trailer=True, grants=(MINE,)) == []
    assert found(replace(one, mentioned=(replace(NAMED, token=9),)), trailer=True) == owed
    squashed = replace(one, emails=(KIM.holder,), helpers=(JO.holder,), mentioned=(NAMED,))
    owed = [("no-trailer", "warning")]
    assert found(squashed, trailer=True, grants=(MINE,)) == owed


def test_a_trailer_that_cannot_be_read_is_pointed_out_once() -> None:
    one = replace(commit(50), unreadable=("F003 token=abc", "F003"))
    assert found(one) == [("trailer-unreadable", "warning")]


@pytest.mark.parametrize(
    ("resource", "scope", "layer"),
    [
        ("src/a b/*.py", "*", "global"),
        ("path:Makefile", "parser", "team"),
        ("F001", 'two "words" \\ here', "team"),
        ("src/x token=5", "*", "global"),
    ],
)
def test_what_the_hook_writes_is_read_again(resource: str, scope: str, layer: str) -> None:
    written = trailer(replace(lease(resource=resource, scope=scope), token=42), layer)
    named = read_trailer(written)
    assert named is not None
    assert (named.resource, named.token, named.scope, named.layer) == (resource, 42, scope, layer)
    assert named.key == lease(resource=resource).resource.key


@pytest.mark.parametrize(
    "text",
    [
        "",
        "F001 token=x",
        "F001 token=5 more",
        "F\x1b001 token=5",
        "F001 token=" + "9" * 5_000,
        "x" * 5_000 + " token=1",
    ],
)
def test_what_is_no_trailer_is_none(text: str) -> None:
    assert read_trailer(text) is None


# --- grants ---------------------------------------------------------------------------------------


def test_grants_are_known_by_events_and_by_leases() -> None:
    grant = Event("claimed", "op", NOON, JO.holder, "F001", "*", JO.holder, token=5)
    end = Event("revoked", "op", at(9).wall_ms, KIM.holder, "F001", "*", KIM.holder, token=5)
    again = grant._replace(kind="taken_over", at=NOON + 9)
    lease_of_old = replace(lease(holder=KIM), token=7)
    known = granted([grant, end, again], [lease_of_old])
    assert sorted(known) == [5, 7]
    one = known[5]
    assert (one.at, one.ended, one.how, one.ended_by) == (NOON, end.at, "revoked", KIM.holder)
    assert (known[7].key, known[7].ended) == (F001.key, None)


def test_many_commits_are_each_asked_once_for_their_people(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand commits against two hundred claims once took minutes: each asked all others."""
    asked = []
    usual = Makers.is_bot

    def counted(self: Makers, one: CommitFacts) -> bool:
        asked.append(one.id)
        return usual(self, one)

    monkeypatch.setattr(Makers, "is_bot", counted)
    claims = [replace(held(), lease_id=f"kim-{n}", token=n) for n in range(1, 41)]
    others = tuple(replace(commit(30), id=f"{n:040x}") for n in range(1, 41))
    broken = found(commit(30), *claims, others=others)
    assert broken == NOW * 41 * 40
    assert len(asked) <= 3 * 41
