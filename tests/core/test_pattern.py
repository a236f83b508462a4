"""Patterns against tables, against git and pathspec, and against brute force over short paths."""

import itertools
import os
import random
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from pathspec import GitIgnoreSpec

from gitlease.core import (
    MAX_LENGTH,
    MAX_WILDCARDS,
    PatternError,
    covers,
    escape,
    fold,
    overlap,
    parse,
)


def hits(pattern: str, path: str) -> bool:
    return covers(parse(pattern), path)


def meet(a: str, b: str) -> bool:
    forth, back = overlap(parse(a), parse(b)), overlap(parse(b), parse(a))
    assert forth == back, (a, b)
    return forth


# --- what a pattern covers -----------------------------------------------------------------------

COVERS = {
    # A literal is anchored, and covers itself and all below it.
    "Makefile": ("Makefile", "Makefile/x | sub/Makefile Makefile2"),
    "/Makefile": ("Makefile", "| sub/Makefile"),
    "src/auth": ("src/auth src/auth/a.py src/auth/a/b", "| src src/author src/a x/src/auth"),
    "src/auth/": ("src/auth src/auth/a.py", "| src/author"),
    r"a\*b": ("a*b a*b/c", "| axb"),
    r"\!x": ("!x", "| x"),
    "#x": ("#x", "| x"),
    # Wildcards without a slash match at any depth.
    "*": ("a a/b .hidden", "|"),
    "**": ("a a/b .hidden", "|"),
    "*.py": ("a.py x/y/a.py .py a.py/below", "| a.pyc py"),
    "test_?": ("test_a x/test_b/y", "| test_ test_ab"),
    # A slash at the beginning or in the middle anchors.
    "/*.py": ("a.py a.py/x", "| x/a.py"),
    "src/*.py": ("src/a.py src/a.py/b", "| a.py src/x/a.py y/src/a.py"),
    "src/*": ("src/a src/a/b", "| src a/src/b"),
    # A trailing slash means a directory: only what is below.
    "*.d/": ("a.d/x y/a.d/x/y", "| a.d y/a.d"),
    "*/": ("a/b a/b/c", "| a"),
    "**/": ("a/b a/b/c", "| a"),
    # Double asterisks.
    "**/foo": ("foo a/foo a/b/foo/c", "| afoo a/foob"),
    "abc/**": ("abc/x abc/x/y", "| abc x/abc/y"),
    "a/**/b": ("a/b a/x/b a/x/y/b/z", "| a ab a/xb b"),
    "a/**/": ("a/x/y a/x/y/z", "| a a/x"),
    "/**": ("a a/b", "|"),
    "**/a/**": ("a/x b/a/x b/a/x/y", "| a b/a"),
    "a/***/b": ("a/b a/x/y/b", "| a"),
    "a**b": ("ab axb x/axxb", "| a/b axx"),
    "a/b**c/d": ("a/bc/d a/bxc/d", "| a/b/c/d"),
    # Classes.
    "[abc]": ("a x/b", "| d ab"),
    "[a-c]x": ("bx", "| dx x"),
    "[!a-c]x": ("dx", "| bx x a/x"),
    "[^a]": ("b", "| a"),
    "[]]": ("]", "| ["),
    "[!]]": ("[", "| ]"),
    "[]-a]": ("] ^ _ a", "| b -"),
    "[a-]": ("a -", "| b"),
    "[-a]": ("a -", "| b"),
    r"[\]]": ("]", "| \\"),
    r"[\a]": ("a", "| \\"),
    r"[a\-c]": ("a - c", "| b"),
    "[[:alpha:]]": ("a Z", "| 1 _"),
    "[[:digit:]x]": ("1 x", "| a"),
    "[![:digit:]]": ("a", "| 1"),
    "[[:upper:]]": ("a A", "| 1"),
    "[[:a]": ("[ : a", "| b"),
    "x[!a]y": ("xby", "| x/y xay"),
    "x?y": ("xby", "| x/y xy"),
    "x[a/b]y": ("xay", "| x/y d/xay"),
}


@pytest.mark.parametrize("pattern", COVERS)
def test_covers(pattern: str) -> None:
    first, rest = COVERS[pattern]
    also, not_covered = rest.split("|")
    for path in (first + " " + also).split():
        assert hits(pattern, path), path
    for path in not_covered.split():
        assert not hits(pattern, path), path


