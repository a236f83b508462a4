"""The verbs that wait for others or watch them: ``wait`` and ``watch``."""

from __future__ import annotations

from gitlease.kernel.ledger import claim
from gitlease.kernel.ledger.chores import pending_messages
from gitlease.kernel.ledger.watch import Watcher
from gitlease.kernel.rules.errors import Hint, UsageError
from gitlease.kernel.rules.instant import format_duration
from gitlease.kernel.rules.resources import WHOLE, fold
from gitlease.verbs import parameters as takes
from gitlease.verbs.table import AT_A_CLONE, LEASE_EXITS, READING_EXITS, TOOL, Door, Result, verb


@verb(
    "wait",
    """Wait until all RESOURCEs are free at the same time, so that you could claim them.

This claims nothing and takes no place in the queue of waiters. To wait and claim in one step, in
order of arrival, use `claim --wait`. A release is noticed within 10 seconds during the first
minute, and more slowly later. An expiry is noticed at once. A resource counts as free if nobody
else holds it, or if its lease has lapsed. A lapsed lease of an assigned task ends the wait with a
refusal, since the assignment stays. Completed work is never free.""",
    examples=(
        "gitlease wait F001",
        "gitlease wait F001 --timeout 15m",
        "gitlease wait deploy-prod db-migrations --timeout 1h && ./deploy",
    ),
    exits=LEASE_EXITS,
    no=("wait_timeout",),
    done="all of them are free",
    reads=True,
    doors=AT_A_CLONE | {TOOL},  # over HTTP a claim waits
)
def wait_verb(
    door: Door,
    resources: takes.Resources,
    *,
    timeout: takes.WaitAtMost = None,
    any: takes.KnownName = False,
    scope: takes.WholeScope = None,
) -> Result:
    if not any:
        door.check_names(resources)
    part, began = WHOLE if scope is None else scope, door.now()
    answer = claim.wait(
        door.ledger,
        resources,
        scope=part,
        seconds=timeout,
        on_wait=lambda held: door.on_wait(held, timeout or 0),
    )
    waited = max(0, int((door.now() - began).total_seconds()))
    names = [resource.text for resource in resources]
    # A wait takes every name, but the claim that follows may not.
    by_any = any or bool([name for name in names if door.needs_any(name)])
    claim_them = Hint("claim", {"resources": names, "scope": scope, "any": by_any})

    def lines() -> list[str]:
        after = f" after {format_duration(waited)}" if waited else ""
        of = "" if part == WHOLE else f" (scope {part})"
        # One's own lease ends a wait as well, and must not be called free.
        head = door.ledger.store.known(door.ledger.layer)
        mine = door.ledger.views_in(head, door.ledger.own_live()) if head else ()
        held = {fold(x.resource) for x in mine if x.state == "active"}
        return [f"{x}{of} is {'yours' if fold(x) in held else 'free'}{after}" for x in names]

    return Result(
        body={"status": answer.status, "resources": names, "scope": part, "waited_seconds": waited},
        lines=lines,
        warnings=answer.warnings,
        # Waiting needs no user.email, but a claim does.
        then=(claim_them,) if door.ledger.actor.holder else (),
    )


@verb(
    "watch",
    """Print the events of leases, of each RESOURCE or of all, from now until interrupted.

The events are claimed, renewed, released, completed, taken_over, revoked, lapsed, and
available when anyone can claim the resource. A lapse is reported on time even if nobody writes to
the ledger. The remote is polled every few seconds, but events between two polls are not lost: they
are printed in order, with their times. Ctrl-C stops it with exit status 130.

--exec runs a command, not a shell line, for each event, one at a time, with the event's JSON on
standard input. A failing command is reported, and watch continues.

Each event is one line; with --json, one JSON document.""",
    examples=(
        "gitlease watch",
        "gitlease watch F001 src/auth/",
        "gitlease watch --json | jq 'select(.event == \"available\").resource'",
        "gitlease watch F001 --scope parser --timeout 1h",
        "gitlease watch --exec ./notify.py",
    ),
    exits=READING_EXITS,
    done="the timeout has passed",
    reads=True,
    doors=AT_A_CLONE,
)
def watch_verb(
    door: Door,
    resources: takes.Resources = (),
    *,
    timeout: takes.StopAfter = None,
    any: takes.KnownName = False,
    command: takes.Exec = None,
    scope: takes.OverlapScope = None,
) -> Result:
    """Answer with the events as ``value``, an iterator; what they run is up to the door."""
    if scope is not None and not resources:
        raise UsageError(f"{door.option('scope')} needs a resource")
    if not any:
        door.check_names(resources)
    names, store = [resource.text for resource in resources], door.ledger.store
    watcher = Watcher(
        door.ledger,
        [(resource, WHOLE if scope is None else scope) for resource in resources],
        on_trouble=door.on_trouble,
        on_begin=lambda head: door.on_watch(names, pending_messages(store, head)),
    )
    events = watcher.events(seconds=timeout)
    return Result(body={}, value=events, warnings=store.warnings)
