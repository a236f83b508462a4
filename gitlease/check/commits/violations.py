"""Every violation of commits: the claims of others that they broke, and the tokens they name.

A token is judged by its commit's author date (see ``broken_claims``). If the host itself made the
commit, a merge or a squash, that is the time of the merge: the work may have been done before
another's grant, so a late token is only a warning.
"""

from __future__ import annotations

from collections.abc import Sequence

from gitlease.check.commits.broken_claims import BrokenClaims, Judgement
from gitlease.check.commits.commit_findings import CommitFindings, doubted
from gitlease.check.commits.timeline import Granted
from gitlease.check.rules import SUPERSEDED
from gitlease.core.finding import Finding, Level
from gitlease.core.holder import person_key
from gitlease.core.instant import MS
from gitlease.core.resources.pattern import fold
from gitlease.core.resources.resource import scopes_overlap
from gitlease.core.trailers import Named
from gitlease.guard.commit_facts import CommitFacts

_BY_HOST = "it was committed by {}, so its date may be that of a merge and not of the work"


def find(commits: Sequence[CommitFacts], by: Judgement) -> list[Finding]:
    """Every violation, in the order of the commits."""
    held, tokens = BrokenClaims(commits, by), _NamedTokens(by)
    found: list[Finding] = []
    for commit in commits:
        found += held.of(commit)
        found += tokens.of(commit)
        if commit.unreadable:
            found.append(CommitFindings(commit).unreadable())
        if by.trailer and _owes_trailer(commit, by):
            owed = CommitFindings(commit).no_trailer(commit.named)
            doubt = by.doubtful_help(commit, _mentioned_of(commit, by))
            found.append(doubted(owed, doubt) if doubt else owed)
    return found


def _owes_trailer(commit: CommitFacts, by: Judgement) -> bool:
    """Whether a commit changes more than task files and names no lease.

    A merge need not name any, and the lines in a squash's message count if they are true. What is
    named of a ledger that is not checked could be anything.
    """
    if any(x.layer in by.ledgers for x in commit.named) or len(commit.parents) > 1:
        return False
    if not commit.touched or commit.only_tasks:
        return False
    return not _mentioned_of(commit, by) & by.addresses.of_all(commit.emails)


def _mentioned_of(commit: CommitFacts, by: Judgement) -> frozenset[str]:
    """The keys of the people who were granted what the lines in a commit's message name."""
    keys = frozenset[str]()
    for line in commit.mentioned:
        ledger = by.ledgers.get(line.layer)
        grant = ledger.timeline.grants.get(line.token) if ledger is not None else None
        if grant is not None and grant.key == line.key:
            keys |= by.addresses.of(grant.holder)
    return keys


class _NamedTokens:
    """Judges the tokens that commits name."""

    def __init__(self, by: Judgement) -> None:
        self._by = by
        self._grants: dict[tuple[str, str], list[Granted]] = {}
        for layer, ledger in by.ledgers.items():
            for _, grant in sorted(ledger.timeline.grants.items()):
                self._grants.setdefault((layer, grant.key), []).append(grant)

    def of(self, commit: CommitFacts) -> list[Finding]:
        """The findings about one commit; none about ledgers that are not checked."""
        every = (self._judge(commit, named) for named in dict.fromkeys(commit.named))
        return [found for found in every if found is not None]

    def _judge(self, commit: CommitFacts, named: Named) -> Finding | None:
        ledger = self._by.ledgers.get(named.layer)
        if ledger is None:
            return None
        findings, timeline = CommitFindings(commit), ledger.timeline
        grant = timeline.grants.get(named.token)
        if grant is None:
            return findings.unknown(named, None, certain=named.token >= timeline.tokens)
        if grant.key != named.key or fold(grant.scope) != fold(named.scope):
            return findings.unknown(named, grant)
        holder, claimed = self._by.addresses.of(grant.holder), None
        if not holder & self._by.addresses.of_all(commit.emails):
            foreign = findings.unknown(named, grant, holder=True)
            doubt = self._by.doubtful_help(commit, holder)
            if not doubt:
                return foreign
            claimed = doubted(foreign, doubt)
        made, later = commit.made(ledger.moment.now.wall_ms), self._next(named.layer, grant)
        if made is None or later is None:
            return claimed
        at = max(later.at, grant.ended or 0)
        if made + MS <= at:
            return claimed
        # Within one second nobody knows which came first.
        level, doubt = SUPERSEDED.level if made >= at else Level.WARNING, ""
        if commit.dated_by_host and level is not Level.WARNING:
            level, doubt = Level.WARNING, _BY_HOST.format(person_key(commit.committer))
        return findings.superseded(named, later, at=at, level=level, doubt=doubt)

    def _next(self, layer: str, grant: Granted) -> Granted | None:
        """The first later grant of the same work to another person."""
        holder = self._by.addresses.of(grant.holder)
        for other in self._grants[layer, grant.key]:
            if (
                other.token > grant.token
                and scopes_overlap(other.scope, grant.scope)
                and not self._by.addresses.of(other.holder) & holder
            ):
                return other
        return None
