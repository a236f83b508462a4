"""Which claims of others commits broke, and which tokens they name, by who held what and when.

Who held what is known by the history of one ledger:

1. A lease is held from its grant to its end: a release, completion, revocation or displacement,
   else until it runs out. Then its holder no longer has it, although nobody else may take it yet.
   No renewal revives what ran out, so this is one span without a gap.
2. History keeps the last renewal before every other step, since only a renewal replaces a renewal.
   So the last record before the end is there, with the expiry that it had then.
3. Paths are only ever added to a lease: each set of them counts from the record that added it.
4. Times are the wall clocks of the writers. A grant counts as no earlier than the end of what stood
   in its way, by the order of the ledger, whatever the clocks say.

Nothing is known from before the oldest state that was read, which is of ``since``.

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
  merge's: claims are judged by it, since that is when it landed, but a late token is only a
  warning, since the work may have been done before another's grant.
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

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from gitlease.check.rules import (
    HELD_NOW,
    HELD_THEN,
    NO_TRAILER,
    SUPERSEDED,
    UNKNOWN,
    UNPROVEN,
    UNREADABLE,
    finding_of,
)
from gitlease.core.edge import Addresses, printable
from gitlease.core.errors import UsageError
from gitlease.core.finding import CheckRule, Finding, Level
from gitlease.core.frozen import dataclass, field, replace
from gitlease.core.instant import MS, rfc3339
from gitlease.core.lease import Actor, Lease, LeaseKey, Moment, Relation, State, relation
from gitlease.core.moves.operations import LAPSED, Event
from gitlease.core.policy import Policy, person_key
from gitlease.core.resources.pattern import fold
from gitlease.core.resources.resource import WHOLE, layer_words, parse_resource, scopes_overlap
from gitlease.core.trailers import Named
from gitlease.guard.commits import SKEW, CommitFacts
from gitlease.guard.rules import Cover, Touched, names_grant
from gitlease.store.history_reader import GRANTS, HistoryStep, LedgerHistory

PATHS_SHOWN = 5
SHORT_ID = 10
INSTALL = "gitlease hooks install"
NOBODY = Actor(holder="")
_BY_HOST = "it was committed by {}, so its date may be that of a merge and not of the work"
OWN_THEN = "its own authors held it when it was made"
MOVED = "its dates do not tell whether it was made then or only moved"
ELSEWHERE = "it may have landed elsewhere before"
PROOF = (
    "a commit is the holder's if the holder pushed it, or by the present token in its trailer;"
    " anybody may write an address"
)
RAN_OUT, GONE, NOW = "expired", "gone", ""
ENDS: Mapping[str, str] = {
    "released": "released",
    "completed": "completed",
    "revoked": "revoked",
    "displaced": "taken over",
    "retired": "retired",
    LAPSED: RAN_OUT,
}
Ends = Mapping[int, tuple[int, str]]  # when and how the lease with a token ended


@dataclass(frozen=True, slots=True)
class Tenure:
    """A span in which somebody held something: from ``since`` to before ``until``.

    ``lease`` is the record with what it covered then; ``ended`` says how it ended, ``""`` for a
    record that is in the ledger now.
    """

    layer: str
    lease: Lease
    since: int
    until: int
    ended: str = NOW

    @property
    def stands(self) -> bool:
        """Whether it is in the ledger now, run out or not."""
        return self.ended == NOW

    def meets(self, second: int | None) -> bool:
        """Whether any of the second that begins then lies in it: git's dates have seconds."""
        return second is not None and self.since < second + 1_000 and second < self.until

    def surely(self, second: int) -> bool:
        """Whether all of the second that begins then lies in it."""
        return self.since <= second and second + 1_000 <= self.until


@dataclass(frozen=True, slots=True)
class Granted:
    """One grant: its token, resource and holder, and its beginning and end."""

    token: int
    resource: str
    key: str
    scope: str
    holder: str
    at: int
    ended: int | None = None

    def follows(self, tenure: Tenure) -> bool:
        """Whether it was certainly later: by the order of the ledger, or by the clocks."""
        lease = tenure.lease
        same = self.key == lease.resource.key and scopes_overlap(self.scope, lease.scope)
        return self.token > lease.token and (same or self.at >= tenure.until)


