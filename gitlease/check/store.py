"""Fetches commits that this clone does not have, beside it and never into it.

A clone for continuous integration often has a single commit. Deepening it would change the user's
repository, so what is needed is fetched into a store of its own, no deeper than necessary.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from gitlease.core.errors import Denied, NotFound, Unavailable
from gitlease.core.frozen import replace
from gitlease.git.history import commit_ids
from gitlease.git.repository import Repository, ask, denies, detail_of
from gitlease.store.private_store import PrivateStore
from gitlease.store.transport import Remote, fetch_into

INFINITE = 2_147_483_647  # what git takes for all there is
SECONDS = 600.0
UNSHALLOW = (
    "in GitHub Actions give actions/checkout fetch-depth: 0, in GitLab CI set GIT_DEPTH: 0",
    "anywhere else: git fetch --unshallow",
)
# Messages of remotes that do not have an object or a ref, or do not allow asking for it.
_LACKING = (
    "couldn't find remote ref",
    "not our ref",
    "unadvertised object",
    "no such ref",
    "did not receive expected object",
    "remote error: upload-pack",
)


class HistoryStore:
    """A bare repository beside the clone, for commits of one remote."""

    def __init__(self, repository: Repository, remote: Remote, *, folder: str) -> None:
        self._store = PrivateStore(os.path.join(folder, "history.git"))
        # Old objects need not meet today's checks.
        settings = (*remote.settings, ("fetch.fsckObjects", "false"))
        self._remote = replace(remote, settings=settings)
        path = self._store.path
        self.repository = replace(
            repository, common_dir=path, git_dir=path, toplevel=None, folder="", worktree=None
        )

    def fetch(self, wants: Sequence[str], *, depth: int) -> dict[str, str]:
        """Fetch refs or ids, so many commits deep; return their full ids.

        Raises NotFound for what the remote does not have or provide, Unavailable, and Denied.
        """
        self._store.ready()
        names = {want: f"refs/check/{os.getpid()}-{n}" for n, want in enumerate(wants)}
        done = fetch_into(
            self._remote,
            self._store.path,
            [f"+{want}:{name}" for want, name in names.items()],
            f"--depth={depth}",
            "--update-shallow",
            timeout=SECONDS,
        )
        if done.code or done.timed_out:
            said = detail_of(done.err.splitlines(), done, SECONDS)
            if not done.timed_out and denies(done.err):
                raise Denied(f"the remote refused the fetch: {said}")
            if not done.timed_out and any(words in done.err for words in _LACKING):
                raise NotFound(f"the remote does not provide the commits: {said}", hints=UNSHALLOW)
            raise Unavailable(f"the remote cannot be reached: {said}")
        found = commit_ids(self.repository, list(names.values()))
        for name in names.values():
            ask(self.repository, "update-ref", "-d", name)
        return {want: oid or "" for want, oid in zip(wants, found, strict=True)}

    def tidy(self) -> None:
        """Drop what was fetched long ago."""
        self._store.tidy()
