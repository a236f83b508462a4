"""The fields of requests, once: they are read by these, and the OpenAPI document shows them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from gitlease.core.duration import parse_duration
from gitlease.core.errors import UsageError, check_text
from gitlease.core.frozen import dataclass
from gitlease.core.moves.operations import MAX_NOTE, MAX_REASON
from gitlease.core.resources.resource import parse_resource, parse_scope

Reader = Callable[[Any, str], Any]
IGNORED = frozenset({"by", "holder", "agent_id"})  # the token says who asks
MOST_NAMES = 64  # resources of one request, which is one step


@dataclass(frozen=True, slots=True)
class RequestField:
    """A field of a body or a query: how it is read, and what it is."""

    read: Reader
    schema: Mapping[str, object]
    about: str
    required: bool = False


def read_text(data: Any, name: str) -> str:
    """A string. UsageError for anything else."""
    if not isinstance(data, str):
        raise UsageError(f"{name} must be a string, not {_kind(data)}")
    return data


def _duration(data: Any, name: str) -> int:
    if isinstance(data, bool) or not isinstance(data, str | int):
        raise UsageError(f"{name} must be seconds, or a duration such as 15m, not {_kind(data)}")
    return parse_duration(str(data), what=name)


def _flag(data: Any, name: str) -> bool:
    if not isinstance(data, bool):
        raise UsageError(f"{name} must be true or false, not {_kind(data)}")
    return data


def _names(data: Any, name: str) -> tuple[Any, ...]:
    return tuple(parse_resource(one) for one in read_list(data, name))


def _paths(data: Any, name: str) -> tuple[str, ...]:
    words = (parse_resource(f"path:{read_text(one, name)}") for one in read_list(data, name))
    return tuple(word.pattern for word in words if word.pattern is not None)


def read_list(data: Any, name: str) -> list[Any]:
    """A list that is not too long; a single string is one of it. UsageError for anything else."""
    listed = [data] if isinstance(data, str) else data
    if not isinstance(listed, list):
        raise UsageError(f"{name} must be a list of strings, not {_kind(data)}")
    if not 1 <= len(listed) <= MOST_NAMES:
        raise UsageError(f"{name} must have 1 to {MOST_NAMES} entries, not {len(listed)}")
    return listed


def _scope(data: Any, name: str) -> str:
    return parse_scope(read_text(data, name))


def _kind(data: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "a string", bool: "true or false"}
    kinds |= {int: "a number", float: "a number", type(None): "null"}
    return kinds.get(type(data), type(data).__name__)


_STRING = {"type": "string"}
_STRINGS = {"type": "array", "items": _STRING, "minItems": 1, "maxItems": MOST_NAMES}
_TIME = {"oneOf": [{"type": "integer", "minimum": 1}, {"type": "string", "examples": ["15m"]}]}


def text(about: str, *, required: bool = False) -> RequestField:
    return RequestField(read_text, _STRING, about, required)


def shown_text(about: str, *, limit: int, lines: bool = False) -> RequestField:
    """A text that others are shown, of at most so many characters."""

    def read(data: Any, name: str) -> str:
        return check_text(read_text(data, name), what=name, limit=limit, lines=lines)

    return RequestField(read, {**_STRING, "minLength": 1, "maxLength": limit}, about)


def duration(about: str, *, required: bool = False) -> RequestField:
    """Seconds, or a duration such as ``15m``."""
    return RequestField(_duration, _TIME, about, required)


def flag(about: str) -> RequestField:
    return RequestField(_flag, {"type": "boolean", "default": False}, about)


def names(about: str, *, required: bool = True) -> RequestField:
    """Resources."""
    return RequestField(_names, _STRINGS, about, required)


def paths(about: str, *, required: bool = False) -> RequestField:
    return RequestField(_paths, _STRINGS, about, required)


SCOPE = RequestField(_scope, _STRING, "A part of the work; everything where it is left out.")
SESSION = text(
    "The run of the token's holder that speaks; the header Gitlease-Session says so too."
)
TTL = duration("How long the lease lasts without a renewal.")

CLAIM: Mapping[str, RequestField] = {
    "ttl": TTL,
    "scope": SCOPE,
    "paths": paths("Paths that the lease covers beside those of its task."),
    "reason": shown_text("Why it is taken, for others to read.", limit=MAX_REASON),
    "wait": duration("How long to wait for it, a minute at most."),
    "takeover": flag("Take a task that is assigned to another; needs a reason."),
    "expect_holder": text("Take it over only from this holder."),
    "reopen": flag("Claim a completed task again."),
    "any": flag("The name need not be a task."),
    "new": flag("Refuse where the caller has it already."),
    "session": SESSION,
}
CLAIM_SEVERAL = {"resources": names("What to claim, all or nothing."), **CLAIM}
PATCH: Mapping[str, RequestField] = {
    "ttl": TTL,
    "extend": duration("Stretch it to at least so long from now, instead of renewing it."),
    "scope": SCOPE,
    "session": SESSION,
}
RENEW_SEVERAL: Mapping[str, RequestField] = {
    "resources": names("What to renew, all or nothing."),
    "ttl": TTL,
    "scope": SCOPE,
    "session": SESSION,
}
CHECK: Mapping[str, RequestField] = {
    "paths": paths("Paths that are about to be changed.", required=True),
    "session": SESSION,
}
NEXT: Mapping[str, RequestField] = {
    "claim": flag("Claim the task that is found, whoever else asks."),
    "ttl": TTL,
    "session": SESSION,
}
END: Mapping[str, RequestField] = {
    "scope": SCOPE,
    "note": shown_text("A note for whoever has it next.", limit=MAX_NOTE, lines=True),
    "done": text("true: the work is finished; the lease ends completed."),
    "session": SESSION,
}
LIST: Mapping[str, RequestField] = {
    "holder": text("Only leases of this holder."),
    "state": text("Only leases in this state: active, expired, completed; all: every one."),
    "path": text("Only leases that cover this path."),
    "cursor": text("Where the page before this ended: its next_cursor."),
    "limit": text("How many at most: 1 to 1000 (200)."),
}
HISTORY: Mapping[str, RequestField] = {"limit": text("How many events at most: 1 to 1000 (100).")}


def read_fields(
    data: Any,
    fields: Mapping[str, RequestField],
    *,
    what: str = "the body",
    ignored: Collection[str] = IGNORED,
) -> dict[str, Any]:
    """The values of a body or a query. UsageError names the field that is wrong."""
    if not isinstance(data, dict):
        raise UsageError(f"{what} must be a JSON object, not {_kind(data)}")
    data = {x: y for x, y in data.items() if x in fields or x not in ignored}
    if odd := next((name for name in data if name not in fields), None):
        known = ", ".join(fields)
        raise UsageError(f"{what} has {odd[:60]!r}, which is not known; known are {known}")
    if lacking := next((x for x, f in fields.items() if f.required and data.get(x) is None), None):
        about = fields[lacking].about
        raise UsageError(f"{what} lacks {lacking}" + (f": {about}" if about else ""))
    return {x: fields[x].read(value, x) for x, value in data.items() if value is not None}
