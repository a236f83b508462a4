"""Shell commands that discard work in a work tree, found by one expression over their text.

It finds what is written out: aliases, scripts, most variables, words that are quoted in part, and
text that is piped to a shell hide a command from it. Each part of the expression, and what is done
with a match, takes time in proportion to the text, so that a long command is read whole.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cache

from gitlease.kernel.rules.frozen import dataclass

LONGEST = 200_000  # characters of a command; Linux takes 131,072 bytes in one argument
DEEPEST = 8  # shells that run one another's texts
LONGEST_PATH = 4_096  # characters: a longer one names no folder
MENTIONED = (
    *("stash", "reset", "checkout", "switch", "restore", "clean", "rm ", "rm\t", "rm\\"),
    *('rm"', "rm'"),
    *("worktree", "autostash"),
)


@dataclass(frozen=True)
class Discard:
    """A command that discards work, and the folder in which it runs.

    ``stash``: it uses the list of stashes, which all work trees of a clone share. ``deletes``: it
    deletes ``folder`` with everything in it.
    """

    words: str
    folder: str
    stash: bool = False
    deletes: bool = False


def discards(command: str, folder: str, depth: int = 0) -> Iterator[Discard]:
    """Find the commands in a shell's text that discard work; ``folder`` is where it starts.

    A text that is too long to be read counts as one of them, and so does one that is ``depth``
    shells below the command, if that is too deep.
    """
    # Most commands of agents end here: compiling the expression takes 15 ms.
    if not any(map(command.__contains__, MENTIONED)):
        return
    if len(command) > LONGEST:
        yield Discard(
            f"a command of {len(command)} characters is too long to check (split it)", folder
        )
        return
    if depth > DEEPEST:
        yield Discard(f"more than {DEEPEST} shells within one another are too many", folder)
        return
    # A `cd` in parentheses ends with them.
    folders = [folder]
    for found in expression().finditer(_without_open_documents(command)):
        here = folders[-1]
        if found["paren"] == "(":
            folders.append(here)
        elif found["paren"]:
            if len(folders) > 1:
                folders.pop()
        elif found["cd"]:
            folders[-1] = _folder_named(found["cd"], here) or folder
        elif found["git"]:
            at = _folder_named(found["place"], here) or folder if found["place"] else here
            yield Discard(" ".join(found["git"].split()), at, stash=bool(found["stash"]))
        elif found["deletes"]:
            words = " ".join(found["deletes"].split())
            for path in _paths_in(found["deleted"], here):
                yield Discard(words, path, deletes=True)
        # What a shell gets to run, and the rest of the line in which a here-document begins.
        if found["script"]:
            yield from discards(_unquoted(found["script"]), here, depth + 1)
        elif found["evaluated"]:
            script = " ".join(map(_plain, re.findall(WORD, found["evaluated"])))
            yield from discards(script, here, depth + 1)
        elif found["document"] is not None:
            rest = found["document"]
            yield from discards(f"-{rest}", here, depth + 1)
            if found["shell"] or re.search(INTO_SHELL, re.sub(QUOTED, "''", rest)):
                yield from discards(found["document_text"], here, depth + 1)


def _without_open_documents(command: str) -> str:
    """Return a command in which each here-document has an end, which need not be looked for."""
    if "<<" not in command:
        return command
    last = {found[1]: found.start() for found in re.finditer(DOCUMENT_END, command)}

    def checked(found: re.Match[str]) -> str:
        has_end = last.get(found[2], -1) > found.start()
        return found[0] if has_end else found[0].replace("<<", "<", 1)

    return re.sub(DOCUMENT_BEGIN, checked, command)


def _plain(word: str) -> str:
    """Return a word as the shell reads it, of whichever quoted parts it consists."""
    return re.sub(rf"{QUOTED}|\\[\s\S]", lambda x: _unquoted(x[0]), word)


def _unquoted(word: str) -> str:
    if word[0] == "\\":
        return word[1:].removeprefix("\n")
    quote = word[0]
    if quote not in ("'", '"') or word[-1] != quote:
        return word
    return word[1:-1] if quote == "'" else re.sub(r'\\([\\"$`])', r"\1", word[1:-1])


def _folder_named(word: str, folder: str) -> str | None:
    """Return a folder as the shell reads it; None if the text does not tell."""
    if len(word) + len(folder) > LONGEST_PATH:
        return None
    path = _expanded(_unquoted(word))
    is_known = path != "-" and not path.startswith("~") and not {*"$`"} & {*path}
    return os.path.normpath(os.path.join(folder, path)) if is_known else None


def _expanded(word: str) -> str:
    return os.path.expanduser(os.path.expandvars(word))


def _paths_in(arguments: str, folder: str) -> list[str]:
    """Return the paths that a command deletes; those of ``dir/*`` count as ``dir``."""
    words = map(_plain, re.findall(WORD, re.sub(REDIRECTION, " ", arguments)))
    paths = dict.fromkeys(
        os.path.normpath(os.path.join(folder, re.sub(r"(^|/)\.?\*/?$", r"\1", _expanded(word))))
        for word in words
        if not word.startswith("-") and len(word) <= LONGEST_PATH
    )
    # Without any, as below `xargs`, they come from elsewhere.
    return [*paths] or [folder]


