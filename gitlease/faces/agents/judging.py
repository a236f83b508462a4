"""Finds the files that an event edits, and judges the guard's findings about them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from gitlease.core.resources.pattern import fold
from gitlease.faces.agents.answers import Blocked
from gitlease.guard.rules import GuardFinding, Severity, Touched

if TYPE_CHECKING:
    from gitlease.guard.rules import GuardReport
    from gitlease.wiring.agents import AgentContext
    from gitlease.wiring.workspace import Workspace


def touched(workspace: Workspace, cwd: str, paths: Iterable[str]) -> list[Touched]:
    """Return the files inside the repository, each with the tasks defined in it.

    Symbolic links in a path are resolved; a path that is itself a link counts as the link and as
    its target. Files outside the repository are ignored.
    """
    top = workspace.repository.toplevel
    if top is None:
        return []
    root = os.path.realpath(top)
    found: dict[str, None] = {}
    for path in paths:
        found |= dict.fromkeys(_inside(root, cwd, path))
    tasks = _tasks(workspace, found)
    return [Touched(path, tasks.get(path, frozenset())) for path in found]


def _inside(root: str, cwd: str, path: str) -> list[str]:
    path = os.path.join(cwd or root, path)
    folder, name = os.path.split(os.path.normpath(path))
    places = (os.path.join(os.path.realpath(folder), name), os.path.realpath(path))
    start = os.path.join(root, "")
    inside = [p.removeprefix(start) for p in places if p.startswith(start)]
    return [p for p in inside if p.split(os.sep)[0] != ".git"]


def _tasks(workspace: Workspace, paths: Iterable[str]) -> dict[str, frozenset[str]]:
    endings = {os.path.splitext(text)[1].lower() for text in workspace.settings.tasks.files}
    wanted = {p for p in paths if "" in endings or os.path.splitext(p)[1].lower() in endings}
    found: dict[str, frozenset[str]] = {}
    if not wanted:
        return found
    known = workspace.ledger.edges.files.read()
    for task in known.tasks:
        if task.file in wanted:
            found[task.file] = frozenset((fold(task.resource.text),))
    for problem in known.problems:
        if problem.file in wanted:
            found[problem.file] = problem.keys
    return found


def split(context: AgentContext, guarded: GuardReport) -> tuple[list[Blocked], list[Blocked]]:
    """Return the blocking and the other findings, without leases of the agent's own family."""
    findings = [f for f in guarded.findings if not _in_family(context, f)]
    mode = context.workspace.settings.guard_mode
    blocks = [f for f in findings if f.severity is Severity.BLOCK and mode == "block"]
    rest = [f for f in findings if f not in blocks]
    return _with_views(guarded, blocks), _with_views(guarded, rest)


def _in_family(context: AgentContext, finding: GuardFinding) -> bool:
    lease = finding.lease
    mine = lease.same_holder(context.workspace.identity.actor)
    return mine and (lease.session is None or lease.session in context.family)


def _with_views(guarded: GuardReport, findings: Sequence[GuardFinding]) -> list[Blocked]:
    views = guarded.views
    return [
        Blocked(path=f.path, view=views[f.lease.lease_id])
        for f in findings
        if f.lease.lease_id in views
    ]
