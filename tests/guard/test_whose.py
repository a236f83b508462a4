"""Superseded commits and makers by value: grants, scopes, and how far history is read."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from kernel.rules.values import JO, KIM, lease

from gitlease.guard.reports import PushedCommit
from gitlease.guard.whose import (
    GrantHistory,
    LaterGrants,
    Makers,
    find_superseded,
    key_of,
    overridden_in,
    override_notes,
)
from gitlease.kernel.rules.edge import Addresses
from gitlease.kernel.rules.moves.operations import Event
from gitlease.kernel.rules.work import Named

pytestmark = pytest.mark.default

NAMED = Named("F001", "f001", 5)
LEE = "lee@example.com"


def event(kind: str, token: int | None, by: str = JO.holder, **more: str) -> Event:
    return Event(kind, f"op {token}", 0, by, more.pop("resource", "F001"), token=token, **more)


def history(*events: Event) -> tuple[GrantHistory, list[int]]:
    """A history, its oldest event first, and how many events were asked for each time."""
    asked: list[int] = []

    def read(limit: int) -> Sequence[Event]:
        asked.append(limit)
        return events[::-1][:limit]

    return GrantHistory(read, limits=(2, 4, 100)), asked


def tokens(found: LaterGrants) -> list[int]:
    return [grant.token for grant in found.grants]


def test_later_grants_are_those_of_the_same_resource_and_overlapping_scopes() -> None:
    found, _ = history(
        event("claimed", 4),
        event("claimed", 5),
        event("claimed", 6, resource="f001", scope="parser"),
        event("claimed", 7, resource="F002"),
        event("taken_over", 8, KIM.holder),
        event("renewed", 9),
    )
    after = found.after(NAMED)
    assert tokens(after) == [6, 8]
    assert after.grants[-1].holder == KIM.holder
    assert tokens(found.after(Named("F001", "f001", 5, scope="lexer"))) == [8]
    assert tokens(found.after(Named("F001", "f001", 8))) == []


def test_history_is_read_no_further_back_than_the_grant() -> None:
    found, asked = history(*(event("claimed", n, resource=f"F{n:03}") for n in range(1, 50)))
    assert tokens(found.after(Named("F049", "f049", 49))) == []
    assert asked == [2]
    assert tokens(found.after(Named("F040", "f040", 40))) == []
    assert asked == [2, 4, 100]
    found.after(Named("F040", "f040", 40))
    assert asked == [2, 4, 100]


def test_a_record_of_the_grant_needs_no_history() -> None:
    found, asked = history()
    record = lease(holder=JO)
    named = Named("F001", "f001", record.token)
    assert found.after(named, [record]) == LaterGrants()
    assert asked == []


def test_the_event_of_a_renewal_that_displaced_others_hides_no_later_grant() -> None:
    """It has the token of the grant before it, and comes after grants with higher ones."""
    found, _ = history(
        event("claimed", 5),
        event("taken_over", 6, KIM.holder),
        event("taken_over", 3, resource="F009"),
    )
    assert tokens(found.after(NAMED)) == [6]


def test_a_revocation_of_the_grant_itself_counts_and_of_another_does_not() -> None:
    found, _ = history(event("claimed", 5), event("revoked", 5, KIM.holder))
    assert found.after(NAMED).revoked_by == KIM.holder
    found, _ = history(event("claimed", 4), event("revoked", 4, KIM.holder), event("claimed", 5))
    assert found.after(NAMED) == LaterGrants()


def commit(number: int, *named: Named, by: str = JO.holder, parent: int = 0) -> PushedCommit:
    parents = (str(parent) * 40,) if parent else ()
    return PushedCommit(str(number) * 40, (), named, emails=(by,), author=by, parents=parents)


def superseded(*commits: PushedCommit, bots: tuple[str, ...] = ()) -> list[str]:
    """The first digits of superseded commits, where token 6 was granted to lee after token 5."""
    found, _ = history(event("claimed", 5), event("claimed", 6, LEE))
    by = find_superseded(
        commits,
        after=found.after,
        vouches=lambda _, named: named.scope == "mine",
        makers=Makers.of(Addresses(), bots),
    )
    return [one.commit[0] for one in by]


NEWEST = Named("F001", "f001", 6)


def test_only_a_descendant_by_the_newest_holder_vouches() -> None:
    old = commit(1, NAMED)
    assert superseded(old) == ["1"]
    assert superseded(commit(1)) == [], "it names nothing"
    assert superseded(old, commit(2, NEWEST, by=LEE)) == ["1"], "it is beside it"
    between = commit(3, parent=1)
    assert superseded(old, between, commit(2, NEWEST, by=LEE, parent=3)) == []
    assert superseded(old, commit(2, NEWEST, parent=1)) == ["1"], "lee did not make it"
    assert superseded(old, commit(2, NEWEST, parent=1), bots=(JO.holder,)) == []
    assert superseded(commit(1, NAMED, NEWEST, by=LEE)) == []
    assert superseded(commit(1, Named("F001", "f001", 5, scope="mine"))) == []


def test_a_later_lease_of_the_same_person_supersedes_as_well() -> None:
    assert superseded(commit(1, NAMED, by=LEE)) == ["1"], "token 6 is lee's, and 5 was too"


def test_an_override_names_commits_by_whole_ids() -> None:
    found, _ = history(event("claimed", 5), event("claimed", 6, LEE))
    by = find_superseded(
        [commit(n, NAMED) for n in range(1, 10)],
        after=found.after,
        vouches=lambda _, named: False,
        makers=Makers(),
    )
    (texts,) = override_notes([*by, *by], "lee agreed").values()
    (note,) = texts
    pushed = overridden_in(event("noted", None, detail=note))
    assert list(pushed) == [one.commit for one in by]
    assert not overridden_in(event("claimed", 7, detail=note))
    again, _ = history(
        event("claimed", 5), event("claimed", 6, LEE), event("noted", None, detail=note)
    )
    assert again.after(NAMED).overridden == frozenset(pushed)


def test_what_is_no_resource_still_has_a_key() -> None:
    assert key_of("F001") == "f001"
    assert key_of("a{b,c}") == "a{b,c}"
