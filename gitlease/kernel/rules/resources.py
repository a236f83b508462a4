"""Resources: a name or a path, a scope of its work, and the files of a path pattern.

A word is a *name* unless it has a ``/``, a wildcard or the prefix ``path:``; what it means never
depends on which files exist. Resources that differ only in letter case or Unicode normalisation
are one resource: ``key`` is what they share.

Patterns are those of gitignore(5). A character is always one character of the folded path, so that
a pattern covers all spellings of a name or none of them. A row of tokens reads a folded path in
which every segment, the last one too, ends in `/`. Whether two rows read one path in common is
decided exactly, by one pass over the first row with all places reachable in the second kept as the
bits of an integer.
"""

from __future__ import annotations

import re
import shlex
import sys
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from functools import cache, cached_property, lru_cache, partial
from itertools import chain, groupby, takewhile
from typing import Annotated

from gitlease.kernel.rules.errors import UsageError, hint
from gitlease.kernel.rules.frozen import dataclass, field

# --- patterns -------------------------------------------------------------------------------------


class Jump(Enum):
    """Tokens that read a run: STAR within one segment, DEEP zero or more whole segments."""

    STAR = "*"
    DEEP = "**"


@dataclass(frozen=True)
class Chars:
    """A set of character codes, never `/`, as the ascending edges of half-open ranges."""

    edges: tuple[int, ...]

    def __contains__(self, code: int) -> bool:
        return bisect_right(self.edges, code) % 2 == 1

    def touches(self, other: Chars) -> bool:
        """True if the sets share a character: if so, a range of one starts inside the other."""
        return any(low in other for low in self.edges[::2]) or any(
            low in self for low in other.edges[::2]
        )


_composed = partial(unicodedata.normalize, "NFC")

Token = str | Chars | Jump  # a str is one character; "/" ends a segment


class StateRow:
    """A token row to run others against: bit n of each mask stands for the place before token n.

    DEEP stands only where a segment starts, and neither DEEP nor STAR stands twice in a row.
    """

    __slots__ = ("classes", "deeps", "inside", "plain", "stars", "starts", "tokens")

    def __init__(self, tokens: tuple[Token, ...]) -> None:
        self.tokens = tokens
        self.plain: dict[str, int] = {"/": 0}
        self.classes: dict[Chars, int] = {}
        self.stars = self.deeps = self.inside = 0
        self.starts = 1
        for place, token in enumerate(tokens):
            bit = 1 << place
            if token is Jump.DEEP or token == "/":
                self.starts |= bit << 1
            else:
                self.inside |= bit
            if isinstance(token, str):
                self.plain[token] = self.plain.get(token, 0) | bit
            elif isinstance(token, Chars):
                self.classes[token] = self.classes.get(token, 0) | bit
            elif token is Jump.STAR:
                self.stars |= bit
            else:
                self.deeps |= bit

    def meets(self, tokens: Iterable[Token]) -> bool:
        """Return whether both rows read one path to its end; `tokens` may be its characters."""
        # Empty segments need no guard: where both rows read nothing for a whole segment they have
        # only a star there, and then they share every name as well.
        here = self._skip(1)
        held = here & self.deeps
        for token in tokens:
            if token is Jump.DEEP:
                # From the first place on, every later beginning of a segment can be reached.
                here = -(here & -here) & self.starts
            elif token is Jump.STAR:
                # The sum's carry runs from each place to the `/` that ends its segment.
                here |= ((here & self.inside) + self.inside) ^ self.inside
            elif token == "/":
                # A DEEP once reached reads every later segment of the other row as well.
                here = (here & self.plain["/"]) << 1 | held
            else:
                here = (here & self._readers(token)) << 1 | here & self.stars
            here = self._skip(here)
            held |= here & self.deeps
            if not here | held:
                return False
        return here >> len(self.tokens) == 1

    def _skip(self, here: int) -> int:
        # A DEEP or STAR may read nothing.
        here |= (here & self.deeps) << 1  # first: a STAR may follow a DEEP, never precede it
        return here | (here & self.stars) << 1

    def _readers(self, token: str | Chars) -> int:
        if isinstance(token, str):
            readers = self.plain.get(token, 0)
            for chars, places in self.classes.items():
                readers |= places if ord(token) in chars else 0
            return readers
        readers = 0
        for char, places in self.plain.items():
            readers |= places if ord(char) in token else 0
        for chars, places in self.classes.items():
            readers |= places if chars.touches(token) else 0
        return readers


