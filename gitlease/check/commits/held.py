"""Which claims of others commits broke: what was held when they were made, and what is held now.

Who stands for a commit: its author and its committer, and for whose claims are broken also whoever
brings it. If any of them is the holder, nothing is broken. A co-author is a claim of whoever wrote
the message, and whoever asks for the commits to be merged need not have made them: where only such
a one is the holder, it is a warning, never an error, and never nothing. Addresses of one person
count as one (see ``Addresses``).

Which time counts, since a commit has two and neither is proven:

- *Made* is the author date. Rebases, amendments and cherry-picks keep it, so that honest work stays
  honest when it is moved. Only where it cannot be (missing, or in the future) the committer date
  stands for it. *Recorded* is the committer date.
- A squash has the author date of when it was squashed. Where a host did that both dates are the
  merge's: claims are judged by it, for then it landed, but no token is (see ``violations``).
- A commit was made under another's lease when its author date lies in the time of that lease. When
  only the committer date does, it may have been moved or made then: that is a warning, never an
  error. Git tells time in seconds, and all of the second counts.
- When neither does, but either date of the merge which brought it to the branch does, it landed
  then, or had landed before on another: a warning as well, unless the holder merged it.
- Of work from before a lease that is held now, it counts who merged it, and whether all commits
  together change the file at all.
- Work that fell under a lease of one of its own people when it was made is theirs. When it was only
  recorded under one, what its author date says is a warning: a commit may be amended later.
- So it is where the date lies in the second in which the other lease began or ended, and where the
  commit names a token that was given after that had ended: clocks differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gitlease.check.commits.timeline import Tenure, Timeline
from gitlease.check.commits.wording import Wording, doubted
from gitlease.check.rules import HELD_NOW, HELD_THEN
from gitlease.core.edge import printable
from gitlease.core.expiry import Moment
from gitlease.core.finding import Finding, Level
from gitlease.core.frozen import dataclass, field
from gitlease.core.lease import Actor
from gitlease.core.persons import Addresses
from gitlease.core.policy import Policy
from gitlease.core.relation import Relation, relation
from gitlease.guard.commit_facts import SKEW, CommitFacts
from gitlease.guard.rules import Cover, Touched


@dataclass(frozen=True, slots=True)
class LedgerState:
    """One ledger now: its timeline, and what it takes to see who holds what."""

    timeline: Timeline
    policy: Policy
    moment: Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What commits are judged by.

    ``bringers`` are the keys of whoever pushed them, where known: they stand for all of them.
    ``requesters`` are whoever asks for them to be merged, what they are called and their keys: they
    stand for no more than a co-author does. ``trailer``: each commit must name a lease.
    ``landing`` gives the files that all commits together change; None where that is not known.
    """

    addresses: Addresses
    bringers: frozenset[str] = frozenset()
    requesters: Mapping[str, frozenset[str]] = field(default_factory=dict)
    trailer: bool = False
    ledgers: Mapping[str, LedgerState] = field(default_factory=dict)
    landing: Callable[[], frozenset[str] | None] = lambda: None

    def doubtful_help(self, commit: CommitFacts, keys: frozenset[str]) -> str:
        """Why one of these keys may have taken part in a commit; ``""`` where nothing says so."""
        named = next((x for x in commit.helpers if self.addresses.of(x) & keys), None)
        if named is not None:
            return f"nobody but its message says that {printable(named)} took part"
        asking = next((name for name, theirs in self.requesters.items() if theirs & keys), None)
        if asking is None:
            return ""
        return f"nothing but that {printable(asking)} opened or acted on its request speaks for it"


NOBODY = Actor(holder="")


