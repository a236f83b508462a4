"""The history of tasks by commits: who was assigned when, what was deleted, who commits.

It takes a handful of git processes, however many tasks there are: one log of all commits with
their changes of task files, whose versions are read in one go. Only ``lack`` asks a remote.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from shlex import quote

from gitlease.guard.history import (
    NO_RENAMES,
    SECONDS,
    Changed,
    Commit,
    read_log,
    usual_addresses,
)
from gitlease.kernel.git.branches import Branches
from gitlease.kernel.git.files import Unreadable
from gitlease.kernel.git.objects import BLOB, objects_of
from gitlease.kernel.git.repository import HEADS, PATHS, Repository, ask, is_on
from gitlease.kernel.rules.edge import Task, printable
from gitlease.kernel.rules.errors import Invalid
from gitlease.kernel.rules.frozen import dataclass
from gitlease.kernel.rules.resources import fold
from gitlease.kernel.settings.schema import FILE_STEM, Tasks
from gitlease.kernel.store.transport import TIME_LIMIT
from gitlease.tasks.reading import is_yaml, read_task
from gitlease.tasks.scan import MAX_BYTES, Wanted

MAX_COMMITS = 200_000
MAX_VERSIONS = 64  # of one task file
SHOWN = 5  # names in a sentence


@dataclass(frozen=True)
class Lack:
    """A part of history that a clone lacks, and how to get it, in words for people."""

    what: str
    way: str


SHALLOW = Lack(
    "this clone is shallow",
    "git fetch --unshallow gets the rest; in a workflow, add to actions/checkout `fetch-depth: 0`",
)


@dataclass(frozen=True)
class Version:
    """A commit's change of a task file: who was assigned in it before and after.

    ``at`` is the later of the commit's two dates in wall-clock milliseconds, ``by`` its author.
    """

    commit: str
    at: int
    by: str
    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True)
class Past:
    """The versions of a task file on all branches, newest first; None for an unreadable one."""

    versions: tuple[Version | None, ...] = ()

    def last_change(self, means: Callable[[str], bool]) -> tuple[Version | None, bool]:
        """The newest version in which a name came or went, and whether nothing newer is unread."""
        for version in self.versions:
            if version is None:
                return None, False
            if any(map(means, version.before)) != any(map(means, version.after)):
                return version, True
        return None, True


@dataclass(frozen=True)
class Deleted:
    """The commit that deleted the file of a task, and its author."""

    file: str
    commit: str
    by: str


class TaskHistory:
    """The commits of all branches that this clone knows.

    ``ref_prefix`` is where ledgers lie, which are not work. ``remotes`` have everybody's work.
    ``in_ci``: the clone was made for this process, and may be partial. Raises Invalid if git does
    not answer.
    """

    def __init__(
        self,
        repository: Repository,
        tasks: Tasks,
        *,
        ref_prefix: str,
        remotes: Sequence[str] = (),
        in_ci: bool = False,
    ) -> None:
        self._repository = repository
        self._tasks = tasks
        self._wanted = Wanted(tasks)
        self._prefix = ref_prefix
        self._remotes = remotes
        self._in_ci = in_ci

    def authors(self) -> Mapping[str, str]:
        """The addresses of everybody who committed, each with the one that stands for it."""
        return {
            email: usual
            for x in self._commits
            for email, usual in ((x.author, x.author_usual), (x.committer, x.committer_usual))
        }

    def usual(self, emails: Iterable[str]) -> Mapping[str, str]:
        """The address that the mailmap has for each of these, else itself."""
        return usual_addresses(self._repository, emails)

    def pasts(self, asked: Iterable[tuple[Task, str]]) -> Mapping[str, Past]:
        """The past of task files, by file, as far as it concerns names with these words."""
        tasks: dict[str, tuple[Task, list[str]]] = {}
        for task, word in asked:
            tasks.setdefault(task.file, (task, []))[1].append(fold(word))
        edits: dict[str, dict[Commit, list[Changed]]] = {file: {} for file in tasks}
        for commit, change in self._log:
            if change is not None and change.path in edits:
                edits[change.path].setdefault(commit, []).append(change)
        wanted: dict[str, set[str]] = {}
        for file, (_, words) in tasks.items():
            for same in list(edits[file].values())[:MAX_VERSIONS]:
                for blob in (x for y in same for x in (y.blob_before, y.blob_after) if x):
                    wanted.setdefault(blob, set()).update(words)
        versions = _TaskVersions(self._repository, self._tasks, wanted)
        shallow = self._repository.shallow()
        return {
            file: Past(tuple(_past(task, edits[file], versions, shallow)))
            for file, (task, _) in tasks.items()
        }

    def deleted(self, keys: frozenset[str]) -> Mapping[str, Deleted]:
        """Which tasks of these folded names were deleted on the current branch, by key."""
        if not keys:
            return {}
        # Exact renames only: a task whose file was moved was not deleted.
        options = ("--ignore-missing", "-M100%", "--diff-filter=D", "HEAD")
        words = (*options, "--", *self._wanted.pathspecs())
        log = read_log(self._repository, words) if self._commits else ()
        removals = [(commit, change) for commit, change in log if change is not None]
        wanted = {change.blob_before: set(keys) for _, change in removals}
        versions = _TaskVersions(self._repository, self._tasks, wanted)
        deleted: dict[str, Deleted] = {}
        for commit, change in removals:
            task = versions.task(change.blob_before, change.path)
            if task is not None and task.resource.key in keys:
                last = Deleted(change.path, commit.id, commit.author_usual)
                deleted.setdefault(task.resource.key, last)
        return deleted

    @cached_property
    def _log(self) -> list[tuple[Commit, Changed | None]]:
        """All commits, the newest first, each alone and then with its changes of task files."""
        form = ("--ignore-missing", "--full-history", "--sparse", "-m", f"-n{MAX_COMMITS}")
        refs: tuple[str, ...] = ("HEAD", "--branches", "--remotes")
        branch = self._prefix.removeprefix("refs/heads/")
        # On a host that takes only branches the ledgers are among them, and are no work.
        if branch != self._prefix:
            here, there = f"--exclude={branch}/*", f"--exclude=*/{branch}/*"
            refs = ("HEAD", here, "--branches", there, "--remotes")
        words = (*NO_RENAMES, *form, *refs, "--", *self._wanted.pathspecs())
        return list(read_log(self._repository, words))

    @cached_property
    def _commits(self) -> list[Commit]:
        return list(dict.fromkeys(commit for commit, _ in self._log))

    # --- what is missing here ---------------------------------------------------------------------

    def lack(self, *, cached: bool, branches: bool) -> Lack | None:
        """Why commits are missing, old ones or whole ``branches``; None if all are here.

        Only a clone that may lack branches asks the remote, none with ``cached``. Raises
        Unavailable and Denied.
        """
        if self._repository.shallow():
            return SHALLOW
        for remote in self._remotes if branches and self._commits else ():
            specs = self._repository.config.get_all(f"remote.{remote}.fetch")
            every = f"{HEADS}*:refs/remotes/{remote}/*" in [x.removeprefix("+") for x in specs]
            # Such a clone got every branch at its person's last fetch.
            if every and not self._in_ci and not any(spec.startswith("^") for spec in specs):
                continue
            if (lack := self._lack_of_branches(remote, cached=cached)) is not None:
                return lack
        return None

    def partial(self) -> Lack | None:
        """Why contents of old versions may be missing; None if all are here."""
        return lack_of_contents(self._repository)

    def _lack_of_branches(self, remote: str, *, cached: bool) -> Lack | None:
        spec = quote(f"+{HEADS}*:refs/remotes/{remote}/*")
        way = f"git fetch {quote(remote)} {spec} gets the rest"
        if cached:
            unknown = f"with --cached it is unknown whether all branches of {remote} are here"
            return Lack(unknown, way)
        heads = Branches(self._repository).asked(remote, seconds=TIME_LIMIT).items()
        here = {commit.id for commit in self._commits}
        missing = sorted(
            ref.removeprefix(HEADS)
            for ref, oid in heads
            if oid not in here and not ref.startswith(f"{self._prefix}/")
        )
        if not missing:
            return None
        kind = "branch" if len(missing) == 1 else "branches"
        names = some_names(map(printable, missing))
        return Lack(f"not all commits of the {kind} {names} of {printable(remote)} are here", way)

    def left_out(self) -> Sequence[str]:
        """The task files of the index that a sparse checkout leaves out of the work tree."""
        root = self._repository.toplevel
        if root is None or not is_on(self._repository.config.get("core.sparsecheckout")):
            return ()
        # From the root: a command asked in a folder would name what lies there only.
        words = ("ls-files", "-t", "-z", "--full-name", "--", *self._wanted.pathspecs())
        listed = ask(self._repository, *words, env=PATHS, timeout=SECONDS)
        absent = []
        for line in listed.checked("the index cannot be read").split(b"\0"):
            kind, _, name = line.partition(b" ")
            path = os.fsdecode(name)
            skipped = kind in (b"S", b"s") and self._wanted.covers(path)
            if skipped and not os.path.lexists(os.path.join(root, path)):
                absent.append(path)
        return absent


def _past(
    task: Task,
    edits: Mapping[Commit, Sequence[Changed]],
    versions: _TaskVersions,
    shallow: frozenset[str],
) -> Iterable[Version | None]:
    for number, (commit, same) in enumerate(edits.items()):
        if number == MAX_VERSIONS:
            return
        if commit.id in shallow:
            # It adds all files that there are, whoever wrote them.
            yield None
        # Else it is a merge that agrees with one of its parents: the change is that parent's.
        elif len(same) >= len(commit.parents):
            # The oldest version that is read counts as that which assigned whom it names.
            oldest = number == MAX_VERSIONS - 1
            before = [() if oldest else versions.names(x.blob_before, task) for x in same]
            after = versions.names(same[0].blob_after, task)
            if after is None or None in before:
                yield None
            else:
                names = tuple(name for some in before for name in some or ())
                yield Version(commit.id, commit.at, commit.author_usual, names, after)


class _TaskVersions:
    # A file may have dozens of versions, and YAML is slow: only those with a word of the question
    # are parsed. The id of a task may be its file's name, which no word in the file shows.

    def __init__(
        self, repository: Repository, tasks: Tasks, wanted: Mapping[str, set[str]]
    ) -> None:
        self._tasks = tasks
        self._by_stem = tasks.fields.get("id") == FILE_STEM
        self._data: dict[str, bytes | None] = {}
        self._parsed: dict[tuple[str, str], Task | None] = {}
        objects = objects_of(repository)
        for blob, words in wanted.items():
            try:
                data = objects.read(blob, BLOB, MAX_BYTES)
            except Unreadable:
                self._data[blob] = None
                continue
            text = fold(data.decode("utf-8", "replace"))
            says = self._by_stem or any(word in text for word in words)
            self._data[blob] = data if says else b""

    def names(self, blob: str, task: Task) -> tuple[str, ...] | None:
        """The assignees in a version of a task's file; None if it cannot be read here."""
        if not blob:
            return ()
        if self._data.get(blob) is None:
            return None
        version = self.task(blob, task.file)
        return version.assigned if version and version.resource == task.resource else ()

    def task(self, blob: str, file: str) -> Task | None:
        """The task in a version of a file; None without one, or if it cannot be read."""
        known = (blob, file if self._by_stem else "yaml" if is_yaml(file) else "")
        if known not in self._parsed:
            data = self._data.get(blob)
            try:
                task = read_task(data, file=file, tasks=self._tasks) if data else None
            except Invalid:
                # Half merged, say: nobody is assigned in it.
                task = None
            self._parsed[known] = task
        return self._parsed[known]


