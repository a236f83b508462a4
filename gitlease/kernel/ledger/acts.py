"""Verbs on what is held: renewing and extending, ending and retiring, and governance."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from gitlease.kernel.ledger.answers import (
    MAX_RESOURCES,
    Answer,
    ClaimOptions,
    Reading,
    joined,
    leave_to_runs,
    several,
    stopped,
)
from gitlease.kernel.ledger.edges import (
    COMPLETED,
    ENDED,
    PART,
    RETIRING,
    Planned,
    changes_of,
    not_in_work_tree,
    without_numbers,
)
from gitlease.kernel.ledger.ledger_session import LedgerSession
from gitlease.kernel.ledger.ports import Prepared, Snapshot, Swapped, Written
from gitlease.kernel.ledger.stepping import (
    change,
    change_alone,
    change_with_edges,
    in_every,
    is_in_ledger,
)
from gitlease.kernel.ledger.transaction import fresh_id, noting_id
from gitlease.kernel.rules.edge import EdgeEdit, Progress
from gitlease.kernel.rules.errors import (
    USE_ANY,
    AnotherLedger,
    Denied,
    GitleaseError,
    Invalid,
    LeaseHeld,
    LeaseLost,
    NotFound,
    PolicyRefused,
    Rollback,
    Unavailable,
    UsageError,
    hint,
)
from gitlease.kernel.rules.frozen import dataclass, replace
from gitlease.kernel.rules.instant import format_duration
from gitlease.kernel.rules.lease import Lease, State, holder_has, place, same_person
from gitlease.kernel.rules.ledger import WAITS, Header, Ledger, is_kept
from gitlease.kernel.rules.loss import lost_by, lost_in
from gitlease.kernel.rules.moves.closing import check_admin
from gitlease.kernel.rules.moves.holding import RETIRED, in_scope, of_session, restore_hint
from gitlease.kernel.rules.moves.operations import (
    AddNote,
    Barrier,
    Claim,
    Complete,
    DropRecord,
    Event,
    Extend,
    Grant,
    MoveLedger,
    Operation,
    Release,
    Renew,
    Restore,
    Retire,
    Retirement,
    Revoke,
    RunOut,
    SetPolicy,
    Unassign,
    grant_of,
)
from gitlease.kernel.rules.moves.transitions import Decided
from gitlease.kernel.rules.policy import check_ceiling, check_keys
from gitlease.kernel.rules.resources import WHOLE, Issues, Resource, fold, parse_resource


def renew(
    session: LedgerSession,
    resources: Sequence[Resource],
    *,
    scope: str | None = None,
    ttl: int | None = None,
) -> Answer:
    """Renew the leases of these resources in one push; those of landed tasks are completed.

    Raises LeaseLost or NotHolder if none of them can be renewed.
    """
    wanted = several(resources)
    # What has landed must not be lengthened.
    landed = _of(session.finish_landed(wanted), wanted, scope)
    finished = {fold(view.resource) for view in landed.leases}
    operations = [
        Renew(id=fresh_id(), actor=session.actor, resource=r, scope=scope, ttl=ttl)
        for r in wanted
        if r.key not in finished
    ]
    if not operations:
        return landed
    # Each by itself: one lost lease is no reason to lose the others.
    answer = change(session, "renew", operations, together=False)
    # With nothing renewed it is a plain refusal; else the losses go beside what was.
    if answer.refused and not answer.leases:
        raise answer.refused[0].with_(warnings=landed.warnings + answer.warnings)
    return joined(landed, tell_longer(answer, ttl))


def _of(landed: Answer, resources: Sequence[Resource], scope: str | None) -> Answer:
    """Keep the leases of these resources only; the warnings are about all."""
    names = {resource.key for resource in resources}
    kept = [v for v in landed.leases if fold(v.resource) in names and scope in (None, v.scope)]
    return replace(landed, leases=tuple(kept))


def tell_longer(answer: Answer, ttl: int | None) -> Answer:
    """Warn of leases that last longer than the TTL that was asked for: none is shortened."""
    longer = [x.resource for x in answer.leases if ttl is not None and x.expires_in > ttl]
    if not longer or ttl is None:
        return answer
    text = f"{', '.join(longer)}: not shortened to {format_duration(ttl)}, a renewal never does so"
    return replace(answer, warnings=(*answer.warnings, text))


def renew_all(layers: Sequence[LedgerSession], *, ttl: int | None = None) -> Answer:
    """Renew all leases of this session in these layers, one push for each.

    Losses not reported yet are among ``refused``; with several layers, so is the error of a layer,
    which is never raised.
    """
    return tell_longer(in_every(layers, "renewed", lambda session: _renew_all(session, ttl)), ttl)


def _renew_all(session: LedgerSession, ttl: int | None) -> Answer:
    landed, before = session.finish_landed(), session.unread_notices()
    op = Renew(id=fresh_id(), actor=session.actor, ttl=ttl)
    answer = joined(landed, change(session, "renew", [op], together=False))
    head = session.store.known(session.layer)
    if head is None or head.ledger is None:
        return answer
    # The table names one of them where nothing is left, and knows nothing of what others took.
    _, over = of_session(head.ledger, session.actor, session.moment(head))
    lost = [x.with_(views=session.views_in(head, x.conflicts)) for x in over]
    back = {(view.resource, view.scope, view.session) for view in answer.leases}
    # A notice to the person names no session.
    back |= {(resource, scope, None) for resource, scope, _ in back}
    notices = {n.id: n for n in (*before, *session.unread_notices())}.values()
    for notice in notices:
        if (notice.resource, notice.scope, notice.session) not in back:
            about = (notice.resource, notice.scope)
            there = [x for x in head.ledger.every_lease() if (x.resource.text, x.scope) == about]
            lost.append(lost_by(notice).with_(views=session.views_in(head, there)))
    others = [x for x in answer.refused if not isinstance(x, LeaseLost)]
    return replace(answer, refused=(*lost, *others))


def renew_grants(session: LedgerSession, grants: Sequence[Grant], *, in_use: bool = True) -> Answer:
    """Renew exactly these grants, of any of the holder's sessions, in one push.

    Those that are lost, or cannot be judged, are among ``refused``. Landed work is completed unless
    the leases are ``in_use``: whoever uses them would be stopped for the loss.
    """
    op = Renew(id=fresh_id(), actor=session.actor, grants=tuple(grants))
    carry_out = change_alone if in_use else change
    return carry_out(session, "heartbeat", [op], together=False)


def extend(
    session: LedgerSession, resource: Resource, seconds: int, *, scope: str | None = None
) -> Answer:
    """Stretch a lease to at least now + ``seconds``, at most to the policy's maximum.

    A lease of a landed task is completed instead.
    """
    landed = _of(session.finish_landed([resource]), [resource], scope)
    if landed.leases:
        return landed
    op = Extend(id=fresh_id(), actor=session.actor, resource=resource, seconds=seconds, scope=scope)
    return joined(landed, change(session, "extend", [op]))


HISTORY = 1_000  # events in which a lost lease is looked for
KEPT = "kept"
WITHOUT_WORD = "without a word of why"
TAKEN = frozenset({"displaced", "revoked", "retired"})


def release(
    session: LedgerSession,
    resources: Sequence[Resource],
    *,
    scope: str | None = None,
    note: str | None = None,
    keep_status: bool = False,
    commit: bool | None = None,
) -> Answer:
    """Drop the caller's leases of these resources and retire its edges; all or none.

    Succeeds even with nothing to drop. A status of in progress goes back to to do, unless
    ``keep_status``. Raises LeaseHeld for what another person has, even if it was the caller's
    before; the caller's own name leaves the task file of this clone all the same. What was kept
    waits for its person, so a session's release leaves it alone, with a warning.
    """
    wanted = several(resources)
    waiting = _waiting_for_person(session, wanted, scope)
    if waiting:
        terms: dict[str, Any] = {"keep_status": keep_status, "commit": commit}
        return _release_but(session, waiting, wanted, scope=scope, word=note, **terms)
    planned: list[Planned] = []

    def plan() -> tuple[Sequence[Operation], Sequence[Planned]]:
        planned[:] = session.edges.plan_end(
            wanted, keep_status=keep_status, again=session.edges.recorded(commit)
        )
        return [
            Release(
                id=noting_id(session.actor) if note else fresh_id(),
                actor=session.actor,
                resource=p.resource,
                scope=scope,
                note=note,
                assigned=p.others,
            )
            for p in planned
        ], planned

    try:
        answer = change_with_edges(session, "release", plan, goal=ENDED, commit=commit)
        committed = any(written.commit for written in answer.written)
        warnings = (
            *(x for p in planned if (x := _under_a_new_id(session, p))),
            *_of_another_run(session, answer),
            *_still_named(session, planned, committed=committed),
        )
        if not answer.leases and any(map(session.edges.is_own_away, planned)):
            answer = replace(answer, edge="kept", edge_in=("file",))
        return replace(answer, warnings=(*answer.warnings, *warnings))
    except LeaseHeld as refusal:
        if len(wanted) != 1:
            raise
        raise _without_own_edge(session, wanted[0], refusal, commit) from None


def _waiting_for_person(
    session: LedgerSession, resources: Sequence[Resource], scope: str | None
) -> dict[Resource, list[Lease]]:
    """The caller's records of kept tasks among these, which a session's release would end."""
    if session.actor.session is None:
        return {}

    def kept() -> dict[Resource, list[Lease]]:
        found = {x: [y for y in session.decisions.own_records(x) if is_kept(y)] for x in resources}
        return {x: own for x in resources if (own := [y for y in found[x] if in_scope(y, scope)])}

    if kept():
        # They may have been claimed since in another clone, and be held again.
        session.read(lambda head: head)
    return kept()


def _release_but(
    session: LedgerSession,
    waiting: Mapping[Resource, Sequence[Lease]],
    resources: Sequence[Resource],
    *,
    scope: str | None,
    word: str | None,
    **terms: Any,
) -> Answer:
    """Release these except what waits for its person; leave a note (``word``) on all of them."""
    said = tuple(
        f"{x} was kept and waits for its person: a session's release does not end that"
        for x in waiting
    )
    answer = Answer(status="released", changed=False, warnings=said)
    rest = [x for x in resources if x not in waiting]
    steps: list[tuple[Sequence[Resource], str | None]] = [(rest, scope)] if rest else []
    for resource in waiting:
        others = [x for x in session.decisions.own_records(resource) if in_scope(x, scope)]
        held = [x for x in others if not is_kept(x) and x.answers_to(session.actor)]
        steps += [([resource], x.scope) for x in held]
        if word is not None and not held:
            answer = joined(answer, note(session, resource, word))
    for some, part in steps:
        answer = joined(answer, release(session, some, scope=part, note=word, **terms))
    return replace(answer, status="released")


def keep(
    session: LedgerSession,
    resources: Sequence[Resource],
    *,
    scope: str | None = None,
    note: str | None = None,
) -> Answer:
    """End the caller's leases of these tasks, which stay assigned to the caller; all or none.

    The tasks wait until somebody claims them by name: nothing hands them out before, and the note
    says why. Raises LeaseHeld for what another has, LeaseLost for what the caller does not hold,
    and UsageError for what is no task, which no edge would keep.
    """
    wanted = several(resources)
    session.check_holder()
    session.settle()
    known = session.store.known(session.layer)
    while True:
        head = session.read(lambda newest: newest) if known is None else known
        try:
            own = [x for resource in wanted for x in _own_tasks(session, head, resource, scope)]
            answer = change(session, "release", _keeping(session, own, note))
        except (LeaseHeld, LeaseLost, UsageError) as refusal:
            if known is None:
                raise
            session.messages.add(refusal.warnings)
        else:
            # A picked lease is renewed in the same step, so its view stands there more than once.
            ended = {view.lease_id: view for view in answer.leases}
            if len(ended) == len(own):
                break
            session.messages.add(answer.warnings)
        known = None
    in_file = any(planned.mine for planned in session.edges.plan_end(wanted))
    return replace(
        answer,
        status=KEPT,
        leases=tuple(ended.values()),
        edge="kept",
        edge_in=("record", "file") if in_file else ("record",),
        warnings=tuple(dict.fromkeys((*answer.warnings, *_stopped_runs(session, own)))),
    )


def _own_tasks(
    session: LedgerSession, head: Snapshot, resource: Resource, scope: str | None
) -> list[Lease]:
    """The caller's leases of a task, as a release would end them. Raises the refusal of one."""
    ask = Release(id=fresh_id(), actor=session.actor, resource=resource, scope=scope)
    (outcome,) = session.transaction.decided(head, [ask]).applied.outcomes
    keys = {x.key for x in outcome.leases}
    ledger = session.transaction.ledger_of(head)
    own = [x for x in ledger.leases_of(resource) if x.key in keys]
    if not own:
        name = resource.text
        raise LeaseLost(f"you do not hold {name}", resource=name, scope=scope)
    if not any(x.edge for x in own):
        about: dict[str, object] = {} if own[0].scope == WHOLE else {"scope": own[0].scope}
        longest = format_duration(ledger.header.policy.ttl_max)
        # A name whose lease has lapsed would be taken for a task's.
        about |= {"ttl": longest, "any": not resource.is_path}
        why = "take a lease of the length that you need instead: {}"
        raise UsageError(
            f"{resource} is not a task, so nothing would keep it for you",
            resource=resource.text,
            scope=scope,
            hints=(hint(why, "claim", resources=[resource.text], **about),),
        )
    return own


