"""The fields of requests: how each is read, and how the OpenAPI document describes it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from gitlease.core.errors import UsageError, check_text
from gitlease.core.frozen import dataclass
from gitlease.core.instant import parse_duration
from gitlease.core.moves.operations import MAX_NOTE, MAX_REASON
from gitlease.core.resources.resource import parse_resource, parse_scope
from gitlease.engine.answers import ClaimOptions
from gitlease.faces.library.refusals import with_arguments

Reader = Callable[[Any, str], Any]
IGNORED = frozenset({"by", "holder", "agent_id"})  # the token determines the holder
MOST_NAMES = 64  # resources of a request, which is one step


@dataclass(frozen=True, slots=True)
class RequestField:
    """A field of a body or a query: its reader, its JSON schema and its description."""

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
    """A list of limited length; a single string counts as one. UsageError for anything else."""
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
    """A text for others to read, of at most ``limit`` characters."""

    def read(data: Any, name: str) -> str:
        return check_text(read_text(data, name), what=name, limit=limit, lines=lines)

    return RequestField(read, {**_STRING, "minLength": 1, "maxLength": limit}, about)


def duration(about: str, *, required: bool = False) -> RequestField:
    return RequestField(_duration, _TIME, about, required)


def flag(about: str) -> RequestField:
    return RequestField(_flag, {"type": "boolean", "default": False}, about)


def names(about: str, *, required: bool = True) -> RequestField:
    return RequestField(_names, _STRINGS, about, required)


def paths(about: str, *, required: bool = False) -> RequestField:
    return RequestField(_paths, _STRINGS, about, required)


SCOPE = RequestField(_scope, _STRING, "A part of the work; all of it by default.")
SESSION = text("The session of the token's holder; also as the header Gitlease-Session.")
TTL = duration("How long the lease lasts without a renewal.")

CLAIM: Mapping[str, RequestField] = {
    "ttl": TTL,
    "scope": SCOPE,
    "paths": paths("Paths that the lease covers besides those of its task."),
    "reason": shown_text("Why it is taken, for others to read.", limit=MAX_REASON),
    "wait": duration("How long to wait for it, at most a minute."),
    "takeover": flag("Take a task that is assigned to another; needs a reason."),
    "expect_holder": text("Take it over only from this holder."),
    "reopen": flag("Claim a completed task again."),
    "any": flag("The name need not be a task."),
    "new": flag("Refuse if the caller holds it already."),
    "session": SESSION,
}
CLAIM_SEVERAL = {"resources": names("What to claim, all or nothing."), **CLAIM}
PATCH: Mapping[str, RequestField] = {
    "ttl": TTL,
    "extend": duration("Stretch it to at least this long from now, instead of renewing it."),
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
    "paths": paths("Paths about to be changed.", required=True),
    "session": SESSION,
}
NEXT: Mapping[str, RequestField] = {
    "claim": flag("Claim the task in the same step."),
    "ttl": TTL,
    "session": SESSION,
}
END: Mapping[str, RequestField] = {
    "scope": SCOPE,
    "note": shown_text("A note for the next holder.", limit=MAX_NOTE, lines=True),
    "done": text("true: the work is finished, and the lease ends completed."),
    "session": SESSION,
}
LIST: Mapping[str, RequestField] = {
    "holder": text("Only leases of this holder."),
    "state": text(
        "Only leases in this state: active, expired, completed, released and revoked (lately), or "
        "all (default: those that block others: active, and expired until they lapse)."
    ),
    "path": text("Only leases that cover this path."),
    "cursor": text("The next_cursor of the page before."),
    "limit": text("The most to return: 1 to 1000 (200)."),
}
TASKS: Mapping[str, RequestField] = {
    "mine": text("true: what the caller carries instead, with the state of each lease."),
    "session": SESSION,
}
HISTORY: Mapping[str, RequestField] = {"limit": text("The most events to return: 1 to 1000 (100).")}


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
        raise UsageError(f"unknown field {odd[:60]!r} in {what}; known fields: {known}")
    if missing := next((x for x, f in fields.items() if f.required and data.get(x) is None), None):
        about = fields[missing].about
        raise UsageError(f"{what} lacks {missing}" + (f": {about}" if about else ""))
    return {x: fields[x].read(value, x) for x, value in data.items() if value is not None}


# Where things lie on the gateway's machine is nobody's business.
_LOCAL_PATH = r"(?<![^\s'\"(=])(?:file://)?/([^\s'\"(),;:/]+)/[^\s'\"(),;]*[^\s'\"(),;:.]"


def own_words(text: str) -> str:
    """A message with fields instead of the command line's options, and without local paths."""
    return without_paths(with_arguments(text, on='"{}": true'))


def without_paths(text: str) -> str:
    """A message without local paths."""
    return re.sub(_LOCAL_PATH, _hidden, text)


def _hidden(path: re.Match[str]) -> str:
    return "(a local path)" if os.path.lexists(f"/{path[1]}") else path[0]


def own_hints(hints: Iterable[str], known: Collection[str]) -> list[str]:
    """The hints that a request can follow, in fields: those with an unknown one are left out."""
    return [
        own_words(hint)
        for hint in hints
        if all(x.replace("-", "_") in known for x in re.findall(r"(?<![\w-])--([a-z-]+)", hint))
    ]


def claim_options(values: Mapping[str, Any], **more: Any) -> ClaimOptions:
    """How to claim, from the values of a request. UsageError for a takeover without a reason."""
    if values.get("takeover") and not values.get("reason"):
        raise UsageError("a takeover needs a reason")
    names = ("ttl", "scope", "reason", "takeover", "expect_holder", "reopen", "new")
    given = {name: values[name] for name in names if name in values}
    return ClaimOptions(**given | {"any_name": values.get("any", False)} | more)
