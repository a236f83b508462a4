"""Step records as JSON, one line of a commit's message: read back strictly, since anyone writes it.

What stands in a line follows from the classes of ``operations`` alone: a new operation needs
nothing here. Fields with their default are left out, and each step has one spelling.
"""

from __future__ import annotations

import json
import re
from functools import cache
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from gitlease.core.errors import GitleaseError, Invalid, check_text
from gitlease.core.frozen import non_defaults
from gitlease.core.lease import Actor
from gitlease.core.ledger import MAX_STEP
from gitlease.core.moves.operations import MAX_PATHS_LENGTH, Operation, Pick
from gitlease.core.moves.step_record import StepRecord
from gitlease.core.moves.transitions import MOVES
from gitlease.core.resources.resource import Resource, parse_resource

MAX_NUMBER = 10**18
_FACTS = ("ledger_id", "recent", "over", "gateway")  # what most steps have no need to say
# A search is named by what it found.
_KINDS = {kind.__name__: kind for kind in MOVES if kind is not Pick}
_ID = re.compile(r"[!-~]{1,64}")  # one word of a line of the ring


class BadStep(Invalid):
    """A line that no step record reads as; the message says what is wrong with it."""


def write_step(record: StepRecord) -> str:
    """The line of a step. The actor that all its operations share stands in it once."""
    first = record.operations[0].actor
    line: dict[str, object] = {"at": record.at, "actor": plain(first)}
    line["do"] = [_operation(operation, first) for operation in record.operations]
    for key in _FACTS:
        if value := getattr(record, key):
            line[key] = plain(value)
    return json.dumps(line, ensure_ascii=False, separators=(",", ":"))


def read_step(line: str) -> StepRecord:
    """The step of a line; BadStep for anything that ``write_step`` would not have written."""
    try:
        data = json.loads(line)
        _check_keys(data, {"at", "actor", "do", *_FACTS}, "a step")
        actor, listed = data["actor"], data["do"]
        if not isinstance(listed, list) or not 1 <= len(listed) <= MAX_STEP:
            raise BadStep(f"it does not have 1 to {MAX_STEP} operations")
        record = StepRecord(
            at=typed(int, data["at"]),
            operations=tuple(_read_operation(one, actor) for one in listed),
            **{key: typed(_hints(StepRecord)[key], data[key]) for key in _FACTS if key in data},
        )
    except BadStep:
        raise
    except KeyError as error:
        raise BadStep(f"{error} is missing") from None
    except GitleaseError as error:
        raise BadStep(error.message) from None
    except (ValueError, TypeError, RecursionError):
        raise BadStep("it is not the JSON of a step") from None
    if write_step(record) != line:
        raise BadStep("it is not spelt as gitlease spells it")
    return record


def _operation(operation: Operation, first: Actor) -> dict[str, object]:
    said = {"op": type(operation).__name__, **plain(operation)}
    if operation.actor == first:
        del said["actor"]
    return said


def plain(value: Any) -> Any:
    """What JSON has for a value: of a frozen class the fields that are not as by default."""
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, Resource):
        return value.text
    if isinstance(value, frozenset):
        return sorted(plain(one) for one in value)
    if isinstance(value, tuple):
        return [plain(one) for one in value]
    return {name: plain(one) for name, one in non_defaults(value).items()}


def _read_operation(data: Any, actor: Any) -> Operation:
    kind = _KINDS.get(data["op"])
    if kind is None:
        raise BadStep(f"it has an operation {ascii(data['op'])[:40]}, which is unknown here")
    fields = {name: one for name, one in data.items() if name != "op"}
    operation: Operation = typed(kind, {"actor": actor, **fields})
    if not _ID.fullmatch(operation.id):
        raise BadStep(f"{ascii(operation.id)[:40]} is not the id of an operation")
    return operation


def typed(hint: Any, data: Any) -> Any:
    """A value of a type, out of what ``plain`` made of it. Raises BadStep, KeyError, TypeError."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is UnionType:
        return None if data is None else typed(parts[0], data)
    if origin in (tuple, frozenset):
        if not isinstance(data, list):
            raise BadStep("it has something else where a list is expected")
        if origin is tuple and parts[-1] is not ...:
            return tuple(typed(part, one) for part, one in zip(parts, data, strict=True))
        return origin(typed(parts[0], one) for one in data)
    if hint is str:
        return check_text(data, what="a text", limit=MAX_PATHS_LENGTH, lines=True, blank=True)
    if hint is Resource:
        return parse_resource(typed(str, data))
    if hint in (int, bool):
        if type(data) is not hint or abs(data) >= MAX_NUMBER:
            raise BadStep(f"it has {ascii(data)[:40]} where {hint.__name__} is expected")
        return data
    hints = _hints(hint)
    _check_keys(data, hints, hint.__name__)
    return hint(**{name: typed(hints[name], one) for name, one in data.items()})


def _check_keys(data: Any, known: Any, what: str) -> None:
    if not isinstance(data, dict):
        raise BadStep(f"it has something else where {what} is expected")
    if odd := next((key for key in data if key not in known), None):
        raise BadStep(f"{what} has {ascii(odd)[:40]}, which is unknown here")


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)
