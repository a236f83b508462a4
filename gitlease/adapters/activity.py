"""Who worked on what, and when, by the commits of all branches that this clone knows.

A handful of git processes tell it, however many tasks there are: one log of the task files, whose
versions are read in one go, one of all commits, one of everybody who ever committed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from gitlease.adapters.activity_lack import (
    lack_of_branches,
    lack_of_contents,
    left_out,
    may_lack_branches,
)
from gitlease.adapters.activity_log import (
    PATHS,
    SECONDS,
    Change,
    Commit,
    answered,
    read_blobs,
    read_log,
    usual_addresses,
)
from gitlease.adapters.asking import ask
from gitlease.adapters.repository import Repository
from gitlease.adapters.settings import Tasks
from gitlease.adapters.task_scan import MAX_BYTES
from gitlease.domain.edge import Task
from gitlease.domain.errors import Invalid
from gitlease.domain.pattern import fold, parse
from gitlease.domain.stale_facts import Past, Version, Work, Works
from gitlease.domain.stale_found import Deleted
from gitlease.domain.stale_unknown import Lack
from gitlease.ports_stale import Asked

MAX_COMMITS = 20_000  # whose changes are looked at
MAX_PEOPLE = 200_000  # commits whose authors are
MAX_VERSIONS = 64  # of one task file

# Beyond so many pairs only renames without any edit are seen. A partial clone has no contents.
_RENAMES = (("-M", "-l1000"), ("--no-renames",))
_SHALLOW = Lack(
    "this clone is shallow",
    "git fetch --unshallow brings the rest, fetch-depth: 0 in a workflow",
)


class GitActivity:
    """The activity in one repository; ``ref_prefix`` is where ledgers lie, which are no work.

    ``remotes`` are those that have the work of all. ``given``: somebody else made this clone, and
    fetched what they thought fit.
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
        self._head: bool | None = None

    def cut_off(self, *, cached: bool, sure: bool = False) -> Lack | None:
        if self._cut_off():
            return _SHALLOW
        if not self._has_commits():
            return None
        where, refs, prefix = self._repository, self._refs(), self._prefix
        asked = (
            lack_of_branches(where, remote, refs, prefix=prefix, cached=cached)
            for remote in self._remotes
            if sure or self._given or may_lack_branches(where, remote)
        )
        return next((lack for lack in asked if lack is not None), None)

    def partial(self) -> Lack | None:
        return lack_of_contents(self._repository)

    def left_out(self) -> Sequence[str]:
        return left_out(self._repository, self._tasks, self._places())

    def authors(self) -> Mapping[str, str]:
        if not self._has_commits():
            return {}
        form = "--format=%ae%x1f%aE%x00%ce%x1f%cE%x00"
        quiet = ("--no-notes", "--no-show-signature", "--encoding=UTF-8")
        words = ("log", form, *quiet, f"-n{MAX_PEOPLE}")
        said = ask(self._repository, *words, *self._refs(), "--", timeout=SECONDS)
        pairs = answered(said, "the authors of commits cannot be read").out
        found = {}
        for pair in dict.fromkeys(pairs.replace(b"\n", b"").split(b"\0")[:-1]):
            email, _, usual = pair.decode("utf-8", "replace").partition("\x1f")
            found[email] = usual
        return found

    def usual(self, emails: Iterable[str]) -> Mapping[str, str]:
        return usual_addresses(self._repository, emails)

    def pasts(self, asked: Sequence[Asked]) -> Mapping[str, Past]:
        if not asked or not self._has_commits():
            return {}
        changes, parents = self._task_changes()
        renamed: dict[str, set[str]] = {}
        of_path: dict[str, list[Change]] = {}
        for change in changes:
            of_path.setdefault(change.path, []).append(change)
            if change.kind == "R":
                renamed.setdefault(change.path, set()).add(change.old)
        files = {one.task.file: _closure(one.task.file, renamed) for one in asked}
        mine = {
            file: sorted(
                (c for name in names for c in of_path.get(name, ())),
                key=lambda change: parents[change.commit.id],
            )
            for file, names in files.items()
        }
        heads = self._in_head(list(files))
        contents = _Contents(self._repository, self._tasks)
        for one in asked:
            some = mine[one.task.file][: 2 * MAX_VERSIONS]
            blobs = [b for c in some for b in (c.before, c.after)]
            contents.want(one, [*blobs, heads.get(one.task.file, "")])
        contents.read()
        cut_off = self._cut_off()
        return {
            one.task.file: _past(
                one,
                mine[one.task.file],
                heads.get(one.task.file, ""),
                contents,
                cut_off,
                former=tuple(sorted(files[one.task.file] - {one.task.file})),
            )
            for one in asked
        }

    def works(self) -> Works:
        if not self._has_commits():
            return Works()
        words = ("--no-renames", f"-n{MAX_COMMITS}", *self._refs(), "--")
        paths: dict[Commit, list[str]] = {}
        for one in read_log(self._repository, words):
            if isinstance(one, Change):
                paths[one.commit].append(one.path)
            else:
                paths.setdefault(one, [])
        # All that was there before its history was cut is no work of whoever made the first commit.
        cut_off = self._cut_off()
        found = [_work(c, names) for c, names in paths.items() if c.id not in cut_off]
        horizon = max((c.at for c in list(paths)[-1:]), default=None)
        return Works(found, horizon if len(paths) == MAX_COMMITS else None)

    def deleted(self, keys: frozenset[str]) -> Mapping[str, Deleted]:
        if not keys or not self._has_commits():
            return {}
        words = ("-M100%", "--diff-filter=D", "HEAD", "--", *self._places())
        log = read_log(self._repository, words)
        gone = [one for one in log if isinstance(one, Change) and one.before]
        contents = _Contents(self._repository, self._tasks)
        contents.want_ids(keys, [change.before for change in gone])
        contents.read()
        found: dict[str, Deleted] = {}
        for change in gone:
            key = contents.key_of(change.before, change.path)
            if key in keys:
                by, at = change.commit.author_usual, change.commit.at
                found.setdefault(key, Deleted(change.path, change.commit.id, at, by))
        return found

    # --- asking -----------------------------------------------------------------------------------

    def _has_commits(self) -> bool:
        if self._head is None:
            said = ask(self._repository, "rev-parse", "-q", "--verify", "HEAD^{commit}")
            self._head = said.code == 0
        return self._head

    def _refs(self) -> tuple[str, ...]:
        """HEAD and all branches, here and of remotes, but for ledgers."""
        branch = self._prefix.removeprefix("refs/heads/")
        if branch == self._prefix:
            return ("HEAD", "--branches", "--remotes")
        here, there = (f"--exclude={at}{branch}/*" for at in ("", "*/"))
        return ("HEAD", here, "--branches", there, "--remotes")

    def _places(self) -> list[str]:
        """Where task files lie, as git is asked; none where that may be anywhere."""
        texts = (*self._tasks.files, *self._tasks.completed)
        heads = dict.fromkeys("/".join(parse(text).head) for text in texts)
        # Git is asked without regard to case, which it knows of letters of ASCII only.
        if not all(heads) or not all(text.isascii() for text in texts):
            return []
        return [f":(top,literal,icase){head}" for head in heads]

    def _task_changes(self) -> tuple[list[Change], dict[str, int]]:
        """What commits did to task files, and the place of each commit in the log."""
        words = ("--full-history", "-m", *self._refs(), "--", *self._places())
        for renames in _RENAMES:
            try:
                log = list(read_log(self._repository, (*renames, *words)))
                break
            except Invalid:
                if renames is _RENAMES[-1]:
                    raise
        order: dict[str, int] = {}
        for one in log:
            commit = one.commit if isinstance(one, Change) else one
            order.setdefault(commit.id, len(order))
        return [one for one in log if isinstance(one, Change)], order

    def _in_head(self, files: Sequence[str]) -> dict[str, str]:
        """The blobs of files in the last commit."""
        folders = sorted({os.path.dirname(file) for file in files})
        where = [] if "" in folders else ["--", *(f"{folder}/" for folder in folders)]
        env = {**PATHS, "GIT_LITERAL_PATHSPECS": "1"}
        words = ("ls-tree", "-r", "-z", "--full-tree", "HEAD", *where)
        said = ask(self._repository, *words, env=env, timeout=SECONDS)
        found = {}
        for line in answered(said, "the last commit cannot be read").out.split(b"\0")[:-1]:
            about, _, path = line.partition(b"\t")
            found[os.fsdecode(path)] = about.decode("ascii").split(" ")[2]
        return found

    def _cut_off(self) -> frozenset[str]:
        """The commits whose parents this clone was not given."""
        try:
            with open(os.path.join(self._repository.common_dir, "shallow"), "rb") as file:
                return frozenset(file.read().decode("ascii", "replace").split())
        except OSError:
            return frozenset()


