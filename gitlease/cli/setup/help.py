"""``help``, ``completion`` with its words, and ``config``, which prints schemas as well."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import click
from click import Option

from gitlease.agents.handling import ACTIONS
from gitlease.cli import output
from gitlease.cli.app import (
    ALIASES,
    COMPLETE,
    MODULES,
    application,
    command,
    list_of_verbs,
    run_verb,
    suggestions,
    verb,
)
from gitlease.cli.call import Call
from gitlease.kernel.rules.errors import GitleaseError, UsageError
from gitlease.kernel.rules.policy import KEYS
from gitlease.kernel.settings.identity import AGENTS
from gitlease.runs.child import is_talked_to, show_in_pager
from gitlease.verbs.table import DeclaredVerb, Result

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

Completer = Callable[[click.Context, click.Parameter, str], list[str]]
PAGE = ".md"
TO_PAGE = re.compile(r"\[([^\]]+)\]\((?:\.\./\w+/)?([\w-]+)\.md\)")  # a link between pages
ON_OWN = ("release", "renew", "extend", "done")
VERBS = "verbs"  # the topic that lists them all
SHELLS = ("bash", "zsh", "fish")
# click's own script for bash splits completed words at spaces.
BASH = """\
_gitlease_completion_from() {
    local at=$1 line IFS=' '
    while IFS= read -r line; do
        [[ -z $line ]] || COMPREPLY+=("$(printf '%q' "${line#*,}")")
    done < <(COMP_WORDS="gitlease ${COMP_WORDS[*]:at+1}" COMP_CWORD=$((COMP_CWORD - at)) \\
        _GITLEASE_COMPLETE=bash_complete gitlease)
    [[ ${#COMPREPLY[@]} != 1 || $COMPREPLY != */ ]] || compopt -o nospace 2> /dev/null
}
_gitlease_completion() {
    _gitlease_completion_from 0
}
complete -o nosort -F _gitlease_completion gitlease 2> /dev/null ||
    complete -F _gitlease_completion gitlease
"""
# click's script for zsh has a space follow a folder.
ZSH_ADDS = "compadd -U -V unsorted -a completions"
ZSH_ADDS_FOLDERS = """\
compadd -U -V unsorted -S '' -- ${(M)completions:#*/}
        compadd -U -V unsorted -- ${completions:#*/}"""
# Completes `git lease <TAB>`, through git's own completion.
FOR_GIT = {
    "bash": """
_git_lease() {
    local at=1
    while [[ ${COMP_WORDS[at]} != lease ]]; do at=$((at + 1)); done
    _gitlease_completion_from "$at"
}
""",
    "zsh": """
_git-lease() { _gitlease_completion; }
""",
    "fish": """
function _gitlease_git_completion
    set -l words (commandline -opc)
    set -e words[1..(contains --index lease $words)]
    set -l typed (string escape -- gitlease $words | string join ' ') (commandline -ct)
    env _GITLEASE_COMPLETE=bash_complete COMP_WORDS="$typed" \\
        COMP_CWORD=(math (count $words) + 1) gitlease |
        string replace --filter --regex '^[^,]*,' ''
end
complete --no-files --command git --condition '__fish_seen_subcommand_from lease' \\
    --arguments '(_gitlease_git_completion)'
""",
}


@cache
def pages() -> dict[str, Traversable]:
    """Return the pages of the documentation by topic: each lies in ``docs``, or in its part."""
    folders = [x for x in output.package().iterdir() if x.is_dir()]
    files = [x for folder in folders for x in folder.iterdir() if x.name.endswith(PAGE)]
    files.sort(key=lambda x: x.name)
    return {x.name.removesuffix(PAGE): x for x in files}


# --- shell completion, from cached data -----------------------------------------------------------


def completed_by(words: Callable[[click.Context], Iterable[str]]) -> Completer:
    """Return a completer for these words; it completes nothing on errors."""

    def complete(ctx: click.Context, _param: click.Parameter, begun: str) -> list[str]:
        try:
            return [word for word in words(ctx) if word.startswith(begun)]
        except GitleaseError:
            return []

    return complete


def known_names(ctx: click.Context, param: click.Parameter, begun: str) -> list[str]:
    """Complete tasks and leases, and what is begun as a path; a verb that ends, by own leases."""
    paths = files(ctx, param, begun) if begun else []
    return list(dict.fromkeys([*_names(ctx, param, begun), *paths]))


@completed_by
def _names(ctx: click.Context) -> Iterable[str]:
    ledger = ctx.find_root().obj.ledger
    view, tasks = ledger.known_look(), ledger.edges.files.read().tasks
    leases = view.leases if view else ()
    # What ends a lease is mostly typed for one's own: those come first.
    mine = [x for x in leases if x.answers_to(ledger.actor)] if ctx.command.name in ON_OWN else []
    names = sorted({x.resource.text for x in (*tasks, *leases)})
    return dict.fromkeys((*sorted(x.resource.text for x in mine), *names))


def files(ctx: click.Context, _param: click.Parameter, begun: str) -> list[str]:
    """Complete paths below the folder of the command; a folder ends with a slash."""
    prefix = "path:" if begun.startswith("path:") else ""
    folder, _, name = begun.removeprefix(prefix).rpartition("/")
    head = f"{folder}/" if folder or begun.startswith("/") else ""
    # From the root of the repository, which a shell does not know.
    if head.startswith("/"):
        return []
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
        return KEYS
    return [setting.key for setting in ctx.find_root().obj.workspace.settings.table()]


@completed_by
def agent_words(ctx: click.Context) -> Iterable[str]:
    """Complete a coding agent, and what to do with its hooks."""
    return ACTIONS if ctx.params.get("host") else AGENTS


@completed_by
def known_pages(ctx: click.Context) -> Sequence[str]:
    """Complete the first word of ``help``."""
    return () if ctx.params.get("words") else (*MODULES, *ALIASES, VERBS, *pages())


# --- the verbs ------------------------------------------------------------------------------------


@verb(
    "help",
    """Show the help of a verb, or a page of the documentation.

Without an argument it shows the verbs for every day and the topics; `verbs` lists every verb. On a
terminal a page is shown in git's pager; in a pipe it is Markdown.""",
    examples=(
        "gitlease help",
        "gitlease help verbs",
        "gitlease help claim",
        "gitlease help recipes",
    ),
    exits=(2,),
    done="shown",
    session=False,
)
@click.argument("words", metavar="[VERB|TOPIC]", shell_complete=known_pages, nargs=-1)
def help_verb(call: Call, *, words: tuple[str, ...]) -> None:
    word = words[0] if words else None
    text = _text(click.get_current_context().find_root(), word)
    is_page = word in pages()
    # `help hooks install` is about hooks.
    known = () if is_page else re.findall(r"[\w-]+", text)
    if surplus := [x for x in words[1:] if x not in known]:
        raise UsageError(f"got unexpected extra argument ({surplus[0][:60]})")
    call.respond(Result(body={"topic": word, "text": text}), lambda: _show(text, page=is_page))


def _text(root: click.Context, word: str | None) -> str:
    verbs = application()
    if word == VERBS:
        return list_of_verbs(root)
    if word is None:
        topics = ", ".join([VERBS, *pages()])
        return f"{root.get_help()}\n\nTopics of `{root.info_name} help`: {topics}"
    if word in pages():
        text = pages()[word].read_text(encoding="utf-8")
        # Marks of what is generated in the page.
        text = re.sub(r"<!-- .*? -->\n", "", text)
        return TO_PAGE.sub(r"\1 (`gitlease help \2`)", text)
    verb = verbs.get_command(root, word)
    if verb is None:
        near = suggestions(word, [*verbs.list_commands(root), VERBS, *pages()])
        hints = tuple(f"did you mean {root.info_name} help {x}?" for x in near)
        raise UsageError(f"unknown verb or topic {word[:60]!r}", hints=hints)
    with click.Context(verb, info_name=verb.name, parent=root) as context:
        return verb.get_help(context)


def _show(text: str, *, page: bool) -> None:
    if page and output.on_terminal():
        from rich.markdown import Markdown

        console = output.console()
        with console.capture() as capture:
            console.print(Markdown(text, hyperlinks=False))
        if not is_talked_to() or not show_in_pager(capture.get()):
            print(capture.get(), end="")
    else:
        print(text.rstrip("\n"))


@verb(
    "completion",
    """Print a script for shell completion of verbs, options, settings, pages, layers, statuses and
the names of tasks and leases known to this clone. It also completes `git lease` if git's own
completion is loaded.""",
    examples=(
        "gitlease completion bash >> ~/.bashrc",
        "gitlease completion zsh >> ~/.zshrc          # below compinit",
        "gitlease completion fish > ~/.config/fish/completions/gitlease.fish",
    ),
    exits=(2,),
    done="printed",
    session=False,
)
@click.argument("shell", metavar="|".join(SHELLS), type=click.Choice(SHELLS))
def completion_verb(call: Call, *, shell: str) -> None:
    from click.shell_completion import FishComplete, ZshComplete

    script = BASH
    if shell != "bash":
        kind = {"zsh": ZshComplete, "fish": FishComplete}[shell]
        root = click.get_current_context().find_root().command
        made = kind(root, {}, "gitlease", COMPLETE)
        script = (made.source_template % made.source_vars()).rstrip("\n") + "\n"
        script = script.replace(ZSH_ADDS, ZSH_ADDS_FOLDERS)
    script += FOR_GIT[shell]
    call.respond(Result(body={"shell": shell, "script": script}), lambda: print(script, end=""))


def _config(declared: DeclaredVerb, call: Call, *, schema: str | None, **given: Any) -> int:
    if schema is None:
        return run_verb(declared, call, **given)
    if any(given.values()):
        raise UsageError("--schema cannot be combined with anything else")
    text = output.docs().joinpath(f"{schema}.schema.json").read_text(encoding="utf-8")
    document = Result(body={"document": json.loads(text)})
    return call.respond(document, lambda: print(text, end=""))


config_command = partial(
    command,
    "config",
    _config,
    Option(
        ["--schema"],
        metavar="[=NAME]",
        type=click.Choice(("settings", "answers")),
        help="Print the JSON schema of .gitlease.yaml (settings) or of --json output (answers).",
    ),
    bare={"--schema": "settings"},
)
