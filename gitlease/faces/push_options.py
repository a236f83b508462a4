"""Which options of ``git push`` go with a fenced one, and why the others do not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gitlease.core.errors import UsageError
from gitlease.push.request import PushRequest

REFUSED: Mapping[str, str] = {
    "--mirror": "it would replace or delete every ledger on the remote",
    "--prune": "it deletes whatever this clone does not have, ledgers too",
    "--no-atomic": "then work could land without its lease",
    "--repo": "name the remote as the first word",
    "--receive-pack": "what receives the push is the remote's own setting",
    "--exec": "what receives the push is the remote's own setting",
}
_CHOOSING = ("force", "force_if_includes", "tags", "all", "delete", "force_with_lease")
_SENDING = ("push_option", "signed", "ipv4", "ipv6")
_SUBMODULES = ("check", "no")
_SIGNED = ("true", "false", "if-asked", "yes", "no")


def push_request(
    remote: str | None,
    refspecs: Sequence[str],
    options: Mapping[str, Any],
    *,
    upstream: bool,
    hooks: bool,
) -> PushRequest:
    """What is to be pushed, and how. UsageError for options that do not go."""
    submodules, signed = options.get("recurse_submodules"), options.get("signed")
    if submodules not in (None, *_SUBMODULES):
        raise UsageError(
            "submodules are pushed by themselves: no lease would guard what is pushed along",
            hints=("--recurse-submodules=check refuses what is missing there",),
        )
    if signed not in (None, *_SIGNED):
        raise UsageError(f"--signed is one of {', '.join(_SIGNED)}")
    choosing = _words(options, _CHOOSING)
    if (follow := options.get("follow_tags")) is not None:
        choosing.append("--follow-tags" if follow else "--no-follow-tags")
    return PushRequest(
        remote=remote,
        refspecs=tuple(refspecs),
        choosing=(*choosing, *_words(options, ("recurse_submodules",))),
        sending=tuple(_words(options, _SENDING)),
        upstream=upstream,
        hooks=hooks,
    )


def _words(options: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """Options as words for git: switches that are on, and each value that was given."""
    words = []
    for name in names:
        word, given = f"--{name.replace('_', '-')}", options.get(name)
        if isinstance(given, bool):
            words += [word] if given else []
        elif given is not None:
            values = (given,) if isinstance(given, str) else given
            words += [f"{word}={value}" if value else word for value in values]
    return words
