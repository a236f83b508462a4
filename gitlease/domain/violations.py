"""What commits did to the claims of others: held then, held now, and the tokens that they name.

Which time counts, since a commit has two and neither is proven:

- *Made* is the author date. Rebases, squashes and cherry-picks keep it, so that honest work stays
  honest when it is moved. Only where it cannot be (missing, or in the future) the committer date
  stands for it. *Recorded* is the committer date.
- A commit was made under another's lease when its author date lies in the time of that lease. When
  only the committer date does, it may have been moved or made then: that is a warning, never an
  error. Git tells time in seconds, and all of the second counts.
- Work that fell under a lease of one of its own people when it was made is theirs. When it was only
  recorded under one, what its author date says is a warning: a commit may be amended later.
- So it is where the date lies in the second in which the other lease began or ended, and where the
  commit names a token that was given after that had ended: clocks differ.

Who stands for a commit: its author and its committer, and for whose claims are broken also whoever
brings it. If any of them is the holder, nothing is broken. A co-author is a claim of whoever wrote
the message: where only that one is the holder, it is a warning, never an error, and never nothing.
Addresses of one person count as one (see ``Addresses``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gitlease.domain.addresses import Addresses
from gitlease.domain.chronicle import Chronicle, Granted, Span
from gitlease.domain.finding import Finding, Level, Rule
from gitlease.domain.frozen import dataclass, field, replace
from gitlease.domain.guard import Touched, judge
from gitlease.domain.instant import MS, Instant
from gitlease.domain.lapse import Moment
from gitlease.domain.lease import Actor, State
from gitlease.domain.pattern import fold
from gitlease.domain.policy import Policy
from gitlease.domain.relation import Relation, relation
from gitlease.domain.resource import scopes_overlap
from gitlease.domain.trailers import Named
from gitlease.domain.violation_words import Words

SKEW = 60 * MS  # what an author date may lie in the future, as the clocks of two machines may

HELD_THEN = Rule(
    "held-then",
    Level.ERROR,
    "a commit touches what another person held when it was made",
)
HELD_NOW = Rule("held-now", Level.ERROR, "a commit touches what another person holds now")
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
NO_TRAILER = Rule(
    "no-trailer", Level.ERROR, "a commit names no lease, and the project requires one"
)
UNREADABLE = Rule(
    "trailer-unreadable", Level.WARNING, "a trailer of a commit names no lease that can be read"
)
NO_LEDGER = Rule(
    "no-ledger", Level.WARNING, "there is no ledger: nobody has claimed yet, or it was deleted"
)
RULES = (HELD_THEN, HELD_NOW, SUPERSEDED, UNKNOWN, NO_TRAILER, UNREADABLE, NO_LEDGER)
NOBODY = Actor(holder="")
_LONG_AGO = Instant(0, 0, "")  # who covers what does not depend on the time


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """What one commit did. Times are the milliseconds at which its seconds begin.

    ``emails`` are those of its people, the author's first, as the project's mailmap has them, and
    ``helpers`` those of the co-authors that its message claims.
    ``written`` is the author date, ``recorded`` the committer date, None where there is none.
    ``named`` are its trailers, ``mentioned`` the lines like them in the rest of its message, as a
    squash has them, ``unreadable`` the texts of trailers that name nothing. ``only_tasks``: it
    touches nothing but task files.
    """

    id: str
    subject: str = ""
    emails: tuple[str, ...]
    helpers: tuple[str, ...] = ()
    written: int | None
    recorded: int | None
    merge: bool = False
    touched: tuple[Touched, ...] = ()
    named: tuple[Named, ...] = ()
    mentioned: tuple[Named, ...] = ()
    unreadable: tuple[str, ...] = ()
    only_tasks: bool = False

    def made(self, now: int) -> int | None:
        """When it was made, as far as anybody can know."""
        if self.written is not None and 0 < self.written <= now + SKEW:
            return self.written
        return self.recorded


@dataclass(frozen=True, slots=True)
class Standing:
    """One ledger now: its chronicle, and what it takes to see who holds what."""

    chronicle: Chronicle
    policy: Policy
    moment: Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What commits are judged by. ``bringers`` are the addresses who bring them, where known."""

    addresses: Addresses
    bringers: frozenset[str] = frozenset()
    trailer: bool = False
    ledgers: Mapping[str, Standing] = field(default_factory=dict)


def find(deeds: Sequence[Deed], by: Judgement) -> list[Finding]:
    """Every violation, in the order of the commits."""
    held, tokens = _Held(deeds, by), _Tokens(by)
    found: list[Finding] = []
    for deed in deeds:
        found += held.of(deed)
        found += tokens.of(deed)
        if deed.unreadable:
            found.append(Words(deed).unreadable(UNREADABLE))
        if by.trailer and _owes_trailer(deed, by):
            owed = Words(deed).no_trailer(NO_TRAILER, deed.named)
            helper = _helper(deed, by, _mentioned_of(deed, by))
            found.append(Words(deed).claimed(owed, helper) if helper else owed)
    return found


def no_ledger(layers: Sequence[str], place: str) -> Finding:
    """That no ledger is there: a fresh clone cannot know whether there ever was one."""
    names = " or ".join(dict.fromkeys(layers))
    return Finding(
        rule=NO_LEDGER,
        level=NO_LEDGER.level,
        message=(
            f"there is no ledger {names} on {place}, so nothing could be checked: nobody has "
            "claimed yet, or it was deleted"
        ),
    )


def oldest(deeds: Iterable[Deed], now: int) -> int:
    """The earliest time that matters to these commits."""
    times = [t for x in deeds for t in (x.made(now), x.recorded) if t is not None]
    return min(times, default=now)


# --- whose claims are broken --------------------------------------------------------------------


class _Held:
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
                if helper := _helper(deed, self._by, self._keys[number]):
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


# --- which tokens are named ---------------------------------------------------------------------


class _Tokens:
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
            helper = _helper(deed, self._by, holder)
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
        level = SUPERSEDED.level if made >= at else Level.WARNING
        return words.superseded(SUPERSEDED, named, later, at=at, level=level)

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


def _owes_trailer(deed: Deed, by: Judgement) -> bool:
    """Whether a commit changes more than task files and names no lease.

    A merge names none, and the lines of a squash count where they are true. What is named of a
    ledger that is not looked at could be anything.
    """
    named = any(x.layer in by.ledgers for x in deed.named)
    if named or deed.merge or not deed.touched or deed.only_tasks:
        return False
    return not _mentioned_of(deed, by) & by.addresses.of_all(deed.emails)


def _mentioned_of(deed: Deed, by: Judgement) -> frozenset[str]:
    """The keys of whoever was given what the lines in a commit's message name."""
    keys = frozenset[str]()
    for line in deed.mentioned:
        ledger = by.ledgers.get(line.layer)
        grant = ledger.chronicle.grants.get(line.token) if ledger is not None else None
        if grant is not None and grant.key == line.key:
            keys |= by.addresses.of(grant.holder)
    return keys


def _helper(deed: Deed, by: Judgement, keys: frozenset[str]) -> str:
    """The co-author with one of these keys, whom the message names; ``""`` where there is none."""
    return next((x for x in deed.helpers if by.addresses.of(x) & keys), "")
