"""The wait of a restored ledger, in which it grants nothing new, and who may decide on a ledger."""

from __future__ import annotations

from gitlease.kernel.rules.errors import PolicyRefused
from gitlease.kernel.rules.instant import rfc3339
from gitlease.kernel.rules.lease import DAY, Moment, Policy
from gitlease.kernel.rules.ledger import Header

LONGEST_TTL = DAY  # seconds: the most that a policy may allow


def check_admin(
    policy: Policy, holder: str, deed: str, *hints: str, who: str = "the ledger's admins"
) -> None:
    """Raise PolicyRefused if a ledger has admins and this holder is not one of them."""
    if policy.admins and not policy.is_admin(holder):
        raise PolicyRefused(
            f"only {who} may {deed}, and {holder} is not one of them",
            hints=("they are " + ", ".join(policy.admins), *hints),
        )


def wait_of(policy: Policy) -> int:
    """Seconds after which every lease has lapsed that anybody may have, whatever was not seen."""
    # A ledger may have got a longer maximum from an older gitlease.
    longest = max(LONGEST_TTL, policy.ttl_max)
    return longest + -(-longest * policy.drift // 1_000_000) + policy.grace + policy.skew


def wait_end(header: Header, now_ms: int) -> int | None:
    """When a restored ledger grants again, in wall-clock milliseconds; None if it does now."""
    until = header.closed_until
    return None if until is None or now_ms >= until else until


def check_open(header: Header, moment: Moment, resource: str) -> None:
    """Raise PolicyRefused where a restored ledger does not grant anything new yet."""
    until = wait_end(header, moment.now.wall_ms)
    if until is None:
        return
    raise PolicyRefused(
        f"nothing new is granted until {rfc3339(until, round_up=True)}: a ledger was "
        "deleted here, or may have been, and others may still have leases that this one lacks",
        resource=resource,
        hints=(
            "leases that are held go on: renew, extend, finish and release them as usual",
            "an admin who has asked everybody may end the wait: gitlease help trouble",
        ),
    )
