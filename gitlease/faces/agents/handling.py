"""What happens at each event: the same for every host.

A handler never fails: it ends with 0, and where something of ours is wrong the edit goes through
and people are told.
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
from gitlease.faces.agents.events import MAX_BYTES, AgentEvent, EventKind, Reply, parse
from gitlease.faces.agents.shared import Opener, context_of

if TYPE_CHECKING:
    from gitlease.wiring.agents import AgentContext

Starter = Callable[..., bool]

HOSTS = ("claude", "codex", "cursor")
ACTIONS = ("install", "uninstall", "status")  # what people type in the place of an event
EVENTS = {kind.value: kind for kind in EventKind}
RENEW, RELEASE = "renew-now", "release-now"  # the words of the process in the background
WORDS = frozenset({*EVENTS, RENEW, RELEASE})
LOOK = 300  # seconds after which a session looks again at what it holds, at most
GOES_ON = frozenset({"clear", "resume", "compact"})  # why a session ends whose work does not
MOST_PLACES = 5  # work trees of one edit
MOST_SAID = 5  # lines of news at one event


def is_event(argv: Sequence[str]) -> bool:
    """Whether the words after ``agent`` are an event, not a person's command.

    A word that is neither, but is made like one, is an event of another version, whose settings are
    shared with this one: hosts take a usage error for a refusal. At a terminal it is a person's,
    who mistyped.
    """
    if len(argv) < 2 or argv[0].startswith("-") or argv[1].startswith("-"):
        return False
    return _is_known(argv) or ("-" in argv[1] and not _is_typed())


def _is_known(argv: Sequence[str]) -> bool:
    return argv[0] in HOSTS and argv[1] in WORDS


def _is_typed() -> bool:
    try:
        return sys.stdin is not None and sys.stdin.isatty()
    except ValueError:
        return False


def run(argv: Sequence[str], *, stdin: BinaryIO | None = None) -> int:
    """Handle one event: JSON on standard input, a JSON decision on standard output. Always 0."""
    try:
        if _is_known(argv) and argv[1] in (RENEW, RELEASE):
            from gitlease.faces.agents.background import in_background

            return in_background(argv[2:], renews=argv[1] == RENEW)
        data = _read(stdin)
        answer, aside = handle(argv, data) if _is_known(argv) else _unknown(argv)
        if answer is not None:
            print(json.dumps(answer), flush=True)
        if aside and sys.stderr is not None:
            print(f"gitlease: {aside}", file=sys.stderr)
    except (OSError, ValueError):
        pass  # nobody listens: the edit goes through
    return 0


def _read(stdin: BinaryIO | None) -> bytes | None:
    """The event; None where nothing can be read."""
    if stdin is None and sys.stdin is None:  # it is closed
        return None
    try:
        return (stdin or sys.stdin.buffer).read(MAX_BYTES + 1)
    except (OSError, ValueError):
        return None


def _unknown(argv: Sequence[str]) -> tuple[dict[str, Any] | None, str]:
    host, word = (clean(text)[:60] for text in argv[:2])
    aside = f"this version knows no event {word!r} of {host!r}: nothing was done"
    return {} if host == "cursor" else None, aside


def handle(
    argv: Sequence[str],
    data: bytes | None,
    *,
    opener: Opener | None = None,
    start: Starter | None = None,
    now: Callable[[], float] = time.time,
) -> tuple[dict[str, Any] | None, str]:
    """The answer to one event (None: none is needed), and a line for standard error.

    ``data`` is None where there was nothing to read it from; ``start`` starts what nobody waits
    for, and ``now`` is in seconds since the epoch.
    """
    host, kind = argv[0], EVENTS[argv[1]]
    module = _module(host)
    notice = ""
    answer: dict[str, Any] = {}
    try:
        if data is None:
            raise Invalid("standard input cannot be read")
        event: AgentEvent = module.read(kind, parse(data))
        around = _Around(opener or _open_context, start or _start_detached, now)
        reply = _reply(event, around, keep="--keep" in argv)
        notice, answer = reply.notice, module.answer(kind, reply)
    except NotARepository:
        pass
    except Exception as error:  # whatever it is, an edit is not to hang on it
        notice = _fault(kind, error)
        answer = module.answer(kind, Reply(notice=notice))
    return answer if answer or host == "cursor" else None, notice


def _module(host: str) -> Any:
    from gitlease.faces.agents import claude, codex, cursor

    return {"claude": claude, "codex": codex, "cursor": cursor}[host]


def _open_context(directory: str, **who: str) -> AgentContext | None:
    """Opened only where it is needed: most events of a tool end without."""
    from gitlease.wiring.agents import open_for_agent, own_process

    own_process()
    return open_for_agent(directory, **who)  # type: ignore[arg-type]


def _start_detached(words: Sequence[str], *, cwd: str) -> bool:
    from gitlease.wiring.hooks import start_detached

    return start_detached(words, cwd=cwd)


def _fault(kind: EventKind, error: Exception) -> str:
    why, hint = f"internal error: {error!r}", ""
    if isinstance(error, GitleaseError):
        why, hint = error.message, f" (hint: {error.hints[0]})" if error.hints else ""
    unchecked = {EventKind.BEFORE_EDIT: "this edit", EventKind.BEFORE_SHELL: "this command"}
    what = f"{unchecked[kind]} was not checked" if kind.asks else f"{kind.value} did nothing"
    return clean(f"{what}: {why}{hint}".replace("\n", " "))[:600]


# --- each event -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Around:
    """How a repository is opened and a process started, and the clock."""

    opener: Opener
    start: Starter
    now: Callable[[], float]


def _reply(event: AgentEvent, around: _Around, *, keep: bool) -> Reply:
    shared.note(event, around.opener, around.now())
    if event.kind is EventKind.BEFORE_EDIT:
        return _before_edit(event, around.opener)
    if event.kind is EventKind.BEFORE_SHELL:
        return shared.before_shell(event, around.opener, around.now())
    if event.kind in (EventKind.SESSION_START, EventKind.SUBAGENT_START):
        return _start(event, around.opener)
    if event.kind is EventKind.AFTER_TOOL:
        return _after_tool(event, around)
    if not keep:
        _end(event, around)
    return Reply()


def _before_edit(event: AgentEvent, opener: Opener) -> Reply:
    told: list[Reply] = []
    for start, paths in _places(event).items():
        try:
            context = context_of(replace(event, cwd=start), opener)
        except NotARepository:
            continue
        if context is not None and context.workspace.settings.guard_mode != "off":
            told.append(_judged(context, event.cwd or start, paths))
    if event.more:
        said = "the edit names too many files: only the first of them were checked"
        told.append(Reply(context=said, notice=said))
    return Reply(
        deny="\n".join(x.deny for x in told if x.deny),
        context="\n".join(x.context for x in told if x.context),
        notice="\n".join(x.notice for x in told if x.notice),
    )


def _places(event: AgentEvent) -> dict[str, list[str]]:
    """The paths by the folder to open for them: an agent edits beyond its own work tree, too."""
    from gitlease.guard.places import find_work_tree

    here = event.cwd or "."
    own = find_work_tree(os.path.join(here, "x"))
    found: dict[str, list[str]] = {}
    for path in event.paths:
        root = find_work_tree(os.path.join(here, path))
        start = here if root is None or root == own else root
        found.setdefault(start, []).append(path)
    return dict(list(found.items())[:MOST_PLACES])


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
    blocks, told = judging.split(context, guarded)
    now = _now(context)
    said = [
        answers.one_line(text)
        for text in (*context.workspace.inbox.take(), *guarded.warnings)[:MOST_SAID]
    ]
    if guarded.offline and context.workspace.settings.guard_offline != "off":
        said.append(answers.one_line(guarded.offline))
    if blocks:
        deny = answers.blocked(blocks, now, context)
        return Reply(deny="\n".join((deny, *said)), notice="\n".join(said))
    notes = [answers.noted(told, now)] if told else []
    return Reply(context="\n".join((*notes, *said)), notice="\n".join(said))


def _start(event: AgentEvent, opener: Opener) -> Reply:
    from gitlease.faces.agents.answers import introduction

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
    said = (
        *([fresh.offline] if fresh.offline else []),  # first: it is about all that follows
        *landed,
        *workspace.inbox.take(),
        *fresh.warnings,
    )
    if reading is None:
        return Reply(notice="\n".join(said[:2]))
    own = [lease.lease_id for _, lease in workspace.guard.renewable() if lease.session is None]
    workspace.carried.add(own)
    told = introduction(
        context, reading, now=_now(context), subagent=bool(event.agent_id), warnings=said
    )
    return Reply(context=told)


def _after_tool(event: AgentEvent, around: _Around) -> Reply:
    """Tell what was lost, and have the leases renewed in the background when it is time.

    Most tools end without: nothing is looked at before a lease is due or a ledger has moved.
    """
    from gitlease.faces.agents.answers import one_line
    from gitlease.wiring.hooks import check_is_due, marker_state, postpone_check

    standing = marker_state(event.cwd or ".")
    if standing is None or not os.path.isdir(standing.private):
        return Reply()
    name = f"{event.by} {event.session_id} {event.agent_id}"
    due = check_is_due(standing, name, now=around.now())
    context = context_of(event, around.opener) if due or standing.inbox else None
    if context is None:
        return Reply()
    said = list(context.workspace.inbox.take())
    if due:
        postpone_check(standing, name, at=_beat(event, context, around))
        said += context.workspace.guard.lost()
    return Reply(context="\n".join(one_line(text) for text in said[:MOST_SAID]))


def _beat(event: AgentEvent, context: AgentContext, around: _Around) -> float:
    """Start a heartbeat where it is time; when to look again, in seconds since the epoch."""
    from gitlease.guard.heartbeat import retry_interval
    from gitlease.guard.rules import renew_at

    guard, now = context.workspace.guard, around.now()
    guard.refresh(context.family)
    renewable = guard.renewable(context.family, context.workspace.carried.ids())
    if guard.due(renewable) and context.family:
        words = ["agent", event.by, RENEW, *sorted(context.family)]
        around.start(words, cwd=event.cwd or ".")
        return now + retry_interval(lease for _, lease in renewable)
    return min((now + LOOK, *(renew_at(lease) / MS for _, lease in renewable)))


def _end(event: AgentEvent, around: _Around) -> None:
    """Have what this session, or this sub-agent, holds run out, in the background."""

    if event.kind is EventKind.SESSION_END and event.reason in GOES_ON:
        return
    if event.kind is EventKind.SUBAGENT_STOP and not event.agent_id:
        return
    context = context_of(event, around.opener)
    if context is not None and context.session:
        words = ["agent", event.by, RELEASE, context.session]
        around.start(words, cwd=event.cwd or ".")


def _now(context: AgentContext) -> datetime:
    return moment_of(context.workspace.ledger.clock.now().wall_ms)
