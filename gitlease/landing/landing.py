"""Lands a finished task: status, commit, base, and one atomic push with the completed lease.

1. What is to land is made beside the work tree (``replay``): a conflict changes nothing.
2. Then the branch and its work tree move there, the check runs, and the push decides. The branch
   goes back if it is refused.
3. Killed at any point, the next ``land`` begins again from the branch as it is. A finished task is
   not finished twice, since its file and the trailer of its commit say so; nor is it pushed twice,
   since the base has that commit then.
4. Who is overtaken stands in the line of waiters, so that landings come in the order of arrival.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cached_property
from typing import ClassVar

from gitlease.guard.message import MessageReading, with_trailers
from gitlease.kernel.git.branches import Branches
from gitlease.kernel.git.files import Table, Unreadable, notes_of
from gitlease.kernel.git.mainline import ABSENT, MainFile, Presence, read_file_at
from gitlease.kernel.git.objects import BLOB, objects_of
from gitlease.kernel.git.repository import (
    CHECKOUT,
    Repository,
    ask,
    ask_line,
    commit_of,
    fit_name,
)
from gitlease.kernel.git.run import (
    group_is_left,
    local_variables_cleared,
    signal_group,
    started_at,
    still_runs,
)
from gitlease.kernel.ledger import acts
from gitlease.kernel.ledger.edges import find_task
from gitlease.kernel.ledger.heads import HeadWatcher
from gitlease.kernel.ledger.ledger_session import LedgerSession, LedgerView
from gitlease.kernel.ledger.ports import TaskProblem
from gitlease.kernel.ledger.transaction import fresh_id
from gitlease.kernel.ledger.wait import WaitQueue
from gitlease.kernel.rules.edge import EdgeEdit, Progress, Task
from gitlease.kernel.rules.errors import (
    GitleaseError,
    Invalid,
    NotFound,
    PolicyRefused,
    Unavailable,
    UnknownOutcome,
    UsageError,
    hint,
    shown,
)
from gitlease.kernel.rules.frozen import dataclass, replace
from gitlease.kernel.rules.lease import State, holder_has, same_person
from gitlease.kernel.rules.lease_view import LeaseView
from gitlease.kernel.rules.moves.operations import Complete, Operation, Renew
from gitlease.kernel.rules.resources import WHOLE, Resource, parse_resource
from gitlease.kernel.rules.work import trailer
from gitlease.kernel.settings.schema import Location, Tasks
from gitlease.kernel.store.private_store import make_folder
from gitlease.landing.fenced_push import FencedPush, PushRefused
from gitlease.landing.plan import NotAtomic, PushRequest
from gitlease.landing.replay import CommitData, MergeConflict, Replay, listed
from gitlease.landing.tether import start_tethered
from gitlease.tasks.edge_commit import IndexEntry, UserGit
from gitlease.tasks.edit import change_file, edit_task, read_place
from gitlease.tasks.files import merged, read_lines
from gitlease.tasks.reading import value_of
from gitlease.tasks.scan import MAX_BYTES, Wanted, printable

TRIES = 25  # times that others may land first
RACES = 3  # times that the host may say so, and show nothing that moved
COURTESY = 60.0  # seconds that whoever stands before may take without news of them
LOOK = 1.0  # seconds between two looks at the line
TICKET = 20.0  # seconds for which a place in the line is kept: nobody waits long for the dead
UNENDING = 5.0  # seconds from TERM to KILL of a check
EDGES = ("assign", "unassign", "set", "finish")  # words with which commits of edges begin
NO_FENCE = "the host has no atomic pushes: that nobody else took it meanwhile was not enforced"


class CheckFailed(GitleaseError):
    """The command that was to judge the result ended with another status than 0."""

    code: ClassVar[str] = "violations"


@dataclass(frozen=True, kw_only=True)
class LandOptions:
    """``base`` is the branch to land on; None: the remote's main branch.

    ``by``: ``rebase`` or ``merge``, where the base has moved on; None: as the project has it set.
    ``check`` are the words of a command that runs on the result, ``hooks`` those of pushes. Without
    ``push`` the branch stays as it would land, and the lease as it is.
    """

    base: str | None = None
    by: str | None = None
    check: tuple[str, ...] = ()
    unfenced: bool = False
    hooks: bool = True
    push: bool = True


@dataclass(frozen=True, kw_only=True)
class Landed:
    """``commit`` is the task's last one on the branch ``base`` of ``remote``.

    ``commits`` counts those that landed now. ``fenced``: that push completed the ``leases``, too.
    """

    resource: str
    commit: str
    base: str
    remote: str
    already: bool = False
    commits: int = 0
    fenced: bool = True
    leases: tuple[LeaseView, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class LandingTarget:
    """The branch of a remote that work lands on, and the ref that is its copy in the clone."""

    remote: str
    branch: str

    @property
    def ref(self) -> str:
        return f"refs/remotes/{self.remote}/{self.branch}"


@dataclass(frozen=True)
class LandingPlace:
    """A work tree to land from: its repository and ledger, and how it reads tasks.

    ``main`` finds the remote's main branch.
    """

    repository: Repository
    tasks: Tasks
    location: Location
    main: Callable[[], str | None]

    def target(self, base: str | None) -> LandingTarget:
        """Where to land. Raises UsageError for a ``base`` that is no name of a branch."""
        name = self.location.name
        if self.location.url is None or name is None:
            raise UsageError("there is no remote with a name here to land on")
        if base is not None:
            for prefix in ("refs/heads/", "refs/remotes/", f"{name}/"):
                base = base.removeprefix(prefix)
            if ask(self.repository, "check-ref-format", "--branch", base).code != 0:
                raise UsageError(f"{shown(base)} is no name of a branch")
            return LandingTarget(name, base)
        main = Branches(self.repository).tracked(self.main() or "")
        if main is None or main[0] != name:
            way = hint("name it: {}", base="BRANCH")
            raise Invalid(f"the main branch of {name} is not known here", hints=(way,))
        return LandingTarget(*main)

    def fetch(self, target: LandingTarget) -> None:
        """Bring the copy of a branch to land on up to date. Raises NotFound without it."""
        remote, branch = target.remote, target.branch
        try:
            Branches(self.repository).fetch(remote, branch)
        except Unavailable as error:
            if "find remote ref" not in error.message:
                raise
            why, known = f"{remote} has no branch {branch} to land on", self.main()
            hints: tuple[str, ...] = ()
            if known is not None and known != target.ref:
                words = ("git", "push", remote, f"{known}:refs/heads/{branch}")
                hints = (f"make it first: {shlex.join(words)}",)
            raise NotFound(why, hints=hints) from None


class Lander:
    """One landing from one work tree; ``keep`` renews a task's lease in a block."""

    def __init__(
        self,
        session: LedgerSession,
        fenced: FencedPush,
        place: LandingPlace,
        options: LandOptions,
        *,
        keep: Callable[[Resource], AbstractContextManager[object]],
        tell: Callable[[str], None],
    ) -> None:
        self._session = session
        self._fenced = fenced
        self._place = place
        self._repository = place.repository
        self._tasks = place.tasks
        self._options = options
        self._keep = keep
        self._tell = tell
        self._git = UserGit(place.repository)
        self._wanted = Wanted(place.tasks)
        self._replay = Replay(self._git)
        self._watcher = HeadWatcher(session)
        self._edge: tuple[str, bytes] | None = None  # the task's file, and how it was found
        self._plain: bytes | None = None  # that file without its edge, once it was taken out
        self._changed_before = frozenset[str]()
        self._staged: dict[str, IndexEntry] = {}  # which any move of the branch takes back
        self._refused = ""  # the words of the last refusal
        self._races = 0  # lost ones, although nothing has moved
        self._stash = ""  # a word for git, where something is not committed

    def land(self, resource: Resource | None = None) -> Landed:
        """Land the task, or the only one that this session holds. A refusal names its task."""
        self._session.check_holder()
        make_folder(self._git.state)
        with _only_landing(self._repository):
            return self._land(resource)

    def _land(self, resource: Resource | None) -> Landed:
        self._git.check_state("nothing lands before it has ended")
        self._git.wait_while(lambda: os.path.lexists(self._git.index_lock))
        self._branch, self._head = self._git.tip()
        self._at = self._head
        self._target = self._place.target(self._options.base)
        self._ref = self._target.ref
        line = WaitQueue(
            self._session, [parse_resource(f"landing:{fit_name(self._target.branch)}")], WHOLE
        )
        self._line = line
        view = self._session.look()
        before = self._session.take_warnings()
        try:
            self._resource = resource or self._only_one(view)
        except UsageError as error:
            raise error.with_(warnings=(*before, *error.warnings)) from None
        try:
            landed = self._land_task(view)
        except GitleaseError as error:
            resource_name = error.resource or self._resource.text
            warnings = tuple(dict.fromkeys((*before, *error.warnings)))
            raise error.with_(resource=resource_name, warnings=warnings) from error.__cause__
        return replace(landed, warnings=(*before, *landed.warnings))

    def _land_task(self, view: LedgerView) -> Landed:
        resource, edges = self._resource, self._session.edges
        otherwise = "and only tasks land: push it, and release it"
        if resource.is_path:
            raise UsageError(f"{resource} is a path, {otherwise}")
        self._place.fetch(self._target)
        # After the fetch, which may show what another work tree has landed meanwhile.
        earlier = self._landed_before(view)
        if earlier is not None:
            return earlier
        mine = [x for x in view.leases if x.resource == resource and x.state is State.ACTIVE]
        self._leases = [x for x in mine if x.same_holder(self._session.actor)]
        plan = edges.plan_end([resource], status=edges.rules.word(Progress.DONE))[0]
        edges.refuse_new_id(plan)
        if acts.is_no_task(self._session, plan):
            why = NotFound(f"{resource} is not a task, {otherwise}")
            raise edges.on_a_branch(resource) or why
        forgotten = self._check_changes(view)
        _ = self._file  # looked up while it is there: what is done about it needs its name
        # The check and the line of waiters may take longer than the lease lasts.
        with self._keep(resource):
            landed = self._carry_out()
        late = self._written_meanwhile()
        return replace(landed, warnings=(*forgotten, *landed.warnings, *late))

    # --- what, and where ------------------------------------------------------------------------

    def _only_one(self, view: LedgerView) -> Resource:
        actor = self._session.actor
        mine = {
            x.resource: None
            for x in view.leases
            if x.state is State.ACTIVE and not x.resource.is_path
            if x.answers_to(actor) and holder_has(x, view.moment)
        }
        if not mine:  # an interrupted landing may have completed it
            named = self._named(self._replay.read(self._head))
            ended = (x for x in view.leases if (x.resource.key, x.token) in named)
            mine = {x.resource: None for x in ended if x.same_holder(actor)}
        if len(mine) == 1:
            return next(iter(mine))
        names = [x.text for x in mine]
        raise UsageError(
            f"you hold several tasks here: {', '.join(names)}" if mine else "you hold no task here",
            hints=tuple(hint("", "land", resource=x) for x in names) or ("name the task to land",),
        )

    def _landed_before(self, view: LedgerView) -> Landed | None:
        """The earlier landing; None if it is to land now. Raises the refusal if it is not held."""
        session = self._session
        resource = self._resource
        refusal: GitleaseError | None = None
        had = [x for x in view.leases if x.resource == resource and x.same_holder(session.actor)]
        mine = had
        try:
            renewal = Renew(id=fresh_id(), actor=session.actor, resource=resource)
            session.transaction.decided(view.head, [renewal])
        except GitleaseError as error:
            refusal, mine = error, [x for x in had if x.state is State.COMPLETED]
        there = merged(self._repository, self._ref, session.layer, mine)
        task = self._task_at(self._ref) if there or mine else None
        # Its lease is completed below, which nothing may rest on that could not be read.
        if refusal is None and there and task is None:
            why = self._why_unreadable(self._ref)
            if why:
                raise Invalid(f"{why}, so it is unknown whether {resource} has landed")
        rest = self._replay.between(self._ref, self._head)
        if refusal is not None and task is not None and task.is_done and not rest:
            there = there or mine  # without a trailer, or with one on another branch as well
        if there and (refusal is not None or not rest) and (task is None or task.is_done):
            leases = session.views_in(view.head, there)
            if refusal is None:  # a landing without a fence was interrupted after its push
                leases = acts.complete(session, resource, commit=False, any_name=True).leases
            named = f"--grep=^Gitlease: {trailer(there[0], session.layer)}$"
            tip = ask_line(self._repository, "rev-list", "-1", named, self._ref, "--")
            return replace(self._landed(tip or self._head), already=True, leases=leases)
        if refusal is not None and mine:
            why = f"{resource} is completed, but its work is not on {self._target.branch}"
            raise PolicyRefused(why, hints=(hint("to push it all the same: {}", "push"),))
        if refusal is not None and rest and (had or acts.taken_from(session, resource)):
            commits = f"commit {rest[0][:10]}"
            if len(rest) > 1:
                commits = f"{len(rest)} commits, {rest[0][:10]} the oldest,"
            refusal = refusal.with_(message=f"{refusal.message}; {commits} would land under it")
        if refusal is not None:
            raise refusal
        return None

    def _landed(self, tip: str, commits: int = 0) -> Landed:
        return Landed(
            resource=self._resource.text,
            commit=tip,
            base=self._target.branch,
            remote=self._target.remote,
            commits=commits,
            fenced=not self._options.unfenced,
        )

    def _check_changes(self, view: LedgerView) -> list[str]:
        """Raise Invalid for changes that are not committed; a warning of new files."""
        # The caller's edges need not be: the task's lands, and those of others stay as they are.
        git = self._git
        actor = self._session.actor
        changed = self._changed("HEAD")
        self._stash = "--autostash " if changed else ""
        tasks = {x.file: x for x in self._session.edges.files.read().tasks} if changed else {}
        held = {x.resource for x in view.leases if x.same_holder(actor)}
        refused = [x for x in changed if x not in tasks or tasks[x].resource not in held]
        for file in changed:
            if file in tasks and tasks[file].resource == self._resource:
                self._edge = (file, read_place(git.toplevel, file))
                refused += [file] * (
                    not self._is_committed_but_for_edge(tasks[file], self._edge[1])
                )
        # The move of the branch would drop what is staged and in no commit and no file.
        if staged := self._changed("--cached"):
            refused += sorted((staged.keys() & self._changed().keys()) - {*refused})
            self._staged = {x: entries[0] for x, entries in git.staged([*staged]).items()}
        self._changed_before = frozenset(changed)
        if refused:
            raise Invalid(
                f"not committed, so it would not land: {listed(refused)}",
                hints=("commit it, or put it aside with git stash, and land then",),
            )
        new = unknown_files(self._repository)
        return [f"not in git, so it does not land: {listed(new)}"] if new else []

    def _changed(self, *against: str) -> dict[str, None]:
        """The files that differ between two of HEAD, the index and the work tree, as git diff."""
        words = ("diff", "--name-only", "-z", *against, "--")
        listing = self._git.ask(*words, what="git cannot compare")
        return dict.fromkeys(os.fsdecode(x) for x in listing.split(b"\0") if x)

    def _written_meanwhile(self) -> list[str]:
        """Warn of changes that were made during the landing, and are no part of it."""
        with suppress(GitleaseError):
            edge = {self._edge[0]} if self._edge is not None else set[str]()
            before = self._changed_before - edge
            late = [x for x in self._changed("HEAD") if x not in before]
            if late:
                return [f"changed during the landing, so the change did not land: {listed(late)}"]
        return []

    # --- carrying it out ------------------------------------------------------------------------

    def _carry_out(self) -> Landed:
        """Land, again on the new base each time that others landed first."""
        try:
            for number in range(TRIES):
                self._wait_in_line(overtaken=number > 0)
                landed = self._try()
                if landed is not None:
                    return landed
            raise Unavailable(
                f"others landed first {TRIES} times", hints=("try again in a moment",)
            )
        except UnknownOutcome as error:  # the branch stays, by which the next landing finds out
            way = hint("once the remote answers: {}", "land", resource=self._resource.text)
            raise error.with_(hints=(*error.hints, way)) from None
        except BaseException as error:
            kept = self._go_back()
            self._line.leave()
            if not kept or not isinstance(error, GitleaseError):
                raise
            raise error.with_(hints=(*error.hints, kept)) from None

    def _try(self) -> Landed | None:
        self._place.fetch(self._target)
        onto = commit_of(self._repository, self._ref)
        tip = self._finished(onto, self._brought(onto))
        self._check_finished(tip)
        self._take_out_edge()
        self._move(tip)
        self._check()
        if not self._options.push:
            return self._landed(tip, len(self._replay.between(onto, tip)))
        known = self._session.store.known(self._session.layer)
        try:
            return self._push(onto, tip)
        except PushRefused as refusal:
            self._place.fetch(self._target)
            base = commit_of(self._repository, self._ref)
            there = self._session.store.peek([self._session.layer]).get(self._session.layer)
            has_moved = base != onto or known is None or known.version != there
            if self._is_final(refusal, has_moved=has_moved):
                raise
            return None

    def _is_final(self, refusal: PushRefused, *, has_moved: bool) -> bool:
        """Return whether another try would be refused as well."""
        before = self._refused
        self._refused = refusal.message
        if not refusal.is_race:
            # Said again in the same words, it has nothing to do with what moved.
            return not has_moved or refusal.message == before
        if has_moved:
            return False
        # A replica may show old refs for a while.
        self._races += 1
        self._watcher.nap(LOOK * self._session.terms.dice.uniform(0.5, 1.5))
        return self._races > RACES

    def _wait_in_line(self, *, overtaken: bool) -> None:
        """Let those land first who were overtaken before."""
        line, clock = self._line, self._session.clock
        ahead = line.place(self._watcher.refresh()).ahead
        if not overtaken and not ahead:
            return
        line.take(TICKET)
        best = ahead + 1
        since = clock.now()
        while (ahead := line.place(self._watcher.look()).ahead) > 0:
            if ahead < best:
                best = ahead
                since = clock.now()
            if line.runs_out(TICKET / 2):
                line.take(TICKET)
            # Whoever is first may be dead: their place must not hold up all others.
            if since.elapsed_at_most(clock.now()) > COURTESY * 1_000:
                return
            self._watcher.nap(LOOK * self._session.terms.dice.uniform(0.5, 1.5))

    # --- the result -----------------------------------------------------------------------------

    def _brought(self, onto: str) -> str:
        """The work on top of the base, or merged with it. Raises MergeConflict."""
        replay = self._replay
        head = self._head
        name = self._branch.removeprefix("refs/heads/")
        bases = replay.bases(onto, head)
        commits = replay.between(onto, head)
        if not bases:
            why = f"{name} has no commit in common with {self._target.branch}"
            raise Invalid(why, hints=("in a shallow clone: git fetch --unshallow",))
        datas = [replay.read(x) for x in commits]
        # A rebase would take merges apart, and what they resolved.
        by_merge = self._options.by == "merge" or any(len(x.parents) > 1 for x in datas)
        work = [x for x, data in zip(commits, datas, strict=True) if not self._is_edge(x, data)]
        if onto in bases and (
            by_merge
            or work == commits
            or not all(data.plain for data in datas)
            or not self._is_unpushed(commits[0])
        ):
            return head
        try:
            if by_merge:
                return replay.merged(onto, head, self._tasks.subject(f"Merge branch '{name}'"))
            with suppress(MergeConflict):
                # Without the commits of the edge, which the finished task would only take back.
                return replay.replayed(onto, work)
            return replay.replayed(onto, commits)
        except MergeConflict as conflict:
            there = f"{self._target.remote}/{self._target.branch}"
            raise conflict.with_(
                message=f"conflict with {there} in {listed(conflict.files)}: nothing has changed",
                hints=(
                    f"resolve it by git {'merge' if by_merge else 'rebase'} {self._stash}{there}, "
                    "then land",
                ),
            ) from None

    def _is_edge(self, commit: str, data: CommitData) -> bool:
        """Return whether a commit only has an edge of this task, which need not land by itself."""
        subject = data.text.partition("\n")[0].removeprefix(self._tasks.commit_prefix)
        words = subject.split()
        if len(data.parents) != 1 or words[1:2] != [self._resource.text] or words[0] not in EDGES:
            return False
        task = self._task_at(commit)
        parent = data.parents[0]
        pair = ("diff-tree", "-r", "--name-only", "-z", parent, commit)
        files = self._git.ask(*pair, what="git cannot compare")
        if not self._is_own(data) or task is None or files != os.fsencode(task.file) + b"\0":
            return False
        with suppress(GitleaseError):
            before, after = (self._text(x, task.file) for x in (parent, commit))
            return self._is_edge_alone(task, before, after)
        return False

    def _is_committed_but_for_edge(self, task: Task, text: bytes) -> bool:
        """Return whether a task's text in the work tree is HEAD's, but for the caller's edge."""
        with suppress(GitleaseError):  # HEAD need not have it
            return self._is_edge_alone(task, self._git.checked_out("HEAD", task.file), text)
        return False

    def _is_edge_alone(self, task: Task, before: bytes, after: bytes) -> bool:
        """Return whether a task's file is as it was before, but for an edge of the caller."""
        word = self._session.edges.rules.word(Progress.DONE)
        with suppress(GitleaseError):
            return self._edited(task, before, word) == self._edited(task, after, word)
        return False

    def _text(self, commit: str, file: str) -> bytes:
        """A file of a commit, through the filters of a checkout. Raises Invalid."""
        found = read_file_at(self._repository, commit, file, limit=MAX_BYTES)
        if found.presence is not Presence.KNOWN:
            raise Invalid(found.why or f"{printable(file)} is not in {commit[:10]}")
        return found.data

    def _blob(self, name: str) -> bytes:
        try:
            return objects_of(self._repository).named(name, BLOB, MAX_BYTES)
        except Unreadable as why:
            raise Invalid(f"{printable(name)} cannot be read: it {why}") from None

    def _is_own(self, data: CommitData) -> bool:
        return same_person(data.email, self._session.actor.holder)

    def _is_unpushed(self, commit: str) -> bool:
        result = self._git.run("rev-list", "-1", commit, "--not", "--remotes", "--")
        return result.code == 0 and result.out.decode().strip() == commit

    def _finished(self, onto: str, tip: str) -> str:
        """The commit with the task's status, and with the trailer of its lease."""
        replay = self._replay
        data = replay.read(tip)
        new = replay.between(onto, tip)
        tree = self._finished_tree(tip) or data.tree
        named = {x for commit in new for x in self._named(replay.read(commit))}
        is_named = not new or all((x.resource.key, x.token) in named for x in self._leases)
        if tree == data.tree and is_named:
            return tip
        trailers = [trailer(x, self._session.layer) for x in self._leases]
        folds = data.plain and self._is_own(data)
        # Made anew is only one's own last commit, unsigned and seen by nobody else.
        if new and folds and self._is_unpushed(tip):
            message = with_trailers(data.message, trailers, MessageReading())
            return replay.commit(tree, data.parents, message, like=data)
        subject = f"{self._tasks.subject(f'Finish {self._resource}')}\n".encode()
        message = with_trailers(subject, trailers, MessageReading())
        return tip if tree == data.tree else replay.commit(tree, (tip,), message)

    def _named(self, data: CommitData) -> set[tuple[str, int]]:
        return {(x.key, x.token) for x in read_lines(data.text.splitlines())}

    def _finished_tree(self, tip: str) -> str | None:
        """The tree of a commit with its task finished in the task file; None if it is finished."""
        task = self._task_at(tip)
        if task is None:
            return None
        others = self._is_shared()
        word = self._session.edges.rules.word(Progress.DONE)
        entry = self._git.committed(tip, [task.file])[task.file]
        old = self._blob(f"{tip}:{task.file}")
        text = self._text(tip, task.file)
        new = self._edited(task, text, None if others or task.is_done else word)
        if new == text:
            return None
        # What git has of a file with a filter need not be readable.
        blob = self._git.write([new])[0] if text == old else self._git.write_added(task.file, new)
        return self._git.tree(tip, {task.file: replace(entry, blob=blob)})

    def _is_shared(self) -> bool:
        """Return whether others work on other scopes of the task, which is not done then."""
        actor, known = self._session.actor, self._session.decisions.known_records(self._resource)
        return any(x.state is State.ACTIVE and not x.same_holder(actor) for x in known)

    def _check_finished(self, tip: str) -> None:
        """Raise Invalid unless a checkout of this commit has the task done, and nobody on it."""
        task = self._task_at(tip)
        name = self._resource.text
        people, holder = self._session.edges.rules.people, self._session.actor.holder
        if task is not None:
            mine = [x for x in task.assigned if people.is_mine(x, holder)]
            if not mine and (task.is_done or self._is_shared()):
                return
            state = f"assigned to {mine[0]}" if mine else shown(task.status)
            raise self._unclear(f"{printable(task.file)} would still say that {name} is {state}")
        why = self._why_unreadable(tip)
        if why:
            raise self._unclear(why)
        if self._file and self._file_at(self._head) is ABSENT:  # else the work has removed it
            raise Invalid(
                f"not in git, so it would not land as done: {printable(self._file)}",
                hints=("commit it, and land then",),
            )

    def _unclear(self, why: str) -> Invalid:
        hints: tuple[str, ...] = ()
        if self._file and self._file.isprintable():
            words = shlex.join(["git", "check-attr", "filter", "--", self._file])
            hints = (f"a filter may change it on the way: {words}",)
        return Invalid(f"{why}: nothing has landed", hints=hints)

    @cached_property
    def _file(self) -> str:
        """The task's file in the work tree, ``""`` if there is none."""
        task = find_task(self._session.edges.files.read(), self._resource, lenient=True)
        return "" if task is None else task.file

    def _why_unreadable(self, ref: str) -> str:
        """Why a ref's task cannot be read; ``""`` if it can, or if its file is not there."""
        found = self._file_at(ref)
        if found.presence is not Presence.KNOWN:
            return found.why
        value = value_of(found.data, file=self._file, tasks=self._tasks, wanted=self._wanted)
        if isinstance(value, TaskProblem):
            return value.message
        return "" if value is not None else f"{printable(self._file)} is no task in a checkout"

    def _file_at(self, ref: str) -> MainFile:
        """The task's file at a ref, as a checkout would write it."""
        if not self._file:
            return ABSENT
        commit = commit_of(self._repository, ref)
        found = read_file_at(self._repository, commit, self._file, limit=MAX_BYTES)
        if found.presence is Presence.UNKNOWN:
            # git itself fetches what a partial clone lacks.
            self._git.run("cat-file", "-s", f"{commit}:{self._file}")
            found = read_file_at(self._repository, commit, self._file, limit=MAX_BYTES)
        return found

    def _edited(self, task: Task, data: bytes, status: str | None) -> bytes:
        """The bytes of a task's file with this status, and without the caller's name."""
        people, holder = self._session.edges.rules.people, self._session.actor.holder
        mine = (x for x in task.assigned if people.is_mine(x, holder))
        edit = EdgeEdit(remove=(*mine, people.name_of(holder)), status=status)
        return edit_task(data, file=task.file, tasks=self._tasks, edit=edit, of=task.resource)

    def _task_at(self, ref: str) -> Task | None:
        task = find_task(self._session.edges.files.read(ref), self._resource, lenient=True)
        if task is None and (found := self._file_at(ref)).presence is Presence.KNOWN:
            file, wanted = self._file, self._wanted
            value = value_of(found.data, file=file, tasks=self._tasks, wanted=wanted)
            if isinstance(value, Task) and value.resource == self._resource:
                return value
        return task

    # --- the work tree --------------------------------------------------------------------------

    def _take_out_edge(self) -> None:
        """Give the task's file its committed text, as git would not move over a changed file.

        Raises Invalid if anything else was written into it since the landing began.
        """
        if self._edge is None or self._plain is not None:
            return
        file, edge = self._edge
        self._plain = self._git.checked_out("HEAD", file)
        if not self._replace(file, edge, self._plain):
            self._plain = None
            raise Invalid(
                f"{printable(file)} changed while it waited to land",
                hints=("commit the change, or put it aside with git stash, and land then",),
            )
        # Not quietly: only then does every git note that the file is as the index has it.
        words = ("-c", "reset.quiet=false", "reset", "HEAD", "--", file)
        self._git.ask(*words, what="git cannot read the work tree")

    def _replace(self, file: str, old: bytes, new: bytes) -> bool:
        """Return whether a file has its new text, which replaces only the old one."""
        found = b""

        def change(data: bytes) -> bytes:
            nonlocal found
            found = data
            return new if data == old else data

        aside = os.path.join(self._git.state, "tasks")  # where other edits have theirs
        make_folder(aside)
        change_file(self._git.toplevel, file, change, aside=aside)
        return found in (old, new)

    def _move(self, tip: str) -> None:
        """Move the branch, the index and the work tree to a commit."""
        git, name = self._git, self._branch.removeprefix("refs/heads/")
        if git.tip() != (self._branch, self._at):  # what was committed meanwhile would be lost
            again = hint("to land what is there now: {}", "land", resource=self._resource.text)
            raise Invalid(f"something else has moved {name}: nothing has landed", hints=(again,))
        if tip != self._at:
            # --keep refuses where a file of the user's would be lost.
            result = git.run("reset", "-q", "--keep", tip, timeout=CHECKOUT)
            if result.code != 0:
                way = "if a file of yours is in the way, commit it or put it aside with git stash"
                why = f"the work tree cannot be changed: {result.reason}"
                raise Invalid(why, hints=(way,))
            self._at = tip

    def _go_back(self) -> str:
        """Restore branch and work tree, but for what changed meanwhile. Never fails.

        Returns a sentence about what was kept, ``""`` if everything is as it was.
        """
        shown_file = printable(self._file)
        if self._at == self._head and self._plain is None:
            with suppress(GitleaseError):
                if self._file in self._changed("HEAD").keys() - self._changed_before:
                    return f"{shown_file} changed meanwhile and is kept as it is"
            return ""
        name = self._branch.removeprefix("refs/heads/")
        was = self._head[:12]
        told = ""
        with suppress(GitleaseError, OSError):
            if self._is_removed():
                told = f"{shown_file} was removed meanwhile, and is put back as it was"
            self._move(self._head)
            if self._edge is None or self._plain is None:
                self._restage()
                return told
            file, edge = self._edge
            is_back = self._replace(file, self._plain, edge)
            self._restage()
            if is_back:
                return told
            return f"{printable(file)} changed meanwhile and is kept as it is, without your edge"
        with suppress(GitleaseError, OSError):
            told = self._go_back_around_file()
            if told:
                return told
        kept = f"{name} stays as it is, and was at {was} before"
        with suppress(GitleaseError):
            changed = self._changed("HEAD")
            if changed:
                return f"changed meanwhile and kept: {listed([*changed])}; so {kept}"
        return kept

    def _is_removed(self) -> bool:
        """Return whether the task's file is gone, although the checked out commit has it."""
        path = os.path.join(self._git.toplevel, self._file)
        return not os.path.lexists(path) and self._file in self._git.committed(
            self._at, [self._file]
        )

    def _restage(self) -> None:
        """Stage what was staged before the landing. The files have it as well."""
        if self._staged:
            with suppress(GitleaseError):
                self._git.stage(self._staged)
                self._git.refresh(self._staged)

    def _go_back_around_file(self) -> str:
        """Restore all but the task's file, which was written to, and merge that with its old text.

        Returns a sentence about it; ``""`` if nothing was done. Raises Invalid.
        """
        git, file, tip = self._git, self._file, self._at
        here = git.committed(tip, [file]) if file else {}
        if file not in here or file not in self._changed("HEAD"):
            return ""
        # To git the file is the same in both commits, so that a move between them leaves it alone.
        tree = git.tree(self._head, here)
        words = ("commit-tree", "-p", self._head, "-m", f"Finish {self._resource}", tree)
        beside = git.ask(*words, what="git did not make the commit").decode().strip()
        landing = git.checked_out(tip, file)
        self._move(beside)
        git.ask("reset", "-q", "--soft", self._head, what="git cannot move the branch")
        self._at = self._head
        words = ("-c", "reset.quiet=false", "reset", "HEAD", "--", file)
        git.ask(*words, what="git cannot read the work tree")
        before = self._edge[1] if self._edge is not None else git.checked_out("HEAD", file)
        told = f"{printable(file)} changed meanwhile:"
        try:
            found = read_place(git.toplevel, file)
            merged = git.merged_text(found, landing, before)
            is_merged = merged is not None and self._replace(file, found, merged)
        except GitleaseError:  # a folder or a link has taken its place
            self._restage()
            return f"{told} what is there now is kept, and the branch is back"
        self._restage()
        if is_merged:
            return f"{told} the change is kept beside what was there before"
        return f"{told} it is kept as it is, with the task as it would have landed"

    def _check(self) -> None:
        """Run the check, and keep the place in line meanwhile. Raises CheckFailed."""
        words = self._options.check
        if not words:
            return
        try:
            process = start_tethered(
                words,
                cwd=self._git.toplevel,
                env=local_variables_cleared(os.environ),
                stdin=subprocess.DEVNULL,
                # Standard output is for the answer, perhaps as JSON.
                stdout=sys.stderr,
                process_group=0,  # by which all that it starts can be ended
            )
        except OSError as error:
            raise UsageError(f"{shown(words[0])} cannot be run: {error.strerror}") from None
        with process:
            try:
                while (status := _ended(process, TICKET / 2)) is None:
                    if self._line.ticket:
                        self._line.take(TICKET)
            except BaseException:
                _end(process)
                raise
        # A check that commits would land what it has not judged.
        if status or self._git.tip() != (self._branch, self._at):
            why = f"ended with status {status}" if status else "ran while the branch moved on"
            raise CheckFailed(f"{shlex.join(words)[:200]} {why}: nothing has landed")

    # --- the push -------------------------------------------------------------------------------

    def _push(self, onto: str, tip: str) -> Landed:
        name = self._resource.text
        unfenced = self._options.unfenced
        landed = self._landed(tip, len(self._replay.between(onto, tip)))
        leases: list[LeaseView] = []
        if onto != tip:
            request = PushRequest(
                remote=self._target.remote,
                refspecs=(f"{tip}:refs/heads/{self._target.branch}",),  # what was judged, by its id
                hooks=self._options.hooks,
                atomic=not unfenced,
            )
            try:
                pushed = self._fenced.push(
                    request,
                    require=[self._resource],
                    along=self._ends,
                    unfenced=unfenced,
                    tell=self._tell,
                )
            except NotAtomic as error:
                way = hint("to land without a fence: {}", "land", resource=name, unfenced=True)
                raise error.with_(hints=(*error.hints[:1], way)) from None
            leases = [x for x in pushed.leases if x.resource == name]
            landed = replace(landed, leases=tuple(leases), warnings=pushed.warnings)
        if unfenced or onto == tip:  # or the status was there already
            ended = acts.complete(self._session, self._resource, commit=False, any_name=True)
            warnings = (*landed.warnings, *ended.warnings, *([NO_FENCE] if unfenced else []))
            landed = replace(landed, leases=ended.leases, warnings=warnings)
        return landed

    def _ends(self) -> Sequence[Operation]:
        """The push's operations on the ledger: complete the lease, give up the place in line."""
        end = Complete(
            id=fresh_id(),
            actor=self._session.actor,
            resource=self._resource,
            lease_id=fresh_id(),
            held_only=True,
        )
        return [end, *([self._line.leaving()] if self._line.ticket else [])]