def _closure(file: str, renamed: Mapping[str, set[str]]) -> set[str]:
    """All names that a file had."""
    found, new = {file}, [file]
    while new:
        more = renamed.get(new.pop(), set()) - found
        found |= more
        new += more
    return found


def _work(commit: Commit, paths: Sequence[str]) -> Work:
    """A commit as somebody's work: the author's on the author's date, the committer's on theirs.

    Whoever rebases the work of another shows no sign of that other.
    """
    by = [(commit.author_usual, commit.authored), (commit.committer_usual, commit.committed)]
    by += [(email, commit.authored) for email in commit.co_authors]
    return Work(commit.id, tuple(by), tuple(paths))


# --- the past of one file -------------------------------------------------------------------------


def _past(
    one: Asked,
    changes: Sequence[Change],
    head: str,
    contents: _Contents,
    cut_off: frozenset[str],
    *,
    former: tuple[str, ...],
) -> Past:
    """What became of a file, by the changes of commits in the order of the log."""
    groups: dict[tuple[str, str], list[Change]] = {}
    for change in changes:
        groups.setdefault((change.commit.id, change.path), []).append(change)
    versions: list[Version] = []
    whole, horizon, sought = not cut_off, None, set(map(fold, one.names))
    for same in groups.values():
        commit = same[0].commit
        if not sought:
            break  # each of the names was assigned since
        if len(versions) == MAX_VERSIONS:
            horizon = commit.at
            break
        if commit.id in cut_off or len(same) < len(commit.parents):
            continue  # to a parent that has the same, a merge brings nothing
        before = [contents.names(change.before, one, change.old) for change in same]
        after = contents.names(same[0].after, one, same[0].path)
        if after is None or None in before:
            whole = False
            continue
        names = tuple(name for some in before for name in some or ())
        versions.append(Version(commit.id, commit.at, commit.author_usual, names, after))
        sought -= set(map(fold, after)) - set(map(fold, names))
    committed = contents.names(head, one, one.task.file) if head else None
    if head and committed is None:
        committed, whole = tuple(one.names), False  # it is there, and cannot be read
    return Past(
        versions=tuple(versions),
        committed=committed,
        former=former,
        whole=whole,
        horizon=horizon,
    )