MAX_LENGTH = 512
MAX_WILDCARDS = 32

Segment = Sequence[Token]  # a text where nothing in it is special
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
# Both are compiled where they are used: most commands are about names.
_TOKEN = (
    r"(?xs)(?P<slash>\\?/) | (?P<stars>\*+) | (?P<any>\?) | \\(?P<escaped>.) | (?P<plain>[^\\\[])"
    r"| \[ (?P<not>[!^]?+) (?P<body> \]?+ (?: \[:[^\]]*:\] | \\. | [^\]\\] )*+ ) \]"
)
_SPECIAL = frozenset("*?[\\")
_MEMBER = r"(?s)\[:([^\]]*):\]|(\\.|.)(?:-(\\.|.))?"


class PatternError(ValueError):
    """The text is no usable pattern; the message names the text and the reason on one line."""


@dataclass(frozen=True)
class Pattern:
    """A parsed pattern, made by `parse`. Patterns of equal text are equal.

    `path` is what a literal one names, in its original spelling; None for any other.
    """

    text: str
    path: str | None = field(compare=False, repr=False)
    head: tuple[str, ...] = field(compare=False, repr=False)  # folded literal leading segments
    segments: Sequence[Segment] = field(compare=False, repr=False)  # as written
    anchored: bool = field(compare=False, repr=False)
    only_below: bool = field(compare=False, repr=False)  # it ends in `/`, so it means no file

    @property
    def is_literal(self) -> bool:
        """True if the pattern has no wildcard and so names one file or folder from the root."""
        return self.path is not None

    @cached_property
    def ending(self) -> str | None:
        """Of ``tasks/**`` and ``tasks/**/*.md``: how what it covers below its head ends, folded.

        None for a pattern of any other form.
        """
        deep, *names = self.segments[len(self.head) :] or [[]]
        if self.only_below or [*deep] != [Jump.DEEP] or len(names) > 1:
            return None
        star, *rest = names[0] if names else [Jump.STAR]
        text = "".join(token for token in rest if isinstance(token, str))
        whole = star is Jump.STAR and len(text) == len(rest) and text.isascii()
        return fold(text) if whole else None

    # Most patterns are literal, and are never read against anything.

    @cached_property
    def exact(self) -> StateRow:
        """Read against paths."""
        return StateRow(self._tokens(loose=False))

    @cached_property
    def loose(self) -> StateRow:
        """Read against patterns, see `_folded`."""
        tokens = self._tokens(loose=True)
        return self.exact if tokens == self.exact.tokens else StateRow(tokens)

    def _tokens(self, *, loose: bool) -> tuple[Token, ...]:
        return tuple(_row(self.segments, self.anchored, self.only_below, loose))


def fold(text: str) -> str:
    """The one spelling shared by all names that differ only in case or Unicode normal form."""
    if text.isascii():
        return text.lower()
    # Once is not always enough: what was composed may fold again.
    while (folded := _composed(unicodedata.normalize("NFD", text).casefold())) != text:
        text = folded
    return text


def covers(pattern: Pattern, path: str) -> bool:
    """True if the pattern matches this repository-relative file path or a folder above it."""
    folded = fold(path)
    segments = folded.split("/")
    if not all(segments) or tuple(segments[: len(pattern.head)]) != pattern.head:
        return False
    if pattern.is_literal:
        return True
    # The usual patterns of task files need no automaton.
    if pattern.ending is not None:
        return any(name.endswith(pattern.ending) for name in segments[len(pattern.head) :])
    return pattern.exact.meets(folded + "/")


