"""What is leased: every sentence of the contract's section on resources."""

from __future__ import annotations

import string

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.snapshots import raises

from gitlease.kernel.rules.errors import UsageError
from gitlease.kernel.rules.resources import (
    name_resource,
    parse_layer,
    parse_resource,
    parse_scope,
    path_resource,
    scopes_overlap,
    word_anywhere,
)

NAME_LETTERS = string.ascii_letters + string.digits + "._-:#@+"


def shown(word: str, folder: str = "", root: str | None = None) -> str:
    return str(parse_resource(word, folder=folder, root=root))


# --- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", ["", "src/deep"])
def test_a_word_is_a_name_in_every_folder(folder: str) -> None:
    for word in ("F001", "port-8080", "v1.2.3", "x" * 128, "a:b#c@d+e", "Makefile", ".env", "-x"):
        resource = parse_resource(word, folder=folder, root="/home/jo/work")
        assert (str(resource), resource.is_path, resource.pattern) == (word, False, None)
        assert resource == parse_resource(word)


@pytest.mark.parametrize(
    "word", ["", " ", "x" * 129, "two words", "naïve", "a\tb", "a\nb", "$x", "a\\b", "!x", "..."]
)
def test_an_odd_word_is_no_name(word: str) -> None:
    with pytest.raises(UsageError):
        parse_resource(word)


def test_a_word_that_is_not_utf_8_is_named_and_refused() -> None:
    for word in ("lib/n\udce9", "n\udce9", "path:n\udce9", "\ud800*", "/r/n\udce9"):
        with raises(UsageError) as raised:
            parse_resource(word, root="/r")
        for text in (raised.value.message, raised.value.resource or ""):
            assert text.isprintable()
            assert "n\\udce9" in text or "\\ud800" in text
    with raises(UsageError):
        parse_resource("a/b", folder="n\udce9")
    assert shown("/a/b", folder="n\udce9") == "a/b"
    assert shown("F001", folder="n\udce9") == "F001"
    assert shown("/home/n\udce9/a/b", root="/home/n\udce9") == "a/b"


@given(st.text(NAME_LETTERS, min_size=1, max_size=128))
def test_any_word_of_the_letters_is_a_name_that_reads_back(word: str) -> None:
    assume(word.strip(".") and not word.lower().startswith("path:"))
    resource = parse_resource(word)
    assert str(resource) == word
    assert not resource.is_path
    assert parse_resource(word.swapcase()) == resource


@pytest.mark.parametrize("word", ["path:Makefile", "pAtH:F001"])
def test_a_name_never_is_taken_for_a_path(word: str) -> None:
    resource = parse_resource(word)
    assert resource.is_path
    assert resource.pattern == word[5:]
    assert resource == path_resource(word[5:])
    with_name = name_resource(word[5:])
    assert with_name != resource
    assert with_name.key != resource.key


# --- paths ---------------------------------------------------------------------------------------


WORK = "/home/jo/work"


@pytest.mark.parametrize(
    ("word", "folder", "expected"),
    [
        ("./src//auth/", "", "src/auth"),
        ("auth/login.py", "src", "src/auth/login.py"),
        ("/auth/login.py", "src", "auth/login.py"),
        ("../docs/a.md", "src", "docs/a.md"),
        ("path:Makefile", "", "path:Makefile"),
        ("path:Makefile", "src", "src/Makefile"),
        ("path:/Makefile", "src", "path:Makefile"),
        ("./Makefile", "", "path:Makefile"),
        ("path:.", "src", "path:src"),
        ("../", "src/deep", "path:src"),
        ("*.py", "", "*.py"),
        ("*.py", "src", "src/**/*.py"),
        ("/*.py", "src", "/*.py"),
        ("a/*.py", "src", "src/a/*.py"),
        ("build?/", "", "build?/"),
        ("/", "", "**"),
        (r"path:\!x", "", r"path:\!x"),
        ("Grün/ß.txt", "", "Grün/ß.txt"),
        (f"{WORK}/src/a.py", "src", "src/a.py"),
        (f"{WORK}/Makefile", "src", "path:Makefile"),
        (f"{WORK}/", "src", "**"),
        ("/home/jo/workshop/a", "src", "home/jo/workshop/a"),
    ],
)
def test_a_path_is_shown_relative_to_the_root(word: str, folder: str, expected: str) -> None:
    """An absolute one inside the work tree, too."""
    assert shown(word, folder, WORK) == shown(word, folder, f"{WORK}/") == expected
    assert parse_resource(word, folder=folder).is_path


