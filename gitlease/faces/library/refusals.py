"""How the library refuses: in the caller's line, and in words of Python."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from gitlease.core.errors import GitleaseError, LeaseLost, UsageError
from gitlease.core.loss import explained
from gitlease.core.resources.resource import WHOLE, word_anywhere
from gitlease.faces import sentences

C = TypeVar("C", bound=type)
F = TypeVar("F", bound=Callable[..., Any])
_TEXTS = ("str", "str | None")
_REST = inspect.CO_VARARGS
T = TypeVar("T")

# The options that messages and hints speak of: what is switched on, and what has a value.
_SWITCHES = "any|reopen|cached|local|takeover|new|undo-rollback|accept-rollback"
_VALUES = "layer|remote|session|reason|wait|ttl|scope|paths|expect-holder|base"
_OPTION = re.compile(rf"(?<![\w-])--(?:(?P<on>{_SWITCHES})|(?P<value>{_VALUES}))(?![\w-])")
_CALLS = {
    "`gitlease session list`": "`leases.sessions()`",
    "`gitlease config --ledger admins`": '`leases.config("admins", …, ledger=True)`',
    "`gitlease config --ledger`": "`leases.config(ledger=True)`",
    "--set-upstream": "upstream=True",
    "gitlease config lease.remote NAME": 'leases.config("lease.remote", NAME)',
}


def in_python(text: str) -> str:
    """What a message or hint says of the command line's options, as arguments and calls."""
    for typed, call in _CALLS.items():
        text = text.replace(typed, call)
    return with_arguments(text, on="{}=True")


def with_arguments(text: str, *, on: str) -> str:
    """The same with arguments in the place of options; ``on`` shows one that is switched on."""

    def argument(found: re.Match[str]) -> str:
        switch, value = found["on"], found["value"]
        return (on.format(switch) if switch else value).replace("-", "_")

    return _OPTION.sub(argument, text)


def refusal(error: GitleaseError) -> GitleaseError:
    """The refusal to raise to a caller: of what lies below only this line is shown."""
    error.message = in_python(error.message)
    error.args = (_told(error),)
    error.hints = tuple(dict.fromkeys((*map(in_python, error.hints), *_ways_out(error))))
    for hint in error.hints:
        if (note := f"hint: {hint}") not in getattr(error, "__notes__", ()):
            error.add_note(note)
    return error.with_traceback(None)


def _told(error: GitleaseError) -> str:
    """Its text: the fact, and who has it where, until when and why; times in full, for logs."""
    view = error.lease
    if view is None or error.code not in sentences.IN_THE_WAY:
        return error.message
    text = error.message + sentences.where(view, asked=error.resource)
    if not error.by_edge and view.state == "active":
        text += f"{' parked' if view.parked else ''} until {sentences.rfc3339(view.expires_at)}"
    elif not error.by_edge and view.state == "expired":
        text += f", expired at {sentences.rfc3339(view.expires_at)}"
        free = view.free_at and sentences.rfc3339(view.free_at)
        text += f", free for others at {free}" if free else ""
    return text + sentences.quoted(view.reason)


def _ways_out(error: GitleaseError) -> tuple[str, ...]:
    """What a program may call next."""
    view, free, name = error.lease, error.free_at, word_anywhere(error.resource or "")
    part = "" if error.scope in (None, WHOLE) else f", scope={error.scope!r}"
    if error.code in ("held", "wait_timeout") and name and view and free and not view.mine:
        seconds = (free - view.expires_at).total_seconds() + view.expires_in
        wait = f"{max(1, int(seconds // 60) + 1)}m"
        return (f"`leases.claim({name!r}{part}, wait={wait!r})` waits for it",)
    if error.code in (*sentences.IN_THE_WAY, "unknown_outcome") and name:
        return (f"`leases.show({name!r})` has who holds it",)
    if error.code == "nothing_left":
        return ("`leases.queue()` has why each task is not handed out",)
    return ()


def _check_texts(function: Callable[..., Any], args: Any, options: dict[str, Any]) -> None:
    """UsageError for what is no string where the function says that it takes one."""
    code, kinds = function.__code__, function.__annotations__
    first = code.co_argcount
    rest = code.co_varnames[first + code.co_kwonlyargcount] if code.co_flags & _REST else ""
    names = [*code.co_varnames[:first], *[rest] * max(0, len(args) - first)]
    for name, value in (*zip(names, args, strict=False), *options.items()):
        kind = kinds.get(name)
        wrong = kind in _TEXTS and not isinstance(value, str)
        if wrong and not (value is None and kind == "str | None"):
            raise UsageError(f"{name} must be a string, not {type(value).__name__}")


def refusing(function: F) -> F:
    """Decorate what a program calls, or awaits: a refusal ends in the line that did."""

    @functools.wraps(function)
    def called(*args: Any, **options: Any) -> Any:
        try:
            _check_texts(function, args, options)
            return function(*args, **options)
        except LeaseLost as lost:
            ledger = getattr(args[0], "_ledger", None) if args else None
            raise refusal(explained(lost, ledger.untold() if ledger else ())) from None
        except GitleaseError as error:
            raise refusal(error) from None

    @functools.wraps(function)
    async def awaited(*args: Any, **options: Any) -> Any:
        try:
            return await function(*args, **options)
        except GitleaseError as error:
            raise refusal(error) from None

    found: Any = awaited if inspect.iscoroutinefunction(function) else called
    return found  # type: ignore[no-any-return]


def refusing_class(cls: C) -> C:
    """Decorate a class: all of its methods that a program calls."""
    for name, method in list(vars(cls).items()):
        dunder = name in ("__enter__", "__exit__", "__aenter__", "__aexit__")
        plain = inspect.isfunction(method) and not inspect.isasyncgenfunction(method)
        if plain and (dunder or not name.startswith("_")):
            setattr(cls, name, refusing(method))
    return cls


def refusing_events(events: Iterator[T]) -> Iterator[T]:
    """The same events, whose refusals end in the line that asks for the next one."""
    try:
        yield from events
    except GitleaseError as error:
        raise refusal(error) from None