def _keeping(session: LedgerSession, own: Sequence[Lease], note: str | None) -> list[Operation]:
    """The operations of one step that ends these leases and keeps their tasks."""
    claims = list[Operation]()
    for lease in own:
        if lease.picked:
            # What a pool picked goes back to the queue at its lapse. A claim by name makes it its
            # holder's, in the name of the session that has it; and only while that has it.
            actor = replace(session.actor, session=lease.session)
            about: dict[str, Any] = {"resource": lease.resource, "scope": lease.scope}
            claims += [
                Renew(id=fresh_id(), actor=actor, **about),
                Claim(id=fresh_id(), actor=actor, lease_id=fresh_id(), **about),
            ]
    grants = tuple(map(grant_of, own))
    end = RunOut(id=fresh_id(WAITS), actor=session.actor, grants=grants, note=note or WITHOUT_WORD)
    return [*claims, end]


def _stopped_runs(session: LedgerSession, own: Sequence[Lease]) -> list[str]:
    """Warn of commands whose leases have ended under them."""
    running = [x for x in session.caller.of_live_runs(own) if not session.caller.is_of_run_above(x)]
    return [
        f"{x.resource} was held by a command that still runs{_process(x)}: it is stopped for that"
        for x in running
    ]


def _process(lease: Lease) -> str:
    words = [f"session {lease.session}"] if lease.session else []
    words += [f"pid {lease.place.pid}"] if lease.place.pid else []
    return f" ({', '.join(words)})" if words else ""


