"""Governance and housekeeping: revoke, notes, policy, notices, barriers, damaged records.

Where the policy names a host of issues, whoever decides a step spells issue numbers as it does,
and the table takes no other spelling: no two clients can hold one issue under two names (S1).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gitlease.core.errors import ADMINS, Invalid, NotFound, PolicyRefused, UsageError, hint
from gitlease.core.frozen import non_defaults, replace
from gitlease.core.instant import format_duration
from gitlease.core.lease import Actor, Moment, State, same_person
from gitlease.core.ledger import EPOCH_SIZE, NEWEST_FORMAT, NOTICES_KEPT, Ledger
from gitlease.core.moves.claiming import give_notice, outcome, refuse_unexpected, relations
from gitlease.core.moves.holding import noted
from gitlease.core.moves.operations import (
    Acknowledge,
    AddNote,
    Barrier,
    DropRecord,
    Event,
    Grant,
    Operation,
    Outcome,
    Restore,
    Retirement,
    Revoke,
    SetPolicy,
)
from gitlease.core.policy import (
    NO_ADMINS,
    Issues,
    Policy,
    admin_words,
    change_policy,
    issue_resource,
    reads_as_issue,
)
from gitlease.core.resources.pattern import fold
from gitlease.core.resources.resource import Resource


def revoke(ledger: Ledger, op: Revoke, moment: Moment) -> tuple[Ledger, Outcome]:
    """End leases of a resource, whoever holds them, and leave word for their holders."""
    _need_admin(ledger, op.actor, "revoke a lease")
    if not op.reason.strip():
        raise UsageError("a revocation needs a reason", resource=op.resource.text)
    now = moment.now.wall_ms
    held = [
        (x, how)
        for x, how in relations(ledger, op.resource, op.actor, moment)
        if x.state is State.ACTIVE and (op.scope is None or fold(x.scope) == fold(op.scope))
    ]
    refuse_unexpected(op, held, ledger.header.policy, moment)
    found = [x for x, _ in held]
    state = ledger
    for lease in found:
        state = state.remove(lease)
        if not lease.same_holder(op.actor):
            state = give_notice(state, lease, op.id, "revoked", op.actor.holder, now, op.reason)
    ended = [replace(x, state=State.REVOKED) for x in found]
    done = outcome(op, "revoked", ended, moment, reason=op.reason)
    return state, replace(done, displaced=tuple(found))


def add_note(ledger: Ledger, op: AddNote, moment: Moment) -> tuple[Ledger, Outcome]:
    """Leave a note for the next holder: anyone may."""
    now = moment.now.wall_ms
    state, noting = noted(ledger, op, op.resource, now, op.text)
    return state, Outcome(operation=op.id, status="noted", events=(noting,))


def set_policy(ledger: Ledger, op: SetPolicy, moment: Moment) -> tuple[Ledger, Outcome]:
    """Change the policy: anyone until there are admins, who must include whoever sets them."""
    before = ledger.header.policy
    if before.admins:
        _need_admin(ledger, op.actor, "change its policy")
    after = change_policy(before, dict(op.changes))
    if before.admins and not after.admins:
        _need_confirmed(op)
    if after.issues is not before.issues:
        check_spelt(ledger, before.issues, after.issues)
    if after.admins != before.admins and after.admins and not after.is_admin(op.actor.holder):
        raise PolicyRefused(
            f"the admins must include you, {op.actor.holder}",
            hints=("otherwise a mistake could not be undone",),
        )
    words = ", ".join(f"{key} = {value}" for key, value in op.changes)
    changed = Event("policy", op.id, moment.now.wall_ms, op.actor.holder, detail=words)
    form = NEWEST_FORMAT if after.abandons_early else ledger.header.format
    state = ledger.with_header(replace(ledger.header, policy=after, format=form))
    return state, Outcome(
        operation=op.id, status="policy_changed", events=(changed,), changed=after != before
    )


def _need_confirmed(op: SetPolicy) -> None:
    by = op.actor.holder
    text = next(value for key, value in reversed(op.changes) if key == "admins")
    if not any(same_person(word, by) for word in admin_words(text)[1:]):
        raise PolicyRefused(
            "without admins, anyone may change the policy and make themselves the admin",
            hints=(f"to remove them all anyway, confirm it with '{NO_ADMINS} {by}'",),
        )


def acknowledge(ledger: Ledger, op: Acknowledge, moment: Moment) -> tuple[Ledger, Outcome]:
    """Drop notices that their holder has been shown; only one's own."""
    if len(op.notices) > NOTICES_KEPT:
        raise UsageError(f"one step drops at most {NOTICES_KEPT} notices")
    before = ledger.notices(op.actor.holder)
    kept = tuple(n for n in before if n.id not in op.notices)
    state = ledger if kept == before else ledger.with_notices(op.actor.holder, kept)
    return state, Outcome(
        operation=op.id, status="acknowledged", changed=kept != before, is_renewal=True
    )


