"""The command line of the table's verbs: a click command from a signature, and its answer."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from gitlease.core.hint import Hint
from gitlease.faces.cli import types
from gitlease.faces.cli.verb import Decorated, Option, Verb
from gitlease.verbs.table import COMMAND, Parameter, find_verb, read_values

if TYPE_CHECKING:
    from gitlease.faces.cli.call import Call
    from gitlease.verbs.table import DeclaredVerb

NEVER_AGAIN = ("takeover", "expect_holder", "reopen", "wait")  # what a hint does not repeat


def command(name: str) -> Verb:
    """Return the command of a verb of the table."""
    declared = find_verb(name)
    return Verb(
        name,
        help=declared.help,
        examples=declared.examples,
        exits=declared.exits,
        done=declared.done,
        no=declared.no,
        advice=declared.advice,
        params=[_parameter(one) for one in declared.at(COMMAND).values()],
        callback=click.pass_obj(partial(_carry_out, declared)),
    )


def parameters(verb: str, *names: str) -> list[click.Parameter]:
    """Return some parameters of a verb, for a command of the command line alone."""
    known = find_verb(verb).parameters
    return [_parameter(known[name]) for name in names]


def taking(verb: str, *names: str) -> Callable[[Decorated], Decorated]:
    """Decorate a command's function with parameters that the table declares for a verb."""

    def decorate(function: Decorated) -> Decorated:
        known: list[click.Parameter] = vars(function).setdefault("__click_params__", [])
        known += reversed(parameters(verb, *names))  # as click's own decorators do
        return function

    return decorate


def values_of(verb: str, call: Call, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of what was typed for parameters of a verb. Raises UsageError."""
    known = find_verb(verb).parameters
    return read_values({x: known[x] for x in given}, call, given, what="the command")


def _parameter(one: Parameter) -> click.Parameter:
    kind, settings = one.kind, dict[str, Any]()
    if kind.complete:
        settings["shell_complete"] = getattr(types, kind.complete)
    if not kind.switch:
        settings["metavar"] = one.metavar or kind.metavar
    if not one.positional:
        if kind.switch:
            settings |= {"is_flag": True, "default": one.default}
        else:
            settings |= {"multiple": kind.many, "required": one.required}
        return Option([one.words, one.name], help=one.about, **settings)
    if kind.many:
        settings |= {"nargs": -1}
        metavar = f"{settings['metavar']}..." if one.required else f"[{settings['metavar']}]..."
        settings["metavar"] = metavar
    return click.Argument([one.name], required=one.required, **settings)


def _carry_out(declared: DeclaredVerb, call: Call, **given: Any) -> int:
    values = read_values(declared.at(COMMAND), call, given, what="the command")
    if declared.name in PREPARED:
        PREPARED[declared.name](call, values)
    call.anonymous |= declared.name == "next" and not values.get("claim")
    if "cached" in declared.parameters and not values.get("claim"):
        call.cached = call.command_of(Hint(declared.name, {"cached": True} | values))
    if "wait" in declared.parameters:
        call.covers = values.get("paths", ())
        call.retry = partial(waiting, call, declared.name, values)
        if "wait" in values:
            gc.enable()  # the call may last long
    return call.respond(declared.function(call, **values))


def waiting(call: Call, verb: str, values: Mapping[str, Any], wait: str) -> str:
    """Return the same call with ``--wait``, without what only this one should dare."""
    kept = {name: value for name, value in values.items() if name not in NEVER_AGAIN}
    return call.command_of(Hint(verb, {"wait": wait} | kept))


def _prepare_done(call: Call, values: Mapping[str, Any]) -> None:
    def releasing() -> str:
        from gitlease.engine.reading import is_in_ledger
        from gitlease.wiring.words import file_called

        resource = values["resource"]
        known = resource.is_path or is_in_ledger(call.ledger.known_look(), resource)
        file = None if known else file_called(call.workspace.repository, resource.text)
        scope = {name: values[name] for name in ("scope",) if name in values}
        word = call.word(resource) if file is None else file.word
        return call.command_of(Hint("release", {"resource": word} | scope))

    call.release = releasing


def _prepare_next(call: Call, values: Mapping[str, Any]) -> None:
    kept = {name: values[name] for name in ("ref", "cached") if name in values}
    call.whole_queue = call.command_of(Hint("queue", {"all": True} | kept))


PREPARED: Mapping[str, Callable[[Call, Mapping[str, Any]], None]] = {
    "done": _prepare_done,
    "next": _prepare_next,
}
