"""Which commits a push takes away from a server: those that none of its refs has any more.

Of the branch that HEAD names also those that another ref has: they had landed there. Of any other
only what others made, for what one takes back of one's own elsewhere is nobody's loss. All that one
push moves is taken together, for refs that go at once keep nothing for each other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence

from gitlease.adapters.asking import ask
from gitlease.adapters.reached import PEOPLE, Made, with_people
from gitlease.adapters.receive_lines import RefMove
from gitlease.adapters.receive_objects import PushedObjects
from gitlease.adapters.repository import Repository
from gitlease.domain.lease import same_person

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
    pusher: Sequence[str],
    most: int,
    asked: Asked,
) -> list[str]:
    """The commits that are lost once these refs have moved; more than ``most`` come cut.

    ``pusher`` are the addresses of whose push it is. Raises Illegal where git cannot tell.
    """
    if not any(move.old for move in moves):
        return []
    space = namespace()
    symbolic = ask(repository, "symbolic-ref", "-q", f"{space}HEAD")
    main = os.fsdecode(symbolic.out).strip() if symbolic.code == 0 else ""
    form = "--format=%(if)%(symref)%(then)%(refname) %(symref)%(end)"
    words = iter(asked("for-each-ref", form))
    points = dict(zip(words, words, strict=True))  # a ref that is another's name, and that one
    moved, found = set[str](), list[str]()
    usual, old = list[str](), list[str]()  # what goes with the branch of HEAD, and with others
    count = f"--max-count={most}"
    for move in moves:
        if not move.old:
            continue
        name = points.get(space + move.ref, space + move.ref)
        moved.add(name)
        if move.new and name == main:
            found += asked("rev-list", count, move.old, "--not", move.new, "--")
        else:
            (usual if name == main else old).append(move.old)
    if not usual and not old:
        return found
    moved |= {alias for alias, name in points.items() if name in moved}
    # Not --all: that has HEAD too, and those of work trees, which move with their branches.
    others = (*(f"--exclude={name}" for name in sorted(moved)), "--glob=refs/*")
    kept = list(dict.fromkeys(_arriving(repository, objects, moves, asked)))
    found += [commit for commit, _ in _gone(usual, kept, others, count, asked)]
    gone = _gone(old, kept, others, count, asked)
    if len(gone) >= most:  # who made those that were cut off is not known
        return found + [commit for commit, _ in gone]
    # Who recorded another's work took part in it, as who wrote what another recorded.
    return found + [
        commit
        for commit, people in gone
        if not all(any(same_person(one, x) for x in pusher) for one in people)
    ]


def _gone(
    old: Sequence[str], kept: Sequence[str], others: Sequence[str], count: str, asked: Asked
) -> list[Made]:
    """The commits that neither those kept nor the other refs have, with authors and committers.

    ``others`` are words for git that choose those refs.
    """
    if not old:
        return []
    gone: list[str] | None = None
    for start in range(0, max(1, len(kept)), TIPS_AT_ONCE):
        some = kept[start : start + TIPS_AT_ONCE]
        words = ("log", "--no-show-signature", PEOPLE, count)
        listed = asked(*words, *old, "--not", *some, *others, "--", by_line=True)
        among = set(listed)
        gone = listed if gone is None else [line for line in gone if line in among]
    return [with_people(line) for line in gone or []]


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
