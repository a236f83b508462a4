"""Finds the task files of a work tree, a commit or the index, and reads them.

Whoever can commit decides what lies there: links out of the repository, pipes, folders in the
place of files, names that are no text. Only folders below the literal beginning of a pattern are
looked into, and no link is ever followed. That needs no connection: what a partial clone does not
have is said, never fetched, and sizes are asked before contents are read.
"""

from __future__ import annotations

import contextlib
import copy
import os
import posixpath
import time
from collections.abc import Container, Iterable, Iterator, Sequence
from enum import Enum
from functools import cache
from itertools import takewhile
from typing import NamedTuple

from gitlease.kernel.git.files import Unreadable, read_with_status
from gitlease.kernel.git.mainline import ATTRIBUTES, filter_settings, may_have_filters, missing_of
from gitlease.kernel.git.objects import (
    BLOB,
    COMMIT,
    Absent,
    GitObjects,
    TreeEntry,
    objects_of,
    read_tree,
)
from gitlease.kernel.git.repository import PATHS, Repository, ask, is_id
from gitlease.kernel.rules.errors import Invalid, NotFound, UsageError, shown
from gitlease.kernel.rules.resources import (
    Jump,
    Pattern,
    PatternError,
    covers,
    fold,
    parse,
    path_resource,
    resolve_path,
)
from gitlease.kernel.settings.schema import FILE, FILE_STEM, Tasks

MAX_FILES = 50_000
MAX_DEPTH = 40
MAX_BYTES = 1024 * 1024
MAX_SHOWN = 200
NAMED = 3  # files
MAX_PATH = 4096
OWN = ".gitlease."  # what begins so is gitlease's own: settings, and files half written
RACY_NS = 2_000_000_000  # a file may change again without its time of change doing so

Stamp = tuple[int, ...]


class FileKind(Enum):
    """A file in the place of a task file."""

    FILE = "file"
    LINK = "link"
    PROBLEM = "problem"


class FoundFile(NamedTuple):
    """One find: its path relative to the root, and what a cache knows it by.

    A file with the same ``key`` and ``stamp`` has the same content. ``message`` is the problem.
    """

    path: str
    kind: FileKind = FileKind.FILE
    key: str = ""
    stamp: Stamp = ()
    message: str = ""


class Content(NamedTuple):
    """The bytes that were read: at most one more than a task file may have.

    ``stamp`` is that of the bytes; ``settled`` tells whether a later change must show in it.
    """

    data: bytes
    stamp: Stamp = ()
    settled: bool = True


class PatternRule(NamedTuple):
    """A pattern of the settings, and what lets most paths be passed over quickly.

    ``tail`` is the literal end of whatever the pattern names; ``segments`` how deep that lies at
    least, exactly so unless ``deep``.
    """

    pattern: Pattern
    done: bool
    tail: str
    segments: int
    deep: bool

    def covers(self, path: str) -> bool:
        return self.tail in fold(path) + "/" and covers(self.pattern, path)

    def enters(self, folder: str, depth: int) -> bool:
        """True if anything below a folder, so many segments from the root, may be covered."""
        head = self.pattern.head
        # Whatever lies beside the literal beginning of a pattern is never listed.
        if depth <= len(head) and head[depth - 1] != fold(folder.rpartition("/")[2]):
            return False
        return self.deep or depth < self.segments or self.covers(folder)


Rules = tuple[PatternRule, ...]


