"""Which command of git a hook runs under: git itself does not say whether a commit is amended."""

from __future__ import annotations

import os
from collections.abc import Sequence

from gitlease.core.frozen import dataclass
from gitlease.git.processes import parent_and_words

GENERATIONS = 12  # a hook's shell, its subshell, a hook manager and its shells, git

_SHORT = b"mFtCc"  # the options of git commit that take a value
_LONG = frozenset(
    b"--" + name.encode()
    for name in (
        *("message", "file", "template", "reuse-message", "reedit-message", "author", "date"),
        *("fixup", "squash", "trailer", "pathspec-from-file"),
    )
)


@dataclass(frozen=True, slots=True)
class CommitWords:
    """What the words of ``git commit`` say that git keeps from its hooks."""

    amend: bool = False
    cleanup: str = ""


def commit_words(pid: int | None = None) -> CommitWords | None:
    """The words of the nearest git above this process, if that commits.

    None where it does not show, as in an alias. Never raises.
    """
    words = _words_after(b"commit", pid)
    return None if words is None else _read(words)


def is_mirror_push(pid: int | None = None) -> bool:
    """Whether the nearest git above this process was told to push a mirror. Never raises.

    What such a push deletes is not among the lines that its hook gets.
    """
    words = _words_after(b"push", pid) or ()
    return any(word.startswith(b"--mi") and b"--mirror".startswith(word) for word in words)


def is_forced_push(pid: int | None = None) -> bool:
    """Whether the nearest git above this process was told to push by force. Never raises."""
    for word in _words_after(b"push", pid) or ():
        short = word[:1] == b"-" != word[1:2]
        if word[:1] == b"+" or word.startswith(b"--force") or (short and b"f" in word):
            return True
    return False


def _words_after(command: bytes, pid: int | None) -> Sequence[bytes] | None:
    """What stands after this command of the nearest git above, None where none has it."""
    pid = os.getppid() if pid is None else pid
    for _ in range(GENERATIONS):
        parent, words = parent_and_words(pid)
        name = os.path.basename(words[0]) if words else b""
        if name in (b"git", b"git.exe") and command in words:
            return words[words.index(command) + 1 :]
        if parent <= 1:
            break
        pid = parent
    return None


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
        elif (name in _LONG and not given) or (
            word[:1] == b"-" != word[1:2] and _takes_next(word[1:])
        ):
            next(rest, None)
    return CommitWords(amend, os.fsdecode(cleanup))


def _takes_next(letters: bytes) -> bool:
    """Whether the last of some short options takes the next word for its value."""
    first = next((n for n, letter in enumerate(letters) if letter in _SHORT), None)
    return first == len(letters) - 1