@pytest.mark.parametrize("path", ["", "/", "/a", "a/", "a//b"])
def test_what_is_no_file_path_is_not_covered(path: str) -> None:
    assert not hits("**", path)
    assert not hits("a", path)


# --- which patterns meet -------------------------------------------------------------------------

MEET = """
src/auth            src/auth/login.py
src                 src
src/                src
/src                src
src/*.py            src/a*
src/**/*.py         src/auth
*.py                docs
*.py                src/**
**                  Makefile
*                   a/b/c
a/**/b              a/b
a/**/b/**/c         a/c/**/c
a*b                 *ab*
src/?a              src/a?
/[a-m]x             /[m-z]x
/[!a]               /[!b]
/[[:alpha:]]        /x
*.d/                *.d
/a*/                /ab/c
a/*/c               a/b/*
**/test             src/**
*/b                 a
"""

APART = r"""
src/auth            src/author
src/auth            src/a
Makefile            sub/Makefile
src/*.py            src/*.md
src/*.py            lib/*.py
src/*/a             src/a/b
/*.py               /src
a/**                /a?
a/**/b              b/**
/a*b                /a*c
/?                  /??
/[0-9].sql          /[0-9][0-9].sql
/[a-m]x             /[n-z]x
/[!a]               /a
/[!a-z]             /[[:alpha:]]
/[!A-Z]             /[a-z]
/[\!-~]             /é
/[!é]               /É
/[!À-Ö]             /[à-ö]
src/a*              src/b/**/c
/x[a/b]y            /x/y
"""


@pytest.mark.parametrize("pair", MEET.strip().splitlines())
def test_meet(pair: str) -> None:
    assert meet(*pair.split())


@pytest.mark.parametrize("pair", APART.strip().splitlines())
def test_apart(pair: str) -> None:
    assert not meet(*pair.split())


# --- folding -------------------------------------------------------------------------------------


def test_case_and_normal_form_do_not_matter() -> None:
    nfc, nfd = (unicodedata.normalize(form, "Café/Ångström") for form in ("NFC", "NFD"))
    assert nfc != nfd
    assert fold(nfc) == fold(nfd) == fold(nfd.upper())
    assert meet("SRC/Auth.PY", "src/auth.py")
    assert meet(nfc, nfd)
    assert meet(nfd.upper() + "*", nfc)
    assert hits("SRC/*.PY", "src/Auth.py")
    assert hits(nfd + "*", nfc)
    assert hits("caf?/*", nfd)
    assert hits("caf[É]/*", nfd)
    assert hits("caf[e\u0301]/*", nfc)


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("[A-Z]", "qQ\N{KELVIN SIGN}", "1_"),
        ("[Z-a]", "zA_^", "by"),
        ("[a-z]", "Qs\N{LATIN SMALL LETTER LONG S}", "é"),
        ("[!a]", "bB1é", "aA"),
        ("[!A-Z]", "1é", "aZ"),
        ("[À-Ö]", "àÖ", "aþ"),
        ("[!À-Ö]", "aþ", "àÖ"),
        ("[Σ]", "σςΣ", "s"),
        ("[\N{KELVIN SIGN}]", "kK", "q"),
        ("[\u2100-\u214f]", "kå\N{OHM SIGN}", "q"),
        ("?", "é\N{GRINNING FACE}", ""),
    ],
)
def test_classes_fold(pattern: str, inside: str, outside: str) -> None:
    assert [char for char in inside if not hits(pattern, char)] == []
    assert [char for char in outside if hits(pattern, char)] == []


@pytest.mark.parametrize(
    "other", ["stra?e", "stra[ß]e", "stra*e", "STRASSE", "stra??e", "stra[!x]e", "/stra?e"]
)
def test_a_character_that_folds_to_several_meets_in_doubt(other: str) -> None:
    assert meet("straße", other)
    assert meet("stra[ß]e", other)


def test_a_character_that_folds_to_several_stays_exact_where_it_can() -> None:
    assert hits("straße*", "STRASSE1")
    assert not hits("straße*", "straxe1")
    assert not meet("straße/a", "stra")
    assert not meet("straße/*.py", "strange/*.py")


