"""Why git, or a server, did not do what it was asked, in its own words and without secrets."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gitlease.git.run import GitResult

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


def without_secrets(text: str) -> str:
    """The text without user names, passwords, tokens and queries in URLs."""
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
