"""The programs above this process: the git that runs a hook, and whoever started it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import islice

from gitlease.kernel.git.run import ancestors, started_at
from gitlease.kernel.rules.frozen import dataclass

GENERATIONS = 12  # a hook's shell, its subshell, a hook manager and its shells, git
SHELLS = frozenset((b"sh", b"dash", b"bash", b"zsh", b"ksh", b"mksh", b"fish", b"busybox"))
_SHORT = b"mFtCc"  # the options of git commit that take a value
_LONG = frozenset(
    b"--" + name.encode()
    for name in (
        *("message", "file", "template", "reuse-message", "reedit-message", "author", "date"),
        *("fixup", "squash", "trailer", "pathspec-from-file"),
    )
)


def working_parent() -> tuple[int, str]:
    """The nearest process above that is no shell, with when it started; 0 where there is none."""
    for pid, words in ancestors():
        if words and os.path.basename(words[0]).lstrip(b"-") not in SHELLS:
            return pid, started_at(pid)
    return 0, ""


@dataclass(frozen=True)
class CommitWords:
    """The options of ``git commit`` that git keeps from its hooks."""

    amend: bool = False
    cleanup: str = ""


def commit_words(pid: int | None = None) -> CommitWords | None:
    """The words of the nearest git above this process, if that commits.

    None where it does not show, as in an alias. Never raises.
    """
    git, words = _git_above(b"commit", pid)
    return _read(words) if git else None


def is_mirror_push() -> bool:
    """Return whether the nearest git above this process was told to push a mirror. Never raises.

    What such a push deletes is not among the lines that its hook gets.
    """
    _, words = _git_above(b"push")
    # git takes any beginning of an option that no other one has.
    return any(word.startswith(b"--mi") and b"--mirror".startswith(word) for word in words)


def is_forced_push() -> bool:
    """Return whether the nearest git above this process was told to push by force. Never raises."""
    for word in _git_above(b"push")[1]:
        short = word[:1] == b"-" != word[1:2]
        # A refspec with + is a push by force as well.
        if word[:1] == b"+" or word.startswith(b"--force") or (short and b"f" in word):
            return True
    return False


def pushing_git() -> tuple[int, str]:
    """The nearest ``git push`` above this process, with when it started; 0 where none shows."""
    pid, _ = _git_above(b"push")
    return (pid, started_at(pid)) if pid else (0, "")


def _git_above(command: bytes, pid: int | None = None) -> tuple[int, Sequence[bytes]]:
    """The nearest git above with this command, and what follows that; 0 and nothing if none has."""
    for above, words in islice(ancestors(pid), GENERATIONS):
        name = os.path.basename(words[0]) if words else b""
        if name in (b"git", b"git.exe") and command in words:
            return above, words[words.index(command) + 1 :]
    return 0, ()


def _read(words: Sequence[bytes]) -> CommitWords:
    amend, cleanup = False, b""
    rest = iter(words)
    for word in rest:
        name, given, value = word.partition(b"=")
        if word == b"--":
            break
        if name.startswith(b"--am") and b"--amend".startswith(name):
            amend = True
        elif name.startswith(b"--cl") and b"--cleanup".startswith(name):
            cleanup = value if given else next(rest, b"")
        elif name == b"--no-amend":
            amend = False
        elif word[:1] == b"-" != word[1:2]:  # short options, of which the last may take a value
            # In `-am TEXT` the text is the next word, in `-mTEXT` a part of this one.
            first = next((n for n, letter in enumerate(word) if n and letter in _SHORT), None)
            if first == len(word) - 1:
                next(rest, None)
        elif name in _LONG and not given:
            next(rest, None)
    return CommitWords(amend, os.fsdecode(cleanup))
