"""Verbs as click commands: made from the table or by hand, with shared options and a help page."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import click

from gitlease import verbs, wiring
from gitlease.core.errors import Hint, UsageError
from gitlease.core.frozen import replace
from gitlease.faces import cli
from gitlease.faces.cli import output
from gitlease.faces.cli.call import Call
from gitlease.verbs.table import (
    CODES,
    COMMAND,
    TABLE,
    Called,
    DeclaredVerb,
    Kind,
    Parameter,
    Result,
    find_verb,
    read_values,
)

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

# The option for help is among those that all verbs share.
CONTEXT: dict[str, Any] = {"help_option_names": [], "max_content_width": 100}
# Verbs without the progress line: they report themselves, or share the terminal with a command.
SILENT = frozenset({"run", "dispatch", "work", "watch", "wait", "push", "demo", "serve", "board"})


class Option(click.Option):
    """An option with a one-line help text."""

    def __init__(self, names: Sequence[str], *, help: str | None = None, **settings: Any) -> None:
        # Set afterwards: click would load ``inspect`` to clean the text, for each command.
        super().__init__(names, **settings)
        self.help = help


def flag(name: str, help: str, **settings: Any) -> Callable[[Decorated], Decorated]:
    """Decorate a verb with a switch; ``default=None`` marks one that was not given."""
    return click.option(name, cls=Option, is_flag=True, help=help, **settings)


def option(*names: str, **settings: Any) -> Callable[[Decorated], Decorated]:
    """Decorate a verb with an option."""
    return click.option(*names, cls=Option, **settings)


def read_by(kind: Kind, name: str) -> Callable[[str], Any]:
    """Return a reader of an option's value, which has the kind of a verb's parameters."""
    return lambda text: kind.read(None, text, name)


def completed(name: str) -> Callable[..., list[str]]:
    """Return a completer of the module ``help``, which is loaded only when a shell asks."""

    def complete(*asked: Any) -> list[str]:
        from gitlease.faces.cli.setup import help

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
        self.params += shared_options(session=page.session)

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
            shell_complete=completed("known_layers"),
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
            shell_complete=completed("folders"),
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
        # A flag that was not given must not undo one before the verb.
        settings["default"] = None
    return Option([name], expose_value=False, callback=_keep, **settings)


def _keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    if value is not None and param.name is not None:
        setattr(_call(ctx), param.name, value)


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
        cli.print_events(call, result, command=given["command"])
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
    result: Result = declared.function(call, **values)
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
    proposed = wiring.proposed_settings(call.workspace, [])
    if proposed is None:
        return result
    init = Hint("init", {}, "see settings that fit the files here")
    warnings = (*result.warnings, *verbs.headed(proposed.headed))
    return replace(result, warnings=warnings, then=(init,) if proposed.fits else ())


COMPLETED: Mapping[str, Callable[[Call, Mapping[str, Any], Result], Result]] = {
    "list": _check_layer,
    "board": _check_layer,
    "status": _check_layer,
    "brief": _complete_brief,
    "queue": _complete_queue,
}
