"""Whose work a commit is, and whether a later lease has superseded the one that it names.

``push``, ``land``, the pre-push hook, ``check`` and the server's hook share these definitions:

- A commit is a lease holder's own work if it names the present token of that lease, and its author
  or committer is the holder, or its author is one of the project's bots. Otherwise it is the work
  of its author.
- A commit is superseded if a higher token than the one it names was granted on that resource to
  another lease, whoever holds that, or if its own lease was revoked. Dates decide nothing, and a
  commit that names no lease is never superseded.
- That is cleared if whoever pushes holds the resource now, or finished it, or if the commit, or a
  descendant of it among the same commits, names the newest token and is the work of its holder: the
  latest holder vouches for what they land. It is cleared as well if the ledger records a decision
  to push the commit all the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from gitlease.kernel.rules.edge import Addresses
from gitlease.kernel.rules.errors import LeaseLost, Loss, UsageError
from gitlease.kernel.rules.frozen import dataclass, field
from gitlease.kernel.rules.lease import Lease, person_key
from gitlease.kernel.rules.moves.operations import Event
from gitlease.kernel.rules.resources import WHOLE, fold, parse_resource, scopes_overlap
from gitlease.kernel.rules.work import Named

GRANTS = frozenset({"claimed", "taken_over"})
COMMIT_SKEW = 60_000  # milliseconds by which the clocks of committers may differ from others'
"""The events that give a token."""
READ_AT_ONCE = (200, 4_000, 200_000)  # events: the grant in question is usually a recent one
OVERRIDES_AT_ONCE = 20  # commits that one note names
_OVERRIDE = re.compile(r"pushes superseded work ((?:[0-9a-f]{40,64} ?){1,50}): ")


class Naming(Protocol):
    """A commit with its people and the grants that it names.

    ``emails`` are those of its author and committer, ``author`` is the author's as it was written,
    ``mentioned`` are lines like trailers in the rest of its message, as a squash keeps them.
    """

    @property
    def id(self) -> str: ...
    @property
    def parents(self) -> tuple[str, ...]: ...
    @property
    def emails(self) -> tuple[str, ...]: ...
    @property
    def author(self) -> str: ...
    @property
    def named(self) -> tuple[Named, ...]: ...
    @property
    def mentioned(self) -> tuple[Named, ...]: ...


class TokenGrant(Protocol):
    """The grant of a token; ``key`` is the folded resource."""

    @property
    def token(self) -> int: ...
    @property
    def key(self) -> str: ...
    @property
    def scope(self) -> str: ...
    @property
    def holder(self) -> str: ...


@dataclass(frozen=True)
class Makers:
    """Knows the people of a project, and its ``bots`` (``person_key``), which work for anybody."""

    addresses: Addresses = field(default_factory=Addresses)
    bots: frozenset[str] = frozenset()

    @classmethod
    def of(cls, addresses: Addresses, bots: Iterable[str]) -> Makers:
        return cls(addresses, frozenset(map(person_key, bots)))

    def is_bot(self, commit: Naming) -> bool:
        """Return whether a bot made the commit for somebody."""
        names = (commit.author, *commit.emails[:1])
        return any(person_key(name) in self.bots for name in names if name)

    def is_by(self, commit: Naming, holder: str) -> bool:
        """Return whether a commit with the holder's token is the holder's, by its people."""
        keys = self.addresses.of(holder)
        return bool(keys & self.addresses.of_all(commit.emails)) or self.is_bot(commit)


# --- superseded commits ---------------------------------------------------------------------------


@dataclass(frozen=True)
class GivenToken:
    """A token that a ledger's history says was granted."""

    token: int
    key: str
    scope: str
    holder: str


