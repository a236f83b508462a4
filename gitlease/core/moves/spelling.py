"""Issue numbers in operations: one spelling of each, which the ledger's policy sets.

Whoever decides a step spells its names so, and the table takes no other: no two clients can hold
one issue under two names (S1).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gitlease.core.errors import PolicyRefused, UsageError
from gitlease.core.frozen import non_defaults, replace
from gitlease.core.ledger import Ledger
from gitlease.core.moves.operations import Grant, Operation, Retirement
from gitlease.core.policy import Issues, Policy, issue_resource, reads_as_issue
from gitlease.core.resources.resource import Resource

_SHOWN = 5


def spelt(operation: Operation, policy: Policy) -> Operation:
    """The operation with the host's spelling of each issue that it names."""
    changed: Operation = _spelt(operation, policy.issues)
    return changed


def check_spelling(operation: Operation, policy: Policy) -> None:
    """UsageError for an operation that names an issue in another spelling than the ledger's."""
    for named in _named(operation):
        if (right := issue_resource(named, policy.issues)) != named:
            raise UsageError(f"{named} is the issue {right} in this ledger", resource=named.text)


def check_spelt(ledger: Ledger, was: Issues, host: Issues) -> None:
    """PolicyRefused where a record's name would be another resource by another host's spellings."""
    found = dict.fromkeys(x.resource for x in ledger.every_lease())
    names = [
        x.text
        for x in found
        if reads_as_issue(x.text) and (was is not Issues.NONE or issue_resource(x, host) != x)
    ]
    if names:
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        raise PolicyRefused(
            f"the ledger has records of {', '.join(names[:_SHOWN])}{more}, "
            "which would then name other resources",
            hints=("release them first; claim a completed one with --reopen to release it",),
        )


def _spelt(value: Any, host: Issues) -> Any:
    if isinstance(value, Resource):
        return issue_resource(value, host)
    if isinstance(value, tuple):
        return tuple(_spelt(part, host) for part in value)
    if isinstance(value, Operation | Retirement | Grant):
        fields = non_defaults(value).items()
        return replace(value, **{name: _spelt(part, host) for name, part in fields})
    return value


def _named(value: Any) -> Iterator[Resource]:
    if isinstance(value, Resource):
        yield value
    elif isinstance(value, tuple):
        for part in value:
            yield from _named(part)
    elif isinstance(value, Operation | Retirement | Grant):
        for part in non_defaults(value).values():
            yield from _named(part)
