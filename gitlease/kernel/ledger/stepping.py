"""The ledger read and changed: one reading, or one step with its answer and task file edits.

Of the step and its edits there are both, or none.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from gitlease.kernel.ledger.answers import Answer, EndedLease, Reading, joined
from gitlease.kernel.ledger.chores import remarks
from gitlease.kernel.ledger.edges import (
    HELD,
    Edges,
    Planned,
    changes_of,
    doubts,
    files_left,
    finished,
    given_back,
    says_so,
)
from gitlease.kernel.ledger.ledger_session import (
    LedgerSession,
    LedgerView,
    of_damage,
    unreadable_line,
)
from gitlease.kernel.ledger.ports import Intent, Snapshot, Written
from gitlease.kernel.ledger.transaction import Step
from gitlease.kernel.rules.edge import EdgeEdit, People, printable
from gitlease.kernel.rules.errors import USE_ANY, GitleaseError, Invalid, LeaseHeld
from gitlease.kernel.rules.frozen import replace
from gitlease.kernel.rules.instant import MS
from gitlease.kernel.rules.lease import Actor, Lease, Relation, State, relation, same_person
from gitlease.kernel.rules.ledger import Changes, Ledger, Note
from gitlease.kernel.rules.moves.claiming import only_edge, rivals_of
from gitlease.kernel.rules.moves.operations import (
    BARRIER,
    LAPSED,
    Bind,
    Claim,
    Complete,
    EndSession,
    Event,
    LeaveTicket,
    Operation,
    Outcome,
    Pick,
    Retire,
)
from gitlease.kernel.rules.moves.tickets import line_for
from gitlease.kernel.rules.resources import WHOLE, Resource, fold
from gitlease.kernel.rules.work import trailer

Planning = Callable[[], tuple[Sequence[Operation], Sequence[Planned]]]
"""Gives the operations of a step, each with its planned edit of the present task files.

