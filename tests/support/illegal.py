"""Changes of a ledger that a server must refuse: each by its own way, with the rule that it breaks.

kim pushes them to a server where jo and kim have leases, and jo is the admin.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from gitlease.kernel.rules.lease import Actor, Lease
from gitlease.kernel.rules.ledger import MAX_STEP, Note, Notice
from gitlease.kernel.rules.moves.operations import (
    Acknowledge,
    AddNote,
    Barrier,
    Bind,
    Claim,
    Complete,
    Grant,
    Pick,
    Release,
    Renew,
    Revoke,
    RunOut,
    SetPolicy,
    TakeTicket,
    Unbind,
)
from gitlease.kernel.rules.resources import parse_resource
from gitlease.kernel.store.records import lease_file, write_header, write_lease
from support.forge import JO, KIM, MINUTE, REF, Draft, Forge
from support.ledgers import Entry, write_object
from support.repos import git

HOUR = 3_600
_ids = itertools.count(1)


def fresh() -> str:
    return f"{next(_ids):020x}"


def claim(who: Actor = KIM, name: str = "F100", **more: Any) -> Claim:
    return Claim(id=fresh(), actor=who, resource=parse_resource(name), lease_id=fresh(), **more)


def renew(who: Actor = KIM, name: str = "F002") -> Renew:
    return Renew(id=fresh(), actor=who, resource=parse_resource(name))


def barrier(who: Actor = KIM) -> Barrier:
    return Barrier(id=fresh(), actor=who)


def release(who: Actor, name: str) -> Release:
    return Release(id=fresh(), actor=who, resource=parse_resource(name))


def revoke(who: Actor, name: str) -> Revoke:
    return Revoke(id=fresh(), actor=who, resource=parse_resource(name), reason="mine now")


def note(who: Actor, name: str) -> AddNote:
    return AddNote(id=fresh(), actor=who, resource=parse_resource(name), text="psst")


def policy(who: Actor, **changes: str) -> SetPolicy:
    return SetPolicy(id=fresh(), actor=who, changes=tuple(changes.items()))


def make_scene(server: Path, folder: Path) -> None:
    """Give a server a ledger: jo and kim with leases, some run out, notes, notices and a ticket.

    It must not have its hook yet, since part of this lies in the past.
    """
    forge = Forge(folder, server, actor=JO)

    def step(*operations: Any, at: float = 0, by: Actor = JO, first: bool = False) -> None:
        draft = (
            forge.first(*operations)
            if first
            else forge.honest(*operations, at=forge.later(at), actor=by)
        )
        done = forge.push(str(server), forge.write(draft))
        assert done.returncode == 0, done.stderr

    step(barrier(JO), first=True)
    step(policy(JO, skew="10m", admins=JO.holder), at=-3 * HOUR)
    step(claim(JO, "F004"), claim(JO, "F005", edge=True), claim(JO, "F008"), at=-2 * HOUR)
    step(claim(KIM, "F008"), at=-HOUR, by=KIM)
    step(claim(JO, "F009", edge=True), at=-9 * 24 * HOUR)
    step(claim(JO, "F003"), at=-16 * MINUTE)
    step(
        claim(JO, "F001", ttl=8 * HOUR, edge=True, reason="limits"),
        claim(JO, "src/", ttl=8 * HOUR),
        Complete(id=fresh(), actor=JO, resource=parse_resource("F006"), lease_id=fresh()),
        note(JO, "F001"),
    )
    step(
        claim(KIM, "F002", ttl=8 * HOUR),
        claim(KIM, "lib/kim", ttl=8 * HOUR),
        claim(KIM, "F007", ttl=8 * HOUR),
        by=KIM,
    )
    step(
        TakeTicket(
            id=fresh(),
            actor=JO,
            resources=(parse_resource("F002"), parse_resource("guide/part")),
            ticket="jo-waits",
            until=forge.later(8 * HOUR).wall_ms,
        )
    )
    step(note(KIM, "F002"), by=KIM)
    step(renew(KIM, "F007"), by=KIM)  # the tip is a renewal, on a decision


@dataclass(frozen=True)
class Bad:
    """What is pushed: the commit of a draft, or whatever has an id, to a ref. ``""`` deletes."""

    rule: str
    new: str
    ref: str = REF


Make = Callable[[Forge], Bad]
ILLEGAL: dict[str, Make] = {}


def illegal(rule: str) -> Callable[[Callable[[Forge], Draft]], Callable[[Forge], Draft]]:
    """Enter a draft among the illegal changes, under its function's name."""

    def enter(make: Callable[[Forge], Draft]) -> Callable[[Forge], Draft]:
        ILLEGAL[make.__name__] = lambda forge: Bad(rule, forge.write(make(forge)))
        return make

    return enter