def test_every_character_folds_stably() -> None:
    unstable = [
        code
        for code in range(sys.maxunicode + 1)
        if (once := fold(chr(code))) != chr(code) and (fold(once) != once or "/" in once)
    ]
    assert unstable == []


@settings(deadline=None, max_examples=200)
@given(st.text())
def test_folding_is_idempotent_and_forgets_case_and_form(text: str) -> None:
    assert fold(fold(text)) == fold(text)
    assert fold(unicodedata.normalize("NFD", text).casefold()) == fold(text)
    for form in ("NFC", "NFD"):
        assert fold(unicodedata.normalize(form, text)) == fold(text)


FOLDING = "aAkKsS\u212a\u017fßéÉe\u0301İiıﬁσςΣᾳH\u0331ẖ"


@settings(deadline=None, max_examples=300)
@given(st.lists(st.text(FOLDING + "*?", min_size=1, max_size=4), min_size=1, max_size=3), st.data())
def test_all_spellings_of_a_name_are_covered_alike(names: list[str], data: st.DataObject) -> None:
    pattern = parse("/" + "/".join(names))
    path = data.draw(st.text(FOLDING + "/", max_size=8))
    spellings = [path, fold(path), *(unicodedata.normalize(form, path) for form in ("NFC", "NFD"))]
    assert len({covers(pattern, spelling) for spelling in spellings}) == 1


@settings(deadline=None, max_examples=500)
@given(*[st.text(FOLDING + "*?", min_size=1, max_size=4)] * 2, st.text(FOLDING, max_size=4))
def test_folded_overlap_misses_nothing(a: str, b: str, path: str) -> None:
    if hits("/" + a, path) and hits("/" + b, path):
        assert meet("/" + a, "/" + b)


# --- text in, text out ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("/", "empty"),
        ("//", "empty"),
        ("a//b", "empty segment"),
        ("a*//", "empty segment"),
        ("!a", "negation is not supported"),
        ("a\0b", "control character"),
        ("a\nb", "control character"),
        ("a\x7f*", "control character"),
        ("a\u2028b", "control character"),
        (".", "'.' or '..'"),
        ("./a", "'.' or '..'"),
        ("a/../*", "'.' or '..'"),
        (r"a/\.", "'.' or '..'"),
        ("a[b", "unclosed '['"),
        ("[]", "unclosed '['"),
        ("[!]", "unclosed '['"),
        ("[a\\]", "unclosed '['"),
        ("[[:alpha:]", "unclosed '['"),
        ("[[:word:]]", "unknown character class '[:word:]'"),
        ("[[::]]", "unknown character class '[::]'"),
        ("[z-a]", "a character class matches nothing"),
        ("a[/]b", "a character class matches nothing"),
        ("a\\", "lone '\\'"),
        ("a" * (MAX_LENGTH + 1), "longer than 512 characters"),
        ("a*" * (MAX_WILDCARDS + 1), "more than 32 wildcards"),
        ("?" * (MAX_WILDCARDS + 1), "more than 32 wildcards"),
        ("[a]" * (MAX_WILDCARDS + 1), "more than 32 wildcards"),
    ],
)
def test_errors(text: str, reason: str) -> None:
    with pytest.raises(PatternError) as caught:
        parse(text)
    message = str(caught.value)
    assert message.startswith(f"pattern {text[:60]!r}"[:-1])
    assert reason in message
    assert message.isprintable()
    assert len(message) < 200


def test_limits_are_allowed() -> None:
    assert hits("a" * MAX_LENGTH, "a" * MAX_LENGTH)
    assert hits("*a" * MAX_WILDCARDS, "a" * MAX_WILDCARDS)
    assert hits(r"\*" * (MAX_WILDCARDS + 1), "*" * (MAX_WILDCARDS + 1))


def test_literals_keep_their_spelling() -> None:
    assert parse("src/").is_literal
    assert not parse("src/*").is_literal
    assert parse("/Src/a b.py/").path == "Src/a b.py"
    assert parse(r"a\*\[b\]\\c").path == r"a*[b]\c"
    assert parse("cafe\u0301").path == "cafe\u0301"
    assert parse("*.py").path is None
    assert parse("src/") is parse("src/")
    assert parse("a*").text == "a*"


