"""Records edges as a commit of their own, beside whatever is staged or changed in the work tree.

HEAD's version of a task file and the index's get the same edit, each on its own: what differs
between them and the work tree stays the user's. All goes through git, which knows every format of
objects and indexes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from tempfile import TemporaryDirectory

from gitlease.kernel.git.files import Unreadable
from gitlease.kernel.git.objects import BLOB, GitObjects, objects_of
from gitlease.kernel.git.ownership import REFUSED, cannot_write, closed_objects
from gitlease.kernel.git.repository import CHECKOUT, TIMEOUT, Repository, is_on
from gitlease.kernel.git.run import GitResult, run_git
from gitlease.kernel.ledger.ports import TaskChange
from gitlease.kernel.rules.errors import Invalid
from gitlease.kernel.rules.frozen import dataclass, field, replace
from gitlease.kernel.rules.work import KEY
from gitlease.kernel.settings.schema import Tasks
from gitlease.kernel.store.private_store import make_folder
from gitlease.tasks.edit import LITERAL_PATHSPECS, edit_task
from gitlease.tasks.scan import MAX_BYTES, printable

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


@dataclass(frozen=True)
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

    def run(
        self,
        *words: str,
        timeout: float = TIMEOUT,
        index: str = "",
        env: Mapping[str, str] | None = None,
    ) -> GitResult:
        where = (f"--git-dir={self.repository.git_dir}", f"--work-tree={self.toplevel}")
        quiet = ("-c", "core.hooksPath=/dev/null")  # no hook of the user runs
        given = {**LITERAL_PATHSPECS, **({"GIT_INDEX_FILE": index} if index else {}), **(env or {})}
        return run_git([*where, *quiet, *words], cwd=self.toplevel, timeout=timeout, env=given)

    def ask(
        self,
        *words: str,
        what: str,
        timeout: float = TIMEOUT,
        index: str = "",
        env: Mapping[str, str] | None = None,
    ) -> bytes:
        result = self.run(*words, timeout=timeout, index=index, env=env)
        if result.code != 0:
            if any(text in result.err for text in REFUSED):
                self.check_objects(what)
            raise Invalid(f"{what}: {result.reason}")
        return result.out

    def check_objects(self, what: str) -> None:
        """Refuse if a folder of objects cannot be written, and name it, which git does not."""
        if folder := closed_objects(self.repository.common_dir):
            raise cannot_write(folder, what)

    def check_state(self, why: str = "an edge cannot be committed on its own") -> None:
        """Refuse where a commit would get in the way of something that is half done."""
        if os.environ.get("GIT_INDEX_FILE"):
            message = "no edge can be committed inside a hook of git commit (GIT_INDEX_FILE is set)"
            raise refusal(message, "leave it uncommitted here, and commit it afterwards")
        in_refs = self.repository.config.get("extensions.refStorage") is not None
        for name, what in (_HEADS | _FOLDERS).items():
            exists = os.path.lexists(os.path.join(self.repository.git_dir, name))
            # Formats of refs other than files have some of these as refs.
            if not exists and in_refs and name in _HEADS:
                exists = self.run("rev-parse", "-q", "--verify", name).code == 0
            if exists:
                message = f"a {what} is in progress: {why}"
                raise refusal(message, "finish it, or abort it, first: git status says how")

    def tip(self) -> tuple[str, str]:
        """The current branch's full name and its commit."""
        result = self.run("rev-parse", "HEAD^{commit}", "--symbolic-full-name", "HEAD")
        commit, _, name = os.fsdecode(result.out).strip().partition("\n")
        if result.code != 0:
            message = f"no commit yet on {printable(self.repository.branch() or 'HEAD')}"
            raise refusal(message, "make the first commit, with the task files, yourself")
        if not name.startswith("refs/heads/"):
            raise self._detached()
        return name, commit

    def _detached(self) -> Invalid:
        # jj keeps HEAD detached at the parent of its working copy, whatever branch was there.
        if os.path.isdir(os.path.join(self.toplevel, ".jj")):
            return refusal(
                "HEAD is detached, as jj keeps it: no branch to commit on",
                "end the change with jj commit, and then: git switch -c BRANCH "
                "(jj takes it over as a bookmark)",
                "a claim without a commit of its own needs no branch: its edit is part of your "
                "next change in jj",
            )
        return refusal("HEAD is detached: no branch to commit on", "first: git switch BRANCH")

    def committed(self, head: str, files: list[str]) -> dict[str, IndexEntry]:
        """The entries of some files in a commit."""
        words = ("ls-tree", "-z", "--full-tree", head, "--", *files)
        listed = self._listed(*words, what="the last commit")
        return {path: IndexEntry(mode, oid) for path, (mode, _kind, oid) in listed}

    def staged(self, files: list[str]) -> dict[str, list[IndexEntry]]:
        """The index's entries of some files: several for one that is unmerged."""
        entries: dict[str, list[IndexEntry]] = {}
        words = ("ls-files", "-s", "-v", "-z", "--", *files)
        for path, (flag, mode, oid, _stage) in self._listed(*words, what="the index"):
            entries.setdefault(path, []).append(IndexEntry(mode, oid, flag))
        return entries

    def _listed(self, *words: str, what: str) -> Iterator[tuple[str, list[str]]]:
        for line in self.ask(*words, what=f"{what} cannot be read").split(b"\0")[:-1]:
            about, _, path = line.partition(b"\t")
            yield os.fsdecode(path), about.decode().split()

    def checked_out(self, commit: str, file: str) -> bytes:
        """Return the bytes that a checkout of a commit would write into a file: with filters."""
        what = f"{printable(file)} cannot be read as a checkout would write it"
        return self.ask("cat-file", "--filters", f"{commit}:{file}", what=what, timeout=CHECKOUT)

    def write(self, contents: Collection[bytes]) -> list[str]:
        """Write blobs into the user's repository; their ids."""
        names = []
        with TemporaryDirectory(prefix="edge-", dir=self.state) as folder:
            for number, data in enumerate(contents):
                names.append(os.path.join(folder, str(number)))
                with open(names[-1], "wb") as file:
                    file.write(data)
            # The bytes come from HEAD's blob: filters were applied when that was made.
            words = ("hash-object", "-w", "--no-filters", "--", *names)
            return self.ask(*words, what="git did not write the edge").decode().split()

    def write_added(self, file: str, data: bytes) -> str:
        """Write the blob that ``git add`` would make of a file's text, with its filters; its id."""
        with TemporaryDirectory(prefix="edge-", dir=self.state) as folder:
            name = os.path.join(folder, "text")
            with open(name, "wb") as opened:
                opened.write(data)
            words = ("hash-object", "-w", f"--path={file}", "--", name)
            what = f"git did not store {printable(file)}"
            return self.ask(*words, what=what, timeout=CHECKOUT).decode().strip()

    def merged_text(self, ours: bytes, base: bytes, theirs: bytes) -> bytes | None:
        """Merge two texts that were changed from a third; None where both changed the same."""
        with TemporaryDirectory(prefix="edge-", dir=self.state) as folder:
            names = [os.path.join(folder, x) for x in ("ours", "base", "theirs")]
            for name, data in zip(names, (ours, base, theirs), strict=True):
                with open(name, "wb") as file:
                    file.write(data)
            result = self.run("merge-file", "-p", "-q", *names)
        return result.out if result.code == 0 and not result.timed_out else None

    def tree(self, head: str, new: Mapping[str, IndexEntry]) -> str:
        """Write the tree of a commit with other entries for some of its files; its id."""
        what, plain = "git did not write the edge", _PLAIN_INDEX
        with TemporaryDirectory(prefix="edge-", dir=self.state) as folder:
            index = os.path.join(folder, "index")
            self.ask(*plain, "read-tree", head, what=what, index=index)
            self.ask(*plain, "update-index", *_cached(new), what=what, index=index)
            # Without it git looks for every blob of the tree, which a partial clone would fetch.
            id = self.ask(*plain, "write-tree", "--missing-ok", what=what, index=index)
        return id.decode().strip()

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
            done = self.run(*words)
            # Any other failure does not pass by waiting.
            if done.code != 0 and not ("index.lock" in done.err and "File exists" in done.err):
                raise Invalid(f"git did not stage the edge: {done.reason}")
            return done.code != 0

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
            # A living process may be at work in a younger one.
            if entry.name.startswith("edge-") and age > 3600:
                shutil.rmtree(entry.path, ignore_errors=True)  # the lock is a file, and stays