class Wanted:
    """Which files the settings call task files, and which of them count as done."""

    def __init__(self, tasks: Tasks) -> None:
        files = tuple(_rule(text, done=False) for text in tasks.files)
        self._done = tuple(_rule(text, done=True) for text in tasks.completed)
        self.rules: Rules = files + self._done

    def folders(self) -> list[str]:
        """The folders with the task files, as written: ``""`` where they may lie in any."""
        texts = (rule.pattern.text.strip("/").split("/") for rule in self.rules)
        heads = (takewhile(lambda x: not set("*?[\\") & set(x), text) for text in texts)
        return ["/".join(head) for head in heads]

    def lie_in(self, folder: str) -> bool:
        """Return whether all that a pattern covers lies in this folder."""
        return any(f"{head}/".startswith(f"{folder}/") for head in self.folders())

    def pathspecs(self) -> list[str]:
        """The paths to ask git for (with ``PATHS``) for all task files; none if any file may be.

        It ignores the case of ASCII letters alone.
        """
        heads = dict.fromkeys("/".join(rule.pattern.head) for rule in self.rules)
        # git folds ASCII letters only, gitlease all: `Ä` and `ä` are one name here and two there.
        plain = all(heads) and all(rule.pattern.text.isascii() for rule in self.rules)
        return [f":(top,literal,icase){head}" for head in heads] if plain else []

    def covers(self, path: str) -> bool:
        """Return whether a file is called a task file, and is none of our own half-written ones."""
        # An edit is written in a file of that name first, and may be left there by a kill.
        is_ours = path.rpartition("/")[2].startswith(OWN)
        return not is_ours and any(rule.covers(path) for rule in self.rules)

    def done(self, path: str) -> bool:
        return any(rule.covers(path) for rule in self._done)

    def too_many(self, path: str) -> Invalid:
        """The refusal to go on, at a file that is one too many."""
        text = next((r.pattern.text for r in self.rules if r.covers(path)), "")
        return Invalid(
            f"{printable(text)} in tasks.files covers more than {MAX_FILES} files",
            hints=("name the folder of the task files in .gitlease.yaml",),
        )


@cache
def _rule(text: str, *, done: bool) -> PatternRule:
    try:
        pattern = parse(path_resource(resolve_path(text)).pattern or text)
    except (PatternError, UsageError) as error:
        where = "tasks.completed" if done else "tasks.files"
        raise Invalid(f"{where}: {error}") from None
    deep, (*above, name) = [Jump.DEEP], pattern.segments
    literal = takewhile(lambda token: isinstance(token, str), reversed(name))
    end = "".join(map(str, literal))[::-1]
    # What folds to several characters may be written in several ways.
    tail = fold(end) + "/" if end.isascii() else ""
    segments = 1 + sum(segment != deep for segment in above) + pattern.only_below
    is_deep = not pattern.anchored or deep in above
    return PatternRule(pattern, done, tail, segments, is_deep)


def why_no_task(tasks: Tasks, others: Sequence[str] = ()) -> str:
    """Say where tasks were looked for, and why the files that are there are none."""
    where, name = ", ".join(tasks.files), tasks.fields.get("id", "id")
    if not others:
        return f"no task files found (looked in {where})"
    lacks = "front matter" if name == FILE_STEM else f"the field {shown(name)} in front matter"
    named = ", ".join(others[:NAMED]) + (", …" if len(others) > NAMED else "")
    many = "1 file" if len(others) == 1 else f"{len(others)} files"
    return f"no tasks: {many} in {where}, without {lacks}: {named}"


class Listed(NamedTuple):
    """The entries of a folder, cached by its key; in a work tree as the system listed them."""

    name: str
    key: str
    is_folder: bool
    is_file: bool
    is_link: bool
    on_disk: os.DirEntry[str] | None = None


