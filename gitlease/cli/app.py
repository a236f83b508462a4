"""The verbs as click commands: made from the table or by hand, in their groups, and called."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click import Option

from gitlease import __version__
from gitlease.cli import output
from gitlease.cli.call import Call, Opener, open_real, tell
from gitlease.kernel.rules.errors import GitleaseError, Hint, PlaceLearnt, UsageError
from gitlease.kernel.rules.frozen import replace
from gitlease.verbs.table import (
    BROKEN_PIPE,
    CODES,
    COMMAND,
    INTERRUPTED,
    TABLE,
    Called,
    DeclaredVerb,
    Kind,
    Parameter,
    Result,
    find_verb,
    read_values,
)

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

# The option for help is among those that all verbs share.
CONTEXT: dict[str, Any] = {"help_option_names": [], "max_content_width": 100}
# Verbs without the progress line: they report themselves, or share the terminal with a command.
SILENT = frozenset({"run", "dispatch", "work", "watch", "wait", "push", "demo", "serve", "board"})


def flag(name: str, help: str, **settings: Any) -> Callable[[Decorated], Decorated]:
    """Decorate a verb with a switch; ``default=None`` marks one that was not given."""
    return click.option(name, is_flag=True, help=help, **settings)


def option(*names: str, **settings: Any) -> Callable[[Decorated], Decorated]:
    """Decorate a verb with an option."""
    return click.option(*names, **settings)


def read_by(kind: Kind, name: str) -> Callable[[str], Any]:
    """Return a reader of an option's value, which has the kind of a verb's parameters."""
    return lambda text: kind.read(None, text, name)


def completed(name: str) -> Callable[..., list[str]]:
    """Return a completer of the module ``help``, which is loaded only when a shell asks."""

    def complete(*asked: Any) -> list[str]:
        from gitlease.cli.setup import help

        words: list[str] = getattr(help, name)(*asked)
        return words

    return complete


optional_resources_argument = click.argument(
    "words", metavar="[RESOURCE]...", shell_complete=completed("known_names"), nargs=-1
)


class Verb(click.Command):
    """A verb, with its own options before the shared ones, and examples and exit codes in its help.

    The words after ``--`` are the command that a verb runs. ``bare`` maps options that never take
    the next word as their value to their default value.
    """

    def __init__(
        self,
        page: DeclaredVerb,
        *,
        name: str,
        bare: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(name, context_settings=CONTEXT, help=page.help, **settings)
        self.page, self.bare = page, bare or {}
        self.params += shared_options(session=page.session, refused=page.refuses)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        words = [f"{x}={self.bare[x]}" if x in self.bare else x for x in args[:end]]
        rest = args[end:]
        if self.page.runs:
            ctx.params["command"] = () if ctx.resilient_parsing else tuple(rest[1:])
            rest = rest if ctx.resilient_parsing else []
        return super().parse_args(ctx, [*words, *rest])

    def invoke(self, ctx: click.Context) -> Any:
        if _call(ctx).json or self.name in SILENT or not sys.stderr.isatty():
            return super().invoke(ctx)
        with output.progress():
            return super().invoke(ctx)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        pieces = super().collect_usage_pieces(ctx)
        return [*pieces, "--", "COMMAND [ARG]..."] if self.page.runs else pieces

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        prog = ctx.find_root().info_name or "gitlease"
        page = self.page
        if page.advice:
            _section(formatter, "How long", page.advice)
        _section(formatter, "Examples", [line.replace("gitlease", prog) for line in page.examples])
        lines = [f"{0:>3}  {page.done}", *(_exit_line(x, page.no) for x in page.exits)]
        lines += [f"{status:>3}  {meaning}" for status, meaning in page.own_exits]
        _section(formatter, "Exit codes", lines)


LANDS = "someone else holds it, the work conflicts with the base, or the check failed"


def verb(
    name: str, help: str, *, bare: Mapping[str, str] | None = None, **traits: Any
) -> Callable[[Callable[..., Any]], Verb]:
    """Make a function a verb of the command line alone; it gets the ``Call`` first."""

    def decorate(function: Callable[..., Any]) -> Verb:
        page = DeclaredVerb(name=name, function=function, help=help, **{"done": "done", **traits})
        # As decorators add them: the last one first.
        params = [*reversed(vars(function).get("__click_params__", ()))]  # as decorators add them
        return Verb(page, name=name, params=params, callback=click.pass_obj(function), bare=bare)

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
    # `unlock` for a mistyped `lock` would do the opposite of what was meant.
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
    meaning = LANDS if names == ["held", "violations"] else CODES[names[0]].meaning
    return f"{status:>3}  {meaning} ({', '.join(names)})"


def shared_options(
    *, session: bool, verb: bool = True, refused: Collection[str] = ()
) -> list[click.Parameter]:
    """Return new instances of the options that all verbs share, also allowed before the verb.

    The output options are hidden in the help of a single ``verb``, and so are those that it
    refuses.
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
            shell_complete=completed("known_layers"),
            help="Use the ledger of this layer.",
            hidden="layer" in refused,
        ),
        _kept(
            "--local",
            is_flag=True,
            help="Use a ledger that never leaves this clone.",
            hidden="local" in refused,
        ),
        _kept(
            "--remote",
            metavar="NAME|URL",
            help="Use the ledger on this remote.",
            hidden="remote" in refused,
        ),
        Option(
            ["-C", "directory"],
            metavar="DIR",
            multiple=True,
            expose_value=False,
            callback=_keep_folder,
            shell_complete=completed("folders"),
            help="Run as if started in DIR.",
        ),
        _kept("--json", is_flag=True, help="Answer with one JSON document."),
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
    def keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        if value is not None and param.name is not None:
            setattr(_call(ctx), param.name, value)

    if settings.get("is_flag"):
        # A flag that was not given must not undo one before the verb.
        settings["default"] = None
    return Option([name], expose_value=False, callback=keep, **settings)


