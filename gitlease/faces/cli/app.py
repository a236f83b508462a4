"""The table of verbs, and the code around each of them."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from gitlease import __version__, engine
from gitlease.core.errors import GitleaseError, UsageError
from gitlease.faces.cli import output
from gitlease.faces.cli.call import Call, Opener, open_real, report_fault, tell
from gitlease.faces.cli.verb import CONTEXT, Option, command, shared_options, suggestions
from gitlease.verbs.table import BROKEN_PIPE, INTERNAL, INTERRUPTED, TABLE, exit_of, find_verb

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# Verb, its module below this package unless it stands in the table, and its line in the list.
GROUPS: tuple[tuple[str, tuple[tuple[str, str, str], ...]], ...] = (
    (
        "Work under a lease",
        (
            ("claim", "", "take a lease, or renew your own"),
            ("renew", "", "keep a lease alive (heartbeat)"),
            ("extend", "", "lengthen a lease for a known gap"),
            ("park", "", "keep a lease for your next session, without renewals"),
            ("release", "", "give a lease back"),
            ("done", "", "finish work and complete its lease"),
            ("land", "", "finish a task and push it, all in one step"),
            ("session", "", "list your sessions, or end one with all its leases"),
            ("push", "push", "push work that lands only while you hold its leases"),
            ("fence", "", "check a token before a step that cannot be undone"),
            ("note", "", "leave a note for the next holder"),
            ("run", "running", "run a command while you hold leases"),
            ("dispatch", "running", "run a command in the background, with a log"),
            ("work", "running", "run a pool: a command for one task after another"),
        ),
    ),
    (
        "The task queue",
        (
            ("queue", "", "list claimable tasks, best first"),
            ("next", "", "show or claim the next task"),
            ("brief", "", "one page to start with: your work, losses, notes, next"),
            ("set", "", "set the status of a task; in progress claims it"),
            ("add", "", "add a task file like those that are there"),
        ),
    ),
    (
        "See what is going on",
        (
            ("show", "", "show one resource: holder, time left, notes"),
            ("list", "", "list all leases, yours and theirs"),
            ("status", "", "show the ledger at a glance"),
            ("log", "", "show the audit trail"),
            ("check", "check", "check commits, and find stale claims (for CI)"),
            ("verify", "", "check the ledger's history independently"),
            ("wait", "", "wait until something is free"),
            ("watch", "", "print the events of leases as they happen"),
            ("board", "board", "a live board of tasks and leases"),
            ("whoami", "", "show your holder and session, and their sources"),
        ),
    ),
    (
        "Set up and govern",
        (
            ("init", "", "set up this repository"),
            ("doctor", "setup.health", "examine this clone and its remote, and mend"),
            ("config", "setup.help", "show or set settings and the ledger's policy"),
            ("hooks", "setup.installing", "manage git's hooks: install, uninstall, status"),
            ("server", "setup.installing", "manage the hook of a git server"),
            ("serve", "setup.serve", "serve the ledger over HTTP, and manage its tokens"),
            ("revoke", "", "end someone else's lease (admins)"),
            ("agent", "setup.installing", "manage the hooks of coding agents"),
            ("mcp", "setup.installing", "serve leases as tools for agents (MCP)"),
            ("selftest", "setup.health", "prove on your own remote that leases hold there"),
            ("demo", "setup.demo", "watch two workers in a throw-away repository"),
            ("uninstall", "setup.installing", "remove gitlease from this clone"),
            ("completion", "setup.help", "print a completion script for your shell"),
            ("help", "setup.help", "show the help of a verb or topic"),
        ),
    ),
)
DAILY = ("init", "claim", "release", "done", "next", "queue", "brief", "show", "list", "run")
COMPLETE = "_GITLEASE_COMPLETE"  # as click's completion scripts set it
ALIASES = {  # the words of other systems
    "lock": "claim",
    "take": "claim",
    "unlock": "release",
    "unclaim": "release",
    "finish": "done",
    "start": "set",  # RESOURCE in_progress
}
MODULES = {verb: module for _, verbs in GROUPS for verb, module, _ in verbs}
MORE = tuple(verb for verb in TABLE if verb.partition(" ")[0] not in MODULES)
MODULES |= dict.fromkeys(MORE, "")

ABOUT = """Leases for repositories: the git remote you already share is the lock server.

