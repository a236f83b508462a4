"""The task files of a repository: found, read through a cache, and changed in the work tree.

And what was finished, and what has been merged, on the main branch that this clone knows.
"""

from __future__ import annotations

import contextlib
import copy
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from gitlease.kernel.git.files import alone, drop_leftovers
from gitlease.kernel.git.mainline import NO_MAIN, MainBranch, is_partial
from gitlease.kernel.git.objects import objects_of
from gitlease.kernel.git.repository import TIMEOUT, Repository, ask, is_on
from gitlease.kernel.git.run import run_git
from gitlease.kernel.ledger.ports import INDEX, Intent, TaskChange, TaskFiles, TaskList, Written
from gitlease.kernel.rules.edge import Task
from gitlease.kernel.rules.errors import GitleaseError, Invalid, NotFound
from gitlease.kernel.rules.frozen import replace
from gitlease.kernel.rules.instant import MS
from gitlease.kernel.rules.lease import Lease
from gitlease.kernel.rules.resources import Resource, fold
from gitlease.kernel.rules.work import KEY, Named, read_trailer
from gitlease.kernel.settings.schema import Tasks
from gitlease.kernel.store.private_store import make_folder
from gitlease.kernel.store.records import STEP
from gitlease.kernel.store.state import Journal, JournalEntry, StateFolder
from gitlease.tasks.scan import (
    FileKind,
    FoundFile,
    IndexTree,
    RefTree,
    Wanted,
    WorkTree,
    printable,
    segments_of,
    walk,
    why_no_task,
)

if TYPE_CHECKING:
    from gitlease.tasks.reading import TaskReader


MOST_LOOKED_AT = 10_000  # entries of a submodule
_NAME = f"{KEY}: "  # begins a line with a trailer
MOST_BRANCHES = 64  # in which an unknown name is looked for


