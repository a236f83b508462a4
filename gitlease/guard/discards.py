"""Shell commands that discard work in a work tree, found by one expression over their text.

It finds what is written out: aliases, scripts and most variables hide a command from it.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from functools import cache

from gitlease.core.frozen import dataclass

LONGEST = 20_000  # characters of a command
MENTIONED = (
    *("stash", "reset", "checkout", "switch", "restore", "clean", "rm ", "rm\t", "rm\\"),
    *("worktree", "autostash"),
)


@dataclass(frozen=True, slots=True)
class Discard:
    """A command that discards work, and the folder in which it runs.

    ``stash``: it uses the list of stashes, which all work trees of a clone share. ``deletes``: it
    deletes ``folder`` with everything in it.
    """

    words: str
    folder: str
    stash: bool = False
    deletes: bool = False


def discards(command: str, folder: str) -> Iterator[Discard]:
    """Find the commands in a shell's text that discard work; ``folder`` is where it starts."""
    # Most commands of agents end here: compiling the expression takes 10 ms.
    if len(command) > LONGEST or not any(map(command.__contains__, MENTIONED)):
        return
    # A `cd` in parentheses ends with them.
    folders = [folder]
    for found in expression().finditer(command):
        here = folders[-1]
        if found["paren"] == "(":
            folders.append(here)
        elif found["paren"]:
            folders = folders[:-1] or [folder]
        elif found["cd"]:
            folders[-1] = _folder_named(found["cd"], here) or folder
        elif found["git"]:
            at = _folder_named(found["place"], here) or folder if found["place"] else here
            yield Discard(" ".join(found["git"].split()), at, stash=bool(found["stash"]))
        elif found["deletes"]:
            for path in _paths_in(found["deleted"], here):
                yield Discard(" ".join(found["deletes"].split()), path, deletes=True)
        # What a shell gets to run, and the rest of the line in which a here-document begins.
        if found["script"]:
            yield from discards(_unquoted(found["script"]), here)
        elif found["document"] is not None:
            yield from discards(f"-{found['document']}", here)
            yield from discards(found["document_text"] if found["shell"] else "", here)


def _unquoted(word: str) -> str:
    quote = word[0]
    if quote not in ("'", '"') or word[-1] != quote:
        return word
    return word[1:-1] if quote == "'" else re.sub(r'\\([\\"$`])', r"\1", word[1:-1])


def _folder_named(word: str, folder: str) -> str | None:
    """Return a folder as the shell reads it; None if the text does not tell."""
    path = _expanded(_unquoted(word))
    is_known = path != "-" and not path.startswith("~") and not {*"$`"} & {*path}
    return os.path.normpath(os.path.join(folder, path)) if is_known else None


def _expanded(word: str) -> str:
    return os.path.expanduser(os.path.expandvars(word))


def _paths_in(arguments: str, folder: str) -> list[str]:
    """Return the paths that a command deletes; those of ``dir/*`` count as ``dir``."""
    try:
        words = shlex.split(re.sub(REDIRECTION, " ", arguments))
    except ValueError:
        return [folder]
    paths = [
        os.path.normpath(os.path.join(folder, re.sub(r"(^|/)\.?\*/?$", r"\1", _expanded(word))))
        for word in words
        if not word.startswith("-")
    ]
    # Without any, as below `xargs`, they come from elsewhere.
    return paths or [folder]


# --- the expression, by its parts -------------------------------------------------------------

SPACE = r"(?:[ \t]|\\\n)+"
END = r"(?![^\s;&|()<>`])"  # of a word
WORD = r"(?>\"(?>\\[\s\S]|[^\"\\])*+\"|'[^']*+'|\\.|\$\([^()]*+\)|`[^`]*+`|[^\s;&|()<>\"'\\`])++"
REDIRECTION = rf"(?:\b[0-9]++)?(?:&>|[<>]{{1,2}}&?)[ \t]*+{WORD}"
ARGUMENT = rf"(?:[ \t]*+{REDIRECTION}|{SPACE}{WORD})"
ARGUMENTS = rf"(?:{ARGUMENT})*+"
PLACE = r"\\?(?:[\w.~+-]*+/)*+"  # before the name of a program; `\` passes over its alias
# What may stand before a command: a command that runs it, with options and values of these.
WRAPPER = r"(?:sudo|doas|command|exec|time|env|nohup|nice|setsid|timeout|xargs)"
NO_COMMAND = rf"(?!{PLACE}(?:{WRAPPER}|git|rm|eval|[a-z]*sh)\s)"
BEFORE = (
    r"(?:(?:!|\{|if|then|else|elif|while|until|do)\s++"
    rf"|{PLACE}{WRAPPER}{SPACE}"
    rf"(?>(?:-[^\s;&|()]*+(?:{SPACE}{NO_COMMAND}[^\s;&|()-][^\s;&|()]*+)?|\+?[0-9][\w.]*+){SPACE})*+"
    rf"|[A-Za-z_]\w*+=(?:{WORD})?{SPACE})*+"
)
SHELL = rf"{PLACE}(?:ba|da|z|k)?sh"