def overlap(a: Pattern, b: Pattern) -> bool:
    """True if some file path is covered by both: never a false no, and exact within ASCII."""
    if any(one != other for one, other in zip(a.head, b.head, strict=False)):
        return False
    # Of two literals with one beginning, the one is the other or lies below it.
    return (a.is_literal and b.is_literal) or b.loose.meets(a.loose.tokens)


def escape(literal: str) -> str:
    """The pattern text that reads `literal`, a path or one segment of it, as it stands.

    It may be typed where patterns are: braces that ``check_braces`` refuses are escaped, too.
    """
    text = re.sub(r"^!|[\\*?\[]", r"\\\g<0>", literal)
    return re.sub(_BRACES, r"\\{\1}", text)


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
    controls = ("Cc", "Zl", "Zp")
    # Not what merely does not print: a file's name may have any sign that is no control.
    if not text.isprintable() and any(unicodedata.category(char) in controls for char in text):
        raise PatternError("contains a control character")
    if text.startswith("!"):
        raise PatternError(r"negation is not supported; a file name starting with '!' needs '\!'")
    # Nearly all patterns are paths: these are split, and no token is made.
    plain = not _SPECIAL.intersection(text)
    composed = _composed(text)
    segments = composed.split("/") if plain else _segments(composed)
    wildcards = sum(not isinstance(x, str) for y in segments for x in y) if not plain else 0
    if wildcards > MAX_WILDCARDS:
        raise PatternError(f"more than {MAX_WILDCARDS} wildcards")
    # gitignore(5): a slash at the beginning or in the middle, even in a class, anchors.
    anchored = not wildcards or "/" in text[:-1]
    folder = len(segments) > 1 and not segments[-1]
    segments = segments[len(segments) > 1 and not segments[0] : len(segments) - folder]
    if len(segments) < 2 and not any(segments):
        raise PatternError("empty")
    if not all(segments):
        raise PatternError("has an empty segment")
    if any(dots in segments or [*dots] in segments for dots in (".", "..")):
        raise PatternError("has a '.' or '..' segment")
    path = None if wildcards else re.sub(r"\\(.)", r"\1", text).strip("/")
    names = takewhile(lambda segment: plain or all(isinstance(x, str) for x in segment), segments)
    head = tuple(fold("".join(map(str, name))) for name in names) if anchored else ()
    return Pattern(text, path, head, segments, anchored, folder and path is None)


def _segments(text: str) -> Sequence[Segment]:
    """The tokens of each segment, unfolded; a DEEP stands for several asterisks anywhere."""
    segments: list[list[Token]] = [[]]
    place, token = 0, re.compile(_TOKEN)
    while place < len(text):
        match = token.match(text, place)
        if not match:
            raise PatternError("unclosed '['" if text[place] == "[" else r"ends in a lone '\'")
        place = match.end()
        match match.lastgroup:
            case "slash":
                segments.append([])
            case "stars":
                segments[-1].append(Jump.DEEP if len(match[0]) > 1 else Jump.STAR)
            case "any":
                segments[-1].append(_class("", negated=True))
            case "body":
                segments[-1].append(_class(match["body"], negated=bool(match["not"])))
            case _:
                segments[-1].append(match[0][-1])
    return segments


def _row(
    segments: Sequence[Segment], anchored: bool, only_below: bool, loose: bool
) -> Iterator[Token]:
    """The whole row; it ends in DEEP, for what covers a folder covers everything below it."""
    deep: list[Token] = [Jump.DEEP]
    name: list[Token] = [Jump.STAR]
    # gitignore(5): a trailing `**` matches what is inside, so it reads one segment at least.
    last = name if segments[-1] == deep else segments[-1]
    # gitignore(5): without a slash a pattern holds at any depth.
    start: list[Segment] = [] if anchored else [deep]
    # One that ends in a slash means a folder, so something must lie below.
    whole = [*start, *segments[:-1], last, *[name] * only_below, deep]
    before: Token = "/"
    for segment in whole:
        for token in segment if segment == deep else [*_folded(segment, loose), "/"]:
            if token is not before or not isinstance(token, Jump):
                yield token
            before = token


