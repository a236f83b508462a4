"""An engine in which ledgers lie, such as git: what it has to offer.

Nothing here speaks of git. A version is the engine's own name for one state of one ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from gitlease.kernel.ledger.ports import Change, Swapped
from gitlease.kernel.rules.errors import HeadGone
from gitlease.kernel.rules.frozen import dataclass
from gitlease.kernel.rules.lease import Lease
from gitlease.kernel.rules.ledger import Damage, Header, Records
from gitlease.kernel.rules.moves.operations import Event
from gitlease.kernel.rules.work import WorkPush

COPY_LOST = "this clone's copy of the ledger was damaged, and is fetched again: try again"


class CopyLost(HeadGone):
    """This clone's copy of the ledgers could not be read, and was deleted: fetch again.

    No rule takes it for a refusal.
    """


@dataclass(frozen=True)
class Move:
    """The ledger of a layer moves from the version that is expected (``""``: none) to a new one.

    ``ends``: a lease ends, for which others may wait.
    """

    layer: str
    expected: str
    new: str
    ends: bool = False


class StoredRecords(Records, Protocol):
    """The records of one state, which lie in files, as ``lease_file`` names them."""

    def record_at(self, file: str) -> Lease | Damage:
        """The record of a file."""

    def changed_since(self, before: StoredRecords | None) -> Sequence[tuple[str, bool | None]]:
        """The files that differ, and whether each was there before; None if it ended.

        Without an earlier state all may have been there.
        """


class PastStep(Protocol):
    """A state of a ledger: its version, that ``before`` it (``""``: none), and its step's events.

    ``operations`` has their ids, None if the step does not tell them. ``is_renewal``: the next
    renewal may take its place. ``time`` is in seconds since the epoch, as its writer says.
    """

    @property
    def id(self) -> str: ...
    @property
    def before(self) -> str: ...
    @property
    def is_renewal(self) -> bool: ...
    @property
    def time(self) -> int: ...
    @property
    def events(self) -> tuple[Event, ...]: ...
    @property
    def operations(self) -> frozenset[str] | None: ...
    @property
    def records(self) -> StoredRecords: ...


class Storage(Protocol):
    """Ledgers, one for each layer, with the states that they had.

    What a process keeps of them is a copy: where it cannot be read it is deleted and CopyLost
    raised, and a fetch brings it again. A method that asks the engine raises Unavailable if it
    cannot be reached, and Denied if it refuses.
    """

    def peek(self, layers: Sequence[str]) -> Mapping[str, str]:
        """The versions now by layer, not to be read yet, of the ledgers that are there."""

    def fetch(self, layer: str, known: str = "", *, before_push: bool = False) -> str | None:
        """The version now, readable from now on; None if there is none.

        Without a ``known`` version the oldest history may be left out. ``before_push``: a push
        follows, so there is no need to ask for anything that a push shows by the way.
        """

    def read(self, layer: str, version: str) -> tuple[Header, StoredRecords]:
        """Read a version, without asking. Raises Invalid if it is no ledger."""

    def history(self, version: str, *, whole: bool = False) -> Iterator[PastStep]:
        """The states up to a version, the newest first, as far back as they are here.

        ``whole``: CopyLost where the beginning is not here, so that a fetch brings all.
        """

    def write(self, change: Change, *, replace_tip: bool) -> str:
        """Write a step on top of its base, or in the place of its base, which nobody sees yet.

        Returns its version: for the same step on the same base always the same.
        """

    def swap(
        self, moves: Sequence[Move], *, on_start: Callable[[], object] = lambda: None
    ) -> Swapped:
        """Move ledgers, all or none, if each is at the version that is expected.

        ``on_start`` is called once that has begun. The answer is without heads, and undecided
        unless it was a clean success. Raises only what shows that nothing was sent.
        """

    def watch(self, layer: str) -> str:
        """A word that differs once a lease may have ended; it costs nothing, and may miss some."""


class SharedWithWork(Protocol):
    """A storage beside people's work, so that both move at once or not at all."""

    def swap(self, moves: Sequence[Move], work: WorkPush | None = None) -> Swapped:
        """Move ledgers as a storage does, with the refs of ``work``."""

    def work_refs(self, work: WorkPush) -> Mapping[str, str]:
        """The refs of some work now, ``""`` for those that are not there."""
