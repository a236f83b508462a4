"""The rules of the header and of the commit: counters, ring, digest, policy, and message."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any

from ledger_checker.commit import OUTCOMES, REFUSALS, NamedOperation
from ledger_checker.form import EPOCH_SIZE, LedgerHeader, LedgerPolicy, person
from ledger_checker.restorations import begin, check_wait
from ledger_checker.state import MS, JudgedStep, about

RING_SIZE = 128
_MAY_RENEW = {"Renew", "Claim", "Acknowledge", "TakeTicket", "LeaveTicket"}
_NEEDS_ADMIN = {"Revoke": "revokes a lease", "DropRecord": "drops a record"}


def check_header(step: JudgedStep) -> None:
    """Check the header of a step against the one before it."""
    before, header = step.before, step.header
    if before is None:
        _check_first(step, header)
    else:
        if header.ledger_id != before.ledger_id:
            step.breaks("ledger-id", f"the ledger {before.ledger_id} becomes {header.ledger_id}")
        if header.format < min(before.format, 2) or 4 <= before.format > header.format:
            step.breaks("format", f"the format falls from {before.format} to {header.format}")
        _check_revision(step, before, header)
        if header.token < before.token:
            message = f"the last token falls from {before.token} to {header.token}"
            step.breaks("token", message)
    _check_ring(step)
    _check_digest(step)
    _check_tokens(step)
    check_wait(step)
    if step.declared is not None:
        _check_move(step)
        _check_outcomes(step)
        _check_policy(step)


def _check_move(step: JudgedStep) -> None:
    """A ledger that was moved goes on at the place that it named, and nowhere else."""
    was, kinds = step.before and step.before.moved_to, [op.kind for op in step.operations]
    if was is not None and kinds != ["OpenMoved"]:
        step.breaks("moved", "it was moved away, and something else is done")
    to = None
    for op in step.operations:
        if op.kind == "OpenMoved" and op.fields.get("at") != was:
            step.breaks("moved", "it is opened at a place to which it was not moved")
        if op.kind == "MoveLedger":
            to = op.fields.get("to")
            admins = step.policies[0].admins
            if admins and not step.policies[0].is_admin(op.holder):
                step.breaks("admin", f"{op.holder} moves the ledger, and is not an admin")
    if step.header.moved_to != to:
        step.breaks("moved", "its header names another place than its operations")


def _check_first(step: JudgedStep, header: LedgerHeader) -> None:
    if step.declared is not None and step.declared.ledger_id != header.ledger_id:
        step.breaks("ledger-id", "the first step does not say which ledger it makes")


def _check_revision(step: JudgedStep, before: LedgerHeader, header: LedgerHeader) -> None:
    gap = header.revision - before.revision - 1
    if gap == 0:
        return
    message = f"the revision goes from {before.revision} to {header.revision}"
    if gap < 0 or not step.commit.renewal:
        step.breaks("revision", message)
    elif header.policy.appends:
        step.breaks("revision", f"{message}, and the policy keeps every renewal")


def _check_ring(step: JudgedStep) -> None:
    old = step.before.ring if step.before is not None else ()
    since = step.before.revision if step.before is not None else step.header.revision - 1
    ring = step.header.ring
    added = tuple(entry for entry in ring if entry[1] > since)
    expected = list(old + added)
    while len(expected) > RING_SIZE:
        oldest = expected[0][1]
        expected = [entry for entry in expected if entry[1] != oldest]
    revisions = [entry[1] for entry in added]
    forgotten = step.hidden and revisions and revisions[0] > since + 1 and ring == added
    if tuple(expected) != ring and not forgotten:
        step.breaks("ring", "the ring is not the one before with this step added")
        return
    if revisions != sorted(revisions) or any(x > step.header.revision for x in revisions):
        step.breaks("ring", "the ring has revisions out of order")
    if step.declared is None:
        return
    mine = [entry[0] for entry in added if entry[1] == step.header.revision]
    if mine != [op.id for op in step.declared.operations]:
        step.breaks("ring", "the ring does not have the operations that the commit names")


def _check_digest(step: JudgedStep) -> None:
    header, before = step.header, step.before
    old = before.digest if before is not None else None
    if header.format < 2:
        return
    if step.commit.renewal:
        if header.digest != old:
            step.breaks("digest", "a renewal changes the digest of the decisions")
        return
    own = (entry for entry in header.ring if entry[1] == header.revision)
    lines = [f"{id} {revision} {outcome}" for id, revision, outcome in own]
    chained = sha256("\n".join([old or header.ledger_id, *lines]).encode()).hexdigest()
    if header.digest != chained:
        step.breaks("digest", "the digest does not follow from the one before it")


def _check_outcomes(step: JudgedStep) -> None:
    for op in step.declared.operations if step.declared is not None else ():
        outcome = step.outcomes.get(op.id)
        if outcome is not None and outcome not in OUTCOMES[op.kind] | REFUSALS:
            step.breaks("outcome", f"{op.kind} ends as {ascii(outcome)[:40]}")
    done = list(step.operations)
    if not done:
        step.breaks("nothing", "none of its operations succeeded")
    decision = next((op for op in done if _is_decision(step, op)), None)
    if step.commit.renewal and decision is not None:
        step.breaks("renewal", f"it calls itself a renewal, but has an operation {decision.kind}")


def _is_decision(step: JudgedStep, op: NamedOperation) -> bool:
    return op.kind not in _MAY_RENEW or (op.kind == "Claim" and step.outcomes[op.id] != "renewed")


def _check_tokens(step: JudgedStep) -> None:
    # There are as many new tokens as grants, and only a Restore begins an epoch.
    header, before = step.header, step.before
    epoch, sequence = (0, 0) if before is None else (before.epoch, before.sequence)
    may_be = {(epoch, sequence, sequence)}
    for op in step.operations:
        may_be = {after for count in may_be for after in _count(step, op, *count)}
    ends = [(least, most) for e, least, most in sorted(may_be) if e == header.epoch]
    if not ends:
        step.breaks("epoch", f"the epoch goes from {epoch} to {header.epoch}")
    elif step.declared and not any(least <= header.sequence <= most for least, most in ends):
        least, most = ends[0]
        wanted = str(least) if least == most else f"{least} to {most}"
        step.breaks("token", f"the sequence comes to {header.sequence}, its grants to {wanted}")


def _count(
    step: JudgedStep, op: NamedOperation, epoch: int, least: int, most: int
) -> list[tuple[int, int, int]]:
    """The possible epochs after an operation, with the least and most of the sequence.

    A Restore begins the next epoch if the other past had given tokens beyond this sequence.
    """
    outcome, above = step.outcomes[op.id], op.fields.get("above")
    if op.kind == "Claim":
        return [(epoch, least + (outcome == "claimed"), most + (outcome != "renewed"))]
    if op.kind == "Complete":
        return [(epoch, least, most + 1)]
    if op.kind == "Restore" and op.fields.get("waits"):
        begun = begin(step, epoch * EPOCH_SIZE + most, above)
        return [(begun // EPOCH_SIZE, begun % EPOCH_SIZE, begun % EPOCH_SIZE)]
    if op.kind != "Restore" or not isinstance(above, int):
        return [(epoch, least, most)]
    given, found = above - epoch * EPOCH_SIZE, []
    if given <= most:
        found.append((epoch, max(least, given), most))
    if least < given < 2 * EPOCH_SIZE:
        found.append((above // EPOCH_SIZE + 1, 0, 0))
    return found


def _check_policy(step: JudgedStep) -> None:
    asked: set[str] = set()
    for op in step.operations:
        if op.kind in _NEEDS_ADMIN and not any(p.is_admin(op.holder) for p in step.policies):
            step.breaks("admin", f"{op.holder} {_NEEDS_ADMIN[op.kind]}, and is not an admin")
        if op.kind == "Revoke" and not str(op.fields.get("reason") or "").strip():
            step.breaks("admin", "a lease is revoked without a reason")
        if op.kind == "SetPolicy":
            keys = (str(change[0]) for change in op.fields.get("changes") or ())
            asked |= {key.removeprefix("edges.") for key in keys}
            _check_setter(step, op)
    if step.before is None:
        return
    old, new = step.before.policy.texts, step.header.policy.texts
    # A newer gitlease may add fields that an older one did not know.
    changed = {key for key in old if old[key] != new.get(key)}
    if odd := sorted(changed - asked):
        step.breaks("policy", f"the policy's {odd[0]} changes, and nobody asked for it")


def _check_setter(step: JudgedStep, op: NamedOperation) -> None:
    before, after, holder = step.policies[0], step.policies[-1], op.holder
    lists = [str(text) for key, text in op.fields.get("changes") or () if key == "admins"]
    gives_up = bool(lists) and bool(before.admins) and not after.admins and not step.policy_unsure
    if gives_up and person(holder) not in map(person, lists[-1].replace(",", " ").split()[1:]):
        step.breaks("admin", f"{holder} leaves the ledger without admins, without confirming it")
    if before.admins and not before.is_admin(holder):
        step.breaks("admin", f"{holder} changes the policy, and is not an admin")
    elif _people(before) != _people(after) and after.admins and not after.is_admin(holder):
        step.breaks("admin", f"{holder} makes admins, and is not among them")


def _people(policy: LedgerPolicy) -> set[str]:
    return {person(admin) for admin in policy.admins}


MAX_EVENTS = 200  # that a message has of one step
_TRIMMED = "".join(map(chr, range(33))) + ".,:;<>\"\\'"  # git strips these from an address
_CLAIMED = ("claimed", "taken_over", "renewed")


def check_message(step: JudgedStep) -> None:
    """Check a commit and its message against the operations that it names."""
    commit, declared = step.commit, step.declared
    if len(commit.parents) > 1:
        step.breaks("merge", "a step of a ledger has one parent, and this is a merge")
    if declared is None:
        return
    first = declared.operations[0].holder
    several = any(person(op.holder) != person(first) for op in declared.operations)
    if several != (declared.gateway is not None):
        message = "operations need a gateway if they are of several people, and only then"
        step.breaks("identity", message)
    writer = declared.gateway or first
    if commit.email.strip(_TRIMMED) != writer.replace("<", "").replace(">", "").strip(_TRIMMED):
        step.breaks("identity", f"{writer} asked for it, but {commit.email} is its author")
    if not commit.plain:
        step.breaks("commit", "the commit has headers that a step does not have")
    if commit.renewal is None:
        step.breaks("commit", "its message does not say whether it is only a renewal")
    if (commit.authored, commit.committed) != (declared.at // MS, declared.at // MS):
        step.breaks("commit", "the time of the commit is not that of its step")
    events = list(_events(step))
    if len(events) < MAX_EVENTS:
        _check_events(step, events)


def _events(step: JudgedStep) -> Iterator[Mapping[str, Any]]:
    known = {op.id: op.holder for op in step.operations}
    for line in step.commit.events:
        try:
            event = json.loads(line)
            named, by, at = str(event["operation"]), event["by"], event["at"]
        except (ValueError, KeyError, TypeError, RecursionError):
            step.breaks("commit", "its message has a malformed event")
            continue
        if known.get(named) != by or at != step.at:
            step.breaks(
                "commit", f"its message has an event of an operation {ascii(named)[:40]} of {by}"
            )
        yield event


def _check_events(step: JudgedStep, events: list[Mapping[str, Any]]) -> None:
    """Every grant that changes has an event, with the reason of its record."""
    tokens = {event.get("token") for event in events}
    made = {(event.get("token"), event.get("reason")) for event in events}
    kinds = {event.get("token"): event.get("kind") for event in events}
    for old, new in step.changed.values():
        lease = new or old
        if lease is None or step.hidden or (new is None and lease.completed):
            continue
        if lease.token not in tokens:
            step.breaks("commit", f"its message has no event of {about(lease)}")
            continue
        claimed = new is not None and kinds[new.token] in _CLAIMED
        if new is not None and claimed and (new.token, new.reason) not in made:
            message = f"its message gives another reason for {about(new)} than its record"
            step.breaks("commit", message)
