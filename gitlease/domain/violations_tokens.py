"""What is wrong with the tokens that commits name.

A token is judged by when its commit was made, which is the author date (see ``violations_held``).
That of a commit which the host itself made, a merge or a squash, is the time of the merge: whether
the work was done before another's grant cannot be known then, and a late token is a warning.
"""

from __future__ import annotations

from gitlease.domain.chronicle import Granted
from gitlease.domain.deeds import Deed, Judgement, helper_with
from gitlease.domain.finding import Finding, Level, Rule
from gitlease.domain.instant import MS
from gitlease.domain.pattern import fold
from gitlease.domain.resource import scopes_overlap
from gitlease.domain.trailers import Named
from gitlease.domain.violation_words import Words

SUPERSEDED = Rule(
    "token-superseded",
    Level.ERROR,
    "a commit names a token after somebody else had been granted the same",
)
UNKNOWN = Rule(
    "token-unknown",
    Level.ERROR,
    "a commit names a token that was never given for that, or to its people",
)
_BY_HOST = "it was committed by {}, so its date may be that of a merge and not of the work"


class NamedTokens:
    """What is wrong with the tokens that commits name."""

    def __init__(self, by: Judgement) -> None:
        self._by = by
        self._grants: dict[tuple[str, str], list[Granted]] = {}
        for layer, ledger in by.ledgers.items():
            for token in sorted(ledger.chronicle.grants):
                grant = ledger.chronicle.grants[token]
                self._grants.setdefault((layer, grant.key), []).append(grant)

    def of(self, deed: Deed) -> list[Finding]:
        """The findings about one commit. A ledger that is not looked at says nothing."""
        every = (self._judge(deed, named) for named in dict.fromkeys(deed.named))
        return [found for found in every if found is not None]

    def _judge(self, deed: Deed, named: Named) -> Finding | None:
        ledger = self._by.ledgers.get(named.layer)
        if ledger is None:
            return None
        words, told = Words(deed), ledger.chronicle
        grant = told.grants.get(named.token)
        if grant is None:
            certain = told.knows_token(named.token)
            return words.unknown(UNKNOWN, named, None, certain=certain)
        if grant.key != named.key or fold(grant.scope) != fold(named.scope):
            return words.unknown(UNKNOWN, named, grant)
        holder, claimed = self._by.addresses.of(grant.holder), None
        if not holder & self._by.addresses.of_all(deed.emails):
            foreign = words.unknown(UNKNOWN, named, grant, holder=True)
            helper = helper_with(deed, self._by, holder)
            if not helper:
                return foreign
            claimed = words.claimed(foreign, helper)
        made, later = deed.made(ledger.moment.now.wall_ms), self._next(named.layer, grant)
        if made is None or later is None:
            return claimed
        at = max(later.at, grant.ended or 0)
        if made + MS <= at:
            return claimed
        # Within one second nobody knows which came first.
        level, doubt = SUPERSEDED.level if made >= at else Level.WARNING, ""
        if deed.dated_by_host and level is not Level.WARNING:
            level, doubt = Level.WARNING, _BY_HOST.format(fold(deed.committer))
        return words.superseded(SUPERSEDED, named, later, at=at, level=level, doubt=doubt)

    def _next(self, layer: str, grant: Granted) -> Granted | None:
        """The first later grant of the same to another person."""
        holder = self._by.addresses.of(grant.holder)
        for other in self._grants[layer, grant.key]:
            if (
                other.token > grant.token
                and scopes_overlap(other.scope, grant.scope)
                and not self._by.addresses.of(other.holder) & holder
            ):
                return other
        return None
