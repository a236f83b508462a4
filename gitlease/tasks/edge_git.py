"""git in the work tree of a user who wants an edge committed: what is there, and what is written.

All goes through git itself, which knows every format of objects and indexes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from tempfile import TemporaryDirectory

from gitlease.core.errors import Invalid
from gitlease.core.frozen import dataclass
from gitlease.git.repository import TIMEOUT, Repository, is_on, reason_of
from gitlease.git.run import GitResult, run_git
from gitlease.tasks.scan import printable
from gitlease.tasks.write import LITERAL_PATHSPECS

PATIENCE = 3.0  # seconds to wait for another git that has the index
SIGNING = 120.0  # seconds: a person may have to type a passphrase
REMOVE_IT = "Once no git is running here, remove that file."
HEAD, INDEX = "in the last commit", "as it is staged"

_HEADS = {"MERGE_HEAD": "merge", "CHERRY_PICK_HEAD": "cherry-pick", "REVERT_HEAD": "revert"}
_FOLDERS = {"rebase-merge": "rebase", "rebase-apply": "rebase or am", "sequencer": "cherry-pick"}
# An index of our own is one file, with all entries, that no daemon watches.
_PLAIN_INDEX = tuple(
    word
    for key in ("core.splitIndex", "core.fsmonitor", "index.sparse")
    for word in ("-c", f"{key}=false")
)


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """A file in HEAD's tree or in the index; ``flag`` is how ``git ls-files -v`` marks it."""

    mode: str
    blob: str
    flag: str = "H"


def refusal(message: str, *hints: str) -> Invalid:
    return Invalid(message, hints=hints)


def _cached(new: Mapping[str, IndexEntry]) -> list[str]:
    return [x for f, e in new.items() for x in ("--cacheinfo", f"{e.mode},{e.blob},{f}")]