def other(rule: str) -> Callable[[Callable[[Forge], Any]], Callable[[Forge], Any]]:
    """The same for what is no plain draft: a commit's id, or an id and a ref."""

    def enter(make: Callable[[Forge], Any]) -> Callable[[Forge], Any]:
        def made(forge: Forge) -> Bad:
            found = make(forge)
            return Bad(rule, found) if isinstance(found, str) else Bad(rule, *found)

        ILLEGAL[make.__name__] = made
        return make

    return enter


# --- whose lease it is --------------------------------------------------------------------------


@illegal("operations")
def two_leases_in_conflict_by_a_search(f: Forge) -> Draft:
    wanted = claim(KIM, "src/api/*.py")
    draft = f.honest(wanted, unseen=["src/"])
    return draft.naming(Pick(id=wanted.id, actor=KIM, claims=(wanted,)))


@illegal("usage")
def takeover_of_what_is_assigned_without_a_reason(f: Forge) -> Draft:
    draft = f.honest(claim(KIM, "F005", takeover=True, reason="they are on leave"))
    asked = cast(Claim, draft.record.operations[0])
    silent = draft.naming(replace(asked, reason=None))
    return silent.lease("F005", reason=None).told(reason=None)


@illegal("operations")
def theft_that_a_long_batch_hides(f: Forge) -> Draft:
    names = [f"X{number}" for number in range(MAX_STEP)]
    batch = [claim(KIM, name) for name in names]
    draft = f.honest(*batch)
    stolen = f.honest(claim(KIM, "F001"), unseen=["F001"]).record.operations
    return draft.naming(*draft.record.operations, *stolen)


@illegal("nothing")
def bind_what_another_holds(f: Forge) -> Draft:
    session = replace(JO, session="run-1")
    op = Bind(id=fresh(), actor=session, resources=(parse_resource("F001"),))
    return f.honest(op).told(by=KIM.holder).of(replace(KIM, session="run-1"))


@illegal("not-holder")
def unbind_what_another_run_bound(f: Forge) -> Draft:
    run, what = replace(KIM, session="run-1"), parse_resource("F002")
    bound = f.write(f.honest(Bind(id=fresh(), actor=run, resources=(what,))))
    lease = f.ledger(bound).leases_of(what)[0]
    grant = Grant(lease.resource, lease.scope, lease.session, lease.lease_id, lease.token)
    draft = f.honest(Unbind(id=fresh(), actor=run, grants=(grant,)), base=bound)
    return draft.of(replace(KIM, session="run-2"))


@illegal("nothing")
def run_out_of_what_another_holds(f: Forge) -> Draft:
    old = f.lease("F001")
    grant = Grant(old.resource, old.scope, old.session, old.lease_id, old.token)
    op = RunOut(id=fresh(), actor=JO, grants=(grant,))
    return f.honest(op).told(by=KIM.holder).of(KIM)