def _folded(segment: Segment, loose: bool) -> Iterator[Token]:
    """One segment with its text folded."""
    for literal, run in groupby(segment, lambda token: isinstance(token, str)):
        if not literal:
            yield from (Jump.STAR if token is Jump.DEEP else token for token in run)
            continue
        for letter in map(fold, _letters("".join(map(str, run)))):
            # What folds to several characters, as `ß` does, may be meant by one `?`. No row can say
            # that exactly, so the loose one, which is read against patterns, has a star there.
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
    for posix, low, high in re.findall(_MEMBER, body):
        if low:
            char = low[-1]
            if not (high or negated or (len(fold(char)) == 1 and not unicodedata.combining(char))):
                return Jump.STAR
            spans.append(_span(low, high))
        elif posix in _POSIX:
            spans += [_span(*ends) for _, *ends in re.findall(_MEMBER, _POSIX[posix])]
        else:
            raise PatternError(f"unknown character class '[:{posix}:]'")
    codes = _foldings(max((high for _, high in spans), default=0) > 0x80)
    # Paths are folded: what folds into the set belongs to it.
    spans += [(to, to + 1) for code, to in codes if any(lo <= code < hi for lo, hi in spans)]
    # Upper case occurs in no folded path, so two sets that share only that must not touch.
    present = _complement([*(spans if negated else _complement(spans)), _SLASH, _UPPER])
    if not present:
        raise PatternError("a character class matches nothing")
    return Chars(tuple(chain.from_iterable(present)))


def _span(low: str, high: str) -> Span:
    # Each end may have a backslash before it.
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


@cache
def _foldings(beyond_ascii: bool) -> tuple[Span, ...]:
    """All codes that fold to one other, with that; up to the last plane that has any."""
    codes = range(0x30000 if beyond_ascii else 0x80)
    folded = ((code, fold(chr(code))) for code in codes)
    return tuple((code, ord(to)) for code, to in folded if len(to) == 1 and ord(to) != code)


def any_overlap(some: Iterable[str], others: Iterable[str]) -> bool:
    """Return whether any pattern of the one can match a file that one of the others matches."""
    parsed = [parse(text) for text in others]
    return any(overlap(parse(a), b) for a in some for b in parsed)


# --- resources, scopes and layers -----------------------------------------------------------------

LOCAL_LAYER = "local"
GLOBAL_LAYER = "global"  # the usual one
Scope = Annotated[str, "scope"]
WHOLE = "*"  # the scope that overlaps every other
PATH_PREFIX = "path:"

_NAME = re.compile(r"[A-Za-z0-9._:#@+-]{1,128}")
_WILDCARDS = frozenset("*?[")
_BRACES = r"(?<![\\\[])\{([^{}]*,[^{}]*)\}"
_LAYER = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MAX_SCOPE = 128


@dataclass(frozen=True)
class Resource:
    """A name, or a path pattern relative to the repository's root.

    ``text`` is how it is shown and stored, and reads back as the same resource at the root;
    equality and hash look at ``key`` alone, which is folded.
    """

    text: str = field(compare=False)
    key: str = field(repr=False)

    @property
    def is_path(self) -> bool:
        return self.key.startswith(PATH_PREFIX)

    @property
    def pattern(self) -> str | None:
        """The path pattern of a path resource, without prefix; None for a name."""
        if not self.is_path:
            return None
        return self.text.removeprefix(PATH_PREFIX)

    def __str__(self) -> str:
        return self.text


def reads_as_name(word: str) -> bool:
    """Return whether a word is meant as a name (which it may still be too odd for)."""
    return not _has_prefix(word) and "/" not in word and not _WILDCARDS & set(word)


def _has_prefix(word: str) -> bool:
    return word[: len(PATH_PREFIX)].lower() == PATH_PREFIX


