"""The destination of a push: the repository of the ledger, and no other."""

from __future__ import annotations

import os
from collections.abc import Sequence

from gitlease.core.errors import UsageError, shown
from gitlease.core.frozen import replace
from gitlease.core.work_push import WorkPush
from gitlease.git.repository import TIMEOUT, Repository, is_on, without_secrets
from gitlease.push.request import PushRequest
from gitlease.settings.sources import Location
from gitlease.store.work_push import run_in

_INSTEAD = ".pushinsteadof"


def work_at(
    repository: Repository, location: Location, request: PushRequest, *, seconds: float
) -> WorkPush:
    """A push to the named remote, or the one that git would choose, without any refs yet.

    Raises UsageError if the ledger is elsewhere.
    """
    if location.url is None:
        raise UsageError(
            "the ledger is local to this clone and does not move with a push",
            hints=("git push pushes without a fence",),
        )
    name = request.remote if request.remote is not None else _default_remote(repository)
    url = repository.remote_url(name) if name in repository.remote_names() else name
    if name != location.name and url != location.url:
        raise elsewhere(location, name)
    if is_on(repository.config.get(f"remote.{name}.mirror")):
        raise UsageError(f"{shown(name)} is a mirror: pushing to it replaces every ledger there")
    if len(repository.push_urls(name)) > 1:
        raise UsageError(f"{shown(name)} has several push URLs, which are updated one by one")
    asked = os.path.join(repository.toplevel or "", repository.folder)
    places = {"GIT_DIR": repository.git_dir, "GIT_WORK_TREE": repository.toplevel}
    return WorkPush(
        folder=asked if repository.toplevel is not None else repository.git_dir,
        remote=name,
        url=url or name,
        refs=(),
        words=request.sending,
        places=tuple((k, v) for k, v in places.items() if v is not None and k in os.environ),
        seconds=seconds,
    )


def elsewhere(location: Location, place: str) -> UsageError:
    """The refusal of a push to another repository than the ledger's."""
    own = location.name or without_secrets(location.url or "")
    return UsageError(
        f"the ledger is on {own}, but this would push to {without_secrets(place)}: work "
        "and lease move together only within one repository",
        hints=("git push pushes there without a fence",),
    )


def rewritten(repository: Repository, location: Location, push: WorkPush) -> tuple[str, str] | None:
    """The URLs from which the ledger is read and to which git would push, if they differ.

    ``pushInsteadOf`` affects pushes only: it may name another URL of the same repository, or
    another repository.
    """
    rules = [
        (x.value or "", x.key.removeprefix("url.").removesuffix(_INSTEAD))
        for x in repository.config.section("url")
        if x.key.endswith(_INSTEAD)
    ]
    if not rules:
        return None
    reads = _output(push, "ls-remote", "--get-url", "--", location.url or "")
    if push.remote in repository.remote_names():
        pushes = _output(push, "remote", "get-url", "--push", "--", push.remote)
    else:
        found = [(old, new) for old, new in rules if push.remote.startswith(old)]
        old, new = max(found, key=lambda rule: len(rule[0]), default=("", ""))
        pushes = new + push.remote.removeprefix(old) if found else reads
    return None if reads == pushes else (reads, pushes)


def _output(push: WorkPush, *words: str) -> str:
    return run_in(push, words, seconds=TIMEOUT).out.decode("utf-8", "replace").strip()


def unfollowed(
    repository: Repository, push: WorkPush, prefix: str
) -> tuple[WorkPush, tuple[tuple[str, str], ...]]:
    """The push, changed so that no tracking ref follows a ledger, whose objects are not here.

    If the remote's fetch settings would update one, the push goes to the URL instead, and git
    updates no tracking ref: those of the work are returned, with their new ids. git 2.55 recognises
    a remote by its URL, so the URL is spelled differently.
    """
    name, config = push.remote, repository.config
    specs = config.get_all(f"remote.{name}.fetch")
    if name == push.url or _follower(f"{prefix}/any", specs) is None:
        return push, ()
    words = list(push.words)
    program = config.get(f"remote.{name}.receivepack")
    words += [f"--receive-pack={program}"] if program else []
    proxy = config.get(f"remote.{name}.proxy")
    follow = [(ref, x.new) for x in push.refs if (ref := _follower(x.ref, specs)) is not None]
    by_url = replace(
        push,
        remote=push.url.removesuffix("/") if push.url.endswith("/") else push.url + "/",
        words=tuple(words),
        settings=push.settings if proxy is None else (*push.settings, ("http.proxy", proxy)),
    )
    return by_url, tuple(follow)


def _default_remote(repository: Repository) -> str:
    config, branch = repository.config, repository.branch()
    keys = [f"branch.{branch}.pushremote"] if branch else []
    keys += ["remote.pushdefault"]
    keys += [f"branch.{branch}.remote"] if branch else []
    found = next((value for key in keys if (value := config.get(key))), None)
    names = repository.remote_names()
    return found or (names[0] if len(names) == 1 else "origin")


def _follower(ref: str, specs: Sequence[str]) -> str | None:
    for spec in specs:
        source, _, target = spec.removeprefix("+").partition(":")
        head, star, tail = source.partition("*")
        if not target or source.startswith("^"):
            continue
        if not star:
            if ref == source:
                return target
        elif ref.startswith(head) and ref.endswith(tail) and len(ref) >= len(head + tail):
            return target.replace("*", ref[len(head) : len(ref) - len(tail)], 1)
    return None
