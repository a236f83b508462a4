"""``wait`` until a resource is free, and ``watch`` the events of leases."""

from __future__ import annotations

import gc
import json
import shlex
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gitlease.core.errors import UsageError
from gitlease.core.instant import format_duration
from gitlease.core.resources.resource import WHOLE
from gitlease.faces.cli import output, types
from gitlease.faces.cli.verb import (
    Decorated,
    option,
    optional_resources_argument,
    resources_argument,
    taking,
    verb,
)
from gitlease.verbs import sentences, wire
from gitlease.verbs.table import LEASE_EXITS, READING_EXITS

if TYPE_CHECKING:
    from gitlease.core.resources.resource import Resource
    from gitlease.faces.cli.call import Call


def _timeout(text: str) -> Callable[[Decorated], Decorated]:
    return option("--timeout", "seconds", metavar="D", type=types.duration("timeout"), help=text)


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
    scope="Only this part of the work (default: all of it).",
)
@resources_argument
@_timeout("Wait at most this long (default: forever).")
@taking("note", but=("resource", "text"))
def wait_verb(
    call: Call, *, words: tuple[str, ...], seconds: int | None, any: bool, scope: str | None
) -> None:
    from gitlease.engine import claim

    gc.enable()
    part = WHOLE if scope is None else scope
    resources = call.resources(words)
    if not any:
        call.check_names(resources)
    given = [] if scope is None else ["--scope", scope]
    given += ["--any"] if any else []
    call.retry = lambda time: call.typed("wait", *resources, options=["--timeout", time, *given])
    began = call.now()
    answer = claim.wait(
        call.ledger,
        resources,
        scope=part,
        seconds=seconds,
        on_wait=lambda held: call.on_wait(held, seconds or 0),
    )
    waited = max(0, int((call.now() - began).total_seconds()))
    names = [resource.text for resource in resources]
    if not any and [name for name in names if call.needs_any(name)]:
        given += ["--any"]
    call.answer(
        {"status": answer.status, "resources": names, "scope": part, "waited_seconds": waited},
        warnings=answer.warnings,
        next_steps=[call.typed("claim", *resources, options=given)] if call.may_claim else (),
        show=lambda: _show_free(names, part, waited),
    )


def _show_free(names: list[str], scope: str, waited: int) -> None:
    after = f" after {format_duration(waited)}" if waited else ""
    part = "" if scope == WHOLE else f" (scope {scope})"
    output.lines(f"{name}{part} is free{after}" for name in names)


@verb(
    "watch",
    """Print the events of leases, of each RESOURCE or of all, from now until interrupted.

The events are claimed, renewed, parked, released, completed, taken_over, revoked, lapsed, and
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
    scope="Only leases that overlap this scope.",
)
@optional_resources_argument
@_timeout("Stop after this long (default: never).")
@taking("note", but=("resource", "text"))
@option("--exec", "command", metavar="CMD", help="Run CMD for each event, with its JSON on stdin.")
def watch_verb(
    call: Call,
    *,
    words: tuple[str, ...],
    seconds: int | None,
    command: str | None,
    any: bool,
    scope: str | None,
) -> None:
    gc.enable()
    if scope is not None and not words:
        raise UsageError("--scope needs a resource")
    from gitlease.engine.answers import told_by
    from gitlease.engine.watch import Watcher

    part = WHOLE if scope is None else scope
    parts = [(resource, part) for resource in call.resources(words)]
    if not any:
        call.check_names([resource for resource, _ in parts])
    handler = None if command is None else _handler(command)
    store = call.ledger.store
    output.warn([*call.warnings, *store.warnings])
    watcher = Watcher(
        call.ledger,
        parts,
        on_trouble=lambda error: output.aside(f"{error.message}; still trying"),
        on_begin=lambda head: _begin(call, [name for name, _ in parts], told_by(store, head)),
    )
    for event in watcher.events(seconds=seconds):
        if call.json:
            print(json.dumps(wire.watched(event)), flush=True)
        else:
            output.line(sentences.happened(event, call.now()))
            sys.stdout.flush()
        if handler is not None:
            handler(json.dumps(wire.watched(event)) + "\n")


def _handler(command: str) -> Callable[[str], None]:
    from gitlease.core.errors import Invalid, NotFound
    from gitlease.runs.child import check_executable, run_with_input

    try:
        words = tuple(shlex.split(command))
        check_executable(words[0] if words else "")
    except (ValueError, Invalid, NotFound) as error:
        raise UsageError(f"--exec {command!r} cannot be run: {error}") from None

    def run(text: str) -> None:
        sys.stdout.flush()
        status = run_with_input(words, text)
        if status:
            output.aside(f"warning: {words[0]} ended with {status}")

    return run


def _begin(call: Call, resources: Sequence[Resource], said: Sequence[str]) -> None:
    output.warn(said)
    if output.on_terminal() and not call.json:
        names = ", ".join(resource.text for resource in resources) or "all leases"
        output.aside(f"watching {names} in layer {call.ledger.layer} on {call.ledger.store.place}")
