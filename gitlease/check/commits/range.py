"""Which commits to check: those of a given range, of a CI run, or of this branch and not of the
default branch.

They are listed in the user's clone if that has all of them and their parents, else in a store
beside it, which is filled from the remote.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence

from gitlease.check.ci import CiContext
from gitlease.check.store import INFINITE, UNSHALLOW, HistoryStore
from gitlease.core.errors import NotFound, UsageError, shown
from gitlease.core.frozen import dataclass, replace
from gitlease.git.history import commit_ids, in_range
from gitlease.git.repository import Repository, ask, is_id

MAX_COMMITS = 50_000
DEPTHS = (100, 2_000, INFINITE)
USUAL = ("main", "master", "trunk", "develop")
_FORMS = (
    "write it like main..HEAD, with commits, branches or tags of this clone",
    "in a pull request, and on a branch of its own, none is needed",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The commits to check, the oldest first, with full ids.

    ``shown`` is the range for people. ``base`` is a commit from before it, whose mailmap and
    settings hold; ``""`` if there is none. ``place`` is the repository with their objects if that
    is not the user's own. ``cut``: there were more.
    """

    commits: tuple[str, ...]
    shown: str
    base: str = ""
    place: Repository | None = None
    cut: bool = False
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Point:
    """One end of a range: for people, and as a name for this clone and for the remote.

    A name is a full id or what git can make one of; ``""`` if there is none. ``named``: it was
    given on the command line.
    """

    shown: str
    here: str = ""
    there: str = ""
    named: bool = False


@dataclass(frozen=True, slots=True)
class RangeRequest:
    """The commits of ``head`` that none of the ``bases`` has.

    ``otherwise`` are bases to use if the others do not exist any more.
    """

    head: Point
    bases: tuple[Point, ...]
    shown: str
    otherwise: tuple[Point, ...] = ()