A Pick has the plans of all its claims, and the end of a session those of all its leases.
"""


def in_every(
    layers: Sequence[LedgerSession], status: str, do: Callable[[LedgerSession], Answer]
) -> Answer:
    """Call ``do`` for each of these layers, and join the answers.

    The error of a layer is among ``refused``, with its name, and does not stop the others; with a
    single layer it is raised.
    """
    done = Answer(status=status, changed=False)
    for session in layers:
        try:
            one = do(session)
        except GitleaseError as error:
            if len(layers) == 1:
                raise
            one = Answer(status=status, refused=(error,), changed=False, warnings=error.warnings)
        refused = tuple(x.with_(layer=session.layer) for x in one.refused)
        done = joined(done, replace(one, refused=refused))
    return done


def change(
    session: LedgerSession,
    what: str,
    operations: Sequence[Operation],
    *,
    together: bool = True,
    notes_of: Sequence[Resource] = (),
) -> Answer:
    """Carry out a step without task file edits; ``notes_of`` adds the notes of resources.

    What the contact with the remote shows to have landed is finished as well.
    """
    return _with_landed(
        session, change_alone(session, what, operations, together=together, notes_of=notes_of)
    )


def change_alone(
    session: LedgerSession,
    what: str,
    operations: Sequence[Operation],
    *,
    together: bool = True,
    notes_of: Sequence[Resource] = (),
) -> Answer:
    """Carry out the same step, whatever has landed meanwhile."""
    step = session.step(what, operations, together=together)
    return _answer(session, step, operations, notes_of=notes_of)


def change_with_edges(
    session: LedgerSession,
    what: str,
    plan: Planning,
    *,
    goal: str,
    commit: bool | None,
    checked: bool = False,
) -> Answer:
    """Carry out a step of the ledger and its task file edits: both, or none.

    ``checked``: the plan is known to be writable.
    """
    session.check_holder()
    edges = session.edges
    record = edges.recorded(commit)
    planned_again = False
    while True:
        # A plan on a file that an earlier command left half edited would be wrong.
        session.settle()
        operations, planned = plan()
        if not checked:
            # Before the ledger changes: lease and edge are both had, or none is.
            edges.check(planned, commit=commit)
        ids = tuple(op.id for op in operations)
        intent = _intended(session, ids, planned, goal, commit=record)
        try:
            step = session.step(what, operations)
            break
        except GitleaseError as refusal:
            if intent is not None:
                _drop(session, intent)
            if not isinstance(refusal, LeaseHeld):
                raise
            if not any(_is_by_file(x) for x in refusal.each or (refusal,)):
                raise
            # The plan may be older than what the ledger decided about an assignee since.
            session.decisions.deepen()
            if not planned_again and [p.others for p in plan()[1]] != [p.others for p in planned]:
                planned_again = True
                session.messages.add(refusal.warnings)
                continue
            if _is_by_file(refusal):
                hints = (*refusal.hints, *says_so(planned, refusal.resource))
                raise refusal.with_(hints=hints) from None
            raise
    answer = _with_edges(session, step, operations, planned, intent, goal)
    return _with_landed(session, answer)


def _intended(
    session: LedgerSession,
    operations: tuple[str, ...],
    planned: Sequence[Planned],
    goal: str,
    *,
    commit: bool,
) -> Intent | None:
    """Keep the edits of a step before it: a kill after it leaves a lease without its edge.

    The next command writes that edge. None if there is nothing to edit, or nothing is written.
    """
    changes = () if session.is_dry else tuple(changes_of(planned))
    if not changes:
        return None
    intent = Intent(
        id=operations[0],
        holder=session.edges.holder,
        goal=goal,
        operations=operations,
        changes=changes,
        commit=commit,
    )
    session.edges.files.intend(intent)
    return intent


def _drop(session: LedgerSession, intent: Intent) -> None:
    """Forget the edits of a step that was refused, unless it may still land."""
    # What may still land, a later command finds in the ledger or not.
    pending = {op for x in session.store.pending(session.layer) for op in x.operations}
    if pending.isdisjoint(intent.operations):
        session.edges.files.settled(intent)
    else:
        session.edges.files.leave(intent)


def _with_edges(
    session: LedgerSession,
    step: Step,
    operations: Sequence[Operation],
    planned: Sequence[Planned],
    intent: Intent | None,
    goal: str,
) -> Answer:
    """The answer of a step, once the edits that it decided are written."""
    edges = session.edges
    outcomes = {o.operation: o for o in step.applied.outcomes}
    final = [
        decided(one, op, outcomes[op.id], step.applied.ledger, edges.rules.people, session.layer)
        for op, one in matched(operations, planned, outcomes)
    ]
    written, unwritten = fulfil(edges, intent, final)
    if session.is_dry and edges.files.writes:
        edited = [x for x in final if x.edit.remove or x.edit.status or not x.mine]
        written = tuple(Written(x, changed=True) for x in changes_of(edited))
    if goal == HELD and any(o.status in ("claimed", "taken_over") for o in outcomes.values()):
        unwritten += files_left(edges, final) + doubts(final)
    answer = _answer(session, step, operations, warnings=unwritten)
    word = edge_word(final, written)
    places = _edge_in(session, step, final, word)
    if word == "none":
        word = _edge_of_record(step.applied.ledger, outcomes.values(), places, session.actor)
    return replace(
        answer,
        edge=word,
        edge_in=places,
        written=written,
        warnings=answer.warnings + left_to_others(final, outcomes.values()),
    )


def _is_by_file(refusal: GitleaseError) -> bool:
    """Return whether only the file of a task names somebody else."""
    return bool(refusal.whose) and not refusal.conflicts


def _with_landed(session: LedgerSession, answer: Answer) -> Answer:
    """Finish what has landed, as the answer's contact with the remote shows it."""
    if not session.has_landed():
        return answer
    landed = session.finish_landed()
    ids = {view.lease_id for view in landed.leases}
    # What was finished on the way is told as that, and no more as held.
    kept = tuple(view for view in answer.leases if view.lease_id not in ids)
    if len(kept) == len(answer.leases):
        return replace(answer, warnings=answer.warnings + landed.warnings)
    done = joined(landed, replace(answer, leases=kept))
    return done if kept else replace(done, status=landed.status)


def _edge_of_record(
    ledger: Ledger, outcomes: Iterable[Outcome], places: Sequence[str], actor: Actor
) -> str:
    """The outcome for an edge that no file of this work tree has."""
    own = [o for o in outcomes if any(x.edge for x in o.leases)]
    changed = [o for o in own if o.changed]
    if not places:
        return "removed" if changed else "none"
    if not own:
        return "none"
    # A lease that has lapsed or is of another scope had the edge before the step.
    before = replace(ledger, changes=Changes())
    granted = [o.leases[0].resource for o in changed if o.status in ("claimed", "taken_over")]
    return "kept" if all(_has_edge(before, x, actor) for x in granted) else "added"


def _has_edge(ledger: Ledger, resource: Resource, actor: Actor) -> bool:
    records = ledger.leases_of(resource)
    return any(x.edge and x.state is State.ACTIVE and x.same_holder(actor) for x in records)


