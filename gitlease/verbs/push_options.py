"""The options of ``git push`` that a fenced push accepts, and the reasons against the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gitlease.core.errors import UsageError
from gitlease.push.plan import PushRequest

REFUSED: Mapping[str, str] = {
    "--mirror": "it would replace or delete every ledger on the remote",
    "--prune": "it deletes whatever this clone does not have, ledgers too",
    "--no-atomic": "work could land without its lease",
    "--repo": "name the remote as the first word",
    "--receive-pack": "the remote chooses the program that receives the push",
    "--exec": "the remote chooses the program that receives the push",
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
    """Return the push to carry out. UsageError for options that cannot be fenced."""
    submodules, signed = options.get("recurse_submodules"), options.get("signed")
    if submodules not in (None, *_SUBMODULES):
        raise UsageError(
            "submodules cannot be fenced: push them separately",
            hints=("--recurse-submodules=check refuses the push if their commits are missing",),
        )
    if signed not in (None, *_SIGNED):
        raise UsageError(f"invalid --signed: expected one of {', '.join(_SIGNED)}")
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
    words = []
    for name in names:
        word, given = f"--{name.replace('_', '-')}", options.get(name)
        if isinstance(given, bool):
            words += [word] if given else []
        elif given is not None:
            values = (given,) if isinstance(given, str) else given
            words += [f"{word}={value}" if value else word for value in values]
    return words
