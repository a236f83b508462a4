"""A ledger's policy as people write it, a setting at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum

from gitlease.kernel.rules.errors import UsageError, hint
from gitlease.kernel.rules.frozen import replace
from gitlease.kernel.rules.instant import LONGEST, format_duration, parse_duration
from gitlease.kernel.rules.lease import DAY, History, Policy, Rule
from gitlease.kernel.rules.resources import Issues

DURATION_KEYS = frozenset({"ttl_max", "ttl_min", "skew", "grace", "keep_completed", "park_max"})
NO_ADMINS = "none"
EDGES = "edges.abandoned_after"
OLD_KEYS = frozenset({"park_max"})  # ledgers of older versions have them, and nobody sets them now
KEYS = tuple(
    EDGES if key == "abandoned_after" else key
    for key in Policy.__annotations__
    if key not in OLD_KEYS
)


def change_policy(policy: Policy, changes: Mapping[str, str]) -> Policy:
    """The policy with settings as people write them; UsageError names a bad key or value."""
    values: dict[str, object] = {}
    for key, text in changes.items():
        if key not in KEYS and key not in OLD_KEYS:
            raise UsageError(
                f"{key!r} is not a ledger policy", hints=("it has " + ", ".join(KEYS),)
            )
        values[key.removeprefix("edges.")] = _value(key, text)
    changed = replace(policy, **values)  # type: ignore[arg-type]
    if wrong := changed.problem():
        raise UsageError(wrong)
    return changed


def check_keys(changes: Iterable[str]) -> None:
    """Refuse a setting that only older versions have. Raises UsageError.

    Not part of ``change_policy``, which is for what they wrote as well.
    """
    if OLD_KEYS.intersection(changes):
        raise UsageError(
            "park_max is gone: no lease is parked any more",
            hints=(hint("to keep a task, end its lease with {}", "release", keep=True),),
        )


def check_ceiling(changes: Mapping[str, str]) -> None:
    """Refuse a longest TTL above the ceiling. Raises UsageError.

    Not part of ``change_policy``: an older gitlease allowed more, and what it wrote is still read.
    """
    # The wait of a restored ledger, in which nothing is granted, is as long as that.
    text = changes.get("ttl_max")
    if text is not None and parse_duration(text, what="ttl_max") > DAY:
        raise UsageError(f"ttl_max is at most {format_duration(DAY)}, not {text.strip()[:40]}")


def check_change(key: str, text: str) -> None:
    """Refuse a bad key, or a value that no ledger takes. Raises UsageError."""
    check_keys([key])
    check_ceiling({key: text})
    # Before contact the ledger's own limits are not known: only what none would take is refused.
    change_policy(Policy(ttl_min=1, ttl_max=1 if key == EDGES else LONGEST), {key: text})


def _value(key: str, text: str) -> object:
    if key in DURATION_KEYS:
        return 0 if text.strip() in ("0", "0s") else parse_duration(text, what=key)
    if key == EDGES:
        return 0 if text.strip().lower() == "never" else parse_duration(text, what=key)
    if key == "drift":
        try:
            parts = float(text.strip().removesuffix("%")) * 10_000
        except ValueError:
            parts = float("nan")
        if not (text.strip().endswith("%") and 0 <= parts <= 500_000):
            raise UsageError(f"drift is a percentage between 0% and 50%, not {text[:40]!r}")
        return round(parts)
    if key == "admins":
        words = admin_words(text)
        if words[:1] == (NO_ADMINS,):
            return ()  # what follows is who confirms that
        if odd := next((w for w in words if len(w) > 254 or not w.isprintable()), None):
            raise UsageError(f"{odd[:40]!r} is not a holder")
        return words
    choices: type[Enum] = {"rule": Rule, "history": History, "issues": Issues}[key]
    try:
        return choices(text.strip().lower())
    except ValueError:
        allowed = ", ".join(choice.value for choice in choices)
        raise UsageError(f"{key} is one of {allowed}, not {text[:40]!r}") from None


def admin_words(text: str) -> tuple[str, ...]:
    """The words of a list of admins; after ``none`` comes who confirms that it is empty."""
    return tuple(dict.fromkeys(text.replace(",", " ").split()))


def policy_words(policy: Policy) -> dict[str, str]:
    """Each setting as a person would type it: the inverse of ``change_policy``."""
    words = {key: format_duration(getattr(policy, key)) for key in DURATION_KEYS - OLD_KEYS}
    words |= {
        "drift": f"{policy.drift / 10_000:g}%",
        "rule": policy.rule.value,
        "history": policy.history.value,
        "admins": " ".join(policy.admins),
        EDGES: format_duration(policy.abandoned_after) if policy.abandoned_after else "never",
        "issues": policy.issues.value,
    }
    return {key: words[key] for key in KEYS}
