"""Verifies a ledger's history: carries out every step again, and compares it with what was written.

Each step is judged as a server's hook would have judged its push, without what only a server
knows: who pushed, and when by its own clock. The rules are those of the writers, so this finds who
bypasses gitlease, not a mistake in gitlease.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from gitlease.kernel.git.objects import GitObjects, PipedObjects
from gitlease.kernel.git.repository import OFFLINE, Pieces, Repository, ask
from gitlease.kernel.git.run import clean_environment
from gitlease.kernel.rules.errors import GitleaseError
from gitlease.kernel.rules.instant import MS
from gitlease.kernel.rules.lease import History, Rule
from gitlease.kernel.rules.ledger import MAX_STEP, Ledger
from gitlease.kernel.rules.moves.operations import Claim, Complete, Outcome
from gitlease.kernel.rules.moves.transitions import (
    Applied,
    Illegal,
    StepRecord,
    check_nonces,
    repeat,
)
from gitlease.kernel.store.object_store import open_objects
from gitlease.kernel.store.records import (
    HEADER_FILE,
    MAX_HEADER,
    BadRecord,
)
from gitlease.kernel.store.tree import GitRecords, LedgerCommit, read_commit, read_ledger
from gitlease.server.receive import repeat_step, step_record

MAX_BROKEN = 1_000  # broken rules: after so many the check stops
SECONDS = 600.0  # for one answer of git
_LEFT_OPEN = (HEADER_FILE, "leases", "paths", "notices", "waiting")  # what renewals may change


class NoLedger(Exception):
    """A commit holds no ledger; the text says what is there instead."""


@dataclass(frozen=True, slots=True)
class BrokenRule:
    """A rule that a commit breaks: its name, and a sentence."""

    commit: str
    rule: str
    message: str


@dataclass(slots=True)
class Verified:
    """The result of a check. ``unjudged`` are sentences about what could not be judged.

    ``revision`` is that of the tip, ``hidden`` the number of renewals that were replaced.
    """

    tip: str
    ledger_id: str = ""
    revision: int = 0
    commits: int = 0
    decisions: int = 0
    hidden: int = 0
    leases: int = 0
    unjudged: tuple[str, ...] = ()
    broken: tuple[BrokenRule, ...] = ()


def verify(
    repository: Repository,
    tip: str,
    tips: Iterable[str] = (),
    *,
    environ: Mapping[str, str],
    is_own: bool = False,
) -> Verified:
    """Check the history of a ledger up to the commit ``tip`` (a full id).

    ``tips`` are full ids of commits that were at its ref at other times. ``is_own``: the repository
    is a store of gitlease's own. Raises NoLedger, and Invalid for a newer format and if git does
    not answer.
    """
    objects: GitObjects
    if is_own:
        objects = open_objects(repository.common_dir, len(tip) // 2, brief=False)
    else:
        objects = PipedObjects(repository.common_dir, {**clean_environment(environ), **OFFLINE})
    # The oldest first. A clone with a part of a history begins where git says that it does.
    commits: list[str] = []
    pieces = Pieces(b"\n", lambda line: commits.append(line.decode("ascii", "replace")))
    words = ("rev-list", "--first-parent", "--reverse", tip, "--")
    listed = ask(repository, *words, timeout=SECONDS, on_out=pieces.more)
    if listed.code != 0 or listed.timed_out:
        raise listed.failure("the history cannot be read")
    if not commits:
        raise NoLedger(f"{tip} is not a commit")
    replay = _Replay(objects, tip)
    for version in commits:
        if not replay.take(version) or len(replay.broken) >= MAX_BROKEN:
            return replay.result()
    known = set(commits)
    for seen in (tip for tip in dict.fromkeys(tips) if tip not in known):
        replay.check_seen(seen, commits)
    return replay.result()


def check_past(objects: GitObjects, commits: Sequence[str]) -> None:
    """Carry out a ledger's history again, the oldest commit first. Raises Illegal."""
    replay = _Replay(objects, commits[-1])
    try:
        for version in commits:
            if not replay.take(version) or replay.broken:
                break
    except NoLedger as error:
        raise Illegal("commit", str(error)) from None
    for broken in replay.broken[:1]:
        raise Illegal(
            broken.rule, f"its past is not legal at {broken.commit[:10]}: {broken.message}"
        )


