"""The store on a git ref keeps the contract of every store, over every kind of remote."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from contract.suite import LedgerStoreContract
from support.clock import ManualClock
from support.remotes import Remote
from support.repos import git

from gitlease.kernel.ledger.ports import LedgerStore
from gitlease.kernel.store import transport
from gitlease.kernel.store.git_ledger import RefLedgerStore, StorePlace
from gitlease.kernel.store.private_store import PrivateStore
from gitlease.kernel.store.state import StateFolder
from gitlease.kernel.store.transport import GitRefs

PREFIX = "refs/gitlease"
ONLY_APPENDS = """\
#!/bin/sh
while read old new ref; do
  case $old in *[!0]*) ;; *) continue ;; esac
  git merge-base --is-ancestor $old $new || { echo "only appends here" >&2; exit 1; }
done
"""


class GitPlace:
    """One real remote; a clone is a folder with a private store and its state."""

    def __init__(self, remote: Remote, folder: Path, *, brief: bool) -> None:
        self.clock, self._brief = ManualClock(), brief
        self._remote, self._folder = remote, folder

    def store(self, n: int) -> LedgerStore:
        home = self._folder / f"clone-{n}"
        home.mkdir(parents=True, exist_ok=True)

        def state(layer: str) -> str:
            return str(home / "state" / "default" / layer)

        remote, watched = (
            transport.Remote(url=self._remote.url, folder=str(home)),
            transport.Watched(),
        )
        own = PrivateStore(str(home / "store.git"), brief=self._brief)
        refs = GitRefs(remote, own, state, PREFIX, time_limit=60.0, watched=watched)
        place = StorePlace(refs, lambda x: StateFolder(state(x)), "the remote of this test")
        return RefLedgerStore(place, self.clock)

    def force(self, layer: str, version: str) -> None:
        words = ["-d", f"{PREFIX}/{layer}"] if not version else [f"{PREFIX}/{layer}", version]
        git(self._remote.bare, "update-ref", *words)

    def refuse_replacements(self) -> None:
        # receive.denyNonFastForwards looks at branches only.
        hook = self._remote.bare / "hooks" / "pre-receive"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(ONLY_APPENDS)
        hook.chmod(0o755)


@pytest.fixture
def place_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., GitPlace]:
    """A place at a remote."""

    def make(remote: Remote, *, brief: bool = False) -> GitPlace:
        remote.open_to(monkeypatch)
        return GitPlace(remote, tmp_path / "of-clones", brief=brief)

    return make


class TestPath(LedgerStoreContract):
    @pytest.fixture
    def place(self, path_remote: Remote, place_of: Callable[..., GitPlace]) -> GitPlace:
        return place_of(path_remote)


class TestPathByPlumbing(LedgerStoreContract):
    """The same with a store that git's commands read and write."""

    @pytest.fixture
    def place(self, path_remote: Remote, place_of: Callable[..., GitPlace]) -> GitPlace:
        return place_of(path_remote, brief=True)


@pytest.mark.slow
class TestHttp(LedgerStoreContract):
    @pytest.fixture
    def place(self, http_remote: Remote, place_of: Callable[..., GitPlace]) -> GitPlace:
        return place_of(http_remote)


@pytest.mark.nightly
class TestSsh(LedgerStoreContract):
    @pytest.fixture
    def place(self, ssh_remote: Remote, place_of: Callable[..., GitPlace]) -> GitPlace:
        return place_of(ssh_remote)
