"""Which options of ``git push`` go with a fenced one, and why the others do not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gitlease.core.errors import UsageError
from gitlease.push.work import PushWish

REFUSED: Mapping[str, str] = {
    "--mirror": "it would replace or delete every ledger on the remote",
    "--prune": "it deletes whatever this clone does not have, ledgers too",
    "--no-atomic": "then work could land without its lease",
    "--repo": "name the remote as the first word",
    "--receive-pack": "what receives the push is the remote's own setting",
    "--exec": "what receives the push is the remote's own setting",
}
_FLAGS = {
    "force": "--force",
    "force_if_includes": "--force-if-includes",
    "tags": "--tags",
    "all": "--all",
    "delete": "--delete",
}
_SUBMODULES = ("check", "no")
_SIGNED = ("true", "false", "if-asked", "yes", "no")


def push_wish(
    remote: str | None,
    refspecs: Sequence[str],
    options: Mapping[str, Any],
    *,
    upstream: bool,
    hooks: bool,
) -> PushWish:
    """What is to be pushed, and how. UsageError for options that do not go."""
    return PushWish(
        remote=remote,
        refspecs=tuple(refspecs),
        choosing=_choosing(options),
        sending=_sending(options),
        upstream=upstream,
        hooks=hooks,
    )


def _choosing(options: Mapping[str, Any]) -> tuple[str, ...]:
    """The options that say what is pushed, as words for git. UsageError for what does not go."""
    words = [word for name, word in _FLAGS.items() if options.get(name)]
    for value in options.get("force_with_lease") or ():
        words.append(f"--force-with-lease={value}" if value else "--force-with-lease")
    follow = options.get("follow_tags")
    words += [] if follow is None else ["--follow-tags" if follow else "--no-follow-tags"]
    how = options.get("recurse_submodules")
    if how is not None:
        if how not in _SUBMODULES:
            raise UsageError(
                "submodules are pushed by themselves: no lease would guard what is pushed along",
                hints=("--recurse-submodules=check refuses what is missing there",),
            )
        words.append(f"--recurse-submodules={how}")
    return tuple(words)


def _sending(options: Mapping[str, Any]) -> tuple[str, ...]:
    """The options that say how it is sent, as words for git."""
    words = [f"--push-option={text}" for text in options.get("push_option") or ()]
    signed = options.get("signed")
    if signed is not None:
        if signed not in _SIGNED:
            raise UsageError(f"--signed is one of {', '.join(_SIGNED)}")
        words.append(f"--signed={signed}")
    words += ["--ipv4"] if options.get("ipv4") else []
    words += ["--ipv6"] if options.get("ipv6") else []
    return tuple(words)