def check_release(session: LedgerSession, resource: Resource, *, scope: str | None = None) -> None:
    """Raise LeaseHeld if a release of this would be refused; change nothing."""
    op = Release(id=fresh_id(), actor=session.actor, resource=resource, scope=scope)
    session.read(lambda head: session.transaction.decided(head, [op]))


def _under_a_new_id(session: LedgerSession, planned: Planned) -> str:
    """A warning that a released task's file still assigns another id to the caller."""
    now = session.edges.new_id_of(planned)
    if now is None:
        return ""
    return f"{now.file} has the id {now.resource} now, which stays assigned to you"


def _of_another_run(session: LedgerSession, answer: Answer) -> tuple[str, ...]:
    """Say whose lease was ended, if another session of the same holder claimed it elsewhere."""
    # A holder is asserted by git's settings, so it may be anybody's doing.
    actor = session.actor
    host = place(actor.host).host
    return tuple(
        f"{x.resource} was claimed by session {x.session} of {x.holder} on {x.host}"
        for x in answer.leases
        if x.session not in (None, actor.session) and x.host not in (None, host)
    )


def _still_named(
    session: LedgerSession, planned: Sequence[Planned], *, committed: bool
) -> tuple[str, ...]:
    """Warnings about committed task files that still assign what was released to the caller.

    ``committed``: this release committed its edits, which are not pushed yet.
    """
    here = {p.resource.key for p in planned if p.task is not None}
    named = session.edges.still_named(planned)
    outranked = session.edges.outranked
    left = [task for ref, task, mine in named if not mine.issubset(outranked(task, ref))]
    # What only files assigned is ended in the ledger, too: it would protect nobody, and keep others
    # out.
    warnings = list(_end_in_ledger(session, [task.resource for task in left]))
    for ref, task, mine in named:
        where = "the last commit" if ref == "HEAD" else ref.removeprefix("refs/remotes/")
        way = "push the commit" if committed else "commit and push the change"
        if not session.edges.files.writes:
            way = "take the name out in a clone"
        counts = mine.issubset(outranked(task, ref))
        then = "the release counts already" if counts else "until then it is assigned to you"
        if task.resource.key in here:
            warnings.append(f"{task.file} in {where} still names you: {way}; {then}")
        else:
            stays = f"the assignment in {not_in_work_tree(task)}"
            warnings.append(f"{stays}; {then}" if counts else stays)
    return tuple(warnings)


