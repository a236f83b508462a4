"""Reads the status words that people type."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from gitlease.core.edge import Progress, printable
from gitlease.core.errors import UsageError
from gitlease.core.frozen import dataclass
from gitlease.core.resources.pattern import fold

if TYPE_CHECKING:
    from gitlease.engine.edges import Edges

SHOWN = 20  # known words listed in a message
_BETWEEN = re.compile(r"[\s_-]+")


@dataclass(frozen=True, slots=True)
class Status:
    """A status word of task files, and its meaning; ``is_role`` if it was typed as that."""

    word: str
    progress: Progress
    is_role: bool = False

    @property
    def to_claim(self) -> str | None:
        """The word to set with a claim; None keeps one that means in progress already."""
        return None if self.is_role else self.word


def read_status(text: str, edges: Edges) -> Status:
    """Return the status that a word stands for. UsageError for an unknown one.

    It is a configured word, a role (``todo``, ``in_progress``, ``done``), which stands for its
    first word, or a word of an existing task file. Case, spaces, ``-`` and ``_`` are ignored unless
    a word matches exactly. Task files are read only if needed.
    """
    rules = edges.rules
    configured = [word for words in rules.statuses.values() for word in words]
    roles = {_loose(p.value): rules.word(p) for p in rules.statuses}
    if (word := _exactly(text, configured)) is None and (role := roles.get(_loose(text))):
        return Status(role, rules.progress(role), is_role=True)
    word = word or _loosely(text, configured)
    if word is None:
        words = (task.status.strip() for task in edges.files.read().tasks)
        used = list({fold(each): each for each in words if each}.values())
        word = _exactly(text, used) or _loosely(text, used)
        if word is None:
            raise _unknown(text, [*configured, *used])
    return Status(word, rules.progress(word))


def _exactly(text: str, words: Iterable[str]) -> str | None:
    return next((w for w in words if fold(w) == fold(text.strip())), None)


def _loosely(text: str, words: Iterable[str]) -> str | None:
    wanted = _loose(text)
    return next((w for w in words if wanted and _loose(w) == wanted), None)


def _loose(word: str) -> str:
    return _BETWEEN.sub("", fold(word))


def _unknown(text: str, known: list[str]) -> UsageError:
    spelt = {_loose(word): word for word in reversed(known)}
    more = f" and {len(spelt) - SHOWN} more" if len(spelt) > SHOWN else ""
    names = list(dict.fromkeys(spelt[_loose(word)] for word in known))
    return UsageError(
        f"unknown status {printable(text)}",
        hints=(
            f"known statuses: {', '.join(map(printable, names[:SHOWN]))}{more}",
            "add new ones to tasks.statuses in .gitlease.yaml",
        ),
    )
