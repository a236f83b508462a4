"""``server``: install, remove and test the hook of a bare repository on a host."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from gitlease.faces.cli import output
from gitlease.faces.cli.verb import option, refuse_options, verb
from gitlease.faces.codes import Violations

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gitlease.faces.cli.call import Call
    from gitlease.install.server import ServerDone, ServerState

ACTIONS = ("install", "status", "uninstall")


@verb(
    "server",
    """Make a server refuse what clients can only avoid: install its hook (install), test it
(status), or remove it (uninstall). DIR is a bare repository on the host. Run this as the user that
git runs as there.

The hook judges every push by the server's own clock. A ledger may only change by operations that
gitlease itself would make, on behalf of the person who pushes. Commits that touch what someone else
holds are refused. --mode warn accepts everything, and reports what it would have refused.

--identity names the variable in which the host passes the name of the user who pushes: GL_USERNAME
(GitLab), GITEA_PUSHER_NAME, GITHUB_USER_LOGIN, GL_USER (gitolite), REMOTE_USER (a web server), or
any other that no client can set. If the name is not an email address, map it in the repository's
configuration: git config gitlease.USER.holder EMAIL. Without --identity, the hook cannot check who
changes a ledger, and does not judge commits: --no-identity says that this is meant.

--gateway names a user, in terms of this variable, who pushes for a gateway (gitlease serve). Such a
push may carry the operations of several people, each judged as their own. Operations reserved for
admins pass only if the gateway itself is an admin of the ledger. The given names replace the
earlier list; git config --unset-all gitlease.gateways clears it.

An existing hook is kept. It is called before ours, which judges last, with the same input and under
its own name, but from the folder hooks/gitlease.d (this matters if it looks for files beside $0).
uninstall restores it byte for byte. If the host calls all hooks in a folder (Gitea's pre-receive.d,
GitLab's custom_hooks), ours is added there as the last, zz-gitlease. If gitlease fails or is
missing, every push is refused in mode block, and accepted with a warning in mode warn. Run install
again after an upgrade: this renews the hook and changes no settings.""",
    examples=(
        "gitlease server install --identity GL_USER /srv/git/project.git",
        "gitlease server install --identity GL_USER --gateway leases /srv/git/project.git",
        "gitlease server install --no-identity --mode warn /srv/git/project.git",
        "gitlease server status /srv/git/project.git",
        "gitlease server uninstall /srv/git/project.git",
    ),
    exits=(1, 2, 7, 128),
    done="done; for status: the hook works",
    no=("violations",),
    session=False,
)
@click.argument("action", metavar="|".join(ACTIONS), type=click.Choice(ACTIONS))
@click.argument("folder", metavar="DIR")
@option(
    "--mode",
    metavar="block|warn",
    type=click.Choice(("block", "warn")),
    help="Refuse pushes, or only warn (default: block).",
)
@option("--identity", metavar="VARIABLE", help="The variable that names who pushes.")
@option("--no-identity", is_flag=True, help="Install although nobody can tell who pushes.")
@option(
    "--gateway",
    multiple=True,
    metavar="NAME",
    help="A user who may push operations of others; repeatable.",
)
def server_verb(
    call: Call,
    *,
    action: str,
    folder: str,
    mode: str | None,
    identity: str | None,
    no_identity: bool,
    gateway: Sequence[str],
) -> int | None:
    from gitlease.install.server import (
        check_identity,
        install_server,
        server_state,
        uninstall_server,
    )
    from gitlease.wiring.server import find_bare

    if action != "install":
        given = {"--mode": mode, "--identity": identity, "--gateway": gateway}
        refuse_options(given | {"--no-identity": no_identity or None}, action)
    place = find_bare(os.path.join(call.directory or ".", folder))
    if action == "status":
        return _show(call, server_state(place), folder)
    if action == "uninstall":
        _answer(call, uninstall_server(place), action)
        return None
    check_identity(place, identity, gateways=gateway, no_identity=no_identity)
    done = install_server(place, mode=mode, identity=identity, gateways=gateway or None)
    _answer(call, done, action, server_state(find_bare(place.common_dir)), folder)
    return None


def _answer(
    call: Call, done: ServerDone, action: str, state: ServerState | None = None, folder: str = ""
) -> None:
    body: dict[str, Any] = {
        "action": action,
        "hook": done.place.hook,
        "changes": list(done.changes),
    }
    warnings = list(done.notes)
    if state is not None:
        body |= _facts(state)
        warnings += _warnings(state)

    def show() -> None:
        for text in done.changes:
            output.line(text)
        if not done.changes:
            output.line("nothing to do")

    status = call.typed("server", "status", folder)
    call.answer(
        body, warnings=warnings, next_steps=[status] if action == "install" else [], show=show
    )


def _facts(state: ServerState) -> dict[str, Any]:
    settings = state.settings
    return {
        "installed": state.installed,
        "live": state.installed and not state.problem,
        "proven": state.proven,
        "current": state.current,
        "way": state.way,
        "mode": settings.mode,
        "identity": settings.identity,
        "holders": {user: list(emails) for user, emails in settings.holders.items()},
        "gateways": list(settings.gateways),
        "ref_prefix": settings.prefix,
        "program": state.program,
        "kept": state.kept,
        "problem": state.problem or None,
    }


def _warnings(state: ServerState) -> list[str]:
    warnings = [state.problem] if state.problem else []
    if state.installed and not state.proven and not state.problem:
        warnings.append("the host calls the hook itself, which cannot be tested from here")
    if state.installed and state.settings.identity is None:
        warnings.append(
            "without an identity the hook cannot see who pushes: anyone can act for someone else, "
            "and commits are not judged"
        )
    return warnings


def _show(call: Call, state: ServerState, folder: str) -> int | None:
    body = {"hook": state.hook, **_facts(state)}
    missing = state.problem or ("" if state.installed else "not installed")

    def show() -> None:
        fires = "proven: git calls it" if state.proven else "not proven"
        settings = state.settings
        rows = [
            ("hook", f"{state.hook}, {fires if state.installed else 'not installed'}"),
            ("by", state.way),
            ("mode", settings.mode),
            ("identity", settings.identity or "none: everything is judged but who pushes"),
            ("ledgers", f"{settings.prefix}/<layer>"),
            ("starts", state.program or "nothing"),
        ]
        rows += [("gateway", name) for name in settings.gateways]
        rows += [("kept", state.kept)] if state.kept else []
        people = (f"{user} is {', '.join(them)}" for user, them in settings.holders.items())
        rows += [("holder", text) for text in people]
        output.facts(rows)

    if not missing:
        call.answer(body, warnings=_warnings(state), show=show)
        return None
    hints = (call.typed("server", "install", folder),)
    error = Violations(f"the hook does not work: {missing}", hints=hints)
    return call.fail(error, body, show=show)
