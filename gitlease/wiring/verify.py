"""The composition root of ``verify``: a history to check, and nobody in particular."""

from __future__ import annotations

import os
from collections.abc import Sequence

from gitlease.core.errors import Invalid, NotFound, UsageError
from gitlease.core.frozen import dataclass, replace
from gitlease.git.history import commit_ids
from gitlease.git.repository import Repository, discover, without_secrets
from gitlease.git.system_clock import SystemClock
from gitlease.store.private_store import PRIVATE_STORES
from gitlease.store.transport import TIME_LIMIT
from gitlease.verify.replay import NoLedger, Verified, verify
from gitlease.wiring.ledger import LedgerPlace, open_place


@dataclass(frozen=True, slots=True)
class LedgerVersion:
    """A commit of a ledger, in the repository with its history; ``shown`` is for people."""

    repository: Repository
    tip: str
    shown: str
    warnings: tuple[str, ...] = ()

    def verify(self, tips: Sequence[str] = ()) -> Verified:
        """Check its history; ``tips`` are commits that were at its ref at other times.

        Raises NotFound for one that is not a commit, and Invalid if the commit holds no ledger that
        this gitlease knows.
        """
        sampled = []
        for word, oid in zip(tips, commit_ids(self.repository, tips), strict=True):
            whole = len(word) in (40, 64) and not set(word) - set("0123456789abcdef")
            if oid is None and not whole:
                raise NotFound(f"{word[:80]!r} is not a commit of this ledger")
            sampled.append(oid or word)  # a renewal that was replaced may be gone by now
        try:
            return verify(self.repository, self.tip, sampled, environ=os.environ)
        except NoLedger as error:
            raise Invalid(f"{self.shown} holds no ledger: {error}") from None


def open_version(
    directory: str = ".",
    *,
    ref: str | None = None,
    layer: str | None = None,
    local: bool = False,
    remote: str | None = None,
    cached: bool = False,
) -> LedgerVersion:
    """The version of a ledger to check: that at ``ref``, else the configured one as it is now.

    The latter is fetched first, unless ``cached``. Raises NotARepository, NotFound without such a
    commit or ledger, UsageError for flags that exclude each other, and what a fetch raises.
    """
    if ref is not None and (layer or local or remote or cached):
        raise UsageError("REF excludes the options that choose a ledger: it is of this repository")
    flags = {"remote": remote, "layer": layer}
    place = open_place(discover(directory), os.environ, flags, local=local)
    if ref is not None:
        for where in (place.repository, *(_private(place, x) for x in PRIVATE_STORES)):
            if os.path.isdir(where.git_dir) and (oid := commit_ids(where, [ref])[0]) is not None:
                return LedgerVersion(where, oid, ref)
        raise NotFound(f"{ref[:80]!r} is not a commit of this repository or its ledger")
    name = place.layer
    store = place.store(SystemClock(), time_limit=TIME_LIMIT)
    head = store.known(name) if cached else store.fetch(name)
    if not cached:
        store.deepen(name)
    if head is None or not head.version:
        if cached:
            raise NotFound(f"this clone knows no ledger {name}: ask the remote for it")
        raise NotFound(f"there is no ledger {name} at {without_secrets(store.place)}")
    said = ("this is what the clone knows: nothing was fetched",) if cached else ()
    private = _private(place, PRIVATE_STORES[len(head.version) == 64])
    return LedgerVersion(private, head.version, f"ledger {name}", (*store.warnings, *said))


def _private(place: LedgerPlace, store: str) -> Repository:
    folder = os.path.join(place.private, store)
    private = replace(place.repository, common_dir=folder, git_dir=folder, toplevel=None)
    form = "sha256" if store == PRIVATE_STORES[1] else "sha1"
    return replace(private, object_format=form, folder="", worktree=None)
