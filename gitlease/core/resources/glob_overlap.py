"""Rows of tokens that read paths, and the test whether two rows read one path in common.

A row reads a folded path in which every segment, the last one too, ends in `/`. The test is exact:
one pass over the first row, with all places reachable in the second kept as the bits of an integer.
"""

from bisect import bisect_right
from collections.abc import Iterable
from enum import Enum

from gitlease.core.frozen import dataclass


class Jump(Enum):
    """Tokens that read a run: STAR within one segment, DEEP zero or more whole segments."""

    STAR = "*"
    DEEP = "**"


@dataclass(frozen=True, slots=True)
class Chars:
    """A set of character codes, never `/`, as the ascending edges of half-open ranges."""

    edges: tuple[int, ...]

    def __contains__(self, code: int) -> bool:
        return bisect_right(self.edges, code) % 2 == 1

    def touches(self, other: "Chars") -> bool:
        """Whether the sets share a character: if so, a range of one starts inside the other."""
        return any(low in other for low in self.edges[::2]) or any(
            low in self for low in other.edges[::2]
        )


Token = str | Chars | Jump  # a str is one character; "/" ends a segment


class StateRow:
    """A token row to run others against: bit n of each mask stands for the place before token n.

    DEEP stands only where a segment starts, and neither DEEP nor STAR stands twice in a row.
    """

    __slots__ = ("classes", "deeps", "inside", "plain", "stars", "starts", "tokens")

    def __init__(self, tokens: tuple[Token, ...]) -> None:
        self.tokens = tokens
        self.plain: dict[str, int] = {"/": 0}
        self.classes: dict[Chars, int] = {}
        self.stars = self.deeps = self.inside = 0
        self.starts = 1
        for place, token in enumerate(tokens):
            bit = 1 << place
            if token is Jump.DEEP or token == "/":
                self.starts |= bit << 1
            else:
                self.inside |= bit
            if isinstance(token, str):
                self.plain[token] = self.plain.get(token, 0) | bit
            elif isinstance(token, Chars):
                self.classes[token] = self.classes.get(token, 0) | bit
            elif token is Jump.STAR:
                self.stars |= bit
            else:
                self.deeps |= bit

    def meets(self, tokens: Iterable[Token]) -> bool:
        """Whether both rows read some path to its end; `tokens` may be a path's characters.

        Empty segments need no guard: where both rows read nothing for a whole segment they have
        only a star there, and then they share every name as well.
        """
        here = self._skip(1)
        held = here & self.deeps
        for token in tokens:
            if token is Jump.DEEP:
                here = -(here & -here) & self.starts
            elif token is Jump.STAR:
                # The sum's carry runs from each place to the `/` that ends its segment.
                here |= ((here & self.inside) + self.inside) ^ self.inside
            elif token == "/":
                # A DEEP once reached reads every later segment of the other row as well.
                here = (here & self.plain["/"]) << 1 | held
            else:
                here = (here & self._readers(token)) << 1 | here & self.stars
            here = self._skip(here)
            held |= here & self.deeps
            if not here | held:
                return False
        return here >> len(self.tokens) == 1

    def _skip(self, here: int) -> int:
        # A DEEP or STAR may read nothing.
        here |= (here & self.deeps) << 1  # first: a STAR may follow a DEEP, never precede it
        return here | (here & self.stars) << 1

    def _readers(self, token: str | Chars) -> int:
        if isinstance(token, str):
            readers = self.plain.get(token, 0)
            for chars, places in self.classes.items():
                readers |= places if ord(token) in chars else 0
            return readers
        readers = 0
        for char, places in self.plain.items():
            readers |= places if ord(char) in token else 0
        for chars, places in self.classes.items():
            readers |= places if chars.touches(token) else 0
        return readers
