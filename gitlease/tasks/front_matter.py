"""Finds the YAML in a task file: the front matter of Markdown, or all of a YAML file."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gitlease.core.errors import Invalid

MAX_BYTES = 1024 * 1024
MAX_FRONT_MATTER = 64 * 1024

_BOM = b"\xef\xbb\xbf"
_OPENING = re.compile(rb"---[ \t]*(?:\r\n|\n|\r)")
_CLOSING = re.compile(rb"[\r\n](?:---|\.\.\.)[ \t]*(?=[\r\n]|\Z)")
_MARKER = re.compile(rb"(?:\A|(?<=[\r\n]))(?:<{7}|={7}|>{7}|\|{7})(?=[ \r\n]|\Z)")
_CONFLICT = (
    re.compile(rb"[\r\n]<{7} "),
    re.compile(rb"[\r\n]={7}(?=[\r\n])"),
    re.compile(rb"[\r\n]>{7} "),
)
_UTF_16 = re.compile(rb"(?:\xff\xfe|\xfe\xff|-\x00-\x00-\x00|\x00-\x00-\x00-)")
_FIELD_LINE = re.compile(rb"""(?:\A|[\r\n])[ \t{]*["']?[\w.-]+["']?[ \t]*:(?=[\s"']|\Z)""")
_EMPTY_LINE = re.compile(rb"(?:\n|\r(?!\n))[ \t]*[\r\n]")
# What no YAML reader takes; a byte order mark is for the first place of a file only.
_CONTROL = re.compile("[^\t\n\r -~\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")


@dataclass(slots=True)
class Front:
    """The YAML of a task file: ``text`` is what stands from byte ``begin`` to byte ``end``."""

    file: str
    text: str
    begin: int
    end: int
    lines_before: int

    def line(self, place: int) -> int:
        """The line of the file, from 1, that a character of the text is in."""
        return self.lines_before + _count_line_ends(self.text[:place].encode()) + 1

    def bad(self, place: int, message: str, *hints: str) -> Invalid:
        """The error for a character of the text."""
        return bad(self.file, self.line(place), message, *hints)


def bad(file: str, line: int, message: str, *hints: str) -> Invalid:
    """The error for a line of a task file."""
    name = file if file.isprintable() else ascii(file)[1:-1]
    return Invalid(f"{name}:{line}: {message}", hints=hints)


def is_yaml(file: str) -> bool:
    """Whether the whole file is YAML; any other is Markdown."""
    return file.lower().endswith((".yaml", ".yml"))


def find_front(data: bytes, file: str) -> Front | None:
    """The YAML that a file has, None where there is none.

    Raises Invalid when it is too large, has no end, has a merge conflict in it, or is no text.
    """
    if _UTF_16.match(data):
        raise bad(file, 1, "this is UTF-16, not UTF-8")
    begin = len(_BOM) if data.startswith(_BOM) else 0
    end, lines_before = len(data), 0
    if not is_yaml(file):
        opening = _OPENING.match(data, begin)
        if opening is None:
            if _MARKER.match(data, begin) and _OPENING.match(data, data.find(b"\n", begin) + 1):
                raise _conflict(file, 1)  # git could not merge two files that were added
            return None
        begin, lines_before = opening.end(), 1
        closing = _CLOSING.search(data, begin - 1)
        if closing is None:
            _refuse_open_front_matter(data[begin : begin + MAX_FRONT_MATTER], file)
            return None
        end = closing.start() + 1
        if end - begin > MAX_FRONT_MATTER:
            raise bad(file, 1, f"the front matter is larger than {MAX_FRONT_MATTER // 1024} KiB")
    if len(data) > MAX_BYTES:
        raise bad(file, 1, f"the file is larger than {MAX_BYTES // 1024} KiB")
    return _text(data, Front(file, "", begin, max(begin, end), lines_before))


def looks_like_fields(data: bytes) -> bool:
    """Whether a line is like ``key: value``: prose between two rules of Markdown is not."""
    return _FIELD_LINE.search(data) is not None


def conflict_behind(data: bytes, front: Front) -> Invalid | None:
    """The error for the first conflict that a merge left behind the front matter, if any."""
    place = first = front.end - 1
    for number, marker in enumerate(_CONFLICT):
        found = marker.search(data, max(0, place))
        if found is None:
            return None
        place = found.end() - 1
        if number == 0:
            first = found.start() + 1
    return _conflict(front.file, _count_line_ends(data[:first]) + 1)


def _refuse_open_front_matter(data: bytes, file: str) -> None:
    text = data.lstrip()
    gap = _EMPTY_LINE.search(text)
    if looks_like_fields(text[: gap.start()] if gap else text):
        raise bad(file, 1, "the front matter has no end", "end it with a line ---")


def _text(data: bytes, front: Front) -> Front:
    part = data[front.begin : front.end]
    if any(marker in part for marker in (b"<<<<<<<", b"=======", b">>>>>>>", b"|||||||")):
        found = _MARKER.search(part)
        if found:
            line = front.lines_before + _count_line_ends(part[: found.start()]) + 1
            raise _conflict(front.file, line)
    try:
        data.isascii() or data.decode()
    except UnicodeDecodeError as error:
        line = _count_line_ends(data[: error.start]) + 1
        raise bad(front.file, line, "this is not UTF-8") from None
    front.text = part.decode()
    control = _CONTROL.search(front.text)
    if control:
        raise front.bad(control.start(), f"it has a control character, {control[0]!a}")
    return front


def _conflict(file: str, line: int) -> Invalid:
    return bad(file, line, "there is a merge conflict", "resolve it, then try again")


def _count_line_ends(data: bytes) -> int:
    return data.count(b"\n") + data.count(b"\r") - data.count(b"\r\n")
