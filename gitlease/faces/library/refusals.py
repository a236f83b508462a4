"""How public verbs are called: refusals at the caller's line with hints in Python, or awaited."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar

from gitlease.core.errors import GitleaseError, UsageError
from gitlease.core.instant import moment_of
from gitlease.core.resources.pattern import fold
from gitlease.core.resources.resource import WHOLE, word_anywhere
from gitlease.verbs import sentences

C = TypeVar("C", bound=type)
F = TypeVar("F", bound=Callable[..., Any])
_STRINGS = ("str", "str | None")
P = ParamSpec("P")
T = TypeVar("T")
ANOTHER_DAY = moment_of(0)  # as seen from it, times have their dates

# Command-line options in messages and hints: switches, and options with a value.
_SWITCHES = "any|reopen|cached|local|takeover|new|undo-rollback|accept-rollback"
_VALUES = "layer|remote|session|reason|wait|ttl|scope|paths|expect-holder|base"
_OPTION = re.compile(rf"(?<![\w-])--(?:(?P<on>{_SWITCHES})|(?P<value>{_VALUES}))(?![\w-])")
_CALLS = {
    "`gitlease session list`": "`leases.sessions()`",
    "`gitlease config --ledger admins`": '`leases.config("admins", …, ledger=True)`',
    "`gitlease config --ledger`": "`leases.config(ledger=True)`",
    "`gitlease init --new-ledger`": "`leases.init(new_ledger=True)`",
    "`gitlease init --undo-rollback`": "`leases.init(undo_rollback=True)`",
    "`gitlease init --accept-rollback`": "`leases.init(accept_rollback=True)`",
    "--set-upstream": "upstream=True",
    "gitlease config lease.remote NAME": 'leases.config("lease.remote", NAME)',
}


def in_python(text: str) -> str:
    """A message or hint with the command line's options and commands as arguments and calls."""
    for command, call in _CALLS.items():
        text = text.replace(command, call)
    return with_arguments(text, on="{}=True")


def with_arguments(text: str, *, on: str) -> str:
    """A text with arguments instead of options; ``on`` is the form of a switch."""

    def argument(match: re.Match[str]) -> str:
        switch, value = match["on"], match["value"]
        return (on.format(switch) if switch else value).replace("-", "_")

    return _OPTION.sub(argument, text)


def refusal(error: GitleaseError) -> GitleaseError:
    """The refusal as a caller gets it: in Python's terms, and without the traceback below."""
    error.message = in_python(error.message)
    error.args = (_text(error),)
    error.hints = tuple(dict.fromkeys((*map(in_python, error.hints), *_suggested_calls(error))))
    for hint in error.hints:
        if (note := f"hint: {hint}") not in getattr(error, "__notes__", ()):
            error.add_note(note)
    return error.with_traceback(None)


def _text(error: GitleaseError) -> str:
    # The fact, and who has the lease, where, until when and why; full timestamps, for logs.
    view = error.lease
    if view is None or error.code not in sentences.IN_THE_WAY:
        return error.message
    text = error.message + sentences.where_held(error, view)
    if error.by_edge:
        text += f", last held until {sentences.rfc3339(view.expires_at)}"
    elif view.state in ("active", "expired"):
        text += sentences.lasts(view, ANOTHER_DAY, short=True)
        if error.resource is not None and fold(error.resource) == fold(view.resource):
            text += sentences.afterwards(view, ANOTHER_DAY)
    return text + sentences.quoted(view.reason)


def _suggested_calls(error: GitleaseError) -> tuple[str, ...]:
    view, free, name = error.lease, error.free_at, word_anywhere(error.resource or "")
    part = "" if error.scope in (None, WHOLE) else f", scope={error.scope!r}"
    if error.code in ("held", "wait_timeout") and name and view and free and not view.mine:
        seconds = (free - view.expires_at).total_seconds() + view.expires_in
        wait = f"{max(1, int(seconds // 60) + 1)}m"
        return (f"`leases.claim({name!r}{part}, wait={wait!r})` waits for it",)
    if error.code in (*sentences.IN_THE_WAY, "unknown_outcome") and name:
        return (f"`leases.show({name!r})` shows who holds it",)
    if error.code == "nothing_left":
        return ("`leases.queue()` shows why each task is not offered",)
    return ()


def _check_strings(function: Callable[..., Any], args: Any, options: dict[str, Any]) -> None:
    """Raise UsageError for anything but a string where the annotation says str."""
    signature = inspect.signature(function)
    try:
        given = signature.bind(*args, **options).arguments
    except TypeError:
        return  # the call itself raises it
    for name, value in given.items():
        parameter = signature.parameters[name]
        values = value if parameter.kind is parameter.VAR_POSITIONAL else (value,)
        if parameter.annotation not in _STRINGS:
            continue
        for one in values:
            if not isinstance(one, str) and (one is not None or parameter.annotation == "str"):
                raise UsageError(f"{name} must be a string, not {type(one).__name__}")


def refusing(function: F) -> F:
    """Decorate a public function or coroutine: a refusal's traceback ends in the caller's line."""

    @functools.wraps(function)
    def called(*args: Any, **options: Any) -> Any:
        try:
            _check_strings(function, args, options)
            return function(*args, **options)
        except GitleaseError as error:
            raise refusal(error) from None

    @functools.wraps(function)
    async def awaited(*args: Any, **options: Any) -> Any:
        try:
            return await function(*args, **options)
        except GitleaseError as error:
            raise refusal(error) from None

    wrapper: Any = awaited if inspect.iscoroutinefunction(function) else called
    return wrapper  # type: ignore[no-any-return]


def refusing_class(cls: C) -> C:
    """Decorate all public methods of a class."""
    for name, method in list(vars(cls).items()):
        dunder = name in ("__enter__", "__exit__", "__aenter__", "__aexit__")
        plain = inspect.isfunction(method) and not inspect.isasyncgenfunction(method)
        if plain and (dunder or not name.startswith("_")):
            setattr(cls, name, refusing(method))
    return cls


def refusing_events(events: Iterator[T]) -> Iterator[T]:
    """The events; a refusal's traceback ends in the line that asks for the next one."""
    try:
        yield from events
    except GitleaseError as error:
        raise refusal(error) from None
