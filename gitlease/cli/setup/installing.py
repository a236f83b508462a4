"""``hooks``, ``agent``, ``mcp``, ``server``, ``uninstall``: parts in places of others."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click

from gitlease.agents.handling import ACTIONS, is_event, run
from gitlease.agents.opening import passed_on
from gitlease.agents.setup import (
    Registered,
    ServerSetup,
    remove_all,
    set_up_agent,
    set_up_server,
)
from gitlease.cli import output
from gitlease.cli.app import completed, flag, option, refuse_options, verb
from gitlease.cli.call import Call
from gitlease.guard.entry import HOOKS
from gitlease.guard.hook_places import Way, manager_install
from gitlease.guard.install import HookState, hook_states, install_hooks, uninstall
from gitlease.kernel.rules.errors import GitleaseError, Hint, Invalid, UsageError, shown
from gitlease.kernel.rules.lease import same_person
from gitlease.kernel.settings.identity import AGENTS
from gitlease.server.install import (
    ServerState,
    check_identity,
    install_server,
    server_state,
    uninstall_server,
)
from gitlease.server.opening import find_bare
from gitlease.verbs.table import Details, Result, Table, Violations, Whole
from gitlease.wiring.words import to_add_extras
from gitlease.wiring.workspace import discover


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
def hooks_verb(call: Call, *, action: str, dry_run: bool, only: Sequence[str]) -> int:
    if action != "install":
        unused = {"--dry-run": dry_run} if action == "status" else {"--only": only}
        refuse_options(unused, action)
    repository, names = discover(call.directory or "."), only or tuple(HOOKS)
    if action == "status":
        states = [state for state in hook_states(repository) if state.name in names]
        return _show_hooks(call, states)
    if action == "install":
        plan = install_hooks(repository, names, dry_run=dry_run)
    else:
        plan = uninstall(repository, dry_run=dry_run)
    lines = [Whole(text) for text in plan.lines]
    if not plan.changes and not plan.lines:
        lines.insert(0, Whole("nothing to do"))
    installs, failure = action == "install", None
    if installs and plan.lines and not plan.changes and not dry_run:
        message = "nothing was installed: add the lines shown yourself"
        failure = Violations(message, hints=(Hint("hooks status", {}),))
    head = f"{'would install' if dry_run else 'installing'} into {plan.where}"
    return call.respond(
        Result(
            body={
                "action": action,
                "way": plan.way.value,
                "dry_run": dry_run,
                "changes": list(plan.messages),
                "to_add": list(plan.lines),
            },
            lines=lambda: [
                *([head] if installs and plan.messages else []),
                *(f"would have {text}" if dry_run else text for text in plan.messages),
                *lines,
            ],
            failure=failure,
            warnings=plan.notes,
            then=[Hint("hooks status", {})] if installs and plan.changes and not dry_run else [],
        )
    )


def _show_hooks(call: Call, states: Sequence[HookState]) -> int:
    def row(s: HookState) -> tuple[str, ...]:
        live = ("live" if s.proven else "live, not proven") if s.live else "not live"
        return (s.name, live, s.way, s.program or "", s.problem)

    table = Table(
        headings=("HOOK", "STATE", "BY", "STARTS", "PROBLEM"),
        rows=[row(s) for s in states],
        styles=["" if s.live else "dim" for s in states],
    )
    missing, failure = [s for s in states if not s.live], None
    if missing:
        awaiting = [s for s in missing if s.awaits]
        hints = [manager_install(Way(s.way), [x.name for x in awaiting]) for s in awaiting[:1]]
        hints += [Hint("hooks install", {})] if len(awaiting) < len(missing) else []
        message = f"not live: {', '.join(s.name for s in missing)}"
        failure = Violations(message, hints=tuple(hints))
    facts = [
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
    return call.respond(Result(body={"hooks": facts}, lines=lambda: [table], failure=failure))


# --- agent -----------------------------------------------------------------------------------


@verb(
    "agent",
    """Install gitlease's hooks into a coding agent (install), remove them (uninstall), or list them
(status).

HOST is claude, codex or cursor. With the hooks, an agent learns at the start of a session what is
leased, cannot edit a file that someone else holds, has its leases renewed as it works, and loses
them at its end, while its tasks stay assigned. Only tools that edit files are checked. Files
written by shell commands are checked by git's hooks and in CI. A shell command that discards work
or switches the branch (git reset --hard, checkout, restore, clean -f, switch, rm -r) is denied
while another session works in that work tree, and git stash while one works in any work tree of the
clone. This is best effort: only the text of the command is read.

