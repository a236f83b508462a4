"""Handles the events of all hosts.

A handler always exits with 0. After an internal error, the edit goes through, with a notice.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, BinaryIO

from gitlease.core.errors import GitleaseError, Invalid, NotARepository, clean
from gitlease.core.frozen import dataclass, replace
from gitlease.core.instant import MS, moment_of
from gitlease.faces.agents import shared
from gitlease.faces.agents.events import (
    MAX_BYTES,
    AgentEvent,
    EventKind,
    Reply,
    answer,
    parse,
    read,
)
from gitlease.faces.agents.shared import Opener, context_of
from gitlease.guard.notes import ask_is_due, find_common_dir, has_traces, is_asking
from gitlease.install.agents import AGENTS

if TYPE_CHECKING:
    from gitlease.wiring.agents import AgentContext

Starter = Callable[..., bool]

ACTIONS = ("install", "uninstall", "status")  # typed by people in place of an event
EVENTS = {kind.value: kind for kind in EventKind}
# The commands of the background process.
RENEW, RELEASE, LOOK = "renew-now", "release-now", "look-now"
END_LATER = "end-later"
BACKGROUND = (RENEW, RELEASE, LOOK, END_LATER)
WORDS = frozenset({*EVENTS, *BACKGROUND})
LOOK_INTERVAL = 10  # seconds after which an event has the ledger fetched in the background
CHECK_INTERVAL = 300  # seconds; the longest time between two checks of a session's leases
CONTINUING = frozenset({"clear", "resume", "compact"})  # reasons that do not end the work
MAX_WORK_TREES = 5  # of one edit
MAX_MESSAGES = 5  # at one event


def is_event(argv: Sequence[str]) -> bool:
    """Whether the words after ``agent`` are an event, not a person's command.

    An unknown word with a hyphen counts as an event of another version, unless typed at a terminal:
    hosts would take a usage error for a refusal.
    """
    if len(argv) < 2 or argv[0].startswith("-") or argv[1].startswith("-"):
        return False
    return _is_known(argv) or ("-" in argv[1] and not _is_typed())


def _is_known(argv: Sequence[str]) -> bool:
    return argv[0] in AGENTS and argv[1] in WORDS


def _is_typed() -> bool:
    try:
        return sys.stdin is not None and sys.stdin.isatty()
    except ValueError:
        return False


def run(argv: Sequence[str], *, stdin: BinaryIO | None = None) -> int:
    """Handle one event: JSON on standard input, a decision on standard output. Always 0."""
    try:
        if _is_known(argv) and argv[1] in BACKGROUND:
            from gitlease.faces.agents.background import in_background

            return in_background(argv[1], argv[2:])
        data = _read(stdin)
        document, aside = handle(argv, data) if _is_known(argv) else _unknown(argv)
        if document is not None:
            print(json.dumps(document), flush=True)
        if aside and sys.stderr is not None:
            print(f"gitlease: {aside}", file=sys.stderr)
    except (OSError, ValueError):
        pass  # the host has left
    return 0


def _read(stdin: BinaryIO | None) -> bytes | None:
    if stdin is None and sys.stdin is None:  # closed
        return None
    try:
        return (stdin or sys.stdin.buffer).read(MAX_BYTES + 1)
    except (OSError, ValueError):
        return None


def _unknown(argv: Sequence[str]) -> tuple[dict[str, Any] | None, str]:
    host, word = (clean(text)[:60] for text in argv[:2])
    aside = f"unknown event {word!r} of {host!r}: nothing was done"
    return {} if host in AGENTS and AGENTS[host].flat else None, aside


def handle(
    argv: Sequence[str],
    data: bytes | None,
    *,
    opener: Opener | None = None,
    start: Starter | None = None,
    now: Callable[[], float] = time.time,
) -> tuple[dict[str, Any] | None, str]:
    """Return the answer to one event, or None, and a line for standard error.

    ``data`` is None if standard input could not be read. ``start`` starts background processes, and
    ``now`` returns seconds since the epoch.
    """
    agent, kind = AGENTS[argv[0]], EVENTS[argv[1]]
    notice, document = "", dict[str, Any]()
    try:
        if data is None:
            raise Invalid("standard input cannot be read")
        event = read(agent, kind, parse(data))
        system = _System(opener or _open_context, start or _start_detached, now)
        reply = _reply(event, system, keep="--keep" in argv)
        notice, document = reply.notice, answer(agent, kind, reply)
    except NotARepository:
        pass
    except Exception as error:  # an edit must not depend on our errors
        notice = _fault(kind, error)
        document = answer(agent, kind, Reply(notice=notice))
    return document if document or agent.flat else None, notice


def _open_context(directory: str, **who: str) -> AgentContext | None:
    from gitlease.wiring.agents import open_for_agent

    return open_for_agent(directory, **who)  # type: ignore[arg-type]


def _start_detached(words: Sequence[str], *, cwd: str) -> bool:
    from gitlease.guard.notes import start_detached

    return start_detached(words, cwd=cwd)


def _fault(kind: EventKind, error: Exception) -> str:
    why, hint = f"internal error: {error!r}", ""
    if isinstance(error, GitleaseError):
        why, hint = error.message, f" (hint: {error.hints[0]})" if error.hints else ""
    unchecked = {EventKind.BEFORE_EDIT: "this edit", EventKind.BEFORE_SHELL: "this command"}
    effect = f"{unchecked[kind]} was not checked" if kind.asks else f"{kind.value} did nothing"
    return clean(f"{effect}: {why}{hint}".replace("\n", " "))[:600]


# --- each event -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _System:
    """The functions that open repositories and start processes, and the clock."""

    opener: Opener
    start: Starter
    now: Callable[[], float]


def _reply(event: AgentEvent, system: _System, *, keep: bool) -> Reply:
    if event.kind in (EventKind.SESSION_END, EventKind.SUBAGENT_STOP):
        for place in shared.where_it_ends(event):
            shared.note(place, system.opener, system.now())
            if not keep:
                _end(place, system)
        return Reply()
    if event.kind is EventKind.SESSION_START:
        ask_for_ledger(event, system.start, system.now())
        shared.begin(event, system.now())
    shared.note(event, system.opener, system.now())
    reply = _handled(event, system)
    if event.kind.asks or event.kind is EventKind.AFTER_TOOL:
        _look_again(event, system)
    return reply


def _look_again(event: AgentEvent, system: _System) -> None:
    """Have the ledger fetched for the next event, so that it knows what others did meanwhile."""
    from gitlease.guard.notes import is_due, marker_state

    marker = marker_state(event.cwd or ".")
    used = marker is not None and has_traces(os.path.dirname(marker.private))
    if marker is not None and used and is_due(marker, LOOK, every=LOOK_INTERVAL, now=system.now()):
        system.start(["agent", event.by, LOOK], cwd=event.cwd or ".")


def _handled(event: AgentEvent, system: _System) -> Reply:
    if event.kind is EventKind.BEFORE_EDIT:
        return _before_edit(event, system)
    if event.kind is EventKind.BEFORE_SHELL:
        return shared.before_shell(event, system.opener, system.now())
    if event.kind in (EventKind.SESSION_START, EventKind.SUBAGENT_START):
        return _start(event, system.opener)
    return _after_tool(event, system)


def _before_edit(event: AgentEvent, system: _System) -> Reply:
    replies: list[Reply] = []
    for start, paths in _by_work_tree(event).items():
        here = replace(event, cwd=start)
        try:
            context = context_of(here, system.opener)
            if context is None and await_ledger(here, system.start, system.now()):
                context = context_of(here, system.opener)
        except NotARepository:
            continue
        if context is not None and context.workspace.settings.guard_mode != "off":
            replies.append(_judged(context, event.cwd or start, paths))
    if event.more:
        text = "the edit names too many files: only the first ones were checked"
        replies.append(Reply(context=text, notice=text))
    return Reply(
        deny="\n".join(x.deny for x in replies if x.deny),
        context="\n".join(x.context for x in replies if x.context),
        notice="\n".join(x.notice for x in replies if x.notice),
    )


def _by_work_tree(event: AgentEvent) -> dict[str, list[str]]:
    from gitlease.guard.notes import find_work_tree

    here = event.cwd or "."
    own = find_work_tree(os.path.join(here, "x"))
    found: dict[str, list[str]] = {}
    for path in event.paths:  # an agent may edit other work trees, too
        root = find_work_tree(os.path.join(here, path))
        start = here if root is None or root == own else root
        found.setdefault(start, []).append(path)
    return dict(list(found.items())[:MAX_WORK_TREES])


def _judged(context: AgentContext, cwd: str, paths: Sequence[str]) -> Reply:
    from gitlease.faces.agents import answers, judging

    touched = judging.touched(context.workspace, cwd, paths)
    if not touched:
        return Reply()
    context.workspace.carried.add(
        lease.lease_id for _, lease in context.workspace.guard.under(touched) if not lease.session
    )
    guarded = context.workspace.guard.check(touched)
    if context.workspace.settings.guard_offline != "block":
        guarded = guarded.lenient()
    blocks, others = judging.split(context, guarded)
    now = _now(context)
    messages = [
        answers.one_line(text)
        for text in (*context.workspace.inbox.take(), *guarded.warnings)[:MAX_MESSAGES]
    ]
    if guarded.offline and context.workspace.settings.guard_offline != "off":
        messages.append(answers.one_line(guarded.offline))
    if blocks:
        deny = answers.denial(blocks, now, context)
        return Reply(deny="\n".join((deny, *messages)), notice="\n".join(messages))
    held = [answers.held_lines(others, now)] if others else []
    return Reply(context="\n".join((*held, *messages)), notice="\n".join(messages))


def _start(event: AgentEvent, opener: Opener) -> Reply:
    from gitlease.faces.agents.answers import introduction
    from gitlease.wiring.words import dead_hooks

    context = context_of(event, opener)
    if context is None:
        return Reply()
    workspace = context.workspace
    fresh = workspace.guard.fetch_all()  # within its own limit of time
    landed: tuple[str, ...] = ()
    if event.kind is EventKind.SESSION_START and not fresh.offline:
        from gitlease.wiring.landing import end_at_start

        landed = end_at_start(workspace)
    reading = workspace.queue.known_brief()
    warnings = (
        *([fresh.offline] if fresh.offline else []),  # first, because it affects the rest
        *dead_hooks(workspace),
        *landed,
        *workspace.inbox.take(),
        *fresh.warnings,
    )
    if reading is None:
        return Reply(notice="\n".join(warnings[:2]))
    own = [lease.lease_id for _, lease in workspace.guard.renewable() if lease.session is None]
    workspace.carried.add(own)
    text = introduction(
        context, reading, now=_now(context), subagent=bool(event.agent_id), warnings=warnings
    )
    return Reply(context=text)


def _after_tool(event: AgentEvent, system: _System) -> Reply:
    # Runs after every tool, so it opens the repository only for a due check or for messages.
    from gitlease.faces.agents.answers import one_line
    from gitlease.guard.notes import check_is_due, marker_state, postpone_check

    marker = marker_state(event.cwd or ".")
    if marker is None or not has_traces(os.path.dirname(marker.private)):
        return Reply()
    name = f"{event.by} {event.session_id} {event.agent_id}"
    due = check_is_due(marker, name, now=system.now())
    context = context_of(event, system.opener) if due or marker.inbox else None
    if context is None:
        return Reply()
    messages = list(context.workspace.inbox.take())
    if due:
        postpone_check(marker, name, at=_beat(event, context, system))
        messages += context.workspace.guard.lost()
    return Reply(context="\n".join(one_line(text) for text in messages[:MAX_MESSAGES]))


def _beat(event: AgentEvent, context: AgentContext, system: _System) -> float:
    """Start a heartbeat if one is due; return the time of the next check, in epoch seconds."""
    from gitlease.guard.rules import renew_at
    from gitlease.guard.service import retry_interval

    guard, now = context.workspace.guard, system.now()
    guard.refresh(context.family)
    renewable = guard.renewable(context.family, context.workspace.carried.ids())
    if guard.due(renewable) and context.family:
        words = ["agent", event.by, RENEW, *sorted(context.family)]
        system.start(words, cwd=event.cwd or ".")
        return now + retry_interval(lease for _, lease in renewable)
    return min((now + CHECK_INTERVAL, *(renew_at(lease) / MS for _, lease in renewable)))


def _end(event: AgentEvent, system: _System) -> None:
    if event.kind is EventKind.SUBAGENT_STOP and not event.agent_id:
        return
    context = context_of(event, system.opener)
    if context is not None and context.session:
        words = ["agent", event.by, RELEASE, context.session]
        if event.kind is EventKind.SESSION_END and event.reason in CONTINUING:
            from gitlease.wiring.agents import end_conversation

            number = end_conversation(context, event.by, event.session_id, now=system.now())
            words = ["agent", event.by, END_LATER, context.session, number]
        system.start(words, cwd=event.cwd or ".")


def _now(context: AgentContext) -> datetime:
    return moment_of(context.workspace.ledger.clock.now().wall_ms)


ASK_INTERVAL = 86_400  # seconds between two questions to the remote of a clone
LONGEST_WAIT = 3  # seconds that an edit waits for the answer, once
ASK_PAUSE = 0.05


# --- clones without a trace of gitlease: the hooks in a person's own file run there, too ---------


def ask_for_ledger(event: AgentEvent, start: Callable[..., bool], now: float) -> str | None:
    """Have the remote asked in the background; the clone, if an answer is to come."""
    common = find_common_dir(event.cwd or ".")
    if common is None or has_traces(common):
        return None
    if ask_is_due(common, every=ASK_INTERVAL, now=now):
        start(["agent", event.by, LOOK], cwd=event.cwd or ".")
    return common


def await_ledger(event: AgentEvent, start: Callable[..., bool], now: float) -> bool:
    """Wait for the answer that an edit needs; whether the clone has traces of gitlease now."""
    common = ask_for_ledger(event, start, now)
    if common is None:
        return False
    deadline = time.monotonic() + LONGEST_WAIT
    while is_asking(common) and not has_traces(common) and time.monotonic() < deadline:
        time.sleep(ASK_PAUSE)
    return has_traces(common)