class _Replay:
    """Goes through a history step by step, and keeps what was found on the way."""

    def __init__(self, objects: GitObjects, tip: str) -> None:
        self.broken: list[BrokenRule] = []
        self._objects, self._verified = objects, Verified(tip)
        self._before = ""
        self._ledger: Ledger | None = None
        self._operations, self._nonces = set[str](), set[str]()
        self._cut = False
        self._wordless = self._by_others_clock = self._absent = self._again = 0

    def result(self) -> Verified:
        tally = self._verified
        early = "by a clock that only its writer knows: it may have been too early"
        counted = (
            (tally.hidden, "renewal", "replaced by later ones: of those only the result is judged"),
            (self._wordless, "commit", "of format 1, which names no operations"),
            (self._by_others_clock, "takeover", early),
            (self._again, "id", "of operations or grants, used again long after"),
        )
        why = [f"{several(number, what)} {words}" for number, what, words in counted if number]
        if self._cut:
            why.append("this clone has only part of the history: what was before is not judged")
        if self._absent:
            why.append(
                f"nothing is left of {several(self._absent, 'sampled tip')} in this repository"
            )
        tally.unjudged, tally.broken = tuple(why), tuple(self.broken[:MAX_BROKEN])
        return tally

    def take(self, version: str) -> bool:
        """Judge the next commit; False if it cannot be read, and so nothing after it."""
        verified, before = self._verified, self._ledger
        verified.commits += 1
        commit = read_commit(self._objects, version)
        if commit is None:
            self._breaks(version, "commit", "it cannot be read as a step of a ledger")
            return False
        try:
            ledger = read_ledger(self._objects, version)
        except GitleaseError as error:
            if error.hints:
                raise  # a newer format: nothing is wrong with it
            if before is None:
                raise NoLedger(f"the commit {version}: {error}") from None
            self._breaks(version, "header", str(error))
            return False
        try:
            self._judge(commit, before, ledger)
        except Illegal as error:
            self._breaks(version, error.rule, error.message)
        except GitleaseError as damage:
            self._breaks(version, "damaged", str(damage))
        self._before, self._ledger = version, ledger
        verified.ledger_id, verified.revision = ledger.header.ledger_id, ledger.header.revision
        verified.decisions += not commit.only_renews
        return True

    def _judge(self, commit: LedgerCommit, before: Ledger | None, ledger: Ledger) -> None:
        header = ledger.header
        if len(commit.parent_ids) > 1:
            raise Illegal("merge", "a step of a ledger has one parent, and this is a merge")
        # A shallow clone: the first commit here can only be the measure of the next one.
        if before is None and commit.parent_ids:
            self._cut = True
            return
        old = before.header if before is not None else None
        if old is not None and header.format < old.format:
            raise Illegal("format", f"the format falls from {old.format} to {header.format}")
        # Format 1 is for the beginning of a history alone: no step goes back to it.
        if self._wordless == self._verified.commits - 1:
            data = _records(ledger).read(HEADER_FILE, MAX_HEADER) or b""
            if data.startswith(b"format: 1\n"):
                self._wordless += 1
                return
        gap = header.revision - old.revision - 1 if old is not None else 0
        # A renewal may replace the one before it, so that revisions are missing and are no breach.
        if before is not None and gap > 0 and commit.is_renewal:
            self._verified.hidden += gap
            record = step_record(commit)
            _check_replaced(record, commit, before, ledger)
            self._take_ids([x.id for x in record.operations])
            return
        record, applied = repeat_step(
            self._objects, self._before, commit.id, lambda step: repeat(before, step)
        )
        self._take_ids([x.id for x in record.operations])
        self._take_grants(record, applied, before)

    def _take_ids(self, ids: Sequence[str]) -> None:
        for id in ids:
            self._again += id in self._operations  # the ring, which clients go by, has forgotten it
            self._operations.add(id)

    def _take_grants(self, record: StepRecord, applied: Applied, before: Ledger | None) -> None:
        policy = applied.ledger.header.policy
        for operation, outcome in zip(record.operations, applied.results, strict=True):
            if not isinstance(outcome, Outcome):
                continue
            if isinstance(operation, Claim | Complete):
                nonce = operation.lease_id
                granted = any(lease.lease_id == nonce for lease in outcome.leases)
                self._verified.leases += granted
                # Only what the ledger still knows is a breach: what it has forgotten no server
                # could refuse.
                if granted and nonce in self._nonces:
                    check_nonces(before or applied.ledger, record)
                    self._again += 1
                self._nonces.add(nonce)
            for lease in outcome.displaced:
                if not lease.same_holder(operation.actor) and outcome.status != "revoked":
                    margins = policy.margins.widest(lease.margins)
                    # Whether it had expired only the clock of who took it over could tell.
                    ahead = lease.renewed_at > record.at + margins.skew * MS
                    self._by_others_clock += margins.rule is Rule.OBSERVED or ahead

    def check_seen(self, tip: str, commits: Sequence[str]) -> None:
        """Check a commit that was at the ref: only a renewal may be gone, for a later one."""
        seen = read_commit(self._objects, tip)
        if seen is None:
            self._absent += 1
            return
        if seen.is_renewal and seen.parent_ids[0] in commits:
            after = commits.index(seen.parent_ids[0]) + 1
            if after < len(commits) and self._replaces(commits[after], tip):
                return
        self._breaks(tip, "rewound", "it was at the ref, but is no longer in the history")

    def _replaces(self, version: str, tip: str) -> bool:
        if (there := read_commit(self._objects, version)) is None or not there.is_renewal:
            return False
        try:
            now, then = (read_ledger(self._objects, x).header for x in (version, tip))
        except GitleaseError:
            return False
        mine = [entry.operation for entry in then.ring if entry.revision == then.revision]
        # The ring is of limited length: an operation may have left it since.
        reaches = bool(now.ring) and now.ring[0].revision <= then.revision
        kept = not reaches or all(now.entry(id) is not None for id in mine)
        return now.revision > then.revision and kept

    def _breaks(self, commit: str, rule: str, message: str) -> None:
        self.broken.append(BrokenRule(commit, rule, message))


