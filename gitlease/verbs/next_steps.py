"""The calls that help after a refusal, as values that each door words.

None takes a lease from its holder, because agents run what they read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import timedelta

from gitlease.kernel.rules.errors import (
    AnotherLedger,
    GitleaseError,
    Hint,
    LeaseHeld,
    LeaseLost,
    Loss,
)
from gitlease.kernel.rules.frozen import replace
from gitlease.kernel.rules.lease import same_person
from gitlease.kernel.rules.lease_view import LeaseView
from gitlease.kernel.rules.resources import WHOLE, fold, word_anywhere
from gitlease.verbs import sentences
from gitlease.verbs.table import COMMAND, HTTP, TOOL, Called, Door, find_verb

SHOWN = ("held", "wait_timeout", "not_holder", "unknown_outcome", "lost")
WAITS = (1, 2, 5, 15)  # minutes of a wait that a refusal suggests: the first that is enough
AGENT_WAIT = 120  # seconds that agents' shell tools give a command by default
LONGEST_WAIT = 50  # seconds: hosts give a call of a tool a minute


def steps_after(door: Door | None, error: GitleaseError, called: Called) -> Sequence[Hint]:
    """Return calls that are safe to make as they are; with no door, what any caller may do."""
    if error.then:
        return error.then
    if called.door != COMMAND and error.resource is not None:  # whose names no folder has changed
        error = error.with_(resource=word_anywhere(error.resource))
    code, name = error.code, error.resource
    if code == "nothing_left":
        # The same task files and the same copy of the ledger, else the answers would differ.
        kept = {x: called.values[x] for x in ("ref", "cached") if x in called.values}
        return [Hint("queue", {"all": True, **kept}, "`{}` shows why each task is not offered")]
    if code == "unavailable":
        # A change needs the remote: only a call that reads can be answered from this clone's copy.
        known = find_verb(called.verb) if called.verb else None
        offered = known and "cached" in known.at(called.door) and known.only_reads(called.values)
        with contextlib.suppress(GitleaseError):
            if offered and door and door.ledger.known_look() is not None:
                return [_again(called, cached=True)]
        return []
    if code in ("held", "wait_timeout") and (waits := _waits(door, error, called)):
        return waits
    if name is None or code not in SHOWN:
        return []
    show = [Hint("show", {"resource": name, "layer": error.layer}, "`{}` shows who holds it")]
    return _resumed(door, error, name, show) if door and isinstance(error, LeaseLost) else show


def _waits(door: Door | None, error: GitleaseError, called: Called) -> list[Hint]:
    """Return the calls that wait, if waiting helps."""
    known = find_verb(called.verb).parameters if called.verb else {}
    limit = next((name for name, one in known.items() if one.waits), "")
    if isinstance(error, LeaseHeld) and error.waiting:
        return _waiting(called, limit, WAITS[-1] * 60)  # in line, behind those who wait
    # No wait ends an assignment, nor one's own lease, unless another will do.
    own, one = bool(error.views) and error.views[0].mine, bool(called.values.get("one"))
    if not error.views or error.by_edge or (own and not one) or (known and not limit):
        return []
    if door and _way_back(door, error):
        return []
    # The refusal's own time: without a door there is no clock.
    now = error.views[0].expires_at - timedelta(seconds=error.views[0].expires_in)
    free = error.free_at  # else an edge follows: the wait ends when the lease has lapsed
    free = free or max(view.lapses_at or view.expires_at for view in error.views)
    # Rounded up, so that the wait does not end just before the lease.
    minutes = -(-(free - now) // timedelta(minutes=1))
    seconds = next((x for x in WAITS if x >= minutes), minutes) * 60
    longest = AGENT_WAIT if door and door.for_agent else seconds
    seconds = min(seconds, LONGEST_WAIT if called.door == TOOL else longest)
    again = _waiting(called, limit, seconds)
    beyond = error.resource is None or called.values.get("paths")
    if called.verb == "wait" or (again and (beyond or one)) or own:
        return again
    # A wait takes no paths besides those of a task: else it is for what is in the way.
    held = dict.fromkeys(word_anywhere(x.resource) for x in error.views)
    names, scope = ([*held], None) if beyond else ([error.resource], _part(error.scope))
    terms = {"resources": names, "timeout": seconds, "scope": scope}
    # First the one that claims nothing. Of a task that stays assigned, no claim can succeed.
    alone = [Hint("wait", terms)] if called.door != HTTP else []
    return [*alone, *again] if error.free_at is not None else alone


def _resumed(door: Door, error: LeaseLost, name: str, show: list[Hint]) -> list[Hint]:
    """Return the claims that resume lost work, or if it is someone else's now, ``show``."""
    # Only a claim with `reopen` would help, which nobody should be led to by mistake.
    if any(view.state == "completed" for view in error.views):
        return []
    # Taken on purpose: agents run what they read, and would take it back.
    taken = error.loss in (Loss.TAKEN_OVER, Loss.REVOKED) or is_assigned(door, error)
    taken = taken or any(view.state == "active" and not view.mine for view in error.views)
    again = [] if taken or door.is_anothers(name) else [name]
    return [claiming(door, x, error.scope, error.layer) for x in again] or show