@dataclass(frozen=True, slots=True)
class Timeline:
    """Who held what in one ledger. See ``LedgerHistory`` for ``since`` and ``tokens``."""

    layer: str
    tenures: tuple[Tenure, ...]
    grants: Mapping[int, Granted]
    since: int | None
    tokens: int

    def knows(self, at: int | None) -> bool:
        """Whether it reaches back to this time."""
        return at is not None and (self.since is None or at >= self.since)


def timeline(history: LedgerHistory) -> Timeline:
    """The timeline of a ledger's history."""
    ends: dict[int, tuple[int, str]] = {}
    for event in history.events:
        if event.token is not None and event.kind in ENDS:
            ends.setdefault(event.token, (event.at, ENDS[event.kind]))
    tenures = _tenures(history, ends)
    grants = _granted(history.events, ends)
    for tenure in tenures:
        lease = tenure.lease
        finished_only = lease.state is State.COMPLETED and lease.claimed_at == lease.expires_at
        if lease.token not in grants and not finished_only:
            grants[lease.token] = Granted(
                token=lease.token,
                resource=lease.resource.text,
                key=lease.resource.key,
                scope=lease.scope,
                holder=lease.holder,
                at=lease.claimed_at,
                ended=None if tenure.stands else tenure.until,
            )
    return Timeline(history.layer, tuple(tenures), grants, history.since, history.tokens)


def _granted(events: Sequence[Event], ends: Ends) -> dict[int, Granted]:
    found: dict[int, Granted] = {}
    for event in events:
        token, resource = event.token, event.resource
        # A takeover by a renewal has the token of the grant that came before it.
        if event.kind not in GRANTS or token is None or resource is None or token in found:
            continue
        found[token] = Granted(
            token=token,
            resource=resource,
            key=_key(resource),
            scope=event.scope or WHOLE,
            holder=event.holder or event.by,
            at=event.at,
            ended=ends[token][0] if token in ends else None,
        )
    return found


def _key(resource: str) -> str:
    try:
        return parse_resource(resource).key
    except UsageError:
        return fold(resource)


def _tenures(history: LedgerHistory, ends: Ends) -> list[Tenure]:
    open_now: dict[LeaseKey, Tenure] = {}
    done: list[Tenure] = []
    for lease in history.first:
        if lease.state is State.ACTIVE:
            open_now[lease.key] = _begun(history.layer, lease)
    for step in history.steps:
        for before, after in step.changed:
            was = open_now.pop(before.key, None) if before is not None else None
            now = after if after is not None and after.state is State.ACTIVE else None
            if now is not None and was is not None and _same(was.lease, now):
                open_now[now.key] = _went_on(was, now, done)
                continue
            if was is not None:
                done.append(_ended(was, step, ends, after))
            if now is not None:
                open_now[now.key] = _begun(history.layer, now)
    return [*done, *open_now.values()]


def _begun(layer: str, lease: Lease) -> Tenure:
    return Tenure(layer, lease, lease.claimed_at, lease.expires_at)


def _same(one: Lease, other: Lease) -> bool:
    return one.lease_id == other.lease_id and one.token == other.token


def _went_on(was: Tenure, now: Lease, done: list[Tenure]) -> Tenure:
    # If what it covers has changed, the span of the former coverage ends.
    if was.lease.patterns == now.patterns:
        return replace(was, lease=now, until=now.expires_at)
    begin = max(was.since, now.renewed_at)
    done.append(replace(was, until=min(was.until, begin), ended=GONE))
    return Tenure(was.layer, now, begin, now.expires_at)


def _ended(was: Tenure, step: HistoryStep, ends: Ends, after: Lease | None) -> Tenure:
    # Its end is that of its event, else of its step, unless it ran out before. The whole second of
    # that step counts: dropping a record without an event does not shorten a lease.
    at, how = ends.get(was.lease.token, (step.at + 1_000, GONE))
    if after is not None and _same(was.lease, after):
        at, how = min(at, after.renewed_at), ENDS["completed"]
    if was.lease.expires_at <= at:
        return replace(was, until=was.lease.expires_at, ended=RAN_OUT)
    return replace(was, until=max(at, was.since), ended=how)