install edits the host's file in the work tree, for you to commit, or with --user your own file, for
all repositories. The file is written as JSON, as the host writes it. uninstall removes our entries,
and the parts or the file that they leave empty; the section of AGENTS.md goes with the last host.
ACTION may also be an event, for the hooks themselves: JSON on standard input, a decision on
standard output, exit 0.""",
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
@click.argument("host", metavar="HOST", shell_complete=completed("agent_words"))
@click.argument("action", metavar="ACTION", shell_complete=completed("agent_words"))
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
) -> int:
    # Before anything is refused: a host takes a usage error for a refusal of the tool.
    if is_event((host, action)):
        return run((host, action, *words, *(["--keep"] if keep else [])))
    if host not in AGENTS:
        raise UsageError(
            f"unknown agent {host[:60]!r}", hints=(f"known agents: {', '.join(AGENTS)}",)
        )
    if action not in ACTIONS or words:
        odd = " ".join((action, *words))
        raise UsageError(
            f"unknown action {odd[:60]!r}", hints=(f"known actions: {', '.join(ACTIONS)}",)
        )
    if user and agents_md:
        raise UsageError("--agents-md cannot be combined with --user")
    folder = call.directory or "."
    setup = set_up_agent(folder, host, action, user=user, keep=keep, section=agents_md)
    state = setup.state
    body: dict[str, Any] = {
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
    failure, hints = None, setup.hints
    if action == "status" and (not body["installed"] or setup.is_off):
        repair = () if setup.is_off else (Hint(f"agent {host} install", {"user": user}),)
        message, hints = f"{state.file} has no hooks of gitlease", ()
        if setup.is_off:
            message = "the hooks are switched off"
        elif state.events:
            message = f"{state.file} lacks hooks: {', '.join(dict.fromkeys(state.missing))}"
        failure = Violations(message, hints=(*setup.hints, *repair))
    return call.respond(
        Result(
            body=body,
            lines=lambda: _agent_lines(body),
            failure=failure,
            warnings=setup.warnings,
            hints=hints,
        )
    )


def _agent_lines(body: dict[str, Any]) -> Iterable[str]:
    for done in body["files"]:
        yield _DONE[done["what"]].format("gitlease", done["file"])
    if body["action"] != "status":
        return
    yield f"{body['file']}: " + (", ".join(body["events"]) or "no gitlease hooks")
    if body["events"]:
        ends = "are kept" if body["keeps_leases"] else "end, and tasks stay assigned"
        yield f"at the end of a session its leases {ends}"
        if body["missing"]:
            yield f"missing or outdated: {', '.join(body['missing'])}"
    yield f"gitlease is {body['program'] or 'not on PATH'}"


_DONE = {
    "written": "added {0} to {1}",
    "unchanged": "{1} already has {0}",
    "removed": "removed {0} from {1}",
    "absent": "{1} does not have {0}",
    "kept": "kept the gitlease section of {1}: another host has the hooks",
}


# --- mcp -------------------------------------------------------------------------------------


@verb(
    "mcp",
    """Serve leases as tools of the Model Context Protocol (MCP) on standard input and output, to
the agent that starts this. Or register the server with an agent (install), remove it (uninstall),
or test whether it is registered and answers (status).

