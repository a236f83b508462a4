"""The composition root of a server: the judgement of its hook."""

from __future__ import annotations

import os

from gitlease.check.replay import check_past
from gitlease.kernel.git.repository import Repository, discover
from gitlease.kernel.git.run import SystemClock
from gitlease.kernel.rules.errors import NotARepository
from gitlease.server.receive import PushVerdict, receive


def judge_push(data: bytes) -> PushVerdict:
    """Judge a push as git's pre-receive hook, by its input and its environment.

    Raises GitleaseError if the repository or its settings cannot be used.
    """
    return receive(data, clock=SystemClock(), replay=check_past)


def find_bare(directory: str) -> Repository:
    """The bare repository at ``directory``, never one around it."""
    repository = discover(directory)
    if os.path.realpath(directory) not in map(
        os.path.realpath, (repository.common_dir, repository.toplevel or repository.common_dir)
    ):
        raise NotARepository(f"{directory} is not a repository, but is inside one")
    return repository