class GitTaskFiles:
    """The task files of one work tree (none in a bare repository) and of its repository's refs.

    ``folder`` is for caches and a lock, ``journal`` for the intents; both are made when needed.
    ``main`` gives the remote's default branch as far as it is known here.
    """

    writes = True

    def __init__(
        self,
        repository: Repository,
        tasks: Tasks,
        *,
        folder: str,
        journal: str,
        main: Callable[[], MainBranch] = lambda: NO_MAIN,
    ) -> None:
        self._repository, self._tasks, self._folder = repository, tasks, folder
        self._wanted = Wanted(tasks)
        self._intents, self._main = journal, main
        self._is_sparse = is_on(repository.config.get("core.sparsecheckout"))

    # What a command without task files has no use for is imported when there are some.

    @cached_property
    def _reader(self) -> TaskReader:
        from gitlease.tasks.reading import TaskReader

        return TaskReader(self._tasks, self._folder)

    @cached_property
    def _journal(self) -> EdgeJournal:
        return EdgeJournal(self._intents)

    @property
    def parsed(self) -> int:
        """How many files this object has parsed."""
        return self._reader.parsed

    # Reading

    def exist(self) -> bool:
        root = self._repository.toplevel
        if root is None:
            return False
        # What cannot be looked into counts: nobody can say that there is no task.
        return any(True for _ in walk(WorkTree(root, self._wanted)))

    def may_exist(self) -> bool:
        """Return whether the work tree, or what a sparse one leaves out, may have task files."""
        return self._is_sparse or self.exist()

    def read(self, ref: str | None = None) -> TaskList:
        root = self._repository.toplevel
        if ref is not None:
            if ref == INDEX:
                return self._reader.read(IndexTree(self._repository, self._wanted), "refs")
            return self._reader.read(RefTree(self._repository, ref, self._wanted), "refs")
        if root is None:
            return TaskList()
        if self.exist():
            # Work trees of one clone share the folder of caches.
            name = sha256(os.fsencode(os.path.realpath(root))).hexdigest()[:16]
            found = self._reader.read(WorkTree(root, self._wanted), f"tree-{name}")
        else:
            found = TaskList(nothing=why_no_task(self._tasks))
        if os.path.isfile(os.path.join(root, ".gitmodules")):
            found = self._with_submodules(found, root)
        return found

    def _with_submodules(self, found: TaskList, root: str) -> TaskList:
        """The tasks found, with the submodules in which task files would be another ledger's."""
        modules = tuple(
            printable(x)
            for x in self._submodules
            if self._wanted.lie_in(x) or _has_some(root, x, self._wanted)
        )
        if not modules:
            return found
        nothing = found.nothing
        if nothing:
            why = "is a submodule, whose tasks are leased in its own repository"
            nothing = "; ".join((nothing, *(f"{module} {why}" for module in modules)))
        return replace(found, submodules=modules, nothing=nothing)

    @cached_property
    def _submodules(self) -> tuple[str, ...]:
        file = os.path.join(self._repository.toplevel or "", ".gitmodules")
        words = ("config", "-z", "-f", file, "--get-regexp", r"^submodule\..*\.path$")
        listed = os.fsdecode(ask(self._repository, *words).out).split("\0")
        return tuple(filter(None, (x.partition("\n")[2].strip("/") for x in listed)))

    def places(self) -> Sequence[str]:
        root = self._repository.toplevel
        if root is None or not os.path.isdir(root):
            return ()
        main = self._main().place
        places = ["HEAD", main] if main else ["HEAD"]
        # Where nothing here is a task, one look at folders spares the rest; that a clone has no
        # folder says nothing where it has only a part of the objects.
        if not self.may_exist() and not is_partial(self._repository):
            folders, objects = self._wanted.folders(), objects_of(self._repository)
            names = [f"{place}:{folder}" for place in places for folder in folders]
            if all(folders) and not any(map(objects.has, names)):
                return ()
        return (INDEX, *places)

    def doubt(self) -> str:
        main = self._main()
        return "" if main.commit else main.why

    def elsewhere(self, here: TaskList) -> Sequence[tuple[str, TaskList]]:
        if self._repository.toplevel is None:
            return ()
        paths = {t.file for t in here.tasks} | {p.file for p in here.problems} | {*here.others}
        lists: list[tuple[str, TaskList]] = []

        def read(ref: str, tree: RefTree, files: Iterable[FoundFile]) -> None:
            if some := [x for x in files if x.kind is FileKind.FILE or ref == main]:
                lists.append((ref, self._reader.read(tree, "refs", some)))

        # Names are compared first: of a checkout that equals its branch no file is read.
        head, main = self._tree("HEAD"), self._main().place
        names = list(walk(head, paths)) if head else []
        absent = [x for x in names if x.path not in paths]
        # What HEAD has and nobody can read is as unknown on the default branch.
        broken = {x.path for x in absent if x.kind is FileKind.PROBLEM}
        if self._is_sparse or absent or head is None:
            index = IndexTree(self._repository, self._wanted)
            read(INDEX, index, (x for x in walk(index, paths) if x.path not in paths))
        if head is not None:
            read("HEAD", head, absent)
            broken |= {p.file for ref, found in lists if ref == "HEAD" for p in found.problems}
        tree = self._tree(main) if main else None
        if tree is not None and (head is None or broken or tree.root != head.root):
            # Equal blobs at equal paths were read at HEAD already.
            known = [x for x in names if x.path not in broken]
            same, at_head = {x.key for x in known if x.key}, {*known}
            files = (x for x in walk(tree, same) if x.key not in same and x not in at_head)
            read(main, tree, files)
        return lists

    def on_a_branch(self, resource: Resource) -> tuple[str, Task] | None:
        if self._repository.toplevel is None:
            return None
        # An unknown name, perhaps mistyped, must not read the trees of all branches.
        form = ("--sort=-committerdate", f"--count={MOST_BRANCHES}", "--format=%(refname)")
        result = ask(self._repository, "for-each-ref", *form, "refs/heads/", "refs/remotes/")
        seen = set[str]()
        for ref in os.fsdecode(result.out).splitlines():
            try:
                tree = self._tree(ref)
                fresh = [] if tree is None else [x for x in walk(tree) if x.key not in seen]
            except Invalid:  # more than can be looked at
                continue
            seen |= {x.key for x in fresh}
            files = [x for x in fresh if x.kind is FileKind.FILE]
            if tree is None or not files:
                continue
            for task in self._reader.read(tree, "refs", files).tasks:
                if task.resource == resource:
                    return ref, task
        return None

    def _tree(self, ref: str) -> RefTree | None:
        try:
            return RefTree(self._repository, ref, self._wanted)
        except NotFound:  # no commit yet
            return None

    def assigned_since(self, task: Task, name: str, ref: str | None) -> int | None:
        repository, file = self._repository, f":(top,literal){task.file}"
        if ref in (None, INDEX):  # a name that is not committed counts from the file's own time
            result = ask(repository, "cat-file", "blob", f"HEAD:{task.file}")
            # Not committed: the time of its file is the best that is known.
            if result.code != 0 or name.encode() not in result.out:
                with contextlib.suppress(OSError):
                    root = repository.toplevel or ""
                    return os.stat(os.path.join(root, task.file)).st_mtime_ns // 1_000_000
                return None
            ref = "HEAD"
        # The last commit that added or removed the name, not one that touched the file.
        search = (f"-S{name}", "--no-textconv") if name else ()
        words = ("log", "-1", "--format=%at", *search, "--end-of-options", ref or "HEAD")
        result = ask(repository, *words, "--", file)
        text = result.out.decode("ascii", "replace").strip()
        return int(text) * MS if result.code == 0 and text.isdigit() else None

    # Changing

    def check(self, changes: Sequence[TaskChange], *, commit: bool) -> None:
        if not changes:
            return
        root = self._root()
        contents = {}
        from gitlease.tasks.edit import read_place

        for change in changes:
            with _errors_name_task(change):
                contents[change.file] = read_place(root, change.file)
        from gitlease.tasks.edit import ask_git

        # Once for all files: each git costs as much as the rest of the check.
        refused = ask_git(self._repository.git_dir, root, list(contents))
        for change in changes:
            with _errors_name_task(change):
                if change.file in refused:
                    raise refused[change.file]
                self._edit(change, contents[change.file])
        if commit:
            from gitlease.tasks.edge_commit import check_commit

            check_commit(self._repository, self._tasks, changes)

    def write(self, changes: Sequence[TaskChange], *, commit: bool) -> tuple[Written, ...]:
        if not changes:
            return ()
        root = self._root()
        make_folder(self._folder)
        # Two processes of this clone that edit one file would each undo what the other wrote.
        with alone(self._folder):
            written = [self._write(root, change) for change in changes]
            if any(each.changed for each in written):
                drop_leftovers(self._folder)
        return tuple(self._commit(written) if commit else written)

    def _commit(self, written: Sequence[Written]) -> list[Written]:
        made, problem = None, ""
        good = [each.change for each in written if not each.problem]
        try:
            # Commits of one clone move the same branch: in turns none of them has to try again.
            with StateFolder(os.path.dirname(self._intents)).turn(TIMEOUT, lambda: None):
                from gitlease.tasks.edge_commit import commit_edges

                made = commit_edges(self._repository, self._tasks, good) if good else None
        except Invalid as error:
            problem = f"it is not committed: {error.message}"
        in_head = made is None and not problem
        return [
            x if x.problem else replace(x, commit=made, problem=problem, in_head=in_head)
            for x in written
        ]

    def _write(self, root: str, change: TaskChange) -> Written:
        edit = partial(self._edit, change)
        try:
            from gitlease.tasks.edit import change_file

            return Written(change, change_file(root, change.file, edit, aside=self._folder))
        except Invalid as error:
            return Written(change, False, problem=error.message)

    def _edit(self, change: TaskChange, data: bytes) -> bytes:
        from gitlease.tasks.edit import edit_task

        return edit_task(
            data, file=change.file, tasks=self._tasks, edit=change.edit, of=change.resource
        )

    def _root(self) -> str:
        if self._repository.toplevel is None:
            raise Invalid(
                "a bare repository has no task files to edit",
                hints=("work in a clone of it, or in a work tree: git worktree add PATH",),
            )
        return self._repository.toplevel

    # Intents

    def intend(self, intent: Intent) -> None:
        if not intent.root:
            intent = replace(intent, root=self._repository.toplevel or "")
        self._journal.intend(intent)

    def settled(self, intent: Intent) -> None:
        self._journal.settled(intent)

    def leave(self, intent: Intent) -> None:
        self._journal.leave(intent)

    def left_behind(self) -> Sequence[Intent]:
        return self._journal.left_behind() if os.path.isdir(self._intents) else ()

    def at(self, root: str) -> GitTaskFiles | None:
        """The same for another work tree of this clone; None where there is none (any more)."""
        mine = self._repository
        if mine.toplevel is not None and os.path.realpath(root) == os.path.realpath(mine.toplevel):
            return self
        if not os.path.lexists(os.path.join(root, ".git")):
            return None
        words = ("rev-parse", "--path-format=absolute", "--git-dir", "--git-common-dir")
        result = run_git(words, cwd=root, timeout=TIMEOUT)
        places = os.fsdecode(result.out).splitlines()
        # A folder that was a work tree of this clone once may be one of another now.
        if result.code != 0 or len(places) != 2 or not os.path.samefile(places[1], mine.common_dir):
            return None
        git_dir, common_dir = places
        name = None if git_dir == common_dir else os.path.basename(git_dir)
        self._journal  # the intents of both are one's own  # noqa: B018
        files = copy.copy(self)
        files._repository = replace(mine, toplevel=root, git_dir=git_dir, folder="", worktree=name)
        return files


