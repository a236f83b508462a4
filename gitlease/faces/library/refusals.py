"""How public functions are called: their arguments, and refusals at the caller's line."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, ParamSpec, TypedDict, TypeVar

from gitlease.core.errors import GitleaseError, Hint, UsageError, around
from gitlease.core.instant import moment_of
from gitlease.core.resources import WHOLE, Resource, fold, word_anywhere
from gitlease.verbs import sentences
from gitlease.verbs.doors import path_text
from gitlease.verbs.parameters import DURATION
from gitlease.verbs.table import find_verb

Duration = str | int | timedelta
"""``"15m"``, a number of seconds, or a timedelta."""

StrPath = str | os.PathLike[str]

ResourceLike = StrPath | Resource
"""A name or a path as on the command line; a ``Path`` is always a path."""

POSITIONAL, KEYWORD = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
C = TypeVar("C", bound=type)
F = TypeVar("F", bound=Callable[..., Any])
_STRINGS = ("str", "str | None")
P = ParamSpec("P")
T = TypeVar("T")
ANOTHER_DAY = moment_of(0)  # as seen from it, times have their dates

# The methods of verbs that hints below the doors name.
_METHODS = {"": "", "config": "leases.config", "init": "leases.init"}
_METHODS["session list"] = "leases.sessions"
_FIRST = ("key", "value")


def in_python(text: str) -> str:
    """Return a hint with its call in Python, where the library has it."""
    if not isinstance(text, Hint) or text.verb not in _METHODS or "help" in text.arguments:
        return str(text)
    first = [repr(x) for name, x in text.arguments.items() if name in _FIRST]
    named = [f"{name}={x!r}" for name, x in text.arguments.items() if name not in _FIRST]
    call = ", ".join([*first, *named]).replace("set_upstream", "upstream")
    return around(text.why, f"{_METHODS[text.verb]}({call})" if text.verb else call)


def refusal(error: GitleaseError) -> GitleaseError:
    """The refusal as a caller gets it: hints in Python, and without the traceback below."""
    hints = tuple(dict.fromkeys((*map(in_python, error.hints), *_suggested_calls(error))))
    shown = error.with_(text=_text(error), hints=hints)
    for hint in hints:
        shown.add_note(f"hint: {hint}")
    return shown


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


def bind(function: Callable[..., Any], args: Any, options: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call by name. Raises TypeError, which names the function."""
    try:
        return inspect.signature(function).bind(*args, **options).arguments
    except TypeError as error:
        raise TypeError(f"{function.__qualname__}() {error}") from None


def _check_strings(function: Callable[..., Any], args: Any, options: dict[str, Any]) -> None:
    """Raise UsageError for anything but a string where the annotation says str."""
    for name, value in bind(function, args, options).items():
        parameter = inspect.signature(function).parameters[name]
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


# --- arguments ------------------------------------------------------------------------------------


class OpenOptions(TypedDict, total=False):
    """Where the leases are that a function opens."""

    layer: str | None
    local: bool
    remote: str | None
    environ: Mapping[str, str] | None


def taking(options: Any) -> Callable[[F], F]:
    """Decorate a function so that its signature lists its ``**options``, which are of this type."""

    def parameter(name: str, kind: Any) -> inspect.Parameter:
        text = getattr(kind, "__forward_arg__", kind)
        default = () if text.startswith("Iterable") else False if text == "bool" else None
        return inspect.Parameter(name, KEYWORD, default=default, annotation=text)

    def decorate(function: F) -> F:
        plain = inspect.signature(function)
        kept = [x for x in plain.parameters.values() if x.kind is not x.VAR_KEYWORD]
        known = [parameter(*one) for one in options.__annotations__.items()]
        vars(function)["__signature__"] = plain.replace(parameters=[*kept, *known])
        return function

    return decorate


def split_place(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Tell the options of a place from the others."""
    place = {name: value for name, value in options.items() if name in OpenOptions.__annotations__}
    return place, {name: value for name, value in options.items() if name not in place}


def to_folder(place: StrPath) -> str:
    """A folder's path. UsageError for anything that is not a path."""
    return path_text(place, "a folder")


def to_list(words: Iterable[T], what: str) -> list[T]:
    """The items of an iterable. UsageError for a single string or path, or no iterable."""
    if isinstance(words, str | os.PathLike) or not isinstance(words, Iterable):
        raise UsageError(f"{what} must be a list")
    return [*words]


def to_resources(door: Any, words: Sequence[ResourceLike]) -> list[Resource]:
    """Several resources, at least one."""
    if not words:
        raise UsageError("name at least one resource")
    found: list[Resource] = door.resources(words)
    return found


def check_resource(word: Any) -> Any:
    """A resource as it was given, of a kind that can name one. Raises UsageError."""
    if not isinstance(word, Resource):
        path_text(word, "a resource")
    return word


def to_seconds(value: Duration | None, what: str) -> int | None:
    """A duration in whole seconds; None stays None. Raises UsageError."""
    return None if value is None else DURATION.read(None, number_text(value), what)


def number_text(value: Any) -> Any:
    """A float or Decimal as text, for it may be whole seconds; any other value as it is."""
    is_number = hasattr(value, "as_integer_ratio") and not isinstance(value, int)
    return str(value) if is_number else value


def to_note(text: str | None) -> str | None:
    """A note; None stays None. UsageError for one that cannot be stored or shown."""
    kind = find_verb("note").parameters["text"].kind
    return None if text is None else kind.read(None, text, "note")


def check_listener(on_lost: object) -> None:
    """UsageError for anything that cannot be called in a thread, such as a coroutine function."""
    if on_lost is not None and (not callable(on_lost) or inspect.iscoroutinefunction(on_lost)):
        raise UsageError("on_lost must be a plain function, not a coroutine function")