@illegal("lost")
def renew_what_ran_out(f: Forge) -> Draft:
    lease = replace(f.lease("F008"), expires_at=f.later(HOUR).wall_ms)
    draft = f.honest(renew(KIM, "F008"), instead=[lease])
    return draft.lease("F008", expires_at=draft.at.wall_ms + 900_000)


# --- tokens and the header ----------------------------------------------------------------------


@illegal("record")
def token_lowered(f: Forge) -> Draft:
    low = f.ledger().header.sequence - 1
    return f.honest(claim()).header(sequence=low).lease("F100", token=low).told(token=low)


@illegal("invalid")
def operation_applied_again(f: Forge) -> Draft:
    known = f.ledger().header.ring[-1].operation
    return f.honest(barrier()).naming(Barrier(id=known, actor=KIM)).told(operation=known)


@illegal("header")
def ring_forgotten(f: Forge) -> Draft:
    draft = f.honest(barrier())
    return draft.header(ring=draft.ledger.header.ring[-1:])


# --- the policy and the admins ------------------------------------------------------------------


@illegal("record")
def ttl_beyond_the_policy(f: Forge) -> Draft:
    draft = f.honest(claim())
    at = draft.at.wall_ms
    return draft.lease("F100", ttl=100 * HOUR, expires_at=at + 100 * HOUR * 1_000)


# --- records ------------------------------------------------------------------------------------


@illegal("record")
def lease_stretched_beyond_its_ttl(f: Forge) -> Draft:
    draft = f.honest(claim())
    return draft.lease("F100", expires_at=draft.at.wall_ms + HOUR * 1_000)


@illegal("record")
def record_under_a_wrong_name(f: Forge) -> Draft:
    draft = f.honest(claim())
    path = draft.file("F100")
    wrong = path.replace("f100", "f999")
    return replace(draft, files={path: None, wrong: write_lease(_of(draft, "F100"))})


@illegal("unexplained")
def record_in_a_wrong_folder(f: Forge) -> Draft:
    draft = f.honest(claim())
    path = draft.file("F100")
    top, _, name = path.split("/")
    fan = "00" if path.split("/")[1] != "00" else "01"
    data = write_lease(_of(draft, "F100"))
    return replace(draft, files={path: None, f"{top}/{fan}/{name}": data})


@illegal("unexplained")
def two_records_of_one_resource(f: Forge) -> Draft:
    draft = f.honest(claim(KIM, "F002", paths=("docs/",)))
    before = f.lease("F002")
    return replace(draft, files={lease_file(before): write_lease(before)})


def _of(draft: Draft, name: str) -> Lease:
    resource = parse_resource(name)
    news = (new for _, new in draft.ledger.changes.leases.values())
    return next(x for x in news if x is not None and x.resource == resource)


# --- bytes --------------------------------------------------------------------------------------


def _as(draft: Draft, change: Callable[[bytes], bytes]) -> Draft:
    data = change(write_lease(_of(draft, "F100")))
    return replace(draft, files={draft.file("F100"): data})


@illegal("header")
def header_oversize(f: Forge) -> Draft:
    draft = f.honest(barrier())
    return replace(draft, files={"ledger.yaml": b"#" + b"x" * 200_000})


@illegal("record")
def yaml_bomb(f: Forge) -> Draft:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    names = "abcdefghi"
    lines += [f"{y}: &{y} [{', '.join(['*' + x] * 9)}]" for x, y in itertools.pairwise(names)]
    return _as(f.honest(claim()), lambda _: "\n".join(lines).encode() + b"\n")


def _blob(f: Forge, draft: Draft, path: str) -> str:
    return git(f.path, "rev-parse", f"{f.write(draft)}:{path}")


# --- the tree -----------------------------------------------------------------------------------


def _entry(f: Forge, draft: Draft, mode: str) -> Draft:
    path = draft.file("F100")
    return replace(draft, files={path: Entry(mode, _blob(f, draft, path))})


