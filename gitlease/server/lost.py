"""Which commits a push takes away from a server: those that none of its refs has any more.

Of the branch that HEAD names also those that another ref has: they had landed there. Of any other
only what others made, for what one takes back of one's own elsewhere is nobody's loss.

git may move some refs of a push and refuse others, and a hook is not told which. So what moves
keeps nothing for the others, but for what it has both before and after.
"""

from __future__ import annotations

from collections.abc import Sequence

from gitlease.core.errors import Invalid
from gitlease.git.changes_push import taken_away
from gitlease.git.query import ask
from gitlease.git.repository import Repository
from gitlease.server.lines import RefMove
from gitlease.server.refs import ServerRefs


def lost(
    repository: Repository, refs: ServerRefs, moves: Sequence[RefMove], pusher: Sequence[str]
) -> tuple[list[str], bool]:
    """The commits that may be lost once these refs have moved, and whether there are too many.

    ``pusher`` are the addresses of whose push it is. Raises Invalid where git cannot tell.
    """
    moved, landed = set[str](), list[tuple[str, str]]()
    dropped, old, kept = list[str](), list[str](), set[str]()
    for move in moves:
        if not move.old:
            continue
        name = refs.moved(move.ref)
        moved.add(name)
        if move.new:  # none: histories that have nothing in common, or no histories
            said = ask(repository, "merge-base", "--all", move.old, move.new)
            if said.timed_out:
                raise Invalid("what is pushed cannot be listed")
            kept |= set(said.out.decode("ascii", "replace").split() if said.code == 0 else ())
        if move.new and name == refs.main:
            landed.append((move.old, move.new))
        elif move.old not in kept:
            (dropped if name == refs.main else old).append(move.old)
    moved |= {alias for alias, name in refs.points.items() if name in moved}
    # Not --all: that has HEAD too, and those of work trees, which move with their branches.
    others = (*(f"--exclude={name}" for name in sorted(moved)), "--glob=refs/*")
    return taken_away(
        repository,
        landed=landed,
        dropped=dropped,
        others=old,
        kept=kept,
        refs=others,
        holders=pusher,
        strict=True,
    )
