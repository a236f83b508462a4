"""The ledger store on a git ref: objects in a private store, moved by git's own compare-and-swap.

1. The happy path is one push: objects are built on the last known head, and the push says what it
   expects there. An expected ``""`` means "must not exist", never "do not care".
2. Only a clean success line counts as applied. After anything else the ref is read back, and the
   operation ids in it say what happened.
3. A change is noted beside the store before it is sent, so that a killed command leaves word.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from gitlease.adapters import history
from gitlease.adapters.heads import AnotherLedger, Heads, known_ref
from gitlease.adapters.private_store import PrivateStore
from gitlease.adapters.transport import TIME_LIMIT, Pushed, Remote, fetch_ref, push_refs
from gitlease.adapters.tree import write_tree
from gitlease.domain.errors import Denied, Unavailable
from gitlease.domain.ledger import Fate
from gitlease.domain.outcome import Event
from gitlease.domain.policy import History
from gitlease.ports import Cause, Change, Clock, Pending, Prepared, Snapshot, Swapped

if TYPE_CHECKING:
    import pygit2


class GitLedgerStore:
    """Ledgers on the refs ``<prefix>/<layer>`` of one remote, as one clone knows them.

    ``store`` is the private bare repository, ``state`` gives the folder of a layer's state, and
    ``place`` says to people where the ledger is, without secrets.
    """

    def __init__(
        self,
        remote: Remote,
        *,
        store: str,
        state: Callable[[str], str],
        clock: Clock,
        place: str,
        prefix: str = "refs/gitlease",
        warnings: tuple[str, ...] = (),
        time_limit: float = TIME_LIMIT,
    ) -> None:
        self._remote, self._store, self._state_path = remote, PrivateStore(store), state
        self._heads = Heads(self._store, state, clock, place)
        self._prefix, self._limit = prefix, time_limit
        self._sent: set[str] = set()
        self.place, self.warnings = place, warnings

    # --- reading --------------------------------------------------------------------------------

    def known(self, layer: str) -> Snapshot | None:
        return self._heads.known(layer)

    def fetch(self, layer: str) -> Snapshot:
        before = self._heads.state(layer).load()
        head = self._heads.learn(layer, self._fetch(layer), before=before)
        self._keep(layer, head.version)
        return head

    def confirm(self, layer: str) -> Snapshot:
        try:
            return self.fetch(layer)
        except AnotherLedger:
            self._heads.state(layer).forget()
            return self.fetch(layer)

    def history(self, layer: str, limit: int) -> tuple[Event, ...]:
        known = self._heads.state(layer).load()
        return history.read_events(self._store.repo, known.version, limit) if known else ()

    # --- writing --------------------------------------------------------------------------------

    def prepare(self, changes: Sequence[Change]) -> Prepared:
        replacing = frozenset(c.base.layer for c in changes if self._may_replace(c))
        return self._prepared({c.base.layer: c for c in changes}, replacing)

    def append_only(self, prepared: Prepared) -> Prepared:
        for layer in prepared.replacing:
            state = self._heads.state(layer)
            if known := state.load():
                state.save(replace(known, append_only=True))
        return self._prepared(dict(prepared.changes), frozenset())

    def swap(self, prepared: Prepared) -> Swapped:
        for layer in prepared.changes:
            self._heads.state(layer).add_pending(_pending(prepared, layer))
        swapped = self._swap(prepared)
        if swapped.fate in (Fate.APPLIED, Fate.LOST) or not swapped.sent:
            self.forget_pending(prepared)
        return swapped

    # --- what is pending --------------------------------------------------------------------------

    def pending(self, layer: str) -> Iterable[Pending]:
        return self._heads.state(layer).pending()

    def keep_pending(self, prepared: Prepared) -> None:
        for layer in prepared.changes:
            self._heads.state(layer).add_pending(_pending(prepared, layer), abandoned=True)

    def forget_pending(self, prepared: Prepared) -> None:
        for layer in prepared.changes:
            self._heads.state(layer).remove_pending(_pending(prepared, layer))

    def settle(self, pending: Pending, head: Snapshot) -> Fate:
        fate = Fate.UNDECIDED
        if head.ledger is not None:
            fate = head.ledger.header.fate(pending.operations, pending.base_revision)
        if fate is not Fate.UNDECIDED:
            self._heads.state(pending.layer).remove_pending(pending)
        return fate

    def shown(self, layer: str, notices: Iterable[str]) -> frozenset[str]:
        return self._heads.state(layer).shown(notices)

    # --- how ------------------------------------------------------------------------------------

    def _ref(self, layer: str) -> str:
        return f"{self._prefix}/{layer}"

    def _fetch(self, layer: str) -> str | None:
        """The commit id at the ref, with its objects fetched; None when there is no ref.

        Each fetch has a ref of its own: two at once in one clone must not disturb each other.
        """
        repo = self._store.repo
        import pygit2

        to = f"refs/fetched/{os.getpid()}-{os.urandom(6).hex()}"
        try:
            found = fetch_ref(
                self._remote, self._store.path, self._ref(layer), to, timeout=self._limit
            )
            return str(repo.lookup_reference(to).target) if found else None
        except (KeyError, pygit2.GitError) as error:
            raise Unavailable(f"the fetched ledger cannot be read: {error}") from None
        finally:
            with contextlib.suppress(KeyError, pygit2.GitError):
                repo.lookup_reference(to).delete()

    def _keep(self, layer: str, version: str) -> None:
        import pygit2

        if version:
            with contextlib.suppress(pygit2.GitError, ValueError, OSError):
                ref = known_ref(self._state_path(layer))
                self._store.repo.references.create(ref, pygit2.Oid(hex=version), force=True)

    def _prepared(self, changes: dict[str, Change], replacing: frozenset[str]) -> Prepared:
        versions = {layer: self._commit(c, layer in replacing) for layer, c in changes.items()}
        return Prepared(changes=changes, versions=versions, replacing=replacing)

    def _may_replace(self, change: Change) -> bool:
        """Whether this renewal may take the place of the renewal at the tip."""
        if not change.renewal or change.base.ledger is None:
            return False
        if change.ledger.header.policy.history is not History.REPLACE:
            return False
        known = self._heads.state(change.base.layer).load()
        if known is not None and known.append_only:
            return False
        return history.is_renewal(self._store.repo, change.base.version)

    def _commit(self, change: Change, replace_tip: bool) -> str:
        repo, tip = self._store.repo, change.base.version
        base = cast("pygit2.Commit", repo[tip]) if tip else None
        parents: list[pygit2.Oid] = []
        if base is not None:
            parents = list(base.parent_ids) if replace_tip else [base.id]
        below = base.tree_id if base is not None else None
        tree = write_tree(repo, below, change.ledger.header, change.ledger.changes)
        return history.write_commit(repo, change, tree, parents)

    def _swap(self, prepared: Prepared) -> Swapped:
        pushed = self._push(prepared)
        if pushed.clean:
            heads = {}
            for layer, change in prepared.changes.items():
                heads[layer] = self._heads.adopt(change, prepared.versions[layer])
                self._keep(layer, prepared.versions[layer])
            self._store.tidy()
            return Swapped(fate=Fate.APPLIED, heads=heads)
        operations = {op for change in prepared.changes.values() for op in change.operations}
        if pushed.sent:
            self._sent |= operations
        elif pushed.cause is not Cause.MOVED and not operations & self._sent:
            return Swapped(
                fate=Fate.UNDECIDED, cause=pushed.cause, sent=False, detail=pushed.detail
            )
        return self._read_back(prepared, pushed)

    def _push(self, prepared: Prepared) -> Pushed:
        moves = [
            (self._ref(layer), change.base.version, prepared.versions[layer])
            for layer, change in prepared.changes.items()
        ]
        return push_refs(self._remote, self._store.path, moves, timeout=self._limit)

    def _read_back(self, prepared: Prepared, pushed: Pushed) -> Swapped:
        """What became of a push that was not cleanly successful: the refs say."""
        heads: dict[str, Snapshot] = {}
        fates = set()
        for layer, change in prepared.changes.items():
            try:
                heads[layer] = self.fetch(layer)
            except (Unavailable, Denied) as error:
                detail = f"{pushed.detail}; {error.message}"
                return Swapped(fate=Fate.UNKNOWN, cause=Cause.UNREACHABLE, detail=detail)
            fates.add(_fate(change, heads[layer]))
            heads[layer] = self._heads.credit(change, heads[layer])
        # The refs move together or not at all; what one of them knows holds for all.
        order = (Fate.APPLIED, Fate.UNKNOWN, Fate.LOST, Fate.UNDECIDED)
        fate = next(f for f in order if f in fates)
        return Swapped(fate=fate, heads=heads, cause=pushed.cause, detail=pushed.detail)


def _fate(change: Change, head: Snapshot) -> Fate:
    if head.ledger is None or head.version == change.base.version:
        return Fate.UNDECIDED
    base, header = change.base.ledger, head.ledger.header
    return header.fate(change.operations, base.header.revision if base else 0)


def _pending(prepared: Prepared, layer: str) -> Pending:
    change = prepared.changes[layer]
    base = change.base.ledger
    return Pending(
        operations=change.operations,
        layer=layer,
        expected=change.base.version,
        base_revision=base.header.revision if base else 0,
        version=prepared.versions[layer],
        what=change.what,
    )