def _end_in_ledger(session: LedgerSession, resources: Sequence[Resource]) -> tuple[str, ...]:
    """End in the ledger what files alone assign to the caller; returns warnings."""
    warnings: tuple[str, ...] = ()
    # What the caller still holds a part of is left as it is.
    wanted = [resource for resource in resources if not session.decisions.own_records(resource)]
    for start in range(0, len(wanted), MAX_RESOURCES):
        operations = [
            Unassign(id=fresh_id(), actor=session.actor, resource=resource)
            for resource in wanted[start : start + MAX_RESOURCES]
        ]
        try:
            answer = change(session, "release", operations, together=False)
        except GitleaseError as error:  # the warning says until when it is assigned
            warnings += error.warnings
        else:
            warnings += answer.warnings
    return warnings


def release_all(
    layers: Sequence[LedgerSession],
    *,
    note: str | None = None,
    keep_status: bool = False,
    commit: bool | None = None,
) -> Answer:
    """Drop everything that the session holds in these layers, in steps of ``MAX_RESOURCES``.

    What a live run has stays: the run owns it. Below a run, so does what its person has without a
    session. With several layers, refusals are among ``refused`` and never raised.
    """

    def of_layer(session: LedgerSession) -> Answer:
        look = session.look()
        mine = [x for x in look.leases if x.state is State.ACTIVE and x.answers_to(session.actor)]
        # A task that was kept is no longer held: it waits until it is named.
        waiting = {x.resource for x in mine if is_kept(x)}
        mine = [x for x in mine if not is_kept(x)]
        if session.caller.is_below_run:
            # Below a run, what its person has without a session is not the run's to end.
            mine = [x for x in mine if x.session is not None]
        kept = session.caller.of_live_runs(mine)
        # They may be news, which is told once; what always holds of the place is not.
        warnings = session.messages.take()
        answer = leave_to_runs(Answer(status="released", changed=False, warnings=warnings), kept)
        names = {x.resource for x in kept}  # the scopes of a resource are released together
        mine = [x for x in mine if x.resource not in names]
        wanted = list(dict.fromkeys(x.resource for x in mine if x.resource not in waiting))
        starts = range(0, len(wanted), MAX_RESOURCES)
        steps = [(wanted[start : start + MAX_RESOURCES], None) for start in starts]
        # But where a scope is kept, each of the others is released alone.
        parts = [([x.resource], x.scope) for x in mine if x.resource in waiting]
        for some, scope in (*steps, *parts):
            try:
                done = release(
                    session, some, scope=scope, note=note, keep_status=keep_status, commit=commit
                )
            except GitleaseError as error:
                # Before the first step there is no part to tell of.
                if not answer.changed:
                    warnings = tuple(dict.fromkeys(answer.warnings + error.warnings))
                    raise error.with_(warnings=warnings) from None
                return stopped(answer, error)
            answer = joined(answer, done)
        return answer

    return in_every(layers, "released", of_layer)


