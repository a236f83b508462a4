"""Which branches of a remote everybody builds on, as far as is known here."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable

from gitlease.adapters.asking import ask
from gitlease.adapters.repository import Repository

_USUAL = ("main", "master")


def names_of(repository: Repository, remote: str) -> list[str]:
    """The remotes that have this name or URL."""
    names = repository.remote_names()
    return [name for name in names if remote in (name, repository.remote_url(name))]


def is_main(ref: str, main: Collection[str]) -> bool:
    """Whether a ref, by its full name, is one of these main branches."""
    return ref.removeprefix("refs/heads/") in main


def refs_known(repository: Repository, names: Iterable[str]) -> dict[str, str]:
    """The branches of these remotes as they were last seen here, by their full names there."""
    places = [f"refs/remotes/{name}/" for name in names]
    if not places:
        return {}
    said = ask(repository, "for-each-ref", "--format=%(objectname) %(refname) %(symref)", *places)
    found = {}
    for line in os.fsdecode(said.out).splitlines():
        oid, ref, symref = line.split(" ")
        place = next((x for x in places if ref.startswith(x)), None)
        if place is not None and not symref:
            found[f"refs/heads/{ref.removeprefix(place)}"] = oid
    return found


def main_branches(repository: Repository, names: Iterable[str]) -> dict[str, list[str]]:
    """The main branches of these remotes: what they call so, and what is usual.

    Each by its name, with the ids that it is known to have.
    """
    found: dict[str, list[str]] = {branch: [] for branch in _USUAL}
    places = {f"refs/remotes/{name}/": name for name in names}
    if not places:
        return found
    refs = [f"{place}{branch}" for place in places for branch in (*_USUAL, "HEAD")]
    said = ask(repository, "for-each-ref", "--format=%(objectname) %(refname) %(symref)", *refs)
    for line in os.fsdecode(said.out).splitlines():
        oid, ref, symref = line.split(" ")
        for place in places:
            named = symref or ref
            if ref.startswith(place) and named.startswith(place):
                found.setdefault(named.removeprefix(place), []).append(oid)
    return found
