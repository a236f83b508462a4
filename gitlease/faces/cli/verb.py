"""The class of all verbs: shared options, and a help page with examples and exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gitlease.core.errors import UsageError
from gitlease.faces.cli import types
from gitlease.verbs.codes import CODES

if TYPE_CHECKING:
    from gitlease.faces.cli.call import Call

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

# The option for help is among those that all verbs share.
CONTEXT: dict[str, Any] = {"help_option_names": [], "max_content_width": 100}
LEASE_EXITS = (1, 2, 4, 5, 6, 7, 128)
READING_EXITS = (2, 4, 5, 7, 128)
DONE = "done"
# Verbs without the progress line: they report themselves, or share the terminal with a command.
SILENT = frozenset({"run", "dispatch", "work", "watch", "wait", "push", "demo", "serve", "board"})
READING = frozenset(
    {"list", "queue", "status", "brief", "show", "log", "board", "wait", "watch", "verify"}
    | {"whoami"}  # as do `next` without --claim, and `session list`
)
HELD = ("held", "wait_timeout")


class Option(click.Option):
    """An option with a one-line help text, for which click would load ``inspect``."""

    def __init__(self, names: Sequence[str], *, help: str | None = None, **settings: Any) -> None:
        super().__init__(names, **settings)
        self.help = help


def flag(name: str, help: str, **settings: Any) -> Callable[[Decorated], Decorated]:
    """Decorate a verb with a switch; ``default=None`` marks one that was not given."""
    return click.option(name, cls=Option, is_flag=True, help=help, **settings)


def option(*names: str, **settings: Any) -> Callable[[Decorated], Decorated]:
    """Decorate a verb with an option."""
    return click.option(*names, cls=Option, **settings)


resource_argument = click.argument("word", metavar="RESOURCE", shell_complete=types.known_names)
resources_argument = click.argument(
    "words", metavar="RESOURCE...", shell_complete=types.known_names, nargs=-1, required=True
)
optional_resources_argument = click.argument(
    "words", metavar="[RESOURCE]...", shell_complete=types.known_names, nargs=-1
)
ref_option = option(
    "--ref",
    metavar="REF",
    help="Read the task files of this branch, tag or commit (default: the work tree).",
)


class Verb(click.Command):
    """A verb, with its own options before the shared ones, and examples and exit codes in its help.

    ``exits`` are its exit statuses besides 0, and ``no`` the error codes behind exit 1.
    ``own_exits`` are statuses of this verb alone, with their meanings. ``with_command`` passes the
    words after ``--`` as the parameter ``command``. ``bare`` maps options that never take the next
    word as their value to their default value.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        examples: Sequence[str],
        exits: Sequence[int],
        own_exits: Sequence[tuple[int, str]] = (),
        done: str = DONE,
        no: Sequence[str] = HELD,
        advice: Sequence[str] = (),
        scope: str = "",
        session: bool = True,
        cached: bool = False,
        with_command: bool = False,
        bare: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(name, context_settings=CONTEXT, **settings)
        self.with_command, self.bare = with_command, bare or {}
        self.examples, self.exits, self.done, self.advice = examples, exits, done, advice
        self.no, self.own_exits = no, own_exits
        if scope:
            self.params.append(Option(["--scope"], metavar="S", type=types.scope, help=scope))
        if cached:
            text = "Answer from what this clone knows, without asking the remote."
            self.params.append(Option(["--cached"], is_flag=True, help=text))
        self.params += shared_options(session=session)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        words = [f"{x}={self.bare[x]}" if x in self.bare else x for x in args[:end]]
        rest = args[end:]
        if self.with_command:
            ctx.params["command"] = () if ctx.resilient_parsing else tuple(rest[1:])
            rest = rest if ctx.resilient_parsing else []
        return super().parse_args(ctx, [*words, *rest])

    def invoke(self, ctx: click.Context) -> Any:
        _call(ctx).anonymous = self.name in READING
        if _call(ctx).json or self.name in SILENT or not sys.stderr.isatty():
            return super().invoke(ctx)
        from gitlease.faces.cli import progress

        with progress.shown():
            return super().invoke(ctx)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        pieces = super().collect_usage_pieces(ctx)
        return [*pieces, "--", "COMMAND [ARG]..."] if self.with_command else pieces

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        prog = ctx.find_root().info_name or "gitlease"
        if self.advice:
            _section(formatter, "How long", self.advice)
        _section(formatter, "Examples", [line.replace("gitlease", prog) for line in self.examples])
        lines = [f"{0:>3}  {self.done}", *(_exit_line(x, self.no) for x in self.exits)]
        lines += [f"{status:>3}  {meaning}" for status, meaning in self.own_exits]
        _section(formatter, "Exit codes", lines)