class BrokenClaims:
    """Judges commits by the tenures that cover what they touch."""

    def __init__(self, commits: Sequence[CommitFacts], by: Judgement) -> None:
        self._by = by
        self._tenures = [s for ledger in by.ledgers.values() for s in ledger.timeline.tenures]
        self._keys = [by.addresses.of(tenure.lease.holder) for tenure in self._tenures]
        self._cover = Cover([tenure.lease for tenure in self._tenures])
        self._merges = merged_by(commits)

    def of(self, commit: CommitFacts) -> list[Finding]:
        """What it broke, one finding for each lease."""
        touched: dict[int, list[str]] = {}
        people = self._by.addresses.of_all(commit.emails)
        for one in commit.touched:
            for number in sorted(self._cover.matching(one)):
                if self._concerns(one, number, people):
                    touched.setdefault(number, []).append(one.path)
        own = [self._tenures[n] for n in touched if self._keys[n] & people]
        best: dict[tuple[str, str], Finding] = {}
        for number, paths in touched.items():
            if self._keys[number] & (people | self._by.bringers):
                continue
            found = self._judge(commit, number, paths, own)
            if found is None:
                continue
            if said := self._by.doubtful_help(commit, self._keys[number]):
                found = doubted(found, said)
            tenure = self._tenures[number]
            known = best.get(key := (tenure.layer, tenure.lease.lease_id))
            if known is None or known.level.rank < found.level.rank:
                best[key] = found
        return sorted(best.values(), key=lambda f: (-f.level.rank, f.file or "", f.resource or ""))

    def _concerns(self, one: Touched, number: int, people: frozenset[str]) -> bool:
        """Whether a tenure is hurt by what a commit does to a path, or is its own people's."""
        if not one.lost or self._keys[number] & people:
            return True
        tenure, addresses = self._tenures[number], self._by.addresses
        grant = (tenure.layer, tenure.lease.resource.key, tenure.lease.token)
        return any(
            addresses.of_all(work.people) & self._keys[number]
            or any((x.layer, x.key, x.token) == grant for x in work.named)
            for work in one.lost
        )

    def _judge(
        self, commit: CommitFacts, number: int, paths: Sequence[str], own: Sequence[Tenure]
    ) -> Finding | None:
        tenure, keys, words = self._tenures[number], self._keys[number], Wording(commit)
        ledger = self._by.ledgers[tenure.layer]
        now = ledger.moment.now.wall_ms
        made = commit.made(now)
        mine = [x for x in own if x.layer == tenure.layer]
        honest = any(x.meets(made) for x in mine)
        theirs = honest or any(x.meets(commit.recorded) for x in mine)
        how = None
        if tenure.stands:
            how = relation(tenure.lease, NOBODY, ledger.policy, ledger.moment)
        if made is not None and not honest and tenure.meets(made):
            still = how is Relation.THEIRS
            doubt = "" if still else self._doubt(commit, tenure, made, theirs=theirs)
            level = Level.WARNING if doubt else HELD_THEN.level
            return words.held_then(tenure, paths, level=level, still=still, doubt=doubt)
        if how is Relation.THEIRS and not self._merged_only(commit, tenure, paths, keys):
            level = Level.WARNING if honest else HELD_NOW.level
            return words.held_now(tenure, paths, level=level, honest=honest, now=now)
        if theirs or how is Relation.THEIRS:
            return None
        if tenure.meets(commit.recorded):
            return words.held_then(tenure, paths, level=Level.WARNING)
        merge = self._merges.get(commit.id)
        landed = merge is not None and any(map(tenure.meets, (merge.made(now), merge.recorded)))
        if merge is not None and landed and not keys & self._by.addresses.of_all(merge.emails):
            return words.held_then(tenure, paths, level=Level.WARNING, merge=merge)
        return None

    def _merged_only(
        self, commit: CommitFacts, tenure: Tenure, paths: Sequence[str], keys: frozenset[str]
    ) -> bool:
        """Whether work from before a tenure hurts nobody: its holder merged it, or a merge kept
        what was there."""
        made = commit.made(tenure.since)
        if made is None or commit.recorded is None or max(made, commit.recorded) >= tenure.since:
            return False
        merge = self._merges.get(commit.id)
        if merge is not None and keys & self._by.addresses.of_all(merge.emails):
            return True
        landing = self._by.landing()
        return landing is not None and landing.isdisjoint(paths)

    def _doubt(self, commit: CommitFacts, tenure: Tenure, made: int, *, theirs: bool) -> str:
        """Why a commit may not have been made in a tenure, although its date lies in it."""
        if theirs:
            return "it was recorded under a lease of its own people, and may be another one since"
        if not tenure.surely(made):
            return "it was made in the very second in which that began or ended"
        if tenure.stands or tenure.until - made > SKEW:
            return ""
        people = self._by.addresses.of_all(commit.emails)
        grants = self._by.ledgers[tenure.layer].timeline.grants
        for named in commit.named:
            grant = grants.get(named.token) if named.layer == tenure.layer else None
            if grant is None or grant.key != named.key or not grant.follows(tenure):
                continue
            if self._by.addresses.of(grant.holder) & people:
                return f"it names token {grant.token}, which was given after that had ended"
        return ""


def merged_by(commits: Sequence[CommitFacts]) -> dict[str, CommitFacts]:
    """The merge that brought each of these commits to the branch of the last one, by its id.

    A branch is what first parents lead to. What was made on it, no merge brought.
    """
    known = {commit.id: commit for commit in commits}
    branch = list[CommitFacts]()
    at = commits[-1].id if commits else ""
    while (one := known.pop(at, None)) is not None:
        branch.append(one)
        at = one.parents[0] if one.parents else ""
    found: dict[str, CommitFacts] = {}
    for merge in reversed(branch):
        left = list(merge.parents[1:])
        while left:
            if (one := known.pop(left.pop(), None)) is not None:
                found[one.id] = merge
                left += one.parents
    return found
