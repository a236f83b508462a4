"""What an audit is about: who pushes a step, and why it is refused."""

from __future__ import annotations

from typing import ClassVar

from gitlease.core.errors import GitleaseError
from gitlease.core.frozen import dataclass
from gitlease.core.lease import same_person

LONGEST_SHOWN = 80
NEWER = "a newer gitlease than the server's may have written it: then upgrade the server's"
# What libgit2 takes from both ends of a name or an email before it writes a signature.
_CRUD = "".join(map(chr, range(33))) + ".,:;<>\"\\'"


class Illegal(GitleaseError):
    """What was pushed is no legal move: ``rule`` is a stable word for why."""

    code: ClassVar[str] = "denied"

    def __init__(self, rule: str, message: str, *, hints: tuple[str, ...] = ()) -> None:
        super().__init__(message, hints=hints)
        self.rule = rule


@dataclass(frozen=True, slots=True)
class Pusher:
    """Who pushes: the holders that they are, and how to call them. None: that is not known."""

    holders: tuple[str, ...] | None
    known: str

    def may_be(self, holder: str) -> bool:
        """Whether this holder pushes; where nobody is known, whoever is named."""
        return self.holders is None or any(same_person(holder, mine) for mine in self.holders)


def bare(email: str) -> str:
    """An email as a commit's signature can have it."""
    return email.replace("<", "").replace(">", "").strip(_CRUD)


def quoted(text: str) -> str:
    """A word of somebody else's, fit for a line."""
    short = text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + "…"
    return short if short.isprintable() and short.strip() == short and short else ascii(short)
