"""``agent``: install hooks into coding agents, and handle their events."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gitlease.core.errors import UsageError
from gitlease.faces.agents.handling import ACTIONS, HOSTS, is_event, run
from gitlease.faces.cli import output, types
from gitlease.faces.cli.verb import flag, verb
from gitlease.faces.codes import Violations

if TYPE_CHECKING:
    from gitlease.faces import wire
    from gitlease.faces.cli.call import Call
    from gitlease.install.agents import Installed


@verb(
    "agent",
    """Install gitlease's hooks into a coding agent (install), remove them (uninstall), or list them
(status).

HOST is claude, codex or cursor. With the hooks, an agent learns at the start of a session what is
leased, cannot edit a file that someone else holds, has its leases renewed as it works, and loses
them at its end, while its tasks stay assigned. Only tools that edit files are checked. Files
written by shell commands are checked by git's hooks and in CI. A shell command that discards work
or switches the branch (reset --hard, checkout -- FILE, clean -f, switch) is denied while another
session works in that work tree, and git stash while one works in any work tree of the clone. This
is best effort: only the literal command is read.

install edits the host's file in the work tree, for you to commit, or with --user your own file, for
all repositories. The file is written as JSON with all other content, as the host itself writes it:
order and indentation stay, but spacing within lines and the spelling of letters (\\u00fc) and
numbers may change. uninstall removes our entries, and keeps a file that was there before. It
removes the section of AGENTS.md with the last host. ACTION may also be an event, for the hooks
themselves: JSON on standard input, a decision on standard output, exit 0.""",
    examples=(
        "gitlease agent claude install",
        "gitlease agent codex install --keep     # leases outlast the session until they expire",
        "gitlease agent cursor install --agents-md",
        "gitlease agent claude status --user",
        "gitlease agent claude uninstall",
    ),
    exits=(1, 2, 7, 128),
    done="done, or there was nothing to do; for status: the hooks are installed",
    no=("violations",),
    session=False,
)
@click.argument("host", metavar="HOST", shell_complete=types.one_of(*HOSTS))
@click.argument("action", metavar="ACTION", shell_complete=types.one_of(*ACTIONS))
@click.argument("words", metavar="", nargs=-1)
@flag("--user", help="Use your own file instead of the work tree's.")
@flag("--keep", help="Let leases outlast the session, until they expire.")
@flag("--agents-md", help="Also write a marked section into AGENTS.md.")
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
        raise UsageError("--agents-md cannot be combined with --user")
    from gitlease.install.agent_setup import set_up_agent

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
    if action == "status" and (not body["installed"] or setup.is_off):
        again = ["--user"] if user else []
        hints = () if setup.is_off else (call.typed("agent", host, "install", options=again),)
        error = Violations(_not_live(state, off=setup.is_off), hints=(*setup.hints, *hints))
        error.warnings = setup.warnings
        return call.fail(error, body, show=lambda: _show(body))
    call.answer(body, warnings=setup.warnings, hints=setup.hints, show=lambda: _show(body))
    return None


def _not_live(state: Installed, *, off: bool) -> str:
    if off:
        return "the hooks are switched off"
    if state.events:
        return f"{state.file} lacks hooks: {', '.join(dict.fromkeys(state.missing))}"
    return f"{state.file} has no hooks of gitlease"


def _show(body: wire.Document) -> None:
    said = {
        "written": "added gitlease to {0}",
        "unchanged": "{0} is already up to date",
        "removed": "removed gitlease from {0}",
        "absent": "gitlease is not in {0}",
        "kept": "kept the gitlease section of {0}: another host has the hooks",
    }
    for done in body["files"]:
        output.line(said[done["what"]].format(done["file"]))
    if body["action"] != "status":
        return
    output.line(f"{body['file']}: " + (", ".join(body["events"]) or "no gitlease hooks"))
    if body["events"]:
        ends = "are kept" if body["keeps_leases"] else "end, and tasks stay assigned"
        output.line(f"at the end of a session its leases {ends}")
        if body["missing"]:
            output.line(f"missing or outdated: {', '.join(body['missing'])}")
    output.line(f"gitlease is {body['program'] or 'not on PATH'}")
