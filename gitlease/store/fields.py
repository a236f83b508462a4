"""Checked access to the fields of an untrusted record.

Every method gives a value that is safe to use and to show, or raises BadRecord naming the field.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from gitlease.core.errors import GitleaseError
from gitlease.core.instant import parse_rfc3339
from gitlease.core.moves.operations import MAX_PATHS, MAX_WORD, check_text
from gitlease.core.policy import Margins, Rule
from gitlease.core.resources.resource import Resource, parse_resource, parse_scope, path_resource
from gitlease.git.plain_yaml import NotPlain, Plain, read_plain

MAX_NUMBER = 10**18

T = TypeVar("T")


class BadRecord(ValueError):
    """A record that cannot be believed; the message says why."""


def read_fields(data: bytes, limit: int) -> Fields:
    """The fields of a file of at most ``limit`` bytes; BadRecord for anything else."""
    if len(data) > limit:
        raise BadRecord(f"larger than {limit} bytes")
    try:
        return Fields(read_plain(data))
    except NotPlain as error:
        raise BadRecord(str(error)) from None


class Fields:
    """The fields of one mapping of a record."""

    def __init__(self, values: Mapping[str, Plain]) -> None:
        self._values = values

    def text(self, key: str, limit: int = MAX_WORD) -> str:
        value = self._values.get(key)
        if not isinstance(value, str):
            raise BadRecord(f"{key} is missing or not text")
        try:
            return check_text(value, what=key, limit=limit, lines=True)
        except GitleaseError as error:
            raise BadRecord(error.message) from None

    def word(self, key: str, limit: int = MAX_WORD) -> str:
        value = self.text(key, limit)
        if not value.isprintable():
            raise BadRecord(f"{key} has control characters")
        return value

    def maybe(self, key: str, limit: int = MAX_WORD) -> str | None:
        return None if self._values.get(key) is None else self.word(key, limit)

    def number(
        self, key: str, *, least: int = 0, most: int = MAX_NUMBER, absent: int | None = None
    ) -> int:
        """A whole number; ``absent`` is what a record says that has no such field."""
        if absent is not None and key not in self._values:
            return absent
        value = self._values.get(key)
        if not (isinstance(value, str) and value.isdecimal() and value.isascii()):
            raise BadRecord(f"{key} is not a whole number")
        if len(value) > 19 or not least <= int(value) <= most:
            raise BadRecord(f"{key} is out of range")
        return int(value)

    def time(self, key: str) -> int:
        try:
            return parse_rfc3339(self.word(key, 32))
        except ValueError:
            raise BadRecord(f"{key} is not a UTC time") from None

    def one_of(self, key: str, choices: Mapping[str, T], *, absent: T | None = None) -> T:
        """What a word stands for; ``absent`` is what a record says that has no such field."""
        if absent is not None and key not in self._values:
            return absent
        value = self.word(key, 64)
        if value not in choices:
            raise BadRecord(f"{key} is not one of {', '.join(choices)}")
        return choices[value]

    def resource(self, key: str) -> Resource:
        return _checked(key, self.word(key, 600))

    def scope(self, key: str) -> str:
        try:
            return parse_scope(self.word(key))
        except GitleaseError as error:
            raise BadRecord(error.message) from None

    def words(self, key: str, limit: int = 64) -> tuple[str, ...]:
        value = self._values.get(key)
        if not isinstance(value, list) or len(value) > limit:
            raise BadRecord(f"{key} is not a list of at most {limit}")
        if not all(isinstance(item, str) and item.isprintable() and item for item in value):
            raise BadRecord(f"{key} has something that is not text")
        return tuple(str(item) for item in value)

    def paths(self, key: str) -> tuple[str, ...]:
        found = self.words(key, MAX_PATHS)
        try:
            for text in found:
                path_resource(text)
        except GitleaseError as error:
            raise BadRecord(error.message) from None
        return found

    def mapping(self, key: str) -> Fields:
        value = self._values.get(key)
        if not isinstance(value, dict):
            raise BadRecord(f"{key} is not a mapping")
        return Fields(value)

    def items(self, key: str, limit: int) -> list[Fields]:
        value = self._values.get(key)
        if not isinstance(value, list) or len(value) > limit:
            raise BadRecord(f"{key} is not a list of at most {limit}")
        if not all(isinstance(item, dict) for item in value):
            raise BadRecord(f"{key} has something that is not a mapping")
        return [Fields(item) for item in value if isinstance(item, dict)]

    def margins(self, key: str) -> Margins:
        fields = self.mapping(key)
        return Margins(
            skew=fields.number("skew", most=86_400),
            drift=fields.number("drift", most=500_000),
            grace=fields.number("grace", most=3_600),
            rule=fields.one_of("rule", {r.value: r for r in Rule}),
        )


def _checked(key: str, text: str) -> Resource:
    try:
        resource = parse_resource(text)
    except GitleaseError as error:
        raise BadRecord(f"{key}: {error.message}") from None
    if resource.text != text:
        raise BadRecord(f"{key} {text[:60]!r} is not in its canonical form")
    return resource