class Ranges:
    """Chooses commits of one repository. ``store`` opens the store beside it, or returns None."""

    def __init__(
        self,
        repository: Repository,
        *,
        remote: str | None,
        store: Callable[[], HistoryStore | None],
    ) -> None:
        self._repository, self._remote, self._open = repository, remote, store

    def choose(self, words: str | None, context: CiContext) -> Chosen:
        """The commits of the range ``words``, else those that the context is about.

        The user's repository is not changed. Raises UsageError for an invalid range, NotFound for
        commits that do not exist, and Unavailable if the remote is needed and does not answer.
        """
        if words is None and context.nothing:
            return Chosen(commits=(), shown=context.shown or "nothing")
        request = self._request(words, context)
        try:
            return self._choose(request)
        except NotFound:
            if not request.otherwise:
                raise
        chosen = self._choose(replace(request, bases=request.otherwise, otherwise=()))
        names = ", ".join(base.shown for base in request.otherwise)
        said = f"what was there before is gone: checked are the commits that {names} lacks"
        return replace(chosen, warnings=(said, *chosen.warnings))

    def _choose(self, request: RangeRequest) -> Chosen:
        points = (request.head, *request.bases)
        found = commit_ids(self._repository, [point.here for point in points])
        for point, oid in zip(points, found, strict=True):
            if oid is None and not point.there:
                raise _no_commit(point)
        ids = [oid for oid in found if oid is not None]
        if len(ids) == len(points):
            chosen, whole = _listed(request, self._repository, ids)
            if whole:
                return chosen
        return self._beside(request, found)

    def _request(self, words: str | None, context: CiContext) -> RangeRequest:
        if words is not None:
            return self._by_words(words, context)
        if context.head:
            return self._by_context(context)
        default = self._default(context)
        return RangeRequest(_named("HEAD"), (default,), f"{default.shown}..HEAD")

    def _by_words(self, words: str, context: CiContext) -> RangeRequest:
        dots = "..." if "..." in words else ".."
        first, between, last = words.partition(dots)
        ends = [end for end in (first, last) if end]
        odd = not words.isprintable() or len(words) > 1_000 or not ends
        if odd or any(".." in end or end.startswith(("-", "^")) for end in ends):
            raise UsageError(f"{shown(words)} is not a range", hints=_FORMS)
        if between and not first:  # a variable that is empty must not make it an empty range
            raise UsageError(f"the range {shown(words)} has no beginning", hints=_FORMS)
        if not between:
            default = self._default(context)
            return RangeRequest(_named(words), (default,), f"{default.shown}..{words}")
        return RangeRequest(_named(last or "HEAD"), (_named(first),), words)

    def _by_context(self, context: CiContext) -> RangeRequest:
        head = Point(context.shown, context.head, context.head)
        bases: list[Point] = []
        tracked = self._branch(context.base_branch)
        if tracked is not None and (tracked.here or not context.base):
            bases.append(tracked)  # first: it may be newer than the host's base
        if context.base:
            bases.append(Point(context.base[:10], context.base, context.base))
        otherwise: tuple[Point, ...] = ()
        default = self._branch(context.default_branch)
        if default is not None and default.there != context.head_ref:
            otherwise = (default,)
            bases += [default] * context.new
        return RangeRequest(head, tuple(bases), context.shown, otherwise)

    def _branch(self, name: str) -> Point | None:
        if not name:
            return None
        (known,) = self._known([self._tracking(name)] if self._remote is not None else [""])
        return Point(name, known, f"refs/heads/{name}")

    def _default(self, context: CiContext) -> Point:
        """The default branch, of the remote if there is one."""
        remote = self._remote
        told = context.base_branch or context.default_branch
        names = [told] if told else []
        if remote is not None:
            words = ("symbolic-ref", "-q", self._tracking("HEAD"))
            said = os.fsdecode(ask(self._repository, *words).out).strip()
            start = self._tracking("")
            names += [said.removeprefix(start)] if said.startswith(start) else []
        if not names:
            names = [self._repository.config.get("init.defaultbranch") or "", *USUAL]
        names = list(dict.fromkeys(filter(None, names)))
        for name, known in zip(names, self._known(map(self._tracking, names)), strict=True):
            if known and remote is not None:
                return Point(f"{remote}/{name}", known, f"refs/heads/{name}")
            if known:
                return Point(name, known)
        if remote is None:
            raise UsageError("cannot find the default branch; pass a range", hints=_FORMS)
        there = f"refs/heads/{told}" if told else "HEAD"
        return Point(f"{remote}/{told or 'HEAD'}", "", there)

    def _tracking(self, branch: str) -> str:
        """The ref of a branch of the remote; of this clone without a remote."""
        folder = "heads" if self._remote is None else f"remotes/{self._remote}"
        return f"refs/{folder}/{branch}"

    def _known(self, refs: Iterable[str]) -> list[str]:
        asked = list(refs)
        found = commit_ids(self._repository, asked)
        return [ref if oid else "" for ref, oid in zip(asked, found, strict=True)]

    def _beside(self, request: RangeRequest, known: Sequence[str | None]) -> Chosen:
        # The remote is asked for an id if one is known, since names may have moved.
        store = self._open()
        points = (request.head, *request.bases)
        wants = [oid or point.there for oid, point in zip(known, points, strict=True)]
        if store is None or not all(wants):
            raise NotFound(
                f"this clone does not have all of the commits of {shown(request.shown)}",
                hints=UNSHALLOW,
            )
        store.tidy()
        for depth in DEPTHS:
            found = store.fetch(list(dict.fromkeys(wants)), depth=depth)
            chosen, whole = _listed(request, store.repository, [found[name] for name in wants])
            if whole:
                return replace(chosen, place=store.repository)
        said = "the remote's own history is shallow: what its first commits change is unknown"
        return replace(chosen, place=store.repository, warnings=(said,))


def _named(word: str) -> Point:
    # The remote is asked for nothing but ids.
    return Point(word, word, word if is_id(word) else "", named=True)


def _no_commit(point: Point) -> UsageError | NotFound:
    message = f"no commit {shown(point.shown)} in this clone"
    if not point.named:
        return NotFound(message, hints=UNSHALLOW)
    hint = "a shallow clone lacks old ones: git fetch --unshallow"
    return UsageError(message, hints=(_FORMS[0], hint))


def _listed(request: RangeRequest, where: Repository, ids: Sequence[str]) -> tuple[Chosen, bool]:
    """The commits of the head that the bases lack, and whether that is certain."""
    head, *bases = ids
    commits, whole = in_range(where, head, bases, most=MAX_COMMITS + 1)
    chosen = Chosen(
        commits=commits[-MAX_COMMITS:],
        shown=request.shown,
        base=bases[0] if bases else head,
        cut=len(commits) > MAX_COMMITS,
    )
    return chosen, whole
