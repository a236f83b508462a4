"""What every ledger store promises, told once for all of them.

A store takes part with a file that has a class derived from LedgerStoreContract (named Test…) and
a fixture ``place``, which gives one fresh remote without any ledger, and its clones:

    place.clock                    a ManualClock, which all stores of this place read
    place.store(n)                 the store of the n-th clone (1, 2, …): a new instance each time,
                                   which stands for a new process of that clone. What the clone
                                   keeps beside the ledger is shared by its instances
    place.force(layer, version)    moves the remote's ref of a layer to a version which the remote
                                   has seen, behind everyone's back; "" deletes the ref
    place.refuse_replacements()    from now on the remote refuses whatever does not append
                                   (git: receive.denyNonFastForwards)

Nothing else is asked of a store but the port.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import pytest
from kernel.rules.values import (
    F001,
    JO,
    KIM,
    TTL,
    claim,
    complete,
    extend,
    fresh,
    note,
    release,
    renew,
    revoke,
    set_policy,
)
from support.clock import ManualClock

from gitlease.kernel.ledger.ports import Cause, Change, LedgerStore, Prepared, Snapshot, Swapped
from gitlease.kernel.rules.errors import Rollback
from gitlease.kernel.rules.instant import MS
from gitlease.kernel.rules.lease import (
    DEFAULT_POLICY,
    Lease,
    Moment,
    Sighting,
    Standing,
    State,
    holder_has,
    standing,
)
from gitlease.kernel.rules.ledger import MAX_STEP, Fate, Ledger
from gitlease.kernel.rules.moves.operations import (
    Acknowledge,
    Barrier,
    Create,
    Grant,
    LeaveTicket,
    Operation,
    RunOut,
    TakeTicket,
    Unbind,
)
from gitlease.kernel.rules.moves.transitions import create
from gitlease.kernel.rules.moves.transitions import decide as decide_step
from gitlease.kernel.rules.resources import parse_resource

LAYER = "global"
RUN = replace(JO, session="run-1", host="laptop:4711")


class Place(Protocol):
    """One remote and its clones, as the module's docstring says."""

    @property
    def clock(self) -> ManualClock: ...

    def store(self, n: int) -> LedgerStore: ...

    def force(self, layer: str, version: str) -> None: ...

    def refuse_replacements(self) -> None: ...


# --- one step after another ----------------------------------------------------------------------


def ledger_at(head: Snapshot | None) -> Ledger:
    """The ledger of a head, which must have one."""
    assert head is not None
    assert head.ledger is not None
    return head.ledger


def decide(head: Snapshot, operations: Sequence[Operation], clock: ManualClock) -> Change:
    """The change that operations come to on a head now; where there is no ledger, on a new one."""
    made = Create(id=fresh(), actor=JO, ledger_id=fresh(), policy=DEFAULT_POLICY)
    ledger, moment = head.ledger or create(made), Moment(now=clock.now(), seen=head.seen)
    decided = decide_step(ledger, operations, moment)
    return Change(base=head, decided=decided, what="this test")


def prepare(place: Place, n: int, *operations: Operation, on: Snapshot | None = None) -> Prepared:
    """Operations prepared by the n-th clone, on what it knows (at first contact, on a fetch)."""
    store = place.store(n)
    head = on or store.known(LAYER) or store.fetch(LAYER)
    return store.prepare([decide(head, operations, place.clock)])


def swap(place: Place, n: int, *operations: Operation, on: Snapshot | None = None) -> Swapped:
    return place.store(n).swap(prepare(place, n, *operations, on=on))


def act(place: Place, n: int, *operations: Operation) -> Snapshot:
    """Carry operations out on the newest head; the head that they make."""
    swapped = swap(place, n, *operations, on=place.store(n).fetch(LAYER))
    assert swapped.fate is Fate.APPLIED
    return swapped.heads[LAYER]


def another_ledger(place: Place) -> Snapshot:
    """The head of a ledger with another id, on the layer ``other``."""
    store = place.store(9)
    change = decide(store.fetch("other"), [claim(KIM)], place.clock)
    return store.swap(store.prepare([change])).heads["other"]


def leases(head: Snapshot | None) -> list[Lease]:
    return ledger_at(head).every_lease()


def only(head: Snapshot | None) -> Lease:
    (found,) = leases(head)
    return found


def revision(head: Snapshot | None) -> int:
    return ledger_at(head).header.revision


def ended(kind: type[Unbind | RunOut], lease: Lease) -> Operation:
    """The run's own end of its lease."""
    grant = Grant(lease.resource, lease.scope, lease.session, lease.lease_id, lease.token)
    return kind(id=fresh(), actor=RUN, grants=(grant,))


