"""Files of a commit as a checkout would write them, where their attributes name a filter.

What git stores of such a file may be nothing that a person can read (git-crypt). The attributes
are those of the commit, not of the work tree, which may be at another one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from gitlease.kernel.git.files import Unreadable, read_small
from gitlease.kernel.git.mainline import NOT_SET_UP, attribute_files
from gitlease.kernel.git.objects import BLOB, Absent, GitObjects, with_fetched
from gitlease.kernel.git.repository import Repository, is_on, lines_as_input
from gitlease.kernel.git.run import GitResult, run_git

MAX_ATTRIBUTES = 1024 * 1024  # bytes of one file
LIMIT = 5.0  # seconds for the filters of all files
FAILURES = 3  # files; after so many the filter is not tried on the others
POINTER = b"version https://git-lfs.github.com/spec/"
_NONE = frozenset({"unspecified", "unset", "set", ""})


def may_name_filters(
    repository: Repository, objects: GitObjects, attributes: Mapping[str, str]
) -> bool:
    """Return whether attributes, given as files with their blobs, may name a filter."""
    for path in attribute_files(repository):
        data = read_small(path, MAX_ATTRIBUTES)
        if os.path.exists(path) and (data is None or b"filter" in data):
            return True
    for blob in attributes.values():
        try:
            if b"filter" in objects.read(blob, BLOB, MAX_ATTRIBUTES):
                return True
        except Unreadable:  # who reads a file then says so
            return True
    return False


def as_checked_out(
    repository: Repository,
    objects: GitObjects,
    files: Mapping[str, str],
    attributes: Mapping[str, str],
) -> dict[str, bytes | Unreadable]:
    """The contents of those files that a filter changes, by path.

    ``files`` and ``attributes`` are paths with the ids of their blobs; what is in no answer is
    checked out as it is. A filter that fails, or that this clone does not have, makes a file
    unreadable: what git stores of it may be nothing that its author wrote.
    """
    if not files or not may_name_filters(repository, objects, attributes):
        return {}
    from tempfile import TemporaryDirectory

    found = dict[str, bytes | Unreadable]()
    with TemporaryDirectory(prefix="gitlease-") as folder:
        for path, blob in attributes.items():
            try:
                _write(os.path.join(folder, path), objects.read(blob, BLOB, MAX_ATTRIBUTES))
            except (Unreadable, OSError) as why:
                # Of what is not here either, that is said.
                text = f"may have a filter, but {path} {why}"
                return {x: Unreadable(text) for x, id in files.items() if _is_here(objects, id)}
        smudging, wanted = _Smudging(repository, folder), dict[str, str]()
        for file, name in smudging.filters_of(list(files)).items():
            get = repository.config.get
            if "\n" in file:
                found[file] = Unreadable("has a filter, and a line break in its name")
            elif get(f"filter.{name}.smudge") or get(f"filter.{name}.process"):
                wanted[file] = name
            elif not get(f"filter.{name}.clean") or is_on(get(f"filter.{name}.required")):
                # With a clean filter alone, a checkout is meant to write what is stored.
                found[file] = Unreadable(f"needs the filter {name}, {NOT_SET_UP}")
        here = smudging.filters_here(list(wanted))
        # A filter may be a program of the work tree: it runs there if that has the same attributes.
        same = [file for file in wanted if here.get(file) == wanted[file]]
        found |= smudging.contents(same, files, in_tree=True)
        found |= smudging.contents([x for x in wanted if x not in same], files, in_tree=False)
    return found


def _is_here(objects: GitObjects, blob: str) -> bool:
    try:
        objects.read(blob, BLOB, MAX_ATTRIBUTES)
    except Absent:
        return False
    except Unreadable:  # too large, say
        pass
    return True


def _write(path: str, data: bytes) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "xb") as file:
        file.write(data)


class _Smudging:
    """Asks git in a work tree that has nothing but the attributes of a commit."""

    def __init__(self, repository: Repository, folder: str) -> None:
        self._repository, self._tree = repository, folder

    def filters_of(self, files: Sequence[str]) -> dict[str, str]:
        """The filters of files by the attributes of the commit."""
        return self._attributes(files, in_tree=False)

    def filters_here(self, files: Sequence[str]) -> dict[str, str]:
        """The filters of files by the attributes of the work tree."""
        if self._repository.toplevel is None or not files:
            return {}
        return self._attributes(files, in_tree=True)

    def _attributes(self, files: Sequence[str], *, in_tree: bool) -> dict[str, str]:
        # -z is for the answer as well as for the question, whose lines end with a zero byte then.
        with lines_as_input(["\0".join([*files, ""])]) as source:
            result = self._git(["check-attr", "-z", "--stdin", "filter"], source, in_tree=in_tree)
        fields = os.fsdecode(result.out).split("\0")
        named = dict(zip(fields[0::3], fields[2::3], strict=False))
        return {x: named[x] for x in files if named.get(x, "") not in _NONE}

    def contents(
        self, files: Sequence[str], blobs: Mapping[str, str], *, in_tree: bool
    ) -> dict[str, bytes | Unreadable]:
        found, left, failures = dict[str, bytes | Unreadable](), list(files), 0
        while left and failures < FAILURES:
            mark = os.urandom(16).hex()
            words = ["cat-file", f"--batch={mark} %(objectname)", "--filters"]
            with lines_as_input(f"{blobs[x]} {x}" for x in left) as source:
                result = self._git(words, source, in_tree=in_tree)
            # git tells the size of what is stored, not of what the filter makes of it.
            parts = result.out.split(f"{mark} ".encode())[1:]
            good = len(parts) if result.code == 0 and not result.timed_out else len(parts) - 1
            for file, part in zip(left[: max(good, 0)], parts, strict=False):
                data = part.partition(b"\n")[2].removesuffix(b"\n")
                found[file] = data
                if data.startswith(POINTER):
                    found[file] = Unreadable("is kept in Git LFS")
            left = left[max(good, 0) :]
            if left:
                found[left.pop(0)] = Unreadable("has a filter that fails")
                failures += 1
        return found | {file: Unreadable("has a filter that fails") for file in left}

    def _git(self, words: Sequence[str], source: str, *, in_tree: bool = False) -> GitResult:
        repository = self._repository
        tree = (repository.toplevel if in_tree else None) or self._tree
        env = {**with_fetched(repository), "GIT_LFS_SKIP_SMUDGE": "1"}
        if not in_tree:  # the index may have attributes of another commit
            env["GIT_INDEX_FILE"] = os.path.join(self._tree, ".git-index")
        own = (f"--git-dir={repository.git_dir}", f"--work-tree={tree}", "-c", "core.bare=false")
        words = ["--no-replace-objects", "-c", "core.fsmonitor=false", *own, *words]
        return run_git(words, cwd=tree, timeout=LIMIT, env=env, repository=True, source=source)
