"""Shell commands that throw away what is in a work tree, or change it under others' feet.

Only what is written out is seen: a command that is meant to get by will.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence

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
TAKES_WORD = frozenset(("-C", "-c", "--config-env", "--namespace", "--git-dir", "--work-tree"))
# Options of a rebase or merge that is under way.
GOING_ON = ("--continue", "--abort", "--skip", "--quit", "--edit-todo", "--show-current-patch")
REBASE, MERGE = "rebase.autostash", "merge.autostash"  # settings of git
ON = frozenset(("", "true", "yes", "on", "1"))
# Options, and the variables that stand for them.
ELSEWHERE = {"--git-dir": "GIT_DIR", "--work-tree": "GIT_WORK_TREE"}
STASHING = ("push", "save", "pop", "apply", "drop", "clear", "branch")
HELP = frozenset(("-h", "--help"))
# Its text is data for the command, and not a command.
_HERE_DOCUMENT = r"(<<-?[ \t]*([\"']?)(\w+)\2[^\n]*\n)(?:.*?\n)?[ \t]*\3[ \t]*(?=\n|\Z)"


@dataclass(frozen=True, slots=True)
class Discard:
    """A command that throws work away, and a folder in the work tree that it does it to.

    ``removes`` is the work tree that it removes, by its path from that folder, or the end of its
    path. ``git_dir``: ``folder`` is the git directory of that work tree. ``deletes``: it deletes
    ``folder`` with all that is in it. ``settings``: it is one only if one of these settings of git
    is on.
    """

    words: str
    folder: str
    # All work trees of a clone share one list of stashes: a pop may take another session's work.
    stash: bool = False
    removes: str = ""
    git_dir: bool = False
    deletes: bool = False
    settings: tuple[str, ...] = ()


def discards(command: str, folder: str) -> Iterator[Discard]:
    """The commands in a shell's line that throw away a work tree; ``folder`` is where it starts."""
    # Nearly every command of an agent ends here, within the milliseconds that a hook has.
    git = "git" in command and any(map(command.__contains__, VERBS))
    if len(command) > LONGEST or not (git or "rm " in command):
        return
    if "<<" in command:
        command = re.sub(_HERE_DOCUMENT, r"\1", command, flags=re.DOTALL)
    exported: dict[str, str] = {}
    for words in _commands(command):
        wrapped, variables = False, dict(exported)
        while words and (
            os.path.basename(words[0]) in BEFORE
            or _is_assignment(words[0])
            # Only behind a wrapper: elsewhere such a word is the command's own.
            or (wrapped and re.fullmatch(_OF_WRAPPER, words[0]))
        ):
            wrapped = wrapped or words[0][0] not in "!{"
            variables |= _assigned(words[:1])
            del words[0]
        if words[:1] == ["cd"]:
            # Once the folder is not written out, nobody knows where the rest of the line happens.
            to = _written_out(words[1]) if len(words) == 2 and words[1] else None
            if to is None or to[0] == "-":
                return
            folder = os.path.join(folder, to)
        elif words[:1] == ["export"]:
            exported |= _assigned(words[1:])
        elif words and os.path.basename(words[0]) == "rm":
            yield from _of_rm(words, folder)
        elif words and os.path.basename(words[0]) in SHELLS:
            at = next((n for n, x in enumerate(words) if re.fullmatch("-[a-z]*c", x)), len(words))
            # Of `sh -c LINE ARGUMENT…` only the first word is run as a line.
            for line in words[at + 1 : at + 2]:
                yield from discards(line, folder)
        elif words and os.path.basename(words[0]) == "git":
            yield from _of_git(words[1:], folder, variables)


def _is_assignment(word: str) -> bool:
    name, equals, _ = word.partition("=")
    return bool(equals) and name.isidentifier()


def _assigned(words: Sequence[str]) -> dict[str, str]:
    """The variables that name another repository or work tree."""
    pairs = (word.partition("=") for word in words)
    return {name: value for name, is_set, value in pairs if is_set and name in ELSEWHERE.values()}


def _written_out(path: str) -> str | None:
    """A path as the shell reads it; None if that depends on more than is written out."""
    path = os.path.expanduser(path) if path.partition("/")[0] == "~" else path
    return None if path.startswith("~") or "$" in path or "`" in path else path


def _of_rm(words: Sequence[str], folder: str) -> Iterator[Discard]:
    if not _has(words[1:], "rR", "--recursive"):
        return
    for word in _plain(words[1:]):
        path = _written_out(word.removesuffix("/*"))
        if path and not set(path) & set("*?["):
            yield Discard(shlex.join(words), os.path.join(folder, path), deletes=True)


