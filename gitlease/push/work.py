"""What a person asks of a push."""

from __future__ import annotations

from gitlease.core.frozen import dataclass

JUDGED = "GITLEASE_PUSHING"
"""Names, in the environment of hooks, the remote of a push that ``gitlease push`` itself judges."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushRequest:
    """What is to be pushed, in the words of ``git push``.

    ``choosing`` are options that say what is pushed, ``sending`` those that say how; ``upstream``
    asks for ``--set-upstream``. Without ``remote`` and ``refspecs`` git's own settings say what and
    where. ``hooks``: those of the repository are run.
    """

    remote: str | None = None
    refspecs: tuple[str, ...] = ()
    choosing: tuple[str, ...] = ()
    sending: tuple[str, ...] = ()
    upstream: bool = False
    hooks: bool = True