def name_resource(word: str) -> Resource:
    """The resource of a name: 1-128 of ``A-Z a-z 0-9 . _ - : # @ +``. UsageError otherwise."""
    _check_text(word)
    if word.startswith("!"):
        raise _negation(word)
    if _has_prefix(word):
        raise UsageError(f"{_shown(word)} is a path, not a name", resource=word[:128])
    if not _NAME.fullmatch(word):
        raise UsageError(
            f"{_shown(word)} is not a name: 1-128 ASCII letters, digits and . _ - : # @ +",
            resource=word[:128],
            hints=(f"for a file of that name write {shlex.quote(PATH_PREFIX + word)}",)
            if len(word) <= 60 and word.isprintable()
            else (),
        )
    # `.` and `..` are folders to everybody else.
    if not word.strip("."):
        raise UsageError(
            f"{word} is not a name", resource=word, hints=(f"for the folder write {word}/",)
        )
    return Resource(text=word, key=fold(word))


def path_resource(root_pattern: str) -> Resource:
    """The resource of a pattern relative to the root. UsageError when it is no pattern."""
    _check_text(root_pattern)
    try:
        parsed = parse(root_pattern)
    except PatternError as error:
        raise UsageError(str(error), resource=root_pattern[:128]) from None
    text = parsed.text
    rest = text.removeprefix("**/")
    if rest != text and "/" not in rest.rstrip("/") and _WILDCARDS & set(rest):
        text = rest  # "**/*.py" says no more than "*.py"
    return Resource(
        text=PATH_PREFIX + text if reads_as_name(text) or _has_prefix(text) else text,
        # The prefix keeps a file apart from a task of the same name.
        key=PATH_PREFIX + fold(text),
    )


def parse_resource(word: str, *, folder: str = "", root: str | None = None) -> Resource:
    """Read what a person typed in ``folder`` (relative to the root, ``""`` at the root).

    ``root`` is the absolute work tree, so that an absolute path inside it is understood.
    Raises UsageError for anything that is neither a name nor a path inside the repository.
    """
    if not isinstance(word, str):
        raise UsageError(f"a resource must be a string, not {type(word).__name__}")
    if not word:
        raise UsageError("a resource must not be empty")
    if reads_as_name(word):
        return name_resource(word)
    return path_resource(resolve_path(word, folder=folder, root=root))


def word_anywhere(text: str, *, root: str | None = None) -> str:
    """How to type a resource in any folder of a work tree at ``root`` so that it means the same.

    A path begins at the repository's root then. Where the work tree itself lies at the beginning
    of that (app/ of what lies in /app) it stands in full, since it would be read so.
    """
    if reads_as_name(text):
        return text
    text = text.removeprefix(PATH_PREFIX)
    if not text.startswith("/"):
        anywhere = "/" not in text.rstrip("/") and bool(_WILDCARDS & set(text))
        text = f"/**/{text}" if anywhere else f"/{text}"
    return root.rstrip("/") + text if root is not None and _inside(text, root) else text


def resolve_path(word: str, *, folder: str = "", root: str | None = None) -> str:
    """The pattern, relative to the root, that a path word typed in ``folder`` means.

    gitignore semantics hold *below that folder*: ``*.py`` typed in ``src`` is ``src/**/*.py``.
    """
    if not isinstance(word, str):
        raise UsageError(f"a path must be a string, not {type(word).__name__}")
    text = word[len(PATH_PREFIX) :] if _has_prefix(word) else word
    if text.startswith("!"):
        raise _negation(word)
    if not text:
        raise UsageError(f"{_shown(word)} does not name a path", resource=word)
    if text.startswith("/"):
        base: list[str] = []
        if root is not None and _inside(text, root):
            text = text[len(root.rstrip("/")) :]
        anchored = True
    else:
        base = [escape(part) for part in folder.split("/") if part]
        anchored = "/" in text.rstrip("/") or not _WILDCARDS & set(text)
    directory = text.endswith("/")
    parts = list(base)
    for part in text.split("/"):
        if part == "..":
            if not parts:
                raise UsageError(f"{_shown(word)} is outside the repository", resource=word)
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    if not parts:
        return "**"
    if not anchored and base:
        parts = [*base, "**", *parts[len(base) :]]
    joined = "/".join(parts)
    wild = bool(_WILDCARDS & set(joined))
    # Without a slash it would hold at any depth.
    if wild and anchored and "/" not in joined:
        joined = "/" + joined
    return joined + "/" if directory and wild else joined


