"""Which claims of others commits break, and which tokens they name, by who holds what now.

A commit is judged by what is held now, and by the grants that its trailers name, in the order of
their tokens. Its dates decide nothing, as anybody may write them: no invented date makes an error
or takes one away. What somebody held once and holds no more is for ``log`` to tell.

A commit's people are its author and its committer, and, when it comes to broken claims, the person
who pushes it. If any of them is the holder, nothing is broken. But anybody may write an address: on
what is held now a commit is its holder's by rule of the server's hook, if the holder pushed it or
it names the present token. One that is neither is an error where somebody else is known to have
pushed it, else a warning. The holder vouches for what such a commit of theirs builds on.
A co-author is only a statement in the message, and the person who opened a pull request need not
have made its commits: if only one of these is the holder, it is a warning, not an error. Addresses
of one person count as one (see ``Addresses``).
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from gitlease.check import rules
from gitlease.check.rules import finding_of
from gitlease.guard.commits import CommitFacts
from gitlease.guard.whose import (
    GRANTS,
    LaterGrants,
    Makers,
    Naming,
    Superseded,
    find_superseded,
    key_of,
    names_grant,
    overridden_in,
    supersedes,
)
from gitlease.kernel.ledger.ports import Snapshot
from gitlease.kernel.rules.edge import Addresses, printable
from gitlease.kernel.rules.frozen import dataclass, replace
from gitlease.kernel.rules.instant import Instant, rfc3339
from gitlease.kernel.rules.lease import Actor, Lease, Moment, Policy, Relation, State, relation
from gitlease.kernel.rules.moves.operations import LAPSED, Event
from gitlease.kernel.rules.resources import WHOLE, fold, layer_words, scopes_overlap
from gitlease.kernel.rules.viewpoint import Cover, Touched
from gitlease.kernel.rules.work import Named
from gitlease.kernel.store.history_reader import LedgerHistory
from gitlease.verbs.findings import CheckRule, Finding, Level

PATHS_SHOWN = 5
SHORT_ID = 10
INSTALL = "gitlease hooks install"
NOBODY = Actor(holder="")
PROOF = (
    "a commit is the holder's if the holder pushed it, or by the present token in its trailer;"
    " anybody may write an address"
)
REVOKED, COMPLETED = "revoked", "completed"
ENDS = frozenset({"released", COMPLETED, REVOKED, "displaced", "retired", LAPSED})


@dataclass(frozen=True)
class Granted:
    """One grant: its token, resource and holder, and its beginning and end."""

    token: int
    resource: str
    key: str
    scope: str
    holder: str
    at: int
    ended: int | None = None
    how: str = ""  # it ended: the kind of the event
    ended_by: str = ""


@dataclass(frozen=True)
class LedgerFacts:
    """What commits are judged by in one ledger: the ``leases`` it has now, and ``grants`` by token.

    Every grant from the smallest token ``tokens`` on is known. ``overridden`` has, by resource, the
    superseded commits that somebody decided to push all the same.
    """

    layer: str
    leases: tuple[Lease, ...]
    grants: Mapping[int, Granted]
    tokens: int
    policy: Policy
    moment: Moment
    overridden: Mapping[str, frozenset[str]] = MappingProxyType({})


def ledger_facts(head: Snapshot, history: LedgerHistory, now: Instant) -> LedgerFacts:
    """What commits are judged by in a ledger, by its present state and its events."""
    leases = [] if head.ledger is None else [*head.ledger.every_lease()]
    held = tuple(x for x in leases if x.state is State.ACTIVE)
    overridden: dict[str, set[str]] = {}
    for event in history.events:
        for commit in overridden_in(event):
            overridden.setdefault(key_of(event.resource or ""), set()).add(commit)
    return LedgerFacts(
        history.layer,
        held,
        granted(history.events, held),
        history.tokens,
        head.policy,
        Moment(now=now, seen=head.seen),
        {key: frozenset(commits) for key, commits in overridden.items()},
    )


def granted(events: Sequence[Event], held: Iterable[Lease]) -> dict[int, Granted]:
    """The grants that events tell of, and those of held leases that no event tells of."""
    ends: dict[int, Event] = {}
    for event in events:
        if event.token is not None and event.kind in ENDS:
            ends.setdefault(event.token, event)
    grants: dict[int, Granted] = {}
    for event in events:
        token, name = event.token, event.resource
        # If a renewal displaced others, its event has the token of the grant before it.
        if event.kind not in GRANTS or token is None or name is None or token in grants:
            continue
        # A grant that names no holder is that of whoever wrote it.
        holder = event.holder or event.by
        scope = event.scope or WHOLE
        grant = Granted(token, name, key_of(name), scope, holder, event.at)
        end = ends.get(token)
        if end is not None:
            grant = replace(grant, ended=end.at, how=end.kind, ended_by=end.by)
        grants[token] = grant
    for x in held:
        if x.token not in grants:
            grants[x.token] = Granted(
                x.token, x.resource.text, x.resource.key, x.scope, x.holder, x.claimed_at
            )
    return grants


# --- findings -------------------------------------------------------------------------------------


class Held(NamedTuple):
    """A lease that a ledger has now, in its layer."""

    layer: str
    lease: Lease


class TouchedClaim(NamedTuple):
    """A commit that changes ``paths`` which a lease covers.

    ``people`` are the keys of the commit's people, ``keys`` those of the lease's holder.
    """

    commit: CommitFacts
    people: frozenset[str]
    held: Held
    keys: frozenset[str]
    paths: Sequence[str]


class CommitVerdict(NamedTuple):
    """A fault of a commit: ``words`` follow what it does. ``level``: if not the rule's.

    ``doubt`` is why who made it may have had the right to: it makes a warning.
    """

    rule: CheckRule
    words: str
    level: Level | None = None
    evidence: tuple[str, ...] = ()
    since: int | None = None
    doubt: str = ""


def _finding(
    commit: CommitFacts, verdict: CommitVerdict, does: str, *more: str, **about: Any
) -> Finding:
    """The finding that a commit does something; ``more`` is the evidence after its dates."""
    doubt = f"; {verdict.doubt}" if verdict.doubt else ""
    return finding_of(
        verdict.rule,
        f"{_who(commit)} {does}{verdict.words}{doubt}",
        level=Level.WARNING if doubt else verdict.level or verdict.rule.level,
        commit=commit.id,
        evidence=(*verdict.evidence, *_dates(commit), *more),
        **about,
    )


def _broken(
    commit: CommitFacts, held: Held, paths: Sequence[str], verdict: CommitVerdict
) -> Finding:
    """A commit touches what another holds."""
    lease = held.lease
    touched = sorted(paths)
    others = f" and {len(touched) - 1} more" if len(touched) > 1 else ""
    session = f", session {printable(lease.session)}" if lease.session else ""
    since_when = (
        f"token {lease.token}: {_of(lease.resource.text, lease.scope)} is "
        f"{printable(lease.holder)}'s{session} from {rfc3339(lease.claimed_at)} "
        f"until {rfc3339(lease.expires_at)}"
    )
    return _finding(
        commit,
        verdict._replace(evidence=(*verdict.evidence, since_when)),
        f"touches {printable(touched[0])}{others}, ",
        *_listed(touched),
        since=lease.claimed_at,
        resource=lease.resource.text,
        scope=lease.scope,
        layer=held.layer,
        holder=lease.holder,
        file=touched[0],
        next_steps=(_command("show", lease.resource.text, held.layer),),
    )


def _of_token(commit: CommitFacts, named: Named, verdict: CommitVerdict) -> Finding:
    """A commit names a token that it should not."""
    return _finding(
        commit,
        verdict,
        f"names token {named.token} of {_of(named.resource, named.scope)}, ",
        since=verdict.since,
        resource=named.resource,
        scope=named.scope,
        layer=named.layer,
        holder=commit.emails[0] if commit.emails else None,
        file=min((x.path for x in commit.touched), default=None),
        next_steps=(_command("log", named.resource, named.layer),),
    )


def _of_trailer(commit: CommitFacts, verdict: CommitVerdict, *more: str) -> Finding:
    file = commit.touched[0].path if commit.touched else None
    about = {"since": commit.recorded, "file": file, "next_steps": (INSTALL,)}
    return _finding(commit, verdict, "", *more, **about)


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


class Judgement:
    """Judges commits by the leases that cover what they touch, and the tokens that they name.

    ``pushers`` are the keys of the person who pushed them, if known: they count as people of every
    commit. ``requesters`` opened or updated the pull request, by name with their keys: they count
    no more than a co-author. ``trailer``: each commit must name a lease. ``landing`` gives the
    files that all commits together change; None if that is not known. ``bots`` commit for others.
    """

    def __init__(
        self,
        *,
        addresses: Addresses,
        bots: Iterable[str] = (),
        ledgers: Mapping[str, LedgerFacts],
        pushers: frozenset[str] = frozenset(),
        requesters: Mapping[str, frozenset[str]] = MappingProxyType({}),
        trailer: bool = False,
        landing: Callable[[], frozenset[str] | None] = lambda: None,
    ) -> None:
        self._addresses = addresses
        self._ledgers = ledgers
        self._pushers = pushers
        self._requesters = requesters
        self._trailer = trailer
        self._landing = landing
        self._makers = Makers.of(addresses, bots)
        self._superseded: dict[tuple[str, Named], Superseded] = {}
        self._merges: Mapping[str, CommitFacts] = {}
        self._commits: Mapping[str, CommitFacts] = {}
        self._people_of: Mapping[str, frozenset[str]] = {}
        self._vouched: dict[tuple[str, str], frozenset[str]] = {}
        self._by_person: dict[str, list[CommitFacts]] = {}
        self._paths_by: dict[frozenset[str], frozenset[str]] = {}
        self._held = [Held(facts.layer, x) for facts in ledgers.values() for x in facts.leases]
        self._keys = [addresses.of(held.lease.holder) for held in self._held]
        self._cover = Cover([held.lease for held in self._held])
        self._of_resource: dict[tuple[str, str], list[Held]] = {}
        for held in self._held:
            of = (held.layer, held.lease.resource.key)
            self._of_resource.setdefault(of, []).append(held)
        self._grants: dict[tuple[str, str], list[Granted]] = {}
        for layer, ledger in ledgers.items():
            for _, grant in sorted(ledger.grants.items()):
                self._grants.setdefault((layer, grant.key), []).append(grant)

    def find(self, commits: Sequence[CommitFacts]) -> list[Finding]:
        """Every violation, in the order of the commits."""
        self._merges = merged_by(commits)
        self._commits = {commit.id: commit for commit in commits}
        self._people_of = {commit.id: self._find_people(commit) for commit in commits}
        self._vouched = {}
        self._paths_by = {}
        self._by_person = {}
        for commit in commits:
            for person in self._people_of[commit.id]:
                self._by_person.setdefault(person, []).append(commit)
        found = find_superseded(
            commits, after=self._after, vouches=self._vouches, makers=self._makers
        )
        self._superseded = {(one.commit, one.named): one for one in found}
        return [finding for commit in commits for finding in self._of(commit)]

    def _of(self, commit: CommitFacts) -> Iterator[Finding]:
        """All findings about one commit."""
        yield from self._broken_claims(commit)
        for named in dict.fromkeys(commit.named):
            verdict = self._judge_token(commit, named) if named.layer in self._ledgers else None
            if verdict is not None:
                yield _of_token(commit, named, verdict)
        if commit.unreadable:
            first, *others = commit.unreadable
            more = f" and {len(others)} more" if others else ""
            words = f"has a trailer that names no lease: {printable(first)}{more}"
            expected = ("expected Gitlease: RESOURCE token=NUMBER",)
            yield _of_trailer(commit, CommitVerdict(rules.UNREADABLE, words, evidence=expected))
        if self._trailer:
            yield from self._trailer_owed(commit)

    def _trailer_owed(self, commit: CommitFacts) -> Iterator[Finding]:
        """The finding that a commit changes more than task files and names no lease."""
        # What is named of a ledger that is not checked could be anything.
        if any(x.layer in self._ledgers for x in commit.named) or len(commit.parents) > 1:
            return
        if not commit.touched or commit.only_tasks:
            return
        # The lines in a squash's message count if they are true.
        granted = frozenset[str]()
        for line in commit.mentioned:
            grant = self._grant(line)
            if grant is not None and grant.key == line.key:
                granted |= self._addresses.of(grant.holder)
        if granted & self._people_of[commit.id]:
            return
        layers = ", ".join(printable(name) for name in dict.fromkeys(x.layer for x in commit.named))
        more = (f"it names only a ledger that is not checked: {layers}",) if layers else ()
        words = "names no lease, and this project requires one"
        doubt = self._help(commit, granted)
        verdict = CommitVerdict(rules.NO_TRAILER, words, evidence=more, doubt=doubt)
        yield _of_trailer(commit, verdict, *_listed([x.path for x in commit.touched]))

    def _find_people(self, commit: CommitFacts) -> frozenset[str]:
        """The people of a commit: of one that a bot made, also those whose grants it names."""
        people = self._addresses.of_all(commit.emails)
        if self._makers.is_bot(commit):
            for named in (*commit.named, *commit.mentioned):
                grant = self._grant(named)
                if grant is not None and grant.key == named.key:
                    people |= self._addresses.of(grant.holder)
        return people

    def _grant(self, named: Named) -> Granted | None:
        ledger = self._ledgers.get(named.layer)
        return ledger.grants.get(named.token) if ledger is not None else None

    def _help(self, commit: CommitFacts, keys: frozenset[str]) -> str:
        """Why one of these keys may have taken part in a commit; ``""`` if nothing says so."""
        named = next((x for x in commit.helpers if self._addresses.of(x) & keys), None)
        if named is not None:
            return f"only its message says that {printable(named)} took part"
        requesters = self._requesters.items()
        asking = next((name for name, theirs in requesters if theirs & keys), None)
        if asking is None:
            return ""
        return f"the only link is that {printable(asking)} opened or acted on its request"

    # --- claims -----------------------------------------------------------------------------------

    def _broken_claims(self, commit: CommitFacts) -> list[Finding]:
        """The claims that a commit broke, one finding for each lease."""
        touched: dict[int, list[str]] = {}
        people = self._people_of[commit.id]
        for change in commit.touched:
            for number in sorted(self._cover.matching(change)):
                if self._concerns(change, number, people):
                    touched.setdefault(number, []).append(change.path)
        best: dict[tuple[str, str], Finding] = {}
        for number, paths in touched.items():
            claim = TouchedClaim(commit, people, self._held[number], self._keys[number], paths)
            verdict = self._judge_claim(claim)
            if verdict is None:
                continue
            finding = _broken(commit, claim.held, paths, verdict)
            key = (claim.held.layer, claim.held.lease.lease_id)
            known = best.get(key)
            if known is None or known.level.rank < finding.level.rank:
                best[key] = finding
        return sorted(best.values(), key=lambda f: (-f.level.rank, f.file or "", f.resource or ""))

    def _judge_claim(self, claim: TouchedClaim) -> CommitVerdict | None:
        """The verdict of the first rule that applies; None if the commit breaks nothing."""
        # The last rule asks for no fact, so there is always one.
        rule = next(x for x in CLAIM_RULES if all(fact(self, claim) for fact in x.facts))
        return None if rule.verdict is None else rule.verdict(self, claim)

    def _concerns(self, change: Touched, number: int, people: frozenset[str]) -> bool:
        """True if a lease is affected by a commit's change of a path, or is its own people's."""
        keys = self._keys[number]
        # A merge that follows another side concerns only those whose work it gives up.
        if not change.lost or keys & people:
            return True
        held = self._held[number]
        grant = (held.layer, held.lease.resource.key, held.lease.token)
        return any(
            self._addresses.of_all(work.people) & keys
            or any((x.layer, x.key, x.token) == grant for x in work.named)
            for work in change.lost
        )

    # Facts of a commit and a claim that it touches, by which CLAIM_RULES judge.

    def _is_pushed_by_holder(self, claim: TouchedClaim) -> bool:
        return bool(claim.keys & self._pushers)

    def _is_by_address(self, claim: TouchedClaim) -> bool:
        return bool(claim.keys & claim.people)

    def _changes_only_tasks(self, claim: TouchedClaim) -> bool:
        return claim.commit.only_tasks

    def _is_free_now(self, claim: TouchedClaim) -> bool:
        return not self._blocks_now(claim.held)

    def _names_its_token(self, claim: TouchedClaim) -> bool:
        commit, held = claim.commit, claim.held
        named = (*commit.named, *commit.mentioned)
        return names_grant(named, commit.recorded, held.lease, held.layer)

    def _lands_elsewhere(self, claim: TouchedClaim) -> bool:
        """Return whether all commits together leave its paths as they are."""
        # Costs a diff of the whole range, which most checks never need.
        landing = self._landing()
        return landing is not None and landing.isdisjoint(claim.paths)

    def _leaves_no_trace(self, claim: TouchedClaim) -> bool:
        """Return whether other commits take back what this one changes in its paths.

        A merge that drops work, or a commit that undoes the holder's own, changes nothing on the
        base either; but it breaks the claim, so neither is left out.
        """
        if len(claim.commit.parents) > 1:
            return False
        if not self._paths_of(claim.keys).isdisjoint(claim.paths):
            return False
        return self._lands_elsewhere(claim)

    def _commits_of(self, keys: frozenset[str]) -> Iterable[CommitFacts]:
        """The commits in which one of these people took part, each once."""
        return {x.id: x for key in keys for x in self._by_person.get(key, ())}.values()

    def _paths_of(self, keys: frozenset[str]) -> frozenset[str]:
        """The paths that all commits of these people change."""
        if keys not in self._paths_by:
            touched = (change for commit in self._commits_of(keys) for change in commit.touched)
            self._paths_by[keys] = frozenset(change.path for change in touched)
        return self._paths_by[keys]

    def _is_vouched_for(self, claim: TouchedClaim) -> bool:
        return claim.commit.id in self._vouched_for(claim.held, claim.keys)

    def _is_merged_by_holder(self, claim: TouchedClaim) -> bool:
        merge = self._merges.get(claim.commit.id)
        return merge is not None and bool(claim.keys & self._addresses.of_all(merge.emails))

    def _is_expired(self, claim: TouchedClaim) -> bool:
        now = self._ledgers[claim.held.layer].moment.now.wall_ms
        return claim.held.lease.expires_at <= now

    # Verdicts on a claim.

    def _unproven(self, claim: TouchedClaim) -> CommitVerdict:
        why = "it was pushed by somebody else and" if self._pushers else "it"
        return self._unproven_by(claim, why)

    def _merge_unproven(self, claim: TouchedClaim) -> CommitVerdict:
        merge = self._merges[claim.commit.id]
        verdict = self._unproven_by(claim, f"{_who(merge)}, which merged it,")
        return self._doubted(claim, verdict)

    def _unproven_by(self, claim: TouchedClaim, what: str) -> CommitVerdict:
        lease = claim.held.lease
        words = f"{_held(lease, 'holds')} now: {what} does not name token {lease.token}"
        level = Level.ERROR if self._pushers else None
        return CommitVerdict(rules.UNPROVEN, words, level, (PROOF,))

    def _held_still(self, claim: TouchedClaim) -> CommitVerdict:
        lease = claim.held.lease
        until = f"until {rfc3339(lease.expires_at)}"
        words = f"{_held(lease, 'held')} {until}, and nobody else may take it yet"
        return self._doubted(claim, CommitVerdict(rules.HELD_NOW, words))

    def _held_now(self, claim: TouchedClaim) -> CommitVerdict:
        lease = claim.held.lease
        words = f"{_held(lease, 'holds')} now, until {rfc3339(lease.expires_at)}"
        return self._doubted(claim, CommitVerdict(rules.HELD_NOW, words))

    def _doubted(self, claim: TouchedClaim, verdict: CommitVerdict) -> CommitVerdict:
        return verdict._replace(doubt=self._help(claim.commit, claim.keys))

    def _blocks_now(self, held: Held) -> bool:
        ledger = self._ledgers[held.layer]
        return relation(held.lease, NOBODY, ledger.policy, ledger.moment) is Relation.THEIRS

    def _vouched_for(self, held: Held, keys: frozenset[str]) -> frozenset[str]:
        """The commits that one of the holder's, which names the present token, builds on."""
        of = (held.layer, held.lease.lease_id)
        if of not in self._vouched:
            waiting = [
                parent
                for x in self._commits_of(keys)
                if names_grant((*x.named, *x.mentioned), x.recorded, held.lease, held.layer)
                for parent in x.parents
            ]
            below = set[str]()
            while waiting:
                commit = self._commits.get(waiting.pop())
                if commit is not None and commit.id not in below:
                    below.add(commit.id)
                    waiting += commit.parents
            self._vouched[of] = frozenset(below)
        return self._vouched[of]

    # --- tokens -----------------------------------------------------------------------------------

    def _judge_token(self, commit: CommitFacts, named: Named) -> CommitVerdict | None:
        """Judge a token: to whom it was issued, for what, and until when."""
        grant, ledger = self._grant(named), self._ledgers[named.layer]
        # Tokens only grow: of a smaller one the history that was read may have lost the grant.
        if grant is None and named.token >= ledger.tokens:
            return CommitVerdict(rules.UNKNOWN, "which was never issued")
        if grant is None:
            words = "which the ledger's history does not reach back to"
            return CommitVerdict(rules.UNKNOWN, words, Level.WARNING)
        issued = f"{_of(grant.resource, grant.scope)}, granted to {printable(grant.holder)}"
        evidence: tuple[str, ...] = (f"token {grant.token}: {issued} at {rfc3339(grant.at)}",)
        if grant.key != named.key or fold(grant.scope) != fold(named.scope):
            words = f"which was issued for {_of(grant.resource, grant.scope)}"
            return CommitVerdict(rules.UNKNOWN, words, None, evidence, grant.at)
        holder = self._addresses.of(grant.holder)
        foreign: CommitVerdict | None = None
        if not holder & self._people_of[commit.id]:
            words = f"which was issued to {printable(grant.holder)}"
            doubt = self._help(commit, holder)
            foreign = CommitVerdict(rules.UNKNOWN, words, None, evidence, grant.at, doubt)
            if not doubt:
                return foreign
        one = self._superseded.get((commit.id, named))
        if one is None:
            return foreign
        newest = None if one.newest is None else self._grant(replace(named, token=one.newest.token))
        at = grant.ended if newest is None else newest.at
        if newest is not None:
            to = printable(newest.holder)
            evidence = (f"token {newest.token}: granted to {to} at {rfc3339(newest.at)}",)
        return CommitVerdict(rules.SUPERSEDED, f"and {printable(one.why)}", None, evidence, at)

    def _after(self, named: Named) -> LaterGrants:
        """What became of a grant that a commit names."""
        grant, ledger = self._grant(named), self._ledgers.get(named.layer)
        if ledger is None or self._stands(named):
            return LaterGrants()
        every = self._grants.get((named.layer, named.key), ())
        is_revoked = grant is not None and grant.key == named.key and grant.how == REVOKED
        return LaterGrants(
            [x for x in every if supersedes(x, named)],
            grant.ended_by if grant is not None and is_revoked else "",
            ledger.overridden.get(named.key, frozenset()),
        )

    def _stands(self, named: Named) -> bool:
        every = self._of_resource.get((named.layer, named.key), ())
        return any(x.lease.token == named.token for x in every)

    def _vouches(self, commit: Naming, named: Named) -> bool:
        """Return whether the person who pushed a commit holds what it names, or finished it."""
        if any(
            self._blocks_now(x) and scopes_overlap(x.lease.scope, named.scope)
            for x in self._of_resource.get((named.layer, named.key), ())
            if self._addresses.of(x.lease.holder) & self._pushers
        ):
            return True
        every = self._grants.get((named.layer, named.key), ())
        later = [x for x in every if supersedes(x, named)]
        people = self._pushers or self._addresses.of_all(commit.emails)
        finished = bool(later) and later[-1].how == COMPLETED
        return finished and bool(self._addresses.of(later[-1].holder) & people)