def barrier(ledger: Ledger, op: Barrier, moment: Moment) -> tuple[Ledger, Outcome]:
    """Move the ledger on by one revision, so that an undecided push can never land."""
    said = Event("barrier", op.id, moment.now.wall_ms, op.actor.holder)
    return ledger, Outcome(operation=op.id, status="barrier", events=(said,))


def restore(ledger: Ledger, op: Restore, moment: Moment) -> tuple[Ledger, Outcome]:
    """Give tokens above those of another past from now on, by beginning the next epoch: anyone."""
    header = ledger.header
    behind = header.token < op.above
    if behind:
        # One epoch a step: nobody can use all of them up by one wrong number.
        if op.above >= (header.epoch + 2) * EPOCH_SIZE:
            raise Invalid(f"token {op.above} is of an epoch that this ledger cannot have reached")
        header = replace(header, epoch=op.above // EPOCH_SIZE + 1, sequence=0)
    said = Event("restored", op.id, moment.now.wall_ms, op.actor.holder)
    return ledger.with_header(header), Outcome(
        operation=op.id, status="restored", events=(said,), changed=behind
    )


def restore_hints(policy: Policy, way: str = "undo") -> tuple[str, ...]:
    """Who may begin an epoch, and how."""
    step = hint("one of them can do it: `{}`", "init", **{f"{way}_rollback": True})
    return ("they are " + ", ".join(policy.admins), step)


def drop_record(ledger: Ledger, op: DropRecord, moment: Moment) -> tuple[Ledger, Outcome]:
    """Remove a record that cannot be read; a readable one is never dropped this way."""
    _need_admin(ledger, op.actor, "drop a damaged record")
    found = next((d for d in ledger.damage() if op.file in (d.file, d.shown)), None)
    if found is None:
        raise NotFound(f"the ledger has no damaged record {op.file}")
    dropped = Event(
        "dropped", op.id, moment.now.wall_ms, op.actor.holder, reason=op.reason, detail=op.file
    )
    return ledger.drop([found.file]), Outcome(operation=op.id, status="dropped", events=(dropped,))


def _need_admin(ledger: Ledger, actor: Actor, what: str) -> None:
    policy = ledger.header.policy
    if policy.is_admin(actor.holder):
        return
    if policy.admins:
        raise PolicyRefused(
            f"only the ledger's admins may {what}, and {actor.holder} is not one of them",
            hints=(
                "they are " + ", ".join(policy.admins),
                hint("one of them can add you: `{}` takes the whole list", "config", **ADMINS),
            ),
        )
    limit = format_duration(policy.ttl_max)
    raise PolicyRefused(
        f"nobody may {what}: the ledger has no admins yet",
        hints=(
            f"a lease that is not renewed lapses by itself, after {limit} at most",
            hint("until there are admins, anyone may set them: `{}`", "config", **ADMINS),
        ),
    )


_SHOWN = 5


def spelt(operation: Operation, policy: Policy) -> Operation:
    """The operation with the host's spelling of each issue that it names."""
    changed: Operation = _named(operation, lambda name: issue_resource(name, policy.issues))
    return changed


def check_spelling(operation: Operation, policy: Policy) -> None:
    """UsageError for an operation that names an issue in another spelling than the ledger's."""

    def check(name: Resource) -> Resource:
        if (right := issue_resource(name, policy.issues)) != name:
            raise UsageError(f"{name} is the issue {right} in this ledger", resource=name.text)
        return name

    _named(operation, check)


def check_spelt(ledger: Ledger, was: Issues, host: Issues) -> None:
    """PolicyRefused where a record's name would be another resource by another host's spellings."""
    found = dict.fromkeys(x.resource for x in ledger.every_lease())
    names = [
        x.text
        for x in found
        if reads_as_issue(x.text) and (was is not Issues.NONE or issue_resource(x, host) != x)
    ]
    if names:
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        raise PolicyRefused(
            f"the ledger has records of {', '.join(names[:_SHOWN])}{more}, "
            "which would then name other resources",
            hints=(
                hint(
                    "release them first; claim a completed one with {} to release it", reopen=True
                ),
            ),
        )


def _named(value: Any, name: Callable[[Resource], Resource]) -> Any:
    # The same with every resource that it names as ``name`` has it.
    if isinstance(value, Resource):
        return name(value)
    if isinstance(value, tuple):
        return tuple(_named(part, name) for part in value)
    if isinstance(value, Operation | Retirement | Grant):
        fields = non_defaults(value).items()
        return replace(value, **{field: _named(part, name) for field, part in fields})
    return value
