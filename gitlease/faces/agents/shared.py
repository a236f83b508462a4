"""Protects work trees shared by several sessions: each is recorded, and none discards others' work.

Every event passes through here, so it loads little unless someone else works here.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from gitlease.core.frozen import replace
from gitlease.core.instant import MS, moment_of
from gitlease.faces.agents.events import AgentEvent, EventKind, Reply

if TYPE_CHECKING:
    from gitlease.guard.discards import Discard
    from gitlease.wiring.agents import AgentContext

Opener = Callable[..., "AgentContext | None"]


def context_of(event: AgentEvent, opener: Opener) -> AgentContext | None:
    """Open the repository of an event; None if it does not use gitlease."""
    cwd = event.cwd or "."
    return opener(cwd, host=event.by, session_id=event.session_id, agent_id=event.agent_id)


def where_it_ends(event: AgentEvent) -> list[AgentEvent]:
    """The event of an end, in the clones that it concerns.

    If its own folder is gone, as with a removed work tree, that is the host's project, else the
    clones in which the session was seen.
    """
    from gitlease.guard.notes import find_common_dir
    from gitlease.guard.presence import clones_of, forget_clones

    here = event.cwd or "."
    places = [here] if os.path.isdir(here) and find_common_dir(here) is not None else []
    if not places:
        from gitlease.wiring.agents import projects

        places = [x for x in projects() if os.path.isdir(x) and find_common_dir(x) is not None][:1]
        # Of a clone's main work tree, or of one without.
        known = (x.removesuffix(f"{os.sep}.git") for x in clones_of(_key(event)))
        found = {find_common_dir(x) for x in places}
        places += [x for x in known if find_common_dir(x) not in found]
    if event.kind is EventKind.SESSION_END:
        forget_clones(_key(event))
    return [replace(event, cwd=place) for place in places]


def note(event: AgentEvent, opener: Opener, now: float) -> None:
    """Record the work tree of a session (including its sub-agents), or its end.

    ``now`` is in seconds since the epoch.
    """
    from gitlease.guard import notes, presence

    git_dir = notes.find_git_dir(event.cwd or ".")
    if git_dir is None or not event.session_id:
        return
    common = notes.common_dir_of(git_dir)
    if event.kind is EventKind.SESSION_END:
        presence.leave(common, _key(event))
        return
    fresh = event.kind is EventKind.SESSION_START  # a resumed session has a new process
    if not fresh and not notes.has_traces(common):
        return
    if not fresh and presence.touch(git_dir, _key(event), now=now):
        return
    context = context_of(replace(event, agent_id=""), opener)
    if context is not None:
        from gitlease.guard.presence import note_agent

        actor = context.workspace.identity.actor
        note_agent(git_dir, _key(event), actor, context.family, by=event.by, now=now)


def begin(event: AgentEvent, now: float) -> None:
    """Let a conversation that follows another in the same host process continue its session."""
    from gitlease.guard.notes import find_common_dir, has_traces

    common = find_common_dir(event.cwd or ".")
    if common is not None and event.session_id and has_traces(common):
        from gitlease.wiring.agents import begin_conversation

        clears = event.reason == "clear"
        begin_conversation(common, event.by, event.session_id, clears=clears, now=now)


def before_shell(event: AgentEvent, opener: Opener, now: float) -> Reply:
    """Refuse a command that discards the work of other sessions in the same work tree.

    Opens the repository only if another session is recorded.
    """
    from gitlease.guard.discards import discards
    from gitlease.guard.presence import root_of, work_tree_named, work_trees_below

    own_place = os.path.abspath(event.cwd or ".")
    for found in discards(event.command, own_place):
        if found.deletes:
            folders = work_trees_below(found.folder, own_place)
        elif found.git_dir:
            folders = [root_of(os.path.realpath(found.folder))]
        elif found.removes:
            folders = [work_tree_named(found.folder, found.removes)]
        else:
            folders = [found.folder]
        for folder in folders:
            reply = _discarding(event, found, folder, opener, now)
            if reply is not None:
                return reply
    return Reply()


def _discarding(
    event: AgentEvent, found: Discard, folder: str, opener: Opener, now: float
) -> Reply | None:
    """The reply to a command that discards what is in the work tree around a folder."""
    from gitlease.guard.notes import common_dir_of, find_git_dir
    from gitlease.guard.presence import BY_PLACE, git_dirs_of, is_alone

    git_dir = find_git_dir(folder) if os.path.isdir(folder) else None
    if git_dir is None:
        return None
    git_dirs = git_dirs_of(common_dir_of(git_dir)) if found.stash else [git_dir]
    if all(is_alone(x, _key(event)) for x in git_dirs):
        return None
    context = context_of(replace(event, cwd=folder), opener)
    if context is None or (mode := context.workspace.settings.guard_mode) == "off":
        return None
    from gitlease.faces.agents.answers import one_line
    from gitlease.guard.presence import shared_with
    from gitlease.verbs.sentences import shared_tree

    if found.settings and not context.has_set(found.settings):
        return None

    if git_dir != find_git_dir(event.cwd or "."):  # its name is not the caller's
        family = frozenset(x for x in context.family if not x.startswith(BY_PLACE))
        context = replace(context, family=family)
    others = shared_with(
        context.workspace.repository,
        context.family,
        now=now,
        key=_key(event),
        in_clone=found.stash,
    )
    if others is None:
        return None
    moment, words = moment_of(int(now * MS)), one_line(found.words)
    lines = shared_tree(words, others, moment, stash=found.stash)
    text = "\n".join(lines)
    return Reply(deny=text) if mode == "block" else Reply(context=text, notice=lines[0])


def _key(event: AgentEvent) -> str:
    return f"{event.by} {event.session_id}"
