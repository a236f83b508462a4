"""``hooks``: install, remove and test git's hooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gitlease.faces.cli import output
from gitlease.faces.cli.output import Row
from gitlease.faces.cli.verb import flag, option, refuse_options, verb
from gitlease.faces.codes import Violations
from gitlease.faces.hooks.entry import HOOKS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gitlease.faces.cli.call import Call
    from gitlease.install.git_hooks import Plan
    from gitlease.install.hook_status import HookState


ACTIONS = ("install", "uninstall", "status")


@verb(
    "hooks",
    """Install git's hooks (install), remove them (uninstall), or test them (status).

They refuse commits and pushes that change what someone else holds, name your leases in commit
messages, and renew them as you work.

Your existing hooks keep working. Git's own configuration is used if git reads hooks from there
(2.54). Otherwise an existing hook gets a marked section, or is called after ours if it is not a
shell script. For a hook manager (husky, lefthook, pre-commit), the lines to add to its files are
shown. Lines that you add yourself count as your own hook, and stay. uninstall restores every byte.

status has git run each hook with a question that only ours answers; pre-commit and lefthook are
asked to run ours alone. If gitlease is missing or fails, git is never stopped.""",
    examples=(
        "gitlease hooks install --dry-run",
        "gitlease hooks install",
        "gitlease hooks install --only pre-commit --only pre-push",
        "gitlease hooks status",
        "gitlease hooks uninstall",
    ),
    exits=(1, 2, 7, 128),
    done="done; for status: all hooks are live",
    no=("violations",),
    session=False,
)
@click.argument("action", metavar="|".join(ACTIONS), type=click.Choice(ACTIONS))
@flag("--dry-run", help="Print what would be done, and do nothing.")
@option(
    "--only",
    multiple=True,
    metavar="HOOK",
    type=click.Choice(list(HOOKS)),
    help="Only this hook; repeatable.",
)
def hooks_verb(call: Call, *, action: str, dry_run: bool, only: Sequence[str]) -> int | None:
    from gitlease.install.git_hooks import install, uninstall
    from gitlease.wiring.workspace import find_repository

    if action != "install":
        unused = {"--dry-run": dry_run} if action == "status" else {"--only": only}
        refuse_options(unused, action)
    repository, names = find_repository(call.directory or "."), only or tuple(HOOKS)
    if action == "status":
        from gitlease.install.hook_status import hook_states

        return _show(call, [state for state in hook_states(repository) if state.name in names])
    if action == "install":
        plan = install(repository, names, dry_run=dry_run)
    else:
        plan = uninstall(repository, dry_run=dry_run)
    return _answer(call, plan, action, dry_run=dry_run)


def _answer(call: Call, plan: Plan, action: str, *, dry_run: bool) -> int | None:
    body = {
        "action": action,
        "way": plan.way.value,
        "dry_run": dry_run,
        "changes": list(plan.messages),
        "to_add": list(plan.lines),
    }

    def show() -> None:
        if action == "install" and plan.messages:
            output.line(f"{'would install' if dry_run else 'installing'} into {plan.where}")
        for text in plan.messages:
            output.line(f"would have {text}" if dry_run else text)
        if not plan.changes and not plan.lines:
            output.line("nothing to do")
        for text in plan.lines:
            output.whole(text)

    if action == "install" and plan.lines and not plan.changes and not dry_run:
        hints = (call.typed("hooks", "status"),)
        error = Violations("nothing was installed: add the lines shown yourself", hints=hints)
        error.warnings = plan.notes
        return call.fail(error, body, show=show)
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
            rows.append(Row(fields, "" if s.live else "dim"))
        output.table(("HOOK", "STATE", "BY", "STARTS", "PROBLEM"), rows)

    missing = [s.name for s in states if not s.live]
    if not missing:
        call.answer(body, show=show)
        return None
    error = Violations(f"not live: {', '.join(missing)}", hints=_hints(call, states))
    return call.fail(error, body, show=show)


def _hints(call: Call, states: Sequence[HookState]) -> tuple[str, ...]:
    from gitlease.install.hook_places import Way, manager_install

    awaiting = [s for s in states if s.awaits]
    hints = [manager_install(Way(s.way), [x.name for x in awaiting]) for s in awaiting[:1]]
    ours = any(not s.live and not s.awaits for s in states)
    return (*hints, *([call.typed("hooks", "install")] if ours else []))