def _check_replaced(
    record: StepRecord, commit: LedgerCommit, before: Ledger, after: Ledger
) -> None:
    """Check what no renewal may change: those before this one were replaced, and are not known."""
    old, new = before.header, after.header
    if old.policy.history is not History.REPLACE:
        raise Illegal("revision", "renewals are missing, and by the ledger's policy they append")
    fixed = ("ledger_id", "epoch", "sequence", "policy", "digest", "format", "closed_until")
    if changed := next((key for key in fixed if getattr(old, key) != getattr(new, key)), ""):
        raise Illegal("header", f"a renewal changes the {changed} of the ledger")
    kept = [entry for entry in new.ring if entry.revision <= old.revision]
    later = [entry for entry in new.ring if entry.revision > old.revision]
    revisions = [entry.revision for entry in later]
    mine = [entry.operation for entry in later if entry.revision == new.revision]
    # The ring drops its oldest entries as new ones come.
    ends = [*old.ring[len(old.ring) - len(kept) :]]
    if revisions != sorted(revisions) or kept != ends or mine != [x.id for x in record.operations]:
        raise Illegal("ring", "the ring is not the one before with renewals added")
    if commit.time != record.at // MS:
        raise Illegal("commit", "the time of the commit is not that of its step")
    was, now = (_records(x).entries("") for x in (before, after))
    for name in sorted(was.keys() | now.keys()):
        if name not in _LEFT_OPEN and was.get(name) != now.get(name):
            raise Illegal("unexplained", f"{ascii(name)[:80]} changes in a renewal")
    reaches = bool(new.ring) and new.ring[0].revision <= old.revision + 1
    known = {entry.operation for entry in later} if reaches else None
    most = (new.revision - old.revision) * MAX_STEP
    for file, was_there in _records(after).changed_since(_records(before)):
        if not was_there:
            raise Illegal("record", f"{ascii(file)[:160]} is not of a lease that was there before")
        _check_renewed(file, before, after, most, known)


def _check_renewed(
    file: str, before: Ledger, after: Ledger, most: int, known: set[str] | None
) -> None:
    try:
        old, new = _records(before).read_at(file), _records(after).read_at(file)
        is_as_written = _records(after).has_form_of(file, new)
    except BadRecord as error:
        raise Illegal("record", f"a renewal changes {ascii(file)[:160]}: {error}") from None
    policy = after.header.policy
    fits = {
        "operation": known is None or new.operation in known,
        "renewed_at": new.renewed_at >= old.renewed_at,
        "expires_at": 0 < new.duration_ms <= max(policy.ttl_max * MS, old.duration_ms),
        "renewals": 0 < new.renewals - old.renewals <= most,
        "ttl": new.ttl == old.ttl or policy.ttl_min <= new.ttl <= policy.ttl_max,
        "margins": old.margins.widest(new.margins) == new.margins,
        "edge": new.edge or not old.edge,
        "host": old.host is None,
        "branch": True,  # of the last claim that renewed it, and may be replaced
    }
    wrong = [x for x, y in vars(old).items() if vars(new)[x] != y and not fits.get(x, False)]
    # Whoever writes a record by hand writes other bytes than gitlease would.
    if not wrong and not is_as_written:
        wrong = ["form"]
    if wrong:
        raise Illegal("record", f"the {wrong[0]} of {new.resource} changes in a renewal")


def _records(ledger: Ledger) -> GitRecords:
    return cast(GitRecords, ledger.records)


def several(number: int, what: str) -> str:
    """A number of things, in words."""
    return f"{number:,} {what}" + ("" if number == 1 else "s")