def _edge_in(
    session: LedgerSession, step: Step, planned: Sequence[Planned], word: str
) -> tuple[str, ...]:
    leases = (x for o in step.applied.outcomes for x in o.leases)
    wanted = {p.resource for p in planned} | {x.resource for x in leases}
    in_record = any(_has_edge(step.applied.ledger, x, session.actor) for x in wanted)
    places = (("record", in_record), ("file", word in ("added", "kept")))
    return tuple(place for place, stands in places if stands)


def _answer(
    session: LedgerSession,
    step: Step,
    operations: Sequence[Operation],
    *,
    warnings: tuple[str, ...] = (),
    notes_of: Sequence[Resource] = (),
) -> Answer:
    ids = {op.id for op in operations}
    binds = {op.id for op in operations if isinstance(op, Bind)}
    bound = [x for o in step.applied.outcomes if o.operation in binds for x in o.leases]
    aside = binds | {op.id for op in operations if isinstance(op, LeaveTicket)}
    outcomes = [o for o in step.applied.outcomes if o.operation in ids - aside]
    refused = [r for r in step.applied.results if isinstance(r, GitleaseError)]
    refused += [r for o in outcomes for r in o.refused]
    ledger = step.applied.ledger
    moment = session.moment(step.head)
    # The ledger of the decision: another process may have made the head a later one.
    head = replace(step.head, ledger=ledger)
    refused = [x.with_(views=session.views_in(head, x.conflicts, moment)) for x in refused]
    noted = list(notes_of)
    claims = {op.id for op in operations if isinstance(op, Claim | Pick)}
    noted += [x.resource for o in outcomes if o.operation in claims for x in o.leases]
    notes: list[Note] = []
    for resource in dict.fromkeys(noted):
        try:
            notes += ledger.notes(resource)
        except Invalid as damage:  # the step is done all the same, and must be reported
            warnings += (damage.message,)
    displaced = [x for o in outcomes for x in o.displaced]
    return Answer(
        status=overall([o.status for o in outcomes]),
        leases=session.views_in(head, [x for o in outcomes for x in o.leases], moment),
        bound=tuple(x.lease_id for x in bound),
        displaced=session.views_in(head, displaced, moment),
        unassigned=tuple(name for o in outcomes for name in o.unassigned),
        notes=tuple(notes),
        refused=tuple(refused),
        capped_to_max=any(o.capped_to_max for o in outcomes),
        max_ttl_seconds=ledger.header.policy.ttl_max,
        changed=step.applied.changed,
        at=step.moment.now if step.applied.changed else None,
        warnings=tuple(
            dict.fromkeys(
                (
                    *session.store.warnings,
                    *session.warnings_of(step.head),
                    *session.messages.take(),
                    *warnings,
                )
            )
        ),
    )


def fulfil(
    edges: Edges, intent: Intent | None, planned: Iterable[Planned]
) -> tuple[tuple[Written, ...], tuple[str, ...]]:
    """Write the decided edits; failures are returned as warnings, and tried again later."""
    if intent is None:
        return (), ()
    try:
        written = edges.files.write(changes_of(planned), commit=intent.commit)
    except GitleaseError as error:
        written, problems = (), [error.message]
    else:
        problems = [f"{w.change.file}: {w.problem}" for w in written if w.problem]
    if not problems:
        edges.files.settled(intent)
        return written, ()
    # The ledger has changed, and that must be said: the intent stays for the next command.
    edges.files.leave(intent)
    said = "the ledger has the change, but the task file could not be updated"
    return written, tuple(f"{said}: {problem}" for problem in problems)


def matched(
    operations: Sequence[Operation], planned: Sequence[Planned], outcomes: Mapping[str, Outcome]
) -> Iterator[tuple[Operation, Planned]]:
    """Pair each operation with the plans that took effect.

    For a Pick, the task picked; for the end of a session, its own leases; for a retirement, the
    tasks that were retired.
    """
    if isinstance(operations[0], Pick):
        picked = outcomes[operations[0].id].leases[0].resource
        yield operations[0], next(p for p in planned if p.resource == picked)
    elif isinstance(operations[0], EndSession):
        ended = {lease.resource for lease in outcomes[operations[0].id].leases}
        yield from ((operations[0], p) for p in planned if p.resource in ended)
    elif isinstance(operations[0], Retire):
        retired = set(outcomes[operations[0].id].retired)
        yield from ((operations[0], p) for p in planned if p.resource in retired)
    else:
        about_files = (op for op in operations if not isinstance(op, Bind))
        yield from zip(about_files, planned, strict=True)


