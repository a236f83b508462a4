"""What happens at each event: the same for every host.

A handler never fails: it ends with 0, and where something of ours is wrong the edit goes through
and people are told.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

from gitlease.domain.errors import GitleaseError, NotARepository
from gitlease.domain.frozen import replace
from gitlease.faces.agents.events import MAX_BYTES, Event, Kind, parse
from gitlease.faces.printable import clean

if TYPE_CHECKING:
    from gitlease.bootstrap_agents import AgentSeat, Workspace
    from gitlease.bootstrap_hooks import Standing
    from gitlease.faces.agents.answers import Reply

Seats = Callable[..., "AgentSeat | None"]
Opener = Callable[..., "Workspace"]

HOSTS = ("claude", "codex", "cursor")
EVENTS = {kind.value: kind for kind in Kind}
RENEW, RELEASE = "renew-now", "release-now"  # the words of the process in the background
WORDS = frozenset({*EVENTS, RENEW, RELEASE})
BEAT = 60  # seconds between two heartbeats of one session, at least
BLIND_BEAT = 300  # the same where nothing says whether there is anything to renew
MOST_SESSIONS = 50
MOST_PLACES = 5  # work trees of one edit
MOST_SAID = 5  # lines of news at one event


def is_event(argv: Sequence[str]) -> bool:
    """Whether the words after ``agent`` are an event, not a person's command."""
    return len(argv) >= 2 and argv[0] in HOSTS and argv[1] in WORDS


def run(argv: Sequence[str], *, stdin: BinaryIO | None = None) -> int:
    """Handle one event: JSON on standard input, a JSON decision on standard output. Always 0."""
    try:
        if argv[1] in (RENEW, RELEASE):
            return _in_background(argv[1], argv[2:])
        source = stdin if stdin is not None else sys.stdin.buffer
        answer, aside = handle(argv, source.read(MAX_BYTES + 1))
        _say(answer, sys.stdout)
        if aside:
            print(f"gitlease: {aside}", file=sys.stderr)
    except (OSError, ValueError):
        pass  # nobody listens: the edit goes through
    return 0


def handle(
    argv: Sequence[str], data: bytes, *, seats: Seats | None = None
) -> tuple[dict[str, Any] | None, str]:
    """The answer to one event (None: none is needed), and a line for standard error."""
    host, kind = argv[0], EVENTS[argv[1]]
    module = _module(host)
    notice = ""
    answer: dict[str, Any] = {}
    try:
        event: Event = module.read(kind, parse(data))
        if event.by == host or not _answers_itself(event):
            reply = _reply(event, seats or _open_seat, keep="--keep" in argv)
            notice, answer = reply.notice, module.answer(kind, reply)
    except NotARepository:
        pass
    except Exception as error:  # whatever it is, an edit is not to hang on it
        from gitlease.faces.agents.answers import Reply

        notice = _fault(kind, error)
        answer = module.answer(kind, Reply(notice=notice))
    return answer if answer or host == "cursor" else None, notice


def _say(answer: dict[str, Any] | None, out: TextIO) -> None:
    if answer is not None:
        print(json.dumps(answer), file=out, flush=True)


def _module(host: str) -> Any:
    from gitlease.faces.agents import claude, codex, cursor

    return {"claude": claude, "codex": codex, "cursor": cursor}[host]


def _open_seat(directory: str, **who: str) -> AgentSeat | None:
    """Opened only where it is needed: most events of a tool end without."""
    from gitlease.bootstrap_agents import open_for_agent, own_process

    own_process()
    return open_for_agent(directory, **who)  # type: ignore[arg-type]


def _fault(kind: Kind, error: Exception) -> str:
    why, hint = f"internal error: {error!r}", ""
    if isinstance(error, GitleaseError):
        why, hint = error.message, f" (hint: {error.hints[0]})" if error.hints else ""
    what = "this edit was not checked" if kind is Kind.BEFORE_EDIT else f"{kind.value} did nothing"
    return clean(f"{what}: {why}{hint}".replace("\n", " "))[:600]