def walk(place: TaskPlace, known: Container[str] = ()) -> Iterator[FoundFile]:
    """Everything in the place of a task file. ``known`` keys and paths are covered for certain.

    Raises Invalid when there is too much.
    """
    wanted, count = place.wanted, 0
    folders: list[tuple[str, Rules, int]] = [("", wanted.rules, 1)]
    while folders:
        folder, rules, depth = folders.pop()
        try:
            entries = place.entries(folder)
        except Unreadable as error:
            yield problem(folder or ".", str(error))
            continue
        heads = [rule.pattern.head[depth - 1 : depth] for rule in rules]
        every = () in heads  # some rule has no literal name here
        for entry in entries:
            if not every and (fold(entry.name),) not in heads:
                continue
            path = f"{folder}/{entry.name}" if folder else entry.name
            if entry.is_folder:
                inner = tuple(rule for rule in rules if rule.enters(path, depth))
                # Whoever can commit can nest folders without end.
                if inner and depth < MAX_DEPTH:
                    folders.append((path, inner, depth + 1))
                elif inner:
                    yield problem(path, f"is more than {MAX_DEPTH} folders deep")
                continue
            find = None
            try:
                if entry.is_link:
                    find = _problem_of_link(path, rules, depth, entry)
                elif (
                    entry.is_file
                    and not entry.name.startswith(OWN)
                    and (
                        entry.key in known
                        or path in known
                        or any(rule.covers(path) for rule in rules)
                    )
                ):
                    listed = entry.on_disk
                    # Without following: a file that has just become a link is none of ours.
                    stamp = stamp_of(listed.stat(follow_symlinks=False)) if listed else ()
                    find = FoundFile(path, FileKind.FILE, entry.key, stamp)
            # Deleted since the folder was listed.
            except FileNotFoundError:
                continue
            except OSError as error:
                find = problem(path, f"cannot be read: {error.strerror}")
            if find is not None:
                count += 1
                if count > MAX_FILES:
                    raise wanted.too_many(path)
                yield find


class WorkTree:
    """The files below one folder, the root of a work tree."""

    def __init__(self, root: str, wanted: Wanted) -> None:
        self.root, self.wanted = root, wanted

    def entries(self, folder: str) -> Iterable[Listed]:
        """List a folder, ``""`` is the root. Raises Unreadable."""
        try:
            with os.scandir(os.path.join(self.root, folder)) as opened:
                entries = list(opened)
        except (FileNotFoundError, NotADirectoryError):
            return ()
        except OSError as error:
            raise Unreadable(f"cannot be read: {error.strerror}") from None
        if folder and any(entry.name == ".git" for entry in entries):
            return ()  # a submodule, or another repository
        prefix = folder and folder + "/"
        return (
            Listed(
                entry.name,
                prefix + entry.name,
                # A link could lead out of the repository, or round in a circle.
                entry.is_dir(follow_symlinks=False),
                entry.is_file(follow_symlinks=False),
                entry.is_symlink(),
                entry,
            )
            for entry in entries
            if entry.name.lower() != ".git"
        )

    def load(self, file: FoundFile) -> Content | None:
        """The bytes of a file that was found, None when it is gone. Raises Unreadable."""
        return self._load(os.path.join(self.root, file.path))

    def linked(self, path: str) -> tuple[str | None, bytes]:
        """The target of a link in this place, and the beginning of what is there."""
        # A link out of the work tree, or into .git, is not read: its task is none of this
        # repository.
        root, target = os.path.realpath(self.root), os.path.realpath(f"{self.root}/{path}")
        inside = target[len(root) :].lstrip("/") if target.startswith(root + "/") else ""
        if not inside or ".git" in inside.lower().split("/"):
            return None, b""
        try:
            content = self._load(target)
        except Unreadable:
            content = None
        return inside, b"" if content is None else content.data

    def _load(self, path: str) -> Content | None:
        # Before the bytes are read: what changes while they are must not count as settled.
        now = time.time_ns()
        try:
            read = read_with_status(path, MAX_BYTES)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Unreadable(f"cannot be read: {error.strerror}") from None
        if read is None:
            return None
        data, status = read
        return Content(data, stamp_of(status), status.st_mtime_ns + RACY_NS < now)


# --- what git has --------------------------------------------------------------------------------

MAX_TREE = 16 * 1024 * 1024  # bytes of one folder
MAX_ENTRIES = 2_000_000  # of all folders: the same one may lie in many places
MAX_LINK = 4096
MAX_COMMIT = 8 * 1024 * 1024  # bytes, whatever its message

_BLOBS, _LINK, _TREE = (0o100644, 0o100755), 0o120000, 0o040000