TRIES = 5

_KINDS = {"120000": "a symbolic link", "160000": "a submodule", "040000": "a folder"}


@dataclass(frozen=True)
class _Plan:
    """The new contents by file that HEAD (``made``) or the index lacks, and what is there."""

    branch: str
    head: str
    in_head: dict[str, tuple[IndexEntry, bytes]] = field(default_factory=dict)
    in_index: dict[str, tuple[IndexEntry, bytes]] = field(default_factory=dict)
    made: list[TaskChange] = field(default_factory=list)


def check_commit(repository: Repository, tasks: Tasks, changes: Sequence[TaskChange]) -> None:
    """Check that ``commit_edges`` would succeed, changing nothing. Raises Invalid if not."""
    if not changes:
        return
    git = UserGit(repository)
    git.check_objects("an edge cannot be committed")
    _plan(git, tasks, changes)
    for name in ("GIT_AUTHOR_IDENT", "GIT_COMMITTER_IDENT"):
        if (result := git.run("var", name)).code != 0:
            message = f"git has no identity to commit with: {result.reason}"
            raise refusal(message, "git config user.name NAME", "git config user.email EMAIL")
    git.wait_while(lambda: os.path.lexists(git.index_lock))


def commit_edges(repository: Repository, tasks: Tasks, changes: Sequence[TaskChange]) -> str | None:
    """Make one commit on top of HEAD with only these edits, and bring the index along.

    Returns its full id, or None when HEAD has all of them already. The work tree is not looked at.
    Safe to repeat after a kill at any step. Raises Invalid.
    """
    if not changes:
        return None
    git = UserGit(repository)
    make_folder(git.state)
    try:
        git.tidy()
        return _commit(git, tasks, changes)
    except OSError as error:
        raise Invalid(f"gitlease cannot write in {git.state}: {error.strerror}") from None