@illegal("mode")
def record_that_is_a_submodule(f: Forge) -> Draft:
    draft = f.honest(claim())
    return replace(draft, files={draft.file("F100"): Entry("160000", f.tip())})


@other("unexplained")
def folder_that_is_empty(f: Forge) -> str:
    draft = f.honest(barrier())
    empty = f.raw([])
    root = [x for x in f.root_of(draft) if x[1] != b"waiting"]
    return f.by_hand(draft, f.raw([*root, ("40000", b"waiting", f.raw([("40000", b"00", empty)]))]))


@other("tree")
def folder_with_an_entry_twice(f: Forge) -> str:
    draft = f.honest(barrier())
    root = f.root_of(draft)
    return f.by_hand(draft, f.raw([root[0], *root]))


@other("tree")
def folder_out_of_order(f: Forge) -> str:
    draft = f.honest(barrier())
    return f.by_hand(draft, f.raw(list(reversed(f.root_of(draft)))))


# --- history ------------------------------------------------------------------------------------


@illegal("merge")
def merge_commit(f: Forge) -> Draft:
    draft = f.honest(barrier())
    return replace(draft, parents=(*draft.parents, f.parents(f.tip())[0]))


@other("commit")
def signature_beyond_measure(f: Forge) -> str:
    made = f.repo[f.write(f.honest(barrier()))].read_raw()
    head, _, message = made.partition(b"\n\n")
    signed = head + b"\ngpgsig x" + b"\n x" * 10_000 + b"\n\n" + message
    return write_object(f.path, signed, "commit")


@other("held")
def several_commits_with_an_illegal_one_in_the_middle(f: Forge) -> str:
    first = f.write(f.honest(claim()))
    middle = f.write(f.honest(claim(KIM, "F001"), base=first, unseen=["F001"]))
    return f.write(f.honest(barrier(), base=middle))


@other("delete")
def deletion(f: Forge) -> str:
    return ""


@other("rewind")
def rewind(f: Forge) -> str:
    return f.parents(f.parents(f.tip())[0])[0]


@illegal("history")
def history_rewritten(f: Forge) -> Draft:
    older = f.parents(f.parents(f.tip())[0])[0]
    return replace(f.honest(barrier()), parents=(older,))


@other("commit")
def blob_at_the_ref(f: Forge) -> str:
    return write_object(f.path, b"hello\n")


@other("commit")
def tag_at_the_ref(f: Forge) -> str:
    made = f.write(f.honest(barrier()))
    text = f"object {made}\ntype commit\ntag x\ntagger K <k@e.com> 1700000000 +0000\n\nx\n"
    return write_object(f.path, text.encode(), "tag")


FOREIGN = {
    "ref_below_a_ledger": "refs/gitlease/team/x",
    "ref_in_other_letters": "refs/gitlease/Global",
    "ledgers_in_other_letters": "refs/GitLease/global",
    "ref_of_the_layer_that_never_leaves_a_clone": "refs/gitlease/local",
    "ref_in_a_namespace": "refs/namespaces/x/refs/gitlease/global",
}
for _name, _ref in FOREIGN.items():
    ILLEGAL[_name] = lambda f, ref=_ref: Bad("foreign-ref", f.tip(), ref)  # type: ignore[misc]


# --- a new ledger -------------------------------------------------------------------------------


@other("header")
def new_ledger_with_a_past(f: Forge) -> Sequence[str]:
    return f.write(f.first(barrier()).header(revision=7)), "refs/gitlease/new"


@other("header")
def new_ledger_with_a_policy_of_its_own(f: Forge) -> Sequence[str]:
    draft = f.first(barrier())
    own = replace(draft.ledger.header.policy, admins=(JO.holder,), skew=0)
    return f.write(draft.header(policy=own)), "refs/gitlease/new"