The tools claim, renew, extend, release, next, status, wait, note, log and add work like the verbs.
A refusal says who holds the resource, until when, and what to do. No argument names the caller: the
holder is git's user.email, and the session is the agent's. When the server ends, leases claimed
through it end, and tasks stay assigned. With the hooks of `gitlease agent`, this happens at the end
of the agent's session instead. The gateway (gitlease serve) offers the same tools at /mcp, without
add. This needs the extra `mcp` of gitlease; without it, the command that adds it is printed.

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
    refuses=("layer", "local", "remote"),
)
@click.argument(
    "action", metavar=f"[{'|'.join(ACTIONS)}]", required=False, type=click.Choice(ACTIONS)
)
@click.argument("host", metavar=f"[{'|'.join(AGENTS)}]", required=False, type=click.Choice(AGENTS))
@flag("--user", help="Use your own file instead of the work tree's.")
def mcp_verb(call: Call, *, action: str | None, host: str | None, user: bool) -> int:
    elsewhere = {"--layer": call.layer, "--local": call.local, "--remote": call.remote}
    refuse_options(elsewhere, "mcp: the clone's settings name the ledger")
    # It would be ignored without a word.
    if call.session or call.no_session:
        given = "--session" if call.session else "--no-session"
        raise UsageError(
            f"{given} cannot be combined with mcp: the session is the calling agent's",
            hints=("to use another one, set GITLEASE_SESSION where you start the agent",),
        )
    if action is not None:
        if host is None:
            raise UsageError(f"{action} needs one of {', '.join(AGENTS)}")
        return _set_up_mcp(call, action, host, user=user)
    if user:
        raise UsageError("--user needs install, uninstall or status")
    if call.json:
        raise UsageError("--json needs install, uninstall or status")
    _check_package()
    # Nothing is held yet, and the libraries that are loaded next take a second.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda signum, _frame: os._exit(128 + signum))
    if sys.stdin.isatty():
        output.hint(["this is meant to be started by an agent; Ctrl-C stops it"])
    # The program starts without the collector of garbage; this lasts as long as an agent's session.
    gc.enable()
    from gitlease.mcp.stdio import serve

    return serve(call.directory)


def _check_package() -> None:
    from importlib.util import find_spec

    if find_spec("mcp") is None:
        what = "mcp needs the Python package mcp, which is not installed"
        raise Invalid(what, hints=(to_add_extras(),))


def _set_up_mcp(call: Call, action: str, host: str, *, user: bool) -> int:
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
    hints = (AGENTS[host].server_hint,) if there and action == "install" else ()
    step = {"install": "status", "status": None if there else "install"}.get(action)
    then = [Hint(f"mcp {step} {host}", {"user": user})] if step else []
    if action == "status" and not there:
        error = Violations(f"{setup.file} has no gitlease server", hints=tuple(then))
        return call.respond(Result(body=body, failure=error))
    result = Result(body=body, lines=lambda: _mcp_lines(body), hints=hints, then=then)
    return call.respond(result)


def _tools(setup: ServerSetup, server: Registered) -> tuple[str, ...]:
    program, root = server.command[0], os.path.realpath(setup.folder)
    there = os.path.realpath(os.path.join(root, program))
    # Whoever can push a file to this repository could have it run.
    if os.sep in program and os.path.commonpath([root, there]) == root:
        raise Invalid(
            f"{setup.file} starts {shown(program)}, a program in the work tree, "
            "which status does not run",
            hints=("inspect it, and run it yourself",),
        )
    try:
        from gitlease.mcp.stdio import probe

        return probe(server.command, setup.folder, passed_on(server.passed_on))
    except GitleaseError as error:
        raise error.with_(message=f"{setup.file}: {error.message}") from None


def _mcp_lines(body: dict[str, Any]) -> Iterable[str]:
    if body["what"] is not None:
        yield _DONE[body["what"]].format("the gitlease server", body["file"])
    elif body["installed"]:
        yield f"{body['file']} starts it: {' '.join(body['starts'])}"
        yield f"it answers, with the tools {', '.join(body['tools'])}"


# --- server ----------------------------------------------------------------------------------


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

