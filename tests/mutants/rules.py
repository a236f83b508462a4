"""The rules of leases: time, whose a lease is, tokens, what overlaps, runs and edges."""

from __future__ import annotations

RULES = {
    "skew ignored": ("lease.expires_at + margins.skew * MS", "lease.expires_at"),
    "drift ignored": (
        "duration + -(-duration * margins.drift // MILLION) + margins.grace * MS",
        "duration + margins.grace * MS",
    ),
    "grace ignored": (" // MILLION) + margins.grace * MS", " // MILLION)"),
    "a change that was seen not waited for": ("wait = duration  # under", "wait = 0  # under"),
    "a contender's larger clock believed": (
        "elapsed = seen.at.elapsed_at_least(moment.now)",
        "elapsed = seen.at.elapsed_at_most(moment.now)",
    ),
    "a holder's smaller clock believed": (
        "(seen.since or seen.at).elapsed_at_most(moment.now)",
        "(seen.since or seen.at).elapsed_at_least(moment.now)",
    ),
    "a holder judged by the wall clock alone": (
        "return max(wall, later.boot_ms - self.boot_ms) if self.same_boot(later) else wall",
        "return wall",
    ),
    "a sighting of another boot counted": (
        "        if not self.same_boot(later):\n            return 0\n",
        "",
    ),
    "own grants of a step judged by sightings": (
        "None if lease.operation in self.step else self.seen(lease)",
        "self.seen(lease)",
    ),
    "a record's own margins forgotten": (
        "policy.margins.widest(lease.margins), moment.sighting",
        "policy.margins, moment.sighting",
    ),
    "a record from the future judged by the wall": (
        "future = _is_future(lease, margins, moment)",
        "future = False",
    ),
    "a duration from the future not clamped": ("duration = min(duration, longest * MS)", "pass"),
    "an expired lease taken before it lapsed": (
        "moment) is Standing.LAPSED",
        "moment) is not Standing.LIVE",
    ),
    "a live lease yields to a takeover": (
        "Relation.THEIRS: Verdicts(Verdict.HELD,",
        "Relation.THEIRS: Verdicts(Verdict.NEEDS_TAKEOVER,",
    ),
    "of several, one's own lease given again": (
        "            if op.named:\n                _refuse_own(ledger, wanted, moment)\n",
        "",
    ),
    "of several, one's own lease free before its lapse": (
        "x.same_holder(op.actor) and not x.left_behind",
        "x.same_holder(op.actor) and holder_has(x, moment)",
    ),
    "of several, the other lines kept after the grant": ("return [pick, leave]", "return [pick]"),
    "an edge ignored": ("    if not lease.edge:", "    if True:"),
    "a task goes on beside whoever has its paths": (
        "if not lease.edge or not lease.patterns:",
        "if True:",
    ),
    "completed work granted again": (
        "Relation.COMPLETED: Verdicts(Verdict.NEEDS_REOPEN,",
        "Relation.COMPLETED: Verdicts(Verdict.TAKE,",
    ),
    "an expired lease renewed": (
        "Relation.MINE_LAPSED: Verdicts(Verdict.TAKE, Verdict.LOST,",
        "Relation.MINE_LAPSED: Verdicts(Verdict.TAKE, Verdict.YES,",
    ),
    "another's lease released": (
        "Relation.THEIRS: Verdicts(Verdict.HELD, Verdict.NOT_HOLDER, Verdict.HELD)",
        "Relation.THEIRS: Verdicts(Verdict.HELD, Verdict.NOT_HOLDER, Verdict.YES)",
    ),
    "another's lease renewed": (
        "Relation.THEIRS: Verdicts(Verdict.HELD, Verdict.NOT_HOLDER,",
        "Relation.THEIRS: Verdicts(Verdict.HELD, Verdict.YES,",
    ),
    "holders compared by casefold": (
        "email.lower() if email.isascii() else email.translate(_LOWER)",
        "email.casefold()",
    ),
    "every holder taken for the caller": (
        "return same_person(self.holder, actor.holder)",
        "return True",
    ),
    "a lease of another session taken for one's own": (
        "self.same_holder(actor) and self.session in (None, actor.session)",
        "self.same_holder(actor)",
    ),
    "a renewal that acquires a later grant": (
        "if lease is not None and lease.lease_id == grant.lease_id:",
        "if lease is not None:",
    ),
    "a renewal that shortens": (
        "min(max(lease.expires_at, now + seconds * MS), now + longest)",
        "min(now + seconds * MS, now + longest)",
    ),
    "a renewal that outlasts every limit": (
        "min(max(lease.expires_at, now + seconds * MS), now + longest)",
        "max(lease.expires_at, now + seconds * MS)",
    ),
    "a sequence behind a token in use believed": (
        "if lease.token <= max(",
        "if lease.token < 0 * max(",
    ),
    "a parked lease resumed under its old token": (
        "if own is not None and decision.how is Relation.MINE and not own.parked:",
        "if own is not None and decision.how is Relation.MINE:",
    ),
    "a displaced record left in the ledger": (
        "x for x, y in blocking if gives_way_to(op, y) and not _stays_completed(x, op)",
        "x for x, y in blocking if gives_way_to(op, y) and x is own",
    ),
    "a displaced holder not told": (
        'state = give_notice(state, old, op.id, "taken_over", by.holder, now, why)',
        "pass",
    ),
    "a session bound to what another run shares": (
        "rivals = rivals_of(ledger, lease.resource, lease.scope, lease.paths)",
        "rivals = list[Lease]()",
    ),
    "a lease bound to whatever session asks": (
        "actor.session is None or not actor.session_explicit or",
        "actor.session is None or",
    ),
    "a revocation by anyone": ('    _need_admin(ledger, op.actor, "revoke a lease")\n', ""),
    "another's place in the line given up": (
        ("mine = next((t for t in before if t.id == op.ticket and _is_by(t, op.actor)), None)"),
        "mine = next((t for t in before if t.id == op.ticket), None)",
    ),
    "tickets ignored": (
        "if len(first) <= (op.passing or 0):",
        "if len(first) >= (op.passing or 0):",
    ),
    "a batch carried out in part": (
        "            if together:\n",
        "            if together and not results:\n",
    ),
    "an operation applied twice": (
        "        if known is not None:\n            raise",
        "        if known is not None and not known:\n            raise",
    ),
    "the whole overlaps none of its parts": (
        "WHOLE in (one, other) or fold(one) == fold(other)",
        "fold(one) == fold(other)",
    ),
    "scopes compared letter by letter": ("fold(one) == fold(other)", "one == other"),
    "a claimed path covers nothing itself": (
        "wanted = paths if pattern is None else (pattern, *paths)",
        "wanted = paths",
    ),
    "leases with paths not looked at": ("    if not wanted:\n", "    if not wanted or named:\n"),
    "a folder apart from what is in it": (
        "if any(one != other for one, other in zip(a.head, b.head, strict=False)):",
        "if a.head != b.head:",
    ),
    "patterns compared by what paths are read by": (
        "b.loose.meets(a.loose.tokens)",
        "b.exact.meets(a.exact.tokens)",
    ),
    "a double asterisk forgotten after a segment": ("<< 1 | held\n", "<< 1\n"),
    "an asterisk that reads one character": (
        "((here & self.inside) + self.inside) ^ self.inside",
        "(here & self.inside) << 1",
    ),
    "an asterisk that reads no empty name": (
        "return here | (here & self.stars) << 1",
        "return here",
    ),
    "a double asterisk that reads one segment": (
        "-(here & -here) & self.starts",
        "here << 1 & self.starts",
    ),
    "ranges that touch only from one side": (
        " or any(\n            low in self for low in other.edges[::2]\n        )",
        "",
    ),
    "letter case of folders counted": (
        'tuple(fold("".join(map(str, name))) for name in names)',
        'tuple("".join(map(str, name)) for name in names)',
    ),
    "an issue decided on as it was typed": (
        "[holding.spelt(operation, ledger.header.policy) for operation in operations]",
        "operations",
    ),
    "an issue in any spelling": ("holding.check_spelling(operation, state.header.policy)", "pass"),
    "a run that binds nothing": (
        "replace(lease, session=op.actor.session, host=where",
        "replace(lease, host=where",
    ),
    "a run bound to what another one shares": (
        "live and claiming.fits_session(state, lease, op.actor, moment)",
        "live",
    ),
    "unbound by any run": (
        "if not lease.same_holder(op.actor) or op.actor.session not in (None, lease.session):",
        "if not lease.same_holder(op.actor):",
    ),
    "a session's end that gives up its edges": (
        "isinstance(op, ops.RunOut) and lease.edge",
        "isinstance(op, ops.RunOut) and lease.parked",
    ),
    "a lease that outlives its session": (
        "replace(lease, renewed_at=now, expires_at=now)",
        "replace(lease, renewed_at=now)",
    ),
    "an edge abandoned as its lease lapses": (
        "until is not None and moment.now.wall_ms > until",
        "until is not None",
    ),
    "an edge abandoned without a margin": ("(after + margin) * MS", "after * MS"),
    "a wait after a restoration ignored for grants": (
        "    check_open(ledger.header, moment, op.resource.text)\n    ledger, lease = new_lease(",
        "    ledger, lease = new_lease(",
    ),
    "a wait as long as the present policy's leases": (
        "longest = max(LONGEST_TTL, policy.ttl_max)",
        "longest = policy.ttl_max",
    ),
    "renewals refused in the wait": (
        "        if set(decision.paths) - set(own.paths):\n            check_open",
        "        if decision.how is not None:\n            check_open",
    ),
    "a wait ended by anyone": (
        '    check_admin(header.policy, op.actor.holder, "end its wait")\n',
        "",
    ),
    "the epoch of a restoration that any other takes": (
        "    return days * EPOCH_SIZE + ms * _PER_MS",
        "    return days * EPOCH_SIZE",
    ),
    "a restoration that knows of a higher token passed over": (
        "known, first = max(op.above, header.token), first_token(now)",
        "known, first = header.token, first_token(now)",
    ),
    "a forged epoch accepted": (
        "    if known >= max(",
        "    if not known >= 0 * max(",
    ),
    "a lease put back for its whole time": (
        "        expires_at=lease.expires_at,\n",
        "        expires_at=now + lease.duration_ms,\n",
    ),
    "a lease put back beside one that is held": (
        "        elif TABLE[how].claim is not Verdict.YES:\n",
        "        elif TABLE[how].claim is None:\n",
    ),
    "a token put back that another lease has": ("or other.token == lease.token) and", ") and"),
    "a ledger that goes on where it was moved away": (
        "    if header.moved_to is not None and not isinstance(operation, ops.OpenMoved):",
        "    if isinstance(operation, ops.MoveLedger) and header.moved_to is not None:",
    ),
    "a ledger opened where it was not moved to": (
        "    if ledger.header.moved_to != op.at:",
        "    if ledger.header.moved_to is None:",
    ),
    "whether a commit is superseded decided by person": (
        "commit.id in later.overridden:\n",
        (
            "commit.id in later.overridden or (\n"
            "                newest is not None and makers.is_by(commit, newest.holder)\n"
            "            ):\n"
        ),
    ),
    "the pusher's own lease no reason to let earlier work pass": (
        "            if vouches(commit, named) or (newest is not None and",
        "            if (newest is not None and",
    ),
}
