"""Which claims of others commits broke: what was held when they were made, and what is held now.

A commit's people are its author and its committer, and, when it comes to broken claims, the person
who pushes it. If any of them is the holder, nothing is broken. But anybody may write an address: on
what is held *now* a commit is its holder's by rule of the server's hook, if the holder pushed it or
it names the present token. One that is neither is an error where somebody else is known to have
pushed it, else a warning. A co-author is only a statement in the message, and the person who opened
a pull request need not have made its commits: if only one of these is the holder, it is a warning,
not an error. Addresses of one person count as one (see ``Addresses``).

Which time counts, since a commit has two and neither is proven:

- *Made* is the author date. Rebases, amendments and cherry-picks keep it, so that honest work stays
  honest when it is moved. If it is missing or in the future, the committer date is used instead.
  *Recorded* is the committer date.
- A squash has the author date of when it was squashed. If a host did that, both dates are the
  merge's: claims are judged by it, since that is when it landed, but tokens are not (see
  ``violations``).
- A commit was made under another's lease if its author date lies in the time of that lease. If only
  the committer date does, it may have been moved or made then: a warning, not an error. Git's dates
  have seconds, and all of the second counts.
- If neither does, but either date of the merge that took it to the branch does, it landed then, or
  had landed elsewhere before: a warning as well, unless the holder merged it.
- For work from before a lease that is held now, it matters who merged it, and whether all commits
  together change the file at all.
- Work that was made under a lease of one of its own people is theirs. If it was only recorded under
  one, its author date makes a warning: a commit may be amended later.
- The same goes for a date in the second in which the other lease began or ended, and for a commit
  that names a token that was issued after that had ended: clocks differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gitlease.check.commits.commit_findings import CommitFindings, doubted
from gitlease.check.commits.timeline import Tenure, Timeline
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
from gitlease.guard.rules import Cover, Touched, names_grant


@dataclass(frozen=True, slots=True)
class LedgerState:
    """One ledger now: its timeline, and its policy and moment to tell who holds what."""

    timeline: Timeline
    policy: Policy
    moment: Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What commits are judged by.

    ``pushers`` are the keys of the person who pushed them, if known: they count as people of every
    commit. ``requesters`` opened or updated the pull request, by name with their keys: they count
    no more than a co-author. ``trailer``: each commit must name a lease. ``landing`` gives the
    files that all commits together change; None if that is not known.
    """

    addresses: Addresses
    pushers: frozenset[str] = frozenset()
    requesters: Mapping[str, frozenset[str]] = field(default_factory=dict)
    trailer: bool = False
    ledgers: Mapping[str, LedgerState] = field(default_factory=dict)
    landing: Callable[[], frozenset[str] | None] = lambda: None

    def doubtful_help(self, commit: CommitFacts, keys: frozenset[str]) -> str:
        """Why one of these keys may have taken part in a commit; ``""`` if nothing says so."""
        named = next((x for x in commit.helpers if self.addresses.of(x) & keys), None)
        if named is not None:
            return f"only its message says that {printable(named)} took part"
        asking = next((name for name, theirs in self.requesters.items() if theirs & keys), None)
        if asking is None:
            return ""
        return f"the only link is that {printable(asking)} opened or acted on its request"


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
        """The claims that it broke, one finding for each lease."""
        touched: dict[int, list[str]] = {}
        people = self._by.addresses.of_all(commit.emails)
        for one in commit.touched:
            for number in sorted(self._cover.matching(one)):
                if self._concerns(one, number, people):
                    touched.setdefault(number, []).append(one.path)
        own = [self._tenures[n] for n in touched if self._keys[n] & people]
        best: dict[tuple[str, str], Finding] = {}
        for number, paths in touched.items():
            if self._keys[number] & self._by.pushers:
                continue
            if self._keys[number] & people:
                found = self._judge_address(commit, number, paths)
            else:
                found = self._judge(commit, number, paths, own)
                if found and (doubt := self._by.doubtful_help(commit, self._keys[number])):
                    found = doubted(found, doubt)
            if found is None:
                continue
            tenure = self._tenures[number]
            known = best.get(key := (tenure.layer, tenure.lease.lease_id))
            if known is None or known.level.rank < found.level.rank:
                best[key] = found
        return sorted(best.values(), key=lambda f: (-f.level.rank, f.file or "", f.resource or ""))

    def _judge_address(
        self, commit: CommitFacts, number: int, paths: Sequence[str]
    ) -> Finding | None:
        """Judge a commit of which only an address says that the holder made it."""
        tenure = self._tenures[number]
        named = (*commit.named, *commit.mentioned)
        if commit.only_tasks:
            return None  # such as the commits of assignments, which name no token
        if not self._blocks_now(tenure):
            return None
        if names_grant(named, commit.recorded, tenure.lease, tenure.layer):
            return None
        landing = self._by.landing()
        if landing is not None and landing.isdisjoint(paths):
            return None
        return CommitFindings(commit).unproven(tenure, paths, pushed=bool(self._by.pushers))

    def _blocks_now(self, tenure: Tenure) -> bool:
        ledger = self._by.ledgers[tenure.layer]
        return tenure.stands and (
            relation(tenure.lease, NOBODY, ledger.policy, ledger.moment) is Relation.THEIRS
        )

    def _concerns(self, one: Touched, number: int, people: frozenset[str]) -> bool:
        """Whether a tenure is affected by a commit's change of a path, or is its own people's."""
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
        tenure, keys, findings = self._tenures[number], self._keys[number], CommitFindings(commit)
        ledger = self._by.ledgers[tenure.layer]
        now = ledger.moment.now.wall_ms
        made = commit.made(now)
        mine = [x for x in own if x.layer == tenure.layer]
        honest = any(x.meets(made) for x in mine)
        theirs = honest or any(x.meets(commit.recorded) for x in mine)
        still = self._blocks_now(tenure)
        if made is not None and not honest and tenure.meets(made):
            doubt = "" if still else self._doubt(commit, tenure, made, theirs=theirs)
            level = Level.WARNING if doubt else HELD_THEN.level
            return findings.held_then(tenure, paths, level=level, still=still, doubt=doubt)
        if still and not self._merged_only(commit, tenure, paths, keys):
            level = Level.WARNING if honest else HELD_NOW.level
            return findings.held_now(tenure, paths, level=level, honest=honest, now=now)
        if theirs or still:
            return None
        if tenure.meets(commit.recorded):
            return findings.held_then(tenure, paths, level=Level.WARNING)
        merge = self._merges.get(commit.id)
        landed = merge is not None and any(map(tenure.meets, (merge.made(now), merge.recorded)))
        if merge is not None and landed and not keys & self._by.addresses.of_all(merge.emails):
            return findings.held_then(tenure, paths, level=Level.WARNING, merge=merge)
        return None

    def _merged_only(
        self, commit: CommitFacts, tenure: Tenure, paths: Sequence[str], keys: frozenset[str]
    ) -> bool:
        """Whether work from before a tenure does no harm: its holder merged it, or a merge kept
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
            return (
                "it was recorded under a lease of its own authors, and may have been amended since"
            )
        if not tenure.surely(made):
            return "it was made in the same second as that began or ended"
        if tenure.stands or tenure.until - made > SKEW:
            return ""
        people = self._by.addresses.of_all(commit.emails)
        grants = self._by.ledgers[tenure.layer].timeline.grants
        for named in commit.named:
            grant = grants.get(named.token) if named.layer == tenure.layer else None
            if grant is None or grant.key != named.key or not grant.follows(tenure):
                continue
            if self._by.addresses.of(grant.holder) & people:
                return f"it names token {grant.token}, which was issued after that had ended"
        return ""


def merged_by(commits: Sequence[CommitFacts]) -> dict[str, CommitFacts]:
    """The merge that took each of these commits to the branch of the last one, by its id.

    A branch is what first parents lead to. What was made on it has no such merge.
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
