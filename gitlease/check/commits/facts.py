"""What commits are judged by.

Who stands for a commit: its author and its committer, and for whose claims are broken also whoever
brings it. If any of them is the holder, nothing is broken. A co-author is a claim of whoever wrote
the message, and whoever asks for the commits to be merged need not have made them: where only such
a one is the holder, it is a warning, never an error, and never nothing. Addresses of one person
count as one (see ``Addresses``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gitlease.check.commits.timeline import Timeline
from gitlease.core.addresses import Addresses
from gitlease.core.edge import printable
from gitlease.core.expiry import Moment
from gitlease.core.frozen import dataclass, field
from gitlease.core.policy import Policy
from gitlease.guard.commit_facts import CommitFacts


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
