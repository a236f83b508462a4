"""What stands around the ledger: the server, the fenced push, the guard, task files, heartbeats."""

from __future__ import annotations

OUTSIDE = {
    "the client's word for what a ref was believed": (
        "            if x.old != self._refs.now(x.ref)\n",
        "            if not x.ref\n",
    ),
    "what cannot be judged passes": (
        "return [Refusal(ref, FAULT, error.message, (*error.hints, UNJUDGED))]",
        "return []",
    ),
    "a fault of the judge passes": (
        'return [Refusal(ref, FAULT, f"internal error: {what}", (UNJUDGED,))]',
        "return []",
    ),
    "what was written not compared": ("    if expected == tree:\n", "    if expected:\n"),
    "what a commit tells not compared": (
        "if not commit.is_made_by(record, applied):",
        "if not applied:",
    ),
    "a step pushed under another's name": ("    _check_writer(record, pusher)\n", ""),
    "a writer's clock not compared": ("    _check_clock(base, record.at, now_ms)\n", ""),
    "a takeover ahead of the server's clock": (
        "    _check_takeovers(applied, record, now_ms)\n",
        "",
    ),
    "recent changes not told along": (
        "replace(record, recent=recent, over=over)",
        "replace(record, over=over)",
    ),
    "a ledger deleted": ('raise Illegal("delete", "a ledger is never deleted")', "return"),
    "a decision replaced at the server": (
        "            _check_replacement(objects, old, steps[0])\n",
        "",
    ),
    "work judged by the new ledger alone": (
        'for head in (refs.now(ref), moves.get(ref, ""))',
        'for head in (moves.get(ref, "") or refs.now(ref),)',
    ),
    "a ledger's ref in other letters taken for work": (
        'bare = _NAMESPACE.sub("", ref).lower()',
        'bare = _NAMESPACE.sub("", ref)',
    ),
    "a fenced push that leaves the ledger as it is": (
        "[*([renewal] if grants else []), *along]",
        "[*along]",
    ),
    "a lost grant pushed under": (
        "            for refusal in outcome.refused:\n",
        "            for refusal in outcome.refused[1:]:\n",
    ),
    "work and ledger not pushed together": ('*(["--atomic"] if work.atomic else []), ', ""),
    "forced work without a lease on its ref": (
        "for x in moved if x.became is Became.FORCED]",
        "for x in moved if not x.ref]",
    ),
    "a fenced push without a lease on the ledger": (
        "words += leases_of(moves, (x.new for x in moved if x.new))",
        'words += ["--force"] if moves else []',
    ),
    "a ref of the repository that follows a ledger": (
        'if name == push.url or _follower(f"{prefix}/any", specs) is None:',
        "if name:",
    ),
    "a newer token taken for the one asked for": ("if x.token == token", "if x.token >= token"),
    "the token not exported": ('" ".join(str(view.token) for view in self.answer.leases)', '""'),
    "a guard that opens on a rollback": (
        "if strict and isinstance(error, Rollback) and not recorded:",
        "if not strict and isinstance(error, Rollback) and not recorded:",
    ),
    "an idle marker that never ends": (
        "clear.append(now + self._max_age * MS - self._age_ms(cached) if free else 0)",
        "clear.append(now + 10**15 if free else 0)",
    ),
    "an idle marker while others hold something": (
        "free = not runs and not cached.leases.has_others(self._actor.holder)",
        "free = not runs",
    ),
    "what others hold only warned of": (
        "Relation.THEIRS: Severity.BLOCK",
        "Relation.THEIRS: Severity.WARN",
    ),
    "old knowledge enough for a push": (
        "if kept is not None and not (strict or fresh) and self._is_young(kept):",
        "if kept is not None and not fresh and self._is_young(kept):",
    ),
    "the side that a merge gives up nobody's": (
        "if lost := history.lost(self.names, followed):",
        "if lost := history.lost(self.names, ()) if not followed else ():",
    ),
    "the first parent of a merge always right": (
        "            followed = self.kept\n",
        "            followed = (True,) * len(self.kept)\n",
    ),
    "objects of a guard's look left in the repository": (
        '"GIT_OBJECT_DIRECTORY": folder,',
        '"GIT_OBJECT_DIRECTORY": own,',
    ),
    "hooks of the clone run as an edge is committed": (
        'quiet = ("-c", "core.hooksPath=/dev/null")',
        "quiet = ()",
    ),
    "intents left behind not repaired": ("left = files.left_behind()", "left = ()"),
    "an intent that could not be made kept from the next command": (
        "entry.name, entry.value, abandoned=True, written=entry.written",
        "entry.name, entry.value, written=entry.written",
    ),
    "an intent finished that was never granted": (
        "if intent.goal == HELD and held:",
        "if intent.goal == HELD:",
    ),
    "a holder who believes past the deadline": (
        "if self._until_given_up(k.hold, now) <= 0]",
        "if self._until_given_up(k.hold, now) < -(10**9)]",
    ),
    "a lost grant kept alive": (
        "            del self._kept[one.hold.grant.lease_id]\n",
        "            self._kept.get(one.hold.grant.lease_id)\n",
    ),
    "the client's word for what every ref is believed": (
        "        self._refs = read_refs(repository, lines, prefixes)\n",
        (
            "        self._refs = read_refs(repository, lines, prefixes)\n"
            "        self._refs = type(self._refs)(\n"
            "            {**self._refs.ids, **{self._refs.space + x.ref: x.old for "
            "x in lines}},\n"
            "            self._refs.points,\n"
            "            self._refs.main,\n"
            "            self._refs.space,\n"
            "        )\n"
        ),
    ),
    "orphans of a command adopted by nobody": (
        "prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0",
        "prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) == 0",
    ),
    "what left a command's session not ended": (
        "            found = below(self.guardian, every)\n",
        "            found = [x for x in every.values() if x.group == self.number]\n",
    ),
    "a displaced holder's release answered as done": (
        "        raise _without_own_edge(session, wanted[0], refusal, commit) from None\n",
        (
            "        if taken_from(session, wanted[0]) is None:\n"
            "            raise _without_own_edge(session, wanted[0], refusal, commit) from None\n"
            '        return Answer(status="released")\n'
        ),
    ),
    "what was written while work landed overwritten": (
        "            return new if data == old else data\n",
        "            return new\n",
    ),
}