def verb(name: str, text: str, **settings: Any) -> Callable[[Callable[..., Any]], Verb]:
    """Make a function the verb ``name`` with this help text; it gets the ``Call`` first."""

    def decorate(function: Callable[..., Any]) -> Verb:
        return click.command(name, cls=Verb, help=text, **settings)(click.pass_obj(function))

    return decorate


def refuse_options(options: Mapping[str, Any], context: str) -> None:
    """Raise UsageError if one of these options was given; ``context`` is what rules it out."""
    for name, value in options.items():
        if value not in (None, False, ()):
            raise UsageError(f"{name} cannot be combined with {context}")


def suggestions(word: str, known: Sequence[str]) -> list[str]:
    """Return the known words that a mistyped one may stand for, but never its opposite."""
    from difflib import get_close_matches

    word = word.lower()
    near = get_close_matches(word, known, n=3, cutoff=0.6)
    return [x for x in near if _negates(x) == _negates(word) and x != f"re{word}"]


def _negates(word: str) -> bool:
    return word.startswith(("un", "--no-"))


def _section(formatter: click.HelpFormatter, title: str, lines: Sequence[str]) -> None:
    formatter.write_paragraph()
    formatter.write(f"{title}:\n")
    formatter.write("".join(f"  {line}\n" for line in lines))


def _exit_line(status: int, no: Sequence[str]) -> str:
    codes = [name for name, code in CODES.items() if code.exit == status]
    names = [name for name in codes if status != 1 or name in no]
    return f"{status:>3}  {CODES[names[0]].meaning} ({', '.join(names)})"


def shared_options(*, session: bool, verb: bool = True) -> list[click.Parameter]:
    """Return new instances of the options that all verbs share, also allowed before the verb.

    The output options are hidden in the help of a single ``verb``.
    """
    options: list[click.Parameter] = []
    if session:
        options += [
            _kept("--session", metavar="ID", help="Use this session."),
            _kept("--no-session", is_flag=True, help="Use no session; act as the person."),
        ]
    return [
        *options,
        _kept(
            "--layer",
            metavar="NAME",
            shell_complete=types.known_layers,
            help="Use the ledger of this layer.",
        ),
        _kept("--local", is_flag=True, help="Use a ledger that never leaves this clone."),
        _kept("--remote", metavar="NAME|URL", help="Use the ledger on this remote."),
        Option(
            ["-C", "directory"],
            metavar="DIR",
            multiple=True,
            expose_value=False,
            callback=_keep_folder,
            shell_complete=types.folders,
            help="Run as if started in DIR.",
        ),
        Option(
            ["--json"],
            is_flag=True,
            default=None,
            expose_value=False,
            callback=_keep,
            help="Answer with one JSON document.",
        ),
        Option(
            ["--color"],
            expose_value=False,
            callback=_choose_color,
            help="Use colours: auto (on a terminal), always or never.",
            hidden=verb,
            metavar="WHEN",
            type=click.Choice(("auto", "always", "never")),
        ),
        Option(["--traceback"], is_flag=True, hidden=True, expose_value=False),
        Option(
            ["-h", "--help"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_show_help,
            help="Show this message and exit.",
        ),
    ]


def _kept(name: str, **settings: Any) -> click.Option:
    if settings.get("is_flag"):
        settings["default"] = None
    return Option([name], expose_value=False, callback=_keep, **settings)


def _keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    if value is not None and param.name is not None:
        setattr(_call(ctx), param.name, value)


def _choose_color(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    from gitlease.faces.cli.output import FORM

    FORM.color = value or FORM.color


def _show_help(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


def _keep_folder(ctx: click.Context, param: click.Parameter, value: Sequence[str]) -> None:
    call = _call(ctx)
    call.directory = os.path.join(call.directory, *value)


def _call(ctx: click.Context) -> Call:
    call: Call = ctx.find_root().obj
    return call