# --- the expression, by its parts -------------------------------------------------------------

SPACE = r"(?:[ \t]|\\\n)+"
QUOTED = r"(?:\"(?>\\[\s\S]|[^\"\\])*+\"|'[^']*+')"
END = r"(?![^\s;&|()<>`])"  # of a word
WORD = r"(?>\"(?>\\[\s\S]|[^\"\\])*+\"|'[^']*+'|\\.|\$\([^()]*+\)|`[^`]*+`|[^\s;&|()<>\"'\\`])++"
REDIRECTION = rf"(?:\b[0-9]++)?(?:&>|[<>]{{1,2}}&?)[ \t]*+{WORD}"
ARGUMENT = rf"(?:[ \t]*+{REDIRECTION}|{SPACE}{WORD})"
ARGUMENTS = rf"(?:{ARGUMENT})*+"
PLACE = r"\\?(?:[\w.~+-]*+/)*+"  # before the name of a program; `\` passes over its alias
# What may stand before a command: a command that runs it, with options and values of these.
WRAPPER = (
    r"(?:sudo|doas|command|builtin|exec|time|env|nohup|nice|ionice|stdbuf|setsid|timeout|xargs"
    r"|busybox|toybox)"
)
NO_COMMAND = rf"(?!['\"]?{PLACE}(?:{WRAPPER}|git|rm|eval|[a-z]*sh)['\"]?\s)"
BEFORE = (
    r"(?:(?:!|\{|if|then|else|elif|while|until|do|coproc|function[ \t]++[^\s(){}]++)\s++"
    rf"|{PLACE}{WRAPPER}{SPACE}"
    rf"(?>(?:-[^\s;&|()]*+(?:{SPACE}{NO_COMMAND}[^\s;&|()-][^\s;&|()]*+)?|\+?[0-9][\w.]*+){SPACE})*+"
    rf"|[A-Za-z_]\w*+=(?:{WORD})?{SPACE})*+"
)


def _word(text: str) -> str:
    """A word, plain or in quotes."""
    return rf"(?:{text}|\"{text}\"|'{text}')"


SHELL = _word(rf"{PLACE}(?:ba|da|z|k)?sh")
# Behind a here-document: its text is piped to a shell.
INTO_SHELL = rf"\|&?[ \t]*+{BEFORE}{SHELL}(?:{SPACE}-\w*+)*+[ \t]*+(?=$|[;&|)<>])"
DOCUMENT_BEGIN = r"(?<!<)<<-?[ \t]*+(['\"]?)(\w++)\1"
DOCUMENT_END = r"(?m)^[ \t]*+(\w++)[ \t]*+(?=\n|\)|\Z)"


def _document(name: str) -> str:
    """A here-document, with the line in which it begins; its text is data for a command."""
    return (
        rf"(?<!<)<<-?[ \t]*+(?P<{name}_quote>['\"]?)(?P<{name}_end>\w++)(?P={name}_quote)"
        rf"(?P<{name}>[^\n]*+)\n(?P<{name}_text>(?:.*+\n)*?)[ \t]*(?P={name}_end)[ \t]*(?=\n|\)|\Z)"
    )


def _in_text(name: str) -> str:
    return rf"(?>\\[\s\S]|{_document(name)}|[^\"\\])"


