"""Which commits are to be checked: a range in words, what continuous integration runs for, or what
this branch has that the default branch does not.

They are listed in the user's clone where that has all of them, with what they stand on; else in a
store beside it, which is filled from the remote.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from gitlease.adapters.asking import ask, is_id, refusal
from gitlease.adapters.check_store import INFINITE, UNSHALLOW, HistoryStore
from gitlease.adapters.git import GitResult
from gitlease.adapters.repository import Repository
from gitlease.adapters.settings_schema import shown
from gitlease.domain.errors import NotFound, UsageError
from gitlease.domain.frozen import dataclass, replace
from gitlease.ports_check import Asked, Chosen

MAX_COMMITS = 50_000
DEPTHS = (100, 2_000, INFINITE)
USUAL = ("main", "master", "trunk", "develop")
_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Point:
    """One end of a range: how people call it, a name for this clone, and for the remote.

    A name is a full id or what git can make one of; ``""`` where there is none. ``named``: a person
    wrote it.
    """

    shown: str
    here: str = ""
    there: str = ""
    named: bool = False


@dataclass(frozen=True, slots=True)
class Wish:
    """The commits of ``head`` that none of the ``bases`` has.

    ``commits`` is how many are expected, 0 where nobody knows. ``otherwise`` are bases for the case
    that the others are nowhere to be had any more.
    """

    head: Point
    bases: tuple[Point, ...]
    shown: str
    commits: int = 0
    otherwise: tuple[Point, ...] = ()


@dataclass(frozen=True, slots=True)
class _Listed:
    commits: tuple[str, ...]
    whole: bool


class Ranges:
    """The ranges of one repository. ``store`` gives what can be fetched beside it, if anything."""

    def __init__(
        self,
        repository: Repository,
        *,
        remote: str | None,
        store: Callable[[], HistoryStore | None],
    ) -> None:
        self._repository, self._remote, self._open = repository, remote, store

    def choose(self, words: str | None, asked: Asked) -> Chosen:
        """The commits that ``words`` mean, or else those that are asked about.

        Nothing of the user's repository is changed. Raises UsageError for a range that is none,
        NotFound for commits that are nowhere, and Unavailable where the remote must be asked and
        cannot be.
        """
        if words is None and asked.nothing:
            return Chosen(commits=(), shown=asked.shown or "nothing")
        wish = self._wish(words, asked)
        try:
            return self._choose(wish)
        except NotFound:
            if not wish.otherwise:
                raise
        chosen = self._choose(replace(wish, bases=wish.otherwise, otherwise=()))
        names = ", ".join(base.shown for base in wish.otherwise)
        said = f"what was there before is gone: checked is what {names} has not"
        return replace(chosen, warnings=(said, *chosen.warnings))

    def _choose(self, wish: Wish) -> Chosen:
        points = [(point, self._id(point.here)) for point in (wish.head, *wish.bases)]
        for point, found in points:
            if found is None and not point.there:
                raise _no_commit(point)
        ids = [found for _, found in points if found is not None]
        if len(ids) == len(points):
            listed = _list(self._repository, ids[0], ids[1:])
            if listed.whole:
                return _chosen(wish, listed, ids, place="")
        return self._beside(wish)

    # --- what is wished ---------------------------------------------------------------------------

    def _wish(self, words: str | None, asked: Asked) -> Wish:
        if words is not None:
            return self._by_words(words, asked)
        if asked.head:
            return self._by_asked(asked)
        default = self._default(asked)
        return Wish(_named("HEAD"), (default,), f"{default.shown}..HEAD")

    def _by_words(self, words: str, asked: Asked) -> Wish:
        dots = "..." if "..." in words else ".."
        first, between, last = words.partition(dots)
        ends = [end for end in (first, last) if end]
        odd = not words.isprintable() or len(words) > 1_000 or not ends
        if odd or any(".." in end or end.startswith(("-", "^")) for end in ends):
            raise UsageError(f"{shown(words)} is not a range", hints=_FORMS)
        if between and not first:  # a variable that is empty must not make it an empty range
            raise UsageError(f"the range {shown(words)} has no beginning", hints=_FORMS)
        if not between:
            default = self._default(asked)
            return Wish(_named(words), (default,), f"{default.shown}..{words}")
        return Wish(_named(last or "HEAD"), (_named(first),), words)

    def _by_asked(self, asked: Asked) -> Wish:
        head = Point(asked.shown, asked.head, asked.head)
        bases: list[Point] = []
        tracked = self._branch(asked.base_branch)
        if tracked is not None and (tracked.here or not asked.base):
            bases.append(tracked)  # first: what it has is newer than what the host was told
        if asked.base:
            bases.append(Point(asked.base[:10], asked.base, asked.base))
        default = self._branch(asked.default_branch)
        if default is None or default.there == asked.head_ref:
            return Wish(head, tuple(bases), asked.shown, asked.commits)
        if asked.new:
            bases.append(default)
        return Wish(head, tuple(bases), asked.shown, asked.commits, otherwise=(default,))

    def _branch(self, name: str) -> Point | None:
        """A branch of the remote, as it is known here, and what to ask for."""
        return Point(name, self._tracking(name) or "", f"refs/heads/{name}") if name else None

    def _default(self, asked: Asked) -> Point:
        """The default branch, as the remote has it where there is one."""
        remote = self._remote
        told = asked.base_branch or asked.default_branch
        names = [told] if told else []
        if remote is not None:
            words = ("symbolic-ref", "-q", f"refs/remotes/{remote}/HEAD")
            said = os.fsdecode(ask(self._repository, *words).out).strip()
            start = f"refs/remotes/{remote}/"
            names += [said.removeprefix(start)] if said.startswith(start) else []
        if not names:
            names = [self._repository.config.get("init.defaultbranch") or "", *USUAL]
        for name in dict.fromkeys(filter(None, names)):
            if (known := self._tracking(name)) is not None:
                return Point(f"{remote}/{name}", known, f"refs/heads/{name}")
            if remote is None and self._id(f"refs/heads/{name}") is not None:
                return Point(name, f"refs/heads/{name}")
        if remote is None:
            raise UsageError("which branch is the default one here?", hints=_FORMS)
        there = f"refs/heads/{told}" if told else "HEAD"
        return Point(f"{remote}/{told or 'HEAD'}", "", there)

    def _tracking(self, branch: str) -> str | None:
        ref = f"refs/remotes/{self._remote}/{branch}"
        return ref if self._remote is not None and self._id(ref) is not None else None

    def _id(self, name: str) -> str | None:
        """The full id of a commit; None where this clone has none of that name."""
        if not name:
            return None
        words = ("rev-parse", "-q", "--verify", "--end-of-options", f"{name}^{{commit}}")
        said = ask(self._repository, *words)
        # Before git 2.30 the option was printed as well.
        found = os.fsdecode(said.out).split()[-1:] if said.code == 0 else []
        return found[0] if found and is_id(found[0]) else None

    # --- beside the clone -------------------------------------------------------------------------

    def _beside(self, wish: Wish) -> Chosen:
        """The range in a store of its own, fetched as deep as it must be."""
        store = self._open()
        wants = [self._want(point) for point in (wish.head, *wish.bases)]
        if store is None or any(want is None for want in wants):
            raise NotFound(
                f"this clone does not have all of the commits of {shown(wish.shown)}",
                hints=UNSHALLOW,
            )
        names = [want for want in wants if want is not None]
        store.tidy()
        expected = wish.commits + 1 if wish.commits else 0
        for depth in dict.fromkeys(max(depth, expected) for depth in DEPTHS):
            found = store.fetch(list(dict.fromkeys(names)), depth=depth)
            ids = [found[name] for name in names]
            listed = _list(store.repository, ids[0], ids[1:])
            if listed.whole:
                break
        said: tuple[str, ...] = ()
        if not listed.whole:
            said = ("the remote's own history is cut off: what its first commits do is not known",)
        return _chosen(wish, listed, ids, place=store.repository.git_dir, warnings=said)

    def _want(self, point: Point) -> str | None:
        """What to ask the remote for: an id where one is known, since names may have moved."""
        known = self._id(point.here)
        return known or point.there or None


_FORMS = (
    "write it like main..HEAD, with commits, branches or tags of this clone",
    "in a pull request, and on a branch of its own, none is needed",
)


def _named(word: str) -> Point:
    """What a person wrote: the remote is asked for nothing but ids."""
    return Point(word, word, word if is_id(word) else "", named=True)


def _no_commit(point: Point) -> UsageError | NotFound:
    if point.named:
        return UsageError(
            f"there is no commit {shown(point.shown)} in this clone",
            hints=(*_FORMS[:1], "a shallow clone lacks old ones: git fetch --unshallow"),
        )
    return NotFound(f"there is no commit {shown(point.shown)} in this clone", hints=UNSHALLOW)


def _chosen(
    wish: Wish, listed: _Listed, ids: Sequence[str], *, place: str, warnings: tuple[str, ...] = ()
) -> Chosen:
    """``ids`` are those of the head and of the bases; without any, the head is what was there."""
    return Chosen(
        commits=listed.commits[-MAX_COMMITS:],
        shown=wish.shown,
        base=ids[1] if len(ids) > 1 else ids[0],
        place=place,
        cut=len(listed.commits) > MAX_COMMITS,
        warnings=warnings,
    )


def _list(repository: Repository, head: str, bases: Sequence[str]) -> _Listed:
    """The commits of a range, the oldest first, and whether it is certain that these are they.

    Where a clone is shallow, an old commit may look new, since the way from a base to it is cut
    off. It is certain when nothing is cut off on either side of where they part, and all is younger
    than where history is cut off.
    """
    limit = f"--max-count={MAX_COMMITS + 1}"
    rows = _rows(
        repository, "rev-list", "--timestamp", "--topo-order", limit, head, "--not", *bases
    )
    commits = tuple(commit for _, commit in reversed(rows))
    edge = _shallow(repository)
    if not edge:
        return _Listed(commits, True)
    others = _rows(repository, "rev-list", "--timestamp", *bases, "--not", head) if bases else []
    cut = edge & {commit for _, commit in (*rows, *others)}
    newest, ids = 0, sorted(edge)
    for start in range(0, len(ids), _AT_ONCE):
        some = ids[start : start + _AT_ONCE]
        said = _rows(repository, "rev-list", "--timestamp", "--no-walk", "--ignore-missing", *some)
        newest = max([newest, *(at for at, _ in said)])
    young = all(at > newest for at, _ in rows)
    return _Listed(commits, not cut and young)


def _rows(repository: Repository, *words: str) -> list[tuple[int, str]]:
    """Timestamps and ids."""
    said: GitResult = ask(repository, *words, "--")
    if said.code != 0:
        raise refusal(said, "the commits of the range cannot be listed")
    found = []
    for line in os.fsdecode(said.out).splitlines():
        at, _, commit = line.partition(" ")
        digits = at[:18]
        found.append((int(digits) if digits.isdigit() else 0, commit.strip()))
    return found


def _shallow(repository: Repository) -> frozenset[str]:
    """The commits whose parents a repository was not given."""
    try:
        with open(os.path.join(repository.common_dir, "shallow"), encoding="ascii") as opened:
            return frozenset(opened.read().split())
    except (OSError, UnicodeDecodeError):
        return frozenset()