@pytest.mark.parametrize(
    ("word", "folder"),
    [("../x", ""), ("a/../../x", ""), ("../../x", "src"), ("/..", ""), ("..//", "")],
)
def test_a_path_outside_the_repository_is_refused(word: str, folder: str) -> None:
    with pytest.raises(UsageError):
        parse_resource(word, folder=folder)


@pytest.mark.parametrize(
    "word", ["!src/a", "!*.py", "path:!x", "path:", "src/[", "a/\n/b", "x/" * 300]
)
def test_what_cannot_be_leased_is_refused(word: str) -> None:
    with pytest.raises(UsageError):
        parse_resource(word)


def test_a_folder_with_wildcards_in_its_name_is_taken_literally() -> None:
    resource = parse_resource("a.py", folder="")
    assert not resource.is_path
    odd = parse_resource("path:a.py", folder="we[ir]d")
    assert odd.pattern == r"we\[ir]d/a.py"
    assert parse_resource(str(odd)) == odd


# --- one resource in several spellings -----------------------------------------------------------


def test_spellings_of_one_resource() -> None:
    same = "F001 f001|src/Auth SRC/auth|src/auth /src/auth/|path:Makefile /MAKEFILE|*.PY *.py"
    same += "|src/caf\u00e9 src/cafe\u0301|src/Straße src/STRASSE"
    for one, other in (pair.split() for pair in same.split("|")):
        assert parse_resource(one) == parse_resource(other)
        assert hash(parse_resource(one)) == hash(parse_resource(other))
    for one, other in (("F001", "F002"), ("Makefile", "path:Makefile"), ("/*.py", "*.py")):
        assert parse_resource(one) != parse_resource(other)


@given(
    st.text("abABPp.*?[]é/\\!ß-:~ ", min_size=1, max_size=20),
    st.sampled_from(["", "src", "we[ir]d", "A b", "path:d"]),
)
def test_what_is_shown_reads_back_as_the_same_resource(word: str, folder: str) -> None:
    try:
        resource = parse_resource(word, folder=folder)
    except UsageError:
        return
    for again in (parse_resource(str(resource)), parse_resource(resource.text)):
        assert (again, str(again), again.text) == (resource, str(resource), resource.text)
        assert (again.is_path, again.pattern) == (resource.is_path, resource.pattern)


# --- scopes and layers ---------------------------------------------------------------------------


def test_a_scope_is_any_word_and_the_whole_overlaps_every_one() -> None:
    for word in ("*", "the parser", "ü", "x" * 128):
        assert parse_scope(word) == word
    for odd in ("", " ", " a", "a ", "a\nb", "\x07", "x" * 129):
        with pytest.raises(UsageError):
            parse_scope(odd)
    assert scopes_overlap("*", "parser")
    assert scopes_overlap("parser", "*")
    assert scopes_overlap("Parser", "pARSER")
    assert not scopes_overlap("parser", "lexer")


def test_a_layer_is_read_in_lower_case() -> None:
    for word in ("global", "Back_end-2", "x" * 64):
        assert parse_layer(word) == word.lower()
    for odd in ("", "a/b", "a.b", "ä", "a b", "x" * 65, "a\n"):
        with pytest.raises(UsageError):
            parse_layer(odd)


@pytest.mark.parametrize("root", [None, "/app", "/work/a b[1]", "/"])
def test_a_resource_can_be_typed_in_any_folder(root: str | None) -> None:
    """And is not taken for a place in the work tree."""
    texts = ["F001", "app/main.py", "path:app", "app/**", "*.py", "/app/*.py", "path:my file"]
    for text in (*texts, "/*.py", "src/**/x", "src/*/", "**"):
        wanted = parse_resource(text)
        word = word_anywhere(str(wanted), root=root) if root else word_anywhere(str(wanted))
        for folder in ("", "app", "src/x", "a b/*"):
            assert parse_resource(word, folder=folder, root=root) == wanted
