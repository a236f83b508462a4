"""``init``: set up a repository, or confirm its ledger."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from functools import partial

import click

from gitlease import engine, wiring
from gitlease.core.errors import Hint, Unavailable, UsageError
from gitlease.core.policy import Issues
from gitlease.engine import acts
from gitlease.faces.cli import output
from gitlease.faces.cli.call import Call
from gitlease.faces.cli.verb import flag, verb
from gitlease.verbs import wire
from gitlease.verbs.table import Result

FILE = ".gitlease.yaml"
NAMED = 3  # files
OFF = frozenset({"false", "no", "off", "0", ""})


@verb(
    "init",
    """Set up this repository: create the ledger on the remote, and write .gitlease.yaml if missing.

The file is adapted to the task files that are there, Backlog.md's or any others with front matter:
their folders, the names of their fields and their status words. On a terminal init shows these
settings and asks; otherwise it writes them. It says how many tasks it sees and what it cannot read.
init can be repeated, and accepts the remote's current ledger, even if it was replaced, unless
another remote here has one. It is optional: the first claim also creates the ledger.

It records the ledger's id in the file. Once that is committed, no clone grants a lease on another
ledger, such as that of a fork or a copy. To give a fork or a copy a ledger of its own, use
--new-ledger there, and commit the file.

