"""The checker's own overlap of patterns, against the files themselves and against the product's."""

from __future__ import annotations

import itertools

import pytest
from ledger_checker.paths import overlap

from gitlease.kernel.rules import resources

PIECES = ("a", "b", "*", "**", "?", "[ab]", "[!a]", "/")
PATTERNS = sorted(
    {
        "".join(parts)
        for length in (1, 2, 3)
        for parts in itertools.product(PIECES, repeat=length)
        if "//" not in "".join(parts) and "***" not in "".join(parts)
    }
    - {"/"}
)
LONGER = ("a/**/b", "**/a/*", "a*b/?", "/*/a/", "b/[!b]/**", "*/b", "a/b/", "**/?a", "[a-c]/*b")


def usable(texts: tuple[str, ...] | list[str]) -> list[str]:
    found = []
    for text in texts:
        try:
            resources.parse(text)
        except resources.PatternError:
            continue
        found.append(text)
    return found


def files() -> list[str]:
    names = ["".join(x) for n in (1, 2) for x in itertools.product("abc", repeat=n)]
    return [
        *names,
        *map("/".join, itertools.product(names, repeat=2)),
        *map("/".join, itertools.product("abc", repeat=3)),
        *map("/".join, itertools.product("abc", repeat=4)),
    ]


@pytest.mark.slow
def test_it_agrees_with_the_products_on_every_pair() -> None:
    every = [*usable(PATTERNS)[::3], *usable(LONGER)]
    assert len(every) > 100
    wrong = [
        (one, other)
        for one, other in itertools.combinations_with_replacement(every, 2)
        if overlap(one, other) != resources.overlap(resources.parse(one), resources.parse(other))
    ]
    assert wrong == []


def test_it_finds_every_file_that_two_patterns_match() -> None:
    every = [*usable(PATTERNS)[::7], *usable(LONGER)]
    some = files()
    covered = {
        text: {file for file in some if resources.covers(resources.parse(text), file)}
        for text in every
    }
    shared = [
        (one, other)
        for one, other in itertools.combinations(every, 2)
        if covered[one] & covered[other]
    ]
    assert len(shared) > 100
    assert [pair for pair in shared if not overlap(*pair)] == []


@pytest.mark.parametrize(
    ("one", "other", "meet"),
    [
        ("src/auth/**", "src/*/login.py", True),
        ("src/auth", "src/auth/login.py", True),
        ("src/auth/", "src/authors", False),
        ("/*.py", "docs/x.md", False),
        ("*.py", "docs/x.PY", True),
        ("Straße/x", "STRASSE/X", True),
        ("caf\u00e9", "cafe\u0301/menu", True),
        ("[[:digit:]]*/x", "7up/x", True),
        ("[[:digit:]]*/x", "up/x", False),
        ("[A-C]", "b", True),
        ("/[!A-C]", "b", False),
        (r"\*", "a", False),
        (r"\*", "?", True),
        ("a/**", "a", True),
        ("foo/*/", "foo", True),
        ("[]a]b", "]b", True),
    ],
)
def test_patterns_mean_what_gitignore_says(one: str, other: str, meet: bool) -> None:
    assert overlap(one, other) is meet
    assert overlap(other, one) is meet
    assert resources.overlap(resources.parse(one), resources.parse(other)) is meet
