"""``mcp``: serve leases as tools over the Model Context Protocol, and register that server."""

from __future__ import annotations

import gc
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import click

from gitlease.core.errors import GitleaseError, Invalid, UsageError, shown
from gitlease.faces.agents.handling import ACTIONS, HOSTS
from gitlease.faces.cli import output
from gitlease.faces.cli.verb import flag, refuse_options, verb
from gitlease.faces.codes import Violations

if TYPE_CHECKING:
    from gitlease.faces.cli.call import Call
    from gitlease.install.agent_setup import Registered, ServerSetup

EXTRA = "pip install 'gitlease[mcp]'"
HINTS = {
    "claude": "Claude Code asks once whether to allow the servers of a project",
    "codex": "Codex reads a project's file only if the project is trusted",
    "cursor": "enable the server in Cursor's settings, under MCP",
}


@verb(
    "mcp",
    """Serve leases as tools of the Model Context Protocol (MCP) on standard input and output, to
the agent that starts this. Or register the server with an agent (install), remove it (uninstall),
or test whether it is registered and answers (status).

The tools claim, renew, extend, release, next, status, wait and note work like the verbs. A refusal
says who holds the resource, until when, and what to do. No argument names the caller: the holder is
git's user.email, and the session is the agent's. When the server ends, leases claimed through it
end, and tasks stay assigned. With the hooks of `gitlease agent`, this happens at the end of the
agent's session instead. The gateway (gitlease serve) offers the same tools at /mcp. This needs pip
install 'gitlease[mcp]'.

install writes the agent's configuration in this work tree, for you to commit: .mcp.json,
.codex/config.toml or .cursor/mcp.json; with --user your own file instead. Other content stays; JSON
is written as the host itself writes it. Codex passes few variables to servers, so the file names
those that git's ssh needs.""",
    examples=(
        "gitlease mcp",
        "gitlease mcp install claude",
        "gitlease mcp install codex --user",
        "gitlease mcp status claude",
        "gitlease mcp uninstall cursor",
    ),
    exits=(1, 2, 5, 7, 128),
    no=("violations",),
    session=False,
)
@click.argument(
    "action", metavar=f"[{'|'.join(ACTIONS)}]", required=False, type=click.Choice(ACTIONS)
)
@click.argument("host", metavar=f"[{'|'.join(HOSTS)}]", required=False, type=click.Choice(HOSTS))
@flag("--user", help="Use your own file instead of the work tree's.")
def mcp_verb(call: Call, *, action: str | None, host: str | None, user: bool) -> int | None:
    elsewhere = {"--layer": call.layer, "--local": call.local, "--remote": call.remote}
    refuse_options(elsewhere, "mcp: the clone's settings name the ledger")
    if call.session or call.no_session:
        given = "--session" if call.session else "--no-session"
        raise UsageError(
            f"{given} cannot be combined with mcp: the session is the calling agent's",
            hints=("to use another one, set GITLEASE_SESSION where you start the agent",),
        )
    if action is not None:
        if host is None:
            raise UsageError(f"{action} needs one of {', '.join(HOSTS)}")
        return _set_up(call, action, host, user=user)
    if user:
        raise UsageError("--user needs install, uninstall or status")
    if call.json:
        raise UsageError("--json needs install, uninstall or status")
    _check_package()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # nothing is held yet
        signal.signal(number, lambda signum, _frame: os._exit(128 + signum))
    if sys.stdin.isatty():
        output.hint(["this is meant to be started by an agent; Ctrl-C stops it"])
    from gitlease.faces.mcp.stdio import serve

    gc.enable()  # this lasts as long as an agent's session
    return serve(call.directory)


def _check_package() -> None:
    from importlib.util import find_spec

    if find_spec("mcp") is None:
        raise Invalid("mcp needs the Python package mcp, which is not installed", hints=(EXTRA,))


def _set_up(call: Call, action: str, host: str, *, user: bool) -> int | None:
    from gitlease.install.agent_setup import set_up_server

    if action != "uninstall":
        _check_package()
    setup = set_up_server(call.directory or ".", host, action, user=user)
    server = setup.server if setup.server and setup.server.ours else None
    there = server is not None
    body: dict[str, Any] = {
        "host": host,
        "action": action,
        "file": setup.file,
        "what": setup.done.what if setup.done else None,
        "installed": there,
        "starts": list(server.command) if server else [],
        "tools": [],
    }
    if action == "status" and server is not None:
        body["tools"] = list(_tools(setup, server))
    hints = (HINTS[host],) if there and action == "install" else ()
    steps = {"install": "status", "status": None if there else "install"}.get(action)
    own = ["--user"] if user else []
    typed = [call.typed("mcp", steps, host, options=own)] if steps else []
    if action == "status" and not there:
        error = Violations(f"{setup.file} has no gitlease server", hints=tuple(typed))
        return call.fail(error, body, show=lambda: None)
    call.answer(body, hints=hints, next_steps=typed, show=lambda: _show(body))
    return None


def _tools(setup: ServerSetup, server: Registered) -> tuple[str, ...]:
    from gitlease.faces.mcp.probe import probe
    from gitlease.wiring.agents import passed_on

    program, root = server.command[0], os.path.realpath(setup.folder)
    there = os.path.realpath(os.path.join(root, program))
    if os.sep in program and os.path.commonpath([root, there]) == root:
        raise Invalid(
            f"{setup.file} starts {shown(program)}, a program in the work tree, "
            "which status does not run",
            hints=("inspect it, and run it yourself",),
        )
    try:
        return probe(server.command, setup.folder, passed_on(server.passed_on))
    except GitleaseError as error:
        error.message = f"{setup.file}: {error.message}"
        raise


def _show(body: dict[str, Any]) -> None:
    done = {
        "written": "added the gitlease server to {0}",
        "unchanged": "{0} already has the gitlease server",
        "removed": "removed the gitlease server from {0}",
        "absent": "{0} has no gitlease server",
    }
    if body["what"] is not None:
        output.line(done[body["what"]].format(body["file"]))
    elif body["installed"]:
        output.line(f"{body['file']} starts it: {' '.join(body['starts'])}")
        output.line(f"it answers, with the tools {', '.join(body['tools'])}")