@other("header")
def new_ledger_with_a_policy_that_is_none(f: Forge) -> Sequence[str]:
    draft = f.first(barrier())
    own = replace(draft.ledger.header.policy, ttl_min=9 * HOUR)
    data = write_header(replace(draft.ledger.header, policy=own))
    return f.write(replace(draft, files={"ledger.yaml": data})), "refs/gitlease/new"


# --- notes, notices, tickets --------------------------------------------------------------------


@illegal("notes")
def note_in_anothers_name(f: Forge) -> Draft:
    draft = f.honest(note(KIM, "F001"))
    (key, (resource, notes)), *_ = draft.ledger.changes.notes.items()
    forged = (*notes[:-1], replace(notes[-1], author=JO.holder))
    return draft.changes(notes={key: (resource, forged)})


@illegal("unexplained")
def note_without_a_word(f: Forge) -> Draft:
    resource = parse_resource("F777")
    forged = Note("x", resource, KIM.holder, f.now.wall_ms, "psst")
    return f.honest(barrier()).changes(notes={"f777": (resource, (forged,))})


@illegal("nothing")
def notices_of_another_dropped(f: Forge) -> Draft:
    before = f.ledger().notices(JO.holder)
    assert before
    op = Acknowledge(id=fresh(), actor=JO, notices=tuple(n.id for n in before))
    return f.honest(op).of(KIM)


@illegal("unexplained")
def notice_to_somebody_who_lost_nothing(f: Forge) -> Draft:
    forged = Notice(
        id="x",
        to=JO.holder,
        session=None,
        what="revoked",
        resource="F001",
        scope="*",
        by=KIM.holder,
        at=f.now.wall_ms,
        reason="go away",
    )
    before = f.ledger().notices(JO.holder)
    return f.honest(barrier()).changes(notices={JO.holder: (JO.holder, (*before, forged))})


@illegal("policy")
def ticket_of_another_taken_for_ones_own(f: Forge) -> Draft:
    op = TakeTicket(
        id=fresh(),
        actor=KIM,
        resources=(parse_resource("F002"),),
        ticket="kim-waits",
        until=f.later(HOUR).wall_ms,
    )
    draft = f.honest(op)
    resource, line = draft.ledger.changes.tickets["f002"]
    (mine,) = (t for t in line if t.id == op.ticket)
    stolen = draft.changes(tickets={"f002": (resource, (replace(mine, id="jo-waits"),))})
    return stolen.naming(replace(op, ticket="jo-waits"))


@illegal("held")
def claim_that_passes_over_who_waits_for_a_part_of_it(f: Forge) -> Draft:
    op = claim(KIM, "guide/", passing=1)
    return f.honest(op).naming(replace(op, passing=None)).changes(tickets={})


# --- time and the message -----------------------------------------------------------------------


@illegal("commit")
def commit_of_another_time_than_its_change(f: Forge) -> Draft:
    draft = f.honest(renew())
    return replace(draft, at=f.later(-60))


@illegal("commit")
def message_that_tells_more(f: Forge) -> Draft:
    draft = f.honest(claim())
    more = draft.events[0]._replace(operation="x", kind="revoked", resource="F001")
    return replace(draft, events=(*draft.events, more))


@illegal("nothing")
def step_that_does_nothing(f: Forge) -> Draft:
    draft = f.honest(barrier())
    return draft.naming(release(KIM, "F099"))


# --- steps that one line makes of an honest one ---

