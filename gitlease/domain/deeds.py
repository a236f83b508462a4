"""What commits did, and what they are judged by.

Who stands for a commit: its author and its committer, and for whose claims are broken also whoever
brings it. If any of them is the holder, nothing is broken. A co-author is a claim of whoever wrote
the message, and whoever asks for the commits to be merged need not have made them: where only such
a one is the holder, it is a warning, never an error, and never nothing. Addresses of one person
count as one (see ``Addresses``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gitlease.domain.addresses import Addresses
from gitlease.domain.chronicle import Chronicle
from gitlease.domain.frozen import dataclass, field
from gitlease.domain.guard import Touched
from gitlease.domain.instant import MS
from gitlease.domain.lapse import Moment
from gitlease.domain.pattern import fold
from gitlease.domain.policy import Policy
from gitlease.domain.trailers import Named

SKEW = 60 * MS  # what an author date may lie in the future, as the clocks of two machines may
HOSTS = frozenset({"noreply@github.com"})  # who commits what a host itself merges or squashes


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """What one commit did. Times are the milliseconds at which its seconds begin.

    ``emails`` are those of its people: the author's first, as the project's mailmap has them, and
    then as they wrote them, for a mailmap makes nobody stop being that. ``helpers`` are those of
    the co-authors that its message claims, ``committer`` is the committer's as it was written.
    ``written`` is the author date, ``recorded`` the committer date, None where there is none.
    ``named`` are its trailers, ``mentioned`` the lines like them in the rest of its message, as a
    squash has them, ``unreadable`` the texts of trailers that name nothing. ``only_tasks``: it
    touches nothing but task files.
    """

    id: str
    subject: str = ""
    emails: tuple[str, ...]
    helpers: tuple[str, ...] = ()
    committer: str = ""
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

    @property
    def dated_by_host(self) -> bool:
        """Whether its author date may be that of a merge by the host: its work may be older."""
        return fold(self.committer) in HOSTS and self.written == self.recorded


@dataclass(frozen=True, slots=True)
class Standing:
    """One ledger now: its chronicle, and what it takes to see who holds what."""

    chronicle: Chronicle
    policy: Policy
    moment: Moment


@dataclass(frozen=True, slots=True)
class Helper:
    """Somebody who may have taken part in a commit, as its message says or by its request."""

    name: str
    requested: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What commits are judged by.

    ``bringers`` are the keys of whoever pushed them, where known: they stand for all of them.
    ``requesters`` are whoever asks for them to be merged, what they are called and their keys: they
    stand for no more than a co-author does.
    """

    addresses: Addresses
    bringers: frozenset[str] = frozenset()
    requesters: Mapping[str, frozenset[str]] = field(default_factory=dict)
    trailer: bool = False
    ledgers: Mapping[str, Standing] = field(default_factory=dict)


def oldest(deeds: Iterable[Deed], now: int) -> int:
    """The earliest time that matters to these commits."""
    times = [t for x in deeds for t in (x.made(now), x.recorded) if t is not None]
    return min(times, default=now)


def helper_with(deed: Deed, by: Judgement, keys: frozenset[str]) -> Helper | None:
    """Who with one of these keys may have taken part: a co-author, else who asks for a merge."""
    named = next((x for x in deed.helpers if by.addresses.of(x) & keys), None)
    if named is not None:
        return Helper(named)
    asking = next((name for name, theirs in by.requesters.items() if theirs & keys), None)
    return None if asking is None else Helper(asking, requested=True)
