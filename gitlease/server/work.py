"""Judges the work of a push: whether its commits touch what others hold, by the ledgers both before
and after the push.

All leases that cover paths are checked; a task's lease is looked up when its file is touched.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import cast

from gitlease.guard import history
from gitlease.guard.commits import (
    CommitFacts,
    CommitReader,
    TaskParser,
    TaskTouched,
    task_status_changes,
    touched,
)
from gitlease.guard.history import Changed
from gitlease.guard.pushes import lost_commits
from gitlease.guard.whose import (
    COMMIT_SKEW,
    GrantHistory,
    LaterGrants,
    Makers,
    Superseded,
    find_superseded,
    names_grant,
)
from gitlease.kernel.git.objects import TREE, GitObjects, object_id
from gitlease.kernel.git.repository import Pieces, Repository, ask, ask_line
from gitlease.kernel.rules.errors import GitleaseError, Invalid
from gitlease.kernel.rules.frozen import dataclass
from gitlease.kernel.rules.instant import MS, Instant
from gitlease.kernel.rules.lease import Actor, Lease, Moment, Relation, Sighting, State, relation
from gitlease.kernel.rules.ledger import Damage, Ledger
from gitlease.kernel.rules.moves.operations import Event
from gitlease.kernel.rules.moves.transitions import Illegal, Pusher
from gitlease.kernel.rules.resources import parse_resource, scopes_overlap
from gitlease.kernel.rules.viewpoint import GuardFinding, Severity, Touched, Viewpoint
from gitlease.kernel.rules.work import Named
from gitlease.kernel.settings.schema import Tasks
from gitlease.kernel.store.tree import GitRecords, read_ledger, walk
from gitlease.server.receive import RefMove, ServerRefs

# --- the changes of a push's commits, some files at a time ------------------------------------
# One commit may change more files than fit into memory: git's output is judged as it arrives, and
# none of it is kept.

FILES_AT_ONCE = 10_000
SECONDS = 60.0  # for git alone, without the time of ``take``

# Regardless of the server's settings: no changes of merges, and every submodule.
_LOG = (
    *("log", "--no-walk=unsorted", "--root", "--format=%H %P", "--no-notes"),
    *("--no-show-signature", "--no-diff-merges", *history.FORM, *history.NO_RENAMES),
)


def changes_of(
    repository: Repository, commits: Sequence[str], take: Callable[[list[Changed]], None]
) -> list[str]:
    """Pass on the changes of these commits in parts; return the merges, which are left out.

    So are those without a parent if the repository is shallow. An exception of ``take`` ends it.
    Raises Invalid if git does not answer.
    """
    has_roots = not os.path.exists(os.path.join(repository.common_dir, "shallow"))
    changes: list[Changed] = []
    left_out: list[str] = []
    line, counts = "", True  # the raw line of the file whose name comes next

    def hand_on() -> None:
        some = changes.copy()
        changes.clear()
        if some:
            take(some)

    def piece(data: bytes) -> None:
        nonlocal line, counts
        if line:
            if counts:
                try:
                    changes.append(history.read_change(line, iter([data])))
                except (StopIteration, ValueError, IndexError):
                    raise Invalid("git's answer about changes cannot be read") from None
            line = ""
            if len(changes) >= FILES_AT_ONCE:
                hand_on()
            return
        text = data.lstrip(b"\n").decode("ascii", "replace")
        if text.startswith(":"):
            line = text
        elif text:
            commit, *parents = text.split()
            counts = len(parents) == 1 or (not parents and has_roots)
            left_out.extend([] if counts else [commit])

    pieces = Pieces(b"\0", piece)
    answer = ask(repository, *_LOG, *commits, "--", timeout=SECONDS, on_out=pieces.more)
    if answer.code != 0 or answer.timed_out or pieces.rest or line:
        raise answer.failure("commits cannot be read")
    hand_on()
    return left_out


# --- the judgement ----------------------------------------------------------------------------

MAX_COMMITS = 10_000
MOVES_JUDGED = 500  # refs that were there before, of one push
COMMITS_AT_ONCE = 200
LEASES_AT_ONCE = 1_000
MAX_TASKS = 20_000  # changed task files of one push
TASKS_AT_ONCE = 1_000
FINDINGS = 1_000  # the search ends at that many
GROUPS = 100  # of commits that name the same grants
EVENTS_READ = (200, 4_000, 20_000)  # of a ledger's history, for a commit that names an old token


class _Enough(Exception):
    """There are FINDINGS that block."""


@dataclass(frozen=True)
class _Group:
    """Commits that are judged alike: for these ``paths`` only (None: all), as made under grants."""

    commits: list[str]
    paths: frozenset[str] | None = None
    grants: frozenset[Named] = frozenset()


@dataclass(frozen=True)
class _NamedTasks:
    """The tasks of a commit by some settings: paths and names, all of them and those not done."""

    commit: str
    by: Tasks
    files: frozenset[tuple[str, str]]
    open: frozenset[tuple[str, str]]


@dataclass(frozen=True, kw_only=True)
class WorkSettings:
    """The project's settings by which work is judged.

    ``tasks`` has one entry for each way in which tasks are read: before the push, and after each
    of its moves. ``people`` are the names of holders, ``bots`` the addresses of those who commit
    for others.
    """

    tasks: Sequence[Tasks]
    people: Mapping[str, str] = MappingProxyType({})
    bots: Sequence[str] = ()


class WorkGuard:
    """Judges commits against the ledgers at ``heads`` (a layer and a commit each), for one pusher.

    A commit that no ref has yet counts as the pusher's, whatever it says; if the pusher is a
    ``merger``, as work under the lease that it names, if its author is that holder. One that
    another branch has counts where it lands, for what it changes there, unless its holder made it
    under the present lease. ``warnings`` name the records that could not be judged.
    """

    def __init__(
        self,
        repository: Repository,
        settings: WorkSettings,
        objects: GitObjects,
        heads: Sequence[tuple[str, str]],
        refs: ServerRefs,
        *,
        pusher: Pusher,
        now_ms: int,
        merger: bool = False,
    ) -> None:
        self._repository, self._objects = repository, objects
        self._settings, self._merger = settings, merger
        self._makers = Makers()
        self._commits_new: list[history.RangeCommit] | None = None
        each: list[Tasks] = []
        for tasks in settings.tasks:  # a Tasks cannot be hashed
            if tasks not in each:
                each.append(tasks)
        self._parsers = [(x, TaskParser(x)) for x in each]
        self._refs = refs
        self._ledgers = [(layer, read_ledger(objects, oid)) for layer, oid in heads]
        # The newest state of each layer's first ledger: one below another prefix is another.
        self._latest: dict[str, str] = {}
        first: dict[str, str] = {}
        for (layer, ledger), (_, oid) in zip(self._ledgers, heads, strict=True):
            if first.setdefault(layer, ledger.header.ledger_id) == ledger.header.ledger_id:
                self._latest[layer] = oid
        self._holders = pusher.holders or ()
        self._pusher = Actor(holder=self._holders[0] if self._holders else "")
        # The server judged each record when it was written.
        self._moment = Moment(
            now=_instant(now_ms),
            seen=lambda lease: Sighting(at=_instant(lease.renewed_at), changed=False),
        )
        self.warnings: dict[str, None] = {}
        self._blocking: dict[tuple[str, str], GuardFinding] = {}
        self._warned: dict[tuple[str, str], GuardFinding] = {}
        self._tasks = 0
        self._named_tasks: list[_NamedTasks] = []
        self._group = _Group([])

    def check(self, moves: Sequence[RefMove]) -> list[GuardFinding]:
        """Find what the work of these moves touches. Raises Illegal for more than can be judged."""
        repository = self._repository
        try:
            new = self._new(moves)
        except Invalid as error:
            raise _unjudged(error.message) from None
        records = [cast(GitRecords, ledger.records) for _, ledger in self._ledgers]
        # Nobody holds anything, as most of the time: the push costs no more than this.
        if not any(x.has_leases for x in records):
            return []
        again = [move for move in moves if move.old]
        if len(again) > MOVES_JUDGED:
            raise _unjudged(f"more than {MOVES_JUDGED} refs cannot be judged")
        try:
            commits, landing = self._commits(new, moves, again)
            groups = [_Group(commits), *self._by_grants(landing)]
            if self._merger:
                own = set(new)
                rest = [commit for commit in commits if commit not in own]
                groups[:1] = [_Group(rest), *self._by_grants([_Group(new)], made_by=True)]
        except Invalid as error:
            raise _unjudged(error.message) from None
        with contextlib.suppress(_Enough):
            for self._group in groups:
                for start in range(0, len(self._group.commits), COMMITS_AT_ONCE):
                    commits = self._group.commits[start : start + COMMITS_AT_ONCE]
                    try:
                        merges = changes_of(repository, commits, self._take)
                        merged = (
                            history.committed(repository, merges, renames=False) if merges else {}
                        )
                    except Invalid as error:
                        raise _unjudged(error.message) from None
                    self._take([change for changes in merged.values() for change in changes])
        if not self._blocking and not self._merger:
            self._check_tokens(new)
        return list((self._warned | self._blocking).values())

    def _check_tokens(self, new: Sequence[str]) -> None:
        """Raise Illegal if one of these commits names the token of a live lease of another's.

        Once it is accepted it passes for work of that lease, which may cover more paths by then.
        """
        try:
            commits = [x for x in self._reader().people(new) if x.named]
        except Invalid as error:
            raise _unjudged(error.message) from None
        if not commits:
            return
        leases = [(layer, x) for layer, _ in self._ledgers for x in self.others(layer)]
        for commit in commits:
            for layer, lease in leases:
                if names_grant(commit.named, commit.recorded, lease, layer):
                    raise Illegal(
                        "token",
                        f"{commit.id[:10]} names token {lease.token} of {lease.resource}, which"
                        f" {lease.holder} holds: only they push new commits under it",
                        hints=("take that line out of its message: git commit --amend",),
                    )

    def _brought(self, moves: Sequence[RefMove]) -> list[history.RangeCommit]:
        if self._commits_new is None:
            tips = [move.new for move in moves if move.new]
            most, repository = MAX_COMMITS + 1, self._repository
            self._commits_new = history.rev_range(
                repository, tips, others=["--all"], most=most, strict=True
            )
        return self._commits_new

    def _new(self, moves: Sequence[RefMove]) -> list[str]:
        """The commits that no ref has yet. Raises Illegal if one names a token too early."""
        new = self._brought(moves)
        since = self._moment.now.wall_ms - 2 * COMMIT_SKEW
        fresh = [x.id for x in new if x.recorded * MS > since]
        # Tokens are numbers that anybody can guess: a commit that names a later one now would pass
        # for the work of whoever gets that lease.
        given = {layer: ledger.header.token for layer, ledger in self._ledgers}
        for commit in self._reader().people(fresh):
            early = next((x for x in commit.named if x.token > given.get(x.layer, x.token)), None)
            if early is not None:
                raise Illegal(
                    "token",
                    f"{commit.id[:10]} names token {early.token} of {early.resource}, which was"
                    " not given yet",
                    hints=("take that line out of its message: git commit --amend",),
                )
        return [x.id for x in new]

    def _reader(self) -> CommitReader:
        # By the mailmap of before the push: whoever brought one along could be anybody.
        main = self._refs.main and ask_line(
            self._repository, "rev-parse", "-q", "--verify", f"{self._refs.main}^{{commit}}"
        )
        return CommitReader(self._repository, self._parsers[0][0], base=main)

    def _known_makers(self, reader: CommitReader, emails: Iterable[str]) -> Makers:
        return reader.makers(emails, names=self._settings.people, bots=self._settings.bots)

    def superseded(self, moves: Sequence[RefMove]) -> list[Superseded]:
        """Find the superseded commits of these moves. Raises Illegal as ``check`` does.

        Whoever holds the resource, by the ledger before or after the push, vouches for them.
        """
        try:
            new = [x.id for x in self._brought(moves)]
            again = [move for move in moves if move.old]
            # As ``check`` does, which refuses so many while anybody holds anything.
            landing = self._landing(new, again[:MOVES_JUDGED])
            ids = dict.fromkeys([*new, *(x for group in landing for x in group.commits)])
            reader = self._reader()
            commits = reader.people(list(ids))
            layers = {layer for layer, _ in self._ledgers}
            if not any(x.layer in layers for commit in commits for x in commit.named):
                return []
            histories = {layer: self._history(layer) for layer in layers}
            after = partial(self._after, histories)
            later = [after(named) for commit in commits for named in commit.named]
            holders = {grant.holder for one in later for grant in one.grants}
            emails = {y for x in commits for y in (*x.emails, x.author) if y}
            makers = Makers()
            if holders:
                makers = self._known_makers(reader, holders | emails)
        except Invalid as error:
            raise _unjudged(error.message) from None
        return find_superseded(
            commits, after=after, vouches=lambda _, named: self._vouches(named), makers=makers
        )

    def _history(self, layer: str) -> GrantHistory:
        head = self._latest[layer]

        def read(limit: int) -> Sequence[Event]:
            steps = walk(self._objects, head)
            return list(islice((x for step in steps for x in reversed(step.events)), limit))

        return GrantHistory(read, limits=EVENTS_READ)

    def _after(self, histories: Mapping[str, GrantHistory], named: Named) -> LaterGrants:
        history = histories.get(named.layer)
        if history is None:
            return LaterGrants()
        return history.after(named, (x for _, x in self._records_of(named)))

    def _vouches(self, named: Named) -> bool:
        for ledger, lease in self._records_of(named):
            if not scopes_overlap(lease.scope, named.scope):
                continue
            for actor in map(Actor, self._holders):
                how = relation(lease, actor, ledger.header.policy, self._moment)
                done = lease.state is State.COMPLETED and lease.same_holder(actor)
                if done or how in (Relation.MINE, Relation.MY_RUN):
                    return True
        return False

    def _records_of(self, named: Named) -> Iterator[tuple[Ledger, Lease]]:
        for layer, ledger in self._ledgers:
            # Anybody writes trailers, and a damaged record is found elsewhere.
            with contextlib.suppress(GitleaseError):
                if layer == named.layer:
                    for lease in ledger.leases_of(parse_resource(named.resource)):
                        yield ledger, lease

    def _commits(
        self, new: Sequence[str], moves: Sequence[RefMove], again: Sequence[RefMove]
    ) -> tuple[list[str], list[_Group]]:
        # New ones and lost ones; and those of other branches, for each where they land now.
        repository, commits = self._repository, dict.fromkeys(new)
        landing = self._landing(new, again)
        several = sum(len(group.commits) for group in landing)
        removed, cut = lost(repository, self._refs, moves, self._holders)
        commits |= dict.fromkeys(removed)
        if cut or len(commits) + several > MAX_COMMITS:
            raise _unjudged(f"more than {MAX_COMMITS} new commits cannot be judged")
        return list(commits), landing

    def _landing(self, new: Sequence[str], again: Sequence[RefMove]) -> list[_Group]:
        # Those of other branches that come to one which was there before, but to HEAD's not again.
        most, repository, commits = MAX_COMMITS + 1, self._repository, set(new)
        head = ask_line(repository, "rev-parse", "-q", "--verify", "HEAD^{commit}") if again else ""
        landing: list[_Group] = []
        several = 0
        for move in again:
            if move.new and len(commits) + several < most:
                kept = [move.old, head]
                lands = history.rev_range(repository, [move.new], kept, most=most, strict=True)
                known = [x.id for x in lands if x.id not in commits]
                if known:
                    paths = history.paths_between(repository, move.old, move.new)
                    landing.append(_Group(known, paths))
                several += len(known)
        return landing

    def _by_grants(self, landing: Sequence[_Group], *, made_by: bool = False) -> list[_Group]:
        # Commits that name the same grants together, since git is asked for each group. With
        # ``made_by`` only the holder or a bot can have made them under a grant.
        if not any(group.commits for group in landing):
            return []
        reader, layers = self._reader(), {layer for layer, _ in self._ledgers}
        groups: dict[tuple[int, frozenset[Named]], list[str]] = {}
        for number, group in enumerate(landing):
            commits = reader.people(group.commits)
            if made_by:
                emails = {y for x in commits for y in (*x.emails, x.author) if y}
                emails |= {x.holder for _, ledger in self._ledgers for x in ledger.every_lease()}
                self._makers = self._known_makers(reader, emails)
            for commit in commits:
                # A squash has the trailers of its commits in the rest of its message.
                every = (*commit.named, *commit.mentioned) if made_by else commit.named
                named = (x for x in every if x.layer in layers)
                grants = frozenset(x for x in named if self._is_since(x, commit, made_by=made_by))
                # What is beyond proves nothing: git is asked for each group.
                if len(groups) >= GROUPS and (number, grants) not in groups:
                    grants = frozenset()
                groups.setdefault((number, grants), []).append(commit.id)
        return [_Group(ids, landing[n].paths, grants) for (n, grants), ids in groups.items()]

    def _is_since(self, named: Named, commit: CommitFacts, *, made_by: bool) -> bool:
        """Return whether a commit is not from before the live lease whose token it names."""
        try:
            resource = parse_resource(named.resource)
            leases = [
                lease
                for layer, ledger in self._ledgers
                if layer == named.layer
                for lease in ledger.leases_of(resource)
                if lease.token == named.token
                and (not made_by or self._makers.is_by(commit, lease.holder))
            ]
        except GitleaseError:
            return False
        recorded = commit.recorded or 0
        return any(recorded > lease.claimed_at - COMMIT_SKEW for lease in leases)

    def _take(self, changed: Sequence[Changed]) -> None:
        some = self._touched(changed)
        made_under = partial(names_grant, self._group.grants, None)
        for layer, ledger in self._ledgers:
            leases = (x for x in self._leases(ledger, some) if not made_under(x, layer))
            while chunk := list(islice(leases, LEASES_AT_ONCE)):
                for finding in self._view(ledger).judge(some, chunk):
                    blocks = finding.severity is Severity.BLOCK
                    kept = self._blocking if blocks else self._warned
                    if len(kept) < FINDINGS:
                        kept.setdefault((finding.path, finding.lease.lease_id), finding)
        if len(self._blocking) >= FINDINGS:
            raise _Enough

    def _view(self, ledger: Ledger) -> Viewpoint:
        return Viewpoint(self._pusher, ledger.header.policy, self._moment)

    def _touched(self, changed: Sequence[Changed]) -> list[Touched]:
        named: list[TaskTouched] = []
        for start in range(0, len(changed), TASKS_AT_ONCE):
            some = changed[start : start + TASKS_AT_ONCE]
            for parsed in self._parsers:
                named += (files := self._tasks_of(some, *parsed))
                self._tasks += len(files)
            if self._tasks > MAX_TASKS:
                raise _unjudged(f"more than {MAX_TASKS} task files cannot be judged")
        paths = self._group.paths
        return [x for x in touched(changed, named) if paths is None or x.path in paths]

    def _tasks_of(
        self, changed: Sequence[Changed], tasks: Tasks, parser: TaskParser
    ) -> list[TaskTouched]:
        return task_status_changes(self._repository, tasks, changed, self._objects, parser)

    def others(self, layer: str = "") -> list[Lease]:
        """The live leases of others in a layer, or in all of them."""
        return [
            x
            for name, ledger in self._ledgers
            if layer in ("", name)
            for x in ledger.every_lease()
            if self._theirs(x) and self._view(ledger).severity(x) is Severity.BLOCK
        ]

    def unguarded(self, before: Tasks, after: Tasks, commit: str) -> list[Lease]:
        """The live leases of others whose task a commit has, or has open, by ``before`` only."""
        if before == after or not commit or not self.others():
            return []
        was, now = self._tasks_in(commit, before), self._tasks_in(commit, after)
        # Other words for statuses may make an open task a done one, which nobody guards.
        lost = {name for _, name in (was.files - now.files) | (was.open - now.open)}
        return [x for x in self.others() if x.resource.key in lost]

    def gained(self, before: Tasks, after: Tasks, commit: str) -> list[tuple[str, Lease]]:
        """The files that are of another's task by ``after`` only, each with the live lease.

        Such a file came when it was nobody's task, and would be changed without a change of it.
        """
        if before == after or not commit or not (others := self.others()):
            return []
        gained = self._tasks_in(commit, after).files - self._tasks_in(commit, before).files
        return [
            (path, x) for path, name in sorted(gained) for x in others if x.resource.key == name
        ]

    def _tasks_in(self, commit: str, tasks: Tasks) -> _NamedTasks:
        """All tasks of a commit by some settings."""
        found = next((x for x in self._named_tasks if x.commit == commit and x.by == tasks), None)
        if found is None:
            empty = object_id(TREE, b"", len(commit) // 2)
            differs = history.differs(self._repository, empty, commit, history.NO_RENAMES)
            files = self._tasks_of(list(history.read(differs)), tasks, TaskParser(tasks))
            if len(files) > MAX_TASKS:
                raise _unjudged(f"more than {MAX_TASKS} task files cannot be judged")
            done = {(x.path, x.after.resource.key) for x in files if x.after and x.after.is_done}
            each = frozenset((x.path, name) for x in files for name in x.names)
            found = _NamedTasks(commit, tasks, each, each - done)
            self._named_tasks.append(found)
        return found

    def _leases(self, ledger: Ledger, some: Sequence[Touched]) -> Iterator[Lease]:
        for record in cast(GitRecords, ledger.records).below("paths"):
            if isinstance(record, Damage):
                warning = f"{record.shown} cannot be read: what it covers is not guarded"
                self.warnings[warning] = None
            elif self._theirs(record):
                yield record
        for name in dict.fromkeys(name for x in some for name in x.tasks):
            try:
                resource = parse_resource(name)
                # Those that cover paths were given above, among all that do.
                leases = [] if resource.is_path else ledger.leases_of(resource)
            except GitleaseError as damage:
                self.warnings[damage.message] = None
                continue
            yield from (x for x in leases if not x.patterns and self._theirs(x))

    def _theirs(self, lease: Lease) -> bool:
        mine = any(lease.same_holder(Actor(holder)) for holder in self._holders)
        return lease.state is State.ACTIVE and not mine


def _unjudged(what: str) -> Illegal:
    return Illegal(
        "too-large", f"{what}, while others hold leases", hints=("push it in smaller parts",)
    )


def _instant(wall_ms: int) -> Instant:
    return Instant(wall_ms=wall_ms, boot_ms=wall_ms, boot_id="server")


def lost(
    repository: Repository, refs: ServerRefs, moves: Sequence[RefMove], pusher: Sequence[str]
) -> tuple[list[str], bool]:
    """The commits that these moves may lose, and whether there are too many.

    Those are the commits that none of the server's refs has any more; of the branch that HEAD names
    also those that another ref has: they had landed; of other branches only those of others: the
    pusher may take back their own. ``pusher`` are the pusher's addresses. Raises Invalid if git
    does not answer.
    """
    moved, landed = set[str](), list[tuple[str, str]]()
    dropped, old, kept = list[str](), list[str](), set[str]()
    for move in moves:
        if not move.old:
            continue
        name = refs.moved(move.ref)
        moved.add(name)
        if move.new:
            # git may move some refs of a push and refuse others: a moved ref keeps only commits
            # that it has both before and after.
            answer = ask(repository, "merge-base", "--all", move.old, move.new)
            if answer.timed_out:
                raise Invalid("what is pushed cannot be listed")
            # Another code: histories that have nothing in common, or no histories.
            bases = answer.out.decode("ascii", "replace").split()
            kept |= set(bases if answer.code == 0 else ())
        if move.new and name == refs.main:
            landed.append((move.old, move.new))
        elif move.old not in kept:
            (dropped if name == refs.main else old).append(move.old)
    moved |= {alias for alias, name in refs.points.items() if name in moved}
    # Not --all: that has HEAD too, and those of work trees, which move with their branches.
    others = (*(f"--exclude={name}" for name in sorted(moved)), "--glob=refs/*")
    return lost_commits(
        repository,
        landed=landed,
        dropped=dropped,
        others=old,
        kept=kept,
        refs=others,
        holders=pusher,
        strict=True,
    )
