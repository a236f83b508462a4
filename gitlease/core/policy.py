"""The rules that all clients of a ledger share: stored in the ledger, not in settings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from functools import lru_cache
from typing import Annotated

from gitlease.core.errors import MAX_WORD, UsageError
from gitlease.core.frozen import LATER, RARE, dataclass, replace
from gitlease.core.instant import LONGEST, format_duration, parse_duration
from gitlease.core.resources import Resource, name_resource

# What GitHub writes where somebody keeps their address private: the login is in it.
_NO_REPLY = r"(?:[0-9]+\+)?([^+@\s]+)@users\.noreply\.github\.com"  # compiled where it is used
_LOWER = {ord(x): x.lower() for x in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}


def is_holder(email: str) -> bool:
    """Return whether this can name a holder: one printable word of at most MAX_WORD characters."""
    return email.split() == [email] and email.isprintable() and len(email) <= MAX_WORD


def person_key(email: str) -> str:
    """The key that the emails, or names, of one person share: ASCII letters in lower case.

    As for mail systems and git's mailmap, nothing else of Unicode is folded: ``straße@`` and
    ``strasse@`` are two mailboxes, and often two persons.
    """
    return email.lower() if email.isascii() else email.translate(_LOWER)


def login_of(email: str) -> str | None:
    """The login of a host that an address hides behind; None for any other address."""
    match = re.fullmatch(_NO_REPLY, person_key(email))
    return None if match is None else match[1]


MAX_ADMINS = 64
DAY = 86_400
SOONEST_ABANDONED = 600  # seconds


class Rule(Enum):
    """How a contender judges that a lease has lapsed (see ``expiry``)."""

    WALL = "wall"
    OBSERVED = "observed"


class History(Enum):
    """The effect of a renewal on the ledger's history."""

    REPLACE = "replace"
    APPEND = "append"


class Issues(Enum):
    """The tracker of a ledger's issue numbers: ``#12``, ``12`` and ``GH-12``, say, are one."""

    NONE = "none"
    GITHUB = "github"
    GITLAB = "gitlab"


_PREFIX = {Issues.GITHUB: "GH", Issues.GITLAB: "GL"}  # of links where # begins a comment
_NUMBER = r"(#|[A-Za-z]{2}-|)([1-9][0-9]{0,9})"  # compiled where it is used


def reads_as_issue(name: str) -> bool:
    """Return whether a name may be the number of an issue on some host."""
    return re.fullmatch(_NUMBER, name) is not None


def issue_resource(resource: Resource, host: Issues) -> Resource:
    """The resource in the host's own spelling, ``#12``, where it is an issue there; else itself."""
    match = re.fullmatch(_NUMBER, resource.text) if host is not Issues.NONE else None
    if match is None or match[1].upper() not in ("", "#", f"{_PREFIX[host]}-"):
        return resource
    return name_resource(f"#{match[2]}")


@dataclass(frozen=True, slots=True)
class Margins:
    """The allowances for time that a lease was granted under; they never shrink for it.

    ``skew`` and ``grace`` in seconds, ``drift`` in parts per million.
    """

    skew: Annotated[int, range(86_400 + 1)] = 60
    drift: Annotated[int, range(500_000 + 1)] = 10_000
    grace: Annotated[int, range(3_600 + 1)] = 5
    rule: Rule = Rule.WALL

    def widest(self, other: Margins) -> Margins:
        """The larger of each margin; of the rules ``observed``, which needs no common clock."""
        if other is self:
            return self
        return Margins(
            skew=max(self.skew, other.skew),
            drift=max(self.drift, other.drift),
            grace=max(self.grace, other.grace),
            rule=Rule.OBSERVED if Rule.OBSERVED in (self.rule, other.rule) else self.rule,
        )


