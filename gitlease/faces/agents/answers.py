"""What the handlers say to an agent: facts about leases, short, and never a way round them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from gitlease.core.errors import clean
from gitlease.core.frozen import dataclass
from gitlease.core.resources.resource import WHOLE, layer_words, word_anywhere
from gitlease.core.view import LeaseView
from gitlease.faces import sentences, task_text
from gitlease.faces.agents.events import Reply

if TYPE_CHECKING:
    from gitlease.engine.answers import QueueReading
    from gitlease.engine.queue.order import Carry
    from gitlease.wiring.agents import AgentContext

LONGEST_CONTEXT = 2_400  # characters: about 600 tokens
LONGEST_LINE = 240
LONGEST_PATH = 120
LISTED = 5
HELD = 5  # own leases that are spelt out at the start
WARNED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked:
    """A path that a lease covers, as it is told."""

    path: str
    view: LeaseView


def all_of(reply: Reply) -> str:
    """What is for the person and for the model in one text, each line once."""
    lines = (line for part in (reply.notice, reply.context) for line in part.split("\n"))
    return "\n".join(dict.fromkeys(line for line in lines if line))


def like_claude(reply: Reply, event_name: str) -> dict[str, Any]:
    """The answer in the shape that Claude Code and Codex read; empty where nothing is to say.

    It never says "allow": that would pass over the host's own question to its user.
    """
    inner: dict[str, Any] = {}
    if reply.deny:
        inner = {"permissionDecision": "deny", "permissionDecisionReason": reply.deny}
    elif reply.context:
        inner = {"additionalContext": reply.context}
    answer: dict[str, Any] = {}
    if inner:
        answer["hookSpecificOutput"] = {"hookEventName": event_name, **inner}
    if reply.notice:
        answer["systemMessage"] = reply.notice
    return answer


def one_line(text: str, limit: int = LONGEST_LINE) -> str:
    """A text of others on one line, printable and short: it must not pass for ours."""
    line = clean(" ".join(text.split()))
    return line if len(line) <= limit else line[: limit - 1] + "…"


def word(resource: str) -> str:
    """How to type a resource in any folder of the work tree."""
    return shlex.quote(word_anywhere(resource))


def typed(*words: str, options: Sequence[str] = ()) -> str:
    """A command with the options that make it speak as this session; ``words`` are quoted."""
    return " ".join(["gitlease", *words, *(shlex.quote(option) for option in options)])


def blocked(found: Sequence[Blocked], now: datetime, context: AgentContext) -> str:
    """Why an edit is refused: who, why, until when, and what can be done meanwhile."""
    view, options = found[0].view, context.options
    wait = typed(
        *("claim", word(view.resource), "--wait", "15m", *_part(view, context), *_known(view)),
        options=options,
    )
    free = typed("next", options=options)
    return f"{noted(found, now)}\nfree work is listed by: {free}; to wait until it is free: {wait}"


def noted(found: Sequence[Blocked], now: datetime) -> str:
    """Who holds what an edit is about, a line each."""
    lines = [
        f"{one_line(one.path, LONGEST_PATH)} "
        + one_line(sentences.held(one.path, one.view, now), 2 * LONGEST_LINE)
        for one in found[:LISTED]
    ]
    return "\n".join(lines + ([f"and {len(found) - LISTED} more"] if found[LISTED:] else []))


def introduction(
    context: AgentContext,
    reading: QueueReading,
    *,
    now: datetime,
    subagent: bool = False,
    warnings: Sequence[str] = (),
) -> str:
    """The text a session begins with: the facts of ``gitlease brief``.

    At most ``LONGEST_CONTEXT`` characters: what does not fit is counted.
    """
    workspace, session, options = context.workspace, context.session, context.options
    place = workspace.ledger.store.place
    head = [
        one_line(f"gitlease: who works on what in this repository, by the ledger on {place}"),
        one_line(f"you are {workspace.identity.actor.holder}, session {session or 'none'}"),
        *(one_line(f"warning: {text}") for text in warnings[:WARNED]),
    ]
    apart = [c.lease for c in reading.carried if _is_of_another_session(c, context)]
    carried = [_carried_line(c, reading, context, now) for c in reading.carried]
    head += carried[:HELD] or ["you carry nothing"]
    head += [_taking_along(reading.views[x.lease_id], context) for x in apart[:1] if x]
    if len(carried) > HELD:
        head.append(f"and {len(carried) - HELD} more of yours: {typed('brief')}")
    head += [one_line(f"taken from you: {task_text.was_taken(x)}") for x in reading.taken[:LISTED]]
    head += [one_line(sentences.noted(note)) for note in reading.notes[:LISTED]]
    for entry in reading.next_up[:1]:
        title = task_text.titled(entry.task)
        head.append(one_line(f"next: {entry.task.resource.text}{f': {title}' if title else ''}"))
    tail = [
        "an edit of a file that another holds is refused by a hook; your leases are renewed as you "
        "work",
        f"free tasks: {typed('next')}; to claim: {typed('claim', 'RESOURCE', options=options)}; "
        f"to give back: {typed('release', 'RESOURCE', options=options)}",
    ]
    if subagent and session:
        named = f"GITLEASE_SESSION={shlex.quote(session)}"
        tail.append(
            f"commits and pushes under a lease of this session: {named} git commit, "
            f"{named} git push; what the session that started you holds is open to you as well"
        )
    heading = "held by others:" if reading.others else "others hold nothing"
    room = LONGEST_CONTEXT - sum(len(x) + 1 for x in (*head, *tail, heading)) - 60
    lines: list[str] = []
    for view in reading.others:
        whose = f"{sentences.whose(view)}, {sentences.until(view, now)}"
        layer = _layer(view, workspace.layer)
        line = one_line(f"- {sentences.named(view)}{layer}: {whose}{sentences.quoted(view.reason)}")
        if room < len(line) + 1:
            break
        room -= len(line) + 1
        lines.append(line)
    if len(lines) < len(reading.others):
        lines.append(f"and {len(reading.others) - len(lines)} more: {typed('list')}")
    return "\n".join([*head, heading, *lines, *tail])[:LONGEST_CONTEXT]


def _carried_line(carry: Carry, reading: QueueReading, context: AgentContext, now: datetime) -> str:
    view = None if carry.lease is None else reading.views[carry.lease.lease_id]
    layer = "" if view is None else _layer(view, context.workspace.layer)
    title = task_text.titled(carry.task)
    how = task_text.how(carry, view, now)
    if _is_of_another_session(carry, context):
        how += ", bound to that session and not renewed by this one"
    return one_line(f"you carry {carry.resource}{layer}: {how}{f' ({title})' if title else ''}")


def _is_of_another_session(carry: Carry, context: AgentContext) -> bool:
    """Whether the person's own live lease is none that the agent works under."""
    from gitlease.engine.queue.order import Carried

    session = None if carry.lease is None else carry.lease.session
    return carry.state is Carried.LIVE and session is not None and session not in context.family


def _taking_along(view: LeaseView, context: AgentContext) -> str:
    """How to go on here with what is bound to a session that is over: never unheld between."""
    name, part, session = word(view.resource), _part(view, context), view.session or ""
    park = typed("park", name, *part, options=("--session", session))
    claim = typed("claim", name, *part, *_known(view), options=context.options)
    here = one_line(f"if session {session} is over, to go on here with {name}")
    return f"{here}: {park} && {claim}"


def _part(view: LeaseView, context: AgentContext) -> list[str]:
    """The options that name the scope and the layer of a lease."""
    part = [] if view.scope == WHOLE else ["--scope", shlex.quote(view.scope)]
    return [*part, *layer_words(view.layer, context.workspace.layer)]


def _known(view: LeaseView) -> list[str]:
    """What had no edge may be no task, and is claimed by its name alone."""
    return [] if view.assigned or word(view.resource).startswith("/") else ["--any"]


def _layer(view: LeaseView, usual: str) -> str:
    return "" if view.layer == usual else f" in layer {view.layer}"
