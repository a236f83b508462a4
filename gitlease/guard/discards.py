"""Shell commands that throw away what is in a work tree, or change it under others' feet.

Only what is written out is seen, and not what variables, aliases, functions or scripts come to: a
command that is meant to get by will.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence

from gitlease.core.frozen import dataclass

LONGEST = 10_000  # characters of a command
OPERATORS = ";&|()\n"
# What may stand before a command, and of git the options that take the next word.
BEFORE = frozenset(
    (
        *("sudo", "command", "exec", "time", "env", "nohup", "nice", "timeout", "xargs"),
        *("!", "{", "if", "then", "else", "elif", "while", "until", "do"),
    )
)
_OF_WRAPPER = r"-.*|[0-9.]+[smhd]?|[+][0-9]+"  # its options, and their values
SHELLS = frozenset(("sh", "bash", "dash", "zsh", "ksh"))
TAKES_WORD = frozenset(("-C", "-c", "--config-env", "--namespace", "--exec-path"))
AUTOSTASH = frozenset(
    f"{verb}.autostash{value}"
    for verb in ("rebase", "merge")
    for value in ("", "=true", "=yes", "=on", "=1")
)
ELSEWHERE = ("--git-dir", "--work-tree")
STASHING = ("push", "save", "pop", "apply", "drop", "clear", "branch")
HELP = frozenset(("-h", "--help"))
_HERE_DOCUMENT = r"(<<-?[ \t]*([\"']?)(\w+)\2[^\n]*\n)(?:.*?\n)?[ \t]*\3[ \t]*(?=\n|\Z)"


@dataclass(frozen=True, slots=True)
class Discard:
    """A command of git that throws work away, and a folder in the work tree that it does it to.

    ``stash``: it uses the list of stashes, which all work trees of a clone share. ``removes`` is
    the work tree that it removes, by its path from that folder, or the end of its path.
    """

    words: str
    folder: str
    stash: bool = False
    removes: str = ""


def discards(command: str, folder: str) -> Iterator[Discard]:
    """The commands in a shell's line that throw away a work tree; ``folder`` is where it starts.

    After a change of folder that is not written out, nothing more is known.
    """
    if len(command) > LONGEST or "git" not in command or not any(map(command.__contains__, VERBS)):
        return
    import re

    if "<<" in command:
        command = re.sub(_HERE_DOCUMENT, r"\1", command, flags=re.DOTALL)
    for words in _commands(command):
        wrapped = False
        while words and (
            os.path.basename(words[0]) in BEFORE
            or _is_assignment(words[0])
            or (wrapped and re.fullmatch(_OF_WRAPPER, words[0]))
        ):
            wrapped = wrapped or words[0][0] not in "!{"
            del words[0]
        if words[:1] == ["cd"]:
            to = words[1] if len(words) == 2 and words[1] else "$"
            if to[0] in "-~" or "$" in to or "`" in to:
                return
            folder = os.path.join(folder, to)
        elif words and os.path.basename(words[0]) in SHELLS:
            at = next((n for n, x in enumerate(words) if re.fullmatch("-[a-z]*c", x)), len(words))
            for line in words[at + 1 : at + 2]:
                yield from discards(line, folder)
        elif words and os.path.basename(words[0]) == "git":
            found = _of_git(words[1:], folder)
            if found is not None:
                yield found


def _is_assignment(word: str) -> bool:
    name, equals, _ = word.partition("=")
    return bool(equals) and name.isidentifier()


def _commands(text: str) -> Iterator[list[str]]:
    """The words of each simple command, without where its output goes."""
    import re
    import shlex

    lexer = shlex.shlex(text, posix=True, punctuation_chars=OPERATORS + "<>")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    words: list[str] = []
    try:
        tokens = iter(list(lexer))
    except ValueError:  # a quote that is not closed
        without = re.sub(r"(^|\s)#[^\n]*", r"\1", text)  # such as the apostrophe of a comment
        if without != text:
            yield from _commands(without)
        return
    for token in tokens:
        if not token or token[0] not in OPERATORS + "<>":
            words.append(token)
        elif "<" in token or ">" in token:
            next(tokens, None)
            if words and words[-1].isdigit():
                del words[-1]  # of the stream, as in 2>&1
        else:
            yield words
            words = []
    yield words


def _of_git(words: Sequence[str], folder: str) -> Discard | None:
    rest, stashes = list(words), False
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option.startswith(ELSEWHERE):
            return None
        value = rest.pop(0) if option in TAKES_WORD and rest else ""
        if option == "-c" and value.lower() in AUTOSTASH:
            stashes = True
        if option == "-C":
            if "$" in value:
                return None
            folder = os.path.join(folder, value)
    if not rest or rest[0] not in VERBS or not HELP.isdisjoint(rest):
        return None
    stashes = stashes and VERBS[rest[0]] is _autostash and "--no-autostash" not in rest
    if not (stashes or VERBS[rest[0]](rest[1:])):
        return None
    import shlex

    removes = _plain(rest[2:])[-1] if rest[0] == "worktree" else ""
    line = shlex.join(["git", *rest])
    return Discard(line, folder, stash=rest[0] == "stash", removes=removes)


def _stash(words: Sequence[str]) -> bool:
    return not words or words[0].startswith("-") or words[0] in STASHING


def _autostash(words: Sequence[str]) -> bool:
    return _has(words, "", "--autostash")


def _rm(words: Sequence[str]) -> bool:
    return _has(words, "rf", "--force") and not _has(words, "n", "--cached", "--dry-run")


def _read_tree(words: Sequence[str]) -> bool:
    return _has(words, "u") and _has(words, "", "--reset")


def _checkout_index(words: Sequence[str]) -> bool:
    return _has(words, "f", "--force")


def _worktree(words: Sequence[str]) -> bool:
    named = _plain(words[1:])
    forced = words[:1] == ["remove"] and _has(words, "f", "--force")
    return forced and len(named) == 1 and "$" not in named[0]


def _reset(words: Sequence[str]) -> bool:
    return not {"--hard", "--merge", "--keep"}.isdisjoint(words)


def _clean(words: Sequence[str]) -> bool:
    return _has(words, "f", "--force") and not _has(words, "n", "--dry-run")


def _switch(words: Sequence[str]) -> bool:
    return bool(words)


def _restore(words: Sequence[str]) -> bool:
    index = _has(words, "S", "--staged") and not _has(words, "W", "--worktree")
    return not index and not _has(words, "p", "--patch") and bool(words)


def _checkout(words: Sequence[str]) -> bool:
    """Whether it switches, forces or restores files: others may have edited the same ones."""
    before, dashes, _ = _split(words)
    named = [word for word in before if word == "-" or not word.startswith("-")]
    if _has(before, "p", "--patch"):
        return False
    if (
        dashes
        or len(named) > 1
        or _has(before, "fbBdt", "--force", "--orphan", "--detach", "--track")
    ):
        return True
    return bool(named) and named[0] not in ("HEAD", "@") and "$" not in named[0]


def _split(words: Sequence[str]) -> tuple[Sequence[str], bool, Sequence[str]]:
    at = words.index("--") if "--" in words else len(words)
    return words[:at], at < len(words), words[at + 1 :]


def _plain(words: Sequence[str]) -> list[str]:
    """Those that are no options."""
    before, _, after = _split(words)
    return [*(word for word in before if not word.startswith("-")), *after]


def _has(words: Sequence[str], letters: str, *names: str) -> bool:
    """Whether one of these options is given, alone or among other letters."""
    options = _split(words)[0]
    short = (word for word in options if word[:1] == "-" and word[:2] != "--")
    return any(word in names for word in options) or any(
        letter in word for word in short for letter in letters
    )


VERBS: dict[str, Callable[[Sequence[str]], bool]] = {
    "stash": _stash,
    "reset": _reset,
    "checkout": _checkout,
    "restore": _restore,
    "clean": _clean,
    "switch": _switch,
    "rm": _rm,
    "read-tree": _read_tree,
    "checkout-index": _checkout_index,
    "worktree": _worktree,
    **dict.fromkeys(("pull", "rebase", "merge"), _autostash),
}
