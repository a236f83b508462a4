"""What the handlers say to an agent: facts about leases, short, and never a way round them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from gitlease.core.errors import clean
from gitlease.core.frozen import dataclass
from gitlease.core.resources.resource import word_anywhere
from gitlease.core.view import LeaseView
from gitlease.faces import sentences
from gitlease.faces.agents.events import Reply

LONGEST_CONTEXT = 2_400  # characters: about 600 tokens
LONGEST_LINE = 240
LONGEST_PATH = 120
LISTED = 5
HELD = 5  # own leases that are spelt out at the start


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


def held_line(view: LeaseView, now: datetime) -> str:
    """One lease in the list of those of others."""
    reason = sentences.quoted(view.reason)
    line = f"{sentences.named(view)}: {sentences.whose(view)}, {sentences.until(view, now)}{reason}"
    return one_line(line)


def blocked(found: Sequence[Blocked], now: datetime, options: Sequence[str]) -> str:
    """Why an edit is refused: who, why, until when, and what can be done meanwhile."""
    wait = typed("claim", word(found[0].view.resource), "--wait", "15m", options=options)
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
    views: Sequence[LeaseView],
    *,
    holder: str,
    session: str | None,
    mine: frozenset[str],
    place: str,
    now: datetime,
    options: Sequence[str],
    subagent: bool = False,
    warnings: Sequence[str] = (),
) -> str:
    """The text a session begins with. ``mine`` are the ids of the leases that are its own.

    At most ``LONGEST_CONTEXT`` characters: what does not fit is counted.
    """
    live = [v for v in views if v.state == "active"]
    own = [v for v in live if v.lease_id in mine]
    others = sorted((v for v in live if v.lease_id not in mine), key=lambda v: v.expires_at)
    head = [
        one_line(f"gitlease: who works on what in this repository, by the ledger on {place}"),
        one_line(f"you are {holder}, session {session or 'none'}"),
        *(one_line(f"warning: {text}") for text in warnings[:2]),
        *(one_line(f"you hold {sentences.named(v)} {sentences.until(v, now)}") for v in own[:HELD]),
    ]
    if len(own) > HELD:
        head.append(f"and {len(own) - HELD} more of yours: {typed('list', '--mine')}")
    if not own:
        head.append("you hold nothing")
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
    heading = "held by others:" if others else "others hold nothing"
    room = LONGEST_CONTEXT - sum(len(x) + 1 for x in (*head, *tail, heading)) - 60
    lines: list[str] = []
    for view in others:
        line = f"- {held_line(view, now)}"
        if room < len(line) + 1:
            break
        room -= len(line) + 1
        lines.append(line)
    if len(lines) < len(others):
        lines.append(f"and {len(others) - len(lines)} more: {typed('list')}")
    return "\n".join([*head, heading, *lines, *tail])[:LONGEST_CONTEXT]
