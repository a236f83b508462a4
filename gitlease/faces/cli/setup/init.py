"""``init``: set a repository up, or confirm the ledger that it has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gitlease.core.errors import Unavailable, UsageError
from gitlease.faces.cli import output
from gitlease.faces.cli.verb import Verb, flag

if TYPE_CHECKING:
    from gitlease.engine.answers import Reading
    from gitlease.faces import wire
    from gitlease.faces.cli.call import Call

FILE = ".gitlease.yaml"


@click.command(
    "init",
    cls=Verb,
    help="""Set this repository up: make the ledger on the remote, write .gitlease.yaml if missing.

The file fits the tasks of Backlog.md where these are used; anywhere else it shows the defaults.
It may be repeated, never asks, and accepts the ledger that the remote has now, also where that was
replaced. Nothing needs it first: the first claim makes the ledger as well.

A ledger that was rolled back has lost leases, which could be granted twice. Settle with those who
share the remote which past counts: --undo-rollback, in a clone that reports it, brings back what
that clone has seen; or each clone that reports it takes what is there with --accept-rollback. Both
have fencing tokens go on above those of either past. Where a server's hook refuses the first, an
admin of the server sets the ref back with git update-ref; then use it once more.
""",
    examples=("gitlease init", "gitlease init --remote upstream"),
    exits=(2, 4, 7, 128),
    done="set up; also when the remote is unreachable, with a warning",
    session=False,
)
@flag("--undo-rollback", help="Bring back the ledger as this clone has seen it.")
@flag("--accept-rollback", help="Take a ledger that was rolled back as it is now.")
@click.pass_obj
def init_verb(call: Call, *, undo_rollback: bool, accept_rollback: bool) -> None:
    from gitlease.wiring.workspace import write_default_settings

    if undo_rollback and accept_rollback:
        raise UsageError("either --undo-rollback or --accept-rollback: only one past can count")
    workspace = call.workspace
    written = write_default_settings(workspace.repository)
    path, fitting = written if written else (None, None)
    found = fitting.recognised if fitting else None
    recognised = _recognised(found.files, found.folder) if found else None
    tasks = (found is not None and found.files > 0) or workspace.ledger.edges.files.exist()
    reading, warnings = _confirmed(call, undo=undo_rollback, accept=accept_rollback)
    body: wire.Document = {
        "settings_file": path,
        "recognised": {"kind": found.kind, "files": found.files} if found else None,
        "ledger": {
            "place": workspace.ledger.store.place,
            "layer": workspace.ledger.layer,
            "id": reading.ledger_id if reading else None,
            "revision": reading.revision if reading else None,
        },
    }
    call.answer(
        body,
        warnings=(*(fitting.said if fitting else ()), *warnings),
        next_steps=[
            call.typed("queue" if tasks else "list"),
            *_offered(call),
            *([] if tasks else _offered_issues(call)),
        ],
        show=lambda: _show(call, path, recognised, reading, tasks=tasks),
    )


def _offered(call: Call) -> list[str]:
    """Git's hooks, where they are not in place yet."""
    from gitlease.wiring.hooks import has_hooks

    repository = call.workspace.repository
    wanted = repository.toplevel is not None and not has_hooks(repository)
    return [call.typed("hooks", "install")] if wanted else []


def _offered_issues(call: Call) -> list[str]:
    """Issue numbers of the host that has the work, where the ledger does not go by any yet."""
    from gitlease.core.policy import Issues
    from gitlease.wiring.issue_host import host_of_work

    policy, host = call.ledger.known_policy(), host_of_work(call.workspace)
    if policy is None or policy.issues is not Issues.NONE or host is Issues.NONE:
        return []
    return [call.typed("config", then=["issues", host.value], options=["--ledger"])]


def _confirmed(call: Call, *, undo: bool, accept: bool) -> tuple[Reading | None, tuple[str, ...]]:
    from gitlease.engine import govern

    try:
        if undo:
            reading = govern.undo_rollback(call.ledger)
        else:
            reading = govern.confirm(call.ledger, rolled_back=accept)
    except Unavailable as error:
        later = "the ledger is made with the first claim that reaches it"
        return None, (f"{error.message}; {later}",)
    return reading, reading.warnings


def _recognised(files: int, folder: str) -> str:
    many = {0: "no task files yet", 1: "1 task file"}.get(files, f"{files} task files")
    return f"recognised Backlog.md: {many} in {folder}"


def _show(
    call: Call,
    written: str | None,
    recognised: str | None,
    reading: Reading | None,
    *,
    tasks: bool,
) -> None:
    if written:
        output.line(f"wrote {written}: commit it")
        if recognised:
            output.line(recognised)
    elif call.workspace.repository.toplevel is None:
        output.line(f"there is no work tree here, so no {FILE}")
    else:
        output.line(f"{FILE} is there: left as it is")
    if reading is not None:
        ledger = call.ledger
        output.line(
            f"the {ledger.layer} ledger is ready on {ledger.store.place}: "
            f"id {reading.ledger_id}, revision {reading.revision}"
        )
    folder = call.typed("claim", "src/")
    task = (
        f"`{call.typed('next', options=['--claim'])}` (the next task)"
        if tasks
        else f"`{call.typed('claim', 'F001')}` (a task)"
    )
    output.line(f"take a lease with {task} or `{folder}` (a folder)")