--merger names a user who squashes or rebases the work of others, such as a merge queue. A new
commit that such a user pushes counts as the lease holder's if it names the present token and its
author is the holder, or one of the project's bots; anyone else's new commits count as the pusher's.

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
@option(
    "--merger",
    multiple=True,
    metavar="NAME",
    help="A user who squashes or rebases the work of others; repeatable.",
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
    merger: Sequence[str],
) -> int:
    if action != "install":
        given = {"--mode": mode, "--identity": identity, "--gateway": gateway}
        given |= {"--merger": merger}
        refuse_options(given | {"--no-identity": no_identity or None}, action)
    place = find_bare(os.path.join(call.directory or ".", folder))
    if action == "status":
        return _show_server(call, server_state(place), folder)
    if action == "uninstall":
        done, state = uninstall_server(place), None
    else:
        check_identity(place, identity, gateways=gateway, no_identity=no_identity)
        done = install_server(
            place,
            mode=mode,
            identity=identity,
            gateways=gateway or None,
            mergers=merger or None,
        )
        state = server_state(find_bare(place.common_dir))
    head = {"action": action, "hook": done.place.hook, "changes": list(done.changes)}
    return call.respond(
        Result(
            body=head | (_facts(state) if state else {}),
            lines=lambda: done.changes or ["nothing to do"],
            warnings=[*done.notes, *(_warnings(state) if state else ())],
            then=[Hint("server status", {"resources": [folder]})] if state else [],
        )
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
        "mergers": list(settings.mergers),
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


def _show_server(call: Call, state: ServerState, folder: str) -> int:
    settings = state.settings
    missing = state.problem or ("" if state.installed else "not installed")
    fires = "proven: git calls it" if state.proven else "not proven"
    people = (f"{user} is {', '.join(them)}" for user, them in settings.holders.items())
    rows = [
        ("hook", f"{state.hook}, {fires if state.installed else 'not installed'}"),
        ("by", state.way),
        ("mode", settings.mode),
        ("identity", settings.identity or "none: everything is judged but who pushes"),
        ("ledgers", f"{settings.prefix}/<layer>"),
        ("starts", state.program or "nothing"),
        *(("gateway", name) for name in settings.gateways),
        *(("merger", name) for name in settings.mergers),
        ("kept", state.kept or ""),
        *(("holder", text) for text in people),
    ]
    failure, repair = None, Hint("server install", {"resources": [folder]})
    if missing:
        failure = Violations(f"the hook does not work: {missing}", hints=(repair,))
    return call.respond(
        Result(
            body={"hook": state.hook, **_facts(state)},
            lines=lambda: [Details(rows=rows)],
            failure=failure,
            warnings=() if missing else _warnings(state),
        )
    )


# --- uninstall -------------------------------------------------------------------------------


@verb(
    "uninstall",
    """Remove gitlease from this clone: git's hooks, the hooks and tools of coding agents, settings,
and its private files. Refused while you hold leases that this clone knows of.

Others are not affected: .gitlease.yaml is removed from the work tree only, and the ledger stays on
the remote until someone deletes its ref, for everyone. The command for that is shown, and so is
anything that could not be removed. To remove the program itself: pip uninstall gitlease.""",
    examples=(
        "gitlease uninstall --dry-run",
        "gitlease uninstall",
        "gitlease uninstall --user       # also the agents' hooks in your own files",
    ),
    exits=(1, 2, 7, 128),
    done="removed, or there was nothing to remove",
    no=("violations",),
    session=False,
)
@flag("--dry-run", help="Print what would be done, and do nothing.")
@flag("--user", help="Also the agents' hooks in your own files, for all repositories.")
def uninstall_verb(call: Call, *, dry_run: bool, user: bool) -> int:
    repository = discover(call.directory or ".")
    held, stays = _known(call)
    # Nothing would renew or end them any more.
    if held and not dry_run:
        hints = (Hint("release", {"all": True}), Hint("session list", {}))
        raise Violations(f"you still hold {', '.join(held[:5])}: release it first", hints=hints)
    removed, failed = remove_all(repository, user=user, dry_run=dry_run)
    done = [f"would have {text}" for text in removed] if dry_run else removed
    done, rest = done or ["gitlease is not installed in this clone"], map(Whole, stays)
    failure = Violations(f"could not be removed: {'; '.join(failed)}") if failed else None
    body = {"dry_run": dry_run, "done": removed, "stays": stays}
    return call.respond(Result(body=body, lines=lambda: [*done, *rest], failure=failure))


def _known(call: Call) -> tuple[list[str], list[str]]:
    """Return the caller's cached leases, and what remains elsewhere; both empty on errors."""
    held: list[str] = []
    stays: list[str] = []
    try:
        spaces = call.workspace.in_use
        place = call.workspace.location
        for space in spaces:
            view = space.ledger.known_look()
            views = space.ledger.views_in(view.head, view.leases) if view is not None else ()
            holder = space.identity.actor.holder
            held += [
                x.resource for x in views if x.state == "active" and same_person(x.holder, holder)
            ]
            if view is not None and place.url is not None:
                ref = f"{space.settings.ref_prefix}/{space.layer}"
                stays.append(
                    f"the ledger {space.layer} stays; to delete it for everyone: "
                    f"git push {place.name or 'URL'} :{ref}"
                )
    except GitleaseError:
        pass
    return held, stays