def _answers_itself(event: Event) -> bool:
    """Whether another host runs this handler beside one of its own: Cursor does both."""
    from gitlease.bootstrap_agents import agent_is_installed

    return agent_is_installed(event.by, event.cwd or ".")


# --- each event -------------------------------------------------------------------------------


def _reply(event: Event, seats: Seats, *, keep: bool) -> Reply:
    from gitlease.faces.agents.answers import Reply

    if event.kind is Kind.BEFORE_EDIT:
        return _before_edit(event, seats)
    if event.kind in (Kind.SESSION_START, Kind.SUBAGENT_START):
        return _start(event, seats)
    if event.kind is Kind.AFTER_TOOL:
        return _after_tool(event, seats)
    if not keep:
        _end(event, seats)
    return Reply()


def _sit(event: Event, seats: Seats) -> AgentSeat | None:
    cwd = event.cwd or "."
    return seats(cwd, host=event.by, session_id=event.session_id, agent_id=event.agent_id)


def _before_edit(event: Event, seats: Seats) -> Reply:
    from gitlease.faces.agents import answers

    told: list[Reply] = []
    for start, paths in _places(event).items():
        try:
            seat = _sit(replace(event, cwd=start), seats)
        except NotARepository:
            continue
        if seat is not None and seat.workspace.settings.guard_mode != "off":
            told.append(_judged(seat, event.cwd or start, paths))
    if event.more:
        said = "the edit names too many files: only the first of them were checked"
        told.append(answers.Reply(context=said, notice=said))
    return answers.Reply(
        deny="\n".join(x.deny for x in told if x.deny),
        context="\n".join(x.context for x in told if x.context),
        notice="\n".join(x.notice for x in told if x.notice),
    )


def _places(event: Event) -> dict[str, list[str]]:
    """The paths by the folder to open for them: an agent edits beyond its own work tree, too."""
    from gitlease.bootstrap_hooks import find_work_tree

    here = event.cwd or "."
    own = find_work_tree(os.path.join(here, "x"))
    found: dict[str, list[str]] = {}
    for path in event.paths:
        root = find_work_tree(os.path.join(here, path))
        start = here if root is None or root == own else root
        found.setdefault(start, []).append(path)
    return dict(list(found.items())[:MOST_PLACES])


def _judged(seat: AgentSeat, cwd: str, paths: Sequence[str]) -> Reply:
    from gitlease.faces.agents import answers, judging

    touched = judging.touched(seat.workspace, cwd, paths)
    if not touched:
        return answers.Reply()
    guarded = seat.workspace.guard.check(touched)
    blocks, told = judging.split(seat, guarded)
    now = _now(seat)
    said = [answers.one_line(text) for text in (*_left(seat), *guarded.warnings)[:MOST_SAID]]
    if guarded.offline and seat.workspace.settings.guard_offline != "off":
        said.append(answers.one_line(guarded.offline))
    if blocks:
        deny = answers.blocked(blocks, now, seat.options)
        return answers.Reply(deny=deny, notice="\n".join(said))
    notes = [answers.noted(told, now)] if told else []
    return answers.Reply(context="\n".join((*notes, *said)), notice="\n".join(said))


def _start(event: Event, seats: Seats) -> Reply:
    from gitlease.faces.agents.answers import Reply, introduction

    seat = _sit(event, seats)
    if seat is None:
        return Reply()
    workspace, service = seat.workspace, seat.workspace.service
    fresh = workspace.guard.check(())  # within its own limit of time; nothing is judged
    look = service.known_look()
    said = (*_left(seat), *fresh.warnings, *([fresh.offline] if fresh.offline else []))
    if look is None or look.head.ledger is None:
        return Reply(notice="\n".join(said[:2]))
    actor = workspace.identity.actor
    own = {
        lease.lease_id
        for lease in look.leases
        if lease.same_holder(actor) and lease.session in (None, *seat.family)
    }
    text = introduction(
        service.views(look, look.leases),
        holder=actor.holder,
        session=seat.session,
        mine=frozenset(own),
        place=service.store.place,
        now=_now(seat),
        options=seat.options,
        subagent=bool(event.agent_id),
        warnings=said,
    )
    return Reply(context=text)