def _has_some(root: str, folder: str, wanted: Wanted) -> bool:
    """Return whether a folder has files that are called task files, as far as it is looked into."""
    looked = 0
    for above, _, names in os.walk(os.path.join(root, folder)):
        looked += len(names) + 1
        if any(wanted.covers(os.path.relpath(os.path.join(above, x), root)) for x in names):
            return True
        if looked > MOST_LOOKED_AT:
            return False
    return False


@contextlib.contextmanager
def _errors_name_task(change: TaskChange) -> Iterator[None]:
    try:
        yield
    except Invalid as error:
        raise error.with_(resource=error.resource or change.resource.text) from None


# --- intents --------------------------------------------------------------------------------------

FORMAT = 3
OLDER = 2  # the same, where locks told who was busy with it
KEPT = 30 * 86_400 * 1_000_000_000  # nanoseconds for which an intent waits for its file
GOALS = ("held", "ended", "completed", "completed part", "retired")

_DAMAGE = (LookupError, TypeError, ValueError, AttributeError, GitleaseError)
_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")


class EdgeJournal:
    """The intents of a ledger, below the folder of its state."""

    def __init__(self, folder: str) -> None:
        self._journal, self._folder = Journal(folder), folder
        self._taken = set[str]()  # those that other processes left behind

    def intend(self, intent: Intent) -> None:
        """Keep an intent until it is settled. Raises Invalid if it cannot be stored."""
        try:
            # Read back before it is kept: what cannot be read again would be lost with a kill.
            written = {"format": FORMAT, **STEP.dump(intent)}
            if not _ID.fullmatch(intent.id) or read_intent(intent.id, written) != intent:
                raise ValueError
        except _DAMAGE:
            why = f"the intent {printable(intent.id)} cannot be saved"
            raise Invalid(why) from None
        self._journal.put(intent.id, written)

    def settled(self, intent: Intent) -> None:
        """Remove an intent that was carried out or given up."""
        if _ID.fullmatch(intent.id):
            self._taken.discard(intent.id)
            self._journal.drop(intent.id)

    def leave(self, intent: Intent) -> None:
        """Release an intent that cannot be carried out now, for the next process to adopt."""
        self._taken.discard(intent.id)
        for entry in self._journal.entries():
            if entry.name == intent.id:
                with contextlib.suppress(Invalid):
                    self._journal.put(
                        entry.name, entry.value, abandoned=True, written=entry.written
                    )

    def left_behind(self) -> Sequence[Intent]:
        """Adopt and return the intents of dead processes, oldest first.

        Includes those that were adopted before and are not settled.
        """
        if not os.path.isdir(self._folder) or not os.listdir(self._folder):
            return ()
        with alone(os.path.dirname(self._folder)):
            entries = sorted(self._journal.entries(), key=lambda x: (x.written, x.name))
            intents = [self._adopt(x) for x in entries if not x.is_busy or x.name in self._taken]
        return [intent for intent in intents if intent is not None]

    def _adopt(self, entry: JournalEntry) -> Intent | None:
        with contextlib.suppress(*_DAMAGE):  # what is damaged stays: `doctor` reports it
            intent, age = read_intent(entry.name, entry.value), time.time_ns() - entry.written
            if intent and age < KEPT:
                self._journal.put(entry.name, entry.value, written=entry.written)
                self._taken.add(entry.name)
                return intent
            if intent:  # its file did not come back for thirty days
                self._journal.drop(entry.name)
        return None


