"""Finds and reads the task files of the index, HEAD, the default branch and other branches.

That needs neither a checkout nor a connection. Trees come from whoever can push: sizes are asked
before contents are read, and what a partial clone does not have is said, never fetched. Names are
compared first: of a checkout that equals its branch no file is read.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
from collections.abc import Iterable

from gitlease.core.edge import Task
from gitlease.core.errors import Invalid, NotFound, shown
from gitlease.core.instant import MS
from gitlease.core.resources import Resource
from gitlease.engine.ports import INDEX, TaskList
from gitlease.git.files import Unreadable
from gitlease.git.history import PATHS
from gitlease.git.objects import BLOB, COMMIT, GitObjects, TreeEntry, objects_of, read_tree
from gitlease.git.repository import Repository, ask
from gitlease.tasks.reading import REFS, TaskReader
from gitlease.tasks.scan import MAX_BYTES, Content, FileKind, FoundFile, Listed, Wanted, walk

MAX_TREE = 16 * 1024 * 1024  # bytes of one folder
MAX_ENTRIES = 2_000_000  # of all folders: the same one may lie in many places
MAX_LINK = 4096
MAX_COMMIT = 8 * 1024 * 1024  # bytes, whatever its message

_BLOBS, _LINK, _TREE = (0o100644, 0o100755), 0o120000, 0o040000


class RefTree:
    """The files of the commit that a ref names. Raises NotFound where there is none."""

    def __init__(self, repository: Repository, ref: str, wanted: Wanted) -> None:
        self.wanted = wanted
        self._objects = objects_of(repository)
        self.root = _root(repository, self._objects, ref)
        self._folders, self._files, self._entries = {"": self.root}, dict[str, str](), 0

    def entries(self, folder: str) -> list[Listed]:
        tree = self._tree(folder)
        self._entries += len(tree)
        if self._entries > MAX_ENTRIES:
            raise Invalid(f"there are more than {MAX_ENTRIES} files and folders to look at")
        listed = []
        for entry in tree:
            if entry.name in ("", ".", "..") or "/" in entry.name or entry.name.lower() == ".git":
                continue  # no name that git gives a file
            path = f"{folder}/{entry.name}" if folder else entry.name
            is_folder = entry.mode == _TREE
            (self._folders if is_folder else self._files)[path] = entry.id
            is_file, is_link = entry.mode in _BLOBS, entry.mode == _LINK
            key = f"{entry.id}:{path}"
            listed.append(Listed(entry.name, key, is_folder, is_file, is_link))
        return listed

    def _tree(self, folder: str) -> list[TreeEntry]:
        return read_tree(self._objects, self._folders[folder], MAX_TREE)

    def load(self, found: FoundFile) -> Content:
        return Content(self._objects.read(self._files[found.path], BLOB, MAX_BYTES))

    def linked(self, path: str) -> tuple[str | None, bytes]:
        with contextlib.suppress(Unreadable):
            text = os.fsdecode(self._objects.read(self._files[path], BLOB, MAX_LINK))
            target = posixpath.normpath(posixpath.join(posixpath.dirname(path), text))
            if target in self._files:
                return target, b""
        return None, b""


class IndexTree(RefTree):
    """The files of the index, in which a sparse checkout has what its work tree lacks."""

    def __init__(self, repository: Repository, wanted: Wanted) -> None:
        self.wanted = wanted
        self._objects = objects_of(repository)
        self._files, self._folders, self._entries = dict[str, str](), dict[str, str](), 0
        self._trees: dict[str, dict[str, TreeEntry]] = {}
        said = ask(repository, "ls-files", "-s", "-z", "--", *wanted.pathspecs(), env=PATHS)
        for line in said.out.split(b"\0")[:-1] if said.code == 0 else ():
            about, _, path = line.partition(b"\t")
            mode, oid, stage = about.decode().split()
            if stage in ("0", "2"):  # of an unmerged file, one's own side
                self._add(os.fsdecode(path), TreeEntry("", int(mode, 8), oid))

    def _add(self, path: str, entry: TreeEntry) -> None:
        folder, _, name = path.rpartition("/")
        self._trees.setdefault(folder, {})[name] = entry._replace(name=name)
        if folder and folder not in self._folders:
            self._folders[folder] = ""
            self._add(folder, TreeEntry("", _TREE, ""))

    def _tree(self, folder: str) -> list[TreeEntry]:
        return list(self._trees.get(folder, {}).values())


def _root(repository: Repository, objects: GitObjects, ref: str) -> str:
    if not ref or ref.startswith("-") or not ref.isprintable():
        raise _no_ref(ref)
    said = ask(repository, "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")
    try:  # its tree may not be here, which is said of the folder
        commit = objects.read(said.out.decode().strip(), COMMIT, MAX_COMMIT)
    except Unreadable:
        raise _no_ref(ref) from None
    return commit.removeprefix(b"tree ").partition(b"\n")[0].decode()


def _no_ref(ref: str) -> NotFound:
    hint = "name a branch, a tag or a commit of this clone; git fetch brings others here"
    return NotFound(f"there is no ref {shown(ref)}", hints=(hint,))


MOST_BRANCHES = 64  # in which an unknown name is looked for
Found = list[tuple[str, TaskList]]


def tasks_elsewhere(
    repository: Repository,
    reader: TaskReader,
    wanted: Wanted,
    here: TaskList,
    main: str | None,
    *,
    sparse: bool,
) -> Found:
    """The tasks of each place beside the work tree, whose own tasks are ``here``.

    Of the index and HEAD: those in files that the work tree lacks. Of the ref ``main``: those in
    files that HEAD lacks or has otherwise.
    """
    paths = {t.file for t in here.tasks} | {p.file for p in here.problems} | {*here.others}
    found: Found = []

    def read(ref: str, tree: RefTree, files: Iterable[FoundFile]) -> None:
        if some := [x for x in files if x.kind is FileKind.FILE]:
            found.append((ref, reader.read(tree, REFS, some)))

    head = _tree(repository, "HEAD", wanted)
    names = list(walk(head, paths)) if head else []
    absent = [x for x in names if x.path not in paths]
    if sparse or absent or head is None:
        index = IndexTree(repository, wanted)
        read(INDEX, index, (x for x in walk(index, paths) if x.path not in paths))
    if head is not None:
        read("HEAD", head, absent)
    tree = None if main is None else _tree(repository, main, wanted)
    if main is not None and tree is not None and (head is None or tree.root != head.root):
        same = {x.key for x in names}
        read(main, tree, (x for x in walk(tree, same) if x.key not in same))
    return found


def task_on_a_branch(
    repository: Repository, reader: TaskReader, wanted: Wanted, resource: Resource
) -> tuple[str, Task] | None:
    """A task of this name on one of the newest branches, local or fetched, and that branch."""
    said = ask(
        repository,
        "for-each-ref",
        "--sort=-committerdate",
        f"--count={MOST_BRANCHES}",
        "--format=%(refname)",
        "refs/heads/",
        "refs/remotes/",
    )
    seen = set[str]()
    for ref in os.fsdecode(said.out).splitlines():
        try:
            tree = _tree(repository, ref, wanted)
            fresh = [] if tree is None else [x for x in walk(tree) if x.key not in seen]
        except Invalid:  # more than can be looked at
            continue
        seen |= {x.key for x in fresh}
        files = [x for x in fresh if x.kind is FileKind.FILE]
        if tree is None or not files:
            continue
        for task in reader.read(tree, REFS, files).tasks:
            if task.resource == resource:
                return ref, task
    return None


def _tree(repository: Repository, ref: str, wanted: Wanted) -> RefTree | None:
    try:
        return RefTree(repository, ref, wanted)
    except NotFound:  # no commit yet
        return None


def assigned_since(repository: Repository, task: Task, name: str, ref: str | None) -> int | None:
    """When a task's file began to name somebody, in milliseconds; None if git cannot tell.

    In the work tree (no ``ref``) a name that is not committed counts from the file's own time.
    """
    file, commit = f":(top,literal){task.file}", ref or "HEAD"
    if ref is None:
        said = ask(repository, "cat-file", "blob", f"HEAD:{task.file}")
        if said.code != 0 or name.encode() not in said.out:
            with contextlib.suppress(OSError):
                root = repository.toplevel or ""
                return os.stat(os.path.join(root, task.file)).st_mtime_ns // 1_000_000
            return None
    search = (f"-S{name}", "--no-textconv") if name else ()
    words = ("log", "-1", "--format=%at", *search, "--end-of-options", commit)
    said = ask(repository, *words, "--", file)
    text = said.out.decode("ascii", "replace").strip()
    return int(text) * MS if said.code == 0 and text.isdigit() else None