def check_braces(word: str) -> None:
    """UsageError for a path with ``{a,b}``, which gitignore does not expand: what to write."""
    braces = re.search(_BRACES, word)
    if braces is not None:
        each = [word[: braces.start()] + x + word[braces.end() :] for x in braces[1].split(",")]
        raise UsageError(
            f"{_shown(word)} has braces, which patterns do not expand",
            resource=word[:128],
            hints=(f"write each one: {' '.join(each)}"[:500],),
        )


def _check_text(word: str) -> None:
    try:  # a file name that is not UTF-8 has surrogates, which no record can hold
        word.encode()
    except UnicodeEncodeError:
        safe = word.encode("utf-8", "backslashreplace").decode()
        raise UsageError(
            f"{_shown(safe)} is not UTF-8, so it cannot be leased",
            resource=safe[:128],
            hints=("lease its folder, or a pattern with ? for each invalid byte",),
        ) from None


def _negation(word: str) -> UsageError:
    return UsageError(
        f"{_shown(word)} is a negation, which cannot be leased",
        resource=word[:128],
        hints=(f"for a file whose name begins with ! write '{PATH_PREFIX}\\!…'",),
    )


def _inside(text: str, root: str) -> bool:
    root = root.rstrip("/")
    return bool(root) and (text == root or text.startswith(root + "/"))


def parse_scope(word: str) -> str:
    """A scope: any 1-128 printable characters; ``*`` is the whole. UsageError otherwise."""
    if not isinstance(word, str):
        raise UsageError(f"a scope must be a string, not {type(word).__name__}")
    if not word or len(word) > _MAX_SCOPE or not word.isprintable() or word != word.strip():
        raise UsageError(
            f"scope {_shown(word)} is not 1-{_MAX_SCOPE} printable characters", scope=word[:128]
        )
    return word


def scopes_overlap(one: str, other: str) -> bool:
    """Return whether two scopes share work: ``*`` overlaps every scope, others only themselves."""
    return WHOLE in (one, other) or fold(one) == fold(other)


def parse_layer(word: str) -> str:
    """A layer's name, lower case: ``[A-Za-z0-9_-]{1,64}``. UsageError otherwise."""
    if not _LAYER.fullmatch(word):
        raise UsageError(f"layer {_shown(word)} is not 1-64 letters, digits, _ and -")
    if word.lower() == LOCAL_LAYER:
        raise UsageError(
            f"the layer {LOCAL_LAYER} is reserved for the ledger that never leaves this clone",
            hints=(hint("use {}", local=True),),
        )
    return word.lower()


def layer_words(layer: str, usual: str = GLOBAL_LAYER) -> list[str]:
    """The option that names a layer in a command; none for the one that is meant without."""
    if layer == usual:
        return []
    return ["--local"] if layer == LOCAL_LAYER else ["--layer", layer]


def _shown(word: str) -> str:
    short = word if len(word) <= 60 else word[:60] + "…"
    return short if short.isprintable() and short.strip() == short and short else repr(short)


# --- numbers of issues ----------------------------------------------------------------------------


class Issues(Enum):
    """The tracker of a ledger's issue numbers: ``#12``, ``12`` and ``GH-12``, say, are one."""

    NONE = "none"
    GITHUB = "github"
    GITLAB = "gitlab"


_PREFIX = {Issues.GITHUB: "GH", Issues.GITLAB: "GL"}  # of links where # begins a comment
_NUMBER = r"(#|[A-Za-z]{2}-|)([1-9][0-9]{0,9})"  # compiled where it is used


def reads_as_issue(name: str) -> bool:
    """Return whether a name may be the number of an issue on some host."""
    return re.fullmatch(_NUMBER, name) is not None


def issue_resource(resource: Resource, host: Issues) -> Resource:
    """The resource in the host's own spelling, ``#12``, where it is an issue there; else itself."""
    match = re.fullmatch(_NUMBER, resource.text) if host is not Issues.NONE else None
    if match is None or match[1].upper() not in ("", "#", f"{_PREFIX[host]}-"):
        return resource
    return name_resource(f"#{match[2]}")
