"""``server``: the hook of a bare repository on a host, put in place, taken out, and proven."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from gitlease.core.errors import UsageError
from gitlease.faces.cli import output, refusals
from gitlease.faces.cli.verb import Verb, option
from gitlease.faces.codes import Violations

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gitlease.faces.cli.call import Call
    from gitlease.install.server.install import ServerDone
    from gitlease.install.server.status import ServerState

ACTIONS = ("install", "status", "uninstall")


@click.command(
    "server",
    cls=Verb,
    help="""Have a server refuse what clients alone can only avoid (install), see that it does
(status), and take it out (uninstall). DIR is a bare repository on the host; run it as the user that
git runs as there.

The hook judges every push by the server's own clock: a ledger changes only by the moves that
gitlease itself would make, by the person who pushes, and commits that touch what another holds are
refused. --mode warn lets everything pass and says what it would have refused.

--identity names the variable in which the host says who pushes: GL_USERNAME (GitLab),
GITEA_PUSHER_NAME, GITHUB_USER_LOGIN, GL_USER (gitolite), REMOTE_USER (a web server), or another
that no client can set. A user that is no email is mapped in the repository's configuration:
git config gitlease.USER.holder EMAIL. Without --identity a ledger's changes are judged by
everything but who makes them, and work is not judged.

--gateway lists a user, by the name that this variable has, who pushes for a gateway (gitlease
serve): such a push may bring the steps of others, several in one, each judged as their own. What
only admins may goes through it where it is one of the ledger's admins itself. The names given
replace those listed before; git config --unset-all gitlease.gateways clears the list.

A hook that is there already is kept: it is called after ours with the same input, by its own name
but from the folder hooks/gitlease.d (mind it where the hook looks for files beside $0), and
uninstall puts it back to the byte. Where the host has a folder of hooks that it calls (Gitea's
pre-receive.d, or GitLab's custom_hooks) ours is one more of them. Where gitlease fails or is
missing, no push is accepted (mode block: what was not judged is refused) or every one is, with a
warning (mode warn). After an upgrade install it again: that renews the hook, and changes no
setting.""",
    examples=(
        "gitlease server install --identity GL_USER /srv/git/project.git",
        "gitlease server install --identity GL_USER --gateway leases /srv/git/project.git",
        "gitlease server install --mode warn /srv/git/project.git",
        "gitlease server status /srv/git/project.git",
        "gitlease server uninstall /srv/git/project.git",
    ),
    exits=(1, 2, 7, 128),
    done="done; for status: the hook fires",
    no=("violations",),
    session=False,
)
@click.argument("action", metavar="|".join(ACTIONS), type=click.Choice(ACTIONS))
@click.argument("folder", metavar="DIR")
@option(
    "--mode",
    metavar="block|warn",
    type=click.Choice(("block", "warn")),
    help="Refuse, or only say so (default: block).",
)
@option("--identity", metavar="VARIABLE", help="The variable that says who pushes.")
@option(
    "--gateway",
    multiple=True,
    metavar="NAME",
    help="A user who may push the steps of others; may be repeated.",
)
@click.pass_obj
def server_verb(
    call: Call,
    *,
    action: str,
    folder: str,
    mode: str | None,
    identity: str | None,
    gateway: Sequence[str],
) -> int | None:
    from gitlease.install.server.install import install_server, uninstall_server
    from gitlease.install.server.status import server_state
    from gitlease.wiring.server import find_bare

    given = {"--mode": mode, "--identity": identity, "--gateway": gateway or None}
    used = [name for name, value in given.items() if value is not None]
    if used and action != "install":
        raise UsageError(f"{used[0]} does not go with {action}")
    place = find_bare(os.path.join(call.directory or ".", folder))
    if action == "status":
        return _show(call, server_state(place), folder)
    if action == "uninstall":
        _answer(call, uninstall_server(place), action)
        return None
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
        warnings += _doubts(state)

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


def _doubts(state: ServerState) -> list[str]:
    """What the hook cannot do as it is."""
    said = []
    if state.problem:
        said.append(state.problem)
    if state.installed and not state.proven and not state.problem:
        said.append("the host calls it by itself, which cannot be proven from here")
    if state.installed and state.settings.identity is None:
        said.append(
            "without --identity it cannot see who pushes: nobody is kept from speaking for "
            "another, and work is not judged"
        )
    return said


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
        output.facts([(name, text, (text,)) for name, text in rows])

    if not missing:
        call.answer(body, warnings=_doubts(state), show=show)
        return None
    if not call.json:
        show()
    hints = (call.typed("server", "install", folder),)
    error = Violations(f"the hook does not fire: {missing}", hints=hints)
    return refusals.tell(call, error, body=body)
