"""The message of a commit as git hands it to its hooks: text, trailers, comments.

``git interpret-trailers`` is not asked: it obeys settings of the user's that rename our trailer, or
run commands for others on the way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gitlease.kernel.git.files import read_regular
from gitlease.kernel.rules.errors import Invalid
from gitlease.kernel.rules.frozen import dataclass
from gitlease.kernel.rules.work import KEY

_KEY = KEY.encode()
MAX_MESSAGE = 8 * 1024 * 1024

_OURS = re.compile(
    rb"Gitlease: (?P<what>.*) token=\d+"
    rb'(?P<more>(?: (?:scope|layer)=(?:"(?:[^"\\]|\\.)*"|\S+))*)\s*'
)
_TRAILER = re.compile(rb"[A-Za-z0-9-]+[ \t]*:")
_BY_GIT = (b"Signed-off-by: ", b"(cherry picked from commit ")
_SCISSORS = re.compile(rb". -+ >8 -+\s*")
_AUTO = frozenset(c.encode() for c in "#;@!$%^&|:")  # what core.commentChar = auto chooses from


@dataclass(frozen=True)
class MessageReading:
    """The parts of a message that git drops: comment lines, and all below ``scissors``."""

    comments: tuple[bytes, ...] = ()
    scissors: bool = False

    def is_comment(self, line: bytes) -> bool:
        return bool(self.comments) and line.startswith(self.comments)

    def cuts(self, line: bytes) -> bool:
        return self.scissors and _SCISSORS.fullmatch(line) is not None


def reading(message: bytes, *, edited: bool, cleanup: str, char: str | None) -> MessageReading:
    """How git will read a message, by ``--cleanup`` or its setting, and ``core.commentChar``.

    A message that nobody edits has no comments, except with ``--cleanup=strip``.
    """
    if cleanup == "strip":
        return MessageReading(_comment(message, char), scissors=edited)
    if cleanup == "default" and edited:
        return MessageReading(_comment(message, char), scissors=True)
    return MessageReading(scissors=edited)


def _comment(message: bytes, char: str | None) -> tuple[bytes, ...]:
    if char != "auto":
        return ((char or "#").encode("utf-8", "surrogateescape"),)
    # With ``auto`` git chose a character that no line began with: its own lines show it.
    lines = [line for line in message.splitlines() if line.strip()]
    cut = next((line for line in lines if _SCISSORS.fullmatch(line)), None)
    last = cut or (lines[-1] if lines else b"#")
    sign = last[:1]
    alone = last[1:2] in (b"", b" ", b"\t")
    return (sign,) if sign in _AUTO and alone else ()


def with_trailers(
    message: bytes, values: Sequence[str], how: MessageReading, *, stale: Sequence[str] = ()
) -> bytes:
    """The message with a trailer for each value, each once, as its last paragraph.

    Older trailers of the same lease and ``stale`` ones are removed. Comments, and everything below
    scissors, stay at the end; an empty message keeps its first line for the subject.
    """
    new, old = (
        [_KEY + b": " + v.encode("utf-8", "surrogateescape") for v in x] for x in (values, stale)
    )
    every = message.splitlines(keepends=True)
    same = {_lease(line) for line in (*new, *old)} - {None}
    present = [line.rstrip() for line in every if _lease(line) in same]
    end = _end(every, how)
    last = [x.rstrip() for x in _last_paragraph(every[:end], how) if _lease(x) in same]
    if sorted(present) == sorted(new) and present == last:
        return message
    lines = [line for line in every if _lease(line) not in same]
    if not new:
        return b"".join(lines)
    end = _end(lines, how)
    text, rest = lines[:end], lines[end:]
    line_end = b"\r\n" if text and text[-1].endswith(b"\r\n") else b"\n"
    if text and not text[-1].endswith(b"\n"):
        text[-1] += line_end
    added = [line + line_end for line in new]
    last = _last_paragraph(text, how)
    blank = [] if _are_trailers(last) else [line_end]
    if not text:
        blank = [b"\n", b"\n"]
    if rest and rest[0].strip():
        rest.insert(0, line_end)
    return b"".join([*text, *blank, *added, *rest])


def is_bare(message: bytes, how: MessageReading, template: bytes = b"") -> bool:
    """Return whether a message has a trailer of ours, and besides only what git ignores.

    Git ignores a sign-off, and the unchanged ``template``.
    """
    lines, unchanged = (
        [line.rstrip() for line in _kept_lines(text.splitlines(), how)]
        for text in (message, template)
    )
    return any(map(_OURS.fullmatch, lines)) and _own_text(lines) in ([], _own_text(unchanged))


def _own_text(lines: Sequence[bytes]) -> list[bytes]:
    return [x for x in lines if x and not _OURS.fullmatch(x) and not x.startswith(_BY_GIT[0])]


def read_message(file: str) -> bytes:
    """Read a message's file. Raises Invalid if it cannot be read, or is too large."""
    try:
        data = read_regular(file, MAX_MESSAGE)
    except OSError as error:
        raise Invalid(f"the commit message cannot be read: {error.strerror}") from None
    if data is None:
        raise Invalid("the commit message is not a file")
    if len(data) > MAX_MESSAGE:
        raise Invalid(f"the commit message is larger than {MAX_MESSAGE} bytes")
    return data


def write_message(file: str, data: bytes) -> None:
    """Overwrite a message's file: git has its name, and nobody else writes it meanwhile."""
    try:
        with open(file, "wb") as opened:
            opened.write(data)
    except OSError as error:
        raise Invalid(f"the commit message cannot be written: {error.strerror}") from None


# --- how ----------------------------------------------------------------------------------------


def _lease(line: bytes) -> tuple[bytes, bytes] | None:
    match = _OURS.fullmatch(line)
    return (match["what"], match["more"]) if match else None


def _kept_lines(lines: Sequence[bytes], how: MessageReading) -> Iterator[bytes]:
    for line in lines:
        if how.cuts(line):
            return
        if not how.is_comment(line):
            yield line


def _end(lines: Sequence[bytes], how: MessageReading) -> int:
    end = 0
    for number, line in enumerate(lines, 1):
        if how.cuts(line):
            break
        if line.strip() and not how.is_comment(line):
            end = number
    return end


def _last_paragraph(lines: Sequence[bytes], how: MessageReading) -> list[bytes]:
    # A first paragraph is the subject, never trailers.
    paragraphs: list[list[bytes]] = [[]]
    for line in lines:
        if how.is_comment(line):
            continue
        if line.strip():
            paragraphs[-1].append(line)
        elif paragraphs[-1]:
            paragraphs.append([])
    return paragraphs[-1] if len(paragraphs) > 1 else []


def _are_trailers(lines: Sequence[bytes]) -> bool:
    # git's rule: all lines are trailers, or a quarter of them and one is git's own.
    trailers = others = by_git = 0
    for line in lines:
        if line.startswith(_BY_GIT):
            trailers, by_git = trailers + 1, by_git + 1
        elif _TRAILER.match(line):
            trailers += 1
        elif not (line[:1].isspace() and trailers + others):
            others += 1
    return trailers > 0 and (not others or (by_git > 0 and trailers * 3 >= others))