def _commit(git: UserGit, tasks: Tasks, changes: Sequence[TaskChange]) -> str | None:
    why = "the branch keeps moving"
    for _ in range(TRIES):
        plan = _plan(git, tasks, changes)
        # HEAD and the index mostly get the same bytes: one blob for both.
        contents = {data for _, data in (*plan.in_head.values(), *plan.in_index.values())}
        blobs = dict(zip(contents, git.write(contents) if contents else (), strict=True))
        in_head, in_index = (
            {file: replace(entry, blob=blobs[data]) for file, (entry, data) in side.items()}
            for side in (plan.in_head, plan.in_index)
        )
        subject, message = _subject_and_message(plan.made, tasks)
        commit = git.commit(git.tree(plan.head, in_head), plan.head, message) if in_head else ""
        if commit and git.tip() != (plan.branch, plan.head):
            continue  # nothing is staged before the commit fits: a signature takes its time
        # The index first: a branch ahead of it would look as if the edge were staged for removal,
        # and the user's next commit would take it back.
        if in_index:
            git.stage(in_index)
        if not commit:
            git.refresh(in_index)
            return None
        result = git.run("update-ref", "-m", f"gitlease: {subject}", plan.branch, commit, plan.head)
        # Without success only reading tells: git may have been stopped after the ref was moved.
        if result.code == 0 or (now := git.tip()) == (plan.branch, commit):
            git.refresh(in_index)
            return commit
        why = result.reason
        if "File exists" in result.err:  # the lock of a git that runs, or of one that was killed
            why += f" {REMOVE_IT}"
        # The branch has not moved: it was no race, and another try would fare the same.
        if now == (plan.branch, plan.head) and "File exists" not in result.err:
            break
    raise refusal(f"the edge could not be committed: {why}", "repeat it, or commit it yourself")


