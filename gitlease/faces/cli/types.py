"""The types of options and arguments, and their completion in shells."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import click

    Completer = Callable[[click.Context, click.Parameter, str], list[str]]


def duration(what: str) -> Callable[[str], int]:
    """Return a reader of durations in whole seconds; ``what`` names them in messages."""

    def read(text: str) -> int:
        from gitlease.core.instant import parse_duration

        return parse_duration(text, what=what)

    return read


def note(text: str) -> str:
    """Read a note. UsageError if it is too long or not printable."""
    from gitlease.core.errors import check_text
    from gitlease.core.lease import MAX_NOTE

    return check_text(text, what="note", limit=MAX_NOTE, lines=True)


ON_OWN = ("release", "renew", "extend", "done", "park")

# --- shell completion, from cached data -----------------------------------------------------------


def completed_by(words: Callable[[click.Context], Iterable[str]]) -> Completer:
    """Return a completer for these words; it completes nothing on errors."""

    def complete(ctx: click.Context, _param: click.Parameter, begun: str) -> list[str]:
        from gitlease.core.errors import GitleaseError

        try:
            return [word for word in words(ctx) if word.startswith(begun)]
        except GitleaseError:
            return []

    return complete


def one_of(*words: str) -> Completer:
    """Return a completer for fixed words."""
    return completed_by(lambda _: words)


def known_names(ctx: click.Context, param: click.Parameter, begun: str) -> list[str]:
    """Complete tasks and leases, and what is begun as a path; a verb that ends, by own leases."""
    paths = files(ctx, param, begun) if begun else []
    return list(dict.fromkeys([*_names(ctx, param, begun), *paths]))


@completed_by
def _names(ctx: click.Context) -> Iterable[str]:
    ledger = ctx.find_root().obj.ledger
    look, tasks = ledger.known_look(), ledger.edges.files.read().tasks
    leases = look.leases if look else ()
    own = [x for x in leases if x.answers_to(ledger.actor)] if ctx.command.name in ON_OWN else []
    names = sorted({x.resource.text for x in (*tasks, *leases)})
    return dict.fromkeys((*sorted(x.resource.text for x in own), *names))


def files(ctx: click.Context, _param: click.Parameter, begun: str) -> list[str]:
    """Complete paths below the folder of the command; a folder ends with a slash."""
    prefix = "path:" if begun.startswith("path:") else ""
    folder, _, name = begun.removeprefix(prefix).rpartition("/")
    head = f"{folder}/" if folder or begun.startswith("/") else ""
    if head.startswith("/"):
        return []  # from the root of the repository, which a shell does not know
    try:
        with os.scandir(os.path.join(ctx.find_root().obj.directory, head) or ".") as entries:
            shown = [e for e in entries if e.name.startswith(name) and e.name != ".git"]
            return sorted(f"{prefix}{head}{e.name}{'/' if e.is_dir() else ''}" for e in shown)
    except OSError:
        return []


def folders(ctx: click.Context, param: click.Parameter, begun: str) -> list[str]:
    """Complete folders."""
    return [path for path in files(ctx, param, begun) if path.endswith("/")]


@completed_by
def known_layers(ctx: click.Context) -> Iterable[str]:
    """Complete the layers that this clone uses."""
    return sorted(space.layer for space in ctx.find_root().obj.workspace.in_use)


@completed_by
def known_statuses(ctx: click.Context) -> Iterable[str]:
    """Complete the configured status words, and the statuses that they stand for."""
    statuses = ctx.find_root().obj.ledger.edges.rules.statuses
    words = [word for status, words in statuses.items() for word in (status.value, *words)]
    return dict.fromkeys(words)


@completed_by
def known_keys(ctx: click.Context) -> Iterable[str]:
    """Complete the settings of the clone or of the ledger's policy."""
    if ctx.params.get("ledger"):
        from gitlease.core.policy import KEYS

        return KEYS
    return [setting.key for setting in ctx.find_root().obj.workspace.settings.table()]
