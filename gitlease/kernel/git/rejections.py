"""Tells apart why a host did not do what git asked: one table of known words.

Words never decide what became of a push: the remote is read for that. They only choose what to do
about a push that was not applied: try again, come back later, or give up.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from enum import Enum

from gitlease.kernel.git.run import GitResult
from gitlease.kernel.rules.frozen import dataclass


class Rejection(Enum):
    """The kinds of rejections, by what helps."""

    RACE = "race"  # another push came first, or holds the ref's lock: try again
    TROUBLE = "trouble"  # the host itself failed: try again later
    REFUSAL = "refusal"  # rights, rules and hooks: only a change of those helps


@dataclass(frozen=True)
class KnownWords:
    """A row of the table: a pattern, in any case, and what it means.

    ``example`` is a line in which it was seen. ``by_client``: the pushing git says it itself, of
    what the remote listed, before it sends anything.
    """

    kind: Rejection
    words: str
    example: str
    by_client: bool = False


RACE, TROUBLE, REFUSAL = Rejection

# The first row that fits counts: hosts explain with words of their own what git calls declined.
KNOWN: tuple[KnownWords, ...] = (
    # A ref stands where a folder of refs would have to be; git puts that in the words of a race.
    KnownWords(
        REFUSAL,
        r"exists; cannot create",
        "remote: error: cannot lock ref 'refs/gitlease/global': "
        "'refs/gitlease' exists; cannot create 'refs/gitlease/global'",
    ),
    KnownWords(RACE, r"\[rejected\] \(stale info\)", "[rejected] (stale info)", by_client=True),
    KnownWords(RACE, r"\[rejected\] \(fetch first\)", "[rejected] (fetch first)", by_client=True),
    # git, GitHub
    KnownWords(
        RACE, r"cannot lock ref", "[remote rejected] (cannot lock ref 'r': is at 1 but expected 2)"
    ),
    KnownWords(RACE, r"failed to update ref", "[remote rejected] (failed to update ref)"),
    KnownWords(
        RACE, r"unable to create '.*\.lock'", "remote: error: Unable to create '/r/HEAD.lock'"
    ),
    # JGit: Gerrit
    KnownWords(RACE, r"failed to lock", "[remote rejected] (failed to lock)"),
    # git 2.50 and later: GitLab, Gitea, Forgejo
    KnownWords(
        RACE, r"incorrect old value provided", "[remote rejected] (incorrect old value provided)"
    ),
    KnownWords(RACE, r"reference already exists", "[remote rejected] (reference already exists)"),
    # Azure DevOps
    KnownWords(
        RACE,
        r"\bTF401028\b",
        "[remote rejected] (TF401028: The reference 'r' has already been updated by another)",
    ),
    # GitHub
    KnownWords(TROUBLE, r"fatal error in commit_refs", "remote: fatal error in commit_refs"),
    KnownWords(TROUBLE, r"\[remote rejected\] \(failure\)", "[remote rejected] (failure)"),
    # GitLab and Gitea, whose hook then declines; Gerrit
    KnownWords(TROUBLE, r"internal (?:server )?error", "remote: GitLab: 500 Internal Server Error"),
    KnownWords(TROUBLE, r"\bAPI is not accessible", "remote: GitLab: API is not accessible"),
    KnownWords(TROUBLE, r"internal API unreachable", "remote: GitLab: Internal API unreachable"),
    KnownWords(
        TROUBLE, r"unable to contact gitea", "remote: Unable to contact gitea: connection refused"
    ),
    # GitLab and Azure DevOps, to those who ask too often
    KnownWords(TROUBLE, r"\bretry later\b", "remote: Retry later"),
    KnownWords(TROUBLE, r"\bTF400733\b", "remote: TF400733: The request has been canceled"),
    # any server over HTTP
    KnownWords(TROUBLE, r"\bHTTP (?:429|5\d\d)\b", "error: RPC failed; HTTP 503 curl 22"),
    KnownWords(
        TROUBLE, r"returned error: (?:429|5\d\d)\b", "fatal: The requested URL returned error: 429"
    ),
    KnownWords(TROUBLE, r"service unavailable", "remote: Service Unavailable"),
    # any server
    KnownWords(
        TROUBLE, r"no space left on device", "remote: fatal: write error: No space left on device"
    ),
    KnownWords(TROUBLE, r"disk quota exceeded", "remote: fatal: write error: Disk quota exceeded"),
    KnownWords(REFUSAL, r"authentication failed", "fatal: Authentication failed"),
    KnownWords(REFUSAL, r"permission denied", "git@host: Permission denied (publickey)."),
    KnownWords(REFUSAL, r"access denied", "remote: Access denied"),
    KnownWords(REFUSAL, r"not authorized", "remote: You are not authorized"),
    KnownWords(REFUSAL, r"unauthorized", "remote: Unauthorized"),
    KnownWords(REFUSAL, r"forbidden", "remote: Forbidden"),
    KnownWords(REFUSAL, r"could not read (?:username|password)", "fatal: could not read Username"),
    KnownWords(
        REFUSAL, r"returned error: 40[13]\b", "fatal: The requested URL returned error: 403"
    ),
    KnownWords(
        REFUSAL, r"invalid (?:username|credentials|password)", "remote: Invalid credentials"
    ),
    KnownWords(REFUSAL, r"host key verification failed", "Host key verification failed."),
    KnownWords(REFUSAL, r"protected", "[remote rejected] (protected branch hook declined)"),
    KnownWords(REFUSAL, r"hook declined", "[remote rejected] (pre-receive hook declined)"),
    KnownWords(REFUSAL, r"denyCurrentBranch", "remote: error: set 'receive.denyCurrentBranch'"),
    KnownWords(
        REFUSAL, r"prohibited", "[remote rejected] (prohibited by Gerrit: not permitted: update)"
    ),
    KnownWords(REFUSAL, r"not allowed", "remote: You are not allowed to push code to this project"),
    KnownWords(REFUSAL, r"read.only", "remote: This repository is read-only"),
    # GitHub's rulesets
    KnownWords(
        REFUSAL, r"\bGH013\b", "remote: error: GH013: Repository rule violations found for r."
    ),
    # Azure DevOps: rewriting without the right to, and a policy about authors
    KnownWords(
        REFUSAL, r"\bTF401027\b", "[remote rejected] (TF401027: You need the Git 'ForcePush' right)"
    ),
    KnownWords(REFUSAL, r"\bVS403702\b", "remote: VS403702: The push was rejected by a policy"),
)

# A repository may be called protected.git: its name says nothing about rights.
_PLACE = r"\w+://\S+|'[^'\s]*/[^'\s]*'"


def known_words(text: str) -> KnownWords | None:
    """Return the first row of the table that fits what git and the server printed."""
    without_places = re.sub(_PLACE, "", text)
    for row in KNOWN:
        searched = without_places if row.kind is Rejection.REFUSAL else text
        if re.search(row.words, searched, re.IGNORECASE):
            return row
    return None


def rejection_in(text: str) -> Rejection | None:
    """Return which kind of rejection git or the server printed; None if the words are unknown."""
    row = known_words(text)
    return None if row is None else row.kind


def is_race(text: str) -> bool:
    """Return whether git or the server said that others were quicker."""
    return rejection_in(text) is Rejection.RACE


def denies(text: str) -> bool:
    """Return whether what git said tells of a refusal: wrong credentials, missing rights."""
    return rejection_in(text) is Rejection.REFUSAL


# --- when to come back ------------------------------------------------------------------------

_BUSY_OVER_HTTP = r"(?i)(?:returned error:|\bHTTP) (?:429|5\d\d)\b"
_RETRY_AFTER = (
    r"(?im)<= recv header: retry-after: *(\d{1,7}|\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT)\s*$"
)
_KEPT = 60.0  # seconds for which a host that asks to be left alone is not asked for that again
_known_hints: dict[str, tuple[float, tuple[str, ...]]] = {}
# git's own trace of headers, without credentials and cookies, and without what is sent.
HEADERS = {"GIT_TRACE_CURL": "1", "GIT_TRACE_CURL_NO_DATA": "1", "GIT_TRACE_REDACT": "1"}


def retry_hints(
    printed: str, url: str, look: Callable[[Mapping[str, str]], GitResult]
) -> tuple[str, ...]:
    """Return a hint with the time that an HTTP host wants to be left alone for, if it says so.

    ``printed`` is what git said of the failure, which has no headers. So ``look``, which lists a
    ref of the remote in an environment, asks once more, at most once a minute for each ``url``.
    """
    if not re.match(r"(?i)https?://", url) or not re.search(_BUSY_OVER_HTTP, printed):
        return ()
    at, hints = _known_hints.get(url, (0.0, ()))
    if url in _known_hints and time.monotonic() - at < _KEPT:
        return hints
    # The trace stays in memory, and nothing of it is shown but this one value.
    found = re.search(_RETRY_AFTER, look(HEADERS).err)
    hints = ()
    if found is not None:
        when = f"{found[1]}s" if found[1].isdecimal() else found[1]
        hints = (f"the host asks to be tried again after {when}",)
    _known_hints[url] = time.monotonic(), hints
    return hints