class ClaimRule(NamedTuple):
    """What a commit does to a claim that it touches, if all of these facts are true.

    ``verdict`` is None for a commit that breaks nothing.
    """

    name: str
    facts: tuple[Callable[[Judgement, TouchedClaim], bool], ...]
    verdict: Callable[[Judgement, TouchedClaim], CommitVerdict] | None
    reason: str


CLAIM_RULES = (
    ClaimRule(
        "pushed by its holder",
        (Judgement._is_pushed_by_holder,),
        None,
        "a server has seen to who pushes, unlike to the address in a commit",
    ),
    ClaimRule(
        "its holder's assignment",
        (Judgement._is_by_address, Judgement._changes_only_tasks),
        None,
        "commits of assignments name no token",
    ),
    ClaimRule(
        "free",
        (Judgement._is_free_now,),
        None,
        "a commit is judged by what is held now: no date of it decides anything",
    ),
    ClaimRule(
        "proven",
        (Judgement._is_by_address, Judgement._names_its_token),
        None,
        "its holder made it, under this lease",
    ),
    ClaimRule(
        "its holder's, taken back",
        (Judgement._is_by_address, Judgement._lands_elsewhere),
        None,
        "nothing of it arrives, so nobody has to prove anything",
    ),
    ClaimRule(
        "unproven",
        (Judgement._is_by_address,),
        Judgement._unproven,
        "only an address says that the holder made it, and anybody may write one",
    ),
    ClaimRule(
        "taken back",
        (Judgement._leaves_no_trace,),
        None,
        "other commits take back what it changes, and none of the holder's is undone",
    ),
    ClaimRule(
        "vouched for",
        (Judgement._is_vouched_for,),
        None,
        "a commit of the holder's that names the present token builds on it",
    ),
    ClaimRule(
        "merged by its holder",
        (Judgement._is_merged_by_holder,),
        Judgement._merge_unproven,
        "who merges vouches for what they take in, but only an address says who that was",
    ),
    ClaimRule(
        "expired",
        (Judgement._is_expired,),
        Judgement._held_still,
        "until a lease lapses nobody else may take it",
    ),
    ClaimRule("held", (), Judgement._held_now, "it is another's work on what somebody holds"),
)
"""How a commit is judged by each claim that it touches: the first rule that applies decides."""


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
    while at in known:
        commit = known.pop(at)
        branch.append(commit)
        at = commit.parents[0] if commit.parents else ""
    merges: dict[str, CommitFacts] = {}
    # The oldest merge first: what it took to the branch was there for the later ones.
    for merge in reversed(branch):
        waiting = list(merge.parents[1:])
        while waiting:
            merged = known.pop(waiting.pop(), None)
            if merged is not None:
                merges[merged.id] = merge
                waiting += merged.parents
    return merges
