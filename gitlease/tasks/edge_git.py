"""git in the work tree of a user who wants an edge committed: what is there, and what is written.

All goes through git itself, which knows every format of objects and indexes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from gitlease.core.errors import Invalid
from gitlease.core.frozen import dataclass
from gitlease.git.query import reason_of
from gitlease.git.repository import TIMEOUT, Repository
from gitlease.git.run import GitResult, run_git

PATIENCE = 3.0  # seconds to wait for another git that has the index
SIGNING = 120.0  # seconds: a person may have to type a passphrase
MAX_BYTES = 1024 * 1024
HEAD, INDEX = "in the last commit", "as it is staged"

_HEADS = {"MERGE_HEAD": "merge", "CHERRY_PICK_HEAD": "cherry-pick", "REVERT_HEAD": "revert"}
_FOLDERS = {"rebase-merge": "rebase", "rebase-apply": "rebase or am", "sequencer": "cherry-pick"}
# Paths are taken literally, whatever the user's environment says.
_LITERALLY = {f"GIT_{kind}_PATHSPECS": "0" for kind in ("GLOB", "NOGLOB", "ICASE")}
_LITERALLY["GIT_LITERAL_PATHSPECS"] = "1"


@dataclass(frozen=True, slots=True)
class Entry:
    """A file in HEAD's tree or in the index; ``flag`` is how ``git ls-files -v`` marks it."""

    mode: str
    blob: str
    flag: str = "H"


def refusal(message: str, *hints: str) -> Invalid:
    return Invalid(message, hints=hints)


def shown_file(file: str) -> str:
    """A file's name fit for a message, with its suffix."""
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in file)
    return text if len(text) <= 200 else "…" + text[-199:]


