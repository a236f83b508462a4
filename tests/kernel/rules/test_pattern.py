"""Patterns against tables, and against git; by brute force in ``test_pattern_pairs``."""

import itertools
import os
import subprocess
import sys
import unicodedata
from functools import partial
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.fences import clean_env

from gitlease.kernel.rules.resources import (
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
    "src/auth/": ("src/auth src/auth/a.py src/auth/a/b", "| src src/author x/src/auth"),
    r"a\*b": ("a*b a*b/c", "| axb"),
    r"\!x": ("!x", "| x"),
    # Wildcards without a slash match at any depth; one at the beginning or in the middle anchors.
    "**": ("a a/b .hidden", "|"),
    "*.py": ("a.py x/y/a.py .py a.py/below", "| a.pyc py"),
    "test_?": ("test_a x/test_b/y", "| test_ test_ab"),
    "/*.py": ("a.py a.py/x", "| x/a.py"),
    "src/*.py": ("src/a.py src/a.py/b", "| a.py src/x/a.py y/src/a.py"),
    # A trailing slash means a directory: only what is below.
    "*.d/": ("a.d/x y/a.d/x/y", "| a.d y/a.d"),
    "**/": ("a/b a/b/c", "| a"),
    # Double asterisks.
    "**/foo": ("foo a/foo a/b/foo/c", "| afoo a/foob"),
    "abc/**": ("abc/x abc/x/y", "| abc x/abc/y"),
    "a/**/b": ("a/b a/x/b a/x/y/b/z", "| a ab a/xb b"),
    "a/**/": ("a/x/y a/x/y/z", "| a a/x"),
    "**/a/**": ("a/x b/a/x b/a/x/y", "| a b/a"),
    "a/***/b": ("a/b a/x/y/b", "| a"),
    "a**b": ("ab axb x/axxb", "| a/b axx"),
    "a/b**c/d": ("a/bc/d a/bxc/d", "| a/b/c/d"),
    # Classes.
    "[abc]": ("a x/b", "| d ab"),
    "[!a-c]x": ("dx", "| bx x a/x"),
    "[^a]": ("b", "| a"),
    "[]]": ("]", "| ["),
    "[!]]": ("[", "| ]"),
    "[]-a]": ("] ^ _ a", "| b -"),
    "[a-]": ("a -", "| b"),
    "[-a]": ("a -", "| b"),
    r"[\]]": ("]", "| \\"),
    r"[a\-c]": ("a - c", "| b"),
    "[[:digit:]x]": ("1 x", "| a"),
    "[![:digit:]]": ("a", "| 1"),
    "[[:upper:]]": ("a A", "| 1"),
    "[[:a]": ("[ : a", "| b"),
    "x[!a]y": ("xby", "| x/y xay"),
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
    assert not any(hits(pattern, path) for path in ("", "/", "/a", "a/", "a//b"))


# --- which patterns meet -------------------------------------------------------------------------

MEET = """
src/auth src/auth/login.py | src/ src | /src src | src/*.py src/a* | src/**/*.py src/auth
*.py docs | *.py src/** | ** Makefile | * a/b/c | a/**/b a/b | a/**/b/**/c a/c/**/c | a*b *ab*
src/?a src/a? | /[a-m]x /[m-z]x | /[!a] /[!b] | /[[:alpha:]] /x | *.d/ *.d | /a*/ /ab/c
a/*/c a/b/* | **/test src/** | */b a
"""
APART = r"""
src/auth src/author | src/auth src/a | Makefile sub/Makefile | src/*.py src/*.md | src/*/a src/a/b
/*.py /src | a/** /a? | a/**/b b/** | /a*b /a*c | /? /?? | /[0-9].sql /[0-9][0-9].sql
/[a-m]x /[n-z]x | /[!a] /a | /[!a-z] /[[:alpha:]] | /[!A-Z] /[a-z] | /[\!-~] /é | /[!é] /É
/[!À-Ö] /[à-ö] | src/a* src/b/**/c | /x[a/b]y /x/y
"""


@pytest.mark.parametrize("pair", MEET.strip().replace("\n", " | ").split(" | "))
def test_meet(pair: str) -> None:
    assert meet(*pair.split())


@pytest.mark.parametrize("pair", APART.strip().replace("\n", " | ").split(" | "))
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


def test_a_character_that_folds_to_several_meets_in_doubt() -> None:
    """And stays exact where it can."""
    for other in ["stra?e", "stra[ß]e", "stra*e", "STRASSE", "stra??e", "stra[!x]e", "/stra?e"]:
        assert meet("straße", other)
        assert meet("stra[ß]e", other)
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


FOLDING = "aAkKsS\u212a\u017fßéÉe\u0301İiıﬁσςΣᾳH\u0331ẖ"


@settings(max_examples=300)
@given(st.lists(st.text(FOLDING + "*?", min_size=1, max_size=4), min_size=1, max_size=3), st.data())
def test_all_spellings_of_a_name_are_covered_alike(names: list[str], data: st.DataObject) -> None:
    pattern = parse("/" + "/".join(names))
    path = data.draw(st.text(FOLDING + "/", max_size=8))
    spellings = [path, fold(path), *(unicodedata.normalize(form, path) for form in ("NFC", "NFD"))]
    assert len({covers(pattern, spelling) for spelling in spellings}) == 1


@settings(max_examples=500)
@given(*[st.text(FOLDING + "*?", min_size=1, max_size=4)] * 2, st.text(FOLDING, max_size=4))
def test_folded_overlap_misses_nothing(a: str, b: str, path: str) -> None:
    if hits("/" + a, path) and hits("/" + b, path):
        assert meet("/" + a, "/" + b)


# --- text in, text out ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        (("", "//"), "empty"),
        (("a//b", "a*//"), "empty segment"),
        (("!a",), "negation is not supported"),
        (("a\0b", "a\x7f*", "a\u2028b"), "control character"),
        ((".", "a/../*", r"a/\."), "'.' or '..'"),
        (("a[b", "[]", "[!]", "[a\\]", "[[:alpha:]"), "unclosed '['"),
        (("[[:word:]]",), "unknown character class '[:word:]'"),
        (("[[::]]",), "unknown character class '[::]'"),
        (("[z-a]", "a[/]b"), "a character class matches nothing"),
        (("a\\",), "lone '\\'"),
        (("a" * (MAX_LENGTH + 1),), "longer than 512 characters"),
        (("a*" * 33, "?" * 33, "[a]" * 33), "more than 32 wildcards"),
    ],
)
def test_errors(texts: tuple[str, ...], reason: str) -> None:
    for text in texts:
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