class RefTree:
    """The files of the commit that a ref names, as a checkout would write them.

    Raises NotFound where there is none.
    """

    _has_attributes = True

    def __init__(self, repository: Repository, ref: str, wanted: Wanted) -> None:
        self.wanted = wanted
        self._repository, self._objects = repository, objects_of(repository)
        self.root = _root(repository, self._objects, ref)
        self._folders, self._files, self._entries = {"": self.root}, dict[str, str](), 0
        # The contents depend on the filters that are set up, and on the attributes on the way.
        self._attributes = dict[str, str]()
        self._checked_out: dict[str, bytes | Unreadable] | None = None

    def entries(self, folder: str) -> list[Listed]:
        tree = self._tree(folder)
        self._entries += len(tree)
        if self._entries > MAX_ENTRIES:
            raise Invalid(f"there are more than {MAX_ENTRIES} files and folders to look at")
        listed, filters = [], ""
        if self._has_attributes:
            prefix = folder and folder + "/"
            self._attributes |= {prefix + x.name: x.id for x in tree if x.name == ATTRIBUTES}
            on_the_way = [
                id
                for x, id in self._attributes.items()
                if prefix.startswith(x.removesuffix(ATTRIBUTES))
            ]
            if on_the_way:
                filters = f":{filter_settings(self._repository)}:{','.join(on_the_way)}"
        for entry in tree:
            if entry.name in ("", ".", "..") or "/" in entry.name or entry.name.lower() == ".git":
                continue  # no name that git gives a file
            path = f"{folder}/{entry.name}" if folder else entry.name
            is_folder = entry.mode == _TREE
            (self._folders if is_folder else self._files)[path] = entry.id
            is_file, is_link = entry.mode in _BLOBS, entry.mode == _LINK
            key = f"{entry.id}:{path}{filters}"
            listed.append(Listed(entry.name, key, is_folder, is_file, is_link))
        return listed

    def _tree(self, folder: str) -> list[TreeEntry]:
        return read_tree(self._objects, self._folders[folder], MAX_TREE)

    def load(self, file: FoundFile) -> Content:
        if self._has_attributes and may_have_filters(self._repository, self._attributes):
            if self._checked_out is None:
                self._checked_out = self._apply_filters()
            changed = self._checked_out.get(file.path)
            if isinstance(changed, Unreadable):
                raise changed
            if changed is not None:
                return Content(changed[: MAX_BYTES + 1])
        return Content(self._objects.read(self._files[file.path], BLOB, MAX_BYTES))

    def _apply_filters(self) -> dict[str, bytes | Unreadable]:
        from gitlease.kernel.git.smudging import as_checked_out  # few files have filters

        # All at once, of a tree of its own: this one may be read folder by folder just now.
        whole = copy.copy(self)
        whole._folders, whole._files, whole._attributes = {"": self.root}, {}, {}
        found = {x.path for x in walk(whole) if x.kind is FileKind.FILE}
        files = {path: whole._files[path] for path in found}
        return as_checked_out(self._repository, self._objects, files, whole._attributes)

    def linked(self, path: str) -> tuple[str | None, bytes]:
        with contextlib.suppress(Unreadable):
            text = os.fsdecode(self._objects.read(self._files[path], BLOB, MAX_LINK))
            target = posixpath.normpath(posixpath.join(posixpath.dirname(path), text))
            if target in self._files:
                return target, b""
        return None, b""


class _Probe(RefTree):
    """The files of a commit, and the folders on the way whose listings are not here."""

    def __init__(self, repository: Repository, ref: str, wanted: Wanted) -> None:
        super().__init__(repository, ref, wanted)
        self.absent = list[str]()
        self.besides = list[str]()

    def _tree(self, folder: str) -> list[TreeEntry]:
        try:
            tree = super()._tree(folder)
        except Absent:
            self.absent.append(self._folders[folder])
            return []
        # Settings, and which filters a checkout applies to the files.
        names = (FILE, ATTRIBUTES) if not folder else (ATTRIBUTES,)
        self.besides += [x.id for x in tree if x.name in names and x.mode in _BLOBS]
        return tree

    def missing(self, repository: Repository) -> list[str]:
        """The ids of objects that are needed to know the tasks, and that this clone lacks."""
        found = [x for x in walk(self) if x.kind is not FileKind.PROBLEM]
        blobs = [self._files[x.path] for x in found]
        return [*self.absent, *missing_of(repository, [*self.besides, *blobs])]