def _document(name: str) -> str:
    """A here-document, with the line in which it begins; its text is data for a command."""
    return (
        rf"(?<!<)<<-?[ \t]*+(?P<{name}_quote>['\"]?)(?P<{name}_end>\w++)(?P={name}_quote)"
        rf"(?P<{name}>[^\n]*+)\n(?P<{name}_text>(?:.*+\n)*?)[ \t]*(?P={name}_end)[ \t]*(?=\n|\)|\Z)"
    )


def _in_text(name: str) -> str:
    return rf"(?>\\[\s\S]|{_document(name)}|[^\"\\])"


def _has(letters: str, *names: str) -> str:
    """One of these options stands before the next operator, alone or among other letters."""
    short = [rf"-[A-Za-z]*[{letters}][A-Za-z]*"] * bool(letters)
    return rf"(?=(?:[^;&|()\n\\]|\\[\s\S])*\s(?:{'|'.join((*short, *names))}){END})"


def _lacks(letters: str, *names: str) -> str:
    return _has(letters, *names).replace("(?=", "(?!", 1)


# What a shell runs begins at an operator, and in a text at a substitution.
OPERATOR = r"(?<!\\\n)(?<![^\n;&|()`])(?:[ \t]|\\\n)*+"
START = rf"(?:{OPERATOR}|\"{_in_text('before')}*?(?:\$\(|`)\s*+|(?<=\s)-(?:exec|ok)(?:dir)?\s++)"
OPTION = (
    rf"(?:-C{SPACE}(?P<place>{WORD})|-c{SPACE}{WORD}"
    rf"|--(?:config-env|namespace|git-dir|work-tree){SPACE}{WORD}|-{WORD})"
)
GIT = rf"{PLACE}git{SPACE}(?:{OPTION}{SPACE})*"
VERBS = (
    rf"(?P<stash>stash{END})(?!{SPACE}(?:list|show|create|store){END})",
    rf"reset{END}{_has('', '--hard', '--merge', '--keep')}",
    # `git checkout HEAD` changes nothing, and with -p a person picks each piece.
    rf"checkout{END}{_lacks('p', '--patch')}(?!(?:{SPACE}(?:HEAD|@))?[ \t]*(?![^\n;&|()]))",
    rf"switch{END}(?={SPACE}[^\n;&|()])",
    rf"restore{END}(?={SPACE}[^\n;&|()]){_lacks('p', '--patch')}"
    rf"(?:{_has('W', '--worktree')}|{_lacks('S', '--staged')})",
    rf"clean{END}{_has('f', '--force')}{_lacks('n', '--dry-run')}",
    rf"rm{END}{_has('rf', '--force')}{_lacks('n', '--cached', '--dry-run')}",
    rf"read-tree{END}{_has('u')}{_has('', '--reset')}",
    rf"checkout-index{END}{_has('f', '--force')}",
    rf"(?:pull|rebase|merge){END}{_has('', '--autostash')}",
)
DELETING = (
    rf"(?:{PLACE}rm{END}{_has('rR', '--recursive')}"
    rf"|{GIT.replace('?P<place>', '?:')}worktree{SPACE}remove{END}{_has('f', '--force')})"
)
COMMANDS = (
    rf"cd{SPACE}(?:--{SPACE})?(?P<cd>{WORD})",
    rf"(?P<git>{GIT}(?:{'|'.join(VERBS)}){_lacks('', '-h', '--help')}{ARGUMENTS})",
    rf"(?P<deletes>{DELETING}(?P<deleted>{ARGUMENTS}))",
    rf"(?:{SHELL}{SPACE}(?:-\S+{SPACE})*-[a-z]*c|eval){SPACE}(?P<script>{WORD})",
)
# What only looks like a command: comments, texts and here-documents, unless a shell gets these.
TEXTS = (
    r"(?<![^\s;&|()])#[^\n]*+",
    rf"(?P<shell>{OPERATOR}{BEFORE}{SHELL}(?:{SPACE}-\w*)*[ \t]*+)?{_document('document')}",
    rf"\"{_in_text('within')}*+\"",
    r"'[^']*+'",
    r"\\[\s\S]",
)


@cache
def expression() -> re.Pattern[str]:
    """The expression: a command that discards work, or what has to be passed over to find one."""
    command = rf"{START}{BEFORE}(?:{'|'.join(COMMANDS)})"
    return re.compile("|".join((command, *TEXTS, r"(?P<paren>[()])")))
