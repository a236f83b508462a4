"""Cuts and puts in pieces of a task file's text; whatever is not touched stays as it is.

All functions take a text and places in it, and give the new text. Lines end with LF, CRLF or CR.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

# Words that no YAML reader, of either version, takes for anything but a string.
_WORD = r"[^\W\d][\w.+/@-]*"
_PLAIN = re.compile(rf"{_WORD}(?: [\w.+/@-]+)*|\w[\w.+-]*@{_WORD}")
_TYPED = {"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"}

Span = tuple[int, int]


class CannotCut(ValueError):
    """The text is not as it would have to be; the message says why."""


def scalar(text: str, quote: str = "") -> str:
    """A text as YAML: plain where every reader takes that for it, else in quotes.

    ``quote`` puts it in quotes of that kind in any case. Raises CannotCut for unprintable ones.
    """
    if not text.isprintable():
        raise CannotCut("this can only be written with escapes")
    if not quote and _PLAIN.fullmatch(text) and text.lower() not in _TYPED:
        return text
    if quote == '"':
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return "'" + text.replace("'", "''") + "'"


def line_start(text: str, place: int) -> int:
    """Where the line of a place begins."""
    return max(text.rfind("\n", 0, place), text.rfind("\r", 0, place)) + 1


def line_end(text: str, place: int) -> int:
    """Where the line of a place ends: the place of its line break, or the end of the text."""
    found = re.compile(r"[\r\n]|\Z").search(text, place)
    return found.start() if found else len(text)


def next_line(text: str, place: int) -> int:
    """Where the line below begins; the end of the text where there is none."""
    end = line_end(text, place)
    return end + (2 if text.startswith("\r\n", end) else 1 if end < len(text) else 0)


def line_break(*texts: str) -> str:
    """The last line break of the first text that has any."""
    for text in texts:
        if breaks := re.findall(r"\r\n|[\r\n]", text):
            return str(breaks[-1])
    return "\n"


def put_line(text: str, place: int, line: str) -> str:
    """Put in a line at the beginning of a line or at the end, with its neighbour's line break."""
    end = line_break(text[:place], text)
    if place == len(text) and line_start(text, place) != place:
        return text + end + line
    return text[:place] + line + end + text[place:]


def cut_lines(text: str, start: int, end: int) -> str:
    """Take out the lines of two places and all between: what ``put_line`` put in is gone again."""
    start, after = line_start(text, start), next_line(text, end)
    if after == len(text) and line_end(text, end) == after:
        return re.sub(r"(?:\r\n|[\r\n])\Z", "", text[:start])
    return text[:start] + text[after:]


def comma(text: str, start: int, end: int) -> int:
    """The place of the only comma between two items; -1 where there is none."""
    bare = re.sub(r"#[^\r\n]*", lambda found: " " * len(found[0]), text[start:end])
    if bare.count(",") > 1 or bare.strip(" \t\r\n,"):
        raise CannotCut("there is other text between two items")
    place = bare.find(",")
    return -1 if place < 0 else start + place


def cut_item(text: str, items: Sequence[Span], number: int, close: int) -> str:
    """Take one item and its comma out of items with commas between, up to ``close``."""
    start, end = items[number]
    if number:
        gap_start = items[number - 1][1]
        place = comma(text, gap_start, start)
        if place < 0:
            raise CannotCut("there is no comma between two items")
        if "#" in text[gap_start:start]:
            return text[:place] + text[place + 1 : start] + text[end:]
        return text[:place] + text[end:]
    gap_end = items[1][0] if len(items) > 1 else close
    place = comma(text, end, gap_end)
    if len(items) > 1 and "#" not in text[end:gap_end]:
        return text[:start] + text[gap_end:]
    if place < 0:
        return text[:start] + text[end:]
    return text[:start] + text[end:place] + text[place + 1 :]


def add_item(text: str, items: Sequence[Span], new: str) -> str:
    """Put a last item behind the others, set off as the last of them is."""
    gap = text[items[-2][1] : items[-1][0]] if len(items) > 1 else ""
    between = gap if re.fullmatch(r",[ \t\r\n]*", gap) else ", "
    end = items[-1][1]
    return text[:end] + between + new + text[end:]
