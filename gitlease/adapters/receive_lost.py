"""Which commits a push takes away from a server: those that none of its refs has any more.

Of the branch that HEAD names also those that another ref has: they had landed there. All that one
push moves is taken together, for refs that go at once keep nothing for each other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence

from gitlease.adapters.asking import ask
from gitlease.adapters.receive_lines import RefMove
from gitlease.adapters.receive_objects import PushedObjects
from gitlease.adapters.repository import Repository

TIPS_AT_ONCE = 2_000
NEW_REFS = 500  # of one push that may keep what its other refs lose

Asked = Callable[..., list[str]]  # git's answer in words; Illegal where there is none


def namespace() -> str:
    """Where the refs of this push lie in the repository: ``""``, or a prefix that ends with /."""
    parts = os.environ.get("GIT_NAMESPACE", "").split("/")
    return "".join(f"refs/namespaces/{part}/" for part in parts if part)


def lost(
    repository: Repository,
    objects: PushedObjects,
    moves: Sequence[RefMove],
    *,
    most: int,
    asked: Asked,
) -> list[str]:
    """The commits that are lost once these refs have moved; more than ``most`` come cut.

    Raises Illegal where git cannot tell.
    """
    if not any(move.old for move in moves):
        return []
    space = namespace()
    symbolic = ask(repository, "symbolic-ref", "-q", f"{space}HEAD")
    main = os.fsdecode(symbolic.out).strip() if symbolic.code == 0 else ""
    form = "--format=%(if)%(symref)%(then)%(refname) %(symref)%(end)"
    words = iter(asked("for-each-ref", form))
    points = dict(zip(words, words, strict=True))  # a ref that is another's name, and that one
    moved, old, found = set[str](), list[str](), list[str]()
    count = f"--max-count={most}"
    for move in moves:
        if not move.old:
            continue
        name = points.get(space + move.ref, space + move.ref)
        moved.add(name)
        if move.new and name == main:
            found += asked("rev-list", count, move.old, "--not", move.new, "--")
        else:
            old.append(move.old)
    if not old:
        return found
    moved |= {alias for alias, name in points.items() if name in moved}
    # Not --all: that has HEAD too, and those of work trees, which move with their branches.
    others = (*(f"--exclude={name}" for name in sorted(moved)), "--glob=refs/*")
    kept = list(dict.fromkeys(_arriving(repository, objects, moves, asked)))
    gone: list[str] | None = None
    for start in range(0, max(1, len(kept)), TIPS_AT_ONCE):
        some = kept[start : start + TIPS_AT_ONCE]
        listed = asked("rev-list", count, *old, "--not", *some, *others, "--")
        among = set(listed)
        gone = listed if gone is None else [commit for commit in gone if commit in among]
    return found + (gone or [])


def _arriving(
    repository: Repository, objects: PushedObjects, moves: Sequence[RefMove], asked: Asked
) -> Iterator[str]:
    """The new tips that keep what others lose: not those of refs that git will then not move.

    Unless it is told that all or none shall move, git deletes one ref though it refuses another.
    """
    if len(moves) == 1:  # what does not move loses nothing
        yield from (move.new for move in moves if move.new)
        return
    setting = ("config", "--type=bool", "--get", "receive.denyNonFastForwards")
    forwards = ask(repository, *setting).out.strip() == b"true"
    for move in moves:
        if not (move.old and move.new):
            continue
        words = ("merge-base", "--is-ancestor", move.old, move.new)
        if not forwards or ask(repository, *words).code == 0:
            yield move.new
    new = [move for move in moves if not move.old]
    if 0 < len(new) <= NEW_REFS:
        yield from _created(objects, new, moves, asked)


def _created(
    objects: PushedObjects, new: Sequence[RefMove], moves: Sequence[RefMove], asked: Asked
) -> Iterator[str]:
    """The tips of new refs whose names are fit for one, and in the way of no other ref."""
    import pygit2

    space = namespace()
    names = {move.ref for move in moves}
    above = {parent for name in names for parent in _parents(name)}
    fit = [
        move
        for move in new
        if move.ref.startswith("refs/")
        and pygit2.reference_is_valid_name(move.ref)
        and move.ref not in above
        and not any(x in names or space + x in objects.repo.references for x in _parents(move.ref))
    ]
    below = [f"{space}{move.ref}/" for move in fit]
    if below and not asked("for-each-ref", "--count=1", "--format=%(refname)", *below):
        yield from (move.new for move in fit)


def _parents(name: str) -> list[str]:
    """The refs that cannot be where this one is: ``refs/a`` and ``refs/a/b`` for refs/a/b/c."""
    parts = name.split("/")
    return ["/".join(parts[:n]) for n in range(2, len(parts))]
