"""Handles the events of all hosts: edits of what others hold, and of work trees that are shared.

A handler always exits with 0. After an internal error, the edit goes through, with a notice.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, BinaryIO

from gitlease.agents.events import (
    MAX_BYTES,
    AgentEvent,
    EventKind,
    Reply,
    answer,
    parse,
    read,
)
from gitlease.guard import discards, notes, presence
from gitlease.guard.discards import Discard
from gitlease.guard.notes import (
    ask_is_due,
    check_is_due,
    common_dir_of,
    find_common_dir,
    find_git_dir,
    find_work_tree,
    has_messages,
    has_traces,
    is_asking,
    is_due,
    postpone_check,
    start_detached,
    used_clone,
)
from gitlease.guard.presence import (
    BY_PLACE,
    clones_of,
    forget_clones,
    git_dirs_of,
    is_alone,
    note_agent,
    shared_with,
    work_trees_below,
)
from gitlease.kernel.rules.errors import GitleaseError, Invalid, NotARepository, clean
from gitlease.kernel.rules.frozen import dataclass, replace
from gitlease.kernel.rules.instant import MS, moment_of
from gitlease.kernel.rules.resources import fold
from gitlease.kernel.settings.identity import AGENTS

if TYPE_CHECKING:
    from gitlease.agents.answers import Blocked
    from gitlease.agents.opening import AgentContext
    from gitlease.guard.reports import GuardReport
    from gitlease.kernel.rules.viewpoint import GuardFinding, Touched
    from gitlease.wiring.workspace import Workspace


Opener = Callable[..., "AgentContext | None"]
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
    """Return whether the words after ``agent`` are an event, not a person's command."""
    if len(argv) < 2 or argv[0].startswith("-") or argv[1].startswith("-"):
        return False
    # An unknown word with a hyphen counts as an event of another version, unless typed at a
    # terminal: hosts would take a usage error (2) for a refusal.
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
            from gitlease.agents.background import in_background

            return in_background(argv[1], argv[2:])
        data = _read(stdin)
        if _is_known(argv):
            document, aside = handle(argv, data)
        else:
            host, word = (clean(text)[:60] for text in argv[:2])
            document = {} if host in AGENTS and AGENTS[host].flat else None
            aside = f"unknown event {word!r} of {host!r}: nothing was done"
        if document is not None:
            print(json.dumps(document), flush=True)
        if aside and sys.stderr is not None:
            print(f"gitlease: {aside}", file=sys.stderr)
    except (OSError, ValueError):
        # The host has left.
        pass
    return 0


def _read(stdin: BinaryIO | None) -> bytes | None:
    # A host may close standard input.
    if stdin is None and sys.stdin is None:
        return None
    try:
        return (stdin or sys.stdin.buffer).read(MAX_BYTES + 1)
    except (OSError, ValueError):
        return None


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
        system = _System(opener or _open_context, start or start_detached, now)
        reply = _reply(event, system, keep="--keep" in argv)
        notice, document = reply.notice, answer(agent, kind, reply)
    except NotARepository:
        pass
    except Exception as error:
        # Never block an edit because of our own bug.
        notice = _fault(kind, error)
        document = answer(agent, kind, Reply(notice=notice))
    return document if document or agent.flat else None, notice


def _open_context(directory: str, **who: str) -> AgentContext | None:
    from gitlease.agents.opening import open_for_agent

    # A function of its own: the name alone would load what an event with nothing due never needs.
    return open_for_agent(directory, **who)  # type: ignore[arg-type]


def _fault(kind: EventKind, error: Exception) -> str:
    why, hint = f"internal error: {error!r}", ""
    if isinstance(error, GitleaseError):
        why, hint = error.message, f" (hint: {error.hints[0]})" if error.hints else ""
    unchecked = {EventKind.BEFORE_EDIT: "this edit", EventKind.BEFORE_SHELL: "this command"}
    effect = f"{unchecked[kind]} was not checked" if kind.asks else f"{kind.value} did nothing"
    return clean(f"{effect}: {why}{hint}".replace("\n", " "))[:600]


# --- each event -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _System:
    """The functions that open repositories and start processes, and the clock."""

    opener: Opener
    start: Starter
    now: Callable[[], float]