@dataclass(frozen=True, slots=True)
class Policy:
    """Limits, margins and admins of one ledger. Durations are whole seconds."""

    ttl_max: int = 8 * 3_600
    ttl_min: int = 10
    skew: int = 60
    drift: int = 10_000  # parts per million: 1 %
    grace: int = 5
    rule: Rule = Rule.WALL
    admins: tuple[str, ...] = ()
    history: History = History.REPLACE
    keep_completed: int = 30 * 86_400
    park_max: Annotated[int, LATER] = 86_400  # 0: nothing may be parked
    abandoned_after: Annotated[int, RARE] = 7 * 86_400  # 0: never
    issues: Annotated[Issues, RARE] = Issues.NONE

    @property
    def abandons_early(self) -> bool:
        """Return whether edges are abandoned sooner than clients before format 4 accept."""
        return 0 < self.abandoned_after < DAY

    @property
    def margins(self) -> Margins:
        return _margins(self.skew, self.drift, self.grace, self.rule)

    def is_admin(self, holder: str) -> bool:
        return any(person_key(holder) == person_key(admin) for admin in self.admins)

    def problem(self) -> str | None:
        """The fault that makes this policy unusable, in words; None when it is sound."""
        if not 1 <= self.ttl_min <= self.ttl_max <= LONGEST:
            return "ttl_min and ttl_max must satisfy 1s ≤ ttl_min ≤ ttl_max ≤ ten years"
        for key, most, words in _BOUNDS:
            if not 0 <= getattr(self, key) <= most:
                return f"{key} must be {words}"
        # A day has always been enough, whatever the TTLs.
        least = min(DAY, max(SOONEST_ABANDONED, self.ttl_max))
        if self.abandoned_after and not least <= self.abandoned_after <= LONGEST:
            return (
                f"edges.abandoned_after must be never, or between {format_duration(least)} "
                "(the longest TTL, 10m at least) and ten years"
            )
        if len(self.admins) > MAX_ADMINS:
            return f"at most {MAX_ADMINS} admins"
        return None


_BOUNDS = (
    ("skew", 86_400, "between 0s and 1d"),
    ("drift", 500_000, "between 0% and 50%"),
    ("grace", 3_600, "between 0s and 1h"),
    ("keep_completed", LONGEST, "at most ten years"),
    ("park_max", LONGEST, "at most ten years"),
)


@lru_cache(maxsize=16)
def _margins(skew: int, drift: int, grace: int, rule: Rule) -> Margins:
    return Margins(skew=skew, drift=drift, grace=grace, rule=rule)


DEFAULT_POLICY = Policy()

DURATION_KEYS = frozenset({"ttl_max", "ttl_min", "skew", "grace", "keep_completed", "park_max"})
NO_ADMINS = "none"
EDGES = "edges.abandoned_after"
KEYS = tuple(EDGES if key == "abandoned_after" else key for key in Policy.__annotations__)


def change_policy(policy: Policy, changes: Mapping[str, str]) -> Policy:
    """The policy with settings as people write them; UsageError names a bad key or value."""
    values: dict[str, object] = {}
    for key, text in changes.items():
        if key not in KEYS:
            raise UsageError(
                f"{key!r} is not a ledger policy", hints=("it has " + ", ".join(KEYS),)
            )
        values[key.removeprefix("edges.")] = _value(key, text)
    changed = replace(policy, **values)  # type: ignore[arg-type]
    if wrong := changed.problem():
        raise UsageError(wrong)
    return changed


def check_change(key: str, text: str) -> None:
    """Refuse a bad key, or a value that no ledger takes. Raises UsageError."""
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
    words = {key: format_duration(getattr(policy, key)) for key in DURATION_KEYS}
    words |= {
        "drift": f"{policy.drift / 10_000:g}%",
        "rule": policy.rule.value,
        "history": policy.history.value,
        "admins": " ".join(policy.admins),
        EDGES: format_duration(policy.abandoned_after) if policy.abandoned_after else "never",
        "issues": policy.issues.value,
    }
    return {key: words[key] for key in KEYS}
