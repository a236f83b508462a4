"""Refusals as people read them, and the commands that answers and refusals suggest to type next.

A refusal never suggests one that takes a lease from its holder, because agents run what they read.
``run`` passes on its command's exit status, so its own refusals have others, and its output goes to
standard error, which may be closed.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from gitlease.core.errors import AnotherLedger, LeaseHeld, LeaseLost
from gitlease.core.instant import format_duration, moment_of
from gitlease.core.lease import same_person
from gitlease.core.loss import Loss
from gitlease.core.resources.pattern import fold
from gitlease.core.resources.resource import WHOLE, scopes_overlap
from gitlease.faces.cli import output
from gitlease.verbs import sentences, wire
from gitlease.verbs.table import Fault, exit_of

if TYPE_CHECKING:
    from gitlease.core.errors import GitleaseError
    from gitlease.core.view import LeaseView
    from gitlease.faces.cli.call import Call


def tell(call: Call, error: GitleaseError, body: Mapping[str, Any] | None = None) -> int:
    """Print a refusal and return its exit status. ``body`` reports a part that was done."""
    if call.command != "run":
        return _tell(call, error, body, exit_of(error.code))
    from gitlease.runs.supervisor import exit_of_refusal

    status = exit_of_refusal(error)
    with contextlib.suppress(OSError, ValueError):
        _tell(call, error, body, status)
    return status


def _tell(call: Call, error: GitleaseError, body: Mapping[str, Any] | None, status: int) -> int:
    steps, now = after_refusal(call, error), call.now()
    error = error.with_(hints=tuple(map(call.worded, error.hints)))
    warnings = tuple(
        dict.fromkeys((*call.warnings, *error.warnings, *sentences.skew_warnings(error.views)))
    )
    if call.json:
        more = dict(body or {}) | ({"warnings": list(warnings)} if warnings else {})
        document = wire.failure(call.command, error, now=now, next_steps=steps, body=more)
        document["error"]["exit"] = status
        if call.command == "run":
            output.last_line(document)
            return status
        output.document(document)
    output.aside(sentences.refusal(error, now), output.RED)
    for text in sentences.others_in_the_way(error, now):
        output.aside(text)
    if not call.json:
        output.warn(warnings)
    hints = [*error.hints, *advice(call, error)]
    output.hint([*steps, *hints] if error.code == "not_found" else [*hints, *steps])
    return status


def tell_partly(call: Call, refused: Sequence[GitleaseError], body: Mapping[str, Any]) -> int:
    """Print the refusals after a partial success; the first one decides the exit status."""
    now = call.now()
    if not call.json:
        for error in refused[1:]:
            output.aside(sentences.refusal(error, now), output.RED)
    more = {"refused": [wire.refusal(error, now=now) for error in refused]}
    return tell(call, refused[0], {**body, **more})


def report_fault(call: Call, error: Exception, *, traceback: bool) -> int:
    """Print an internal error in one line, with a hint."""
    if traceback:
        import traceback as tracebacks

        tracebacks.print_exception(error, file=sys.stderr)
    message = f"internal error: {type(error).__name__}: {error}".splitlines()[0]
    hint = "run it again with --traceback and report what it prints"
    return tell(call, Fault(message, hints=(hint,)))


WAITS = (1, 2, 5, 15)  # minutes of a wait that a refusal suggests: the first that is enough
MINUTE = timedelta(minutes=1)
AGENT_WAIT = 120  # seconds that agents' shell tools give a command by default


def claiming(call: Call, resource: str, scope: str | None, *, layer: str | None) -> str:
    """Return a claim that resumes work; names that are not tasks get ``--any``."""
    given = {"scope": _part(scope), "any": call.needs_any(resource), "layer": layer}
    return call.typed("claim", resource, **given)


def _part(scope: str | None) -> str | None:
    return None if scope == WHOLE else scope


def after_refusal(call: Call, error: GitleaseError) -> list[str]:
    """Return commands that are safe to run as printed."""
    code, resource, layer = error.code, error.resource, error.layer
    if call.release is not None and code in ("usage", "not_found"):
        return [call.release()]  # only tasks are done
    waits = code in ("held", "wait_timeout") and error.views and not error.by_edge
    if waits and same_person(error.views[0].holder, call.actor.holder):
        waits = error.views[0].session not in (None, call.actor.session)
    if isinstance(error, LeaseHeld) and error.waiting and call.retry is not None:
        return [call.retry(format_duration(WAITS[-1] * 60))]  # to wait in line, behind those who do
    if waits and call.retry is not None:
        time, steps = _time_to_wait(call, error), list[str]()
        # First the one that claims nothing; it takes no paths besides those of the task itself.
        if call.command != "wait" and resource is not None and not call.covers:
            steps.append(call.typed("wait", resource, timeout=time, scope=_part(error.scope)))
        # Of a task that stays assigned, no wait of a claim can succeed.
        if call.command == "wait" or error.free_at_ms is not None:
            steps.append(call.retry(time))
        return steps
    if resource is not None and code in ("held", "not_holder", "unknown_outcome", "wait_timeout"):
        return [call.typed("show", resource, layer=layer)]
    finished = any(view.state == "completed" for view in error.views)
    if resource is not None and isinstance(error, LeaseLost) and not finished:
        if parked := _own_parked(call, error):
            return [claiming(call, x.resource, x.scope, layer=layer) for x in parked]
        taken = error.loss in (Loss.TAKEN_OVER, Loss.REVOKED)
        taken = taken or any(view.state == "active" and not view.mine for view in error.views)
        if taken or _is_assigned(call, error) or call.is_anothers(resource):
            return [call.typed("show", resource, layer=layer)]
        return [claiming(call, resource, error.scope, layer=layer)]
    if code == "nothing_left":
        return [call.whole_queue or call.typed("queue", all=True)]
    if code == "unavailable" and call.cached is not None:
        return [call.cached()]
    if code == "usage":
        return [" ".join(w for w in (call.prog, call.command, "--help") if w)]
    return []


def _own_parked(call: Call, error: GitleaseError) -> list[LeaseView]:
    own = [x for x in error.views if x.parked and same_person(x.holder, call.actor.holder)]
    return [x for x in own if scopes_overlap(x.scope, error.scope or WHOLE)]


def _is_assigned(call: Call, error: GitleaseError) -> bool:
    """Whether an expired lease leaves the task assigned to someone else."""
    return any(
        view.state == "expired"
        and view.assigned
        and view.free_at is None
        and (error.resource is None or fold(view.resource) == fold(error.resource))
        and not same_person(view.holder, call.actor.holder)
        for view in error.views
    )


def _time_to_wait(call: Call, error: GitleaseError) -> str:
    known = error.free_at_ms
    if known is None:  # an edge follows: the wait ends when the lease has lapsed
        free = max(view.lapses_at or view.expires_at for view in error.views)
    else:
        free = moment_of(known)
    left = free - call.now()
    minutes = -(-left // MINUTE)
    seconds = next((x for x in WAITS if x >= minutes), minutes) * 60
    if call.for_agent:
        seconds = min(seconds, AGENT_WAIT)
    return format_duration(seconds)


def advice(call: Call, error: GitleaseError) -> Sequence[str]:
    """Return hints for people about steps that a program should not take by itself."""
    if isinstance(error, AnotherLedger) and not error.refused:
        return (f"if this was intended, accept the new ledger: {call.typed('init')}",)
    if isinstance(error, LeaseLost) and not error.hints and _own_parked(call, error):
        return ("claim a parked lease to resume it; it gets a new token",)
    if error.code not in ("held", "wait_timeout"):
        return ()
    holder = error.holder
    if error.views and same_person(error.views[0].holder, call.actor.holder):
        return (_own(call, error.views[0]),)
    if holder is None or same_person(holder, call.actor.holder):
        return ()
    lapsed = error.by_edge and all(view.state != "active" for view in error.views)
    if lapsed and error.resource is not None:
        from gitlease.verbs.task_text import ask

        asked = error.to_ask or holder
        return (call.worded(ask(call, error.resource, asked, scope=error.scope)),)
    # An edge is in the way, or will be once an expired lease has lapsed.
    stays = error.by_edge or _is_assigned(call, error)
    return (f"ask {holder} to release it",) if stays else ()


def _own(call: Call, view: LeaseView) -> str:
    if view.session in (None, call.actor.session):
        renew = call.typed("renew", view.resource, scope=_part(view.scope))
        return f"it is your own lease: {renew}"
    from gitlease.runs.records import is_process_alive

    if is_process_alive(view) is False:
        return f"it is your own lease, of session {view.session}, whose process has ended"
    place = f" (pid {view.pid} on {view.host})" if view.pid else ""
    session = f"session {view.session}{place}"
    return f"it is your own lease, held by {session} until that ends"