def _reply(event: AgentEvent, system: _System, *, keep: bool) -> Reply:
    if event.kind in (EventKind.SESSION_END, EventKind.SUBAGENT_STOP):
        for place in where_it_ends(event):
            note_presence(place, system.opener, system.now())
            if not keep:
                _end(place, system)
        return Reply()
    if event.kind is EventKind.SESSION_START:
        ask_for_ledger(event, system.start, system.now())
        begin_session(event, system.now())
    note_presence(event, system.opener, system.now())
    if event.kind is EventKind.BEFORE_EDIT:
        reply = _before_edit(event, system)
    elif event.kind is EventKind.BEFORE_SHELL:
        reply = before_shell(event, system.opener, system.now())
    elif event.kind is EventKind.AFTER_TOOL:
        reply = _after_tool(event, system)
    else:
        reply = _start(event, system.opener)
    if event.kind.asks or event.kind is EventKind.AFTER_TOOL:
        # After the answer, and for the next event: no tool waits for a remote, and what others did
        # in the last minute is known all the same.
        private = used_clone(event.cwd or ".")
        if private is not None and is_due(private, LOOK, every=LOOK_INTERVAL, now=system.now()):
            system.start(["agent", event.by, LOOK], cwd=event.cwd or ".")
    return reply


def _before_edit(event: AgentEvent, system: _System) -> Reply:
    replies: list[Reply] = []
    for start, paths in _by_work_tree(event).items():
        here = replace(event, cwd=start)
        try:
            context = context_of(here, system.opener)
            # In a fresh clone others may hold the file, and nothing is known of them yet.
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
    here = event.cwd or "."
    work_tree = find_work_tree(os.path.join(here, "x"))
    paths: dict[str, list[str]] = {}
    # An agent may edit other work trees, too: each has a ledger and a guard of its own.
    for path in event.paths:
        root = find_work_tree(os.path.join(here, path))
        start = here if root is None or root == work_tree else root
        paths.setdefault(start, []).append(path)
    return dict(list(paths.items())[:MAX_WORK_TREES])


def _judged(context: AgentContext, cwd: str, paths: Sequence[str]) -> Reply:
    from gitlease.agents.answers import denial, held_lines, one_line

    touched = _touched(context.workspace, cwd, paths)
    if not touched:
        return Reply()
    context.workspace.carried.add(
        lease.lease_id for _, lease in context.workspace.guard.under(touched) if not lease.session
    )
    guarded = context.workspace.guard.check(touched)
    if context.workspace.settings.guard_offline != "block":
        guarded = guarded.lenient()
    blocks, others = _split(context, guarded)
    now = _now(context)
    messages = [
        one_line(text)
        for text in (*context.workspace.inbox.take(), *guarded.warnings)[:MAX_MESSAGES]
    ]
    if guarded.offline and context.workspace.settings.guard_offline != "off":
        messages.append(one_line(guarded.offline))
    if blocks:
        deny = denial(blocks, now, context)
        return Reply(deny="\n".join((deny, *messages)), notice="\n".join(messages))
    held = [held_lines(others, now)] if others else []
    return Reply(context="\n".join((*held, *messages)), notice="\n".join(messages))


def _start(event: AgentEvent, opener: Opener) -> Reply:
    from gitlease.agents.answers import introduction
    from gitlease.wiring.words import dead_hooks
    from gitlease.wiring.workspace import end_at_start

    context = context_of(event, opener)
    if context is None:
        return Reply()
    workspace = context.workspace
    # Within its own limit of time.
    fresh = workspace.guard.fetch_all()
    landed: tuple[str, ...] = ()
    if event.kind is EventKind.SESSION_START and not fresh.offline:
        landed = end_at_start(workspace)
    reading = workspace.queue.known_brief()
    warnings = (
        # First, because it affects the rest.
        *([fresh.offline] if fresh.offline else []),
        *(text for space in workspace.in_use for text in space.ledger.mailbox.other_identity()),
        *dead_hooks(workspace),
        *landed,
        *workspace.inbox.take(),
        *fresh.warnings,
    )
    if reading is None:
        return Reply(notice="\n".join(warnings[:2]))
    # Bound to no session, they would lapse while this one works: it is told of them.
    unbound = [x.lease_id for _, x in workspace.guard.renewable() if x.session is None]
    workspace.carried.add(unbound)
    text = introduction(
        context, reading, now=_now(context), subagent=bool(event.agent_id), warnings=warnings
    )
    return Reply(context=text)


def _after_tool(event: AgentEvent, system: _System) -> Reply:
    from gitlease.agents.answers import one_line

    # Runs after every tool, so it opens the repository only for a due check or for messages.
    private = used_clone(event.cwd or ".")
    if private is None:
        return Reply()
    name = f"{event.by} {event.session_id} {event.agent_id}"
    due = check_is_due(private, name, now=system.now())
    context = context_of(event, system.opener) if due or has_messages(private) else None
    if context is None:
        return Reply()
    messages = list(context.workspace.inbox.take())
    if due:
        postpone_check(private, name, at=_beat(event, context, system))
        messages += context.workspace.guard.lost()
    return Reply(context="\n".join(one_line(text) for text in messages[:MAX_MESSAGES]))


