"""``park``: a lease is kept for a later session."""

from __future__ import annotations

from gitlease.core.errors import Hint
from gitlease.core.instant import format_duration
from gitlease.core.resources.resource import WHOLE
from gitlease.engine import sessions
from gitlease.engine.answers import Answer
from gitlease.verbs import sentences, wire
from gitlease.verbs.parameters import OwnScope, ParkFor, ParkNote, Reason, Resources
from gitlease.verbs.table import OWN_EXITS, Door, Result, verb


@verb(
    "park",
    """Stop with the work unfinished, and keep others out for a while.

Nothing renews a parked lease. It ends after --for, or after the ledger's maximum (park_max,
default: one day), which also caps --for. A lease that already lasts longer is not shortened. A
parked lease is bound to no session, and comes first in your queue.

Any of your sessions can resume it with `claim` or `next --claim`. This is a new grant, with a new
token and the usual TTL. `renew` and `extend` refuse a parked lease with exit 3, so that anything
still running under it stops. To keep it longer, park it again. Without a session, you may also park
the lease of one of your runs; that run then loses it.""",
    advice=("until tomorrow: gitlease park F001; over lunch: gitlease park F001 --for 90m",),
    examples=(
        "gitlease park F001",
        "gitlease park F001 --for 3h --note 'parser done, tests red'",
        "gitlease park F001 F002 --reason 'back tomorrow'",
    ),
    exits=OWN_EXITS,
    done="the leases are parked",
)
def park_verb(
    door: Door,
    resources: Resources,
    *,
    duration: ParkFor = None,
    reason: Reason = None,
    note: ParkNote = None,
    scope: OwnScope = None,
) -> Result:
    answer = door.act(
        "park",
        resources,
        lambda ledger, some: sessions.park(
            ledger, some, seconds=duration, scope=scope, reason=reason, note=note
        ),
        scope=scope,
    )
    return Result(
        body=wire.changed(answer) | parked_at_most(answer),
        lines=lambda: parked_lines(door, answer),
        leases=answer.leases,
        answer=answer,
        refused=answer.refused,
        warnings=answer.warnings,
        then=claims_again(door, answer),
    )


def parked_at_most(answer: Answer) -> wire.Document:
    """Return the keys that report a capped parking time."""
    return {"capped_to_max": answer.capped_to_max, "max_park_seconds": answer.max_park_seconds}


def parked_lines(door: Door, answer: Answer) -> list[str]:
    """Return a line for each parked lease."""
    now, most = door.now(), format_duration(answer.max_park_seconds)
    less = f", capped to the ledger's maximum of {most}" if answer.capped_to_max else ""
    return [f"{sentences.named(x)} is {sentences.until(x, now)}{less}" for x in answer.leases]


def claims_again(door: Door, answer: Answer) -> tuple[Hint, ...]:
    """Return the claims that resume parked leases: one of each scope and layer."""
    parts: dict[tuple[str, str], list[str]] = {}
    for view in answer.leases:
        parts.setdefault((view.scope, view.layer), []).append(view.resource)
    return tuple(
        Hint(
            "claim",
            {"resources": names}
            | ({} if scope == WHOLE else {"scope": scope})
            | ({"any": True} if any(map(door.needs_any, names)) else {})
            | {"layer": layer, "session": None},
            "resume it, in any of your sessions",
        )
        for (scope, layer), names in parts.items()
    )
