"""What every ledger store promises, told once for all of them.

A store takes part with a file that has a class derived from LedgerStoreContract (named Test…) and
a fixture ``place``, which gives one fresh remote without any ledger, and its clones:

    place.clock                    a ManualClock, which all stores of this place read
    place.store(n)                 the store of the n-th clone (1, 2, …): a new instance each time,
                                   which stands for a new process of that clone. What the clone
                                   keeps beside the ledger is shared by its instances
    place.force(layer, version)    moves the remote's ref of a layer to a version which the remote
                                   has seen, behind everyone's back; "" deletes the ref
    place.refuse_replacements()    from now on the remote refuses whatever does not append
                                   (git: receive.denyNonFastForwards)

Nothing else is asked of a store but the port.
"""

from __future__ import annotations

from typing import Protocol

from support.clock import ManualClock

from gitlease.ports import LedgerStore


class Place(Protocol):
    """One remote and its clones, as the module's docstring says."""

    @property
    def clock(self) -> ManualClock: ...

    def store(self, n: int) -> LedgerStore: ...

    def force(self, layer: str, version: str) -> None: ...

    def refuse_replacements(self) -> None: ...


class LedgerStoreContract:
    """The suite: to be derived from, see above. (Its tests follow shortly.)"""