def _choose_color(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    output.FORM.color = value or output.FORM.color


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


# --- the verbs of the table -----------------------------------------------------------------------


def command(
    name: str,
    run: Callable[..., int | None] | None = None,
    *options: click.Parameter,
    bare: Mapping[str, str] | None = None,
) -> Verb:
    """Return the command of a verb of the table, or of those that begin with this word.

    Of several, the last one has the page of help for all. ``options`` are of the command line
    alone, for ``run``, which gets the verb, the call and what was typed.
    """
    actions = [x.removeprefix(f"{name} ") for x in TABLE if x.startswith(f"{name} ")]
    verbs = [find_verb(f"{name} {x}") for x in actions] or [find_verb(name)]
    page, known = verbs[-1], dict[str, Parameter]()
    for declared in reversed(verbs):
        known |= declared.at(COMMAND)
    # The words after -- are taken by ``Verb.parse_args``.
    typed = [y for x, y in known.items() if not (page.runs and x == "command")]
    params = [*map(_parameter, typed), *options]
    optional = [x for x in params if isinstance(x, click.Argument) and not x.required]
    # As in `KEY [VALUE]`: the second is no good without the first.
    for outer, inner in pairwise(optional):
        outer.metavar = (outer.metavar or "").removesuffix("]")
        inner.metavar = f"{inner.metavar}]"
    carry_out: Callable[..., Any] = partial(run or run_verb, page)
    if actions:
        kind = click.Choice(actions)
        params.insert(0, click.Argument(["action"], metavar="|".join(actions), type=kind))
        carry_out = partial(_carry_out_action, dict(zip(actions, verbs, strict=True)))
    return Verb(page, name=name, bare=bare, params=params, callback=click.pass_obj(carry_out))


def _carry_out_action(
    verbs: Mapping[str, DeclaredVerb], call: Call, *, action: str, **given: Any
) -> int:
    known = verbs[action].at(COMMAND)
    for verb in verbs.values():
        for name, other in verb.at(COMMAND).items():
            if name not in known and given[name] not in (None, (), other.default):
                word = other.metavar or other.kind.metavar
                word = word if other.positional else other.words.partition("/")[0].split()[0]
                raise UsageError(f"{word} cannot be combined with {action}")
    return run_verb(verbs[action], call, **{x: given[x] for x in known})


def _parameter(declared: Parameter) -> click.Parameter:
    kind, settings = declared.kind, dict[str, Any]()
    if kind.complete:
        settings["shell_complete"] = completed(kind.complete)
    if not kind.switch:
        settings["metavar"] = declared.metavar or kind.metavar
    if not declared.positional:
        if kind.switch:
            settings |= {"is_flag": True, "default": declared.default}
        else:
            settings |= {"multiple": kind.many, "required": declared.required}
            if kind.bare is not None:
                settings |= {"is_flag": False, "flag_value": kind.bare}
        names = [*declared.words.split(), declared.name]
        return Option(names, help=declared.about, **settings)
    metavar = settings["metavar"] if declared.required else f"[{settings['metavar']}]"
    settings |= {"metavar": f"{metavar}...", "nargs": -1} if kind.many else {"metavar": metavar}
    return click.Argument([declared.name], required=declared.required, **settings)


def run_verb(declared: DeclaredVerb, call: Call, **given: Any) -> int:
    """Carry out a verb, and print its answer."""
    result = result_of(declared, call, given)
    if declared.name == "watch":
        from gitlease.cli.board import print_events

        print_events(call, result, command=given["command"])
        return 0
    return call.respond(result)


def result_of(declared: DeclaredVerb, call: Call, given: Mapping[str, Any], **more: Any) -> Result:
    """Carry out a verb with what was typed; ``more`` are typed options that it does not have."""
    name, known = declared.name, declared.at(COMMAND)
    call.anonymous = declared.is_for_anyone(given)
    values, reads = read_values(known, call, given, what="the command"), declared.only_reads(given)
    call.anonymous |= name == "config" and "ledger" not in values
    typed = {x: y if known[x].kind.at_door else given[x] for x, y in values.items()}
    call.called = Called(verb=name, values=typed, more=more)
    result = declared.answer(call, **values)
    if name in COMPLETED:
        result = COMPLETED[name](call, values, result)
    if not (reads or result.refused):
        call.note_carried(result.leases)
    return result


def _check_layer(call: Call, _values: Mapping[str, Any], result: Result) -> Result:
    # The ledger was read just now.
    call.check_layer(call.ledger.known_look)
    return result


def _complete_brief(call: Call, _values: Mapping[str, Any], result: Result) -> Result:
    call.warnings += call.dead_hooks()
    call.note_carried(result.leases)
    return result


def _complete_queue(call: Call, values: Mapping[str, Any], result: Result) -> Result:
    """Add what helps if there are no tasks: init, if it has a proposal, and a warning."""
    if values.get("mine") or result.value.entries:
        return result
    from gitlease.wiring.workspace import proposed_settings

    proposed = proposed_settings(call.workspace, [])
    if proposed is None:
        return result
    init = Hint("init", {}, "see settings that fit the files here")
    from gitlease.tools.settings_verbs import headed

    warnings = (*result.warnings, *headed(proposed.headed))
    return replace(result, warnings=warnings, then=(init,) if proposed.fits else ())


COMPLETED: Mapping[str, Callable[[Call, Mapping[str, Any], Result], Result]] = {
    "list": _check_layer,
    "board": _check_layer,
    "status": _check_layer,
    "brief": _complete_brief,
    "queue": _complete_queue,
}


# Verb, its module below this package unless it stands in the table, and its line in the list. What
# else the table has is listed after them, with the first line of its help (``groups``).
GROUPS: tuple[tuple[str, tuple[tuple[str, str, str], ...]], ...] = (
    (
        "Work under a lease",
        (
            ("claim", "", "take a lease, or renew your own"),
            ("renew", "", "keep a lease alive (heartbeat)"),
            ("extend", "", "lengthen a lease for a known gap"),
            ("release", "", "give a lease back, or end it and keep the task"),
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
    "start": "set",  # and its STATUS is in_progress
    "version": "--version",
}
MODULES = {verb: module for _, verbs in GROUPS for verb, module, _ in verbs}
MORE = tuple(dict.fromkeys(y for x in TABLE if (y := x.partition(" ")[0]) not in MODULES))
MODULES |= dict.fromkeys(MORE, "")


def _as_notes(words: Sequence[str]) -> list[str]:
    """Return the words of the former verb ``park`` as those of a release that keeps the task."""
    kept, said = list[str](), list[str]()
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if name == "--for":
            raise UsageError(
                "park is gone, and with it its time: a task is kept until it is claimed",
                hints=("leave out --for",),
            )
        if name in ("--reason", "--note"):
            said.append(value if equals else next(rest, ""))
        else:
            kept.append(word)
    return [*kept, *(["--note", "\n".join(said)] if said else [])]


ABOUT = """Leases for repositories: the git remote you already share is the lock server.

Take a lease before you start to work on something, renew it while you work, and release it when you
stop. Only one of all who share the remote gets it. A lease that is not renewed ends by itself."""


class Verbs(click.Group):
    """The group of all verbs; a verb's module is imported when the verb is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = ALIASES.get(cmd_name, cmd_name)
        if cmd_name == "start":
            begun = command(name)
            begun.name, begun.params = cmd_name, [x for x in begun.params if x.name != "status"]
            begun.callback = click.pass_obj(partial(run_verb, begun.page, status="in_progress"))
            return begun
        if cmd_name == "version":
            takes = [x for x in shared_options(session=False) if x.name in ("json", "help")]
            takes[-1].callback, takes[-1].help = show_version, "Print it, as --version --help does."
            shown = click.pass_context(show_version)
            return click.Command(cmd_name, CONTEXT, shown, takes, "Print the version.")
        if name not in MODULES:
            return None
        if not MODULES[name]:
            return command(name)
        module = import_module(f"gitlease.cli.{MODULES[name]}")
        # A verb of the table with more options of the command line, or one of this door alone.
        made = getattr(module, f"{name}_command", None)
        verb: click.Command = made() if made is not None else getattr(module, f"{name}_verb")
        return verb

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] == "park":
            args = ["release", "--keep", *_as_notes(args[1:])]
            new = shlex.join([ctx.info_name or "gitlease", *args])
            ctx.obj.warnings.append(f"park is now: {new}")
        name = ALIASES.get(args[0], args[0])
        if name not in MODULES and not name.startswith("-"):
            # click suggests commands only since 8.4, and 8.1.7 is enough for everything else.
            near = suggestions(name, [*MODULES, *ALIASES])
            prog = ctx.info_name or "gitlease"
            hints = tuple(f"did you mean {prog} {verb}?" for verb in near)
            raise UsageError(f"unknown command {name[:60]!r}", hints=hints)
        name = args[0] if args[0] in ("start", "version") else name
        ctx.obj.command = name  # known while it is loaded
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


def groups() -> tuple[tuple[str, tuple[tuple[str, str, str], ...]], ...]:
    """Return every verb as in ``GROUPS``, with a last group of those that it lacks."""
    more = tuple((x, "", command(x).page.help.partition("\n\n")[0]) for x in MORE)
    return (*GROUPS, ("More", more)) if more else GROUPS


def list_of_verbs(ctx: click.Context) -> str:
    """Return all verbs in their groups, each with its line."""
    formatter = ctx.make_formatter()
    for title, group in groups():
        with formatter.section(title):
            formatter.write_dl([(verb, short) for verb, _, short in group])
    formatter.write_paragraph()
    formatter.write(_explains(ctx))
    return formatter.getvalue().strip("\n")


def _explains(ctx: click.Context) -> str:
    return f"{ctx.info_name} VERB --help explains a verb, with examples.\n"


def show_version(ctx: click.Context, param: object = None, value: bool = True) -> None:
    """Print the version and stop."""
    if value and not ctx.resilient_parsing:
        call, shown = _call(ctx), f"gitlease {__version__}"
        call.command = "version"
        call.respond(Result(body={"version": __version__}), lambda: print(shown))
        ctx.exit()


def _top(ctx: click.Context) -> None:
    if ctx.invoked_subcommand is None:
        print(ctx.get_help())


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
        try:
            status = _carry_out(call, argv)
        except PlaceLearnt:
            # Nothing was read or changed yet. This clone knows the place by now.
            call = Call(prog=prog, opener=opener, json=call.json)
            status = _carry_out(call, argv)
        sys.stdout.flush()
        return status
    except (KeyboardInterrupt, click.Abort, SystemExit) as end:  # by a signal
        return call.report_signal(getattr(end, "code", INTERRUPTED))
    except BrokenPipeError:
        output.forget_stdout()
        return BROKEN_PIPE
    except OSError as error:
        output.forget_stdout()
        return call.report_unwritten(error)
    except Exception as error:
        traceback = "--traceback" in options or sys.flags.dev_mode
        return call.report_fault(error, traceback=traceback)


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
    except PlaceLearnt:
        raise
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
