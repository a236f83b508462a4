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
from gitlease.core.frozen import replace
from gitlease.core.instant import moment_of
from gitlease.faces.agents.events import MAX_BYTES, AgentEvent, EventKind, Reply, parse

if TYPE_CHECKING:
    from gitlease.wiring.agents import AgentContext
    from gitlease.wiring.hooks import MarkerStanding

Opener = Callable[..., "AgentContext | None"]

HOSTS = ("claude", "codex", "cursor")
ACTIONS = ("install", "uninstall", "status")  # what people type in the place of an event
EVENTS = {kind.value: kind for kind in EventKind}
RENEW, RELEASE = "renew-now", "release-now"  # the words of the process in the background
WORDS = frozenset({*EVENTS, RENEW, RELEASE})
BEAT = 60  # seconds between two heartbeats of one session, at least
BLIND_BEAT = 300  # the same where nothing says whether there is anything to renew
MOST_PLACES = 5  # work trees of one edit
MOST_SAID = 5  # lines of news at one event


def is_event(argv: Sequence[str]) -> bool:
    """Whether the words after ``agent`` are an event, not a person's command.

    A word that is neither is an event of another version, whose settings are shared with this one:
    hosts take a usage error for a refusal. At a terminal it is a person's, who mistyped.
    """
    if len(argv) < 2 or argv[0].startswith("-") or argv[1].startswith("-"):
        return False
    return _is_known(argv) or (argv[1] not in ACTIONS and not _is_typed())


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
    argv: Sequence[str], data: bytes | None, *, opener: Opener | None = None
) -> tuple[dict[str, Any] | None, str]:
    """The answer to one event (None: none is needed), and a line for standard error.

    ``data`` is None where there was nothing to read it from.
    """
    host, kind = argv[0], EVENTS[argv[1]]
    module = _module(host)
    notice = ""
    answer: dict[str, Any] = {}
    try:
        if data is None:
            raise Invalid("standard input cannot be read")
        event: AgentEvent = module.read(kind, parse(data))
        reply = _reply(event, opener or _open_context, keep="--keep" in argv)
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


def _fault(kind: EventKind, error: Exception) -> str:
    why, hint = f"internal error: {error!r}", ""
    if isinstance(error, GitleaseError):
        why, hint = error.message, f" (hint: {error.hints[0]})" if error.hints else ""
    what = (
        "this edit was not checked"
        if kind is EventKind.BEFORE_EDIT
        else f"{kind.value} did nothing"
    )
    return clean(f"{what}: {why}{hint}".replace("\n", " "))[:600]


# --- each event -------------------------------------------------------------------------------


def _reply(event: AgentEvent, opener: Opener, *, keep: bool) -> Reply:
    if event.kind is EventKind.BEFORE_EDIT:
        return _before_edit(event, opener)
    if event.kind in (EventKind.SESSION_START, EventKind.SUBAGENT_START):
        return _start(event, opener)
    if event.kind is EventKind.AFTER_TOOL:
        return _after_tool(event, opener)
    if not keep:
        _end(event, opener)
    return Reply()


def _context(event: AgentEvent, opener: Opener) -> AgentContext | None:
    cwd = event.cwd or "."
    return opener(cwd, host=event.by, session_id=event.session_id, agent_id=event.agent_id)


def _before_edit(event: AgentEvent, opener: Opener) -> Reply:
    told: list[Reply] = []
    for start, paths in _places(event).items():
        try:
            context = _context(replace(event, cwd=start), opener)
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
    from gitlease.wiring.hooks import find_work_tree

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
        deny = answers.blocked(blocks, now, context.options)
        return Reply(deny=deny, notice="\n".join(said))
    notes = [answers.noted(told, now)] if told else []
    return Reply(context="\n".join((*notes, *said)), notice="\n".join(said))


def _start(event: AgentEvent, opener: Opener) -> Reply:
    from gitlease.faces.agents.answers import introduction

    context = _context(event, opener)
    if context is None:
        return Reply()
    workspace, service = context.workspace, context.workspace.ledger
    fresh = workspace.guard.check(())  # within its own limit of time; nothing is judged
    look = service.known_look()
    said = (
        *context.workspace.inbox.take(),
        *fresh.warnings,
        *([fresh.offline] if fresh.offline else []),
    )
    if look is None or look.head.ledger is None:
        return Reply(notice="\n".join(said[:2]))
    actor = workspace.identity.actor
    own = {
        lease.lease_id
        for lease in look.leases
        if lease.same_holder(actor) and lease.session in (None, *context.family)
    }
    text = introduction(
        service.views(look, look.leases),
        holder=actor.holder,
        session=context.session,
        mine=frozenset(own),
        place=service.store.place,
        now=_now(context),
        options=context.options,
        subagent=bool(event.agent_id),
        warnings=said,
    )
    return Reply(context=text)


def _after_tool(event: AgentEvent, opener: Opener) -> Reply:
    """Have the leases renewed in the background, and tell what came of it the last time."""
    from gitlease.faces.agents.answers import one_line
    from gitlease.wiring.hooks import standing_at

    standing = standing_at(event.cwd or ".")
    if standing is None or not os.path.isdir(standing.private):
        return Reply()
    said: Sequence[str] = ()
    if standing.inbox and (context := _context(event, opener)) is not None:
        said = [one_line(text) for text in context.workspace.inbox.take()[:MOST_SAID]]
    _beat(event, opener, standing)
    return Reply(context="\n".join(said))


def _beat(event: AgentEvent, opener: Opener, standing: MarkerStanding) -> None:
    """Have the leases renewed in the background where it is time, by what the idle marker says."""
    from gitlease.wiring.hooks import is_due, start_detached

    renew_at = standing.renew_at
    if renew_at is not None and time.time() < renew_at:
        return
    # A claim of a moment ago may not have reached the marker: look into "nothing held" at times.
    name = f"{event.by} {event.session_id} {event.agent_id}"
    if not is_due(standing, name, every=BLIND_BEAT if renew_at is None else BEAT):
        return
    context = _context(event, opener)
    if context is not None and context.family:
        words = ["agent", event.by, RENEW, *sorted(context.family)]
        start_detached(words, cwd=event.cwd or ".")


def _end(event: AgentEvent, opener: Opener) -> None:
    """Have what this session, or this sub-agent, holds given back in the background."""
    from gitlease.wiring.hooks import start_detached

    if event.kind is EventKind.SUBAGENT_STOP and not event.agent_id:
        return
    context = _context(event, opener)
    if context is not None and context.session:
        words = ["agent", event.by, RELEASE, context.session]
        start_detached(words, cwd=event.cwd or ".")


def _now(context: AgentContext) -> datetime:
    return moment_of(context.workspace.ledger.clock.now().wall_ms)
