"""Asks git about the user's repository, without opening any connection.

And why git, or a server, did not do what it was asked, in its own words and without secrets.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from gitlease.core.errors import Invalid
from gitlease.git.repository import TIMEOUT, Repository
from gitlease.git.run import GitResult, run_git

_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
MAX_WORDS = 500  # ids in the arguments of one process
AT_LENGTH = {"GIT_FLUSH": "0"}  # a log would be written, and read, commit by commit
# Commits as they are: git would re-encode ids and addresses, too, from whatever a header claims.
_AS_WRITTEN = ("-c", "i18n.logOutputEncoding=")
OFFLINE = {"GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1"}

_DENIED = (
    r"(?i)authentication failed|permission denied|access denied|not authorized|unauthorized"
    r"|forbidden|could not read (?:username|password)|returned error: 40[13]"
    r"|invalid (?:username|credentials|password)|host key verification failed"
    r"|protected|hook declined|denyCurrentBranch|prohibited|not allowed|read.only"
)
# What git adds to every failure, and what tells nothing beside the rest.
_EMPTY_WORDS = (
    "hint:",
    "error: failed to push",
    "To ",
    "fatal: Could not read from remote repository",
    "Please make sure you have the correct access rights",
    "and the repository exists",
)
_SECRET = r"(?i)([a-z][a-z0-9+.-]*://)[^\s'\"]*@"
_QUERY = r"(?i)([a-z][a-z0-9+.-]*://[^\s'\"?]*)\?[^\s'\"]*"


class GitFailed(Invalid):
    """git did not tell what it was asked: why, only its own words say, of this version of it."""


def is_id(text: str) -> bool:
    """Whether a text is the full id of an object."""
    return _ID.fullmatch(text) is not None


def ask(
    repository: Repository,
    *words: str,
    env: Mapping[str, str] | None = None,
    timeout: float = TIMEOUT,
    source: str | None = None,
    on_out: Callable[[bytes], None] | None = None,
) -> GitResult:
    """Ask git about the user's repository; a hook's own index and objects hold.

    ``source`` is a file that git reads as its standard input. ``on_out`` gets the answer as it
    comes; none of it is kept then.
    """
    where = [f"--git-dir={repository.git_dir}"]
    if repository.toplevel is not None:
        where.append(f"--work-tree={repository.toplevel}")
    return run_git(
        # A daemon that watches files is for its user to start.
        ("--no-replace-objects", "-c", "core.fsmonitor=false", *_AS_WRITTEN, *where, *words),
        cwd=repository.toplevel or repository.git_dir,
        timeout=timeout,
        env={**OFFLINE, **AT_LENGTH, **(env or {})},
        repository=True,
        source=source,
        on_out=on_out,
    )


def ask_line(repository: Repository, *words: str) -> str:
    """Git's answer of one line, ``""`` where it says that there is none. Invalid otherwise."""
    said = ask(repository, *words)
    if said.code not in (0, 1) or said.timed_out:
        raise refusal(said, f"git {words[0]} does not answer")
    return os.fsdecode(said.out).strip() if said.code == 0 else ""


@contextmanager
def lines_as_input(lines: Iterable[str]) -> Iterator[str]:
    """A file that git reads as its standard input."""
    from tempfile import NamedTemporaryFile

    with NamedTemporaryFile("wb", prefix="gitlease-") as file:
        file.write(os.fsencode("".join(f"{line}\n" for line in lines)))
        file.flush()
        yield file.name


@contextmanager
def commits_as_words(commits: Sequence[str]) -> Iterator[tuple[Sequence[str], str | None]]:
    """How git is told of commits: few in its arguments, many in a file that it reads as input."""
    if len(commits) <= MAX_WORDS:
        yield commits, None
        return
    with lines_as_input(commits) as source:
        yield ["--stdin"], source


def as_entry(folder: str) -> str:
    """A folder for a list of them, in quotes where its name would be taken for several."""
    if os.pathsep not in folder and not folder.startswith('"'):
        return folder
    return '"' + folder.replace("\\", "\\\\").replace('"', '\\"') + '"'


class Pieces:
    """Cuts an answer that comes bit by bit at a mark, which ends each piece; ``rest`` has none."""

    def __init__(self, mark: bytes, take: Callable[[bytes], None]) -> None:
        self._mark, self._take, self.rest = mark, take, b""

    def more(self, data: bytes) -> None:
        *pieces, self.rest = (self.rest + data).split(self._mark)
        for piece in pieces:
            self._take(piece)


def refusal(said: GitResult, what: str) -> GitFailed:
    """``what`` git could not do, with its own reason."""
    return GitFailed(f"{what}: {reason_of(said)}")


def answered(said: GitResult, what: str) -> bytes:
    """What git said. Raises Invalid, with what could not be done, where it failed."""
    if said.code != 0:
        raise refusal(said, what)
    return said.out


# --- why --------------------------------------------------------------------------------------


def without_secrets(text: str) -> str:
    """The text without user names, passwords, tokens and queries in URLs."""
    if "://" not in text:
        return text  # a path, as most texts have none
    return re.sub(_QUERY, r"\1", re.sub(_SECRET, r"\1", text))


def reason_of(said: GitResult) -> str:
    """git's reason, on one line."""
    if said.timed_out:
        return "git did not answer in time"
    lines = [line.strip() for line in said.err.splitlines() if line.strip()] or ["it said nothing"]
    told = next((line for line in lines if line.startswith(("fatal: ", "error: "))), lines[-1])
    told = told.removeprefix("fatal: ").removeprefix("error: ")
    return "".join(c if c.isprintable() else " " for c in told)[:300]


def denies(said: str) -> bool:
    """Whether what git said tells of a refusal: wrong credentials, missing rights."""
    return re.search(_DENIED, said) is not None


def detail_of(said: Sequence[str], result: GitResult, timeout: float) -> str:
    """The most telling line that git or the server said, without secrets."""
    if result.timed_out:
        return f"no answer within {timeout:g}s"
    lines = [without_secrets(line.strip()) for line in said if line.strip()]
    useful = [x for x in lines if not x.startswith(_EMPTY_WORDS)]
    chosen = next((x for x in useful if x.startswith(("fatal:", "remote:", "!"))), None)
    rejected = next((x for x in useful if x.startswith("[")), None)
    text = " ".join(x for x in (rejected, chosen) if x) or (useful[0] if useful else "")
    text = text.removeprefix("fatal: ") or f"git ended with status {result.code}"
    return "".join(c for c in text if c.isprintable())[:300]
