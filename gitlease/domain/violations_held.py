"""Which claims of others commits broke: what was held when they were made, and what is held now.

Which time counts, since a commit has two and neither is proven:

- *Made* is the author date. Rebases, amendments and cherry-picks keep it, so that honest work stays
  honest when it is moved. Only where it cannot be (missing, or in the future) the committer date
  stands for it. *Recorded* is the committer date.
- A squash has the author date of when it was squashed. Where a host did that both dates are the
  merge's: claims are judged by it, for then it landed, but no token is (see ``violations_tokens``).
- A commit was made under another's lease when its author date lies in the time of that lease. When
  only the committer date does, it may have been moved or made then: that is a warning, never an
  error. Git tells time in seconds, and all of the second counts.
- Work that fell under a lease of one of its own people when it was made is theirs. When it was only
  recorded under one, what its author date says is a warning: a commit may be amended later.
- So it is where the date lies in the second in which the other lease began or ended, and where the
  commit names a token that was given after that had ended: clocks differ.
"""

from __future__ import annotations

from collections.abc import Sequence

from gitlease.domain.chronicle import Span
from gitlease.domain.deeds import SKEW, Deed, Judgement, helper_with
from gitlease.domain.finding import Finding, Level, Rule
from gitlease.domain.frozen import replace
from gitlease.domain.guard import Touched, judge
from gitlease.domain.instant import Instant
from gitlease.domain.lapse import Moment
from gitlease.domain.lease import Actor, State
from gitlease.domain.policy import Policy
from gitlease.domain.relation import Relation, relation
from gitlease.domain.violation_words import Words

HELD_THEN = Rule(
    "held-then",
    Level.ERROR,
    "a commit touches what another person held when it was made",
)
HELD_NOW = Rule("held-now", Level.ERROR, "a commit touches what another person holds now")
NOBODY = Actor(holder="")
_LONG_AGO = Instant(0, 0, "")  # who covers what does not depend on the time


class BrokenClaims:
    """Which spans cover what each commit touches, found out for all of them at once."""

    def __init__(self, deeds: Sequence[Deed], by: Judgement) -> None:
        self._by = by
        self._spans = [s for ledger in by.ledgers.values() for s in ledger.chronicle.spans]
        self._keys = [by.addresses.of(span.lease.holder) for span in self._spans]
        self._covering = _covering(deeds, self._spans)
        self._now: dict[int, Relation | None] = {}

    def of(self, deed: Deed) -> list[Finding]:
        """What it broke, one finding for each lease."""
        touched: dict[int, list[str]] = {}
        for one in deed.touched:
            for number in self._covering.get(one, ()):
                touched.setdefault(number, []).append(one.path)
        if not touched:
            return []
        people = self._by.addresses.of_all(deed.emails)
        own = [n for n in touched if self._keys[n] & people]
        allowed = people | self._by.bringers
        best: dict[tuple[str, str], Finding] = {}
        for number, paths in touched.items():
            if self._keys[number] & allowed:
                continue
            found = self._judge(deed, number, paths, [self._spans[n] for n in own])
            if found is not None:
                if helper := helper_with(deed, self._by, self._keys[number]):
                    found = Words(deed).claimed(found, helper)
                span = self._spans[number]
                key = (span.layer, span.lease.lease_id)
                best[key] = _worse(best.get(key), found)
        return sorted(best.values(), key=lambda f: (-f.level.rank, f.file or "", f.resource or ""))

    def _judge(
        self, deed: Deed, number: int, paths: Sequence[str], own: Sequence[Span]
    ) -> Finding | None:
        span = self._spans[number]
        ledger = self._by.ledgers[span.layer]
        now = ledger.moment.now.wall_ms
        made, recorded = deed.made(now), deed.recorded
        mine = [x for x in own if x.layer == span.layer]
        honest = made is not None and any(x.meets(made) for x in mine)
        theirs = honest or (recorded is not None and any(x.meets(recorded) for x in mine))
        then = not honest and made is not None and span.meets(made)
        how = self._relation(number)
        words = Words(deed)
        if then:
            still = how is Relation.THEIRS
            doubt = "" if still else self._doubt(deed, span, made or 0, theirs=theirs)
            level = Level.WARNING if doubt else HELD_THEN.level
            return words.held_then(HELD_THEN, span, paths, level=level, still=still, doubt=doubt)
        if how is Relation.THEIRS:
            level = Level.WARNING if honest else HELD_NOW.level
            return words.held_now(HELD_NOW, span, paths, level=level, honest=honest, now=now)
        if not theirs and recorded is not None and span.meets(recorded):
            return words.held_then(HELD_THEN, span, paths, level=Level.WARNING)
        if how is Relation.THEIRS_ASSIGNED and not theirs:
            return words.still_assigned(HELD_NOW, span, paths)
        return None

    def _doubt(self, deed: Deed, span: Span, made: int, *, theirs: bool) -> str:
        """Why a commit may have been made before or after a span, although its date lies in it."""
        if theirs:
            return "it was recorded under a lease of its own people, and may be another one since"
        if not span.surely(made):
            return "it was made in the very second in which that began or ended"
        if span.stands or span.until - made > SKEW:
            return ""
        by = self._by
        people, grants = by.addresses.of_all(deed.emails), by.ledgers[span.layer].chronicle.grants
        for named in deed.named:
            grant = grants.get(named.token) if named.layer == span.layer else None
            if grant is None or grant.key != named.key or not grant.follows(span):
                continue
            if by.addresses.of(grant.holder) & people:
                return f"it names token {grant.token}, which was given after that had ended"
        return ""

    def _relation(self, number: int) -> Relation | None:
        """How a lease that stands in the ledger now stands to whoever is not its holder."""
        if number not in self._now:
            span = self._spans[number]
            ledger = self._by.ledgers[span.layer]
            how = relation(span.lease, NOBODY, ledger.policy, ledger.moment)
            self._now[number] = how if span.stands else None
        return self._now[number]


def _worse(one: Finding | None, other: Finding) -> Finding:
    return other if one is None or other.level.rank > one.level.rank else one


def _covering(deeds: Sequence[Deed], spans: Sequence[Span]) -> dict[Touched, list[int]]:
    """The numbers of the spans that cover each touched path, by the guard's own judgement.

    It tells what it finds by path, so each time it is asked of every path only once: a file may be
    that of another task in another commit.
    """
    leases = [
        replace(span.lease, state=State.ACTIVE, operation=str(number))
        for number, span in enumerate(spans)
    ]
    rounds: list[dict[str, Touched]] = []
    seen: set[Touched] = set()
    for deed in deeds:
        for one in deed.touched:
            if one in seen:
                continue
            seen.add(one)
            place = next((r for r in rounds if one.path not in r), None)
            if place is None:
                place = {}
                rounds.append(place)
            place[one.path] = one
    found: dict[Touched, list[int]] = {}
    moment, policy = Moment(now=_LONG_AGO), Policy()
    for paths in rounds if leases else ():
        said = judge(list(paths.values()), leases, actor=NOBODY, policy=policy, moment=moment)
        for hit in said:
            found.setdefault(paths[hit.path], []).append(int(hit.lease.operation))
    return found