def read_intent(name: str, data: Any) -> Intent | None:
    """Read an intent; None for one of a newer gitlease. Raises one of many errors if damaged."""
    if isinstance(data["format"], int) and data["format"] > FORMAT:
        return None
    intent = STEP.load(Intent, {x: data[x] for x in data if x != "format"})
    is_ours = intent.id == name and data["format"] in (OLDER, FORMAT)
    if not is_ours or intent.goal not in GOALS or (intent.root and not os.path.isabs(intent.root)):
        raise ValueError
    # Whatever lies in the folder is untrusted: an intent must not lead to a file outside.
    for change in intent.changes:
        segments_of(change.file)
    return intent


# --- landed ---------------------------------------------------------------------------------------

MOST = 5_000  # commits since a claim that are read for trailers, on the main branch and elsewhere
SKEW = 60 * MS  # what another machine's commit may be dated before the claim that it was made under


def landed(
    repository: Repository, files: TaskFiles, main: str, leases: Sequence[Lease]
) -> list[Lease]:
    """The leases whose task says done on ``main``, a full ref, and did not when they were claimed.

    What was done before is worked on again, and so is what this work tree has open although it has
    all of ``main``. Where a shallow clone cannot tell, nothing has landed. Asks no remote; raises
    NotFound where there is no such ref.
    """
    named = [lease for lease in leases if not lease.resource.is_path]
    done = _done(files, main) if named else frozenset()
    # Most leases have no task that is done: git is asked no more then.
    finished = [lease for lease in named if lease.resource.key in done]
    if not finished:
        return []
    again = {task.resource.key for task in files.read().tasks if not task.is_done}
    again &= {lease.resource.key for lease in finished}
    # This work tree has what landed, and the task is open in it: it was opened again.
    if again and ask(repository, "merge-base", "--is-ancestor", main, "HEAD").code != 0:
        again = set()
    return [
        lease
        for lease in finished
        if lease.resource.key not in again
        and _was_open_when_claimed(repository, files, main, lease)
    ]