def decided(
    planned: Planned, op: Operation, outcome: Outcome, ledger: Ledger, people: People, layer: str
) -> Planned:
    """The plan adjusted to the ledger's decision: whose edges go, and whether the caller's does."""
    edit = planned.edit
    if isinstance(op, Retire):
        return planned
    if isinstance(op, Claim | Pick):
        # Edges of others that stay although the caller holds the lease: then none is added.
        add = None if outcome.assigned else edit.add
        gone = (*outcome.unassigned, *planned.outdated)
        planned = replace(planned, edit=replace(edit, remove=gone, add=add))
        if planned.task is None:
            return planned
        mine = (trailer(x, layer) for x in outcome.leases if x.resource == planned.resource)
        return replace(planned, trailer=next(mine, ""))
    leases = ledger.leases_of(planned.resource) if planned.task else []
    if any(x.state is State.ACTIVE and x.edge and x.same_holder(op.actor) for x in leases):
        return replace(planned, edit=EdgeEdit())  # another scope is held: still one's work
    # A name that stands for several people stays with whoever of them is at work.
    live = [x.holder for x in leases if x.state is State.ACTIVE]
    gone = tuple(n for n in edit.remove if not any(people.is_mine(n, who) for who in live))
    edit = replace(edit, remove=gone)
    if isinstance(op, Complete):
        part = op.scope not in (None, WHOLE)
        return replace(planned, edit=finished(edit, leases, op.actor.holder, part=part))
    return replace(planned, edit=given_back(edit, leases, op.actor.holder))


def left_to_others(planned: Sequence[Planned], outcomes: Iterable[Outcome]) -> tuple[str, ...]:
    """Warnings about files that name others although the caller holds the lease."""
    files = {p.resource: p.task.file for p in planned if p.task}
    return tuple(
        f"{files.get(lease.resource, lease.resource)} is assigned to "
        f"{', '.join(map(printable, o.assigned))}, and stays so"
        for o in outcomes
        if o.assigned
        for lease in o.leases[:1]
    )


def edge_word(planned: Sequence[Planned], written: Sequence[Written]) -> str:
    """The outcome for the caller's edges in the planned files."""
    changed = {w.change.file for w in written if w.changed}
    return foremost({_edge_word(p, changed) for p in planned if p.task is not None})


def foremost(words: Container[str]) -> str:
    """``added``, ``removed``, ``kept`` or ``none``: the first that became of any edge."""
    return next((w for w in ("added", "removed", "kept") if w in words), "none")


def _edge_word(planned: Planned, changed: set[str]) -> str:
    edit, wrote = planned.edit, planned.task is not None and planned.task.file in changed
    if edit.add is not None:
        if wrote and not planned.mine:
            return "added"
        return "kept" if planned.mine else "none"
    if planned.mine and set(planned.mine) <= set(edit.remove):
        return "removed" if wrote else "none"
    return "kept" if planned.mine else "none"


def overall(statuses: Sequence[str]) -> str:
    """One status for several: the most important one."""
    for status in ("taken_over", "claimed"):
        if status in statuses:
            return status
    return statuses[0] if statuses else "renewed"


WHOLE_HISTORY = 100_000
LOOKED_BACK = 1_000  # events that are read for leases that ended
ENDS = {"released": State.RELEASED, "revoked": State.REVOKED}
GRANTS = frozenset({"claimed", "taken_over"})


def read_leases(
    session: LedgerSession,
    *,
    resource: Resource | None = None,
    ended: bool = False,
    cached: bool = False,
) -> Reading:
    """The leases of the ledger, or of one resource, as this actor sees them.

    ``ended`` adds those that were released or revoked lately. ``cached`` answers from this clone's
    copy, with its age. Raises Invalid if the one resource asked for has a damaged record.
    """

    def ask(head: Snapshot) -> Reading:
        ledger = head.ledger
        if ledger is None:
            return Reading()
        if resource is None:
            damage = tuple(ledger.damage())
            found = Reading(
                leases=session.views_in(head, ledger.every_lease()),
                warnings=of_damage(damage) if damage else (),
            )
        else:
            found = _of_resource(session, head, ledger, resource)
        header = ledger.header
        return replace(
            found,
            ended=_ended(session, head, ledger, resource) if ended else (),
            policy=header.policy,
            ledger_id=header.ledger_id,
            revision=header.revision,
        )

    found = session.read(ask, cached=cached)
    return replace(found, warnings=session.take_warnings() + found.warnings)


