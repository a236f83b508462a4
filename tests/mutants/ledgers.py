"""The ledger: deciding and swapping, what a clone knows, and files that anybody may write."""

from __future__ import annotations

LEDGERS = {
    "a token kept": ("replace(header, sequence=header.sequence + 1)", "header"),
    "the ring forgotten": ("ring = (*self.ring, *entries)", "ring = entries"),
    "the ring cut within a step": (
        "ring = ring[next(n for n, entry in enumerate(ring) if entry.revision != oldest) :]",
        "ring = ring[1:] if oldest else ring",
    ),
    "a ring too short taken for a loss": (
        "Fate.LOST if self.ring_reaches(base_revision) else Fate.UNKNOWN",
        "Fate.LOST",
    ),
    "a revision that stays for renewals": (
        "revision=self.revision + 1, ring",
        "revision=self.revision + decision, ring",
    ),
    "a chain of digests that stands still": (
        "        if decision:\n",
        "        if digest is None:\n",
    ),
    "renewals chained as decisions": ("        if decision:\n", "        if True:\n"),
    "a refusal given from old knowledge": (
        "                if not stale:\n                    raise\n",
        "                raise\n",
    ),
    "a lost change not decided again": (
        ("                if swapped.fate is not Fate.APPLIED:\n                    tries += 1"),
        "                if swapped.fate is Fate.UNDECIDED:\n                    tries += 1",
    ),
    "a late answer believed": ("elapsed >= lease.duration_ms", "elapsed >= 2 * lease.duration_ms"),
    "a late answer judged by the smaller clock": (
        "elapsed = moment.now.elapsed_at_most(now)",
        "elapsed = moment.now.elapsed_at_least(now)",
    ),
    "an undecided change given up without a barrier": (
        "        fenced = self._store.swap(barrier)\n",
        "        raise Unavailable(what)\n        fenced = self._store.swap(barrier)\n",
    ),
    "a denied change taken for one that may land yet": (
        "            self._store.forget_pending(prepared)  # so it said of every try\n",
        "            self._leave_open(prepared)\n",
    ),
    "a denied change called lost": (
        (
            "            self._store.forget_pending(prepared)  # so it said of "
            "every try\n"
            "            raise _failure(swapped, what)"
        ),
        "            return Swapped(fate=Fate.LOST, heads=swapped.heads)",
    ),
    "a refusal after an unanswered try believed": (
        "            in_doubt = in_doubt or swapped.cause is Cause.UNREACHABLE\n",
        "",
    ),
    "refused work after an unanswered try believed": (
        "if swapped.cause is Cause.WORK and not in_doubt:",
        "if swapped.cause is Cause.WORK:",
    ),
    "an undecided change decided anew": (
        "            self._clock.sleep(self._dice.uniform(0.0, ceiling))",
        "            return Swapped(fate=Fate.LOST, heads=swapped.heads)",
    ),
    "an unknown outcome forgotten": (
        "        self._leave_open(prepared)\n        return UnknownOutcome(",
        "        self._store.forget_pending(prepared)\n        return UnknownOutcome(",
    ),
    "a push without a lease on the ledger": (
        "args += leases_of(moves)",
        'args += ["--force"]',
    ),
    "several ledgers pushed one by one": ('        args.append("--atomic")\n', "        pass\n"),
    "a read-back skipped": (
        "return self._read_back(prepared, pushed, work)",
        "return Swapped(Fate.APPLIED, {x: self.adopt(y, prepared.versions[x])"
        " for x, y in prepared.changes.items()})",
    ),
    "silence taken for a loss": (
        "            return Fate.UNDECIDED\n        fate = head.ledger",
        "            return Fate.LOST\n        fate = head.ledger",
    ),
    "a renewal that history forgot called lost": (
        "if told is not None and pending.decision else",
        "if told is not None else",
    ),
    "that it was sent is forgotten": ("self._sent |= operations", "pass"),
    "no word before a push": (
        ("            self.state(layer).add_pending(pending_of(prepared, layer))\n        swapped"),
        "            self.state(layer)\n        swapped",
    ),
    "a change of a killed command never settled": (
        "return not isinstance(error, ProcessLookupError)",
        "return True",
    ),
    "a decision in the place of a renewal": (
        "if not change.renewal or change.base.ledger is None:",
        "if change.base.ledger is None:",
    ),
    "a renewal in the place of a decision": (
        'return decision(self.storage, base) not in ("", base)',
        "return True",
    ),
    "a first sighting taken for a change": (
        "self.sighted.get(file) or Sighting(at=self.base, changed=False)",
        "self.sighted.get(file) or Sighting(at=self.base, changed=True)",
    ),
    "a change taken for a first sighting": (
        "seen[file] = Sighting(at=now, changed=there)",
        "seen[file] = Sighting(at=now, changed=False)",
    ),
    "sightings of another boot kept": ("if self.base.same_boot(now):", "if self.base:"),
    "a holder's time counted from the answer": (
        "known = _credited(replace(known, received=change.at), change, None)\n",
        (
            "known = _credited(replace(known, received=change.at), change, None)\n"
            "        late = {k: replace(x, at=self.clock.now()) for k, x in "
            "known.sighted.items()}\n"
            "        known = replace(known, sighted=late)\n"
        ),
    ),
    "a holder's time counted from the read-back": (
        "Sighting(at=change.at, changed=before is not None)",
        "Sighting(at=known.received, changed=before is not None)",
    ),
    "time of a killed command's change counted from its discovery": (
        "found[lease_file(lease)] = own",
        "found[lease_file(lease)] = Sighting(at=now, changed=True)",
    ),
    "another's grant counted from one's own note": ("since=since if ms else None", "since=None"),
    "a rollback believed once it was overtaken": (
        "header.revision <= before.revision or not self._goes_on(layer, before, ledger, version)",
        "header.revision <= before.revision",
    ),
    "a renewal that was rolled back forgotten": (
        "any(x.lease_id == nonce and x.renewals >= most for x in _leases_of(there, text))",
        "True",
    ),
    "a digest taken for any other": (
        "if before.digest is None or before.digest != ledger.header.digest:",
        "if before.digest is None:",
    ),
    "another ledger believed": (
        "        if ledger.header.ledger_id != before.ledger_id:\n            raise AnotherLedger(",
        "        if not ledger.header.ledger_id:\n            raise AnotherLedger(",
    ),
    "a ledger that is gone made anew": (
        "if before is not None or former is not None:",
        "if before is not None and not before:",
    ),
    "what another process learnt overwritten": (
        "further = self.revision > other.revision or",
        "further = self.revision < other.revision or",
    ),
    "hooks of the clone run in the private store": ('    "core.hooksPath": "/dev/null",\n', ""),
    "work not read back": (
        "there and work.is_undone(there)",
        "not there and work.is_undone(there)",
    ),
    "a marker that outlives the head it was made of": (
        "moved = there is None or there.version != joined.version",
        "moved = there is None",
    ),
    "renewed along again for one wish": (
        "if lease.renewed_at != hold.since.wall_ms:",
        "if lease.renewed_at < hold.since.wall_ms:",
    ),
    "a dead process's wish fulfilled": ("if _exists(process):", "if process:"),
    "what another person asked for along, in vain": (
        "lease = still_held(ledger, hold.grant, holder, moment)",
        (
            "lease = ledger.lease(hold.grant.resource, hold.grant.scope)\n"
            "                assert lease"
        ),
    ),
    "another's renewal counted from now": (
        "at = replace(moment, now=min(instants, key=lambda x: x.wall_ms))",
        "at = moment",
    ),
    "a renewal by another clone relied on": (
        "if since.wall_ms != lease.renewed_at:",
        "if not lease.renewed_at:",
    ),
    "what went along taken for the answer": (
        "results = step.applied.results[len(along) :]",
        "results = step.applied.results",
    ),
    "another step with one's own claim taken for one's own": (
        "if all(self.entry(operation) for operation in operations):",
        "if any(self.entry(operation) for operation in operations):",
    ),
    "an end done by another's renewal": (
        "if isinstance(first, Renew) and not others and own",
        "if not others and own",
    ),
    "a newer format read": (
        "if newer is not None and int(newer[1]) > NEWEST_FORMAT:",
        "if newer is None and NEWEST_FORMAT < 0:",
    ),
    "records read however large": ("MAX_RECORD = 64 * 1024", "MAX_RECORD = 64 * 1024**3"),
    "aliases followed": ("    if node.shape is Shape.ALIAS:\n", "    if node.shape is None:\n"),
    "anchors and tags accepted": (
        "    if node.anchor or node.tag:\n",
        "    if node.anchor and node.tag:\n",
    ),
    "a key that stands twice accepted": (
        "        if key.text in lines:\n",
        "        if key.text in ():\n",
    ),
    "records nested without end": (
        "        if depth > max_depth:\n            raise BadYaml(",
        "        if depth > 10**9:\n            raise BadYaml(",
    ),
    "a record under another's name believed": (
        "if lease_file(found) != file:",
        "if not lease_file(found):",
    ),
    "a damaged record that covers paths passed over": (
        'if rows is None or any(x.file.startswith("paths") for x in damaged):',
        "if rows is None:",
    ),
    "a link read as a record": (
        "if entry.mode not in (FILE, EXECUTABLE):",
        "if entry.mode == FOLDER:",
    ),
    "two records of one resource believed": (
        "if len(keys) != len(found):",
        "if len(keys) > len(found):",
    ),
    "a spoilt object believed": (
        'self._proven, self._found = proven, ""',
        'self._proven, self._found = False, ""',
    ),
    "an answer to another question believed": (
        "self._proven and object_id(kind, data, len(id) // 2) != id",
        "False",
    ),
    "a restored ledger with tokens that were given before believed": (
        "    return may and closed and same and after.token > known.token",
        "    return may and closed and same",
    ),
    "a restored ledger that waits for nothing believed": (
        "    return may and closed and same and",
        "    return may and same and",
    ),
    "a restoration by whoever may not believed": (
        "    return may and closed and",
        "    return closed and",
    ),
    "a new ledger that waits for nothing in the place of a deleted one": (
        "    if not head.lost:\n        return [Barrier",
        "    if head.ledger is None:\n        return [Barrier",
    ),
    "a place of the ledger by the work tree": (
        "    given = main.found if knows_main else tree\n",
        "    given = tree or main.found\n",
    ),
    "a place that main does not name followed": (
        "            if values_of(main) != values:\n                where =",
        "            if main is None:\n                where =",
    ),
    "a recorded id that is unknown taken for none": (
        "    if id is None and unknown:\n",
        "    if id is not None and unknown:\n",
    ),
    "a file of main that cannot be read taken for absent": (
        '        return _unknown(f"{path} {why}")\n',
        "        return ABSENT if why else _unknown(path)\n",
    ),
    "a clone that lost its remote granted on a ledger of its own": (
        "                recorded=recorded, lacking=True, left=self._left, undecided=undecided\n",
        "                undecided=undecided\n",
    ),
    "trouble of a host taken for a refusal": (
        "        return Cause.TROUBLE if kind is Rejection.TROUBLE else Cause.REFUSED",
        "        return Cause.REFUSED",
    ),
    "the wait of a restored ledger skipped": (
        "closed_until=max(until, header.closed_until or 0),",
        "closed_until=now,",
    ),
    "an epoch that another restoration could have taken": (
        "        epoch=first // EPOCH_SIZE,\n        sequence=first % EPOCH_SIZE,\n",
        "",
    ),
    "live leases forgotten on a move": (
        "    header = replace(ledger.header, moved_to=None)\n",
        "    for lease in [*ledger.every_lease()]:\n        ledger = ledger.remove(lease)\n"
        "    header = replace(ledger.header, moved_to=None)\n",
    ),
    "a ledger that moved and was deleted begun again": (
        "        if self._is_late(former, last):\n",
        "        if not last.version:\n",
    ),
    "a ledger that moved already moved from its new place": (
        "        if session.store.place != former:\n            raise _Moved",
        "        if not former:\n            raise _Moved",
    ),
    "a release found late by the first in line": (
        "first_for * PART_OF_WAIT",
        "first_for",
    ),
    "a look put off for ever by one answer": ("        self._looked = head.received\n", ""),
    "what was seen forgotten between two looks": (
        "if before and _id_of(remote_has) == before.ledger_id:",
        "if before and _id_of(remote_has) == before.version:",
    ),
}
