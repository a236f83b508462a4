"""Checks a ledger's history from its first commit on, and reports what it could not judge."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from ledger_checker.commit import BadOperations, DeclaredStep, StepCommit, read_operations
from ledger_checker.endings import check_end
from ledger_checker.form import BadForm, LeaseRecord, LedgerHeader, read_header
from ledger_checker.grants import check_exclusive, check_grant
from ledger_checker.header_rules import check_header, check_message
from ledger_checker.listing_rules import ListingFile, check_listings
from ledger_checker.record_files import RecordFiles
from ledger_checker.renewals import check_renewal
from ledger_checker.restorations import putting_back
from ledger_checker.state import BrokenRule, JudgedStep, about
from ledger_checker.tips import SampledTips
from ledger_checker.tree_reader import LEASES, Objects, TreeReader, TreeStep

MAX_BROKEN = 1_000  # broken rules: after so many the check stops


class NoLedger(Exception):
    """A commit holds no ledger; the text says what is there instead."""


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
    git_dir: Path | str,
    tip: str,
    tips: Iterable[str] = (),
    *,
    on_step: Callable[[JudgedStep], None] = lambda _step: None,
) -> Verified:
    """Check the history of a ledger up to the commit ``tip`` (a full id).

    ``tips`` are full ids of commits that were at its ref at other times. ``on_step`` gets each step
    once it is judged, the oldest first. Raises NoLedger and UnknownFormat.
    """
    objects = Objects(git_dir)
    commits = objects.first_parents(tip)
    if not commits:
        raise NoLedger(f"{tip} is not a commit")
    judge, reader = _Judge(tip, SampledTips(objects, tips, commits)), TreeReader(objects)
    for commit in commits:
        judged = judge.take(reader.step(commit))
        if judged is not None:
            on_step(judged)
        if len(judge.broken) >= MAX_BROKEN or judge.ended:
            break
    return judge.result()


class _Judge:
    """Judges the steps of a history one by one, and keeps the state that results."""

    def __init__(self, tip: str, sampled: SampledTips) -> None:
        self.found = Verified(tip)
        self.broken: list[BrokenRule] = []
        self.ended = False
        self._sampled = sampled
        self._header: LedgerHeader | None = None
        self._begun = False
        self._cut = False
        self._records = RecordFiles()
        self._listings: dict[str, ListingFile] = {}
        self._operations: set[str] = set()
        self._nonces: set[str] = set()
        self._wordless = self._by_others_clock = 0

    def result(self) -> Verified:
        found = self.found
        why = {
            "renewals were replaced by later ones: only the result is judged": found.hidden,
            "commits of format 1 name no operations: only records are judged": self._wordless,
            "takeovers by a clock that their writer knows may be too early": self._by_others_clock,
            "history has no beginning here": self._cut,
            "sampled tips are gone": len(self._sampled.gone),
        }
        if not self.ended and len(self.broken) < MAX_BROKEN:
            self.broken += self._sampled.broken()
        found.unjudged = tuple(f"{number:d} {what}" for what, number in why.items() if number)
        found.broken = tuple(self.broken[:MAX_BROKEN])
        return found

    def take(self, tree: TreeStep) -> JudgedStep | None:
        """Judge the next commit; None if it cannot be read, and so nothing after it."""
        self.found.commits += 1
        self.broken += [BrokenRule(tree.id, rule, message) for rule, message in tree.problems]
        header = self._read_header(tree)
        if header is None or tree.commit is None:
            self.ended = True
            return None
        step = self._step(tree, tree.commit, header)
        self._judge(step, tree)
        self.broken += step.broken
        self._by_others_clock += step.unjudged
        self._sampled.passes(step)
        self._header, self._begun = header, True
        self.found.ledger_id, self.found.revision = header.ledger_id, header.revision
        self.found.decisions += not tree.commit.renewal
        self.found.hidden += step.hidden
        return step

    def _read_header(self, tree: TreeStep) -> LedgerHeader | None:
        change = tree.header
        if tree.same_tree:
            return self._header
        try:
            if change is None:
                if not self._begun and tree.commit is not None:
                    raise NoLedger(f"the commit {tree.id} has no ledger.yaml")
                raise BadForm("there is none")
            if change.data is None:
                raise BadForm(f"it {change.problem}")
            return read_header(change.data)
        except BadForm as error:
            message = f"ledger.yaml cannot be read: {error}"
            self.broken.append(BrokenRule(tree.id, "header", message))
            return None

    def _step(self, tree: TreeStep, commit: StepCommit, header: LedgerHeader) -> JudgedStep:
        before = self._header
        problem, declared = "", None
        try:
            declared = self._declared(commit, header)
        except BadOperations as error:
            problem = str(error)
        outcomes = {id: word for id, revision, word in header.ring if revision == header.revision}
        gap = 0 if before is None else header.revision - before.revision - 1
        step = JudgedStep(
            id=tree.id,
            commit=commit,
            declared=declared,
            before=before,
            header=header,
            outcomes=outcomes,
            changed={},
            hidden=gap if gap > 0 and commit.renewal else 0,
        )
        if problem:
            step.breaks("operations", problem)
        self._wordless += header.format < 2
        return step

    def _declared(self, commit: StepCommit, header: LedgerHeader) -> DeclaredStep | None:
        if header.format < 2:
            return None
        if commit.operations is None:
            raise BadOperations("its message does not name its operations, or names them twice")
        return read_operations(commit.operations)

    def _judge(self, step: JudgedStep, tree: TreeStep) -> None:
        records = [x for x in tree.changes if x.path.startswith(LEASES)]
        listings = {x.path: x for x in tree.changes if not x.path.startswith(LEASES)}
        self._records.take(step, records)
        if self._header is None and (step.commit.parents or step.header.revision != 1):
            # The oldest state here is taken as it is: its operations are not known.
            self._cut, step.declared, step.changed = bool(step.commit.parents), None, {}
            if not self._cut:
                message = f"it has no parent, and its revision is {step.header.revision}"
                step.breaks("history", f"{message}: what was before is gone")
            check_listings(step, listings, self._listings)
            return
        check_header(step)
        self._check_ids(step)
        self._check_leases(step)
        check_message(step)
        check_listings(step, listings, self._listings)

    def _check_ids(self, step: JudgedStep) -> None:
        since = 0 if step.before is None else step.before.revision
        ids = [id for id, revision, _ in step.header.ring if revision > since]
        if step.declared is not None:
            ids += [op.id for op in step.declared.operations if op.id not in step.outcomes]
        for id in ids:
            if id in self._operations:
                step.breaks("operation-twice", f"the operation {id[:64]} was applied before")
            self._operations.add(id)

    def _check_leases(self, step: JudgedStep) -> None:
        tokens: set[int] = set()
        for old, new in step.changed.values():
            if old is not None and new is not None and old.lease_id == new.lease_id:
                check_renewal(step, old, new)
                continue
            if old is not None:
                check_end(step, old)
            if new is not None:
                self._check_new(step, old, new)
                if new.token in tokens:
                    step.breaks("token", f"the token {new.token} is given twice")
                tokens.add(new.token)
        for old, new in step.changed.values():
            if new is None:
                continue
            same = old is not None and old.lease_id == new.lease_id
            granted = old is None or not same or old.patterns != new.patterns
            if granted or (old is not None and new.session not in (None, old.session)):
                check_exclusive(step, self._records.table, new, granted=granted)

    def _check_new(self, step: JudgedStep, old: LeaseRecord | None, new: LeaseRecord) -> None:
        is_back = putting_back(step, new) is not None
        self.found.leases += not is_back
        if new.lease_id in self._nonces and not is_back:
            step.breaks("nonce", f"{about(new)} has the nonce of another grant")
        self._nonces.add(new.lease_id)
        check_grant(step, old, new)
