"""What is leased: a name or a path, and a scope of its work.

A word is a *name* unless it has a ``/``, a wildcard or the prefix ``path:``; what it means never
depends on which files exist. Resources that differ only in letter case or Unicode normalisation
are one resource: ``key`` is what they share.
"""

from __future__ import annotations

import re
import shlex
from typing import Annotated

from gitlease.core.errors import UsageError, hint
from gitlease.core.frozen import dataclass, field
from gitlease.core.resources import pattern

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


@dataclass(frozen=True, slots=True)
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
    """Whether a word is meant as a name (which it may still be too odd for)."""
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
    if not word.strip("."):
        raise UsageError(
            f"{word} is not a name", resource=word, hints=(f"for the folder write {word}/",)
        )
    return Resource(text=word, key=pattern.fold(word))


def path_resource(root_pattern: str) -> Resource:
    """The resource of a pattern relative to the root. UsageError when it is no pattern."""
    _check_text(root_pattern)
    try:
        parsed = pattern.parse(root_pattern)
    except pattern.PatternError as error:
        raise UsageError(str(error), resource=root_pattern[:128]) from None
    text = parsed.text
    rest = text.removeprefix("**/")
    if rest != text and "/" not in rest.rstrip("/") and _WILDCARDS & set(rest):
        text = rest  # "**/*.py" says no more than "*.py"
    return Resource(
        text=PATH_PREFIX + text if reads_as_name(text) or _has_prefix(text) else text,
        key=PATH_PREFIX + pattern.fold(text),
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
        base = [pattern.escape(part) for part in folder.split("/") if part]
        anchored = "/" in text.rstrip("/") or not _WILDCARDS & set(text)
    directory = text.endswith("/")
    parts = _climb(base, text, word)
    if not parts:
        return "**"
    if not anchored and base:
        parts = [*base, "**", *parts[len(base) :]]
    joined = "/".join(parts)
    wild = bool(_WILDCARDS & set(joined))
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


def _climb(base: list[str], text: str, word: str) -> list[str]:
    parts = list(base)
    for part in text.split("/"):
        if part in ("", "."):
            continue
        if part == "..":
            if not parts:
                raise UsageError(f"{_shown(word)} is outside the repository", resource=word)
            parts.pop()
        else:
            parts.append(part)
    return parts


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
    """Whether two scopes share work: ``*`` overlaps every scope, others only themselves."""
    return WHOLE in (one, other) or pattern.fold(one) == pattern.fold(other)


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