# What belongs to one command: no operator ends it, nor a command that begins within it. That bounds
# how far anybody looks, since these would all look over the same text.
PIECE = r"(?:[^;&|()`\n\\\s]|\\[\s\S]|[ \t](?!-(?:exec|ok)(?:dir)?[ \t]))*"
WITHIN = rf"{PIECE}(?:(?:`[^`;&|()\n]*+`|\$\([^`;&|()\n]*+\)){PIECE}){{0,2}}"


def _has(letters: str, *names: str) -> str:
    """One of these options stands before the next operator, alone or among other letters."""
    short = [rf"-(?=[A-Za-z]++['\"]?{END})[A-Za-z]*?[{letters}][A-Za-z]*+"] * bool(letters)
    options = "|".join((*short, *names))
    return rf"(?={WITHIN}(?:[ \t]|\\\n)['\"]?(?:{options})['\"]?{END})"


def _lacks(letters: str, *names: str) -> str:
    return _has(letters, *names).replace("(?=", "(?!", 1)


# What a shell runs begins at an operator, and in a text at a substitution.
OPERATOR = r"(?<!(?<!\\)\\[\n;&|()`])(?<![^\n;&|()`])(?:[ \t]|\\\n)*+"
START = rf"(?:{OPERATOR}|\"{_in_text('before')}*?(?:\$\(|`)\s*+|(?<=\s)-(?:exec|ok)(?:dir)?\s++)"
OPTION = (
    rf"(?:-C{SPACE}(?P<place>{WORD})|-c{SPACE}{WORD}"
    rf"|--(?:config-env|namespace|git-dir|work-tree){SPACE}{WORD}|-{WORD})"
)
GIT = rf"{_word(f'{PLACE}git')}{SPACE}(?:{OPTION}{SPACE})*"
VERBS = (
    rf"(?P<stash>{_word('stash')}{END})(?!{SPACE}{_word('(?:list|show|create|store)')}{END})",
    rf"{_word('reset')}{END}{_has('', '--hard', '--merge', '--keep')}",
    # `git checkout HEAD` changes nothing, and with -p a person picks each piece.
    rf"{_word('checkout')}{END}{_lacks('p', '--patch')}"
    rf"(?!(?:{SPACE}(?:HEAD|@))?[ \t]*(?![^\n;&|()]))",
    rf"{_word('switch')}{END}(?={SPACE}[^\n;&|()])",
    rf"{_word('restore')}{END}(?={SPACE}[^\n;&|()]){_lacks('p', '--patch')}"
    rf"(?:{_has('W', '--worktree')}|{_lacks('S', '--staged')})",
    rf"{_word('clean')}{END}{_has('f', '--force')}{_lacks('n', '--dry-run')}",
    rf"{_word('rm')}{END}{_has('rf', '--force')}{_lacks('n', '--cached', '--dry-run')}",
    rf"{_word('read-tree')}{END}{_has('u')}{_has('', '--reset')}",
    rf"{_word('checkout-index')}{END}{_has('f', '--force')}",
    rf"{_word('(?:pull|rebase|merge)')}{END}{_has('', '--autostash')}",
)
DELETING = (
    rf"(?:{_word(f'{PLACE}rm')}{END}{_has('rR', '--recursive')}"
    rf"|{GIT.replace('?P<place>', '?:')}{_word('worktree')}{SPACE}{_word('remove')}{END}"
    rf"{_has('f', '--force')})"
)
COMMANDS = (
    rf"{_word('cd')}{SPACE}(?:--{SPACE})?(?P<cd>{WORD})",
    rf"(?P<git>{GIT}(?:{'|'.join(VERBS)}){_lacks('', '-h', '--help')}{ARGUMENTS})",
    rf"(?P<deletes>{DELETING}(?P<deleted>{ARGUMENTS}))",
    rf"{SHELL}(?:{SPACE}(?:-\S+{SPACE})*-[a-z]*c{SPACE}|(?:{SPACE}-\w*)*[ \t]*<<<[ \t]*)"
    rf"(?P<script>{WORD})",
    rf"(?:{_word('eval')}{SPACE})+(?P<evaluated>{WORD}{ARGUMENTS})",
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
