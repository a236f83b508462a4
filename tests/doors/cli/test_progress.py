"""What takes long is told to a person: once for each thing, and nothing when it was quick."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from gitlease.cli import output
from gitlease.kernel.ledger.ports import at_present, doing


def said_at(seconds: list[str | None]) -> list[str]:
    """What is said where this is being done at each second, one after the other."""
    told: list[str] = []
    with ExitStack() as stack:
        steps = iter(seconds)

        def is_over(pause: float) -> bool:
            assert pause == 1.0
            stack.close()
            try:
                text = next(steps)
            except StopIteration:
                return True
            if text is not None:
                stack.enter_context(doing(text))
            return False

        output.report_steps(is_over, lambda text, style: told.append(text))
    return told


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (["asking", None, "asking", None], []),
        (["asking"] * 5, ["asking …"]),
        (["asking", "asking", None, "reading", "reading", "asking", "asking"],
         ["asking …", "reading …", "asking …"]),
    ],
)  # fmt: skip
def test_what_lasts_is_told_once(seconds: list[str | None], expected: list[str]) -> None:
    assert said_at(seconds) == expected


def test_the_innermost_is_told() -> None:
    def steps() -> Iterator[str | None]:
        with doing("a claim"):
            yield at_present()
            with doing("asking"):
                yield at_present()
            yield at_present()
        yield at_present()

    assert list(steps()) == ["a claim", "asking", "a claim", None]
