"""A hint: a call that the reader may make next, which each door words in its own form."""

from __future__ import annotations

from collections.abc import Mapping

from gitlease.core.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Hint:
    """A call of a verb with these arguments, and what it is for.

    Arguments are named as the verb's parameters; a switch is True.
    """

    verb: str
    arguments: Mapping[str, object]
    why: str = ""