def _without_own_edge(
    session: LedgerSession, resource: Resource, refusal: LeaseHeld, commit: bool | None
) -> LeaseHeld:
    """Return the refusal to release what another person has, after a cleanup.

    The caller's own name left in this clone's task file is removed, and the refusal says so.
    """
    who = refusal.views[0].holder if refusal.views else refusal.whose
    if who is None or same_person(who, session.actor.holder):
        return refusal
    edges, people = session.edges, session.edges.rules.people
    if not edges.files.writes:
        return refusal
    (planned,) = edges.plan_end([resource], keep_status=True)
    # A name that stands for both the caller and the holder stays.
    if not planned.mine or any(people.is_mine(name, who) for name in planned.mine):
        return refusal
    edges.check([planned], commit=commit)
    written = _write_without_ledger(session, planned, resource, commit)
    files = ", ".join(x.change.file for x in written if x.changed)
    if not files:  # task files are not written here
        return refusal
    removed = f"your name was removed from {files}; {who} keeps {resource}"
    return refusal.with_(warnings=(*refusal.warnings, removed))


def taken_from(session: LedgerSession, resource: Resource) -> Event | None:
    """The event by which others ended the caller's last lease of a resource; None if none did."""
    for event in session.store.history(session.layer, HISTORY):
        if fold(event.resource or "") == resource.key and same_person(
            event.holder or "", session.actor.holder
        ):
            # The newest event decides: an older loss was followed by another lease.
            return event if event.kind in TAKEN else None
    return None


def loss_of(session: LedgerSession, refusal: GitleaseError) -> LeaseLost | None:
    """The loss behind a refusal, and who caused it; None if others ended no lease of the caller."""
    if refusal.resource is None:
        return None
    event = taken_from(session, parse_resource(refusal.resource))
    if event is None:
        return None
    return lost_in(event).with_(views=refusal.views, warnings=refusal.warnings)


def _write_without_ledger(
    session: LedgerSession, planned: Planned, asked: Resource, commit: bool | None
) -> tuple[Written, ...]:
    edges = session.edges
    written = edges.files.write(changes_of([planned]), commit=edges.recorded(commit))
    if problem := next((w.problem for w in written if w.problem), ""):
        raise Invalid(f"{written[0].change.file}: {problem}", resource=asked.text)
    return written


def is_no_task(session: LedgerSession, plan: Planned) -> bool:
    """Return whether names must be tasks here, and this one neither is nor was one."""
    return session.edges.is_unknown(plan) and not any(
        x.edge or x.state is State.COMPLETED for x in session.decisions.known_records(plan.resource)
    )


