"""``agent``: hooks of coding agents, installed into their files, and their events handled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gitlease.core.errors import UsageError
from gitlease.faces.agents.handling import ACTIONS, HOSTS, is_event, run
from gitlease.faces.cli import output, types
from gitlease.faces.cli.verb import Verb, flag

if TYPE_CHECKING:
    from gitlease.faces import wire
    from gitlease.faces.cli.call import Call


@click.command(
    "agent",
    cls=Verb,
    help="""Put gitlease's hooks into a coding agent, take them out, or say which are there.

HOST is claude, codex or cursor. With the hooks an agent begins a session knowing what is leased,
cannot edit a file that another holds, has its leases renewed as it works, and drops them at its
end: its tasks stay assigned. Only tools that edit files are judged: what a shell command writes is
left to the hooks of git and to the checks behind them. A shell command that throws a work tree away
or switches its branch (git stash, reset --hard, checkout -f, clean -f, switch) is denied while
another session works there: best effort, by what is literally in it.

The host's file of the work tree is changed, to be committed; with --user the person's own, for all
repositories. It is rewritten as JSON with all that others have in it: order and indentation stay,
spacing inside lines and the spelling of letters (\\u00fc) and numbers do not. Uninstall takes our
entries out again. The section of AGENTS.md goes with the last host that has hooks here. ACTION may
also be an event, as the hooks call it: JSON on standard input, a decision on standard output,
exit 0.""",
    examples=(
        "gitlease agent claude install",
        "gitlease agent codex install --keep     # leases stay after a session, until they lapse",
        "gitlease agent cursor install --agents-md",
        "gitlease agent claude status --user",
        "gitlease agent claude uninstall",
    ),
    exits=(2, 7, 128),
    done="done, or there was nothing to do",
    session=False,
)
@click.argument("host", metavar="HOST", shell_complete=types.one_of(*HOSTS))
@click.argument("action", metavar="ACTION", shell_complete=types.one_of(*ACTIONS))
@click.argument("words", metavar="", nargs=-1)
@flag("--user", help="The person's own file instead of the work tree's.")
@flag("--keep", help="Sessions keep their leases at their end, until they lapse.")
@flag("--agents-md", help="The marked section of AGENTS.md as well.")
@click.pass_obj
def agent_verb(
    call: Call,
    *,
    host: str,
    action: str,
    words: tuple[str, ...],
    user: bool,
    keep: bool,
    agents_md: bool,
) -> int | None:
    if is_event((host, action)):
        return run((host, action, *words, *(["--keep"] if keep else [])))
    if host not in HOSTS:
        raise UsageError(
            f"unknown agent {host[:60]!r}", hints=(f"known agents: {', '.join(HOSTS)}",)
        )
    if action not in ACTIONS or words:
        odd = " ".join((action, *words))
        raise UsageError(
            f"unknown action {odd[:60]!r}", hints=(f"known actions: {', '.join(ACTIONS)}",)
        )
    if user and agents_md:
        raise UsageError("AGENTS.md belongs to a work tree: --agents-md does not go with --user")
    from gitlease.install.agents.setup import set_up_agent

    folder = call.directory or "."
    setup = set_up_agent(folder, host, action, user=user, keep=keep, section=agents_md)
    state = setup.state
    body: wire.Document = {
        "host": host,
        "action": action,
        "files": [{"file": done.file, "what": done.what} for done in setup.done],
        "file": state.file,
        "events": list(state.events),
        "missing": list(state.missing),
        "installed": bool(state.events) and not state.missing,
        "keeps_leases": state.keep,
        "program": setup.program,
    }
    call.answer(body, warnings=setup.warnings, hints=setup.hints, show=lambda: _show(body))
    return None


def _show(body: wire.Document) -> None:
    told = {
        "written": "wrote our hooks into {0}",
        "unchanged": "{0} has them: nothing to do",
        "removed": "took our part out of {0}",
        "absent": "{0} has nothing of ours",
        "kept": "{0} keeps our section: another host has hooks of ours here",
    }
    for done in body["files"]:
        output.line(told[done["what"]].format(done["file"]))
    if body["action"] != "status":
        return
    output.line(f"{body['file']}: " + (", ".join(body["events"]) or "no hooks of ours"))
    if body["events"]:
        ends = "are kept" if body["keeps_leases"] else "run out, and tasks stay assigned"
        output.line(f"at the end of a session its leases {ends}")
        if body["missing"]:
            output.line(f"missing or outdated: {', '.join(body['missing'])}")
    output.line(f"gitlease is {body['program'] or 'not on PATH'}")
