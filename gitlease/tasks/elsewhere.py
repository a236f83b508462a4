"""The tasks that the index, HEAD and the default branch have, and the work tree lacks or has older.

Names are compared first: of a checkout that equals its branch no file is read.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Container, Iterable

from gitlease.core.edge import Task
from gitlease.core.errors import Invalid, NotFound
from gitlease.core.resources.resource import Resource
from gitlease.engine.ports import INDEX, TaskList
from gitlease.git.repository import Repository, ask
from gitlease.tasks.reading import REFS, TaskReader
from gitlease.tasks.scan import FileKind, FoundFile, Wanted, walk
from gitlease.tasks.tree import IndexTree, RefTree

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
    names = list(walk(head, _Paths(paths))) if head else []
    absent = [x for x in names if x.path not in paths]
    if sparse or absent or head is None:
        index = IndexTree(repository, wanted)
        read(INDEX, index, (x for x in walk(index, _Paths(paths)) if x.path not in paths))
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


class _Paths(Container[str]):
    """Keys of a tree's files, by the paths in them."""

    def __init__(self, paths: Collection[str]) -> None:
        self._paths = paths

    def __contains__(self, key: object) -> bool:
        return str(key).partition(":")[2] in self._paths


def _tree(repository: Repository, ref: str, wanted: Wanted) -> RefTree | None:
    try:
        return RefTree(repository, ref, wanted)
    except NotFound:  # no commit yet
        return None
