"""The refs of ledgers in git: objects in a private store, moved by git's own compare-and-swap."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from gitlease.core.errors import Invalid, Unavailable
from gitlease.core.ledger import Ledger
from gitlease.core.outcome import Event
from gitlease.engine.ports import Change, Clock
from gitlease.git.files import Unreadable
from gitlease.git.libgit2 import as_lost
from gitlease.store import history
from gitlease.store.damage import CacheDamaged
from gitlease.store.heads import Heads, known_ref
from gitlease.store.private_store import PrivateStore
from gitlease.store.ref_store import Move, Pushed, RefLedgerStore
from gitlease.store.state import StateFolder
from gitlease.store.transport import TIME_LIMIT, Remote, fetch_ref, peek_ref, push_refs
from gitlease.store.tree import changed_records, read_ledger
from gitlease.store.tree_writer import write_step

if TYPE_CHECKING:
    from gitlease.core.work_push import WorkPush


def git_ledger_store(
    remote: Remote,
    *,
    store: str,
    state: Callable[[str], str],
    clock: Clock,
    place: str,
    prefix: str = "refs/gitlease",
    warnings: tuple[str, ...] = (),
    time_limit: float = TIME_LIMIT,
    on_move: Callable[[], None] = lambda: None,
) -> RefLedgerStore:
    """Ledgers on the refs ``<prefix>/<layer>`` of one remote, as one clone knows them.

    ``store`` is the private bare repository, ``state`` gives the folder of a layer's state, and
    ``place`` says to people where the ledger is, without secrets. ``time_limit`` is that of each
    call of git, in seconds, and ``on_move`` is called when a known head has become another one.
    """
    refs = GitRefs(remote, PrivateStore(store), state, prefix, time_limit)
    heads = Heads(refs, lambda x: StateFolder(state(x), on_move=on_move), clock, place)
    return RefLedgerStore(refs, heads, place=place, warnings=warnings)


class GitRefs:
    """The refs of one remote, and the private store with their objects."""

    def __init__(
        self,
        remote: Remote,
        store: PrivateStore,
        state: Callable[[str], str],
        prefix: str,
        time_limit: float,
    ) -> None:
        self._remote, self._store, self._state_path = remote, store, state
        self._prefix, self._limit = prefix, time_limit

    # --- objects ----------------------------------------------------------------------------------

    def read(self, version: str) -> Ledger:
        with self._intact():
            return read_ledger(self._store.repo, version)

    def differences(self, old: Ledger | None, new: Ledger) -> Sequence[tuple[str, bool | None]]:
        return changed_records(old, new)

    def decision(self, version: str) -> str:
        return history.decision(self._store.repo, version)

    def first_after(self, decision: str, version: str) -> str | None:
        return history.first_after(self._store.repo, decision, version)

    def commit(self, change: Change, *, replace_tip: bool) -> str:
        repo, tip = self._store.repo, change.base.version
        import pygit2

        try:
            with self._store.in_use():
                return write_step(repo, change.decided, tip, replace_tip=replace_tip)
        except (Unreadable, KeyError, pygit2.GitError) as error:
            raise CacheDamaged(f"the ledger's objects cannot be written: {error}") from None
        except OSError as error:
            if "No such file" in str(error):  # another process has made the store anew
                raise CacheDamaged("the ledger's store was replaced") from None
            raise Invalid(f"the ledger's objects cannot be written: {error}") from None

    def replaceable(self, version: str) -> bool:
        return history.is_renewal(self._store.repo, version)

    def events(self, version: str, limit: int) -> tuple[Event, ...]:
        return history.read_events(self._store.repo, version, limit)

    def steps(
        self, earlier: str, version: str, limit: int
    ) -> tuple[tuple[str, tuple[Event, ...]], ...]:
        return history.read_steps(self._store.repo, earlier, version, limit)

    def keep(self, layer: str, version: str) -> None:
        import pygit2

        # In a store made anew since, a ref would vouch for objects that are not there.
        if version and not self._store.replaced():
            with contextlib.suppress(pygit2.GitError, ValueError, OSError):
                ref = known_ref(self._state_path(layer))
                self._store.repo.references.create(ref, pygit2.Oid(hex=version), force=True)
        self._store.tidy()

    def mend(self, *, anew: bool) -> None:
        if anew:
            self._store.rebuild()
        elif self._store.replaced():
            self._store.reopen()

    @contextlib.contextmanager
    def _intact(self) -> Iterator[None]:
        """Whatever fails while another process makes the store anew is to be tried again."""
        try:
            yield
        except (Invalid, Unavailable) as error:
            if not self._store.replaced():
                raise
            raise CacheDamaged(f"the ledger's store was replaced: {error.message}") from None

    # --- refs -------------------------------------------------------------------------------------

    def fetch(self, layer: str) -> str | None:
        """The commit id at the ref, with its objects fetched; None when there is no ref.

        Each fetch has a ref of its own: two at once in one clone must not disturb each other.
        """
        repo = self._store.repo
        import pygit2

        to = f"refs/fetched/{os.getpid()}-{os.urandom(6).hex()}"
        try:
            with self._intact(), self._store.in_use():
                found = fetch_ref(
                    self._remote, self._store.path, self._ref(layer), to, timeout=self._limit
                )
                with as_lost():
                    return str(repo.lookup_reference(to).target) if found else None
        except (KeyError, pygit2.GitError) as error:
            raise CacheDamaged(f"the fetched ledger cannot be read: {error}") from None
        finally:
            with contextlib.suppress(KeyError, pygit2.GitError), as_lost():
                repo.lookup_reference(to).delete()

    def peek(self, layer: str) -> str | None:
        self._store.ready()
        with self._intact():
            return peek_ref(self._remote, self._store.path, self._ref(layer), timeout=self._limit)

    def push(self, moves: Sequence[Move], work: WorkPush | None = None) -> Pushed:
        named = [(self._ref(move.layer), move.expected, move.new) for move in moves]
        if work is None:
            return push_refs(self._remote, self._store.path, named, timeout=self._limit)
        from gitlease.store.work_push import push_work

        return push_work(work, named, objects=os.path.join(self._store.path, "objects"))

    def remote_refs(self, work: WorkPush) -> Mapping[str, str]:
        from gitlease.store.work_push import remote_refs

        return remote_refs(work, timeout=self._limit)

    def _ref(self, layer: str) -> str:
        return f"{self._prefix}/{layer}"