class _Contents:
    """What versions of task files say of who is assigned, as far as names are asked for.

    A file without the letters of any of them needs no parsing.
    """

    def __init__(self, repository: Repository, tasks: Tasks) -> None:
        self._repository, self._tasks = repository, tasks
        self._words: dict[str, set[bytes]] = {}
        self._data: dict[str, bytes | None] = {}
        self._parsed: dict[tuple[str, bool], Task | None] = {}

    def want(self, one: Asked, blobs: Iterable[str]) -> None:
        words = {fold(name).encode() for name in one.names}
        for blob in filter(None, blobs):
            self._words.setdefault(blob, set()).update(words)

    def want_ids(self, keys: Iterable[str], blobs: Iterable[str]) -> None:
        words = {key.encode() for key in keys}
        for blob in blobs:
            self._words.setdefault(blob, set()).update(words)

    def read(self) -> None:
        """Read what is wanted; what has none of the words is not kept."""
        for blob, data in read_blobs(self._repository, self._words, most=MAX_BYTES):
            self._data[blob] = data if data is None or self._may_say(blob, data) else b""

    def _may_say(self, blob: str, data: bytes) -> bool:
        folded = fold(data.decode("utf-8", "replace")).encode()
        return any(word in folded for word in self._words[blob])

    def names(self, blob: str, one: Asked, file: str) -> tuple[str, ...] | None:
        """Who is assigned in a version of a task's file; None where that cannot be read here."""
        if not blob:
            return ()
        if self._data.get(blob) is None:
            return None
        task = self._task(blob, file)
        return task.assigned if task is not None and task.resource == one.task.resource else ()

    def key_of(self, blob: str, file: str) -> str:
        """The key of the task in a version of a file, "" where there is none."""
        task = self._task(blob, file) if self._data.get(blob) else None
        return "" if task is None else task.resource.key

    def _task(self, blob: str, file: str) -> Task | None:
        from gitlease.adapters.task_front import is_yaml
        from gitlease.adapters.task_text import read_task

        known = (blob, is_yaml(file))
        if known not in self._parsed:
            try:
                data = self._data[blob] or b""
                self._parsed[known] = read_task(data, file=file, tasks=self._tasks)
            except Invalid:  # half merged, say: nobody is assigned in it
                self._parsed[known] = None
        return self._parsed[known]
