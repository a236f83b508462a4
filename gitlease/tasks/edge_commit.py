"""Records edges as a commit of their own, beside whatever is staged or changed in the work tree.

HEAD's version of a task file and the index's get the same edit, each on its own: what differs
between them and the work tree stays the user's. The order is objects, index, branch: a branch that
went ahead of the index would look as if the edge were staged for removal, and the user's next
commit would take it back. All goes through git, which knows every format of objects and indexes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from gitlease.core.errors import Invalid
from gitlease.core.frozen import dataclass, field, replace
from gitlease.engine.ports import TaskChange
from gitlease.git.files import Unreadable, exclusive
from gitlease.git.message import KEY
from gitlease.git.objects import BLOB, GitObjects, objects_of
from gitlease.git.repository import TIMEOUT, Repository, reason_of
from gitlease.settings.sources import Tasks
from gitlease.store.private_store import make_folder
from gitlease.tasks.edge_git import HEAD, INDEX, REMOVE_IT, IndexEntry, UserGit, refusal
from gitlease.tasks.edit import edit_task
from gitlease.tasks.scan import MAX_BYTES, printable

TRIES = 5

_KINDS = {"120000": "a symbolic link", "160000": "a submodule", "040000": "a folder"}


@dataclass(frozen=True, slots=True)
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
    _plan(git, tasks, changes)
    for name in ("GIT_AUTHOR_IDENT", "GIT_COMMITTER_IDENT"):
        if (said := git.run("var", name)).code != 0:
            message = f"git has no identity to commit with: {reason_of(said)}"
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
        with exclusive(os.path.join(git.state, "edge-commit.lock"), timeout=TIMEOUT):
            git.tidy()
            return _commit(git, tasks, changes)
    except OSError as error:
        raise Invalid(f"gitlease cannot write in {git.state}: {error.strerror}") from None


def _commit(git: UserGit, tasks: Tasks, changes: Sequence[TaskChange]) -> str | None:
    why = "the branch keeps moving"
    for _ in range(TRIES):
        plan = _plan(git, tasks, changes)
        contents = {data for _, data in (*plan.in_head.values(), *plan.in_index.values())}
        blobs = dict(zip(contents, git.write(contents) if contents else (), strict=True))
        in_head, in_index = (
            {file: replace(entry, blob=blobs[data]) for file, (entry, data) in side.items()}
            for side in (plan.in_head, plan.in_index)
        )
        subject, message = _subject_and_message(plan.made)
        commit = git.commit(git.tree(plan.head, in_head), plan.head, message) if in_head else ""
        if commit and git.tip() != (plan.branch, plan.head):
            continue  # nothing is staged before the commit fits: a signature takes its time
        if in_index:
            git.stage(in_index)
        if not commit:
            git.refresh(in_index)
            return None
        said = git.run("update-ref", "-m", f"gitlease: {subject}", plan.branch, commit, plan.head)
        # Without success only reading tells: git may have been stopped after the ref was moved.
        if said.code == 0 or (now := git.tip()) == (plan.branch, commit):
            git.refresh(in_index)
            return commit
        why = reason_of(said)
        if "File exists" in said.err:  # the lock of a git that runs, or of one that was killed
            why += f" {REMOVE_IT}"
        if now == (plan.branch, plan.head) and "File exists" not in said.err:
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
            error.resource = its[0].resource.text
            raise
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


def _subject_and_message(changes: Sequence[TaskChange]) -> tuple[str, str]:
    lines = list(dict.fromkeys(" ".join(change.message.split()) for change in changes))
    trailers = [f"{KEY.decode()}: {x}" for x in dict.fromkeys(c.trailer for c in changes) if x]
    end = "".join(f"\n{line}" for line in ["", *trailers]) if trailers else ""
    if len(lines) < 2:
        return "".join(lines), "".join(lines) + end
    words = {line.partition(" ")[0] for line in lines}
    count = len({change.resource for change in changes})
    subject = f"{words.pop() if len(words) == 1 else 'update'} {count} task{'s' * (count > 1)}"
    return subject, "\n".join([subject, "", *(f"- {line}" for line in lines)]) + end
