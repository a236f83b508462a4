"""The refs of ledgers in git: objects in a private store, moved by git's own compare-and-swap."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from gitlease.core.errors import Invalid, Unavailable, shown
from gitlease.core.frozen import replace
from gitlease.core.ledger import Ledger
from gitlease.core.moves.operations import Event
from gitlease.engine.ports import Cause, Change, Clock
from gitlease.git.files import CannotKeep, Unreadable, cannot_keep
from gitlease.store import history
from gitlease.store.admission import Admission, Peeks, RemoteFacts
from gitlease.store.damage import CacheDamaged
from gitlease.store.heads import Heads, known_ref
from gitlease.store.loose_objects import LooseObjects
from gitlease.store.private_store import SHA1, PrivateStores
from gitlease.store.ref_store import Move, Pushed, RefLedgerStore
from gitlease.store.state import StateFolder
from gitlease.store.transport import (
    TIME_LIMIT,
    OtherFormat,
    Remote,
    any_refs,
    fetch_ref,
    is_far,
    peek_refs,
    push_refs,
)
from gitlease.store.tree import changed_records, read_ledger

if TYPE_CHECKING:
    from gitlease.core.work_push import WorkPush


FIRST_STEPS = 3_000  # that a first contact brings: below 2 MB; what is older on demand
WHOLE = "--depth=2147483647"  # git's word for no end
_OF_NAMES = r"(?i)(?!gitlease:).*(\bbranch|\btags?\b|refs/(?:heads|tags)/)"  # a server's hook says
OTHER_FORMAT = "other-format"  # in the folder of a place: its objects are not like the clone's


def git_ledger_store(
    remote: Remote,
    *,
    stores: str,
    id_bytes: int = SHA1,
    state: Callable[[str], str],
    clock: Clock,
    place: str,
    prefix: str = "refs/gitlease",
    warnings: tuple[str, ...] = (),
    time_limit: float = TIME_LIMIT,
    on_move: Callable[[], None] = lambda: None,
    facts: RemoteFacts | None = None,
) -> RefLedgerStore:
    """Ledgers on the refs ``<prefix>/<layer>`` of one remote, as one clone knows them.

    ``stores`` is the folder of the private bare repositories, of which that for objects with ids of
    ``id_bytes`` is used until the remote turns out to have others. ``state`` gives the folder of a
    layer's state, and ``place`` says to people where the ledger is, without secrets. ``time_limit``
    is that of each call of git, in seconds, and ``on_move`` is called when a known head has become
    another one. ``facts`` are what a grant there depends on; without them nothing is proven.
    """
    marker = os.path.join(os.path.dirname(state("global")), OTHER_FORMAT)
    kept = PrivateStores(stores, id_bytes, marker=marker)
    refs = GitRefs(remote, kept, state, prefix, time_limit)
    heads = Heads(refs, lambda x: StateFolder(state(x), on_move=on_move), clock, place)
    admission = None
    if facts is not None:
        peeks = Peeks(refs.peek_at, refs.fetch_from, refs.goes_on, refs.use)
        admission = Admission(facts, peeks, heads)
    return RefLedgerStore(refs, heads, warnings=warnings, admission=admission)


class GitRefs:
    """The refs of one remote, and the private stores with their objects."""

    def __init__(
        self,
        remote: Remote,
        stores: PrivateStores,
        state: Callable[[str], str],
        prefix: str,
        time_limit: float,
    ) -> None:
        self._remote, self._stores, self._state_path = remote, stores, state
        self._prefix, self._limit = prefix, time_limit
        self._markers: dict[str, str] = {}

    # --- objects ----------------------------------------------------------------------------------

    def read(self, version: str) -> Ledger:
        with self._retried_if_replaced():
            return read_ledger(self._objects(version), version)

    def differences(self, old: Ledger | None, new: Ledger) -> Sequence[tuple[str, bool | None]]:
        return changed_records(old, new)

    def decision(self, version: str) -> str:
        return history.decision(self._objects(version), version)

    def first_after(self, decision: str, version: str) -> str | None:
        return history.first_after(self._objects(version), decision, version)

    def commit(self, change: Change, *, replace_tip: bool) -> str:
        from gitlease.store.tree_writer import write_step

        tip = change.base.version
        store = self._stores.of(tip)
        objects = store.objects
        try:
            with store.in_use():
                return write_step(objects, change.decided, tip, replace_tip=replace_tip)
        except Unreadable as error:
            raise CacheDamaged(f"the ledger's objects cannot be written: {error}") from None
        except FileNotFoundError:  # another process has made the store anew
            raise CacheDamaged("the ledger's store was replaced") from None
        except OSError as error:
            raise cannot_keep(store.path, error) from None

    def replaceable(self, version: str) -> bool:
        return history.is_renewal(self._objects(version), version)

    def events(self, version: str, limit: int) -> tuple[Event, ...]:
        return history.read_events(self._objects(version), version, limit)

    def steps(
        self, earlier: str, version: str, limit: int
    ) -> tuple[tuple[str, tuple[Event, ...]], ...]:
        return history.read_steps(self._objects(version), earlier, version, limit)

    def operations(self, earlier: str, version: str) -> frozenset[str] | None:
        return history.read_operations(self._objects(version), earlier, version)

    def keep(self, layer: str, version: str) -> None:
        store = self._stores.of(version)
        # In a store made anew since, a ref would vouch for objects that are not there.
        if version and not store.replaced():
            with contextlib.suppress(OSError):
                store.set_ref(known_ref(self._state_path(layer)), version)
        store.tidy()

    def mend(self, *, anew: bool) -> None:
        if anew:
            self._stores.usual.rebuild()
        for store in self._stores.replaced():
            store.reopen()

    def _objects(self, version: str) -> LooseObjects:
        return self._stores.of(version).objects

    @contextlib.contextmanager
    def _retried_if_replaced(self) -> Iterator[None]:
        try:
            yield
        except (Invalid, Unavailable) as error:
            if not self._stores.replaced():
                raise
            raise CacheDamaged(f"the ledger's store was replaced: {error.message}") from None

    # --- refs -------------------------------------------------------------------------------------

    def fetch(self, layer: str, *, first: bool = False) -> str | None:
        """The commit id at the ref, with its objects fetched; None when there is no ref."""
        try:
            version = self._fetched_in_its_format(layer, first=first)
            if version is None and not first and self._answers_nothing():
                raise Unavailable(
                    "the remote cannot be reached: what answers at its URL shows no refs at all"
                )
            return version
        except CannotKeep:
            if not self._stores.move_aside():
                raise
        except CacheDamaged:
            if self._stores.usual.unwritable() is None or not self._stores.move_aside():
                raise
        return self._fetched_in_its_format(layer, first=True)

    def _answers_nothing(self) -> bool:
        """Whether a portal's page may stand in the place of a server: it has no refs."""
        url = self._remote.effective or self._remote.url
        if not url.lower().startswith(("http://", "https://")):
            return False
        return not any_refs(self._remote, self._stores.usual.path, timeout=self._limit)

    def _fetched_in_its_format(self, layer: str, *, first: bool) -> str | None:
        fetch = self._first_fetched if first else self._fetched
        try:
            return fetch(layer)
        except OtherFormat:
            self._stores.switch()
        try:
            return fetch(layer)
        except OtherFormat:  # neither of them
            self._stores.switch()
            raise

    def deepen(self, layer: str) -> bool:
        store = self._stores.usual
        if not store.is_cut():
            return False
        with store.cutting(self._limit):
            self._fetched(layer, WHOLE)
        return True

    def _first_fetched(self, layer: str) -> str | None:
        store = self._stores.usual
        store.objects  # its folder is there by now  # noqa: B018
        with store.cutting(self._limit):
            came = store.ref(known_ref(self._state_path(layer)))  # by another, meanwhile
            return self._fetched(layer, *([] if came else [f"--depth={FIRST_STEPS}"]))

    def peek_at(self, remote: Remote, layer: str) -> str | None:
        """The version of a layer's ref at another remote; None when there is none."""
        store, ref = self._stores.usual, self._ref(layer)
        store.ready()
        return peek_refs(remote, store.path, [ref], timeout=self._limit).get(ref)

    def use(self, remote: Remote) -> Remote:
        """Read and write at another remote from now on; returns the former one."""
        former, self._remote = self._remote, remote
        return former

    def fetch_from(self, remote: Remote, layer: str) -> str | None:
        """The same, with its objects fetched."""
        return self._fetched(layer, remote=remote)

    def goes_on(self, earlier: str, later: str) -> bool:
        """Whether a version has the last decision of another in its past."""
        decided = self.decision(earlier)
        return bool(decided) and self.first_after(decided, later) is not None

    def _fetched(self, layer: str, *options: str, remote: Remote | None = None) -> str | None:
        """Each fetch has a ref of its own: two at once in one clone must not disturb each other."""
        store, to = self._stores.usual, f"refs/fetched/{os.getpid()}-{os.urandom(6).hex()}"
        store.objects  # it is opened by now  # noqa: B018
        try:
            with self._retried_if_replaced(), store.in_use():
                ref = self._ref(layer)
                place = remote or self._remote
                if not fetch_ref(place, store.path, ref, to, *options, timeout=self._limit):
                    return None
                if (version := store.ref(to)) is None:
                    raise CacheDamaged("the fetched ledger cannot be read")
                return version
        finally:
            with contextlib.suppress(OSError):
                store.set_ref(to, None)

    def announce(self, layer: str) -> None:
        if (marker := self._shared_marker(layer)) is None:
            return
        folder = os.path.dirname(marker)
        with contextlib.suppress(OSError):
            if _is_private(os.path.dirname(folder)):
                with contextlib.suppress(FileExistsError):
                    os.mkdir(folder, 0o700)
            if not _is_private(os.path.dirname(folder), folder):
                return
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            opened = os.open(marker, flags, 0o600)
            try:
                os.utime(opened)
            finally:
                os.close(opened)

    def nearby(self, layer: str) -> str:
        if (marker := self._shared_marker(layer)) is None:
            return ""
        folder = os.path.dirname(marker)
        try:
            private = _is_private(os.path.dirname(folder), folder)
            return str(os.lstat(marker).st_mtime_ns) if private else ""
        except OSError:
            return ""  # nobody has announced anything yet

    def _shared_marker(self, layer: str) -> str | None:
        shared = os.environ.get("XDG_RUNTIME_DIR", "")
        if not os.path.isabs(shared) or not hasattr(os, "getuid"):
            return None
        if layer not in self._markers:  # who waits looks at it four times a second
            from hashlib import sha256

            url = self._remote.url
            if not is_far(url):  # a path, however it is written
                path = os.path.join(self._remote.folder, url.removeprefix("file://"))
                url = os.path.realpath(path)
            self._markers[layer] = sha256(f"{url}\0{self._ref(layer)}".encode()).hexdigest()
        return os.path.join(shared, "gitlease", self._markers[layer])

    def peek(self, layers: Sequence[str]) -> Mapping[str, str]:
        store, refs = self._stores.usual, {self._ref(layer): layer for layer in layers}
        store.ready()
        with self._retried_if_replaced():
            found = peek_refs(self._remote, store.path, list(refs), timeout=self._limit)
        return {refs[ref]: version for ref, version in found.items()}

    def push(self, moves: Sequence[Move], work: WorkPush | None = None) -> Pushed:
        named = [(self._ref(move.layer), move.expected, move.new) for move in moves]
        path = self._stores.of(moves[0].new).path
        if work is None:
            try:
                pushed = push_refs(self._remote, path, named, timeout=self._limit)
                return replace(pushed, hints=pushed.hints or self._ref_hints(moves, pushed))
            except OtherFormat as other:  # nothing was sent: it can be made anew in that format
                self._stores.switch()
                raise CacheDamaged(other.message) from None
        from gitlease.store.work_push import push_work

        return push_work(work, named, objects=os.path.join(path, "objects"))

    def _ref_hints(self, moves: Sequence[Move], pushed: Pushed) -> tuple[str, ...]:
        """The way out where a remote refuses to make a ref of this name."""
        if pushed.cause is not Cause.REFUSED:
            return ()
        if taken := re.search(r"'(refs/[^\s']+)' exists; cannot create", pushed.detail):
            return (
                f"{shown(taken[1])} on the remote leaves no room for {self._prefix}/…: rename it, "
                "or set another lease.ref_prefix in .gitlease.yaml, such as refs/heads/leases",
            )
        if "[remote rejected]" not in pushed.detail or self._prefix.startswith("refs/heads/"):
            return ()
        for_all = (
            "if this host accepts only branches and tags, set lease: {ref_prefix: "
            "refs/heads/gitlease} in .gitlease.yaml, for everyone",
        )
        if any(move.expected for move in moves):  # others use the ledger that is there
            says_so = not pushed.said or any(re.match(_OF_NAMES, line) for line in pushed.said)
            return for_all if says_so else ()
        in_this = "in this clone alone: gitlease config lease.ref_prefix refs/heads/gitlease"
        return (*for_all, in_this)

    def remote_refs(self, work: WorkPush) -> Mapping[str, str]:
        from gitlease.store.work_push import remote_refs

        return remote_refs(work, timeout=self._limit)

    def _ref(self, layer: str) -> str:
        return f"{self._prefix}/{layer}"


def _is_private(*folders: str) -> bool:
    found = [os.lstat(folder) for folder in folders]
    return all(
        stat.S_ISDIR(x.st_mode) and x.st_uid == os.getuid() and not stat.S_IMODE(x.st_mode) & 0o077
        for x in found
    )
