"""What a session reports beside its answers: messages that wait, and those of a restored ledger."""

from __future__ import annotations

from collections.abc import Iterable

from gitlease.kernel.ledger.ports import Snapshot
from gitlease.kernel.rules.instant import Instant, rfc3339
from gitlease.kernel.rules.moves.closing import wait_end


class Messages:
    """Messages that no answer has reported yet, in order, each once.

    Whatever a session does on the way to an answer adds to them; the answer, or the refusal in its
    place, takes them all.
    """

    def __init__(self) -> None:
        self._texts: dict[str, None] = {}

    def add(self, texts: Iterable[str]) -> None:
        """Report these with the next answer."""
        self._texts.update(dict.fromkeys(texts))

    def take(self) -> tuple[str, ...]:
        """Return all of them, and forget them."""
        taken = tuple(self._texts)
        for text in taken:  # one by one: another thread may be adding to them
            self._texts.pop(text, None)
        return taken


def waiting(head: Snapshot, now: Instant) -> tuple[str, ...]:
    """Say until when a restored ledger grants nothing new, if it does not yet."""
    until = head.ledger and wait_end(head.ledger.header, now.wall_ms)
    if not until:
        return ()
    at = rfc3339(until, round_up=True)
    return (
        f"nothing new is granted until {at}: this ledger follows one that was deleted, or may have "
        "been",
    )