def _beat(event: AgentEvent, context: AgentContext, system: _System) -> float:
    """Start a heartbeat if one is due; return the time of the next check, in epoch seconds."""
    from gitlease.guard.service import retry_interval

    service, now = context.workspace.guard, system.now()
    service.refresh(context.family)
    renewable = service.renewable(context.family, context.workspace.carried.ids())
    if service.due(renewable) and context.family:
        words = ["agent", event.by, RENEW, *sorted(context.family)]
        system.start(words, cwd=event.cwd or ".")
        # The heartbeat tells nobody whether it changed anything: the next event looks again soon.
        return now + retry_interval(lease for _, lease in renewable)
    return min((now + CHECK_INTERVAL, *(lease.renew_at / MS for _, lease in renewable)))


def _end(event: AgentEvent, system: _System) -> None:
    from gitlease.agents.opening import end_conversation

    # Without its id the end of a sub-agent would end the leases of its session.
    if event.kind is EventKind.SUBAGENT_STOP and not event.agent_id:
        return
    context = context_of(event, system.opener)
    if context is not None and context.session:
        words = ["agent", event.by, RELEASE, context.session]
        # After /clear the host goes on with a new number: the session waits for whoever continues
        # it.
        if event.kind is EventKind.SESSION_END and event.reason in CONTINUING:
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


# --- edits: the files that they touch, and what others hold of them ----------------------------


def _touched(workspace: Workspace, cwd: str, paths: Iterable[str]) -> list[Touched]:
    """Return the files inside the repository, each with the tasks defined in it."""
    from gitlease.kernel.rules.viewpoint import Touched

    top = workspace.repository.toplevel
    if top is None:
        return []
    root = os.path.realpath(top)
    files: dict[str, None] = {}
    for path in paths:
        files |= dict.fromkeys(_inside(root, cwd, path))
    tasks = _tasks(workspace, files)
    return [Touched(path, tasks.get(path, frozenset())) for path in files]


def _inside(root: str, cwd: str, path: str) -> list[str]:
    path = os.path.join(cwd or root, path)
    folder, name = os.path.split(os.path.normpath(path))
    # A path that is itself a link counts as the link and as its target: an edit may change either.
    places = (os.path.join(os.path.realpath(folder), name), os.path.realpath(path))
    start = os.path.join(root, "")
    inside = [p.removeprefix(start) for p in places if p.startswith(start)]
    return [p for p in inside if p.split(os.sep)[0] != ".git"]


def _tasks(workspace: Workspace, paths: Iterable[str]) -> dict[str, frozenset[str]]:
    endings = {os.path.splitext(text)[1].lower() for text in workspace.settings.tasks.files}
    wanted = {p for p in paths if "" in endings or os.path.splitext(p)[1].lower() in endings}
    names: dict[str, frozenset[str]] = {}
    # Most edits are of no task file, and must not read all of those there are.
    if not wanted:
        return names
    known = workspace.ledger.edges.files.read()
    for task in known.tasks:
        if task.file in wanted:
            names[task.file] = frozenset((fold(task.resource.text),))
    for problem in known.problems:
        if problem.file in wanted:
            names[problem.file] = problem.keys
    return names


def _split(context: AgentContext, guarded: GuardReport) -> tuple[list[Blocked], list[Blocked]]:
    """Return the blocking and the other findings, without leases of the agent's own family."""
    from gitlease.kernel.rules.viewpoint import Severity

    actor, family = context.workspace.identity.actor, {None, *context.family}
    findings = [
        x
        for x in guarded.findings
        if not (x.lease.same_holder(actor) and x.lease.session in family)
    ]
    mode = context.workspace.settings.guard_mode
    blocks = [f for f in findings if f.severity is Severity.BLOCK and mode == "block"]
    rest = [f for f in findings if f not in blocks]
    return _with_views(guarded, blocks), _with_views(guarded, rest)


def _with_views(guarded: GuardReport, findings: Sequence[GuardFinding]) -> list[Blocked]:
    from gitlease.agents.answers import Blocked

    views = guarded.views
    return [
        Blocked(path=f.path, view=views[f.lease.lease_id])
        for f in findings
        if f.lease.lease_id in views
    ]


# --- work trees shared by several sessions: none discards others' work -------------------------


