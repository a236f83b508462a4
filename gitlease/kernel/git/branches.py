"""The branches of a remote, as far as this clone knows them or as the remote is asked."""

from __future__ import annotations

import os
from collections.abc import Iterable

from gitlease.kernel.git.rejections import denies, is_race
from gitlease.kernel.git.repository import (
    HEADS,
    SECONDS,
    USUAL,
    Repository,
    ask,
    ask_remote,
    commit_of,
    detail_of,
    is_id,
    listed_refs,
    main_of,
)
from gitlease.kernel.git.run import GitResult
from gitlease.kernel.rules.errors import Denied, Unavailable

SENDING = 10.0  # and to send the commits of one, where somebody waits for another answer
FETCH = 600.0  # seconds for a branch to be fetched
FETCHES = 10  # of one branch, while others of the clone fetch it, or add a work tree
PASSING = "bad object worktrees/"  # what git says while a work tree is added

_QUIET = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules")


class Branches:
    """The branches of the remotes of one repository."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository

    def known(self, names: Iterable[str]) -> dict[str, str]:
        """The branches of these remotes by the tracking refs, by their full names there."""
        places = [f"refs/remotes/{name}/" for name in names]
        refs = {}
        for oid, ref, symref in listed_refs(self._repository, places):
            place = next((x for x in places if ref.startswith(x)), None)
            if place is not None and not symref:
                refs[HEADS + ref.removeprefix(place)] = oid
        return refs

    def asked(self, remote: str, *, seconds: float = SECONDS) -> dict[str, str]:
        """Ask a remote, a name or a URL, for its branches: full names with ids.

        Raises Unavailable and Denied.
        """
        done = ask_remote(
            self._repository, "ls-remote", "--quiet", "--heads", "--", remote, seconds=seconds
        )
        return {ref: oid for ref, oid in refs_in(done, seconds).items() if ref.startswith(HEADS)}

    def main(self, names: Iterable[str]) -> dict[str, list[str]]:
        """The main branches of these remotes, by default or by a usual name, with known ids."""
        branches: dict[str, list[str]] = {branch: [] for branch in USUAL}
        places = {f"refs/remotes/{name}/": name for name in names}
        refs = [f"{place}{branch}" for place in places for branch in (*USUAL, "HEAD")]
        headless = set(places)
        for oid, ref, symref in listed_refs(self._repository, refs):
            for place in places:
                named = symref or ref
                if ref.startswith(place) and named.startswith(place):
                    branches.setdefault(named.removeprefix(place), []).append(oid)
                    headless.discard(place if ref == f"{place}HEAD" else "")
        for place in headless:
            ref, oid = main_of(self._repository, places[place]) or ("", "")
            if branch := ref.removeprefix(place):
                known = branches.setdefault(branch, [])
                known += [oid] if oid not in known else []
        return branches

    def tracked(self, ref: str) -> tuple[str, str] | None:
        """The remote, and its branch, of which a ref of this clone is the copy, if it is one."""
        words = (
            "rev-parse",
            "--verify",
            "--quiet",
            "--symbolic-full-name",
            "--end-of-options",
            ref,
        )
        full = os.fsdecode(ask(self._repository, *words).out).strip()
        # A remote may be called `a/b` beside one that is called `a`.
        for name in sorted(self._repository.remote_names(), key=len, reverse=True):
            if full.startswith(place := f"refs/remotes/{name}/"):
                return name, full.removeprefix(place)
        return None

    def fetch(self, remote: str, branch: str) -> None:
        """Bring this clone's copy of a remote's branch up to date.

        Raises Unavailable and Denied.
        """
        spec = f"+{HEADS}{branch}:refs/remotes/{remote}/{branch}"
        for _ in range(FETCHES):
            result = ask_remote(
                self._repository, "fetch", *_QUIET, "--", remote, spec, seconds=FETCH
            )
            raced = is_race(result.err)
            if not result.code or not (raced or PASSING in result.err):
                break
        if result.code or result.timed_out:
            from gitlease.kernel.git.ownership import REFUSED, closed_objects

            lacking = f"{branch} of {remote} cannot be fetched"
            refused = any(text in result.err for text in REFUSED)
            if refused and (folder := closed_objects(self._repository.common_dir)):
                from gitlease.kernel.git.ownership import cannot_write

                raise cannot_write(folder, lacking)
            raise _failure(result, FETCH, lacking, lacking)

    def fetch_commits(self, remote: str, branch: str, *, seconds: float) -> None:
        """Bring the commits of a remote's branch here and change nothing else; it may fail.

        A shallow clone is left as it is.
        """
        if not os.path.exists(os.path.join(self._repository.common_dir, "shallow")):
            alone = ("--no-auto-maintenance", "--refmap=")  # no map: no ref is updated
            words = (*_QUIET, *alone, "--", remote, HEADS + branch)
            ask_remote(self._repository, "fetch", *words, seconds=seconds)

    def tip_now(self, main: str) -> str:
        """The id of the commit that a remote's branch is at now; this clone may not have it.

        ``main`` is as for ``fetched_tip``, and so is what this raises.
        """
        if (source := self.tracked(main)) is None:
            return ""
        remote, branch = source
        words = ("ls-remote", "--quiet", "--", remote, HEADS + branch)
        result = ask_remote(self._repository, *words, seconds=SECONDS)
        return refs_in(result, SECONDS).get(HEADS + branch, "")

    def fetched_tip(self, main: str) -> str:
        """The commit that a remote's branch is at now, brought here while no ref moves.

        ``main`` is the branch's full name here; ``""`` if no remote is known to have it. Raises
        Unavailable and Denied.
        """
        if (source := self.tracked(main)) is None:
            return ""
        remote, branch = source
        tip = self.tip_now(main)
        if tip and not commit_of(self._repository, tip):
            self.fetch_commits(remote, branch, seconds=SENDING)
        return commit_of(self._repository, tip) if tip else ""


def refs_in(result: GitResult, seconds: float) -> dict[str, str]:
    """The answer of ``git ls-remote``: full names of refs with their ids.

    Raises Unavailable and Denied.
    """
    if result.code or result.timed_out:
        raise _failure(
            result, seconds, "the remote refused to be read", "the remote cannot be reached"
        )
    lines = (line.partition("\t") for line in os.fsdecode(result.out).splitlines())
    return {ref: oid for oid, _, ref in lines if is_id(oid)}


def _failure(
    result: GitResult, seconds: float, denied: str, unreachable: str
) -> Denied | Unavailable:
    detail = detail_of(result.err.splitlines(), result, seconds)
    if not result.timed_out and denies(result.err):
        return Denied(f"{denied}: {detail}")
    return Unavailable(f"{unreachable}: {detail}")
