"""Path patterns after gitignore(5): what a pattern covers, and whether two can meet on one file.

A character is always one character of the folded path, so that a pattern covers all spellings of
a name or none of them.
"""

import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from itertools import chain, groupby, takewhile

from gitlease.core.frozen import dataclass, field
from gitlease.core.resources.glob_overlap import Chars, Jump, StateRow, Token

MAX_LENGTH = 512
MAX_WILDCARDS = 32

Span = tuple[int, int]  # half open

_END: Span = (sys.maxunicode + 1, sys.maxunicode + 2)
_UPPER: Span = (ord("A"), ord("Z") + 1)
_SLASH: Span = (ord("/"), ord("/") + 1)
_POSIX = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "blank": " \t",
    "cntrl": "\x01-\x1f\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": " \t-\r",
    "upper": "A-Z",
    "xdigit": "0-9A-Fa-f",
}
# Possessive, so that an unclosed `[!]` or `[[:alpha:]` is not read again in another way.
_TOKEN = re.compile(
    r"(?P<slash>\\?/) | (?P<stars>\*+) | (?P<any>\?) | \\(?P<escaped>.) | (?P<plain>[^\\\[])"
    r"| \[ (?P<not>[!^]?+) (?P<body> \]?+ (?: \[:[^\]]*:\] | \\. | [^\]\\] )*+ ) \]",
    re.VERBOSE | re.DOTALL,
)
_MEMBER = re.compile(r"\[:([^\]]*):\]|(\\.|.)(?:-(\\.|.))?", re.DOTALL)


class PatternError(ValueError):
    """The text is no usable pattern; the message names the text and the reason on one line."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A parsed pattern, made by `parse`. Patterns of equal text are equal.

    `path` is what a literal one names, in its original spelling; None for any other.
    """

    text: str
    path: str | None = field(compare=False, repr=False)
    head: tuple[str, ...] = field(compare=False, repr=False)  # folded literal leading segments
    exact: StateRow = field(compare=False, repr=False)  # read against paths
    loose: StateRow = field(compare=False, repr=False)  # read against patterns, see `_folded`

    @property
    def is_literal(self) -> bool:
        """Whether the pattern has no wildcard and so names one file or folder from the root."""
        return self.path is not None


def fold(text: str) -> str:
    """The one spelling shared by all names that differ only in case or Unicode normal form."""
    if text.isascii():
        return text.lower()
    # Once is not always enough: what was composed may fold again.
    while (folded := _nfc(unicodedata.normalize("NFD", text).casefold())) != text:
        text = folded
    return text


