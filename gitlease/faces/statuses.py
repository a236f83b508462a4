"""What a status word means that a person types: one reading of it for every face."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from gitlease.core.edge import Progress, printable
from gitlease.core.errors import UsageError
from gitlease.core.frozen import dataclass
from gitlease.core.resources.pattern import fold
from gitlease.engine import claim, end

if TYPE_CHECKING:
    from gitlease.core.resources.resource import Resource
    from gitlease.engine.answers import Answer
    from gitlease.engine.edges import Edges
    from gitlease.engine.ledger_session import LedgerSession

NEAR = 3
SHOWN = 20  # known words that a message names
_BETWEEN = re.compile(r"[\s_-]+")


@dataclass(frozen=True, slots=True)
class Status:
    """A word as task files have it, and what it means."""

    word: str
    progress: Progress


def read_status(text: str, edges: Edges) -> Status:
    """The status that a word stands for. UsageError for one that nobody knows.

    It is a word of the settings, or one of the roles ``todo``, ``in_progress`` and ``done``, which
    means its first word, or a word that a task file has already. Letter case, blanks, ``-`` and
    ``_`` make no difference, except where a word is written exactly so. Task files are read only
    where settings and roles do not have it.
    """
    rules = edges.rules
    configured = [word for words in rules.statuses.values() for word in words]
    roles = {_loose(p.value): rules.word(p) for p in rules.statuses}
    word = _exactly(text, configured) or roles.get(_loose(text)) or _loosely(text, configured)
    if word is None:
        used = _used(edges)
        word = _exactly(text, used) or _loosely(text, used)
        if word is None:
            raise _unknown(text, [*configured, *used])
    return Status(word, rules.progress(word))


def set_status(
    service: LedgerSession, resource: Resource, text: str, *, commit: bool | None
) -> Answer:
    """Set a task's status: one that means in progress claims it, one that means done ends it."""
    from gitlease.engine.answers import ClaimOptions

    meant = read_status(text, service.edges)
    if meant.progress is Progress.IN_PROGRESS:
        return claim.start(service, resource, ClaimOptions(commit=commit), status=meant.word)
    if meant.progress is Progress.DONE:
        service.edges.task(resource)
        return end.complete(service, resource, commit=commit, status=meant.word)
    return end.set_status(service, resource, meant.word, commit=commit)


def _exactly(text: str, words: Iterable[str]) -> str | None:
    return next((w for w in words if fold(w) == fold(text.strip())), None)


def _loosely(text: str, words: Iterable[str]) -> str | None:
    wanted = _loose(text)
    return next((w for w in words if wanted and _loose(w) == wanted), None)


def _loose(word: str) -> str:
    return _BETWEEN.sub("", fold(word))


def _used(edges: Edges) -> list[str]:
    """The status words of task files, each once, as they are written there."""
    words = (task.status.strip() for task in edges.files.read().tasks)
    return list({fold(word): word for word in words if word}.values())


def _unknown(text: str, known: list[str]) -> UsageError:
    from difflib import get_close_matches

    spelt = {_loose(word): word for word in reversed(known)}
    near = get_close_matches(_loose(text)[:100], spelt, n=NEAR, cutoff=0.6)
    more = f" and {len(spelt) - SHOWN} more" if len(spelt) > SHOWN else ""
    names = list(dict.fromkeys(spelt[_loose(word)] for word in known))
    hints = [f"did you mean {', '.join(printable(spelt[key]) for key in near)}?"] if near else []
    hints.append(f"known statuses: {', '.join(map(printable, names[:SHOWN]))}{more}")
    hints.append("add a new one to tasks.statuses in .gitlease.yaml")
    return UsageError(f"unknown status {printable(text)}", hints=tuple(hints))
