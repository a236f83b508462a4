"""The work of a push: the refs that move, each to another object."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from gitlease.core.frozen import dataclass


class Became(Enum):
    """What becomes of one ref of a push."""

    UPDATED = "updated"
    CREATED = "created"
    FORCED = "forced"  # moved to a commit that is not a descendant
    DELETED = "deleted"
    UP_TO_DATE = "up_to_date"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class WorkRef:
    """One ref of the remote: full name, old and new id (full, ``""`` for no ref).

    ``source`` is git's name of what is pushed; ``reason`` is git's own for a rejection.
    """

    ref: str
    source: str
    old: str
    new: str
    became: Became
    reason: str = ""

    @property
    def moves(self) -> bool:
        """Whether a push changes it."""
        return self.became not in (Became.UP_TO_DATE, Became.REJECTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkPush:
    """Refs to be moved by one push, run in ``folder`` of the repository that has their objects.

    ``remote`` is a name, or the ``url`` that it stands for. ``words`` are further options of git,
    ``settings`` further settings, and ``places`` tells git where its repository is. It times out
    after ``seconds``. ``again``: an earlier try may have sent the objects already.
    """

    folder: str
    remote: str
    url: str
    refs: tuple[WorkRef, ...]
    words: tuple[str, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    places: tuple[tuple[str, str], ...] = ()
    seconds: float = 3_600.0
    again: bool = False

    def is_undone(self, there: Mapping[str, str]) -> bool:
        """Whether every ref is still as it was: no part of the push was carried out."""
        moved = [x for x in self.refs if x.moves and x.old != x.new]
        return bool(moved) and all(there.get(x.ref, "") == x.old for x in moved)