@dataclass(frozen=True)
class LaterGrants:
    """What became of a grant: later ones of the same resource, with the newest one last.

    ``revoked_by`` ended the grant itself by a revocation, ``""`` for nobody. ``overridden`` are the
    commits that somebody decided to push all the same.
    """

    grants: Sequence[TokenGrant] = ()
    revoked_by: str = ""
    overridden: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Superseded:
    """A commit with a superseded token: by the ``newest`` grant, or by a revocation."""

    commit: str
    named: Named
    newest: TokenGrant | None
    revoked_by: str = ""

    @property
    def why(self) -> str:
        """The reason in words, after ``token 1 of F001, and``."""
        if self.newest is None:
            return f"{self.revoked_by} revoked that lease"
        return f"{self.newest.holder} was granted it later, with token {self.newest.token}"

    @property
    def error(self) -> LeaseLost:
        """The refusal to push it."""
        named, newest = self.named, self.newest
        return LeaseLost(
            f"commit {self.commit[:10]} was made under token {named.token} of {named.resource}, and"
            f" {self.why}",
            resource=named.resource,
            scope=named.scope,
            holder=self.revoked_by if newest is None else newest.holder,
            loss=Loss.REVOKED if newest is None else Loss.TAKEN_OVER,
            hints=(
                f"whoever holds {named.resource} vouches for what they push: look at what was done"
                " meanwhile, claim it, and push again",
            ),
        )


def supersedes(grant: TokenGrant, named: Named) -> bool:
    """Return whether a grant is a later one of what a commit names."""
    same = grant.key == named.key and scopes_overlap(grant.scope, named.scope)
    return same and grant.token > named.token


def find_superseded(
    commits: Sequence[Naming],
    *,
    after: Callable[[Named], LaterGrants],
    vouches: Callable[[Naming, Named], bool],
    makers: Makers,
) -> list[Superseded]:
    """Find the superseded commits among some that are not on their base yet, one for each grant.

    ``after`` says what became of a grant, ``vouches`` whether whoever pushes a commit holds the
    resource that it names, or finished it.
    """
    found = []
    vouched = _Vouching(commits, makers)
    for commit in commits:
        for named in dict.fromkeys(commit.named):
            later = after(named)
            newest = later.grants[-1] if later.grants else None
            if (newest is None and not later.revoked_by) or commit.id in later.overridden:
                continue
            if vouches(commit, named) or (newest is not None and vouched(commit.id, named, newest)):
                continue
            found.append(Superseded(commit.id, named, newest, later.revoked_by))
    return found


class _Vouching:
    """Knows which commits the holder of a token vouches for: those that name it, and before."""

    def __init__(self, commits: Sequence[Naming], makers: Makers) -> None:
        self._commits, self._makers = {x.id: x for x in commits}, makers
        self._known: dict[tuple[str, str, int], set[str]] = {}

    def __call__(self, commit: str, named: Named, newest: TokenGrant) -> bool:
        grant = (named.layer, named.key, newest.token)
        if grant not in self._known:
            self._known[grant] = self._with_ancestors(
                x.id
                for x in self._commits.values()
                if any((y.layer, y.key, y.token) == grant for y in (*x.named, *x.mentioned))
                and self._makers.is_by(x, newest.holder)
            )
        return commit in self._known[grant]

    def _with_ancestors(self, commits: Iterable[str]) -> set[str]:
        found, waiting = set[str](), list(commits)
        while waiting:
            commit = waiting.pop()
            if commit in self._commits and commit not in found:
                found.add(commit)
                waiting += self._commits[commit].parents
        return found


