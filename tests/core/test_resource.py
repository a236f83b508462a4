"""What is leased: every sentence of the contract's section on resources."""

from __future__ import annotations

import string

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.snapshots import raises

from gitlease.core import (
    Resource,
    UsageError,
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


@pytest.mark.parametrize(
    "word",
    [
        "F001",
        "task-api-rate-limits",
        "deploy-prod",
        "port-8080",
        "v1.2.3",
        "a",
        "x" * 128,
        "a:b#c@d+e",
        "Makefile",
        ".env",
        "-x",
        "README.md",
    ],
)
def test_a_word_is_a_name(word: str) -> None:
    resource = parse_resource(word)
    assert not resource.is_path
    assert resource.pattern is None
    assert str(resource) == word


@pytest.mark.parametrize("folder", ["", "src", "src/deep"])
def test_a_name_means_the_same_in_every_folder(folder: str) -> None:
    assert parse_resource("F001", folder=folder, root="/home/jo/work") == parse_resource("F001")


@pytest.mark.parametrize(
    "word", ["", " ", "x" * 129, "two words", "naïve", "a\tb", "a\nb", "$x", "a,b", "a\\b", "!x"]
)
def test_an_odd_word_is_no_name(word: str) -> None:
    with pytest.raises(UsageError):
        parse_resource(word)


@pytest.mark.parametrize(
    "word", ["lib/n\udce9", "n\udce9", "path:n\udce9", "\ud800*", "/r/n\udce9"]
)
def test_a_word_that_is_not_utf_8_is_named_and_refused(word: str) -> None:
    with raises(UsageError) as raised:
        parse_resource(word, root="/r")
    for text in (raised.value.message, raised.value.resource or ""):
        assert text.isprintable()
        assert "n\\udce9" in text or "\\ud800" in text


def test_a_word_typed_in_a_folder_that_is_not_utf_8_is_refused_if_it_lies_there() -> None:
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


@pytest.mark.parametrize("word", ["path:Makefile", "PATH:Makefile", "Path:x", "pAtH:F001"])
def test_a_name_never_is_taken_for_a_path(word: str) -> None:
    resource = parse_resource(word)
    assert resource.is_path
    assert resource.pattern == word[5:]
    assert resource == path_resource(word[5:])
    with_name = name_resource(word[5:])
    assert with_name != resource
    assert with_name.key != resource.key


# --- paths ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "folder", "expected"),
    [
        ("src/auth", "", "src/auth"),
        ("src/auth/", "", "src/auth"),
        ("./src//auth", "", "src/auth"),
        ("auth/login.py", "src", "src/auth/login.py"),
        ("/auth/login.py", "src", "auth/login.py"),
        ("../docs/a.md", "src", "docs/a.md"),
        ("path:Makefile", "", "path:Makefile"),
        ("path:Makefile", "src", "src/Makefile"),
        ("path:/Makefile", "src", "path:Makefile"),
        ("/Makefile", "src", "path:Makefile"),
        ("./Makefile", "", "path:Makefile"),
        ("path:.", "src", "path:src"),
        ("../", "src/deep", "path:src"),
        ("*.py", "", "*.py"),
        ("*.py", "src", "src/**/*.py"),
        ("/*.py", "src", "/*.py"),
        ("a/*.py", "src", "src/a/*.py"),
        ("build?/", "", "build?/"),
        ("src/**", "", "src/**"),
        ("[ab].txt", "", "[ab].txt"),
        ("/", "", "**"),
        ("./", "", "**"),
        (r"path:\!x", "", r"path:\!x"),
        ("Grün/ß.txt", "", "Grün/ß.txt"),
    ],
)
def test_a_path_is_shown_relative_to_the_root(word: str, folder: str, expected: str) -> None:
    assert shown(word, folder) == expected
    assert parse_resource(word, folder=folder).is_path


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("/home/jo/work/src/a.py", "src/a.py"),
        ("/home/jo/work/Makefile", "path:Makefile"),
        ("/home/jo/work", "**"),
        ("/home/jo/work/", "**"),
        ("/home/jo/workshop/a", "home/jo/workshop/a"),
        ("/src/a.py", "src/a.py"),
    ],
)
def test_an_absolute_path_inside_the_work_tree_is_understood(word: str, expected: str) -> None:
    assert shown(word, "src", "/home/jo/work") == expected
    assert shown(word, "src", "/home/jo/work/") == expected


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


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("F001", "f001"),
        ("src/Auth", "SRC/auth"),
        ("src/auth", "/src/auth/"),
        ("path:Makefile", "/MAKEFILE"),
        ("src/caf\u00e9", "src/cafe\u0301"),
        ("src/Straße", "src/STRASSE"),
        ("*.PY", "*.py"),
    ],
)
def test_spellings_of_one_resource(one: str, other: str) -> None:
    assert parse_resource(one) == parse_resource(other)
    assert hash(parse_resource(one)) == hash(parse_resource(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [("F001", "F002"), ("Makefile", "path:Makefile"), ("src/a", "src/b"), ("/*.py", "*.py")],
)
def test_different_resources(one: str, other: str) -> None:
    assert parse_resource(one) != parse_resource(other)


@given(
    st.text("abAB.*?[]é/\\!ß-", min_size=1, max_size=20),
    st.sampled_from(["", "src", "we[ir]d", "A b"]),
)
def test_what_is_shown_reads_back_as_the_same_resource(word: str, folder: str) -> None:
    try:
        resource = parse_resource(word, folder=folder)
    except UsageError:
        return
    again = parse_resource(str(resource))
    assert (again, str(again)) == (resource, str(resource))
    assert again.is_path == resource.is_path


def test_resources_compare_by_what_they_name() -> None:
    assert Resource(text="F001", key="f001") == Resource(text="f001", key="f001")


# --- scopes and layers ---------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["*", "parser", "the parser", "ü", "x" * 128])
def test_a_scope_is_any_word(word: str) -> None:
    assert parse_scope(word) == word


@pytest.mark.parametrize("word", ["", " ", " a", "a ", "a\nb", "\x07", "x" * 129])
def test_an_odd_scope_is_refused(word: str) -> None:
    with pytest.raises(UsageError):
        parse_scope(word)


def test_the_whole_overlaps_every_scope() -> None:
    assert scopes_overlap("*", "parser")
    assert scopes_overlap("parser", "*")
    assert scopes_overlap("*", "*")
    assert scopes_overlap("Parser", "pARSER")
    assert not scopes_overlap("parser", "lexer")


@pytest.mark.parametrize("word", ["global", "Back_end-2", "x" * 64])
def test_a_layer_is_read_in_lower_case(word: str) -> None:
    assert parse_layer(word) == word.lower()


@pytest.mark.parametrize("word", ["", "a/b", "a.b", "ä", "a b", "x" * 65, "a\n"])
def test_an_odd_layer_is_refused(word: str) -> None:
    with pytest.raises(UsageError):
        parse_layer(word)


@given(st.text(alphabet="aPp:/!*?[]\\. ~é-", max_size=14), st.sampled_from(["", "path:d", "a b"]))
def test_what_is_stored_reads_back_as_the_same_resource(word: str, folder: str) -> None:
    try:
        resource = parse_resource(word, folder=folder)
    except UsageError:
        return
    again = parse_resource(resource.text)
    assert (again.text, again.key) == (resource.text, resource.key)
    assert again.pattern == resource.pattern


@pytest.mark.parametrize("folder", ["", "src", "a b/*"])
@pytest.mark.parametrize(
    "text", ["F001", "src/api", "path:my file", "*.py", "/*.py", "src/**/x", "src/*/", "**"]
)
def test_a_resource_can_be_typed_in_any_folder(text: str, folder: str) -> None:
    wanted = parse_resource(text)
    assert parse_resource(word_anywhere(str(wanted)), folder=folder) == wanted


@pytest.mark.parametrize("root", ["/app", "/work/a b[1]", "/"])
@pytest.mark.parametrize(
    "text", ["F001", "app/main.py", "path:app", "app/**", "*.py", "/app/*.py", "path:my file"]
)
def test_what_can_be_typed_anywhere_is_not_taken_for_a_place_in_the_work_tree(
    text: str, root: str
) -> None:
    wanted = parse_resource(text)
    word = word_anywhere(str(wanted), root=root)
    for folder in ("", "app", "src/x"):
        assert parse_resource(word, folder=folder, root=root) == wanted