def missing_objects(repository: Repository, commit: str, wanted: Wanted) -> list[str]:
    """The ids of objects of a commit that this clone lacks: settings, task files, their folders."""
    try:
        return _Probe(repository, commit, wanted).missing(repository)
    except (Invalid, NotFound):  # more than can be looked at: whoever reads it says so
        return []


class IndexTree(RefTree):
    """The files of the index, in which a sparse checkout has what its work tree lacks."""

    _has_attributes = False

    def __init__(self, repository: Repository, wanted: Wanted) -> None:
        self.wanted = wanted
        self._objects = objects_of(repository)
        self._files, self._folders, self._entries = dict[str, str](), dict[str, str](), 0
        self._trees: dict[str, dict[str, TreeEntry]] = {}
        listed = ask(repository, "ls-files", "-s", "-z", "--", *wanted.pathspecs(), env=PATHS)
        for line in listed.out.split(b"\0")[:-1] if listed.code == 0 else ():
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
    # git would take it for an option.
    if not ref or ref.startswith("-") or not ref.isprintable():
        raise _no_ref(ref)
    id = ref
    if not is_id(ref):
        parsed = ask(repository, "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")
        id = parsed.out.decode().strip()
    try:  # its tree may not be here, which is said of the folder
        commit = objects.read(id, COMMIT, MAX_COMMIT)
    except Unreadable:
        raise _no_ref(ref) from None
    return commit.removeprefix(b"tree ").partition(b"\n")[0].decode()


def _no_ref(ref: str) -> NotFound:
    hint = "name a branch, a tag or a commit of this clone; git fetch brings others here"
    return NotFound(f"there is no ref {shown(ref)}", hints=(hint,))


TaskPlace = WorkTree | RefTree


def _problem_of_link(path: str, rules: Rules, depth: int, entry: Listed) -> FoundFile | None:
    inner = [rule for rule in rules if rule.enters(path, depth)]
    for rule in inner:
        head = rule.pattern.head
        # A tree of git's does not say where a link leads.
        unsure = entry.on_disk is None or not rule.pattern.is_literal
        to_folder = unsure or os.path.isdir(entry.on_disk or "")
        if depth < len(head) or (depth == len(head) and to_folder):
            return problem(path, "is a symbolic link: its task files cannot be edited safely")
    if any(rule.covers(path) for rule in rules):
        message = f"{printable(path)}: a symbolic link cannot be edited safely"
        return FoundFile(path, FileKind.LINK, message=message)
    return None


def problem(path: str, what: str) -> FoundFile:
    """A find that cannot be used, and that nobody knows the tasks of."""
    return FoundFile(path, FileKind.PROBLEM, message=f"{printable(path)} {what}")


def stamp_of(status: os.stat_result) -> Stamp:
    """A stamp that changes whenever the content of a file does."""
    # The inode shows a file that was replaced, the time of change one whose time was set back.
    return (status.st_mtime_ns, status.st_size, status.st_ino, status.st_ctime_ns)


def printable(text: str, limit: int = MAX_SHOWN) -> str:
    """A path or a message as it is, but without what a terminal may misread, and not endless."""
    if not text.isprintable():
        text = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def segments_of(file: str) -> list[str]:
    """The parts of a path relative to the root. Invalid for what leads out of the work tree."""
    parts = file.split("/")
    # Case-insensitive disks have `.GIT` for git's own folder.
    if any(p in ("", ".", "..") or "\0" in p or p.lower() == ".git" for p in parts):
        raise Invalid(f"{printable(file)} is not a file of this work tree")
    return parts