def _was_open_when_claimed(
    repository: Repository, files: TaskFiles, main: str, lease: Lease
) -> bool:
    before = lease.claimed_at // MS - 1  # a commit of the same second came after the claim
    words = ("rev-list", "-1", "--first-parent", f"--min-age={before}", main, "--")
    result = ask(repository, *words)
    commit = os.fsdecode(result.out).strip()
    if result.code != 0 or result.timed_out:
        return False
    if not commit:
        # No commit before the claim: history is younger, or cut off, which tells nothing.
        return not os.path.exists(os.path.join(repository.common_dir, "shallow"))
    listed, key = files.read(commit), lease.resource.key
    task = next((x for x in listed.tasks if x.resource.key == key), None)
    if task is None and any(key in x.keys or not x.keys for x in listed.problems):
        return False  # a file that this clone lacks, or cannot read, tells nothing
    return task is None or not task.is_done


def _done(files: TaskFiles, ref: str) -> frozenset[str]:
    return frozenset(task.resource.key for task in files.read(ref).tasks if task.is_done)


# --- merged ---------------------------------------------------------------------------------------


def merged(repository: Repository, main: str, layer: str, leases: Sequence[Lease]) -> list[Lease]:
    """The leases of ``layer`` with a commit of their token on ``main``, and none elsewhere.

    Elsewhere are this clone's branches, those that it knows of remotes, and what is checked out;
    a squash counts for the commits whose messages it repeats. Where more than ``MOST`` commits were
    made since the claim, too many to read, no lease has been merged. Asks no remote.
    """
    if not leases:
        return []
    since = min(lease.claimed_at for lease in leases) - SKEW
    # The main branch first: without any commit of the lease there, branches need not be read.
    there = _named_by_commits_since(repository, since, main)
    if not there or not any(_names(there, lease, layer) for lease in leases):
        return []
    elsewhere = ("--ignore-missing", "HEAD", "--branches", "--remotes", "--not", main)
    unmerged = _named_by_commits_since(repository, since, *elsewhere)
    if unmerged is None:
        return []
    return [x for x in leases if _names(there, x, layer) and not _names(unmerged, x, layer)]


def _named_by_commits_since(repository: Repository, since: int, *refs: str) -> list[Named] | None:
    # One more than is read, so that a full list shows as too many.
    words = (f"--max-age={since // MS}", f"--max-count={MOST + 1}", "--encoding=none")
    result = ask(repository, "rev-list", *words, "--format=%x00%B", *refs, "--")
    text = result.out.decode("utf-8", "replace")
    if result.code != 0 or result.timed_out or text.count("\0") > MOST:
        return None
    return read_lines(text.replace("\0", "").split("\n"))


def _names(named: Sequence[Named], lease: Lease, layer: str) -> bool:
    wanted = (lease.resource.key, lease.token, fold(lease.scope), layer.lower())
    return any((x.key, x.token, fold(x.scope), x.layer) == wanted for x in named)


def read_lines(lines: Iterable[str]) -> list[Named]:
    """The grants that the trailers among the lines of a message name."""
    values = (line.removeprefix(_NAME) for line in lines if line.startswith(_NAME))
    return [named for value in values if (named := read_trailer(value)) is not None]