PLAIN: dict[str, dict[str, Callable[[Forge], Draft]]] = {
    "not-holder": {
        "renew_what_another_holds": lambda f: (
            f.honest(renew(JO, "F001")).told(by=KIM.holder).of(KIM)
        ),
    },
    "identity": {
        "renew_in_anothers_name": lambda f: replace(f.honest(renew(JO, "F001")), author=JO.holder),
        "renew_in_anothers_name_with_ones_own_commit": lambda f: f.honest(renew(JO, "F001")),
    },
    "held": {
        "claim_what_another_holds": lambda f: f.honest(
            claim(KIM, "F001", takeover=True, reason="mine"), unseen=["F001"]
        ),
        "two_leases_in_conflict": lambda f: f.honest(claim(KIM, "src/api/*.py"), unseen=["src/"]),
    },
    "clock": {
        "early_takeover_by_a_clock_ahead": lambda f: f.honest(claim(KIM, "F003"), at=f.later(HOUR)),
        "renewal_from_the_future": lambda f: f.honest(renew(), at=f.later(20 * MINUTE)),
        "renewal_from_the_past": lambda f: f.honest(renew(), at=f.later(-20 * MINUTE)),
    },
    "header": {
        "token_counted_without_a_grant": lambda f: f.honest(barrier()).header(
            sequence=f.ledger().header.sequence + 1
        ),
        "revision_kept": lambda f: f.honest(barrier()).header(revision=f.ledger().header.revision),
        "ledger_replaced": lambda f: f.honest(barrier()).header(ledger_id="another"),
        "policy_edit_without_a_word": lambda f: f.honest(barrier()).header(
            policy=replace(f.ledger().header.policy, skew=0)
        ),
        "ledger_without_a_header": lambda f: replace(
            f.honest(barrier()), files={"ledger.yaml": None}
        ),
    },
    "operations": {
        "operation_with_an_endless_name": lambda f: f.honest(Barrier(id="x" * 100, actor=KIM)),
    },
    "policy": {
        "policy_edit_by_a_non_admin": lambda f: (
            f.honest(policy(JO, ttl_max="1h")).told(by=KIM.holder).of(KIM)
        ),
        "revoke_by_a_non_admin": lambda f: f.honest(revoke(JO, "F001")).told(by=KIM.holder).of(KIM),
    },
    "unexplained": {
        "anothers_record_gone_without_a_word": lambda f: f.honest(barrier()).remove(
            f.lease("F001")
        ),
        "record_of_an_older_operation": lambda f: f.honest(barrier()).put(
            replace(f.lease("F002"), reason="other")
        ),
        "file_at_the_root": lambda f: replace(f.honest(barrier()), files={"README": b"read me\n"}),
        "file_among_the_records": lambda f: replace(
            f.honest(barrier()), files={"leases/00/README": b"read me\n"}
        ),
        "renewal_that_forgets_the_one_that_it_replaces": lambda f: f.honest(
            renew(), base=f.parents(f.tip())[0]
        ),
    },
    "record": {
        "spelling_changed": lambda f: f.honest(renew()).lease(
            "F002", resource=parse_resource("f002")
        ),
        "record_oversize": lambda f: _as(
            f.honest(claim()), lambda data: data + b"# " + b"x" * 70_000 + b"\n"
        ),
        "record_with_a_further_field": lambda f: _as(
            f.honest(claim()), lambda data: data + b"cargo: much\n"
        ),
        "record_that_is_no_text": lambda f: _as(f.honest(claim()), lambda _: b"\xff\xfe\x00"),
    },
    "mode": {
        "record_that_is_a_link": lambda f: _entry(f, f.honest(claim()), "120000"),
    },
    "history": {
        "decision_in_the_place_of_a_renewal": lambda f: f.honest(claim(), replaces=True),
    },
    "notices": {
        "takeover_that_keeps_it_to_itself": lambda f: f.honest(claim(KIM, "F004")).changes(
            notices={}
        ),
    },
    "commit": {
        "message_without_a_word": lambda f: replace(f.honest(release(KIM, "F002")), events=()),
        "message_that_tells_of_another_thing": lambda f: f.honest(claim()).told(
            reason="jo said so"
        ),
        "decision_that_calls_itself_a_renewal": lambda f: replace(f.honest(claim()), renewal=True),
    },
}
for _rule, _makes in PLAIN.items():
    for _name, _make in _makes.items():
        _make.__name__ = _name
        illegal(_rule)(_make)
