"""Makes the commit that is to land, without touching a work tree or a branch.

git's own merge runs in an empty folder with an index of its own, so that every supported version of
git, its attributes and its drivers hold, and nobody's files are in between when it is interrupted.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from tempfile import TemporaryDirectory
from typing import ClassVar

from gitlease.kernel.git.files import Unreadable
from gitlease.kernel.git.objects import COMMIT, objects_of
from gitlease.kernel.git.repository import CHECKOUT, is_on
from gitlease.kernel.rules.errors import GitleaseError, Invalid
from gitlease.kernel.rules.frozen import dataclass
from gitlease.tasks.edge_commit import SIGNING, UserGit
from gitlease.tasks.scan import printable

NAMED = 5  # files that a message lists
LARGEST = 16 * 1024 * 1024  # bytes of a commit
# An index of its own is one file, with all entries, that no daemon watches.
_PLAIN = [
    word
    for key in ("core.splitIndex", "core.fsmonitor", "core.sparseCheckout", "index.sparse")
    for word in ("-c", f"{key}=false")
]
_AUTHOR = rb"(?s)(.*?) ?<(.*)> (\d+ [+-]\d{4})"


class MergeConflict(GitleaseError):
    """The work and its base change the same lines of these ``files``; nothing was changed."""

    code: ClassVar[str] = "violations"
    files: tuple[str, ...] = ()


def listed(files: Sequence[str]) -> str:
    """The first of some files, for a message."""
    more = f" and {len(files) - NAMED} more" if len(files) > NAMED else ""
    return ", ".join(map(printable, files[:NAMED])) + more


@dataclass(frozen=True)
class CommitData:
    """A commit: its tree, its parents, the bytes of its author's line and of its message.

    ``plain``: it has no signature, and nothing else that a copy of it would lose.
    """

    tree: str
    parents: tuple[str, ...]
    author: bytes
    encoding: str
    message: bytes
    plain: bool

    @property
    def email(self) -> str:
        """The author's address."""
        match = re.fullmatch(_AUTHOR, self.author)
        return os.fsdecode(match[2]) if match else ""

    @property
    def text(self) -> str:
        return self.message.decode("utf-8", "replace")


class Replay:
    """Commits made in one repository, by git as its user has set it up."""

    def __init__(self, git: UserGit) -> None:
        self._git = git

    def read(self, commit: str) -> CommitData:
        """Read a commit. Raises Invalid."""
        try:
            data = objects_of(self._git.repository).read(commit, COMMIT, LARGEST)
        except Unreadable as why:
            raise Invalid(f"commit {commit[:10]} cannot be read: it {why}") from None
        header, _, message = data.partition(b"\n\n")
        fields: list[tuple[bytes, bytes]] = []
        for line in header.split(b"\n"):
            key, _, value = line.partition(b" ")
            fields.append((key, value))
        known = dict(reversed(fields))
        return CommitData(
            tree=known[b"tree"].decode(),
            parents=tuple(value.decode() for key, value in fields if key == b"parent"),
            author=known[b"author"],
            encoding=known.get(b"encoding", b"UTF-8").decode("ascii", "replace"),
            message=message,
            plain={key for key, _ in fields} <= {b"tree", b"parent", b"author", b"committer"},
        )

    def between(self, onto: str, head: str) -> list[str]:
        """The commits of ``head`` that ``onto`` lacks, the oldest first."""
        words = ("rev-list", "--reverse", "--topo-order", head, "--not", onto, "--")
        return self._ask(*words, what="the commits cannot be listed").split()

    def bases(self, onto: str, head: str) -> list[str]:
        """The best common ancestors of two commits."""
        result = self._git.run("merge-base", "--all", onto, head)
        return result.out.decode().split() if result.code == 0 else []

    def replayed(self, onto: str, commits: Sequence[str]) -> str:
        """Copies of these commits, which have one parent each, on top of ``onto``; the last's id.

        What is there already is left out. Raises MergeConflict.
        """
        tip = onto
        for commit in commits:
            data = self.read(commit)
            no_tree = ("hash-object", "-t", "tree", "/dev/null")
            parent = data.parents[0] if data.parents else self._ask(*no_tree, what="no empty tree")
            if parent == tip:
                tip = commit
                continue
            tree = self._merge([parent], tip, commit)
            same = self._tree_of(tip) == tree
            # A commit that was empty from the start is kept, as git rebase does.
            if same and (not data.parents or self._tree_of(parent) != data.tree):
                continue
            tip = self.commit(tree, (tip,), data.message, like=data)
        return tip

    def merged(self, onto: str, head: str, message: str) -> str:
        """A commit that merges ``head`` into ``onto``. Raises MergeConflict."""
        tree = self._merge(self.bases(onto, head), onto, head)
        return self.commit(tree, (onto, head), message.encode())

    def commit(
        self, tree: str, parents: Sequence[str], message: bytes, *, like: CommitData | None = None
    ) -> str:
        """Write a commit, as ``git commit`` would: signed where the user's are.

        ``like``: its author and encoding.
        """
        words, env = ["-c", f"i18n.commitEncoding={like.encoding if like else 'UTF-8'}"], {}
        signs = self._git.repository.config.get("commit.gpgSign")
        if like is not None and (author := re.fullmatch(_AUTHOR, like.author)) is not None:
            names = zip(("NAME", "EMAIL", "DATE"), author.groups(), strict=True)
            env = {f"GIT_AUTHOR_{name}": os.fsdecode(value) for name, value in names}
            # Without @ git would take a short number for another form of date.
            env["GIT_AUTHOR_DATE"] = "@" + env["GIT_AUTHOR_DATE"]
        words += ["commit-tree", *(["-S"] if is_on(signs) else [])]
        words += [word for parent in parents for word in ("-p", parent)]
        # By a file: git would end a message of arguments with a line break of its own.
        with TemporaryDirectory(prefix="edge-", dir=self._git.state) as folder:
            name = os.path.join(folder, "message")
            with open(name, "wb") as file:
                file.write(message)
            words += ["-F", name, tree]
            return self._ask(*words, what="git did not make the commit", timeout=SIGNING, env=env)

    def _merge(self, bases: Sequence[str], ours: str, theirs: str) -> str:
        """The tree of a merge."""
        with TemporaryDirectory(prefix="edge-", dir=self._git.state) as folder:
            index, tree = os.path.join(folder, "index"), os.path.join(folder, "tree")
            os.mkdir(tree)
            words = [f"--work-tree={tree}", *_PLAIN]
            self._ask(*words, "read-tree", ours, what="git cannot merge", index=index)
            merge = (*words, "merge-recursive", *bases, "--", ours, theirs)
            result = self._git.run(*merge, timeout=CHECKOUT, index=index)
            if result.code == 0:
                done = (*words, "write-tree", "--missing-ok")
                return self._ask(*done, what="git cannot merge", index=index)
            unmerged = self._git.run(*words, "ls-files", "-u", "-z", "--full-name", index=index).out
        names = (os.fsdecode(x).partition("\t")[2] for x in unmerged.split(b"\0"))
        files = tuple(dict.fromkeys(filter(None, names)))
        if result.code != 1 or result.timed_out or not files:
            raise Invalid(f"git cannot merge: {result.reason}")
        raise MergeConflict(f"conflict in {listed(files)}", files=files)

    def _tree_of(self, commit: str) -> str:
        return self._ask("rev-parse", "--verify", f"{commit}^{{tree}}", what="no such commit")

    def _ask(self, *words: str, what: str, **how: object) -> str:
        return self._git.ask(*words, what=what, **how).decode().strip()  # type: ignore[arg-type]