# --- findings -------------------------------------------------------------------------------------


class CommitVerdict(NamedTuple):
    """What is wrong with a commit, and how sure that is: ``words`` follow what it does."""

    rule: CheckRule
    level: Level
    words: str
    evidence: tuple[str, ...] = ()
    since: int | None = None


def doubted(found: Finding, why: str) -> Finding:
    """The same as a warning if there is a doubt: who may have taken part had the right to it."""
    if not why:
        return found
    return replace(found, level=Level.WARNING, message=f"{found.message}; {why}")


def _broken(
    commit: CommitFacts, tenure: Tenure, paths: Sequence[str], verdict: CommitVerdict
) -> Finding:
    """A commit touches what another holds or held."""
    lease, touched = tenure.lease, sorted(paths)
    others = f" and {len(touched) - 1} more" if len(touched) > 1 else ""
    end = f"until {rfc3339(tenure.until)}" + (f" ({tenure.ended})" if tenure.ended else "")
    session = f", session {printable(lease.session)}" if lease.session else ""
    held = (
        f"token {lease.token}: {_of(lease.resource.text, lease.scope)} was "
        f"{printable(lease.holder)}'s{session} from {rfc3339(lease.claimed_at)} {end}"
    )
    verb = "log" if verdict.rule is HELD_THEN else "show"
    return finding_of(
        verdict.rule,
        f"{_who(commit)} touches {printable(touched[0])}{others}, {verdict.words}",
        level=verdict.level,
        since=lease.claimed_at,
        resource=lease.resource.text,
        scope=lease.scope,
        layer=tenure.layer,
        holder=lease.holder,
        commit=commit.id,
        file=touched[0],
        evidence=(*verdict.evidence, held, *_dates(commit), *_listed(touched)),
        next_steps=(_command(verb, lease.resource.text, tenure.layer),),
    )


def _misnamed(commit: CommitFacts, named: Named, verdict: CommitVerdict) -> Finding:
    """A commit names a token that it should not."""
    token = f"token {named.token} of {_of(named.resource, named.scope)}"
    return finding_of(
        verdict.rule,
        f"{_who(commit)} names {token}, {verdict.words}",
        level=verdict.level,
        since=verdict.since,
        resource=named.resource,
        scope=named.scope,
        layer=named.layer,
        holder=commit.emails[0] if commit.emails else None,
        commit=commit.id,
        file=min((one.path for one in commit.touched), default=None),
        evidence=(*verdict.evidence, *_dates(commit)),
        next_steps=(_command("log", named.resource, named.layer),),
    )


def _of_trailer(
    rule: CheckRule, commit: CommitFacts, words: str, evidence: Sequence[str]
) -> Finding:
    return finding_of(
        rule,
        f"{_who(commit)} {words}",
        since=commit.recorded,
        commit=commit.id,
        file=commit.touched[0].path if commit.touched else None,
        evidence=tuple(evidence),
        next_steps=(INSTALL,),
    )


def _unreadable(commit: CommitFacts) -> Finding:
    first, *others = commit.unreadable
    more = f" and {len(others)} more" if others else ""
    words = f"has a trailer that names no lease: {printable(first)}{more}"
    expected = "expected Gitlease: RESOURCE token=NUMBER"
    return _of_trailer(UNREADABLE, commit, words, (expected, *_dates(commit)))


def _no_trailer(commit: CommitFacts) -> Finding:
    """A commit that names no lease, or only some of ledgers that are not checked."""
    layers = ", ".join(printable(name) for name in dict.fromkeys(x.layer for x in commit.named))
    more = (f"it names only a ledger that is not checked: {layers}",) if layers else ()
    listed = _listed([one.path for one in commit.touched])
    words = "names no lease, and this project requires one"
    return _of_trailer(NO_TRAILER, commit, words, (*more, *_dates(commit), *listed))


def _who(commit: CommitFacts) -> str:
    author = commit.emails[0] if commit.emails else ""
    by = printable(author) if author else "somebody without an address"
    return f"{commit.id[:SHORT_ID]} by {by}"