@settings(deadline=None, max_examples=200)
@given(st.text(r"ab*?[]!\-^#. é", min_size=1, max_size=8))
def test_escaped_text_is_literal(name: str) -> None:
    assume(name not in (".", ".."))
    for path in (name, f"{name}/{name}", f"x/{name}"):
        pattern = parse(escape(path))
        assert pattern.path == path
        assert covers(pattern, path)


# --- agreement with others -----------------------------------------------------------------------

SEGMENTS = st.one_of(
    st.just("**"),
    st.lists(
        st.sampled_from(["a", "b", "ab", "*", "?", "[ab]", "[!a]", "[a-c]", r"\a", r"\*", "."]),
        min_size=1,
        max_size=3,
    ).map("".join),
)


def is_usable(text: str) -> bool:
    try:
        parse(text)
    except PatternError:
        return False
    return True


PATTERNS = st.builds(
    lambda start, segments, end: start + "/".join(segments) + end,
    st.sampled_from(["", "", "/"]),
    st.lists(SEGMENTS, min_size=1, max_size=3),
    st.sampled_from(["", "", "/"]),
).filter(is_usable)
WILDCARDS = PATTERNS.filter(lambda text: not parse(text).is_literal)
PATHS = (
    st.lists(st.text("abc.", min_size=1, max_size=3), min_size=1, max_size=4)
    .filter(lambda names: not {".", ".."} & set(names))
    .map("/".join)
)


@settings(deadline=None, max_examples=200)
@given(
    # pathspec lets `[!a]` match a slash, reads `a/**/` as `a/**`, and, where it is old, takes `***`
    # for less than `**`; git does none of that.
    WILDCARDS.filter(
        lambda text: "[!" not in text and "***" not in text and not text.endswith("**/")
    ),
    st.lists(PATHS, min_size=1, max_size=8),
)
def test_pathspec_agrees(text: str, paths: list[str]) -> None:
    spec = GitIgnoreSpec.from_lines([text])
    for path in paths:
        assert hits(text, path) == spec.match_file(path), path


@settings(deadline=None, max_examples=200)
@given(PATTERNS, PATTERNS, st.lists(PATHS, min_size=1, max_size=8))
@example("a/**/b*", "**/b/?", ["a/b/b"])
def test_what_both_cover_makes_them_meet(a: str, b: str, paths: list[str]) -> None:
    if any(hits(a, path) and hits(b, path) for path in paths):
        assert meet(a, b)
    else:
        meet(a, b)  # still symmetric


@cache
def short_paths() -> tuple[str, ...]:
    """All paths of up to four segments from a few names, enough to tell the patterns below."""
    names = ["a", "b", "c", "aa", "ab", "bb", "ca", "cc"]
    return tuple(
        "/".join(path) for size in range(1, 5) for path in itertools.product(names, repeat=size)
    )


@cache
def covered(text: str) -> frozenset[str]:
    return frozenset(path for path in short_paths() if hits(text, path))


def small_patterns() -> list[str]:
    """Patterns so short that two of them meet on a short path if they meet at all."""
    names = ["a", "b", "*", "?", "a*", "*b", "?a", "[ab]", "[!a]"]
    pairs = itertools.product(["a", "*b", "?", "**", "[!b]"], ["b", "a*", "*", "**", "??"])
    texts = [*names, "**", "*/", "a*/", "*a*", "/*", "/a", "/?b", "/[!b]*"]
    return texts + [f"{one}/{two}" for one, two in pairs] + ["a/**/b", "**/a/", "*/*/", "?/*/a*"]


def test_overlap_is_exact_on_small_patterns() -> None:
    for a, b in itertools.combinations_with_replacement(small_patterns(), 2):
        assert meet(a, b) == (not covered(a).isdisjoint(covered(b))), (a, b)


MORE_PATTERNS = r"""
a* *a *a* ?a a? /a? a/? ?/a */a a/* */* */*/* */*/ /*/ a*/ /a*/ **/a **/a* a/** a*/** **/*
**/** a/**/** **/**/a **/a/** **/a*/** a/**/b a/**/b/ a/**/*b **a a**b **/a/b* *** a/*** ***/a
a/***/ **/ /**/ /**/a [ab] [!ab] /[ab]/* [a-c]/[!a-b] [^b]* \a* a\/* *\/b a/[a/]
[[:alnum:]] [[:punct:]] [[:xdigit:]]* [[:space:]] [!-~] [a-b-c] [--a] [a-c--a] []a] [^]a] [!!] []-]
.* *.* [.]a ?? ??/* *ab* *a*b a?b*
"""