class GrantHistory:
    """What became of grants, by a ledger's events, which are read no further back than needed.

    ``read`` gets a number, and returns at most so many events, the newest first.
    """

    def __init__(
        self, read: Callable[[int], Sequence[Event]], *, limits: Sequence[int] = READ_AT_ONCE
    ) -> None:
        self._read, self._limits, self._asked = read, limits, 0
        self._events: Sequence[Event] = ()
        self._keys: dict[str, str] = {}
        self._found: dict[Named, LaterGrants] = {}

    def after(self, named: Named, records: Iterable[Lease] = ()) -> LaterGrants:
        """Return what became of a grant; ``records`` are those of its resource in the ledger."""
        # A record is the newest grant of its place: most commits name the lease that is held.
        if any(x.token == named.token for x in records):
            return LaterGrants()
        if named not in self._found:
            self._found[named] = self._looked_up(named)
        return self._found[named]

    def may_have(self, token: int, key: str) -> bool:
        """False if the resource of this key was never granted with a token; True if unknown."""
        for is_whole in self._reads():
            given = [x.resource for x in self._events if x.token == token and x.resource]
            if given or is_whole:
                return key in map(self._key, given)
        return True

    def _reads(self) -> Iterator[bool]:
        """Read further back each time; yields whether all of the past was read."""
        for limit in self._limits:
            if limit > self._asked:
                self._events, self._asked = self._read(limit), limit
            yield len(self._events) < self._asked

    def _looked_up(self, named: Named) -> LaterGrants:
        later = LaterGrants()
        for is_whole in self._reads():
            later, is_found = self._search(named)
            if is_found or is_whole:
                break
        return later

    def _search(self, named: Named) -> tuple[LaterGrants, bool]:
        grants: dict[int, GivenToken] = {}
        revoked_by, overridden, is_whole = "", set[str](), False
        for event in self._events:
            if event.resource is None or self._key(event.resource) != named.key:
                continue
            overridden |= {*overridden_in(event)}
            if event.token is None:
                continue
            if event.kind == "revoked" and event.token == named.token:
                revoked_by = event.by
            elif event.kind in GRANTS:
                # Tokens only grow: whatever is older than the grant itself is no later grant.
                if event.token == named.token:
                    is_whole = True
                    break
                holder, scope = event.holder or event.by, event.scope or WHOLE
                grant = GivenToken(event.token, named.key, scope, holder)
                if supersedes(grant, named):
                    grants[event.token] = grant
        ordered = tuple(grant for _, grant in sorted(grants.items()))
        return LaterGrants(ordered, revoked_by, frozenset(overridden)), is_whole

    def _key(self, resource: str) -> str:
        if resource not in self._keys:
            self._keys[resource] = key_of(resource)
        return self._keys[resource]


def overridden_in(event: Event) -> Sequence[str]:
    """The commits that an event decides to push all the same."""
    found = _OVERRIDE.match(event.detail or "") if event.kind == "noted" else None
    return found[1].split() if found is not None else ()


def key_of(resource: str) -> str:
    """The folded key of a resource in a text that anybody may have written."""
    try:
        return parse_resource(resource).key
    except UsageError:
        return fold(resource)


def override_notes(superseded: Iterable[Superseded], reason: str) -> Mapping[str, list[str]]:
    """The notes, by layer and resource, that record a decision to push superseded commits."""
    ids: dict[str, dict[str, None]] = {}
    for one in superseded:
        ids.setdefault(one.named.resource, {})[one.commit] = None
    notes: dict[str, list[str]] = {}
    for resource, commits in ids.items():
        each = list(commits)
        for start in range(0, len(each), OVERRIDES_AT_ONCE):
            some = " ".join(each[start : start + OVERRIDES_AT_ONCE])
            notes.setdefault(resource, []).append(f"pushes superseded work {some}: {reason}")
    return notes


def names_grant(named: Iterable[Named], recorded: int | None, lease: Lease, layer: str) -> bool:
    """Tell whether the trailers of a commit name the present token of a lease.

    Tokens are public, so this alone shows nothing: its people have to be the holder's as well, or a
    server has to have accepted it under that lease, when it lets only the holder bring such a
    commit. ``recorded`` is in milliseconds.
    """
    grant = (layer, lease.resource.key, lease.token)
    # A commit from before the token was given guessed it.
    if recorded is not None and recorded <= lease.claimed_at - COMMIT_SKEW:
        return False
    return any((x.layer, x.key, x.token) == grant for x in named)