def _commands(text: str) -> Iterator[list[str]]:
    """The words of each simple command, without where its output goes."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=OPERATORS + "<>")
    # shlex would begin a comment within a word, too, and swallow the end of the line with it.
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    words: list[str] = []
    try:
        tokens = iter(list(lexer))
    except ValueError:  # a quote that is not closed
        # Such as the apostrophe of a comment.
        without = re.sub(r"(^|\s)#[^\n]*", r"\1", text)
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


def _of_git(words: Sequence[str], folder: str, variables: Mapping[str, str]) -> Iterator[Discard]:
    rest, given = list(words), dict(variables)
    settings: dict[str, bool] = {}
    while rest and rest[0].startswith("-"):
        name, equals, value = rest.pop(0).partition("=")
        if not equals and name in TAKES_WORD and rest:
            value = rest.pop(0)
        if name in ELSEWHERE:
            given[ELSEWHERE[name]] = value
        elif name == "-c":
            key, _, to = value.lower().partition("=")
            settings[key] = to in ON
        elif name == "-C":
            place = _written_out(value)
            if place is None:
                return
            folder = os.path.join(folder, place)
    if not rest or rest[0] not in VERBS or not HELP.isdisjoint(rest):
        return
    asked: tuple[str, ...] = ()
    if not VERBS[rest[0]](rest[1:]):
        asked = _stashed_by(rest[0], rest[1:])
        # `git -c rebase.autostash=…` decides for this one command, whatever the files of settings
        # say.
        decided = [settings[key] for key in asked if key in settings]
        if not asked or (len(decided) == len(asked) and not any(decided)):
            return
        asked = () if any(decided) else tuple(key for key in asked if key not in settings)
    line, stash = shlex.join(["git", *rest]), rest[0] == "stash"
    removes = _plain(rest[2:])[-1] if rest[0] == "worktree" else ""
    yield Discard(line, folder, stash=stash, removes=removes, settings=asked)
    # Git works on both: the folder that it starts in, and where these lead it.
    for variable in ELSEWHERE.values():
        place = _written_out(given.get(variable, ""))
        if place:
            at, is_git_dir = os.path.join(folder, place), variable == ELSEWHERE["--git-dir"]
            yield Discard(line, at, stash=stash, git_dir=is_git_dir, settings=asked)


def _stashed_by(verb: str, words: Sequence[str]) -> tuple[str, ...]:
    """The settings of git that have this command put changes aside, as ``--autostash`` does."""
    if VERBS[verb] is not _autostash or _has(words, "", "--no-autostash", *GOING_ON):
        return ()
    if verb == "pull" and not _has(words, "", "--no-rebase", "--rebase=false", "--ff-only"):
        # Without an option `pull.rebase` decides between the two, which is not read here.
        rebases = _has(words, "r", "--rebase", "--rebase=true", "--rebase=merges")
        return (REBASE,) if rebases else (REBASE, MERGE)
    return (REBASE,) if verb == "rebase" else (MERGE,)


def _autostash(words: Sequence[str]) -> bool:
    return _has(words, "", "--autostash")


def _worktree(words: Sequence[str]) -> bool:
    named = _plain(words[1:])
    forced = words[:1] == ["remove"] and _has(words, "f", "--force")
    # Without force git itself keeps a work tree with changes.
    return forced and len(named) == 1 and "$" not in named[0]


def _checkout(words: Sequence[str]) -> bool:
    # Whatever switches, forces or restores files may replace those that others have edited.
    before, dashes, _ = _split(words)
    named = [word for word in before if word == "-" or not word.startswith("-")]
    # A person picks each piece.
    if _has(before, "p", "--patch"):
        return False
    if (
        dashes
        or len(named) > 1
        or _has(before, "fbBdt", "--force", "--orphan", "--detach", "--track")
    ):
        return True
    # `git checkout HEAD` changes nothing, and a variable may come to that.
    return bool(named) and named[0] not in ("HEAD", "@") and "$" not in named[0]


def _split(words: Sequence[str]) -> tuple[Sequence[str], bool, Sequence[str]]:
    at = words.index("--") if "--" in words else len(words)
    return words[:at], at < len(words), words[at + 1 :]


def _plain(words: Sequence[str]) -> list[str]:
    """Return the words that are no options."""
    before, _, after = _split(words)
    return [*(word for word in before if not word.startswith("-")), *after]


def _has(words: Sequence[str], letters: str, *names: str) -> bool:
    """Tell whether one of these options is given, alone or among other letters."""
    options = _split(words)[0]
    short = (word for word in options if word[:1] == "-" and word[:2] != "--")
    return any(word in names for word in options) or any(
        letter in word for word in short for letter in letters
    )


VERBS: dict[str, Callable[[Sequence[str]], bool]] = {
    "stash": lambda x: not x or x[0].startswith("-") or x[0] in STASHING,
    "reset": lambda x: not {"--hard", "--merge", "--keep"}.isdisjoint(x),
    "checkout": _checkout,
    "restore": lambda x: (
        bool(x)
        and (_has(x, "W", "--worktree") or not _has(x, "S", "--staged"))
        and not _has(x, "p", "--patch")
    ),
    "clean": lambda x: _has(x, "f", "--force") and not _has(x, "n", "--dry-run"),
    "switch": bool,
    "rm": lambda x: _has(x, "rf", "--force") and not _has(x, "n", "--cached", "--dry-run"),
    "read-tree": lambda x: _has(x, "u") and _has(x, "", "--reset"),
    "checkout-index": lambda x: _has(x, "f", "--force"),
    "worktree": _worktree,
    **dict.fromkeys(("pull", "rebase", "merge"), _autostash),
}
