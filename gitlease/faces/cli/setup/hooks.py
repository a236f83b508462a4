"""``hooks``: put git's hooks in place, take them out, and see which of them are live."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gitlease.core.errors import UsageError
from gitlease.faces.cli import output, refusals
from gitlease.faces.cli.output import Row
from gitlease.faces.cli.verb import Verb, flag, option
from gitlease.faces.codes import Violations
from gitlease.faces.hooks.entry import HOOKS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gitlease.faces.cli.call import Call
    from gitlease.install.hooks.status import HookState
    from gitlease.install.hooks.write import Plan


ACTIONS = ("install", "uninstall", "status")
MANAGERS = ("pre-commit", "lefthook", "husky")  # whose files --yes writes to


@click.command(
    "hooks",
    cls=Verb,
    help="""Put git's hooks in place (install), take them out (uninstall), see which fire (status).

They refuse commits and pushes that change what another holds, name your leases in commit messages,
and renew them as you work; git stash is refused where another session works in the same work tree
(reference-transaction, which no manager carries: with --yes it goes beside theirs). Nothing that is
here is lost: git's own configuration is used where git reads hooks from there (2.54), an existing
hook gets a marked section, one that is no shell script is called after ours, and of a hook
manager's file (husky, lefthook, pre-commit) the lines are shown, or written with --yes. Where you
add the lines shown yourself they count as well, are called your own hook, and stay yours. Uninstall
gives back every byte.

Status has git run each hook with a question that only ours answers. A gitlease that is missing or
fails never stops git.""",
    examples=(
        "gitlease hooks install --dry-run",
        "gitlease hooks install",
        "gitlease hooks install --yes --only pre-commit --only pre-push",
        "gitlease hooks status",
        "gitlease hooks uninstall",
    ),
    exits=(1, 2, 7, 128),
    done="done; for status: all hooks are live",
    no=("violations",),
    session=False,
)
@click.argument("action", metavar="|".join(ACTIONS), type=click.Choice(ACTIONS))
@flag("--dry-run", help="Say what would be done, and do nothing.")
@flag("--yes", help="Write to the files of a hook manager as well.")
@option(
    "--only",
    multiple=True,
    metavar="HOOK",
    type=click.Choice(list(HOOKS)),
    help="Only this hook of git; may be repeated.",
)
@click.pass_obj
def hooks_verb(
    call: Call, *, action: str, dry_run: bool, yes: bool, only: Sequence[str]
) -> int | None:
    from gitlease.install.hooks.install import install, uninstall
    from gitlease.wiring.workspace import find_repository

    given = {"--yes": yes, "--only": bool(only), "--dry-run": dry_run}
    allowed = {"install": set(given), "uninstall": {"--dry-run"}, "status": {"--only"}}[action]
    if wrong := [name for name, used in given.items() if used and name not in allowed]:
        raise UsageError(f"{wrong[0]} does not go with {action}")
    repository, names = find_repository(call.directory or "."), only or tuple(HOOKS)
    if action == "status":
        from gitlease.install.hooks.status import hook_states

        return _show(call, [state for state in hook_states(repository) if state.name in names])
    if action == "install":
        plan = install(repository, names, yes=yes, dry_run=dry_run)
    else:
        plan = uninstall(repository, dry_run=dry_run)
    return _answer(call, plan, action, dry_run=dry_run, yes=yes)


def _answer(call: Call, plan: Plan, action: str, *, dry_run: bool, yes: bool) -> int | None:
    body = {
        "action": action,
        "way": plan.way.value,
        "dry_run": dry_run,
        "changes": list(plan.said),
        "to_add": list(plan.lines),
    }

    def show() -> None:
        if action == "install" and plan.said:
            output.line(f"{'would install' if dry_run else 'installing'} into {plan.where}")
        for text in plan.said:
            output.line(f"would have {text}" if dry_run else text)
        if not plan.changes and not plan.lines:
            output.line("nothing to do")
        for text in plan.lines:
            output.whole(text)

    if action == "install" and plan.lines and not plan.changes and not dry_run:
        if not call.json:
            show()
        managed = plan.way.value in MANAGERS and not yes
        hints = (call.typed("hooks", "install", options=["--yes"]),) if managed else ()
        error = Violations("nothing was installed: what is shown is yours to do", hints=hints)
        error.warnings = plan.notes
        return refusals.tell(call, error, body=body)
    steps = [call.typed("hooks", "status")] if action == "install" and plan.changes else []
    call.answer(body, warnings=plan.notes, next_steps=[] if dry_run else steps, show=show)
    return None


def _show(call: Call, states: Sequence[HookState]) -> int | None:
    body = {
        "hooks": [
            {
                "name": s.name,
                "live": s.live,
                "proven": s.proven,
                "way": s.way or None,
                "current": s.current,
                "program": s.program,
                "problem": s.problem or None,
            }
            for s in states
        ]
    }

    def show() -> None:
        rows = []
        for s in states:
            live = ("live" if s.proven else "live, not proven") if s.live else "not live"
            fields = (s.name, live, s.way, s.program or "", s.problem)
            rows.append(Row(fields, fields, "" if s.live else "dim"))
        output.table(("HOOK", "STATE", "BY", "STARTS", "PROBLEM"), rows)

    missing = [s.name for s in states if not s.live]
    if not missing:
        call.answer(body, show=show)
        return None
    if not call.json:
        show()
    error = Violations(f"not live: {', '.join(missing)}", hints=_hints(call, states))
    return refusals.tell(call, error, body=body)


def _hints(call: Call, states: Sequence[HookState]) -> tuple[str, ...]:
    from gitlease.install.hooks.places import Way
    from gitlease.install.hooks.plan import manager_install

    awaiting = [s for s in states if s.awaits]
    hints = [manager_install(Way(s.way), [x.name for x in awaiting]) for s in awaiting[:1]]
    ours = any(not s.live and not s.awaits for s in states)
    return (*hints, *([call.typed("hooks", "install")] if ours else []))
