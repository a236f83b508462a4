"""Asks git about the user's repository, without opening any connection."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gitlease.adapters.git import GitResult, run_git
from gitlease.adapters.repository import TIMEOUT, Repository
from gitlease.domain.errors import Invalid

_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_OFFLINE = {"GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1"}


def is_id(text: str) -> bool:
    """Whether a text is the full id of an object."""
    return _ID.fullmatch(text) is not None


def ask(
    repository: Repository,
    *words: str,
    env: Mapping[str, str] | None = None,
    timeout: float = TIMEOUT,
    source: str | None = None,
) -> GitResult:
    """Ask git about the user's repository; a hook's own index and objects hold.

    ``source`` is a file that git reads as its standard input.
    """
    where = [f"--git-dir={repository.git_dir}"]
    if repository.toplevel is not None:
        where.append(f"--work-tree={repository.toplevel}")
    return run_git(
        ("--no-replace-objects", *where, *words),
        cwd=repository.toplevel or repository.git_dir,
        timeout=timeout,
        env={**_OFFLINE, **(env or {})},
        repository=True,
        source=source,
    )


def refusal(said: GitResult, what: str) -> Invalid:
    """``what`` git could not do, with its own reason."""
    from gitlease.adapters.edge_git import reason_of

    return Invalid(f"{what}: {reason_of(said)}")