@settings(max_examples=200)
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
PATHS = (
    st.lists(st.text("abc.", min_size=1, max_size=3), min_size=1, max_size=4)
    .filter(lambda names: not {".", ".."} & set(names))
    .map("/".join)
)


MORE_PATTERNS = r"""
a* *a *a* ?a a? /a? a/? ?/a */a a/* */* */*/* */*/ /*/ a*/ /a*/ **/a **/a* a/** a*/** **/*
**/** a/**/** **/**/a **/a/** **/a*/** a/**/b a/**/b/ a/**/*b **a a**b **/a/b* *** a/*** ***/a
a/***/ **/ /**/ /**/a [ab] [!ab] /[ab]/* [a-c]/[!a-b] [^b]* \a* a\/* *\/b a/[a/]
[[:alnum:]] [[:punct:]] [[:xdigit:]]* [[:space:]] [!-~] [a-b-c] [--a] [a-c--a] []a] [^]a] [!!] []-]
.* *.* [.]a ?? ??/* *ab* *a*b a?b*
"""


def test_git_agrees(tmp_path: Path) -> None:
    env = clean_env({"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"})
    git = partial(subprocess.run, cwd=tmp_path, env=env, text=True, capture_output=True)
    git(["git", "init", "-q"], check=True)
    git(["git", "config", "core.ignorecase", "true"], check=True)
    names = ["a", "b", "ab", "aab", "ba", "c", ".a", "-", "]", "1", "_"]
    paths = ["/".join(path) for size in (1, 2) for path in itertools.product(names, repeat=size)]
    paths += ["/".join(path) for path in itertools.product(["a", "b", "ab"], repeat=3)]
    paths += ["/".join(path) for path in itertools.product(["a", "b"], repeat=4)]
    wildcards = [text for text in COVERS if not parse(text).is_literal]
    words, feed = ["git", "check-ignore", "--no-index", "-z", "--stdin"], "\0".join(paths) + "\0"
    for text in wildcards + MORE_PATTERNS.split():
        (tmp_path / ".gitignore").write_text(text + "\n")
        ours = {path for path in paths if hits(text, path)}
        found = git(words, input=feed).stdout.split("\0")
        assert ours == set(filter(None, found)), text


def test_patterns_are_read_as_documented_where_git_slips() -> None:
    assert hits(r"**\/b", "b")  # git wants a folder before it
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


def test_hostile_pairs_cost_little() -> None:
    for a, b in itertools.combinations_with_replacement(HOSTILE, 2):
        assert max(work(a, b), work(b, a)) < 100 * MAX_LENGTH
