"""The places of a ledger: one ref of the remote each, and what a clone keeps of each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from simulation.machines import LAYER, Machine
from support.memory import MemoryRefs, MemoryRemote

from gitlease.kernel.ledger.ports import Swapped
from gitlease.kernel.rules.errors import Invalid
from gitlease.kernel.rules.frozen import dataclass, replace
from gitlease.kernel.rules.lease import Actor
from gitlease.kernel.rules.work import WorkPush
from gitlease.kernel.store.admission import RemoteFacts
from gitlease.kernel.store.elsewhere import OtherPlaces
from gitlease.kernel.store.git_ledger import RefLedgerStore, StorePlace
from gitlease.kernel.store.state import Known
from gitlease.kernel.store.storage import Move

MOVED = "moved"
PLACES = (LAYER, MOVED)  # the refs of the remote; the layer is called the same everywhere


def word_of(ref: str) -> str:
    """A place as a ledger names it."""
    return f"- refs/{ref} {LAYER}"


def ref_of(word: str) -> str:
    """The ref of a place as a ledger names it. Raises Invalid."""
    for ref in PLACES:
        if word == word_of(ref):
            return ref
    raise Invalid(f"the ledger was moved to {word}, which is no place")


class RefsAt(MemoryRefs):
    """The storage at one place: the layer is another ref there."""

    def __init__(self, remote: MemoryRemote, ref: str) -> None:
        super().__init__(remote)
        self._ref = ref

    def fetch(self, layer: str, known: str = "", *, before_push: bool = False) -> str | None:
        return super().fetch(self._ref)

    def peek(self, layers: Sequence[str]) -> Mapping[str, str]:
        found = super().peek([self._ref])
        return dict.fromkeys(layers, found[self._ref]) if found else {}

    def swap(
        self,
        moves: Sequence[Move],
        work: WorkPush | None = None,
        *,
        on_start: Callable[[], object] = lambda: None,
    ) -> Swapped:
        named = [replace(move, layer=self._ref) for move in moves]
        return super().swap(named, work, on_start=on_start)


@dataclass(frozen=True)
class Elsewhere(OtherPlaces):
    """What a clone knows at its other places. ``last`` is the one that it used before."""

    machine: Any = None

    def known(self, layer: str) -> Iterator[tuple[str, Known]]:
        for ref in PLACES:
            known = self.machine.disk_at(ref).load() if ref != self.key else None
            if known is not None:
                yield ref, known

    def former(self, layer: str) -> Known | None:
        known: Known | None = None
        if self.last != self.key:
            known = self.machine.disk_at(self.last).load()
        return known

    def carry(self, layer: str) -> None:
        if self.last != self.key:
            self.machine.disk_at(self.key).takes_over(self.machine.disk_at(self.last))


def store_at(
    remote: MemoryRemote,
    machine: Machine,
    *,
    opener: Actor,
    recorded: Callable[[], str | None],
    at_once: Callable[[], bool],
) -> RefLedgerStore:
    """The ledger as one process of a clone knows it, wherever it was moved to.

    ``recorded`` is the id that the settings on the default branch record. ``at_once``: whether a
    clone remembers another place to which it is led as soon as the ledger is known to be there.
    """
    here = machine.place

    def facts() -> RemoteFacts:
        return RemoteFacts(recorded=recorded)

    def elsewhere(ref: str) -> Elsewhere:
        return Elsewhere(key=ref, last=machine.used, machine=machine)

    def follow(word: str) -> StorePlace:
        nonlocal here
        ref = ref_of(word)
        if ref == here:
            raise Invalid("the ledger was moved to the place where it is")
        before, here = elsewhere(ref), ref
        # A process may be killed after that, before it has read or written anything there.
        machine.goes_to(ref, at_once=False)
        soon, refs = at_once(), RefsAt(remote, ref)
        return StorePlace(
            refs,
            lambda _: machine.disk_at(ref),
            ref,
            facts(),
            refs,
            before,
            opened=lambda: machine.goes_to(ref, at_once=soon),
        )

    first, refs = here, RefsAt(remote, here)
    place = StorePlace(
        refs,
        lambda _: machine.disk_at(first),
        here,
        facts(),
        refs,
        elsewhere(here),
        follow=follow,
    )
    store = RefLedgerStore(place, machine.clock)
    store.opener = opener
    return store
