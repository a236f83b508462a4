"""Who worked on what, and when, by the commits of all branches that this clone knows.

It takes a handful of git processes, however many tasks there are: one log of all commits with their
changes of task files, whose versions are read in one go, and one of all else that they touch.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from gitlease.check.stale import missing_history
from gitlease.check.stale.facts import BranchWork, Deleted, FileQuery, Lack, Past, Version, Works
from gitlease.core.edge import Task
from gitlease.core.errors import Invalid
from gitlease.core.frozen import replace
from gitlease.core.holder import person_key
from gitlease.core.resources.pattern import fold, parse
from gitlease.git.files import Unreadable
from gitlease.git.history import (
    NO_RENAMES,
    PATHS,
    RENAMES,
    SECONDS,
    Changed,
    Commit,
    commit_ids,
    read_log,
    usual_addresses,
)
from gitlease.git.objects import BLOB, objects_of
from gitlease.git.repository import Repository, answered, ask
from gitlease.settings.schema import FILE_STEM
from gitlease.settings.sources import Tasks
from gitlease.tasks.front_matter import is_yaml
from gitlease.tasks.scan import MAX_BYTES
from gitlease.tasks.text import read_task

MAX_COMMITS = 20_000  # whose changes of all files are read
MAX_HISTORY = 200_000  # whose authors and changes of task files are read
MAX_VERSIONS = 64  # of one task file

Edit = tuple[Commit, Changed]


class GitActivity:
    """The commits of all branches that this clone knows. Only ``cut_off`` asks a remote.

    ``ref_prefix`` is where ledgers lie, which are not work. ``remotes`` have everybody's work.
    ``given``: the clone was made for this process, as CI does, and may be partial. ``changes`` has
    the changes of the commits that ``works`` read, without renames and merges. Raises Invalid if
    git does not answer.
    """

    def __init__(
        self,
        repository: Repository,
        tasks: Tasks,
        *,
        ref_prefix: str,
        remotes: Sequence[str] = (),
        given: bool = False,
    ) -> None:
        self._repository, self._tasks = repository, tasks
        self._prefix, self._remotes, self._given = ref_prefix, remotes, given
        self.changes: dict[str, list[Changed]] = {}

    def cut_off(self, *, cached: bool, sure: bool = False) -> Lack | None:
        """Why commits are missing, old ones or whole branches; None if all are here.

        Only a clone that may lack branches asks the remote, any with ``sure``, none with
        ``cached``. Raises Unavailable and Denied.
        """
        repository, refs, prefix = self._repository, self._refs(), self._prefix
        if self._cut_off:
            return missing_history.SHALLOW
        if not self._commits:
            return None
        asked = (
            missing_history.lack_of_branches(repository, remote, refs, prefix=prefix, cached=cached)
            for remote in self._remotes
            if sure or self._given or missing_history.may_lack_branches(repository, remote)
        )
        return next((found for found in asked if found is not None), None)

    def partial(self) -> Lack | None:
        """Why contents of old versions may be missing; None if all are here."""
        return missing_history.lack_of_contents(self._repository)

    def left_out(self) -> Sequence[str]:
        """The task files that this work tree does not have, though its index does."""
        return missing_history.left_out(self._repository, self._tasks, self._places())

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

    def pasts(self, asked: Sequence[FileQuery]) -> Mapping[str, Past]:
        """The past of task files, by file: of each version only the names that are asked for."""
        if not asked or not self._commits:
            return {}
        order = {commit: number for number, commit in enumerate(self._commits)}
        of_path: dict[str, list[Edit]] = {}
        renamed: dict[str, set[str]] = {}
        for commit, change in self._edits:
            of_path.setdefault(change.path, []).append((commit, change))
            if change.kind == "R":
                renamed.setdefault(change.path, set()).add(change.old or "")
        heads = self._in_head([one.task.file for one in asked])
        contents = _TaskVersions(self._repository, self._tasks)
        mine: list[tuple[FileQuery, set[str], list[Edit]]] = []
        for one in asked:
            names = _closure(one.task.file, renamed)
            edits = [edit for name in names for edit in of_path.get(name, ())]
            edits.sort(key=lambda edit: order[edit[0]])
            mine.append((one, names, edits))
            some = [x for _, c in edits[: 2 * MAX_VERSIONS] for x in (c.blob_before, c.blob_after)]
            contents.want(map(fold, one.names), [*some, heads.get(one.task.file, "")])
        contents.read()
        horizon = self._commits[-1].at if len(self._commits) == MAX_HISTORY else None
        found = {}
        for one, names, edits in mine:
            head = heads.get(one.task.file, "")
            past = _past(one, edits, head, contents, self._cut_off, horizon)
            former = tuple(sorted(names - {one.task.file}))
            found[one.task.file] = replace(past, former=former)
        return found

    def works(self) -> Works:
        """The commits of everybody, the newest first."""
        if not self._commits:
            return Works()
        paths: dict[Commit, list[str]] = {}
        words = (*NO_RENAMES, f"-n{MAX_COMMITS}", *self._refs(), "--")
        for commit, change in read_log(self._repository, words):
            if change is None:
                paths[commit] = []
                if len(commit.parents) < 2:
                    self.changes[commit.id] = []
                continue
            paths[commit].append(change.path)
            if len(commit.parents) < 2:
                self.changes[commit.id].append(change)
        # The first commit of a shallow clone adds all files: that is not its author's work.
        found = [_work(c, names) for c, names in paths.items() if c.id not in self._cut_off]
        horizon = list(paths)[-1].at if len(paths) == MAX_COMMITS else None
        return Works(found, horizon)

    def deleted(self, keys: frozenset[str]) -> Mapping[str, Deleted]:
        """Which tasks of these folded names were deleted on the current branch, by key."""
        if not keys or not self._commits:
            return {}
        words = ("--ignore-missing", "-M100%", "--diff-filter=D", "HEAD", "--", *self._places())
        log = read_log(self._repository, words)
        gone = [(commit, change) for commit, change in log if change and change.blob_before]
        contents = _TaskVersions(self._repository, self._tasks)
        contents.want(keys, [change.blob_before for _, change in gone])
        contents.read()
        found: dict[str, Deleted] = {}
        for commit, change in gone:
            key = contents.key_of(change.blob_before, change.path)
            if key in keys:
                here = Deleted(change.path, commit.id, commit.at, commit.author_usual)
                found.setdefault(key, here)
        return found

    @cached_property
    def _history(self) -> tuple[list[Commit], list[Edit]]:
        """All commits, the newest first, and their changes of task files."""
        form = ("--ignore-missing", "--full-history", "--sparse", "-m", f"-n{MAX_HISTORY}")
        words = (*form, *self._refs(), "--", *self._places())
        try:
            log = list(read_log(self._repository, (*RENAMES, *words)))
        except Invalid:  # to see renames contents are compared, which a partial clone may not have
            log = list(read_log(self._repository, (*NO_RENAMES, *words)))
        commits = list(dict.fromkeys(commit for commit, _ in log))
        return commits, [(commit, change) for commit, change in log if change is not None]

    @property
    def _commits(self) -> list[Commit]:
        return self._history[0]

    @property
    def _edits(self) -> list[Edit]:
        return self._history[1]

    def _refs(self) -> tuple[str, ...]:
        branch = self._prefix.removeprefix("refs/heads/")
        if branch == self._prefix:
            return ("HEAD", "--branches", "--remotes")
        here, there = (f"--exclude={at}{branch}/*" for at in ("", "*/"))
        return ("HEAD", here, "--branches", there, "--remotes")

    def _places(self) -> list[str]:
        """Pathspecs of task files; none if they may be anywhere."""
        texts = (*self._tasks.files, *self._tasks.completed)
        heads = dict.fromkeys("/".join(parse(text).head) for text in texts)
        # Git is asked without regard to case, which it knows of letters of ASCII only.
        if not all(heads) or not all(text.isascii() for text in texts):
            return []
        return [f":(top,literal,icase){head}" for head in heads]

    def _in_head(self, files: Sequence[str]) -> dict[str, str]:
        folders = sorted({os.path.dirname(file) for file in files})
        where = [] if "" in folders else ["--", *(f"{folder}/" for folder in folders)]
        env = {**PATHS, "GIT_LITERAL_PATHSPECS": "1"}
        words = ("ls-tree", "-r", "-z", "--full-tree", "HEAD", *where)
        said = ask(self._repository, *words, env=env, timeout=SECONDS)
        if said.code != 0 and commit_ids(self._repository, ["HEAD"]) == [None]:
            return {}
        found = {}
        for line in answered(said, "the last commit cannot be read").split(b"\0")[:-1]:
            about, _, path = line.partition(b"\t")
            found[os.fsdecode(path)] = about.decode("ascii").split(" ")[2]
        return found

    @cached_property
    def _cut_off(self) -> frozenset[str]:
        return self._repository.shallow()


def _closure(file: str, renamed: Mapping[str, set[str]]) -> set[str]:
    found, new = {file}, [file]
    while new:
        more = renamed.get(new.pop(), set()) - found
        found |= more
        new += more
    return found


def _work(commit: Commit, paths: Sequence[str]) -> BranchWork:
    # Each on their own date: whoever rebases another's work shows no sign of that other.
    by = [(commit.author_usual, commit.authored), (commit.committer_usual, commit.committed)]
    by += [(email, commit.authored) for email in commit.co_authors]
    return BranchWork(commit.id, tuple(by), tuple(paths))


# --- the past of one file -------------------------------------------------------------------------


def _past(
    one: FileQuery,
    edits: Sequence[Edit],
    head: str,
    contents: _TaskVersions,
    cut_off: frozenset[str],
    horizon: int | None,
) -> Past:
    groups: dict[tuple[Commit, str], list[Changed]] = {}
    for commit, change in edits:
        groups.setdefault((commit, change.path), []).append(change)
    versions: list[Version] = []
    whole, sought = not cut_off, set(map(person_key, one.names))
    for (commit, _), same in groups.items():
        if not sought:
            break  # each of the names was assigned since
        if len(versions) == MAX_VERSIONS:
            horizon = commit.at
            break
        if commit.id in cut_off or len(same) < len(commit.parents):
            continue  # a merge that agrees with one of its parents changes nothing
        before = [contents.names(x.blob_before, one, x.old or x.path) for x in same]
        after = contents.names(same[0].blob_after, one, same[0].path)
        if after is None or None in before:
            whole = False
            continue
        names = tuple(name for some in before for name in some or ())
        versions.append(Version(commit.id, commit.at, commit.author_usual, names, after))
        sought -= set(map(person_key, after)) - set(map(person_key, names))
    committed = contents.names(head, one, one.task.file) if head else None
    if head and committed is None:
        committed, whole = tuple(one.names), False  # it is there, and cannot be read
    return Past(versions=tuple(versions), committed=committed, whole=whole, horizon=horizon)


class _TaskVersions:
    """Who is assigned in versions of task files. Only those with a wanted word are parsed."""

    def __init__(self, repository: Repository, tasks: Tasks) -> None:
        self._repository, self._tasks = repository, tasks
        self._words: dict[str, set[bytes]] = {}
        self._data: dict[str, bytes | None] = {}
        self._parsed: dict[tuple[str, str], Task | None] = {}
        self._by_stem = tasks.fields.get("id") == FILE_STEM

    def want(self, words: Iterable[str], blobs: Iterable[str]) -> None:
        encoded = {word.encode() for word in words}
        for blob in filter(None, blobs):
            self._words.setdefault(blob, set()).update(encoded)

    def read(self) -> None:
        objects = objects_of(self._repository)
        for blob, words in self._words.items():
            try:
                data = objects.read(blob, BLOB, MAX_BYTES)
            except Unreadable:
                self._data[blob] = None
                continue
            folded = fold(data.decode("utf-8", "replace")).encode()
            says = self._by_stem or any(word in folded for word in words)
            self._data[blob] = data if says else b""

    def names(self, blob: str, one: FileQuery, file: str) -> tuple[str, ...] | None:
        """Who is assigned in a version of a task's file; None if that cannot be read here."""
        if not blob:
            return ()
        if self._data.get(blob) is None:
            return None
        task = self._task(blob, file)
        return task.assigned if task is not None and task.resource == one.task.resource else ()

    def key_of(self, blob: str, file: str) -> str:
        """The key of the task in a version of a file, ``""`` without one."""
        task = self._task(blob, file) if self._data.get(blob) else None
        return "" if task is None else task.resource.key

    def _task(self, blob: str, file: str) -> Task | None:
        known = (blob, file if self._by_stem else "yaml" if is_yaml(file) else "")
        if known not in self._parsed:
            try:
                data = self._data[blob] or b""
                self._parsed[known] = read_task(data, file=file, tasks=self._tasks)
            except Invalid:  # half merged, say: nobody is assigned in it
                self._parsed[known] = None
        return self._parsed[known]
