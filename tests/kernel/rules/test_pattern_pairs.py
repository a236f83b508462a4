"""All pairs of short patterns against brute force: whether some path is matched by both.

The matcher here is made from gitignore(5) alone and shares nothing with the product's. Every path
of so many characters over ``a``, ``b`` and ``/`` is enumerated, all at once: what a pattern matches
is an integer with a bit for each of them, so that two patterns meet if two integers share a bit.

Two letters are enough: whatever else a wildcard here matches, it matches ``b`` as well. So are
twelve characters: a pattern of five tokens needs five of them, two need a slash between theirs, and
what is in a folder a name below it. A longer path has one that neither needs, and can do without.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from functools import cache

import pytest

from gitlease.kernel.rules.resources import Pattern, covers, overlap, parse

LETTERS = "ab"
LENGTH = 12
TOKENS = ("a", "b", "*", "?", "[ab]", "[!a]", "/")  # two stars in a row are `**`
FEWER = ("a", "*", "?", "[!a]", "/")
OVER_APPROXIMATED = 0  # pairs of which the product says that they meet, and they do not

BELOW = (-1, -1)  # a folder above is matched, and so is everything below it
Place = tuple[int, int]  # the segment that is read, and the token in it; -1: a name passed over


class Matcher:
    """A pattern as gitignore(5) describes it; one without wildcards is a path from the root."""

    def __init__(self, text: str) -> None:
        plain = not re.search(r"[*?\[]", text)
        body = text.strip("/")
        self.segments: list[list[str]] = [
            ["**"] if re.fullmatch(r"\*\*+", segment) else re.findall(r"\[[^]]*\]|\*+|.", segment)
            for segment in body.split("/")
        ]
        if text.endswith("/") and not plain:  # a folder, whose content it is that is matched
            last = self.segments.pop()
            self.segments += [["*"] if last == ["**"] else last, ["*"]]
        if not (plain or text.startswith("/") or "/" in body):
            self.segments.insert(0, ["**"])

    def begun(self, at: int) -> frozenset[Place]:
        """Where the pattern may be when a name begins, and the segments from one on are left."""
        if at == len(self.segments):
            return frozenset({BELOW})
        if self.segments[at] != ["**"]:
            return frozenset({(at, 0)})
        if at == len(self.segments) - 1:  # a trailing `**` matches everything inside
            return frozenset({BELOW})
        return self.begun(at + 1) | {(at, -1)}

    def read(self, places: Iterable[Place], char: str) -> frozenset[Place]:
        """Where it may be one character later."""
        after = set[Place]()
        for place in places:
            at, token = place
            if place == BELOW or (token == -1 and char != "/"):
                after.add(place)
            elif token == -1:
                after |= self.begun(at)
            elif char == "/":
                after.update(self.begun(at + 1) if self._ends(place) else ())
            else:
                after.update(self._letter(place, char))
        return frozenset(after)

    def matches(self, places: Iterable[Place]) -> bool:
        """Whether a path may end here."""
        return any(
            place == BELOW or (self._ends(place) and place[0] + 1 == len(self.segments))
            for place in places
        )

    def covers(self, path: str) -> bool:
        """Whether the pattern matches a path, or a folder above it."""
        places = self.begun(0)
        for char in path:
            places = self.read(places, char)
        return self.matches(places)

    def _ends(self, place: Place) -> bool:
        at, token = place
        return token >= 0 and all(x[0] == "*" for x in self.segments[at][token:])

    def _letter(self, place: Place, char: str) -> Iterator[Place]:
        at, token = place
        for ahead, x in enumerate(self.segments[at][token:], token):
            if x[0] == "*":
                yield at, ahead
                continue
            if re.fullmatch("." if x == "?" else x.replace("[!", "[^"), char):
                yield at, ahead + 1
            return


def bits(matcher: Matcher, length: int) -> int:
    """The paths that a pattern matches, among all texts of at most so many characters."""

    @cache
    def below(places: frozenset[Place], fresh: bool, left: int) -> int:
        found = int(not fresh and matcher.matches(places))
        if not left or not places:
            return found
        shift = 1
        for char in LETTERS if fresh else LETTERS + "/":
            found |= below(matcher.read(places, char), char == "/", left - 1) << shift
            shift += size(char == "/", left - 1)
        return found

    return below(matcher.begun(0), True, length)


@cache
def size(fresh: bool, length: int) -> int:
    """How many texts of at most so many characters there are, without an empty segment.

    ``fresh``: they begin a segment.
    """
    if not length:
        return 1
    return 1 + len(LETTERS) * size(False, length - 1) + (0 if fresh else size(True, length - 1))


def texts(tokens: Iterable[str], most: int) -> list[str]:
    """All patterns of so many tokens at most, but for those with a segment that is empty."""
    chosen = itertools.chain.from_iterable(
        itertools.product(tokens, repeat=n) for n in range(1, most + 1)
    )
    joined = dict.fromkeys("".join(word) for word in chosen)
    return [text for text in joined if "//" not in text and text.strip("/")]


@cache
def paths(most: int) -> tuple[str, ...]:
    """All paths of at most so many characters."""
    every = itertools.chain.from_iterable(
        itertools.product(LETTERS + "/", repeat=n) for n in range(1, most + 1)
    )
    return tuple(path for path in map("".join, every) if all(path.split("/")))


def distinct(patterns: Iterable[str]) -> list[tuple[Pattern, int]]:
    """Of patterns that the product reads alike only one, each with what it should match."""
    kept: dict[object, tuple[Pattern, int]] = {}
    for text in patterns:
        parsed = parse(text)
        matched = bits(Matcher(text), LENGTH)
        key = parsed.head, parsed.is_literal, parsed.loose.tokens
        _, there = kept.setdefault(key, (parsed, matched))
        assert there == matched, (text, kept[key][0].text)
    return list(kept.values())


def seeming(patterns: list[tuple[Pattern, int]], *, part: int = 0, of: int = 1) -> int:
    """Of how many pairs the product says that they meet, and they do not; it misses none."""
    found = 0
    for n in range(part, len(patterns), of):
        one, matched = patterns[n]
        for other, there in patterns[n:]:
            meet = matched & there != 0
            if overlap(one, other) != meet:
                assert not meet, f"{one.text} and {other.text} meet"
                found += 1
    return found


@pytest.mark.slow
def test_no_overlap_of_short_patterns_is_missed() -> None:
    patterns = distinct(texts(TOKENS, 3))
    assert len(patterns) > 200
    assert seeming(patterns) <= OVER_APPROXIMATED


@pytest.mark.slow
@pytest.mark.parametrize("part", [0, pytest.param(1, marks=pytest.mark.nightly)])
def test_no_overlap_of_any_five_tokens_is_missed(part: int) -> None:
    patterns = distinct(texts(FEWER, 5))
    assert len(patterns) > 2_500
    assert seeming(patterns, part=part, of=2) <= OVER_APPROXIMATED


@pytest.mark.parametrize("most", [3, pytest.param(4, marks=pytest.mark.slow)])
def test_short_patterns_cover_what_gitignore_says(most: int) -> None:
    for text in texts(TOKENS, most):
        matcher, parsed = Matcher(text), parse(text)
        for path in paths(5):
            assert covers(parsed, path) == matcher.covers(path), (text, path)