def complete(
    session: LedgerSession,
    resource: Resource,
    *,
    scope: str | None = None,
    commit: bool | None = None,
    status: str | None = None,
    any_name: bool = False,
) -> Answer:
    """Complete the lease, retire the caller's edge, and set the task's status to done.

    A path is a UsageError. A name that is not a task is NotFound unless ``any_name``: where tasks
    are required, and else if this clone does not know it.
    ``status`` replaces the project's first word for done. The status stays while others work on
    other scopes, and if the only scope of all is finished.
    """
    if resource.is_path:
        raise UsageError(
            f"{resource} is a path, and only tasks are done: release it",
            resource=resource.text,
            scope=scope,
        )
    edges = session.edges
    whole = scope is None or scope == WHOLE
    word = status or edges.rules.word(Progress.DONE)
    planned: list[Planned] = []

    def plan() -> tuple[Sequence[Operation], Sequence[Planned]]:
        planned[:] = edges.plan_end([resource], status=word, again=edges.recorded(commit))
        end = planned[0]
        if not any_name and is_no_task(session, end):
            raise _refuse_to_complete(session, resource, scope)
        edges.refuse_new_id(end)
        op = Complete(
            id=fresh_id(),
            actor=session.actor,
            resource=end.resource,
            lease_id=fresh_id(),
            scope=scope,
            assigned=end.others,
            held_only=not any_name and (edges.is_unknown(end) or _is_new(session, end)),
        )
        return [op], planned

    goal = COMPLETED if whole else PART
    try:
        answer = change_with_edges(session, "done", plan, goal=goal, commit=commit)
    except NotFound as refusal:
        on_a_branch = edges.on_a_branch(resource)
        if on_a_branch is None:
            raise
        raise on_a_branch.with_(warnings=refusal.warnings) from None
    others = _of_another_run(session, answer)
    stays = _status_that_stays(session, planned[0], answer, scope)
    return replace(answer, warnings=(*answer.warnings, *others, *stays))


def _refuse_to_complete(
    session: LedgerSession, resource: Resource, scope: str | None
) -> GitleaseError:
    """The refusal to complete a name that is not a task, which may be mistyped."""
    edges = session.edges
    near = edges.unknown([resource]).get(resource)
    return edges.on_a_branch(resource) or NotFound(
        f"{resource} is not a task, and only tasks are done: release it",
        resource=resource.text,
        scope=scope,
        hints=(*(near.hints if near else ()), USE_ANY),
    )


def _is_new(session: LedgerSession, plan: Planned) -> bool:
    """Return whether a name is neither a task here nor in the ledger as this clone knows it."""
    no_task = plan.task is None and plan.away is None
    return no_task and not is_in_ledger(session.known_look(), plan.resource)


def _status_that_stays(
    session: LedgerSession, plan: Planned, answer: Answer, scope: str | None
) -> tuple[str, ...]:
    """Warn that the status of a completed task is not done, and why."""
    task, away = plan.task, plan.away
    if away is not None and not away.is_done:
        return (f"the status in {not_in_work_tree(away)}",)
    if task is None or task.is_done or any(w.change.edit.status for w in answer.written):
        return ()
    if scope is not None and scope != WHOLE:
        why = f"only scope {scope} is finished"
    elif any(x.state is State.ACTIVE for x in session.decisions.known_records(plan.resource)):
        why = "others still work on it"
    else:
        why = "task files are not written here"
    return (f"the status in {task.file} stays: {why}",)


def set_status(
    session: LedgerSession, resource: Resource, word: str, *, commit: bool | None = None
) -> Answer:
    """Set a task's status to one that neither claims nor finishes it.

    Raises LeaseHeld if the task is another's, as a release would.
    """
    session.check_holder()
    session.settle()
    edges = session.edges
    task = edges.task(resource)
    planned = Planned(
        resource=task.resource,
        task=task,
        others=edges.rules.people.others(task.assigned, edges.holder),
        edit=EdgeEdit(status=word),
        message=f"set {task.resource} to {word}",
    )
    edges.check([planned], commit=commit)
    # Decided and not carried out: it is refused for just the tasks of others.
    ask = Release(
        id=fresh_id(), actor=session.actor, resource=planned.resource, assigned=planned.others
    )
    session.read(lambda head: session.transaction.decided(head, [ask]))
    warnings = session.take_warnings()
    head = session.store.known(session.layer)
    picked = head is not None and any(
        x.picked and x.answers_to(session.actor) and holder_has(x, session.moment(head))
        for x in session.decisions.own_records(planned.resource)
    )
    if edges.rules.progress(word) is Progress.OTHER and picked:
        # Handed on for a review, say: a lapse no longer puts it back into the queue.
        from gitlease.kernel.ledger import claim

        claim.claim(session, [planned.resource], ClaimOptions(commit=False))
    written = _write_without_ledger(session, planned, resource, commit)
    return Answer(status="set", written=written, changed=bool(written), warnings=warnings)


@dataclass(frozen=True)
class RetirePlan:
    """A retirement, with the planned edit of the task's file, if any."""

    item: Retirement
    planned: Planned | None = None