def _dates(commit: CommitFacts) -> tuple[str, ...]:
    """When it was made, and when it was recorded if that differs."""
    if commit.written is None or commit.recorded is None:
        return ("one of its dates cannot be read",)
    made = f"made at {rfc3339(commit.written)}"
    if commit.written == commit.recorded:
        return (made,)
    return (f"{made}, recorded at {rfc3339(commit.recorded)}",)


def _of(resource: str, scope: str) -> str:
    part = "" if scope == WHOLE else f" (scope {printable(scope)})"
    return printable(resource) + part


def _listed(paths: Sequence[str]) -> tuple[str, ...]:
    if len(paths) < 2:
        return ()
    listed = ", ".join(printable(path) for path in paths[:PATHS_SHOWN])
    more = len(paths) - PATHS_SHOWN
    return (f"it touches {listed}" + (f" and {more} more" if more > 0 else ""),)


def _command(verb: str, resource: str, layer: str) -> str:
    words = ["gitlease", verb, *layer_words(layer)]
    return shlex.join([*words, *(["--"] if resource.startswith("-") else []), resource])


# --- judging --------------------------------------------------------------------------------------


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
            tenure, doubt = self._tenures[number], ""
            if self._keys[number] & people:
                verdict = self._judge_address(commit, tenure, paths)
            else:
                verdict = self._judge(commit, number, paths, own)
                doubt = self._by.doubtful_help(commit, self._keys[number])
            if verdict is None:
                continue
            found = doubted(_broken(commit, tenure, paths, verdict), doubt)
            known = best.get(key := (tenure.layer, tenure.lease.lease_id))
            if known is None or known.level.rank < found.level.rank:
                best[key] = found
        return sorted(best.values(), key=lambda f: (-f.level.rank, f.file or "", f.resource or ""))

    def _judge_address(
        self, commit: CommitFacts, tenure: Tenure, paths: Sequence[str]
    ) -> CommitVerdict | None:
        """Judge a commit of which only an address says that the holder made it."""
        named, lease = (*commit.named, *commit.mentioned), tenure.lease
        if commit.only_tasks:
            return None  # such as the commits of assignments, which name no token
        if not self._blocks_now(tenure):
            return None
        if names_grant(named, commit.recorded, lease, tenure.layer):
            return None
        landing = self._by.landing()
        if landing is not None and landing.isdisjoint(paths):
            return None
        pushed = bool(self._by.pushers)
        why = "it was pushed by somebody else and" if pushed else "it"
        words = f"{_held(lease, 'holds')} now: {why} does not name token {lease.token}"
        return CommitVerdict(UNPROVEN, Level.ERROR if pushed else UNPROVEN.level, words, (PROOF,))

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
    ) -> CommitVerdict | None:
        tenure, keys = self._tenures[number], self._keys[number]
        lease, now = tenure.lease, self._by.ledgers[tenure.layer].moment.now.wall_ms
        held = _held(lease, "held")
        made = commit.made(now)
        mine = [x for x in own if x.layer == tenure.layer]
        honest = any(x.meets(made) for x in mine)
        theirs = honest or any(x.meets(commit.recorded) for x in mine)
        still = self._blocks_now(tenure)
        if made is not None and not honest and tenure.meets(made):
            doubt = "" if still else self._doubt(commit, tenure, made, theirs=theirs)
            level = Level.WARNING if doubt else HELD_THEN.level
            words = f"{held} when it was made" + (", and holds now" if still else "")
            return CommitVerdict(HELD_THEN, level, words, (doubt,) if doubt else ())
        if still and not self._merged_only(commit, tenure, paths, keys):
            until = f"until {rfc3339(lease.expires_at)}"
            words = f"{_held(lease, 'holds')} now, {until}"
            if lease.expires_at <= now:
                words = f"{held} {until}, and nobody else may take it yet"
            if honest:
                return CommitVerdict(HELD_NOW, Level.WARNING, words, (OWN_THEN,))
            return CommitVerdict(HELD_NOW, HELD_NOW.level, words)
        if theirs or still:
            return None
        if tenure.meets(commit.recorded):
            return CommitVerdict(HELD_THEN, Level.WARNING, f"{held} when it was recorded", (MOVED,))
        merge = self._merges.get(commit.id)
        landed = merge is not None and any(map(tenure.meets, (merge.made(now), merge.recorded)))
        if merge is not None and landed and not keys & self._by.addresses.of_all(merge.emails):
            by = f"merged in {_who(merge)}, {'; '.join(_dates(merge))}"
            return CommitVerdict(
                HELD_THEN, Level.WARNING, f"{held} when it was merged", (by, ELSEWHERE)
            )
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


