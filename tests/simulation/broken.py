"""What a checker raises."""

from __future__ import annotations


class Broken(AssertionError):
    """An invariant does not hold; the message begins with its name."""

    @property
    def rule(self) -> str:
        return str(self).partition(":")[0]