Take a lease before you start to work on something, renew it while you work, and release it when you
stop. Only one of all who share the remote gets it. A lease that is not renewed ends by itself."""


class Verbs(click.Group):
    """The group of all verbs; a verb's module is imported when the verb is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = ALIASES.get(cmd_name, cmd_name)
        if name not in MODULES:
            return None
        if not MODULES[name]:
            return command(name)
        module = import_module(f"gitlease.faces.cli.{MODULES[name]}")
        verb: click.Command
        # A verb of the table with more options of the command line, or one of this door alone.
        if (made := getattr(module, f"{name}_command", None)) is not None:
            verb = made()
        else:
            verb = getattr(module, f"{name}_verb")
        return verb

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = ALIASES.get(args[0], args[0])
        if name not in MODULES and not name.startswith("-"):
            # click suggests commands only since 8.4, and 8.1.7 is enough for everything else.
            near = suggestions(name, [*MODULES, *ALIASES])
            prog = ctx.info_name or "gitlease"
            hints = tuple(f"did you mean {prog} {verb}?" for verb in near)
            raise UsageError(f"unknown command {name[:60]!r}", hints=hints)
        # Not while a shell completes the words: they would move by one.
        if args[0] == "start" and not ctx.resilient_parsing:
            args = [*args, "in_progress"]
        return super().resolve_command(ctx, [name, *args[1:]])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        return super().shell_complete(ctx, incomplete) + [
            CompletionItem(alias, help=f"the same as {verb}")
            for alias, verb in ALIASES.items()
            if alias.startswith(incomplete)
        ]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        short = {verb: text for _, verbs in GROUPS for verb, _, text in verbs}
        with formatter.section("Every day"):
            formatter.write_dl([(verb, short[verb]) for verb in DAILY])
        formatter.write_paragraph()
        formatter.write(f"more: {ctx.info_name} help verbs\n")
        formatter.write(_explains(ctx))


def list_of_verbs(ctx: click.Context) -> str:
    """Return all verbs in their groups, each with its line."""
    formatter = ctx.make_formatter()
    for title, verbs in GROUPS:
        with formatter.section(title):
            formatter.write_dl([(verb, short) for verb, _, short in verbs])
    if MORE:
        with formatter.section("More"):
            formatter.write_dl([(x, find_verb(x).help.partition("\n\n")[0]) for x in MORE])
    formatter.write_paragraph()
    formatter.write(_explains(ctx))
    return formatter.getvalue().strip("\n")


def _explains(ctx: click.Context) -> str:
    return f"{ctx.info_name} VERB --help explains a verb, with examples.\n"


def show_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    """Print the version and stop."""
    if value:
        print(f"gitlease {__version__}")
        ctx.exit()


def _top(ctx: click.Context) -> None:
    if ctx.invoked_subcommand is None:
        print(ctx.get_help())
    else:
        ctx.obj.command = ctx.invoked_subcommand


def application() -> click.Group:
    """Return the command line as a click group."""
    return Verbs(
        callback=click.pass_context(_top),
        help=ABOUT,
        invoke_without_command=True,
        context_settings=CONTEXT,
        subcommand_metavar="VERB [WORDS]...",
        params=[
            Option(
                ["-V", "--version"],
                is_flag=True,
                is_eager=True,
                expose_value=False,
                callback=show_version,
                help="Print the version.",
            ),
            *shared_options(session=True, verb=False),
        ],
    )


def run(argv: Sequence[str], *, prog: str = "gitlease", opener: Opener = open_real) -> int:
    """Run one command line and return its exit status. Raises nothing."""
    output.begin()
    options = list(argv)[: argv.index("--")] if "--" in argv else list(argv)
    # Before click has read anything: a usage error is answered in JSON, too.
    call = Call(prog=prog, opener=opener, json="--json" in options)
    try:
        status = _carry_out(call, argv)
        sys.stdout.flush()
        return status
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        output.forget_stdout()
        return BROKEN_PIPE
    except OSError as error:
        output.forget_stdout()
        # Without a file name, the error concerns our own output.
        subject = os.fsdecode(error.filename or "the answer could not be written")
        # A full disk must not look as if nothing had been claimed.
        sent = "the command may have taken effect" if engine.may_have_sent() else "nothing was sent"
        with contextlib.suppress(OSError, ValueError):
            output.aside(f"{subject}: {error.strerror}; {sent}")
        return exit_of(INTERNAL)
    except Exception as error:
        traceback = "--traceback" in options or sys.flags.dev_mode
        return report_fault(call, error, traceback=traceback)


def _carry_out(call: Call, argv: Sequence[str]) -> int:
    try:
        # Not click's own main(): it exits with 1 on a broken pipe, which means "held" here.
        app = application()
        if instruction := os.environ.get(COMPLETE):
            from click.shell_completion import shell_complete

            try:
                return shell_complete(app, {"obj": call}, "gitlease", COMPLETE, instruction)
            except (click.ClickException, GitleaseError):
                # A message would appear in the line being typed.
                return 0
        with app.make_context(call.prog, list(argv), obj=call) as context:
            result: Any = app.invoke(context)
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except click.ClickException as wrong:
        return tell(call, _as_ours(call, wrong))
    except GitleaseError as error:
        return tell(call, error)
    return result if isinstance(result, int) else 0


def _as_ours(call: Call, wrong: click.ClickException) -> UsageError:
    # All messages begin in lower case and have one line, also click's.
    context = getattr(wrong, "ctx", None)
    if context is not None and context.parent is not None:
        call.command = context.info_name
    if isinstance(wrong, click.NoSuchOption):
        near = suggestions(wrong.option_name, wrong.possibilities or ())
        wrong = click.NoSuchOption(wrong.option_name, possibilities=near)
    message = " ".join(wrong.format_message().split()).rstrip(".")
    return UsageError(message[:1].lower() + message[1:])