def _plan(git: UserGit, tasks: Tasks, changes: Sequence[TaskChange]) -> _Plan:
    git.check_state()
    branch, head = git.tip()
    by_file: dict[str, list[TaskChange]] = {}
    for change in changes:
        if {"", ".", ".."} & set(change.file.split("/")):
            raise Invalid(f"{printable(change.file) or 'nothing'} is not a file of this repository")
        by_file.setdefault(change.file, []).append(change)
    committed, staged = git.committed(head, list(by_file)), git.staged(list(by_file))
    objects = objects_of(git.repository)
    plan = _Plan(branch, head)
    for file, its in by_file.items():
        try:
            _check_entries(file, committed.get(file), staged.get(file, []))
            old, entry = committed[file], staged[file][0]
            after, made = _edited_and_made(_read(objects, old, file, HEAD), its, tasks, HEAD)
            plan.in_head.update({file: (old, after)} if made else {})
            plan.made.extend(made)
            if entry.blob != old.blob:
                after, made = _edited_and_made(
                    _read(objects, entry, file, INDEX), its, tasks, INDEX
                )
            plan.in_index.update({file: (entry, after)} if made else {})
        except Invalid as error:
            raise error.with_(resource=its[0].resource.text) from None
    return plan


def _read(objects: GitObjects, entry: IndexEntry, file: str, where: str) -> bytes:
    try:
        return objects.read(entry.blob, BLOB, MAX_BYTES)
    except Unreadable as why:
        message = f"{printable(file)} cannot be read {where}: it {why}"
        raise refusal(message, "make it smaller, or fetch it, and commit that first") from None


def _check_entries(file: str, committed: IndexEntry | None, staged: Sequence[IndexEntry]) -> None:
    name = printable(file)
    here = f":/{name}" if name == file and " " not in name else "it"
    if committed is None:
        raise refusal(f"{name} is not committed yet", f"commit it first: git add {here}")
    for entry, where in ((committed, HEAD), *((entry, INDEX) for entry in staged[:1])):
        if kind := _KINDS.get(entry.mode):
            raise refusal(f"{name} is {kind} {where}", "commit a regular file there first")
    if not staged:
        raise refusal(f"{name} is staged for removal", f"first: git restore --staged {here}")
    if len(staged) > 1 or staged[0].flag == "M":
        raise refusal(f"{name} has a merge conflict", f"resolve it first, then git add {here}")


def _edited_and_made(
    data: bytes, changes: Sequence[TaskChange], tasks: Tasks, where: str
) -> tuple[bytes, list[TaskChange]]:
    made = []
    for change in changes:
        file = printable(change.file)
        try:
            after = edit_task(data, file=file, tasks=tasks, edit=change.edit, of=change.resource)
        except Invalid as error:
            way = f"{'commit' if where is HEAD else 'stage'} the file as it should be first"
            raise refusal(f"{error.message} ({where})", *error.hints, way) from None
        if after != data:
            made.append(change)
        data = after
    return data, made


def _subject_and_message(changes: Sequence[TaskChange], tasks: Tasks) -> tuple[str, str]:
    lines = list(dict.fromkeys(" ".join(change.message.split()) for change in changes))
    trailers = [f"{KEY}: {x}" for x in dict.fromkeys(c.trailer for c in changes) if x]
    end = "".join(f"\n{line}" for line in ["", *trailers]) if trailers else ""
    if len(lines) < 2:
        subject = tasks.subject(lines[0]) if lines else ""
        return subject, subject + end
    words = {line.partition(" ")[0] for line in lines}
    count = len({change.resource for change in changes})
    what = f"{words.pop() if len(words) == 1 else 'update'} {count} task{'s' * (count > 1)}"
    subject = tasks.subject(what)
    return subject, "\n".join([subject, "", *(f"- {line}" for line in lines)]) + end
