"""When a test runs: by default, with the slow ones, or at night. The mark that is nearest says it.

A variant's own mark counts first (``pytest.param(…, marks=pytest.mark.slow)``), then those of its
function, class and file; what none of them says runs by default. A mark with names counts for the
variants of these names alone: ``@pytest.mark.default("path")``. No other test has a say in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

TIERS = {
    "default": "runs by default, whatever the class or file says",
    "slow": "what cannot happen within a second, and more of the same: -m slow",
    "nightly": "more seeds, rounds and variants than a change can wait for: -m nightly",
}


def describe(config: pytest.Config) -> None:
    """Register the three marks."""
    for name, meaning in TIERS.items():
        config.addinivalue_line("markers", f"{name}(*variants): {meaning}")


def tier_of(item: pytest.Item) -> str:
    """The tier of a test."""
    callspec = getattr(item, "callspec", None)
    variant = None if callspec is None else callspec.id
    own = [] if callspec is None else list(callspec.marks)
    for mark in _nearest_first(own, item):
        if mark.name in TIERS and (not mark.args or variant in mark.args):
            return mark.name
    return "default"


def sort_out(items: Iterable[pytest.Item]) -> None:
    """Leave each test with the mark of its tier, and with no other of the three."""
    tiers = [(item, tier_of(item)) for item in items]
    for item, _ in tiers:
        for node in item.listchain():
            node.own_markers[:] = [x for x in node.own_markers if x.name not in TIERS]
    for item, tier in tiers:
        item.add_marker(tier)


def _nearest_first(own: list[pytest.Mark], item: pytest.Item) -> Iterator[pytest.Mark]:
    yield from own
    for node in reversed(item.listchain()):
        # What names its variants says more than what does not.
        yield from sorted(node.own_markers, key=lambda x: not x.args)