class UserGit:
    """git in one work tree of the user's, with its own HEAD and index."""

    def __init__(self, repository: Repository) -> None:
        if repository.toplevel is None:
            raise refusal("no work tree to commit from", "use a clone that has one")
        self.repository, self.toplevel = repository, repository.toplevel
        self.state = os.path.join(repository.common_dir, "gitlease")
        self.index_lock = os.path.join(repository.git_dir, "index.lock")

    def run(self, *words: str, timeout: float = TIMEOUT, index: str = "") -> GitResult:
        where = (f"--git-dir={self.repository.git_dir}", f"--work-tree={self.toplevel}")
        quiet = ("-c", "core.hooksPath=/dev/null")  # no hook of the user runs
        env = LITERAL_PATHSPECS | ({"GIT_INDEX_FILE": index} if index else {})
        return run_git([*where, *quiet, *words], cwd=self.toplevel, timeout=timeout, env=env)

    def ask(self, *words: str, what: str, timeout: float = TIMEOUT, index: str = "") -> bytes:
        said = self.run(*words, timeout=timeout, index=index)
        if said.code != 0:
            raise Invalid(f"{what}: {reason_of(said)}")
        return said.out

    def check_state(self) -> None:
        """Refuse where a commit would get in the way of something that is half done."""
        if os.environ.get("GIT_INDEX_FILE"):
            message = "no edge can be committed inside a hook of git commit (GIT_INDEX_FILE is set)"
            raise refusal(message, "leave it uncommitted here, and commit it afterwards")
        in_refs = self.repository.config.get("extensions.refStorage") is not None
        for name, what in (_HEADS | _FOLDERS).items():
            found = os.path.lexists(os.path.join(self.repository.git_dir, name))
            if not found and in_refs and name in _HEADS:
                found = self.run("rev-parse", "-q", "--verify", name).code == 0
            if found:
                message = f"a {what} is in progress: an edge cannot be committed on its own"
                raise refusal(message, "finish it, or abort it, first: git status says how")

    def tip(self) -> tuple[str, str]:
        """The current branch's full name and its commit."""
        said = self.run("rev-parse", "HEAD^{commit}", "--symbolic-full-name", "HEAD")
        commit, _, name = os.fsdecode(said.out).strip().partition("\n")
        if said.code != 0:
            message = f"no commit yet on {printable(self.repository.branch() or 'HEAD')}"
            raise refusal(message, "make the first commit, with the task files, yourself")
        if not name.startswith("refs/heads/"):
            raise refusal("HEAD is detached: no branch to commit on", "first: git switch BRANCH")
        return name, commit

    def committed(self, head: str, files: list[str]) -> dict[str, IndexEntry]:
        """The entries of some files in a commit."""
        words = ("ls-tree", "-z", "--full-tree", head, "--", *files)
        listed = self._listed(*words, what="the last commit")
        return {path: IndexEntry(mode, oid) for path, (mode, _kind, oid) in listed}

    def staged(self, files: list[str]) -> dict[str, list[IndexEntry]]:
        """The index's entries of some files: several for one that is unmerged."""
        found: dict[str, list[IndexEntry]] = {}
        words = ("ls-files", "-s", "-v", "-z", "--", *files)
        for path, (flag, mode, oid, _stage) in self._listed(*words, what="the index"):
            found.setdefault(path, []).append(IndexEntry(mode, oid, flag))
        return found

    def _listed(self, *words: str, what: str) -> Iterator[tuple[str, list[str]]]:
        for line in self.ask(*words, what=f"{what} cannot be read").split(b"\0")[:-1]:
            about, _, path = line.partition(b"\t")
            yield os.fsdecode(path), about.decode().split()

    def write(self, contents: Collection[bytes]) -> list[str]:
        """Write blobs into the user's repository; their ids."""
        names = []
        with TemporaryDirectory(prefix="edge-", dir=self.state) as folder:
            for number, data in enumerate(contents):
                names.append(os.path.join(folder, str(number)))
                with open(names[-1], "wb") as file:
                    file.write(data)
            words = ("hash-object", "-w", "--no-filters", "--", *names)
            return self.ask(*words, what="git did not write the edge").decode().split()

    def tree(self, head: str, new: Mapping[str, IndexEntry]) -> str:
        """Write the tree of a commit with other entries for some of its files; its id."""
        what, plain = "git did not write the edge", _PLAIN_INDEX
        with TemporaryDirectory(prefix="edge-", dir=self.state) as folder:
            index = os.path.join(folder, "index")
            self.ask(*plain, "read-tree", head, what=what, index=index)
            self.ask(*plain, "update-index", *_cached(new), what=what, index=index)
            said = self.ask(*plain, "write-tree", "--missing-ok", what=what, index=index)
        return said.decode().strip()

    def commit(self, tree: str, parent: str, message: str) -> str:
        """Write a commit as the user's own ``git commit`` would: identity and signature."""
        words = ["-c", "i18n.commitEncoding=UTF-8", "commit-tree", "-p", parent, "-m", message]
        if is_on(self.repository.config.get("commit.gpgSign")):
            words.append("-S")
        what = "git did not make the commit"
        return self.ask(*words, tree, what=what, timeout=SIGNING).decode().strip()

    def stage(self, new: Mapping[str, IndexEntry]) -> None:
        """Put other entries into the index, once no other git has it."""
        words = ["update-index", *_cached(new)]
        if skipped := [file for file, entry in new.items() if entry.flag in "Ss"]:
            # Without all its entries git takes a file below a folded-up folder for a new one.
            words = ["-c", "index.sparse=false", *words, "--skip-worktree", "--", *skipped]

        def locked() -> bool:
            said = self.run(*words)
            if said.code != 0 and not ("index.lock" in said.err and "File exists" in said.err):
                raise Invalid(f"git did not stage the edge: {reason_of(said)}")
            return said.code != 0

        self.wait_while(locked)

    def refresh(self, files: Iterable[str]) -> None:
        """Let new entries have times: without them git diff-index calls the files changed."""
        self.run("add", "--refresh", "--", *files)

    def wait_while(self, locked: Callable[[], bool]) -> None:
        """Wait for another git that has the index. Invalid when that takes too long."""
        deadline = time.monotonic() + PATIENCE
        while locked():
            if time.monotonic() >= deadline:
                message = (
                    f"another git process holds the index, or was killed: {self.index_lock} exists."
                )
                raise refusal(f"{message} {REMOVE_IT}", "repeat the command after that")
            time.sleep(0.02)

    def tidy(self) -> None:
        """Remove what killed processes left behind."""
        import shutil

        for entry in os.scandir(self.state):
            age = time.time() - entry.stat(follow_symlinks=False).st_mtime
            if entry.name.startswith("edge-") and age > 3600:
                shutil.rmtree(entry.path, ignore_errors=True)  # the lock is a file, and stays