def _held(lease: Lease, verb: str) -> str:
    """``which kim@example.com held for F001``."""
    return f"which {printable(lease.holder)} {verb} for {_of(lease.resource.text, lease.scope)}"


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


def find(commits: Sequence[CommitFacts], by: Judgement) -> list[Finding]:
    """Every violation, in the order of the commits."""
    held, tokens = BrokenClaims(commits, by), _NamedTokens(by)
    found: list[Finding] = []
    for commit in commits:
        found += held.of(commit)
        found += tokens.of(commit)
        if commit.unreadable:
            found.append(_unreadable(commit))
        if by.trailer and _owes_trailer(commit, by):
            doubt = by.doubtful_help(commit, _mentioned_of(commit, by))
            found.append(doubted(_no_trailer(commit), doubt))
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
        found = []
        for named in dict.fromkeys(commit.named):
            ledger = self._by.ledgers.get(named.layer)
            grant = ledger.timeline.grants.get(named.token) if ledger else None
            if ledger is None:
                continue
            verdict, doubt = _judge_token(named, grant, ledger.timeline), ""
            if grant is not None and verdict is None:
                verdict, doubt = self._judge_grant(commit, named, grant)
            if verdict is not None:
                found.append(doubted(_misnamed(commit, named, verdict), doubt))
        return found

    def _judge_grant(
        self, commit: CommitFacts, named: Named, grant: Granted
    ) -> tuple[CommitVerdict | None, str]:
        """Judge a token that was issued for that, by whom and until when; and a doubt."""
        holder, doubt = self._by.addresses.of(grant.holder), ""
        foreign: CommitVerdict | None = None
        if not holder & self._by.addresses.of_all(commit.emails):
            words = f"which was issued to {printable(grant.holder)}"
            foreign = CommitVerdict(UNKNOWN, UNKNOWN.level, words, _issued(grant), grant.at)
            doubt = self._by.doubtful_help(commit, holder)
            if not doubt:
                return foreign, ""
        now = self._by.ledgers[named.layer].moment.now.wall_ms
        made, later = commit.made(now), self._next(named.layer, grant)
        at = 0 if later is None else max(later.at, grant.ended or 0)
        if made is None or later is None or made + MS <= at:
            return foreign, doubt
        who = printable(later.holder)
        evidence: tuple[str, ...] = (f"token {later.token}: granted to {who} at {rfc3339(at)}",)
        level, words = SUPERSEDED.level, f"after {who} had been granted it"
        if made < at:  # within one second nobody knows which came first
            level, words = Level.WARNING, f"in the same second as {who} was granted it"
        elif commit.dated_by_host:
            by_host = _BY_HOST.format(person_key(commit.committer))
            level, evidence = Level.WARNING, (by_host, *evidence)
        return CommitVerdict(SUPERSEDED, level, words, evidence, at), ""

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


def _judge_token(named: Named, grant: Granted | None, timeline: Timeline) -> CommitVerdict | None:
    """Judge a token that was never issued, or for something else."""
    if grant is None and named.token >= timeline.tokens:
        return CommitVerdict(UNKNOWN, UNKNOWN.level, "which was never issued")
    if grant is None:
        words = "which the ledger's history does not reach back to"
        return CommitVerdict(UNKNOWN, Level.WARNING, words)
    if grant.key == named.key and fold(grant.scope) == fold(named.scope):
        return None
    words = f"which was issued for {_of(grant.resource, grant.scope)}"
    return CommitVerdict(UNKNOWN, UNKNOWN.level, words, _issued(grant), grant.at)


def _issued(grant: Granted) -> tuple[str]:
    given = f"token {grant.token}: {_of(grant.resource, grant.scope)}, granted to"
    return (f"{given} {printable(grant.holder)} at {rfc3339(grant.at)}",)
