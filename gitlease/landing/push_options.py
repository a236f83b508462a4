"""The options of ``git push`` that a fenced push accepts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gitlease.kernel.rules.errors import UsageError, check_text
from gitlease.kernel.rules.lease import MAX_REASON
from gitlease.landing.plan import PushRequest

_FORCING = ("force", "force_if_includes", "force_with_lease")
_CHOOSING = ("tags", "all", "delete", "follow_tags", "no_follow_tags", "recurse_submodules")
_SENDING = ("push_option", "signed", "ipv4", "ipv6")
OFF = (None, False)
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
    # The other values push the submodules too, beside the atomic push that has the fence.
    if submodules not in (None, *_SUBMODULES):
        raise UsageError(
            "submodules cannot be fenced: push them separately",
            hints=("--recurse-submodules=check refuses the push if their commits are missing",),
        )
    if signed not in (None, *_SIGNED):
        raise UsageError(f"invalid --signed: expected one of {', '.join(_SIGNED)}")
    # None leaves it to push.followTags; False is the option that overrides that.
    options = {**options, "no_follow_tags": options.get("follow_tags") is False}
    return PushRequest(
        remote=remote,
        refspecs=tuple(refspecs),
        choosing=tuple(_words(options, (*_FORCING, *_CHOOSING))),
        sending=tuple(_words(options, _SENDING)),
        upstream=upstream,
        hooks=hooks,
    )


def override_reason(text: str | None) -> str:
    """Why superseded commits are pushed all the same, ``""`` for no override. UsageError."""
    return "" if text is None else check_text(text, what="the reason", limit=MAX_REASON)


def _words(options: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    words = []
    for name in names:
        word, given = f"--{name.replace('_', '-')}", options.get(name)
        values = (given,) if given is None or isinstance(given, bool | str) else given
        # "" is an option that was typed without its value: --force-with-lease.
        words += [word if x is True or x == "" else f"{word}={x}" for x in values if x not in OFF]
    return words
