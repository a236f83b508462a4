"""``mcp``: the tools for agents that speak the Model Context Protocol, and who starts them."""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from gitlease.core.errors import GitleaseError, Invalid, UsageError, shown
from gitlease.faces.agents.handling import ACTIONS, HOSTS
from gitlease.faces.cli import output
from gitlease.faces.cli.verb import Verb, flag

if TYPE_CHECKING:
    from gitlease.faces.cli.call import Call
    from gitlease.install.agents.servers import Registered
    from gitlease.install.agents.setup import ServerSetup

EXTRA = "pip install 'gitlease[mcp]'"
HINTS = {
    "claude": "Claude Code asks once whether servers of a project may run",
    "codex": "Codex reads a project's file only where the project is trusted",
    "cursor": "Cursor starts servers that are switched on in its settings, under MCP",
}


@click.command(
    "mcp",
    cls=Verb,
    help="""Serve leases as tools of the Model Context Protocol, to the agent that starts this, on
standard input and output; or have an agent start it (install), no more (uninstall), or say whether
it would, and whether the server answers (status).

The tools are claim, renew, extend, release, next, status, wait and note, and mean what the verbs
mean. A refusal says who holds it, until when, and what to do. Nothing says who calls: the holder is
git's user.email, and the session that of the agent. What was claimed through a server is dropped
when that ends; tasks stay assigned. Where the hooks of gitlease agent are installed, they do that
at the end of the agent's session instead. The gateway (gitlease serve) has the same tools at /mcp.
This needs what pip install 'gitlease[mcp]' brings.

install writes the file that the agent reads in this work tree, to be committed: .mcp.json,
.codex/config.toml or .cursor/mcp.json; with --user the person's own. All that others have in it
stays to the byte, and so it does with uninstall. Codex passes few variables on to servers: those
that git's ssh needs are named there.""",
    examples=(
        "gitlease mcp",
        "gitlease mcp install claude",
        "gitlease mcp install codex --user",
        "gitlease mcp status claude",
        "gitlease mcp uninstall cursor",
    ),
    exits=(2, 5, 7, 128),
    session=False,
)
@click.argument(
    "action", metavar=f"[{'|'.join(ACTIONS)}]", required=False, type=click.Choice(ACTIONS)
)
@click.argument("host", metavar=f"[{'|'.join(HOSTS)}]", required=False, type=click.Choice(HOSTS))
@flag("--user", help="The person's own file instead of the work tree's.")
@click.pass_obj
def mcp_verb(call: Call, *, action: str | None, host: str | None, user: bool) -> int | None:
    elsewhere = {"--layer": call.layer, "--local": call.local, "--remote": call.remote}
    if odd := [word for word, given in elsewhere.items() if given]:
        raise UsageError(f"{odd[0]} does not go with mcp: the clone's settings name the ledger")
    if call.session or call.no_session:
        given = "--session" if call.session else "--no-session"
        raise UsageError(
            f"{given} does not go with mcp: the session is that of the agent that calls",
            hints=("to speak as another one, set GITLEASE_SESSION where the agent is started",),
        )
    if action is not None:
        if host is None:
            raise UsageError(f"{action} needs one of {', '.join(HOSTS)}")
        _set_up(call, action, host, user=user)
        return None
    if user:
        raise UsageError("--user goes with install, uninstall and status")
    if call.json:
        raise UsageError("--json goes with install, uninstall and status: the protocol has its own")
    _check_package()
    if sys.stdin.isatty():
        output.hint(["an agent starts this, and speaks to it: Ctrl-C ends it"])
    from gitlease.faces.mcp.stdio import serve

    gc.enable()  # this lasts as long as an agent's session
    return serve(call.directory)


def _check_package() -> None:
    from importlib.util import find_spec

    if find_spec("mcp") is None:
        raise Invalid("this needs the package mcp, which is not installed here", hints=(EXTRA,))


def _set_up(call: Call, action: str, host: str, *, user: bool) -> None:
    from gitlease.install.agents.setup import set_up_server

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
    call.answer(
        body,
        hints=hints,
        next_steps=[call.typed("mcp", steps, host, options=own)] if steps else [],
        show=lambda: _show(body),
    )


def _tools(setup: ServerSetup, server: Registered) -> tuple[str, ...]:
    from gitlease.faces.mcp.probe import probe
    from gitlease.wiring.agents import passed_on

    program, root = server.command[0], os.path.realpath(setup.folder)
    there = os.path.realpath(os.path.join(root, program))
    if os.sep in program and os.path.commonpath([root, there]) == root:
        raise Invalid(
            f"{setup.file} starts {shown(program)}, a program of the work tree: "
            "status starts none of those",
            hints=("see what it is, and start it yourself",),
        )
    try:
        return probe(server.command, setup.folder, passed_on(server.passed_on))
    except GitleaseError as error:
        error.message = f"{setup.file}: {error.message}"
        raise


def _show(body: dict[str, Any]) -> None:
    told = {
        "written": "wrote our server into {0}",
        "unchanged": "{0} has it: nothing to do",
        "removed": "took our server out of {0}",
        "absent": "{0} has nothing of ours",
    }
    if body["what"] is not None:
        output.line(told[body["what"]].format(body["file"]))
    elif body["installed"]:
        output.line(f"{body['file']} has it: {' '.join(body['starts'])}")
        output.line(f"it answers, with the tools {', '.join(body['tools'])}")
    else:
        output.line(f"{body['file']} has no server of ours")
