"""``init``: set up a repository, or confirm its ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gitlease.core.errors import Unavailable, UsageError
from gitlease.faces.cli import output
from gitlease.faces.cli.verb import flag, verb

if TYPE_CHECKING:
    from gitlease.engine.answers import Reading
    from gitlease.faces import wire
    from gitlease.faces.cli.call import Call

FILE = ".gitlease.yaml"


@verb(
    "init",
    """Set up this repository: create the ledger on the remote, and write .gitlease.yaml if missing.

The file is adapted to Backlog.md tasks if there are any; otherwise it lists the defaults. init can
be repeated, never prompts, and accepts the remote's current ledger, even if it was replaced. It is
optional: the first claim also creates the ledger.

A ledger that was rolled back has lost leases, which could now be granted twice. Agree with the
others on the remote which history counts. To restore the lost one, use --undo-rollback in a clone
that reports the rollback. To accept the current one, use --accept-rollback in every clone that
reports it. With both, new fencing tokens continue above those of either history. If a server's hook
refuses --undo-rollback, let an admin of the server reset the ref with git update-ref, and try
again.""",
    examples=("gitlease init", "gitlease init --remote upstream"),
    exits=(2, 4, 7, 128),
    done="set up; with a warning if the remote is unreachable",
    session=False,
)
@flag("--undo-rollback", help="Restore the ledger that this clone has seen.")
@flag("--accept-rollback", help="Accept a rolled-back ledger as it is now.")
def init_verb(call: Call, *, undo_rollback: bool, accept_rollback: bool) -> None:
    from gitlease.wiring.workspace import write_default_settings

    if undo_rollback and accept_rollback:
        raise UsageError("--undo-rollback cannot be combined with --accept-rollback")
    workspace = call.workspace
    written = write_default_settings(workspace.repository)
    path, suggested = written if written else (None, None)
    found = suggested if suggested and suggested.folder else None
    recognised = _recognised(found.files, found.folder or "") if found else None
    tasks = (found is not None and found.files > 0) or workspace.ledger.edges.files.read().has_tasks
    reading, warnings = _confirmed(call, undo=undo_rollback, accept=accept_rollback)
    body: wire.Document = {
        "settings_file": path,
        "recognised": {"kind": "backlog.md", "files": found.files} if found else None,
        "ledger": {
            "place": workspace.ledger.store.place,
            "layer": workspace.ledger.layer,
            "id": reading.ledger_id if reading else None,
            "revision": reading.revision if reading else None,
        },
    }
    call.answer(
        body,
        warnings=(*(suggested.warnings if suggested else ()), *warnings),
        next_steps=[
            call.typed("queue" if tasks else "list"),
            *_offer_hooks(call),
            *([] if tasks else _offer_issues(call)),
        ],
        show=lambda: _show(call, path, recognised, reading, tasks=tasks),
    )


def _offer_hooks(call: Call) -> list[str]:
    from gitlease.wiring.hooks import has_hooks

    repository = call.workspace.repository
    wanted = repository.toplevel is not None and not has_hooks(repository)
    return [call.typed("hooks", "install")] if wanted else []


def _offer_issues(call: Call) -> list[str]:
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
        later = "the first claim that reaches it will create the ledger"
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
        output.line(f"no work tree here, so no {FILE}")
    else:
        output.line(f"{FILE} exists and was not changed")
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
