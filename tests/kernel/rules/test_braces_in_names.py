"""Paths of files with braces in their names: what is stored can be typed again."""

from __future__ import annotations

import pytest

from gitlease.kernel.rules.errors import UsageError
from gitlease.kernel.rules.resources import (
    check_braces,
    escape,
    parse,
    parse_resource,
    path_resource,
    resolve_path,
)

pytestmark = pytest.mark.default

LITERAL = [
    "a{1,2}.psd",
    "a{1}.psd",
    "{a,b}",
    "!{a,b}",
    "[{a,b}",
    "{a{b,c}}",
    "a{,}{b,c}",
    "a\\{b,c}",
]


@pytest.mark.parametrize("name", LITERAL)
def test_name_that_is_taken_as_it_stands_can_be_typed(name: str) -> None:
    text = escape(name)
    check_braces(text)
    assert parse(text).path == name
    resource = path_resource(text)
    assert parse_resource(resource.text) == resource


def test_braces_without_a_comma_are_typed_as_they_are() -> None:
    assert escape("a{1}.psd") == "a{1}.psd"


def test_folder_with_braces_in_its_name_can_be_typed() -> None:
    text = resolve_path("x.py", folder="src{1,2}")
    check_braces(text)
    assert parse(text).path == "src{1,2}/x.py"
    with pytest.raises(UsageError):
        check_braces("src{1,2}/x.py")