def _again(called: Called, why: str = "", **changes: object) -> Hint:
    given = {**changes, **called.more, **called.values}
    return Hint(called.command or called.verb, given, why)


def _waiting(called: Called, limit: str, seconds: int) -> list[Hint]:
    """Return the same call, if it can wait."""
    known = find_verb(called.verb).at(called.door) if limit else {}
    if limit not in known:
        return []
    # What only this call should dare, such as a takeover, no hint repeats.
    lost = {limit, *(name for name, one in known.items() if not one.again)}
    kept = {x: value for x, value in called.values.items() if x not in lost}
    return [_again(replace(called, values=kept), "`{}` waits for it", **{limit: seconds})]


def claiming(door: Door, name: str, scope: str | None, layer: str | None) -> Hint:
    """Return a claim that resumes work; names that are not tasks get ``any``."""
    given = {"scope": _part(scope), "any": door.needs_any(name), "layer": layer}
    return Hint("claim", {"resources": [name], **given})


def _part(scope: str | None) -> str | None:
    return None if scope == WHOLE else scope


def is_assigned(door: Door, error: GitleaseError) -> bool:
    """Return whether an expired lease leaves the task assigned to someone else."""
    return any(
        view.state == "expired"
        and sentences.edge_stays(view)
        and (error.resource is None or fold(view.resource) == fold(error.resource))
        and not same_person(view.holder, door.ledger.actor.holder)
        for view in error.views
    )


def advice_after(door: Door, error: GitleaseError) -> Sequence[str]:
    """Return hints for people about steps that a program should not take by itself."""
    # Only a person knows whether another ledger is meant: a program gets nothing to run.
    if isinstance(error, AnotherLedger) and error.gone and not (error.refused and error.recorded):
        return (Hint("init", {"restore": True}, "if it was deleted, an admin can bring it back"),)
    if isinstance(error, AnotherLedger) and not error.refused:
        return (Hint("init", {}, "if this was intended, accept the new ledger"),)
    if back := _way_back(door, error):
        return (f"{back}  # your session holds it under that address",)
    if error.code not in ("held", "wait_timeout"):
        return ()
    holder, own = error.holder, door.ledger.actor.holder
    if error.views and same_person(error.views[0].holder, own):
        return (_of_own(door, error.views[0]),)
    # Nobody need be told to ask themselves.
    if holder is None or same_person(holder, own):
        return ()
    lapsed = error.by_edge and all(view.state != "active" for view in error.views)
    if lapsed and error.resource and door.ledger.edges.rules.people.is_same(holder, own):
        again = {"resources": [error.resource], "scope": _part(error.scope), "layer": error.layer}
        return (Hint("claim", again, f"{holder} is an address of yours: claim it again first"),)
    if lapsed and error.resource is not None:
        return (sentences.ask(door, error.resource, error.to_ask or holder, scope=error.scope),)
    # An edge is in the way, or will be once an expired lease has lapsed.
    stays = error.by_edge or is_assigned(door, error)
    return (f"ask {holder} to release it",) if stays else ()


def _way_back(door: Door, error: GitleaseError) -> str:
    """Return the command for a lease that the caller's session holds under another address."""
    ledgers = door.every_ledger() if error.views else ()
    ways = (ledger.mailbox.way_back_to(view) for view in error.views for ledger in ledgers)
    return next(filter(None, ways), "")


def _of_own(door: Door, view: LeaseView) -> str:
    if view.mine:
        given = {"resources": [view.resource], "scope": _part(view.scope)}
        return Hint("renew", given, "it is your own lease")
    from gitlease.runs.records import is_process_alive

    # None, for a process of another machine, tells nothing.
    if is_process_alive(view) is False:
        ended = f"whose process has ended ({sentences.MAY_RUN})"
        return f"it is your own lease, of session {view.session}, {ended}"
    place = f" (pid {view.pid} on {view.host})" if view.pid else ""
    return f"it is your own lease, held by session {view.session}{place} until that ends"
