"""The rules of the files beside the leases: notes, notices of a loss, and the wait queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ledger_checker.commit import NamedOperation
from ledger_checker.endings import taken_from
from ledger_checker.form import (
    BadForm,
    LeaseRecord,
    fields_of,
    fold,
    own_pattern,
    person,
    person_file,
    record_name,
    resource_key,
)
from ledger_checker.paths import any_overlap
from ledger_checker.state import JudgedStep, about, scopes_meet
from ledger_checker.tree_reader import FileChange

KEPT = {"notes": 20, "notices": 50}  # beyond so many the oldest are dropped
MAX_FILES = 200  # of notices of one step, well below the most that it writes
_ITEMS = {"notes": "notes", "notices": "notices", "waiting": "tickets"}

Item = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ListingFile:
    """A file of notes, notices or tickets: its owner, and its items by id."""

    kind: str
    owner: str
    items: Mapping[str, Item]


def read_listing(path: str, data: bytes) -> ListingFile:
    """Parse a file. Raises BadForm, also if its name and its content disagree."""
    kind, _, name = path.partition("/")
    fields = fields_of(data)
    owner = fields.get("to" if kind == "notices" else "resource")
    listed = fields.get(_ITEMS[kind])
    if not isinstance(owner, str) or not isinstance(listed, list) or len(fields) != 2:
        raise BadForm(f"it is not a file of {kind}")
    if name != (person_file(owner) if kind == "notices" else record_name(owner)):
        raise BadForm("its name and its content disagree")
    items = {str(item["id"]): item for item in listed if isinstance(item, dict) and "id" in item}
    if len(items) != len(listed) or not items:
        raise BadForm(f"its {_ITEMS[kind]} have no distinct ids")
    return ListingFile(kind, owner, items)


def check_listings(
    step: JudgedStep,
    changes: Mapping[str, FileChange],
    known: dict[str, ListingFile],
) -> None:
    """Check the changed files beside the leases against the operations; update ``known``."""
    if step.declared is not None:
        _check_turns(step, known)
    notices: set[str] = set()
    for path, change in changes.items():
        old = known.pop(path, None)
        new = _read(step, path, change)
        if new is not None:
            known[path] = new
        if new is None and change.blob:
            continue
        found = new or old
        if found is None or step.declared is None or step.hidden:
            continue
        before, after = old.items if old else {}, new.items if new else {}
        _JUDGES[found.kind](step, found.owner, before, after)
        if found.kind == "notices":
            notices |= after.keys()
    _check_notices(step, notices, sum(path.startswith("notices") for path in changes))


def _read(step: JudgedStep, path: str, change: FileChange) -> ListingFile | None:
    if change.data is None:
        if change.problem:
            step.breaks("record", f"{path} {change.problem}")
        return None
    try:
        return read_listing(path, change.data)
    except BadForm as error:
        step.breaks("record", f"{path}: {error}")
        return None


def _changed(before: Mapping[str, Item], after: Mapping[str, Item]) -> Iterator[tuple[str, Item]]:
    return ((id, item) for id, item in after.items() if before.get(id) != item)


def _notes(
    step: JudgedStep, owner: str, before: Mapping[str, Item], after: Mapping[str, Item]
) -> None:
    for id, item in _changed(before, after):
        if not _by_an_operation(step, id, item.get("author")) or id in before:
            step.breaks("notes", f"a note on {owner} is not from an operation")
    key = resource_key(owner)
    if not any(op.kind == "Complete" and op.resource == key for op in step.operations):
        _check_oldest(step, "notes", owner, before, after)


def _notices(
    step: JudgedStep, owner: str, before: Mapping[str, Item], after: Mapping[str, Item]
) -> None:
    for id, item in _changed(before, after):
        if not _by_an_operation(step, id, item.get("by")) or id in before:
            step.breaks("notices", f"{owner} gets a notice of what no operation did")
    seen = {
        str(id)
        for op in step.operations
        if op.kind == "Acknowledge" and op.is_by(owner)
        for id in op.fields.get("notices") or ()
    }
    left = {id: item for id, item in before.items() if id not in seen}
    own = {id: item for id, item in left.items() if _is_own(item, owner)}
    others = {id: item for id, item in left.items() if id not in own}
    _check_oldest(step, "notices", owner, own, after)
    _check_oldest(step, "notices", owner, others, after)
    if others.keys() - after.keys() and any(_is_own(item, owner) for item in after.values()):
        step.breaks("notices", f"notices of others to {owner} are dropped for their own")


def _is_own(item: Item, owner: str) -> bool:
    return person(str(item.get("by"))) == person(owner)


def _by_an_operation(step: JudgedStep, id: str, who: object) -> bool:
    return any(
        op.holder == who and (id == op.id or id.startswith(f"{op.id}-")) for op in step.operations
    )


def _check_oldest(
    step: JudgedStep, kind: str, owner: str, before: Mapping[str, Item], after: Mapping[str, Item]
) -> None:
    """Only the oldest may be dropped, when there are too many."""
    gone = [id for id in before if id not in after]
    if not gone:
        return
    full = len(after) >= KEPT[kind]
    if not full or gone != list(before)[: len(gone)]:
        step.breaks(kind, f"{kind} of {owner} are gone without a reason")


def _tickets(
    step: JudgedStep, owner: str, before: Mapping[str, Item], after: Mapping[str, Item]
) -> None:
    key = resource_key(owner)
    taken, left, tidied, may_pass = set(), set(), False, 0
    for op in step.operations:
        about_it = key in {resource_key(str(x)) for x in op.fields.get("resources") or ()}
        ticket = (str(op.fields.get("ticket")), person(op.holder))
        if op.kind == "TakeTicket" and about_it:
            taken.add(ticket)
        elif op.kind == "LeaveTicket" and about_it:
            left.add(ticket)
        elif op.kind == "Claim" and (op.resource == key or _covers(op, owner)):
            passing = op.fields.get("passing")
            if not op.fields.get("ticket") and passing is None:
                continue
            left.add(ticket)
            may_pass += passing if isinstance(passing, int) else 0
        else:
            continue
        tidied = True
    for id, item in _changed(before, after):
        whose = person(str(item.get("holder")))
        stolen = id in before and person(str(before[id].get("holder"))) != whose
        if (id, whose) not in taken or stolen:
            step.breaks("tickets", f"a ticket for {owner} is not one that its holder took")
    for id, item in before.items():
        over = tidied  # expired tickets go with any change of the queue
        mine = (id, person(str(item.get("holder")))) in left | taken
        if id not in after and not (mine or (over and _ran_out(step, item))):
            may_pass -= 1
    if may_pass < 0:
        step.breaks("tickets", f"a ticket for {owner} is gone without a reason")


def _covers(op: NamedOperation, owner: str) -> bool:
    """Whether a claim is of paths that have a file in common with what is waited for."""
    own, theirs = own_pattern(str(op.fields["resource"])), own_pattern(owner)
    paths = [*([] if own is None else [own]), *(op.fields.get("paths") or ())]
    return theirs is not None and any_overlap(paths, [theirs])


def _check_turns(step: JudgedStep, known: Mapping[str, ListingFile]) -> None:
    """Nobody is granted what more have waited for, for longer, than the claim may pass over."""
    kinds = Counter(op.kind for op in step.operations)
    if step.hidden or kinds["Claim"] != 1 or kinds["TakeTicket"] or kinds["LeaveTicket"]:
        return  # the lines may have changed within the step
    (op,) = (op for op in step.operations if op.kind == "Claim")
    for old, new in step.changed.values():
        if new is None or new.operation != op.id:
            continue
        if old is not None and person(old.holder) == person(op.holder):
            continue  # one's own goes on, whoever waits
        waiting = sorted(_waiting_for(step, op, new, known))
        first = next(
            (n for n, (_, id) in enumerate(waiting) if id == op.fields.get("ticket")), None
        )
        others = {id for _, id in waiting[:first] if id != op.fields.get("ticket")}
        if len(others) > (op.fields.get("passing") or 0):
            step.breaks("turn", f"{about(new)} is granted while {len(others)} wait for longer")


def _waiting_for(
    step: JudgedStep, op: NamedOperation, new: LeaseRecord, known: Mapping[str, ListingFile]
) -> Iterator[tuple[float, str]]:
    """Since when, and by which ticket, somebody waits for what a claim was granted."""
    lines = [x for x in known.values() if x.kind == "waiting"]
    named = {id for x in lines if resource_key(x.owner) == new.key[0] for id in x.items}
    for line in lines:
        is_named = resource_key(line.owner) == new.key[0]
        if not is_named and not _covers(op, line.owner):
            continue
        divides = is_named and own_pattern(line.owner) is None  # scopes are parts of a task
        for id, item in line.items.items():
            ours = op.is_by(str(item.get("holder"))) and id != op.fields.get("ticket")
            ours = ours and item.get("session") in (None, op.session)
            meets = not divides or scopes_meet(fold(str(item.get("scope"))), new.key[1])
            if meets and not ours and not _ran_out(step, item) and (is_named or id not in named):
                yield datetime.fromisoformat(str(item.get("since"))).timestamp(), id


def _ran_out(step: JudgedStep, item: Item) -> bool:
    until = datetime.fromisoformat(str(item.get("until"))).timestamp() * 1_000
    return not step.at < until <= step.at + 86_460_000


def _check_notices(step: JudgedStep, notices: set[str], files: int) -> None:
    """Everybody who lost something to another gets a notice, unless there are too many."""
    lost: dict[str, list[tuple[set[str], LeaseRecord]]] = {}
    for old, new in step.changed.values():
        if old is None or (new is not None and new.lease_id == old.lease_id):
            continue
        ids = {f"{op.id}-{old.lease_id[:8]}" for op in taken_from(step, old)}
        if ids:
            lost.setdefault(person(old.holder), []).append((ids, old))
    if files > MAX_FILES:
        return
    for missed in lost.values():
        silent = [old for ids, old in missed if not ids & notices]
        if silent and len(missed) < KEPT["notices"]:
            step.breaks(
                "notices", f"{silent[0].holder} gets no notice of the end of {about(silent[0])}"
            )


_Judge = Callable[[JudgedStep, str, Mapping[str, Item], Mapping[str, Item]], None]
_JUDGES: Mapping[str, _Judge] = {"notes": _notes, "notices": _notices, "waiting": _tickets}