def retire(session: LedgerSession, plans: Sequence[RetirePlan], *, commit: bool = True) -> Answer:
    """Retire what is still stale in the present ledger: one push and one commit.

    A task that was claimed meanwhile, or whose file cannot be edited safely, is among ``refused``.
    """
    session.settle()
    planned, against = session.edges.writable(
        plans, lambda some: [x.planned for x in some if x.planned is not None], commit=commit
    )
    refused = tuple(
        error.with_(resource=error.resource or one.item.resource.text) for one, error in against
    )
    stuck = [one for one, _ in against]
    items = tuple(one.item for one in plans if one not in stuck)
    if not items:
        return Answer(status=RETIRED, refused=refused, changed=False)
    op = Retire(id=fresh_id(), actor=session.actor, items=items)
    answer = change_with_edges(
        session, "retirement", lambda: ([op], planned), goal=RETIRING, commit=commit, checked=True
    )
    return replace(answer, refused=refused + answer.refused)


def revoke(
    session: LedgerSession,
    resource: Resource,
    *,
    reason: str,
    scope: str | None = None,
    expect_holder: str | None = None,
) -> Answer:
    """End someone else's lease; for the ledger's admins."""
    op = Revoke(
        id=fresh_id(),
        actor=session.actor,
        resource=resource,
        reason=reason,
        scope=scope,
        expect_holder=expect_holder,
    )
    return change(session, "revoke", [op])


def drop_record(session: LedgerSession, file: str, *, reason: str) -> Answer:
    """Remove a record that cannot be read; for the ledger's admins."""
    op = DropRecord(id=fresh_id(), actor=session.actor, file=file, reason=reason)
    return change(session, "revoke", [op])


def note(
    session: LedgerSession, resource: Resource, text: str, *, to_holder: bool = False
) -> Answer:
    """Leave a note for the next holder; that of a person ends the task's ``Setback``.

    ``to_holder``: and show it to whoever holds it now. Raises NotFound if then nobody else does.
    """
    id, actor = noting_id(session.actor), session.actor
    op = AddNote(id=id, actor=actor, resource=resource, text=text, to_holder=to_holder)
    return change(session, "note", [op], notes_of=[resource])


def set_policy(session: LedgerSession, changes: dict[str, str]) -> Answer:
    """Change the ledger's policy; makes a ledger if there is none."""
    check_keys(changes)
    check_ceiling(changes)
    if changes.get("issues", Issues.NONE.value) != Issues.NONE.value:
        # A task whose id reads as an issue would be taken for the issue.
        found = replace(session.edges.files.read(), problems=())
        for problem in without_numbers(found).problems:
            other = "give such tasks other ids first, for example T12 for 12"
            raise UsageError(problem.message, hints=(other,))
    op = SetPolicy(id=fresh_id(), actor=session.actor, changes=tuple(changes.items()))
    return change(session, "config", [op])


def confirm(session: LedgerSession, *, rolled_back: bool = False, another: bool = False) -> Reading:
    """Accept the remote's ledger; makes one if there is none, and proves that it may be written.

    Another past of the known ledger is accepted only with ``rolled_back``; its tokens then continue
    above those seen. ``another`` accepts a ledger in the place of the one that the repository's
    settings record. Raises Rollback and Invalid.
    """
    known = _check_may_replace(session)
    head = session.store.confirm(session.layer, rolled_back=rolled_back, another=another)
    if head.ledger is None and not another and (doubt := session.store.doubt(head)) is not None:
        raise doubt
    above = None
    if head.ledger is not None:
        # What was seen at another URL counts as well: no token may be given twice.
        after, seen = head.ledger.header, head.token_seen
        if known is not None and known.ledger is not None:
            before = known.ledger.header
            seen = max(seen, before.token) if before.ledger_id == after.ledger_id else seen
        if after.token < seen:
            _check_may_restore(session, head.ledger, "accept")
            above = seen
    from gitlease.kernel.ledger.deleted import first_step

    # An empty step, even where the ledger is there: a remote may let read who may not write.
    first = first_step(session, head) if head.ledger is None else None
    change(session, "init", first or [Barrier(id=fresh_id(), actor=session.actor)])
    if above is not None:
        _restore(session, above=above)
    session.store.accept(session.store.known(session.layer) or head, another=another)
    # It is not called ready where every claim would be refused.
    session.store.admit(session.store.known(session.layer) or head, grants=True)
    return confirmed(session, head)


