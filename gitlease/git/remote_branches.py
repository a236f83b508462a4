"""The branches of a remote, and which of them are main branches, as far as this clone knows."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from gitlease.core.errors import Denied, Unavailable
from gitlease.git.files import make_folders, read_small, replace_file
from gitlease.git.history import commit_ids
from gitlease.git.repository import Repository, ask, denies, detail_of, is_id, without_secrets
from gitlease.git.run import run_git

SECONDS = 5.0  # for the remote to list its branches
MAX_FETCHED = 1024 * 1024
FETCH = 600.0  # seconds for a branch to be fetched

ASK_EVERY = 3_600  # seconds between two questions for a remote's default branch
LONGEST = 4_096  # bytes of the name of a branch
NOTES = os.path.join("gitlease", "main-branches")  # what remotes answered
NS = 1_000_000_000

HEADS = "refs/heads/"

_USUAL = ("main", "master")
_FETCHED = r"(?P<oid>[0-9a-f]{40,64})\t[^\t]*\tbranch '(?P<branch>.+)' of (?P<place>.+)"


def names_of(repository: Repository, remote: str) -> list[str]:
    """The remotes with this name or URL, or with the same URL as the remote of this name."""
    names = repository.remote_names()
    url = repository.remote_url(remote) if remote in names else remote
    return [x for x in names if x == remote or (url and repository.remote_url(x) == url)]


def is_main(ref: str, main: Collection[str]) -> bool:
    """Whether a ref, by its full name, is one of these main branches."""
    return ref.removeprefix(HEADS) in main


def refs_known(repository: Repository, names: Iterable[str]) -> dict[str, str]:
    """The branches of these remotes by the tracking refs, by their full names there."""
    places = [f"refs/remotes/{name}/" for name in names]
    found = {}
    for oid, ref, symref in _listed(repository, places):
        place = next((x for x in places if ref.startswith(x)), None)
        if place is not None and not symref:
            found[HEADS + ref.removeprefix(place)] = oid
    return found


def _listed(repository: Repository, places: Sequence[str]) -> list[list[str]]:
    # The id, the name and the symbolic target of each ref.
    if not places:
        return []
    said = ask(repository, "for-each-ref", "--format=%(objectname) %(refname) %(symref)", *places)
    return [line.split(" ") for line in os.fsdecode(said.out).splitlines()]


def heads_known(repository: Repository, remote: str) -> list[tuple[str, str]]:
    """Ask where a push to a remote, a name or a URL, goes for its branches; those with ids here.

    A branch that has moved on to a commit that is not here is given as ``git fetch`` last saw it.
    Nothing if there is no answer in time.
    """
    url = remote  # a push need not go where it is fetched from
    if remote in repository.remote_names():
        said = ask(repository, "remote", "get-url", "--push", "--", remote)
        url = next(iter(os.fsdecode(said.out).splitlines() if said.code == 0 else ()), remote)
    try:
        now = heads_asked(repository, url, seconds=SECONDS)
    except (Unavailable, Denied):
        return []
    here = set(commit_ids(repository, list(now.values())))
    moved_on = {ref for ref, oid in now.items() if oid not in here}
    before = [(ref, oid) for ref, oid in _fetched(repository, remote) if ref in moved_on]
    return [(ref, oid) for ref, oid in now.items() if oid in here] + before


def heads_asked(repository: Repository, remote: str, *, seconds: float) -> dict[str, str]:
    """Ask a remote, a name or a URL, for its branches: full names with ids.

    Raises Unavailable and Denied.
    """
    words = (f"--git-dir={repository.git_dir}", "ls-remote", "--quiet", "--heads", "--", remote)
    folder, env = repository.toplevel or repository.git_dir, {"GIT_TERMINAL_PROMPT": "0"}
    found = ls_remote(words, folder, seconds=seconds, env=env)
    return {ref: oid for ref, oid in found.items() if ref.startswith(HEADS)}


def ls_remote(
    words: Sequence[str], folder: str, *, seconds: float, env: Mapping[str, str]
) -> dict[str, str]:
    """Run ``git ls-remote``: full names of refs with their ids. Raises Unavailable and Denied."""
    said = run_git(words, cwd=folder, timeout=seconds, env=env, repository=True)
    if said.code or said.timed_out:
        detail = detail_of(said.err.splitlines(), said, seconds)
        if not said.timed_out and denies(said.err):
            raise Denied(f"the remote refused to be read: {detail}")
        raise Unavailable(f"the remote cannot be reached: {detail}")
    lines = (line.partition("\t") for line in os.fsdecode(said.out).splitlines())
    return {ref: oid for oid, _, ref in lines if is_id(oid)}


def _fetched(repository: Repository, remote: str) -> list[tuple[str, str]]:
    urls = {remote, *(repository.remote_url(x) for x in names_of(repository, remote))}
    places = {_place(url) for url in urls if url}
    try:
        with open(os.path.join(repository.git_dir, "FETCH_HEAD"), encoding="utf-8") as opened:
            lines = opened.read(MAX_FETCHED).splitlines()
    except (OSError, ValueError):
        return []
    found = (re.fullmatch(_FETCHED, line) for line in lines)
    return [(HEADS + x["branch"], x["oid"]) for x in found if x and _place(x["place"]) in places]


def _place(url: str) -> str:
    # As FETCH_HEAD shows it.
    return without_secrets(url).rstrip("/").removesuffix(".git")


def main_branches(repository: Repository, names: Iterable[str]) -> dict[str, list[str]]:
    """The main branches of these remotes, the default ones and the usual names, with known ids."""
    found: dict[str, list[str]] = {branch: [] for branch in _USUAL}
    places = {f"refs/remotes/{name}/": name for name in names}
    refs = [f"{place}{branch}" for place in places for branch in (*_USUAL, "HEAD")]
    headless = set(places)
    for oid, ref, symref in _listed(repository, refs):
        for place in places:
            named = symref or ref
            if ref.startswith(place) and named.startswith(place):
                found.setdefault(named.removeprefix(place), []).append(oid)
                headless.discard(place if ref == f"{place}HEAD" else "")
    for place in headless:
        ref, oid = _main_of(repository, places[place]) or ("", "")
        if branch := ref.removeprefix(place):
            known = found.setdefault(branch, [])
            known += [oid] if oid not in known else []
    return found


def tracked(repository: Repository, ref: str) -> tuple[str, str] | None:
    """The remote and its branch of which a ref of this clone is the copy; None if it is none."""
    words = ("rev-parse", "--verify", "--quiet", "--symbolic-full-name", "--end-of-options", ref)
    full = os.fsdecode(ask(repository, *words).out).strip()
    for name in sorted(repository.remote_names(), key=len, reverse=True):
        if full.startswith(place := f"refs/remotes/{name}/"):
            return name, full.removeprefix(place)
    return None


def fetch_branch(repository: Repository, remote: str, branch: str) -> None:
    """Bring this clone's copy of a remote's branch up to date. Raises Unavailable and Denied."""
    quiet = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules")
    spec = f"+{HEADS}{branch}:refs/remotes/{remote}/{branch}"
    words = (f"--git-dir={repository.git_dir}", "fetch", *quiet, "--", remote, spec)
    folder, env = repository.toplevel or repository.git_dir, {"GIT_TERMINAL_PROMPT": "0"}
    said = run_git(words, cwd=folder, timeout=FETCH, env=env, repository=True)
    if said.code or said.timed_out:
        detail = detail_of(said.err.splitlines(), said, FETCH)
        if not said.timed_out and denies(said.err):
            raise Denied(f"{branch} of {remote} cannot be fetched: {detail}")
        raise Unavailable(f"{branch} of {remote} cannot be fetched: {detail}")


def commits_behind(repository: Repository, ref: str) -> int:
    """How many commits of a ref HEAD lacks; 0 if git cannot tell."""
    said = ask(repository, "rev-list", "--count", f"HEAD..{ref}", "--")
    return int(said.out) if said.code == 0 else 0


def main_branch(repository: Repository, names: Iterable[str]) -> str | None:
    """The main branch of the first of these remotes that has one here, by its full name here.

    That is the remote's default branch as git or ``ask_main_branch`` noted it, else one with a
    usual name, else the only branch: a remote that was added by hand has no default branch here.
    """
    found = (_main_of(repository, name) for name in names)
    return next((ref for ref, _ in filter(None, found)), None)


def _main_of(repository: Repository, name: str) -> tuple[str, str] | None:
    """The main branch of a remote by its full name here, and its commit."""
    place = f"refs/remotes/{name}/"
    configured = repository.config.get("init.defaultBranch")
    likely = [_noted(repository, name), *_USUAL, configured or ""]
    refs = [f"{place}{branch}" for branch in likely if branch]
    listed = _listed(repository, [f"{place}HEAD", *refs])
    found = {ref: (symref or ref, oid) for oid, ref, symref in listed}
    named = next((found[x] for x in (f"{place}HEAD", *refs) if x in found), None)
    if named is None:
        every = [(ref, oid) for oid, ref, symref in _listed(repository, [place]) if not symref]
        named = every[0] if len(every) == 1 else None
    return named


def ask_main_branch(repository: Repository, names: Iterable[str], *, now: float) -> str | None:
    """Ask these remotes for their default branches where none is known here, and note the answers.

    A remote is asked once an hour at most. The main branch as ``main_branch`` has it then.
    """
    names = list(names)
    if (known := main_branch(repository, names)) is not None:
        return known
    for name in names:
        file = _note_of(repository, name)
        with contextlib.suppress(OSError):
            if 0 <= now - os.stat(file).st_mtime < ASK_EVERY:
                continue
        words = (f"--git-dir={repository.git_dir}", "ls-remote", "--quiet", "--symref", "--")
        folder, env = repository.toplevel or repository.git_dir, {"GIT_TERMINAL_PROMPT": "0"}
        place = (name, "HEAD")
        said = run_git((*words, *place), cwd=folder, timeout=SECONDS, env=env, repository=True)
        symref = re.match(rb"ref: refs/heads/([^\t\n]+)\tHEAD\n", said.out)
        with contextlib.suppress(OSError):
            make_folders(os.path.dirname(file))
            replace_file(file, symref[1] if symref else b"", dated=int(now * NS))
    return main_branch(repository, names)


def _noted(repository: Repository, name: str) -> str:
    if not os.path.isdir(os.path.join(repository.common_dir, NOTES)):
        return ""
    return os.fsdecode(read_small(_note_of(repository, name), LONGEST) or b"")


def _note_of(repository: Repository, name: str) -> str:
    # Of a remote and its URL: another repository may get the same name.
    from hashlib import sha256

    named = os.fsencode(f"{name} {repository.remote_url(name)}")
    return os.path.join(repository.common_dir, NOTES, sha256(named).hexdigest()[:16])
