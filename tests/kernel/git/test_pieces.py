"""Answers that come bit by bit cost as much as they are long, with a mark in them or without."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitlease.kernel.git.repository import Pieces
from gitlease.landing.plan import OutputFilter

pytestmark = pytest.mark.default


class Counted(bytes):
    """Bytes that count what is copied where they are added to others."""

    copied = 0

    def __radd__(self, before: bytes) -> bytes:
        Counted.copied += len(before) + len(self)
        return bytes(before) + bytes(self)


MAKERS: list[Callable[[], Callable[[bytes], None]]] = [
    lambda: Pieces(b"\0", lambda _: None).more,
    lambda: Pieces(b"\r\n", lambda _: None).more,
    lambda: OutputFilter(lambda _: None).more,
]


@pytest.mark.parametrize("make", MAKERS)
def test_what_has_no_mark_is_not_copied_again_and_again(
    make: Callable[[], Callable[[bytes], None]],
) -> None:
    more, many, size = make(), 500, 64
    Counted.copied = 0
    for _ in range(many):
        more(Counted(b"x" * size))
    assert Counted.copied <= 2 * many * size


@given(
    st.lists(st.text("ab\r\n", max_size=6).map(str.encode)),
    st.sampled_from([b"\n", b"\r\n", b"aa", b"aba"]),
)
def test_pieces_are_those_of_the_whole(bits: list[bytes], mark: bytes) -> None:
    taken = list[bytes]()
    pieces = Pieces(mark, taken.append)
    for bit in bits:
        pieces.more(bit)
    assert [*taken, pieces.rest] == b"".join(bits).split(mark)