def undo_rollback(session: LedgerSession) -> Reading:
    """Bring back the past that this clone has seen, in place of whatever the remote has now.

    Tokens go on above those of both, also where an admin of the server has brought it back. Raises
    Rollback where the server refuses that, or there is another ledger.
    """
    try:
        head = session.store.fetch(session.layer)
    except Rollback as there:
        if there.elsewhere:
            raise PolicyRefused(
                "the history that is missing was never seen at this URL, so it is not restored "
                "here",
                hints=("use the URL where it was seen, or accept what is here", *there.hints[1:]),
            ) from there
        known = session.store.known(session.layer)
        if not there.version or known is None or known.ledger is None:
            raise
        # Above both pasts, so that no token is given twice.
        head, above = known, max(known.ledger.header.token + 1, there.token)
        _check_may_restore(session, known.ledger)
        _restore(session, above=above, instead_of=there.version)
    else:
        if head.ledger is not None:
            _check_may_restore(session, head.ledger)
            _restore(session, above=head.ledger.header.token + 1)
            plain = (
                "this clone sees no rollback; tokens jump all the same, so that none comes again"
            )
            reading = confirmed(session, head)
            return replace(reading, warnings=(*reading.warnings, plain))
    return confirmed(session, head)


def move(session: LedgerSession, to: str, there: Callable[[], Header | None]) -> Reading:
    """End the ledger here, and go on with it at another place. Nothing is done if it moved already.

    ``there`` reads the ledger at that place. Raises PolicyRefused for whoever is not an admin, if
    there are any, and Invalid if a ledger is there that this one did not leave behind.
    """
    session.check_holder()
    former = session.store.place
    head = session.store.fetch(session.layer)
    if head.ledger is None or session.store.place != former:
        return confirmed(session, head)
    # Before it ends here: beside another one it could not go on, and everybody were locked out.
    found, own = there(), head.ledger.header.ledger_id
    if found is not None and (found.ledger_id != own or found.moved_to is None):
        what = "a copy of this ledger" if found.ledger_id == own else "another ledger"
        raise Invalid(
            f"the ledger cannot move there: {what} is at that place already",
            hints=("remove its ref there first, if nobody uses it",),
        )
    session.settle()
    op = MoveLedger(id=fresh_id(), actor=session.actor, to=to)

    def decide(heads: Mapping[str, Snapshot]) -> Mapping[str, Decided]:
        # Somebody else may move it meanwhile: then it must not move from there to there.
        if session.store.place != former:
            raise _Moved
        return {layer: session.transaction.decided(head, [op]) for layer, head in heads.items()}

    with suppress(_Moved):
        session.transaction.carry_out_on([session.layer], decide, what="the move")
    return confirmed(session, session.store.fetch(session.layer))


class _Moved(Exception):
    """The ledger has moved already; this leaves no verb."""


def _check_may_restore(session: LedgerSession, ledger: Ledger, way: str = "undo") -> None:
    deed = f"{way} its rollback"
    check_admin(ledger.header.policy, session.actor.holder, deed, restore_hint(way))


def _check_may_replace(session: LedgerSession) -> Snapshot | None:
    """Raise PolicyRefused where no admin would put a new ledger in the place of a deleted one.

    Else whoever deletes it could shut its admins out. Asked before what is known is given up, which
    is returned.
    """
    store, layer = session.store, session.layer
    known, missing = store.known(layer), None
    if known is not None and known.ledger is not None:
        with suppress(PolicyRefused):
            _check_replaces(session, known)
            return known
    try:
        store.fetch(layer)
    except AnotherLedger as error:
        missing = error if error.gone else None
    except (Unavailable, Denied):
        raise
    except GitleaseError:
        pass  # what is wrong otherwise is said next
    # A ledger that was moved is known where it went on.
    known = store.known(layer) or known
    if missing is not None and known is not None:
        _check_replaces(session, known)
    return known


def _check_replaces(session: LedgerSession, deleted: Snapshot) -> None:
    if deleted.ledger is not None:
        check_admin(
            deleted.ledger.header.policy,
            session.actor.holder,
            "make another one in its place",
            hint("one of them can bring it back: {}", "init", restore=True),
            who="the admins of the deleted ledger",
        )


def _restore(session: LedgerSession, *, above: int, instead_of: str | None = None) -> None:
    op = Restore(id=fresh_id(), actor=session.actor, above=above)
    if instead_of is None:
        change(session, "init", [op])
        return
    expected = {session.layer: instead_of}

    def decide(heads: Mapping[str, Snapshot]) -> Mapping[str, Decided]:
        return {layer: session.transaction.decided(head, [op]) for layer, head in heads.items()}

    def send(prepared: Prepared) -> Swapped:
        return session.store.swap(replace(prepared, expected=expected))

    session.transaction.carry_out_on([session.layer], decide, what="the restoration", send=send)


def confirmed(session: LedgerSession, head: Snapshot) -> Reading:
    """The answer about the ledger that is there now."""
    head = session.store.known(session.layer) or head
    warnings = (*session.store.warnings, *session.warnings_of(head))
    if head.ledger is None:
        return Reading(warnings=warnings)
    header = head.ledger.header
    return Reading(
        policy=header.policy,
        ledger_id=header.ledger_id,
        revision=header.revision,
        warnings=warnings,
    )
