"""Decides whether two path patterns can match one file, by walking both as automata side by side.

It is slow and simple, and unlike the way conflicts are found when a lease is claimed. A pattern
becomes a list of states; a transition reads one character of a folded path in which every segment
ends in ``/``. It is exact, except that for characters that fold to several only those spelled out
in the pattern count.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

from ledger_checker.form import fold

Ranges = tuple[tuple[int, int], ...]  # of character codes, both ends included, ascending

_SLASH: Ranges = ((47, 47),)
_NAME: Ranges = ((1, 46), (48, 64), (91, sys.maxunicode))  # of a folded name: no / and no A-Z
_LAST_FOLDED = 0x1FFFF
_POSIX = {
    "alnum": "09azAZ",
    "alpha": "azAZ",
    "blank": "  \t\t",
    "cntrl": "\x01\x1f\x7f\x7f",
    "digit": "09",
    "graph": "!~",
    "lower": "az",
    "print": " ~",
    "punct": "!/:@[`{~",
    "space": "  \t\r",
    "upper": "AZ",
    "xdigit": "09afAF",
}
_CLASS = re.compile(r"\[([!^]?+)(\]?+(?:\[:[^\]]*:\]|\\.|[^\]\\])*+)\]", re.DOTALL)
_MEMBER = re.compile(r"\[:([^\]]*):\]|(\\.|.)(?:-(\\.|.))?", re.DOTALL)


class Automaton:
    """The states of one pattern: ``free`` transitions read nothing, ``reading`` ones one char."""

    def __init__(self) -> None:
        self.free: list[list[int]] = [[]]
        self.reading: list[list[tuple[Ranges, int]]] = [[]]

    def add(self) -> int:
        """Add a state."""
        self.free.append([])
        self.reading.append([])
        return len(self.free) - 1

    def read(self, chars: Ranges) -> None:
        """Append: read one of some characters."""
        last = len(self.free) - 1
        self.reading[last].append((chars, self.add()))

    def run(self) -> None:
        """Append: read any run within a segment."""
        last = len(self.free) - 1
        self.reading[last].append((_NAME, last))
        self.free[last].append(self.add())

    def deep(self) -> None:
        """Append: read any number of whole segments."""
        last = len(self.free) - 1
        inside = self.add()
        self.reading[last].append((_NAME, inside))
        self.reading[inside] += [(_NAME, inside), (_SLASH, last)]
        self.free[last].append(self.add())

    def reach(self, state: int) -> list[int]:
        """The states that one leads to without reading, including itself."""
        found, left = {state}, [state]
        while left:
            for further in self.free[left.pop()]:
                if further not in found:
                    found.add(further)
                    left.append(further)
        return list(found)


def any_overlap(some: Iterable[str], others: Iterable[str]) -> bool:
    """Whether any pattern of one list can match a file that one of the other list matches."""
    listed = tuple(others)
    return any(overlap(one, other) for one in some for other in listed)


@lru_cache(maxsize=65_536)
def overlap(one: str, other: str) -> bool:
    """Whether two patterns can match one file."""
    a, b = automaton(one), automaton(other)
    ends = len(a.free) - 1, len(b.free) - 1
    seen, left = {(0, 0)}, [(0, 0)]
    while left:
        first, second = left.pop()
        for x in a.reach(first):
            for y in b.reach(second):
                if (x, y) == ends:
                    return True
                for chars, to in a.reading[x]:
                    for others, then in b.reading[y]:
                        if (to, then) not in seen and _meet(chars, others):
                            seen.add((to, then))
                            left.append((to, then))
    return False


def _meet(some: Ranges, others: Ranges) -> bool:
    return any(low <= top and bottom <= high for low, high in some for bottom, top in others)


@lru_cache(maxsize=4_096)
def automaton(pattern: str) -> Automaton:
    """The automaton of a pattern, as gitignore(5) reads it."""
    text = unicodedata.normalize("NFC", pattern)
    segments = _segments(text)
    wild = any(not isinstance(part, str) for segment in segments for part in segment)
    anchored = not wild or "/" in text[:-1]
    folder = len(segments) > 1 and not segments[-1]
    if len(segments) > 1 and not segments[0]:
        segments = segments[1:]
    segments = segments[:-1] if folder else segments
    made = Automaton()
    if not anchored:
        made.deep()
    for number, segment in enumerate(segments):
        last = number == len(segments) - 1
        if segment == [None] and not last:
            made.deep()
            continue
        _add_segment(made, segment)
    if folder and wild:  # only what is in such a folder
        made.run()
        made.read(_SLASH)
    made.deep()
    return made


def _add_segment(made: Automaton, segment: list[str | Ranges | None]) -> None:
    literal = ""
    for part in [*segment, ()]:
        if isinstance(part, str):
            literal += part
            continue
        for char in fold(literal):
            made.read(((ord(char), ord(char)),))
        literal = ""
        if part is None:
            made.run()
        elif part:
            made.read(part)
    made.read(_SLASH)


def _segments(text: str) -> list[list[str | Ranges | None]]:
    """The parts of each segment: characters, sets of them, and None for asterisks.

    A segment ``**`` is [None] alone; one of a single asterisk has an empty literal beside it.
    """
    segments: list[list[str | Ranges | None]] = [[]]
    at = 0
    while at < len(text):
        char = text[at]
        here = segments[-1]
        if char == "/" or text[at : at + 2] == "\\/":
            segments.append([])
            at += 1 if char == "/" else 2
        elif char == "*":
            stars = len(text) - at - len(text[at:].lstrip("*"))
            here += [None] if stars > 1 else ["", None]
            at += stars
        elif char == "?":
            here.append(_NAME)
            at += 1
        elif char == "\\" and at + 1 < len(text):
            here.append(text[at + 1])
            at += 2
        elif char == "[" and (found := _CLASS.match(text, at)):
            here.append(_set(found[2], negated=bool(found[1])))
            at = found.end()
        else:
            here.append(char)
            at += 1
    return segments


def _set(body: str, *, negated: bool) -> Ranges:
    spans: list[tuple[int, int]] = []
    for posix, low, high in _MEMBER.findall(body):
        if low:
            spans.append((ord(low[-1]), ord((high or low)[-1])))
        else:
            ends = _POSIX.get(posix, "")
            spans += [(ord(ends[n]), ord(ends[n + 1])) for n in range(0, len(ends), 2)]
    for low, high in tuple(spans):
        for code in range(low, min(high, _LAST_FOLDED) + 1):
            to = fold(chr(code))
            if len(to) == 1 and ord(to) != code:
                spans.append((ord(to), ord(to)))
    spans.sort()
    found: list[tuple[int, int]] = []
    for bottom, top in _NAME:
        inside = [(max(lo, bottom), min(hi, top)) for lo, hi in spans if lo <= top and hi >= bottom]
        if not negated:
            found += inside
            continue
        start = bottom
        for low, high in inside:
            if start < low:
                found.append((start, low - 1))
            start = max(start, high + 1)
        if start <= top:
            found.append((start, top))
    return tuple(found)
