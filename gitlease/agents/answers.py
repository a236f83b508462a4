"""The texts for agents: short facts about leases, and never a way around them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from gitlease.kernel.rules.errors import clean
from gitlease.kernel.rules.frozen import dataclass
from gitlease.kernel.rules.instant import MS, moment_of
from gitlease.kernel.rules.lease_view import LeaseView
from gitlease.kernel.rules.resources import WHOLE, layer_words, word_anywhere
from gitlease.verbs import sentences

if TYPE_CHECKING:
    from gitlease.agents.opening import AgentContext
    from gitlease.guard.presence import SharedTree
    from gitlease.tasks.queue import Carry, QueueReading


LONGEST_CONTEXT = 2_400  # characters: about 600 tokens
LONGEST_LINE = 240
LONGEST_PATH = 120
LISTED = 5
WAIT = "2m"  # within what hosts give a shell command by default
HELD = 5  # own leases listed at the start
WARNED = 3


@dataclass(frozen=True, kw_only=True)
class Blocked:
    """A path and the lease that covers it."""

    path: str
    view: LeaseView


def one_line(text: str, limit: int = LONGEST_LINE) -> str:
    """Make other people's text printable, short and one line."""
    # So it cannot pass for ours: an agent takes a line of its own for an instruction.
    line = clean(" ".join(text.split()))
    return line if len(line) <= limit else line[: limit - 1] + "…"


def word(resource: str) -> str:
    """Return the word for a resource that works in any folder of the work tree."""
    return shlex.quote(word_anywhere(resource))


def typed(*words: str, options: Sequence[str] = ()) -> str:
    """Return a command with the session's options; ``words`` are already quoted."""
    return " ".join(["gitlease", *words, *(shlex.quote(option) for option in options)])


def denial(blocked: Sequence[Blocked], now: datetime, context: AgentContext) -> str:
    """Return why an edit is denied, and what to do meanwhile."""
    view, options = blocked[0].view, context.options
    scope = [] if view.scope == WHOLE else ["--scope", shlex.quote(view.scope)]
    layer = layer_words(view.layer, context.workspace.layer)
    # A lease without an edge may have a name that is not a task.
    named = [] if view.assigned or word(view.resource).startswith("/") else ["--any"]
    words = ("claim", word(view.resource), "--wait", WAIT, *scope, *layer, *named)
    wait = typed(*words, options=options)
    free = typed("next", options=options)
    return (
        f"{held_lines(blocked, now)}\nto find free work: {free}; to wait until it is free: {wait}"
    )


def held_lines(blocked: Sequence[Blocked], now: datetime) -> str:
    """Return a line with the holder of each path."""
    lines = [
        f"{one_line(x.path, LONGEST_PATH)} "
        + one_line(sentences.held(x.path, x.view, now), 2 * LONGEST_LINE)
        for x in blocked[:LISTED]
    ]
    return "\n".join(lines + ([f"and {len(blocked) - LISTED} more"] if blocked[LISTED:] else []))


def introduction(
    context: AgentContext,
    reading: QueueReading,
    *,
    now: datetime,
    subagent: bool = False,
    warnings: Sequence[str] = (),
) -> str:
    """Return the text at the start of a session: the facts of ``gitlease brief``.

    It has at most ``LONGEST_CONTEXT`` characters; leases that do not fit are counted.
    """
    workspace, session, options = context.workspace, context.session, context.options
    place = workspace.ledger.store.place
    head = [
        one_line(f"gitlease: the current work in this repository, from the ledger on {place}"),
        one_line(f"you are {workspace.identity.actor.holder}, session {session or 'none'}"),
        *(one_line(f"warning: {text}") for text in warnings[:WARNED]),
    ]
    carried, elsewhere = sentences.by_session(reading, context.family)
    nothing = one_line(sentences.nothing_carried(reading, session))
    head += [_carried_line(c, context, now) for c in carried[:HELD]] or [nothing]
    for view in elsewhere[:HELD]:
        layer = _layer(view, workspace.layer)
        head.append(one_line(f"{view.resource}{layer}: {sentences.held_elsewhere(view, now)}"))
    if more := len(carried[HELD:]) + len(elsewhere[HELD:]):
        head.append(f"and {more} more of yours: {typed('brief')}")
    head += [one_line(f"taken from you: {sentences.was_taken(x)}") for x in reading.taken[:LISTED]]
    if more := len(reading.taken[LISTED:]):
        head.append(f"and {more} more taken from you: {typed('brief')}")
    head += [one_line(sentences.noted(note)) for note in reading.notes[:LISTED]]
    for entry in reading.next_up[:1]:
        title = sentences.titled(entry.task)
        head.append(one_line(f"next: {entry.task.resource.text}{f': {title}' if title else ''}"))
    tail = [
        "a hook refuses edits of files that others hold; your leases are renewed as you work",
        f"free tasks: {typed('next')}; to claim: {typed('claim', 'RESOURCE', options=options)}; "
        f"to release: {typed('release', 'RESOURCE', options=options)}",
    ]
    if subagent and session:
        named = f"GITLEASE_SESSION={shlex.quote(session)}"
        tail.append(
            f"to commit and push as this session: {named} git commit, {named} git push; "
            "you may also edit what your parent session holds"
        )
    heading = "held by others:" if reading.others else "others hold nothing"
    # What the agent itself carries is never cut for what others hold.
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


def _carried_line(carry: Carry, context: AgentContext, now: datetime) -> str:
    layer = "" if carry.lease is None else _layer(carry.lease, context.workspace.layer)
    title = sentences.titled(carry.task)
    how = sentences.how(carry, now)
    return one_line(f"you carry {carry.resource}{layer}: {how}{f' ({title})' if title else ''}")


def _layer(view: LeaseView, usual: str) -> str:
    return "" if view.layer == usual else f" in layer {view.layer}"


def shared_tree(
    command: str, shared: SharedTree, now: datetime, *, stash: bool = False
) -> list[str]:
    """Return the lines that refuse a command in a work tree shared with other sessions.

    ``stash``: it is refused for the list of stashes, which the work trees of a clone share.
    """
    others = []
    for other in shared.others[:LISTED]:
        run = " ".join([f"session {other.session}"] * bool(other.session) + [f"on {other.host}"])
        since = sentences.clock_time(moment_of(other.since * MS), now)
        others.append(f"{other.holder} ({run}, since {since})")
    if len(shared.others) > LISTED:
        others.append(f"{len(shared.others) - LISTED} more")
    if stash:
        return [
            f"{command}: others work in this clone, and its work trees share one list of stashes: "
            + ", ".join(others),
            "to set your work aside: git commit -m wip on a branch of your own, or git diff >FILE",
        ]
    return [
        f"{command}: others work in this work tree, too: {', '.join(others)}",
        "to undo an edit of your own: edit the file back; git show HEAD:FILE prints it",
        f"to get your own work tree: {shared.way_out}",
    ]