A ledger that was rolled back has lost leases, which could now be granted twice. Agree with the
others on the remote which history counts. To restore the lost one, use --undo-rollback in a clone
that reports the rollback. To accept the current one, use --accept-rollback in every clone that
reports it. With both, new fencing tokens continue above those of either history. If a server's hook
refuses --undo-rollback, let an admin of the server reset the ref with git update-ref, and try
again. Where the ledger has admins, one of them has to be the first to do either.""",
    examples=("gitlease init", "gitlease init --remote upstream"),
    exits=(2, 4, 7, 128),
    done="set up; with a warning if the remote is unreachable",
    session=False,
)
@flag("--undo-rollback", help="Restore the ledger that this clone has seen.")
@flag("--accept-rollback", help="Accept a rolled-back ledger as it is now.")
@flag("--new-ledger", help="Use a ledger of this remote's own in place of the recorded one.")
def init_verb(call: Call, *, undo_rollback: bool, accept_rollback: bool, new_ledger: bool) -> None:
    if undo_rollback and accept_rollback:
        raise UsageError("--undo-rollback cannot be combined with --accept-rollback")
    if new_ledger and (undo_rollback or accept_rollback):
        raise UsageError("--new-ledger cannot be combined with the choice of a history")
    workspace = call.workspace
    reading, warnings = _confirmed(
        call, undo=undo_rollback, accept=accept_rollback, another=new_ledger
    )
    written = wiring.write_default_settings(workspace.repository, partial(_accepted, call))
    path, suggested = written if written else (None, None)
    seen = wiring.tasks_seen(workspace)
    proposed = None if written else wiring.proposed_settings(workspace, seen.tasks)
    found = suggested if suggested and suggested.folder else None
    recognised = _recognised(found.files, found.folder or "") if found else None
    tasks, fit = seen.has_tasks, suggested or proposed
    recorded, unrecorded = wiring.record_ledger(workspace, reading.ledger_id if reading else None)
    body: wire.Document = {
        "settings_file": path,
        "recognised": {"kind": "backlog.md", "files": found.files} if found else None,
        "task_files": {
            "tasks": len(seen.tasks),
            "unreadable": [problem.message for problem in seen.problems],
            "others": len(seen.others),
        },
        "ledger": {
            "place": workspace.ledger.store.place,
            "layer": workspace.ledger.layer,
            "id": reading.ledger_id if reading else None,
            "revision": reading.revision if reading else None,
            "recorded": recorded,
        },
    }
    call.respond(
        Result(
            body=body,
            lines=lambda: _lines(call, path, recognised, reading, seen, proposed, recorded),
            warnings=(
                *(suggested.warnings if suggested else ()),
                *_doubts(seen),
                *(headed(fit.headed) if fit and not tasks else ()),
                *warnings,
                *unrecorded,
            ),
            then=[
                Hint("queue" if tasks else "list", {}),
                *_offer_hooks(call),
                *([] if tasks else _offer_issues(call)),
            ],
            hints=_offer_commits(call, tasks=tasks),
        )
    )


def headed(files: Sequence[str]) -> list[str]:
    """Return a warning about files that have a heading alone, if there are any."""
    if not files:
        return []
    named = ", ".join(files[:NAMED]) + (", …" if len(files) > NAMED else "")
    return [
        f"a heading makes no task: {_files(len(files))} without front matter: {named}; a task "
        "begins with the lines ---, id: ABC-1, status: todo and ---"
    ]


def _accepted(call: Call, suggested: wiring.SuggestedSettings) -> bool:
    """Ask a person on a terminal whether the proposed settings are right."""
    if call.json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return True
    for text in _proposal("these settings fit the task files here:", suggested):
        output.line(text)
    return click.confirm(f"write them to {FILE}?", default=True)


def _proposal(about: str, suggested: wiring.SuggestedSettings) -> list[str]:
    lines = suggested.text.splitlines()
    shown = (x for x in lines if x and not x.startswith(("#", "schema:")))
    return [about, *(f"  {line}" for line in shown)]


def _doubts(seen: engine.TaskList) -> list[str]:
    """Warnings about files that cannot be read, and status words without a meaning."""
    return [*engine.problem_messages(seen), *engine.unknown_statuses(seen.tasks)]


def _offer_commits(call: Call, *, tasks: bool) -> list[str]:
    """Offer edges as commits to those whose pulls an edited task file would stop."""
    if not tasks or call.workspace.settings.edges_commit:
        return []
    config, branch = call.workspace.repository.config, call.workspace.repository.branch()
    own, every = f"branch.{branch}.rebase", "pull.rebase"
    key = own if branch and config.entry(own) else every  # git's order
    rebases = (config.entry(key), config.entry("rebase.autostash"))
    pulls, stashes = (entry is not None and entry.value.lower() not in OFF for entry in rebases)
    if not pulls or stashes:
        return []
    return [
        f"{key} is set, and an edited task file stops such a pull: set edges: "
        f"{{commit: true}} in {FILE}, and claims commit their edit"
    ]


def _offer_hooks(call: Call) -> list[Hint]:
    repository = call.workspace.repository
    wanted = repository.toplevel is not None and not wiring.has_hooks(repository)
    return [Hint("hooks install", {})] if wanted else []


def _offer_issues(call: Call) -> list[Hint]:
    policy, host = call.ledger.known_policy(), wiring.host_of_work(call.workspace)
    if policy is None or policy.issues is not Issues.NONE or host is Issues.NONE:
        return []
    return [Hint("config", {"key": "issues", "value": host.value, "ledger": True})]


def _confirmed(
    call: Call, *, undo: bool, accept: bool, another: bool
) -> tuple[engine.Reading | None, tuple[str, ...]]:
    try:
        if undo:
            reading = acts.undo_rollback(call.ledger)
        else:
            reading = acts.confirm(call.ledger, rolled_back=accept, another=another)
    except Unavailable as error:
        later = "the first claim that reaches it will create the ledger"
        return None, (f"{error.message}; {later}",)
    return reading, reading.warnings


def _recognised(files: int, folder: str) -> str:
    many = {0: "no task files yet", 1: "1 task file"}.get(files, f"{files} task files")
    return f"recognised Backlog.md: {many} in {folder}"


def _lines(
    call: Call,
    written: str | None,
    recognised: str | None,
    reading: engine.Reading | None,
    seen: engine.TaskList,
    proposed: wiring.SuggestedSettings | None,
    recorded: bool,
) -> Iterable[str]:
    in_tree = call.workspace.repository.toplevel is not None
    if written:
        yield f"wrote {written}: commit it"
        yield from [recognised] if recognised else []
    elif not in_tree:
        yield f"no work tree here, so no {FILE}"
    else:
        wrote = "now records the ledger's id: commit it" if recorded else "was not changed"
        yield f"{FILE} exists and {wrote}"
    if in_tree:
        yield _counted(seen)
    if proposed is not None and proposed.fits:
        yield from _proposal(f"for the task files here, set in {FILE}:", proposed)
    if reading is not None:
        ledger = call.ledger
        yield (
            f"the {ledger.layer} ledger is ready on {ledger.store.place}: "
            f"id {reading.ledger_id}, revision {reading.revision}"
        )
    task = f"`{call.typed('claim', 'F001')}` (a task)"
    if seen.has_tasks:
        task = f"`{call.typed('next', claim=True)}` (the next task)"
    yield f"take a lease with {task} or `{call.typed('claim', 'src/')}` (a folder)"


def _counted(seen: engine.TaskList) -> str:
    """Say how many tasks there are, and how many files are none."""
    count = len(seen.tasks)
    parts = [f"sees {count} {'task' if count == 1 else 'tasks'}"]
    if seen.problems:
        parts.append(f"cannot use {_files(len(seen.problems))} (see the warnings)")
    if seen.tasks and seen.others:
        named = ", ".join(seen.others[:NAMED]) + (", …" if len(seen.others) > NAMED else "")
        parts.append(f"{_files(len(seen.others))} without an id: {named}")
    elif seen.nothing and not seen.problems:
        parts = [seen.nothing]
    return "; ".join(parts)


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count} files"