def context_of(event: AgentEvent, opener: Opener) -> AgentContext | None:
    """Open the repository of an event; None if it does not use gitlease."""
    cwd = event.cwd or "."
    return opener(cwd, host=event.by, session_id=event.session_id, agent_id=event.agent_id)


def where_it_ends(event: AgentEvent) -> list[AgentEvent]:
    """The event of an end, in the clones that it concerns."""
    from gitlease.agents.opening import projects

    here = event.cwd or "."
    places = [here] if os.path.isdir(here) and find_common_dir(here) is not None else []
    # If its own folder is gone, as with a removed work tree, that is the host's project, else the
    # clones in which the session was seen.
    if not places:
        places = [x for x in projects() if os.path.isdir(x) and find_common_dir(x) is not None][:1]
        # Of a clone's main work tree, or of one without.
        known = (x.removesuffix(f"{os.sep}.git") for x in clones_of(_key(event)))
        commons = {find_common_dir(x) for x in places}
        places += [x for x in known if find_common_dir(x) not in commons]
    if event.kind is EventKind.SESSION_END:
        forget_clones(_key(event))
    return [replace(event, cwd=place) for place in places]


def note_presence(event: AgentEvent, opener: Opener, now: float) -> None:
    """Record the work tree of a session (including its sub-agents), or its end.

    ``now`` is in seconds since the epoch.
    """
    git_dir = notes.find_git_dir(event.cwd or ".")
    if git_dir is None or not event.session_id:
        return
    common = notes.common_dir_of(git_dir)
    if event.kind is EventKind.SESSION_END:
        presence.leave(common, _key(event))
        return
    # A resumed session has a new process: its note is written anew.
    fresh = event.kind is EventKind.SESSION_START
    if not fresh and not notes.has_traces(common):
        return
    if not fresh and presence.touch(git_dir, _key(event), now=now):
        return
    context = context_of(replace(event, agent_id=""), opener)
    if context is not None:
        actor = context.workspace.identity.actor
        note_agent(git_dir, _key(event), actor, context.family, by=event.by, now=now)


def begin_session(event: AgentEvent, now: float) -> None:
    """Let a conversation that follows another in the same host process continue its session."""
    from gitlease.agents.opening import begin_conversation

    common = find_common_dir(event.cwd or ".")
    if common is not None and event.session_id and has_traces(common):
        clears = event.reason == "clear"
        begin_conversation(common, event.by, event.session_id, clears=clears, now=now)


def before_shell(event: AgentEvent, opener: Opener, now: float) -> Reply:
    """Refuse a command that discards the work of other sessions in the same work tree."""
    here = os.path.abspath(event.cwd or ".")
    for discard in discards.discards(event.command, here):
        # The folder need not exist: an earlier part of the command may make it.
        around = find_work_tree(os.path.join(discard.folder, "any"))
        folders = [around] if around is not None else []
        if discard.deletes:
            folders += work_trees_below(discard.folder, here)
        for folder in folders:
            reply = _discarding(event, discard, folder, opener, now)
            if reply is not None:
                return reply
    return Reply()


def _discarding(
    event: AgentEvent, discard: Discard, folder: str, opener: Opener, now: float
) -> Reply | None:
    """The reply to a command that discards what is in the work tree around a folder."""
    from gitlease.agents.answers import one_line, shared_tree

    git_dir = find_git_dir(folder) if os.path.isdir(folder) else None
    if git_dir is None:
        return None
    git_dirs = git_dirs_of(common_dir_of(git_dir)) if discard.stash else [git_dir]
    # Before the repository is opened, which takes most of the time: usually nobody else is there.
    if is_alone(git_dirs, _key(event)):
        return None
    context = context_of(replace(event, cwd=folder), opener)
    if context is None or (mode := context.workspace.settings.guard_mode) == "off":
        return None
    # A name that another work tree gives its sessions is not the caller's.
    if git_dir != find_git_dir(event.cwd or "."):
        family = frozenset(x for x in context.family if not x.startswith(BY_PLACE))
        context = replace(context, family=family)
    others = shared_with(
        context.workspace.repository,
        context.family,
        now=now,
        key=_key(event),
        in_clone=discard.stash,
    )
    if others is None:
        return None
    moment, words = moment_of(int(now * MS)), one_line(discard.words)
    lines = shared_tree(words, others, moment, stash=discard.stash)
    text = "\n".join(lines)
    return Reply(deny=text) if mode == "block" else Reply(context=text, notice=lines[0])


def _key(event: AgentEvent) -> str:
    return f"{event.by} {event.session_id}"