def _nfc(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def covers(pattern: Pattern, path: str) -> bool:
    """Whether the pattern matches this repository-relative file path or a folder above it."""
    folded = fold(path)
    segments = folded.split("/")
    if not all(segments) or tuple(segments[: len(pattern.head)]) != pattern.head:
        return False
    return pattern.is_literal or pattern.exact.meets(folded + "/")


def overlap(a: Pattern, b: Pattern) -> bool:
    """Whether some file path is covered by both: never a false no, and exact within ASCII."""
    if any(one != other for one, other in zip(a.head, b.head, strict=False)):
        return False
    return (a.is_literal and b.is_literal) or b.loose.meets(a.loose.tokens)


def escape(literal: str) -> str:
    """The pattern text that reads `literal`, a path or one segment of it, as it stands."""
    return re.sub(r"^!|[\\*?\[]", r"\\\g<0>", literal)


@lru_cache(maxsize=8192)
def parse(text: str) -> Pattern:
    """Read a pattern after gitignore(5), but one without wildcards as a path from the root.

    Raises PatternError for a text that is malformed, negated, too large or matches nothing.
    """
    try:
        return _parse(text)
    except PatternError as error:
        shown = text if len(text) <= 80 else text[:79] + "…"
        raise PatternError(f"pattern {shown!r}: {error}") from None


def _parse(text: str) -> Pattern:
    if len(text) > MAX_LENGTH:
        raise PatternError(f"longer than {MAX_LENGTH} characters")
    if any(unicodedata.category(char) in ("Cc", "Zl", "Zp") for char in text):
        raise PatternError("contains a control character")
    if text.startswith("!"):
        raise PatternError(r"negation is not supported; a file name starting with '!' needs '\!'")
    segments = _segments(_nfc(text))
    wildcards = sum(not isinstance(token, str) for segment in segments for token in segment)
    if wildcards > MAX_WILDCARDS:
        raise PatternError(f"more than {MAX_WILDCARDS} wildcards")
    # gitignore(5): a slash at the beginning or in the middle, even in a class, anchors.
    anchored = not wildcards or "/" in text[:-1]
    folder = len(segments) > 1 and not segments[-1]
    segments = segments[len(segments) > 1 and not segments[0] : len(segments) - folder]
    if segments in ([], [[]]):
        raise PatternError("empty")
    if [] in segments:
        raise PatternError("has an empty segment")
    if ["."] in segments or [".", "."] in segments:
        raise PatternError("has a '.' or '..' segment")
    path = None if wildcards else re.sub(r"\\(.)", r"\1", text).strip("/")
    names = takewhile(lambda segment: all(isinstance(token, str) for token in segment), segments)
    head = tuple(fold("".join(map(str, name))) for name in names) if anchored else ()
    exact, loose = (
        tuple(_row(segments, anchored, folder and path is None, loose)) for loose in (False, True)
    )
    row = StateRow(exact)
    return Pattern(text, path, head, row, row if loose == exact else StateRow(loose))


def _segments(text: str) -> list[list[Token]]:
    """The tokens of each segment, unfolded; a DEEP stands for several asterisks anywhere."""
    segments: list[list[Token]] = [[]]
    place = 0
    while place < len(text):
        found = _TOKEN.match(text, place)
        if not found:
            raise PatternError("unclosed '['" if text[place] == "[" else r"ends in a lone '\'")
        place = found.end()
        match found.lastgroup:
            case "slash":
                segments.append([])
            case "stars":
                segments[-1].append(Jump.DEEP if len(found[0]) > 1 else Jump.STAR)
            case "any":
                segments[-1].append(_class("", negated=True))
            case "body":
                segments[-1].append(_class(found["body"], negated=bool(found["not"])))
            case _:
                segments[-1].append(found[0][-1])
    return segments


def _row(
    segments: list[list[Token]], anchored: bool, only_below: bool, loose: bool
) -> Iterator[Token]:
    """The whole row; it ends in DEEP, for what covers a folder covers everything below it."""
    deep: list[Token] = [Jump.DEEP]
    name: list[Token] = [Jump.STAR]
    # gitignore(5): a trailing `**` matches what is inside, so it reads one segment at least.
    last = name if segments[-1] == deep else segments[-1]
    whole = [*([] if anchored else [deep]), *segments[:-1], last, *[name] * only_below, deep]
    before: Token = "/"
    for segment in whole:
        for token in segment if segment == deep else [*_folded(segment, loose), "/"]:
            if token is not before or not isinstance(token, Jump):
                yield token
            before = token


def _folded(segment: list[Token], loose: bool) -> Iterator[Token]:
    """One segment with its text folded.

    What folds to several characters, as `ß` does, may be meant by one `?`. No row can say that
    exactly, so the loose row, which is compared with other patterns, has a star in its place.
    """
    for literal, run in groupby(segment, lambda token: isinstance(token, str)):
        if not literal:
            yield from (Jump.STAR if token is Jump.DEEP else token for token in run)
            continue
        for letter in map(fold, _letters("".join(map(str, run)))):
            yield from [Jump.STAR] if loose and len(letter) > 1 else letter


def _letters(text: str) -> Iterator[str]:
    """The characters of a text, each together with the combining marks that follow it."""
    letter = ""
    for char in text:
        if letter and not unicodedata.combining(char):
            yield letter
            letter = ""
        letter += char
    yield letter


def _class(body: str, *, negated: bool) -> Token:
    """The folded characters of a bracket expression; a star where a member is not just one."""
    spans: list[Span] = []
    for posix, low, high in _MEMBER.findall(body):
        if low:
            if not (high or negated or _is_single(low[-1])):
                return Jump.STAR
            spans.append(_span(low, high))
        elif posix in _POSIX:
            spans += [_span(*ends) for _, *ends in _MEMBER.findall(_POSIX[posix])]
        else:
            raise PatternError(f"unknown character class '[:{posix}:]'")
    codes = _foldings(max((high for _, high in spans), default=0) > 0x80)
    spans += [(to, to + 1) for code, to in codes if any(lo <= code < hi for lo, hi in spans)]
    # Upper case occurs in no folded path, so two sets that share only that must not touch.
    present = _complement([*(spans if negated else _complement(spans)), _SLASH, _UPPER])
    if not present:
        raise PatternError("a character class matches nothing")
    return Chars(tuple(chain.from_iterable(present)))


def _span(low: str, high: str) -> Span:
    """The codes of a class member, each end of which may have a backslash before it."""
    return ord(low[-1]), ord((high or low)[-1]) + 1


def _complement(spans: list[Span]) -> list[Span]:
    """All codes but these, NUL and what lies beyond Unicode, in ascending gaps."""
    gaps = []
    start = 1
    for low, high in sorted(span for span in [*spans, _END] if span[0] < span[1]):
        if start < low:
            gaps.append((start, low))
        start = max(start, high)
    return gaps


def _is_single(char: str) -> bool:
    """Whether no spelling of the character takes several: neither a folding nor a lone mark."""
    return len(fold(char)) == 1 and not unicodedata.combining(char)


@cache
def _foldings(beyond_ascii: bool) -> tuple[Span, ...]:
    """All codes that fold to one other, with that; up to the last plane that has any."""
    codes = range(0x30000 if beyond_ascii else 0x80)
    folded = ((code, fold(chr(code))) for code in codes)
    return tuple((code, ord(to)) for code, to in folded if len(to) == 1 and ord(to) != code)


def any_overlap(some: Iterable[str], others: Iterable[str]) -> bool:
    """Whether any pattern of the one can match a file that one of the others matches."""
    parsed = [parse(text) for text in others]
    return any(overlap(parse(a), b) for a in some for b in parsed)