def lack_of_contents(repository: Repository) -> Lack | None:
    """The lack of a partial clone, which gets contents only when git asks for them."""
    config = repository.config
    promised = (
        entry.key.removeprefix("remote.").removesuffix(".promisor")
        for entry in config.section("remote")
        if entry.key.endswith(".promisor") and is_on(entry.value)
    )
    remote = next(promised, config.get("extensions.partialclone"))
    if remote is None:
        return None
    way = f"git fetch --refetch --no-filter {quote(remote)} gets them"
    return Lack("contents are missing in this partial clone", way)


def unknown_here(tasks: Sequence[Task], lack: Lack | None) -> tuple[str, ...]:
    """The sentence that it is unknown here who works on some tasks."""
    if not tasks:
        return ()
    why = "commits are missing here" if lack is None else f"{lack.what} ({lack.way})"
    names = some_names(task.resource.text for task in tasks)
    return (f"cannot tell who works on {names}: {why}",)


def not_checked_out(files: Sequence[str]) -> tuple[str, ...]:
    """The sentence that task files were not checked, since a sparse checkout omits them."""
    if not files:
        return ()
    were = "was" if len(files) == 1 else "were"
    folder = files[0].rpartition("/")[0]
    add = f"git sparse-checkout add {quote(printable(folder))}, or for all files " if folder else ""
    return (
        f"{some_names(map(printable, files))} {were} not checked: this checkout is sparse"
        f" ({add}git sparse-checkout disable)",
    )


def some_names(names: Iterable[str]) -> str:
    """The first names of a list, and how many more there are."""
    each = list(dict.fromkeys(names))
    more = f" and {len(each) - SHOWN} more" if len(each) > SHOWN else ""
    return ", ".join(each[:SHOWN]) + more