def _of_resource(
    session: LedgerSession, head: Snapshot, ledger: Ledger, resource: Resource
) -> Reading:
    leases = ledger.leases_of(resource)
    if resource.is_path:  # leases of a folder above or a part of it count too
        rivals, moment = rivals_of(ledger, resource, WHOLE, ()), session.moment(head)

        def see(lease: Lease) -> Relation:
            return relation(lease, session.actor, head.policy, moment)

        leases += [
            x
            for x in rivals
            if x.resource != resource and x.state is State.ACTIVE and not only_edge(x, see(x))
        ]
    active = (x for x in leases if x.state is State.ACTIVE)
    others = [x for x in active if not x.same_holder(session.actor)]
    return Reading(
        leases=session.views_in(head, leases),
        notes=ledger.notes(resource),
        waiting=line_for(ledger, resource, (), session.clock.now().wall_ms),
        warnings=(*unreadable_line(ledger, resource), *remarks(session, others)),
    )


def _ended(
    session: LedgerSession, head: Snapshot, ledger: Ledger, resource: Resource | None
) -> tuple[EndedLease, ...]:
    # Without a connection: this clone's copy of the history reaches back far enough.
    since = session.clock.now().wall_ms - head.policy.keep_completed * MS
    wanted = None if resource is None else fold(ledger.spelt(resource).text)
    events = [
        x
        for x in session.store.history(session.layer, LOOKED_BACK)
        if x.token is not None and x.resource and wanted in (None, fold(x.resource))
    ]
    granted = {(fold(x.resource or ""), x.token): x.at for x in events if x.kind in GRANTS}
    actor = session.actor
    return tuple(
        EndedLease(
            resource=x.resource,
            scope=x.scope or WHOLE,
            layer=session.layer,
            holder=x.holder,
            session=x.session,
            token=x.token,
            state=ENDS[x.kind],
            claimed_at=granted.get((fold(x.resource), x.token)),
            ended_at=x.at,
            by=x.by,
            reason=x.reason,
            mine=same_person(x.holder, actor.holder) and x.session in (None, actor.session),
        )
        for x in events
        if x.kind in ENDS and x.at > since and x.resource and x.holder and x.token is not None
    )


def check_known(session: LedgerSession, resources: Sequence[Resource]) -> None:
    """Raise NotFound for a likely typo: a name like a task's, neither a task nor in the ledger.

    Asks the remote only if this clone's copy lacks it too.
    """
    for resource, refusal in session.edges.unknown(resources).items():
        if not is_in_ledger(session.known_look(), resource) and not is_in_ledger(
            session.look(), resource
        ):
            away = session.edges.on_a_branch(resource)
            raise away or refusal.with_(hints=(*refusal.hints, USE_ANY))


def is_in_ledger(look: LedgerView | None, resource: Resource) -> bool:
    """Return whether a state of the ledger has a record of a resource, or a note on it."""
    ledger = None if look is None else look.head.ledger
    if ledger is None:
        return False
    try:
        return bool(ledger.leases_of(resource) or ledger.notes(resource))
    except Invalid:
        return True  # the verb itself says what is wrong with its record


def read_log(
    session: LedgerSession,
    *,
    resource: Resource | None = None,
    limit: int = 100,
    since: int | None = None,
    cached: bool = False,
) -> Reading:
    """The audit trail, newest first, of the ledger or of one resource.

    ``since``, in wall-clock milliseconds: only events from then on, by their writers' clocks.
    """

    def ask(head: Snapshot) -> Sequence[Event]:
        # Writers' clocks differ, so events are not in the order of their times.
        most = limit if since is None else WHOLE_HISTORY
        events = history_of(session, head, resource, most, older=not cached)
        return [e for e in events if since is None or e.at >= since][:limit]

    events = session.read(ask, cached=cached)
    return Reading(events=tuple(events), warnings=session.take_warnings())


def history_of(
    session: LedgerSession,
    head: Snapshot,
    resource: Resource | None,
    limit: int,
    *,
    older: bool = False,
) -> tuple[Event, ...]:
    """The last events of a ledger or of one of its resources, newest first, without barriers.

    ``older`` fetches the history that this clone lacks; without it there is no connection.
    """
    if resource is None:  # of a step with a barrier others are told as well
        events = session.store.history(session.layer, 2 * limit, older=older)
        return _ordered([e for e in events if e.kind != BARRIER][:limit])
    wanted = fold((head.ledger.spelt(resource) if head.ledger else resource).text)
    events = session.store.history(session.layer, WHOLE_HISTORY, older=older)
    return _ordered([e for e in events if fold(e.resource or "") == wanted][:limit])


def _ordered(events: Iterable[Event]) -> tuple[Event, ...]:
    """Put a lapse before the claim of the same operation, which found it: newest first."""
    steps = groupby(events, key=lambda event: event.operation)
    return tuple(
        event for _, same in steps for event in sorted(same, key=lambda event: event.kind == LAPSED)
    )