class UserGit:
    """git in one work tree of the user's, with its own HEAD and index."""

    def __init__(self, repository: Repository) -> None:
        if repository.toplevel is None:
            raise refusal("there is no work tree to commit from", "use a clone that has one")
        self.repository, self.toplevel = repository, repository.toplevel
        self.state = os.path.join(repository.common_dir, "gitlease")
        self.index_lock = os.path.join(repository.git_dir, "index.lock")

    def run(self, *words: str, timeout: float = TIMEOUT) -> GitResult:
        where = (f"--git-dir={self.repository.git_dir}", f"--work-tree={self.toplevel}")
        quiet = ("-c", "core.hooksPath=/dev/null")  # no hook of the user runs
        command = [*where, *quiet, *words]
        return run_git(command, cwd=self.toplevel, timeout=timeout, env=_LITERALLY)

    def ask(self, *words: str, what: str, timeout: float = TIMEOUT) -> bytes:
        said = self.run(*words, timeout=timeout)
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
            message = f"there is no commit yet on {shown_file(self.repository.branch() or 'HEAD')}"
            raise refusal(message, "make the first commit, with the task files, yourself")
        if not name.startswith("refs/heads/"):
            raise refusal("HEAD is detached: no branch to commit on", "first: git switch BRANCH")
        return name, commit

    def committed(self, head: str, files: list[str]) -> tuple[dict[str, str], dict[str, Entry]]:
        """The folders on the way to some files in a commit, and the files."""
        words = ("ls-tree", "-z", "-t", "--full-tree", head, "--", *files)
        trees, found = {"": head}, {}  # a commit stands for its tree
        for path, (mode, kind, oid) in self._listed(*words, what="the last commit"):
            found[path] = Entry(mode, oid)
            if kind == "tree":
                trees[path] = oid
        return trees, found

    def staged(self, files: list[str]) -> dict[str, list[Entry]]:
        """The index's entries of some files: several for one that is unmerged."""
        found: dict[str, list[Entry]] = {}
        words = ("ls-files", "-s", "-v", "-z", "--", *files)
        for path, (flag, mode, oid, _stage) in self._listed(*words, what="the index"):
            found.setdefault(path, []).append(Entry(mode, oid, flag))
        return found

    def _listed(self, *words: str, what: str) -> Iterator[tuple[str, list[str]]]:
        for line in self.ask(*words, what=f"{what} cannot be read").split(b"\0")[:-1]:
            about, _, path = line.partition(b"\t")
            yield os.fsdecode(path), about.decode().split()

    def blob(self, oid: str, file: str, where: str) -> bytes:
        what = f"{shown_file(file)} cannot be read {where}"
        if int(self.ask("cat-file", "-s", oid, what=what)) > MAX_BYTES:
            message = f"{shown_file(file)} is larger than {MAX_BYTES // 1024} KiB {where}"
            raise refusal(message, "make it smaller, and commit that first")
        return self.ask("cat-file", "blob", oid, what=what)

    def tree_with(self, oid: str, changed: Mapping[bytes, bytes], folder: str) -> bytes:
        """A tree's own bytes with other objects for some of its entries."""
        what = f"the folder {shown_file(folder) or '/'} cannot be read {HEAD}"
        tree = self.ask("cat-file", "tree", oid, what=what)
        parts, at, size = [], 0, len(oid) // 2
        while at < len(tree):
            end = tree.find(b"\0", at) + 1
            if not end or end + size > len(tree):
                raise Invalid(f"{what}: it is damaged")
            mode, _, name = tree[at : end - 1].partition(b" ")
            # Modes that git takes in old trees, and no more in new ones.
            mode = mode.lstrip(b"0").replace(b"100664", b"100644")
            parts += [mode, b" ", name, b"\0", changed.get(name, tree[end : end + size])]
            at = end + size
        return b"".join(parts)

    def write(self, kind: str, contents: Collection[bytes]) -> list[str]:
        """Write objects into the user's repository; their ids."""
        import tempfile

        names = []
        with tempfile.TemporaryDirectory(prefix="edge-", dir=self.state) as folder:
            for number, data in enumerate(contents):
                names.append(os.path.join(folder, str(number)))
                with open(names[-1], "wb") as file:
                    file.write(data)
            words = ("hash-object", "-w", "--no-filters", "-t", kind, "--", *names)
            return self.ask(*words, what="git did not write the edge").decode().split()

    def commit(self, tree: str, parent: str, message: str) -> str:
        """Write a commit as the user's own ``git commit`` would: identity, encoding, signature."""
        # git labels the message with this encoding, and converts nothing.
        encoding = self.repository.config.get("i18n.commitEncoding") or "UTF-8"
        try:
            data = message.encode(encoding)
        except (LookupError, UnicodeError):
            data = b"\0"
        if b"\0" in data:  # a commit cannot be in UTF-16 either
            encoding, data = "UTF-8", message.encode(errors="replace")
        words = ["-c", f"i18n.commitEncoding={encoding}", "commit-tree", "-p", parent]
        words += ["-m", os.fsdecode(data)]
        if self.repository.config.get("commit.gpgSign") is not None:
            asked = ("config", "--type=bool", "--default=false", "commit.gpgSign")
            if self.ask(*asked, what="commit.gpgSign cannot be read").strip() == b"true":
                words.append("-S")
        what = "git did not make the commit"
        return self.ask(*words, tree, what=what, timeout=SIGNING).decode().strip()

    def stage(self, new: Mapping[str, tuple[Entry, str]]) -> None:
        """Put other blobs into the index, with the mode and the marks that its entries have."""
        skipped = [file for file, (entry, _) in new.items() if entry.flag in "Ss"]
        assumed = [file for file, (entry, _) in new.items() if entry.flag.islower()]
        # Without all its entries git takes a file below a folded-up folder for a new one.
        words = ["-c", "index.sparse=false", "update-index"] if skipped else ["update-index"]
        for file, (entry, blob) in new.items():
            words += ["--cacheinfo", f"{entry.mode},{blob},{file}"]
        # A new entry has no marks, and one process can set only one kind of them.
        marks = (("--skip-worktree", skipped), ("--assume-unchanged", assumed))
        for mark, files in [(mark, files) for mark, files in marks if files] or [("", [])]:
            self._change_index([*words, mark, "--", *files] if files else words)
            words = ["update-index"]

    def refresh(self, new: Mapping[str, tuple[Entry, bytes]]) -> None:
        """Let new entries have times: without them git diff-index calls the files changed."""
        if plain := [file for file, (entry, _) in new.items() if entry.flag == "H"]:
            self.run("add", "--refresh", "--", *plain)

    def _change_index(self, words: Sequence[str]) -> None:
        def locked() -> bool:
            said = self.run(*words)
            if said.code != 0 and not ("index.lock" in said.err and "File exists" in said.err):
                raise Invalid(f"git did not stage the edge: {reason_of(said)}")
            return said.code != 0

        self.wait_while(locked)

    def wait_while(self, locked: Callable[[], bool]) -> None:
        """Wait for another git that has the index. Invalid when that takes too long."""
        deadline = time.monotonic() + PATIENCE
        while locked():
            if time.monotonic() >= deadline:
                message = f"another git has the index, or was killed: {self.index_lock} exists"
                raise refusal(message, "once no git runs here, remove it and repeat the command")
            time.sleep(0.02)

    def tidy(self) -> None:
        """Remove what killed processes left behind."""
        import shutil

        for entry in os.scandir(self.state):
            age = time.time() - entry.stat(follow_symlinks=False).st_mtime
            if entry.name.startswith("edge-") and age > 3600:
                shutil.rmtree(entry.path, ignore_errors=True)  # the lock is a file, and stays
