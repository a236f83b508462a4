"""The closed subset of YAML: a reader of lines agrees, and nothing that a loader would fall for."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ledger_checker.own_form import read_own

from gitlease.kernel.git import plain_yaml
from gitlease.kernel.git.plain_yaml import NotPlain, read_plain, write_plain

KEYS = st.from_regex(r"[a-z_]{1,12}", fullmatch=True)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(0, 10**18), st.text(max_size=30))
ITEMS = st.dictionaries(KEYS, SCALARS, min_size=1, max_size=4)
VALUES = st.one_of(SCALARS, st.lists(SCALARS.filter(lambda x: x is not None), max_size=4), ITEMS)
MAPPINGS = st.dictionaries(KEYS, st.one_of(VALUES, st.lists(ITEMS, max_size=3)), min_size=1)

FEW = settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])


def as_read(value: Any) -> Any:
    """What the subset keeps of a value: text stays text, and everything else becomes it."""
    if isinstance(value, dict):
        return {key: as_read(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_read(item) for item in value]
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if value is None or isinstance(value, str) else str(value)


@FEW
@given(MAPPINGS)
def test_what_is_written_is_read(value: dict[str, Any]) -> None:
    if _readable(value):
        assert read_plain(write_plain(value)) == as_read(value)


def _readable(value: Any) -> bool:
    """Control characters are written escaped and are not YAML's: records never hold them."""
    text = write_plain(value).decode("utf-8", "surrogatepass")
    return text.replace("\n", "").isprintable()


@FEW
@given(MAPPINGS)
def test_a_reader_of_lines_and_the_parser_agree(value: dict[str, Any]) -> None:
    text = write_plain(value).decode("utf-8", "surrogatepass")
    own = read_own(text)
    if own is not None:
        assert own == read_plain(text.encode())


@FEW
@given(MAPPINGS)
def test_any_yaml_reader_gives_strings_back_as_strings(value: dict[str, Any]) -> None:
    if _readable(value):
        strings = {key: item for key, item in value.items() if isinstance(item, str)}
        loaded = yaml.safe_load(write_plain(value))
        assert {key: loaded[key] for key in strings} == strings


@given(st.text(alphabet="ab:-_ \"'\\\n#[]{}&*!|>%@`,?~n0.1\tü", max_size=60))
def test_the_readers_agree_on_any_text(text: str) -> None:
    own = read_own(text)
    if own is not None:
        assert own == read_plain(text.encode())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: &x 1\n", "anchors"),
        ("a: *x\n", "aliases"),
        ("a: &x [1]\nb: *x\n", "anchors"),
        ("a: !!python/none 1\n", "tags"),
        ("<<: {a: 1}\n", "merge keys"),
        ("a: 1\na: 2\n", "twice"),
        ("- a\n", "a record must be a mapping"),
        ("a\n", "a record must be a mapping"),
        ("", "not a mapping"),
        ("a: 1\n---\nb: 2\n", "more than one YAML document"),
        ("? [x]\n: 1\n", "single word"),
        ("a: {b: {c: {d: {e: 1}}}}\n", "deeply"),
        ("a: [1\n", "not YAML.* in line"),
        ("a: [" + "[" * 5000, "deeply"),
        ("a: \x00\n", "not YAML"),
    ],
)
def test_what_a_loader_would_fall_for_is_refused(text: str, why: str) -> None:
    with pytest.raises(NotPlain, match=why):
        read_plain(text.encode())


def test_too_many_values_are_refused() -> None:
    with pytest.raises(NotPlain):
        read_plain(b"a: [" + b"1," * 50_000 + b"1]\n")


def test_scalars_are_never_typed() -> None:
    text = b"a: no\nb: 1:30\nc: 017\nd: 0x1F\ne: '7'\nf: ~\ng: 'null'\nh: null\n"
    assert read_plain(text) == {
        "a": "no", "b": "1:30", "c": "017", "d": "0x1F", "e": "7", "f": None, "g": "null", "h": None
    }  # fmt: skip


@FEW
@given(st.text(alphabet="ab:-_ \"'\n#[]{}&*!<,?~0ü", max_size=60))
def test_values_are_the_same_with_places_and_without(text: str) -> None:
    def read() -> object:
        try:
            return read_plain(text.encode())
        except NotPlain as error:
            return str(error)

    found = read()
    with mock.patch.object(plain_yaml, "_regular", side_effect=plain_yaml._Irregular):
        assert read() == found