def sighting(head: Snapshot | None, what: str = "F001") -> Sighting:
    """Since when the record of a resource has been seen in this clone."""
    (found,) = ledger_at(head).leases_of(parse_resource(what))
    seen = head.seen(found) if head else None
    assert seen is not None
    return seen


def kinds(store: LedgerStore, limit: int = 100) -> list[str]:
    return [event.kind for event in store.history(LAYER, limit)]


class LedgerStoreContract:
    """The suite: to be derived from, see above."""

    # --- the first contact ------------------------------------------------------------------------

    def test_a_remote_without_a_ledger_has_the_empty_version(self, place: Place) -> None:
        store = place.store(1)
        assert store.place
        assert all(isinstance(word, str) for word in store.warnings)
        assert (store.known(LAYER), store.history(LAYER, 10)) == (None, ())
        assert list(store.pending(LAYER)) == []
        assert store.peek([LAYER]) == {}
        head = store.fetch(LAYER)
        assert (head.layer, head.version, head.ledger) == (LAYER, "", None)
        assert place.store(1).known(LAYER) is None

    # --- the swap ---------------------------------------------------------------------------------

    def test_the_first_change_makes_the_ledger_and_others_read_what_was_decided(
        self, place: Place
    ) -> None:
        asked = claim(JO, scope="Parser", ttl=60, reason="rate limits", paths=("src/auth/**",))
        prepared = prepare(place, 1, asked)
        assert place.store(2).fetch(LAYER).ledger is None, "it is prepared, not swapped"
        swapped = place.store(1).swap(prepared)
        assert (swapped.fate, swapped.cause) == (Fate.APPLIED, Cause.NONE)
        read, decided = place.store(2).fetch(LAYER), prepared.changes[LAYER].ledger
        assert read.version == swapped.heads[LAYER].version
        assert ledger_at(read).header == decided.header
        assert leases(read) == leases(swapped.heads[LAYER]) == decided.every_lease()
        assert place.store(1).swap(prepared).fate is Fate.APPLIED
        assert revision(place.store(2).fetch(LAYER)) == 1, "swapped twice it is applied once"

    def test_the_second_creator_loses_and_sees_the_first(self, place: Place) -> None:
        nothing = place.store(2).fetch(LAYER)
        first = swap(place, 1, claim(JO)).heads[LAYER]
        swapped = swap(place, 2, claim(KIM), on=nothing)
        assert swapped.fate is Fate.LOST
        assert swapped.heads[LAYER].version == first.version
        assert only(swapped.heads[LAYER]).holder == JO.holder

    def test_a_swap_on_a_stale_base_is_lost_and_seen_by_nobody(self, place: Place) -> None:
        stale = act(place, 1, claim(JO))
        newer = act(place, 2, claim(KIM, "F002"))
        batch = claim(JO, "F003"), note(JO, "lost words")
        lost = swap(place, 1, *batch, on=stale)
        assert (lost.fate, lost.heads[LAYER].version) == (Fate.LOST, newer.version)
        for n in (1, 2, 3):
            head = place.store(n).fetch(LAYER)
            assert {str(x.resource) for x in leases(head)} == {"F001", "F002"}
            assert ledger_at(head).notes(F001) == ()
            assert kinds(place.store(n)) == ["claimed", "claimed"]
        assert swap(place, 1, *batch, on=lost.heads[LAYER]).fate is Fate.APPLIED

    def test_notes_notices_and_policy_are_kept_until_their_time(self, place: Place) -> None:
        act(place, 1, claim(JO), note(KIM, "tests\nred"), set_policy(KIM, admins=KIM.holder))
        act(place, 2, revoke(KIM, reason="on holiday"))
        ledger = ledger_at(place.store(3).fetch(LAYER))
        assert [n.text for n in ledger.notes(F001)] == ["tests\nred"]
        told = ledger.notices("JO@example.com")
        assert [(n.what, n.by, n.reason) for n in told] == [("revoked", KIM.holder, "on holiday")]
        assert ledger.header.policy.admins == (KIM.holder,)
        assert ledger.every_lease() == []
        heard = Acknowledge(id=fresh(), actor=JO, notices=tuple(n.id for n in told))
        act(place, 1, heard, complete(JO))
        head = place.store(2).fetch(LAYER)
        assert only(head).state is State.COMPLETED
        assert (ledger_at(head).notices(JO.holder), ledger_at(head).notes(F001)) == ((), ())

    # --- resources --------------------------------------------------------------------------------

    def test_records_are_found_by_resource_scope_and_paths(self, place: Place) -> None:
        scopes = claim(JO, scope="parser"), claim(KIM, scope="lexer")
        paths = claim(JO, "F002", paths=("src/",)), claim(JO, "src/Café.py")
        act(place, 1, claim(JO, "Deploy-Prod"), *paths, *scopes)
        ledger = ledger_at(place.store(2).fetch(LAYER))
        for word in ("deploy-PROD", "SRC/cafe\u0301.py", "f002"):
            assert len(ledger.leases_of(parse_resource(word))) == 1
        assert ledger.leases_of(parse_resource("F0011")) == []
        found = {(x.scope, x.holder) for x in ledger.leases_of(F001)}
        assert found == {("lexer", KIM.holder), ("parser", JO.holder)}
        assert {str(x.resource) for x in ledger.leases_with_paths()} == {"F002", "src/Café.py"}

    # --- several layers ---------------------------------------------------------------------------

    def test_several_layers_move_together(self, place: Place) -> None:
        store = place.store(1)
        heads = [store.fetch(layer) for layer in (LAYER, "other")]
        assert all(head.ledger is None for head in heads), "each is independent of the other"
        changes = [decide(head, [claim(JO, head.layer.upper())], place.clock) for head in heads]
        swapped = store.swap(store.prepare(changes))
        assert swapped.fate is Fate.APPLIED
        assert str(only(swapped.heads[LAYER]).resource) == "GLOBAL"
        assert str(only(swapped.heads["other"]).resource) == "OTHER"
        assert str(only(place.store(2).fetch("other")).resource) == "OTHER"

    def test_when_one_layer_is_stale_none_moves(self, place: Place) -> None:
        store = place.store(1)
        heads = [store.fetch(layer) for layer in (LAYER, "other")]
        changes = [decide(head, [claim(JO)], place.clock) for head in heads]
        act(place, 2, claim(KIM))
        swapped = store.swap(store.prepare(changes))
        assert swapped.fate is Fate.LOST
        assert only(swapped.heads[LAYER]).holder == KIM.holder
        assert swapped.heads["other"].ledger is None
        assert place.store(2).fetch("other").ledger is None

    # --- what is known ----------------------------------------------------------------------------

    def test_a_new_process_knows_what_the_clone_knew_and_since_when(self, place: Place) -> None:
        made = act(place, 1, claim(JO))
        act(place, 2, claim(KIM, "F002"))
        known = place.store(1).known(LAYER)
        assert known is not None
        assert (known.version, leases(known)) == (made.version, leases(made)), "it asks nobody"
        assert place.store(3).known(LAYER) is None
        place.clock.advance(30)
        assert place.store(1).fetch(LAYER).received == place.clock.now()
        place.clock.advance(30)
        known = place.store(1).known(LAYER)
        assert known is not None
        assert known.received.elapsed_at_most(place.clock.now()) == 30 * MS

    # --- looking without fetching -----------------------------------------------------------------

    def test_a_peek_tells_the_version_and_changes_nothing(self, place: Place) -> None:
        made = act(place, 1, claim(JO))
        assert place.store(2).peek(["other", LAYER]) == {LAYER: made.version}
        assert place.store(2).known(LAYER) is None
        seen = place.store(2).fetch(LAYER)
        place.clock.advance(30)
        newer = act(place, 1, claim(JO, "F002"))
        assert place.store(2).peek([LAYER]) == {LAYER: newer.version}
        known = place.store(2).known(LAYER)
        assert known is not None
        assert (known.version, known.received) == (seen.version, seen.received)
        place.force(LAYER, made.version)
        assert place.store(1).peek([LAYER]) == {LAYER: made.version}, "it does not judge"

    def test_what_a_peek_has_just_found_is_not_asked_for_again(self, place: Place) -> None:
        made, _ = act(place, 1, claim(JO)), place.store(2).fetch(LAYER)
        place.clock.advance(30)
        again = place.store(2).fetch(LAYER, made.version)
        known = place.store(2).known(LAYER)
        assert known is not None
        assert again.version == known.version == made.version
        assert again.received == known.received == place.clock.now()
        newer = act(place, 1, claim(JO, "F002"))
        assert place.store(2).fetch(LAYER, newer.version).version == newer.version

    def test_the_mark_changes_with_what_the_clone_knows_whoever_learnt_it(
        self, place: Place
    ) -> None:
        waiting = place.store(1)
        marks = [waiting.mark(LAYER)]
        act(place, 1, claim(JO))
        marks.append(waiting.mark(LAYER))
        act(place, 2, claim(KIM, "F002"))
        assert waiting.mark(LAYER) == marks[-1], "another clone's knowledge is not this one's"
        place.store(1).fetch(LAYER)
        marks.append(waiting.mark(LAYER))
        assert len(set(marks)) == 3

    # --- who waits --------------------------------------------------------------------------------

    def test_the_line_is_kept_in_its_order(self, place: Place) -> None:
        until, what = place.clock.wall_ms + 600_000, (F001, parse_resource("src/auth/"))
        for number, who in enumerate((JO, KIM)):
            place.clock.advance(1)
            ticket = f"t{number}"
            more: Any = {"resources": what, "ticket": ticket, "until": until}
            act(place, number + 1, TakeTicket(id=fresh(), actor=who, **more))
        ledger = ledger_at(place.store(3).fetch(LAYER))
        for resource in what:
            found = [(t.id, t.holder, t.until) for t in ledger.tickets(resource)]
            assert found == [("t0", JO.holder, until), ("t1", KIM.holder, until)]
            assert ledger.tickets_damage(resource) is None
        assert leases(place.store(3).known(LAYER)) == []
        act(place, 1, claim(JO, ticket="t0", passing=0))
        assert [t.id for t in ledger_at(place.store(2).fetch(LAYER)).tickets(F001)] == ["t1"]
        act(place, 2, LeaveTicket(id=fresh(), actor=KIM, resources=what, ticket="t1"))
        assert ledger_at(place.store(3).fetch(LAYER)).tickets(F001) == ()

    def test_tickets_do_not_make_history_grow(self, place: Place) -> None:
        act(place, 1, claim(JO))
        until = place.clock.wall_ms + 600_000
        for number in range(5):
            ticket = TakeTicket(
                id=fresh(), actor=KIM, resources=(F001,), ticket=f"t{number}", until=until
            )
            act(place, 2, ticket)
        assert kinds(place.store(2)) == ["waiting", "claimed"]

    # --- sightings --------------------------------------------------------------------------------

    def test_the_first_sighting_is_not_a_change(self, place: Place) -> None:
        act(place, 1, claim(JO))
        place.clock.advance(100)
        first = sighting(place.store(2).fetch(LAYER))
        assert first == Sighting(at=place.clock.now(), changed=False)
        place.clock.advance(100)
        assert sighting(place.store(2).fetch(LAYER)) == first, "which the same record keeps"
        assert sighting(act(place, 2, claim(KIM, "F003"))) == first
        act(place, 3, claim(KIM, "F002"))
        head = place.store(2).fetch(LAYER)
        assert sighting(head) == sighting(place.store(2).known(LAYER)) == first
        assert sighting(head, "F002") == Sighting(at=place.clock.now(), changed=False)

    def test_a_changed_record_is_seen_to_change(self, place: Place) -> None:
        """Each scope for itself, and as it gains paths, too."""
        act(place, 1, claim(JO, scope="a"), claim(JO, scope="b"), claim(JO, "F002"))
        before = place.store(2).fetch(LAYER)
        place.clock.advance(100)
        act(place, 1, renew(JO, scope="a"))
        act(place, 1, claim(JO, "F002", paths=("src/",)))
        place.clock.advance(5)
        head, changed = place.store(2).fetch(LAYER), Sighting(at=place.clock.now(), changed=True)
        seen = {x.scope: head.seen(x) for x in ledger_at(head).leases_of(F001)}
        assert seen == {"a": changed, "b": Sighting(at=before.received, changed=False)}
        place.clock.advance(5)
        assert sighting(place.store(2).known(LAYER), "F002") == changed
        act(place, 1, renew(JO, "F002"))
        lost = swap(place, 2, claim(KIM, "F003"), on=head)  # which reads it back
        again = Sighting(at=place.clock.now(), changed=True)
        assert sighting(lost.heads[LAYER], "F002") == again

    def test_a_renewal_is_a_change_also_when_it_was_let_go_of(self, place: Place) -> None:
        act(place, 1, claim(RUN))
        place.store(2).fetch(LAYER)
        place.clock.advance(5)
        act(place, 1, ended(Unbind, only(act(place, 1, renew(RUN)))))
        seen = sighting(place.store(2).fetch(LAYER))
        assert seen == Sighting(at=place.clock.now(), changed=True)

    @pytest.mark.parametrize("lapsed", [False, True])
    @pytest.mark.parametrize("kind", [Unbind, RunOut])
    def test_to_let_go_of_a_lease_makes_nobody_wait_anew(
        self, place: Place, kind: type[Unbind | RunOut], lapsed: bool
    ) -> None:
        act(place, 1, claim(RUN, edge=True, ttl=TTL))
        first = sighting(place.store(2).fetch(LAYER))
        own = sighting(place.store(1).known(LAYER))
        place.clock.advance(2 * TTL if lapsed else 5)
        assert sighting(act(place, 1, ended(kind, only(place.store(1).known(LAYER))))) == own
        head = place.store(2).fetch(LAYER)
        assert only(head).session is None
        assert sighting(head) == first
        place.clock.advance(2 * TTL)
        moment = Moment(now=place.clock.now(), seen=head.seen)
        assert standing(only(head), DEFAULT_POLICY, moment) is Standing.LAPSED
        act(place, 1, claim(JO))
        seen = sighting(place.store(2).fetch(LAYER))
        assert seen == Sighting(at=place.clock.now(), changed=True)

    def test_a_reboot_starts_sightings_again(self, place: Place) -> None:
        act(place, 1, claim(JO))
        place.store(2).fetch(LAYER)
        act(place, 1, renew(JO))
        assert sighting(place.store(2).fetch(LAYER)).changed
        place.clock.advance(100)
        place.clock.reboot()
        seen = sighting(place.store(2).fetch(LAYER))
        assert seen == Sighting(at=place.clock.now(), changed=False)

    @pytest.mark.parametrize("reboots", [False, True])
    def test_a_clock_set_back_makes_a_contender_wait_again(
        self, place: Place, reboots: bool
    ) -> None:
        """A reboot after it does not make the lease eternal."""

        def standing_now() -> Standing:
            head = place.store(2).fetch(LAYER)
            moment = Moment(now=place.clock.now(), seen=head.seen)
            return standing(only(head), ledger_at(head).header.policy, moment)

        act(place, 1, set_policy(JO, rule="observed"), claim(JO, ttl=TTL))
        place.store(2).fetch(LAYER)
        place.clock.advance(TTL)
        place.store(2).fetch(LAYER)
        place.clock.skew(-3_600)
        place.store(2).fetch(LAYER)
        if reboots:
            place.clock.advance(10)
            place.clock.reboot()
        else:
            place.clock.advance(TTL)
        assert standing_now() is not Standing.LAPSED
        place.clock.advance(2 * TTL)
        assert standing_now() is Standing.LAPSED

    # --- since when a holder may believe ----------------------------------------------------------

    def test_ones_own_change_counts_from_its_decision(self, place: Place) -> None:
        for wish, what in ((claim(KIM, "F000"), "F000"), (claim(JO), "F001")):  # at first contact
            prepared = prepare(place, 1, wish)
            place.clock.advance(20)
            head = place.store(1).swap(prepared).heads[LAYER]
            assert sighting(head, what).at == prepared.changes[LAYER].at
            assert sighting(place.store(1).fetch(LAYER), what).at == prepared.changes[LAYER].at

    def test_ones_own_change_counts_from_its_decision_when_it_is_read_back(
        self, place: Place
    ) -> None:
        act(place, 1, claim(JO))
        renewed = prepare(place, 1, renew(JO))
        place.clock.advance(20)
        place.store(1).swap(renewed)
        place.clock.advance(20)
        again = place.store(1).swap(renewed)  # refused now, and found by reading back
        assert again.fate is Fate.APPLIED
        assert sighting(again.heads[LAYER]).at == renewed.changes[LAYER].at

    def test_a_clock_set_back_gives_the_holder_no_more_time(self, place: Place) -> None:
        act(place, 1, claim(KIM, "F000"))
        act(place, 1, claim(JO, ttl=TTL))
        place.clock.advance(TTL - 10)
        place.clock.skew(-3_600)
        place.store(1).fetch(LAYER)
        place.clock.advance(20)
        head = place.store(1).known(LAYER)
        assert head is not None
        (mine,) = ledger_at(head).leases_of(F001)
        assert not holder_has(mine, Moment(now=place.clock.now(), seen=head.seen))

    # --- rollbacks and other ledgers --------------------------------------------------------------

    def test_a_rollback_is_reported_and_not_believed(self, place: Place) -> None:
        older = act(place, 1, claim(JO))
        newer = act(place, 1, release(JO))
        assert place.store(1).confirm(LAYER).version == newer.version
        place.force(LAYER, older.version)
        for ask in (place.store(1).fetch, place.store(1).confirm):
            with pytest.raises(Rollback):
                ask(LAYER)
            known = place.store(1).known(LAYER)
            assert known is not None
            assert known.version == newer.version
        assert place.store(2).fetch(LAYER).version == older.version, "it has seen nothing newer"
        place.force(LAYER, newer.version)
        assert place.store(1).fetch(LAYER).version == newer.version, "the way forward"
        place.force(LAYER, older.version)
        assert place.store(1).confirm(LAYER, rolled_back=True).version == older.version
        assert place.store(1).fetch(LAYER).version == older.version, "as a person said"

    def test_another_history_of_the_same_revision_is_a_rollback(self, place: Place) -> None:
        base = act(place, 1, claim(JO))
        one = act(place, 1, claim(JO, "F002"))
        place.force(LAYER, base.version)
        other = act(place, 2, claim(KIM, "F003"))
        assert revision(other) == revision(one)
        with pytest.raises(Rollback):
            place.store(1).fetch(LAYER)

    def test_a_change_that_lands_on_another_past_than_its_clone_knows_is_a_rollback(
        self, place: Place
    ) -> None:
        base = act(place, 1, claim(JO))
        prepared = prepare(place, 1, claim(JO, "F002"), on=base)
        seen = act(place, 1, claim(JO, "F003"))  # by another command of this clone
        place.force(LAYER, base.version)
        with pytest.raises(Rollback):
            place.store(1).swap(prepared)
        known = place.store(1).known(LAYER)
        assert known is not None
        assert known.version == seen.version
        place.force(LAYER, seen.version)  # what was there is brought back, and tells
        (pending,) = place.store(1).pending(LAYER)
        assert place.store(1).settle(pending, place.store(1).fetch(LAYER)) is Fate.LOST

    def test_a_rollback_that_was_overtaken_is_a_rollback(self, place: Place) -> None:
        older = act(place, 1, claim(JO))
        act(place, 1, claim(JO, "F002"))
        place.force(LAYER, older.version)
        for _ in range(3):  # more than the ring remembers
            act(place, 2, *(note(KIM, "on") for _ in range(MAX_STEP)))
        with pytest.raises(Rollback):
            place.store(1).fetch(LAYER)

    @pytest.mark.parametrize("overtaken_by", ["decisions", "renewals"])
    def test_a_lost_renewal_is_a_rollback(self, place: Place, overtaken_by: str) -> None:
        act(place, 2, claim(KIM, "F002"))
        older = act(place, 1, claim(JO))
        place.store(2).fetch(LAYER)
        act(place, 1, renew(JO))
        place.force(LAYER, older.version)
        for _ in range(2 if overtaken_by != "decisions" else 0):
            act(place, 2, renew(KIM, "F002"))
        for _ in range(2 if overtaken_by != "renewals" else 0):
            act(place, 2, note(KIM, "on"))
        with pytest.raises(Rollback):
            place.store(1).fetch(LAYER)

    def test_the_lost_renewal_of_another_is_a_rollback(self, place: Place) -> None:
        act(place, 2, claim(KIM, "F002"))
        older = act(place, 2, renew(KIM, "F002"))
        act(place, 2, renew(KIM, "F002"))
        place.store(1).fetch(LAYER)
        place.force(LAYER, older.version)
        place.store(3).fetch(LAYER)
        for _ in range(3):
            act(place, 3, note(JO, "on"))
        with pytest.raises(Rollback):
            place.store(1).fetch(LAYER)

    def test_what_goes_on_from_what_was_seen_is_no_rollback(self, place: Place) -> None:
        act(place, 2, claim(KIM, "F002"))
        act(place, 1, claim(JO))
        for _ in range(3):
            act(place, 1, renew(JO))
            act(place, 2, renew(KIM, "F002"))
        for _ in range(3):
            act(place, 2, *(note(KIM, "on") for _ in range(MAX_STEP)))
        act(place, 2, renew(KIM, "F002"))
        assert place.store(1).fetch(LAYER).ledger is not None
        act(place, 1, renew(JO))
        act(place, 2, renew(KIM, "F002"))
        assert place.store(1).fetch(LAYER).ledger is not None

    def test_a_swap_onto_a_rolled_back_ref_is_never_called_lost(self, place: Place) -> None:
        older = act(place, 1, claim(JO))
        act(place, 1, note(JO, "newer"))
        prepared = prepare(place, 1, renew(JO))
        place.force(LAYER, older.version)
        with pytest.raises(Rollback):
            place.store(1).swap(prepared)
        assert len(list(place.store(1).pending(LAYER))) == 1

    def test_a_ledger_that_is_gone_is_reported(self, place: Place) -> None:
        known = act(place, 1, claim(JO))
        place.force(LAYER, "")
        with pytest.raises(Rollback):
            place.store(1).fetch(LAYER)
        still = place.store(1).known(LAYER)
        assert still is not None
        assert still.version == known.version
        assert place.store(1).confirm(LAYER).ledger is None
        assert revision(act(place, 1, claim(JO, "F002"))) == 1, "it is made anew"

    def test_another_ledger_is_reported_until_it_is_confirmed(self, place: Place) -> None:
        known = act(place, 1, claim(JO))
        other = another_ledger(place)
        place.force(LAYER, other.version)
        with pytest.raises(Rollback):
            swap(place, 1, renew(JO), on=known)
        assert place.store(2).fetch(LAYER).version == other.version
        for _ in range(2):
            with pytest.raises(Rollback):
                place.store(1).fetch(LAYER)
        assert place.store(1).confirm(LAYER).version == other.version
        assert place.store(1).fetch(LAYER).version == other.version
        assert only(place.store(1).known(LAYER)).holder == KIM.holder

    # --- history ----------------------------------------------------------------------------------

    def test_history_is_newest_first_and_says_who_did_what_when_and_why(self, place: Place) -> None:
        asked = claim(JO, scope="parser", reason="rate limits")
        act(place, 1, claim(JO, "A"), asked)
        act(place, 1, extend(JO, 2 * TTL))
        act(place, 1, note(JO, "half done"))
        act(place, 1, release(JO))
        place.store(2).fetch(LAYER)
        for n in (1, 2):
            found = ["released", "noted", "extended", "claimed", "claimed"]
            assert kinds(place.store(n)) == found
            assert kinds(place.store(n), 2) == found[:2]
        *_, event, first = place.store(2).history(LAYER, 10)
        assert (event.operation, first.resource) == (asked.id, "A")
        assert (event.at, event.by) == (place.clock.now().wall_ms, JO.holder)
        assert (event.resource, event.scope, event.token) == ("F001", "parser", 2)
        assert (event.holder, event.session, event.reason) == (JO.holder, None, "rate limits")

    def test_a_store_that_asks_again_is_told_what_a_new_one_is(self, place: Place) -> None:
        asking = place.store(1)
        steps = [claim(JO), renew(JO), renew(JO), note(JO, "half"), renew(JO), release(JO)]
        for number, operation in enumerate(steps):
            act(place, number % 2 + 1, operation)
            asking.fetch(LAYER)
            for limit in (1, 2, 100):
                told = asking.history(LAYER, limit)
                assert told == place.store(1).history(LAYER, limit)
                assert len(told) == min(limit, len(kinds(place.store(1))))
        assert asking.history(LAYER, 100, older=True) == told
        assert [x.kind for x in told] == ["released", "renewed", "noted", "renewed", "claimed"]

    def test_a_renewal_replaces_the_one_before_it(self, place: Place) -> None:
        """Of whichever holder, up to the last decision; who saw it takes it for no rollback."""
        last = act(place, 1, claim(JO), claim(KIM, "F002"))
        for _ in range(3):
            place.clock.advance(10)
            last = act(place, 1, renew(JO))
        seen = place.store(3).fetch(LAYER)
        last = act(place, 2, renew(KIM, "F002"))
        assert seen.version != last.version == place.store(3).fetch(LAYER).version
        assert kinds(place.store(2)) == ["renewed", "claimed", "claimed"]
        assert [x.renewals for x in leases(last)] == [3, 1]
        assert revision(last) == 5
        for wish in (note(JO, "half"), renew(JO), renew(JO)):
            act(place, 1, wish)
        assert kinds(place.store(1)) == ["renewed", "noted", "renewed", "claimed", "claimed"]

    def test_a_policy_may_have_every_renewal_kept(self, place: Place) -> None:
        act(place, 1, claim(JO), set_policy(JO, history="append"))
        act(place, 1, renew(JO))
        act(place, 1, renew(JO))
        assert kinds(place.store(1)) == ["renewed", "renewed", "policy", "claimed"]

    def test_a_server_may_refuse_that_history_is_replaced(self, place: Place) -> None:
        act(place, 1, claim(JO))
        act(place, 1, renew(JO))
        place.refuse_replacements()
        store, prepared = place.store(1), prepare(place, 1, renew(JO))
        assert prepared.replacing == {LAYER}
        refused = store.swap(prepared)
        assert (refused.fate, refused.cause) == (Fate.UNDECIDED, Cause.REFUSED)
        appended = store.prepare([*prepared.changes.values()], append=True)
        assert appended.replacing == frozenset()
        assert appended.changes[LAYER].operations == prepared.changes[LAYER].operations
        assert store.swap(appended).fate is Fate.APPLIED
        assert kinds(place.store(1)) == ["renewed", "renewed", "claimed"]
        assert list(place.store(1).pending(LAYER)) == []
        again = prepare(place, 1, renew(JO))
        assert again.replacing == frozenset(), "the clone remembers it"
        assert place.store(1).swap(again).fate is Fate.APPLIED

    # --- what is pending --------------------------------------------------------------------------

    def test_an_applied_or_a_lost_change_is_not_pending(self, place: Place) -> None:
        stale = act(place, 1, claim(JO))
        assert list(place.store(1).pending(LAYER)) == []
        act(place, 2, claim(KIM, "F002"))
        assert swap(place, 1, renew(JO), on=stale).fate is Fate.LOST
        assert list(place.store(1).pending(LAYER)) == []

    def test_a_pending_change_is_kept_and_undecided_as_long_as_it_may_land(
        self, place: Place
    ) -> None:
        base, asked = act(place, 1, claim(JO)), renew(JO)
        prepared = prepare(place, 1, asked)
        place.store(1).keep_pending(prepared)
        (pending,) = place.store(1).pending(LAYER)
        assert (pending.operations, pending.what) == ((asked.id,), "this test")
        assert (pending.layer, pending.expected) == (LAYER, base.version)
        assert pending.base_revision == revision(base)
        assert pending.version == prepared.versions[LAYER]
        assert list(place.store(2).pending(LAYER)) == []
        assert place.store(1).settle(pending, place.store(1).fetch(LAYER)) is Fate.UNDECIDED
        for _ in range(2):
            place.store(1).keep_pending(prepare(place, 1, renew(JO)))
        assert len(list(place.store(1).pending(LAYER))) == 3

    @pytest.mark.parametrize("lands", [True, False], ids=["lands", "does not land"])
    def test_a_pending_change_is_settled_by_what_came_after(
        self, place: Place, lands: bool
    ) -> None:
        act(place, 1, claim(JO))
        prepared = prepare(place, 1, renew(JO))
        if lands:
            place.store(1).swap(prepared)
        place.store(1).keep_pending(prepared)
        act(place, 2, claim(KIM, "F002"))
        (pending,) = place.store(1).pending(LAYER)
        fate = place.store(1).settle(pending, place.store(1).fetch(LAYER))
        assert fate is (Fate.APPLIED if lands else Fate.LOST)
        assert list(place.store(1).pending(LAYER)) == []

    @pytest.mark.parametrize("lands", [True, False], ids=["lands", "does not land"])
    @pytest.mark.parametrize("renews", [True, False], ids=["renewal", "decision"])
    def test_what_the_ring_has_forgotten_is_in_history(
        self, place: Place, lands: bool, renews: bool
    ) -> None:
        act(place, 1, claim(JO))
        prepared = prepare(place, 1, renew(JO) if renews else claim(JO, "F002"))
        if lands:
            place.store(1).swap(prepared)
        place.store(1).keep_pending(prepared)
        for _ in range(3):
            act(place, 2, *(Barrier(id=fresh(), actor=KIM) for _ in range(MAX_STEP)))
        (pending,) = place.store(1).pending(LAYER)
        lost = Fate.UNKNOWN if renews else Fate.LOST  # a renewal may have been replaced
        fate = place.store(1).settle(pending, place.store(1).fetch(LAYER))
        assert fate is (Fate.APPLIED if lands else lost)
        assert list(place.store(1).pending(LAYER)) == []

    def test_the_first_step_of_all_is_in_history(self, place: Place) -> None:
        prepared = prepare(place, 1, claim(JO))
        place.store(1).keep_pending(prepared)
        for _ in range(3):
            act(place, 2, *(Barrier(id=fresh(), actor=KIM) for _ in range(MAX_STEP)))
        (pending,) = place.store(1).pending(LAYER)
        assert place.store(1).settle(pending, place.store(1).fetch(LAYER)) is Fate.LOST

    # --- notices ----------------------------------------------------------------------------------

    def test_notices_are_shown_once_in_a_clone(self, place: Place) -> None:
        assert place.store(1).shown(LAYER, ["a", "b"]) & {"a", "b"} == frozenset()
        assert place.store(1).shown(LAYER, ["b", "c"]) & {"b", "c"} == {"b"}
        assert place.store(1).shown(LAYER, ["a", "b", "c"]) >= {"a", "b", "c"}
        assert place.store(2).shown(LAYER, ["a"]) & {"a"} == frozenset()

    # --- a whole story ----------------------------------------------------------------------------