def unknown_files(repository: Repository) -> list[str]:
    """The files and whole folders of a work tree that are not in git, and not ignored."""
    words = ("--others", "--exclude-standard", "--directory", "--no-empty-directory")
    result = ask(repository, "ls-files", "-z", *words)
    return [os.fsdecode(x) for x in result.out.split(b"\0") if x]


def _ended(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    """The exit status of a process that ends within so many seconds, else None."""
    with suppress(subprocess.TimeoutExpired):
        return process.wait(timeout=seconds)
    return None


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a check and what it started: left alone, it would go on with what was put back."""
    until = time.monotonic() + UNENDING
    signal_group(process.pid, signal.SIGTERM)
    while process.poll() is None or group_is_left(process.pid):
        if time.monotonic() >= until:
            signal_group(process.pid, signal.SIGKILL)
            return
        time.sleep(0.01)


# A kind of notes: the process that lands from a work tree, by its git directory.
LANDING = "landing"


@contextmanager
def _only_landing(repository: Repository) -> Iterator[None]:
    """Refuse a second landing from a work tree: two would put back what the other one moved."""
    notes = notes_of(repository.common_dir)
    key = repository.git_dir
    process = os.getpid()

    def begin(tables: dict[str, Table]) -> None:
        match tables[LANDING].get(key):
            case (_, [int() as other, str() as started]) if still_runs(other, started):
                way = "wait until it has ended, and land then"
                raise Invalid("another landing from this work tree is under way", hints=(way,))
        tables[LANDING][key] = time.time(), [process, started_at(process)]

    notes.change(begin)
    try:
        yield
    finally:
        notes.drop(LANDING, key)
