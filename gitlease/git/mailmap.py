"""The project's mailmap, as the fetched default branch has it.

Not as the work tree has it: whoever checks out a branch must not become another person by it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property

from gitlease.core.lease import person_key

MAILMAP = ".mailmap"
MAX_MAILMAP = 1024 * 1024  # bytes
# `Name <usual> <other>`; an entry with a second name is about commits of that name alone.
_LINE = re.compile(r"[^<>#]*<([^<>\s]+)>\s*<([^<>\s]+)>\s*(?:#.*)?")


def read_mailmap(data: bytes) -> dict[str, str]:
    """Return the usual address of each other one, both as ``person_key`` has them."""
    lines = data.decode("utf-8", "replace").splitlines()
    found = filter(None, map(_LINE.fullmatch, lines))
    return {person_key(match[2]): person_key(match[1]) for match in found}


class Mailmap(Mapping[str, str]):
    """The usual address of each other one, read when it is first asked for."""

    def __init__(self, load: Callable[[], bytes]) -> None:
        self._load = load

    @cached_property
    def _pairs(self) -> dict[str, str]:
        return read_mailmap(self._load())

    def __getitem__(self, address: str) -> str:
        return self._pairs[address]

    def __iter__(self) -> Iterator[str]:
        return iter(self._pairs)

    def __len__(self) -> int:
        return len(self._pairs)