def _after_tool(event: Event, seats: Seats) -> Reply:
    """Have the leases renewed in the background, and tell what came of it the last time."""
    from gitlease.bootstrap_hooks import standing_at
    from gitlease.faces.agents.answers import Reply, one_line

    standing = standing_at(event.cwd or ".")
    if standing is None or not os.path.isdir(standing.private):
        return Reply()
    said: Sequence[str] = ()
    if standing.words and (seat := _sit(event, seats)) is not None:
        said = [one_line(text) for text in _left(seat)[:MOST_SAID]]
    _beat(event, seats, standing)
    return Reply(context="\n".join(said))


def _left(seat: AgentSeat) -> tuple[str, ...]:
    """What the renewals in the background left to be said to this session."""
    return seat.workspace.words.take()


def _beat(event: Event, seats: Seats, standing: Standing) -> None:
    """Have the leases renewed in the background where it is time, by what the gate says."""
    from gitlease.bootstrap_hooks import is_due, start_detached

    gate, now = standing.gate, datetime.now(UTC).timestamp()
    # A claim of a moment ago may not have reached the gate: "nothing held" is looked into at times.
    blind = gate is None or now >= gate.held_until
    if gate is not None and not blind and now < gate.renew_at:
        return
    name = f"{event.by} {event.session_id} {event.agent_id}"
    if not is_due(standing, name, every=BLIND_BEAT if blind else BEAT):
        return
    seat = _sit(event, seats)
    if seat is not None and seat.family:
        words = ["agent", event.by, RENEW, *sorted(seat.family)]
        start_detached(words, cwd=event.cwd or ".")


def _end(event: Event, seats: Seats) -> None:
    """Have what this session, or this sub-agent, holds given back in the background."""
    from gitlease.bootstrap_hooks import start_detached

    if event.kind is Kind.SUBAGENT_STOP and not event.agent_id:
        return
    seat = _sit(event, seats)
    if seat is not None and seat.session:
        words = ["agent", event.by, RELEASE, seat.session]
        start_detached(words, cwd=event.cwd or ".")


def _now(seat: AgentSeat) -> datetime:
    return datetime.fromtimestamp(seat.workspace.service.clock.now().wall_ms / 1_000, UTC)


# --- in the background ------------------------------------------------------------------------


def _in_background(word: str, sessions: Sequence[str]) -> int:
    from gitlease.bootstrap_agents import open_workspace, own_process

    own_process()
    try:
        if word == RENEW:
            renew(sessions, open_workspace)
        else:
            release(sessions, open_workspace)
    except GitleaseError:
        pass  # nobody reads it here: the next hook or command finds out, and tells
    return 0


def renew(sessions: Sequence[str], opener: Opener) -> None:
    """Renew what is bound to each of these sessions; what is bound to none stays so."""
    from gitlease.beating import beat

    for session in sessions[:MOST_SESSIONS]:
        workspace = opener(".", session=session)
        resources = _bound(workspace, (session,)).get(session)
        if resources:
            kept = list(resources.values())
            beat(workspace.service, workspace.guard, workspace.words, kept)


def release(sessions: Sequence[str], opener: Opener) -> None:
    """Give back what is bound to each session and to the sub-agents of it: one push a session."""
    for session in sessions[:MOST_SESSIONS]:
        workspace = opener(".", session=session)
        for name, resources in _bound(workspace, (session,), below=True).items():
            place = workspace if name == session else opener(".", session=name)
            place.service.release(list(resources.values()))
            place.guard.refresh()


def _bound(
    workspace: Workspace, sessions: Sequence[str], *, below: bool = False
) -> Mapping[str, dict[str, Any]]:
    """The resources that this person's sessions hold, by what this clone knows: asks nobody."""
    look = workspace.service.known_look()
    found: dict[str, dict[str, Any]] = {}
    for lease in look.leases if look is not None else ():
        name = lease.session
        if name is None or lease.state.value != "active":
            continue
        if not lease.same_holder(workspace.identity.actor):
            continue
        if name in sessions or (below and name.startswith(tuple(f"{s}/" for s in sessions))):
            found.setdefault(name, {})[lease.resource.key] = lease.resource
    return found