@pytest.fixture
def check_ignore(tmp_path: Path) -> Callable[[str, list[str]], set[str]]:
    def git(*args: str, feed: str = "") -> str:
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith("GIT_")
        }
        env = {**inherited, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
        done = subprocess.run(
            ["git", *args], cwd=tmp_path, env=env, input=feed, capture_output=True, text=True
        )
        assert done.returncode in (0, 1), done.stderr
        return done.stdout

    git("init", "-q")
    git("config", "core.ignorecase", "true")

    def run(pattern: str, paths: list[str]) -> set[str]:
        (tmp_path / ".gitignore").write_text(pattern + "\n")
        feed = "\0".join(paths) + "\0"
        return set(
            filter(None, git("check-ignore", "--no-index", "-z", "--stdin", feed=feed).split("\0"))
        )

    return run


def test_git_agrees(check_ignore: Callable[[str, list[str]], set[str]]) -> None:
    names = ["a", "b", "ab", "aab", "ba", "c", ".a", "-", "]", "1", "_"]
    paths = ["/".join(path) for size in (1, 2) for path in itertools.product(names, repeat=size)]
    paths += ["/".join(path) for path in itertools.product(["a", "b", "ab"], repeat=3)]
    paths += ["/".join(path) for path in itertools.product(["a", "b"], repeat=4)]
    wildcards = [text for text in COVERS if not parse(text).is_literal]
    for text in wildcards + MORE_PATTERNS.split():
        ours = {path for path in paths if hits(text, path)}
        assert ours == check_ignore(text, paths), text


def test_an_escaped_slash_is_a_slash_where_git_slips() -> None:
    assert hits(r"**\/b", "b")  # git wants a folder before it


def test_double_asterisks_after_text_are_plain_where_git_slips() -> None:
    # git cuts the literal start off before it matches, and then takes `a**/b` for `**/b` at `b`.
    assert hits("a**/b", "axx/b")
    assert not hits("a**/b", "ab")
    assert not hits("a**/b", "a/x/b")


# --- cost ----------------------------------------------------------------------------------------


def work(a: str, b: str) -> int:
    """The number of calls made, of Python and built-in functions alike, to compare two patterns."""
    one, other = parse(a), parse(b)
    calls = 0

    def count(_frame: object, event: str, _arg: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        overlap(one, other)
    finally:
        sys.setprofile(before)
    return calls


HAN = "".join(map(chr, range(0x4E00, 0x4E00 + MAX_LENGTH)))
HOSTILE = [
    "*a" * 32 + "a" * 447 + "x",
    "a*" * 32 + "a" * 447 + "y",
    "**/" + "*/a/" * 31 + "a" * 300 + "x",
    "**/" + "a/*/" * 31 + "a" * 300 + "y",
    "**/a/" * 32 + "a/" * 150 + "x",
    "**/a*/" * 16 + "a/" * 200 + "y",
    "/" + "*" + HAN[:500] + "*x",
    "/" + "[a-z一-鿿]" * 30 + "*" + HAN[:200] + "*y",
    "/*" + "[!a]" * 30 + HAN[:300] + "*z",
    "/*" + "?" * 31 + HAN[:400],
]


@pytest.mark.parametrize(("a", "b"), list(itertools.combinations_with_replacement(HOSTILE, 2)))
def test_hostile_pairs_cost_little(a: str, b: str) -> None:
    assert max(work(a, b), work(b, a)) < 100 * MAX_LENGTH


def test_random_hostile_pairs_cost_little() -> None:
    random_ = random.Random(7)
    pieces = ["*", "?", "[a-z]", "[!b]", "**/", "*/"]
    for _ in range(100):
        a, b = (
            "".join(random_.choice(pieces) + "a" * random_.randrange(12) for _ in range(30))
            for _ in range(2)
        )
        assert work(a, b) < 100 * MAX_LENGTH


def test_names_that_differ_early_cost_next_to_nothing() -> None:
    assert work("src/a/*.py", "lib/**/*.py") < 30
    assert work("src/a.py", "src/b.py") < 30
