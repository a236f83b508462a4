"""A push that puts a ledger back whose ref was deleted: which one it is, and what past it brings.

Nothing but that step makes a ref with a past, and it only where there is no ref. Its past is
carried out again from the beginning, since this server cannot know any more what it had accepted.
"""

from __future__ import annotations

from gitlease.kernel.git.objects import GitObjects
from gitlease.kernel.rules.moves.operations import Restore
from gitlease.kernel.rules.moves.transitions import Illegal, StepRecord
from gitlease.kernel.store import tree
from gitlease.kernel.store.records import BadStep

MOST_REPLAYED = 10_000  # commits, of which a server judges five hundred a second


def has_restoration(record: StepRecord) -> bool:
    """Return whether a step puts a deleted ledger back."""
    return any(isinstance(x, Restore) and x.waits for x in record.operations)


def restored_base(objects: GitObjects, version: str) -> str:
    """The commit on which a version puts a ledger back; ``""`` if it does not."""
    commit = tree.read_commit(objects, version)
    if commit is None or len(commit.parent_ids) != 1:
        return ""
    try:
        record = commit.step
    except BadStep:
        return ""
    return commit.before if record is not None and has_restoration(record) else ""


def past_of(objects: GitObjects, version: str) -> list[str]:
    """The commits of a ledger up to one, the oldest first. Raises Illegal for too many."""
    commits = list[str]()
    while version:
        commit = tree.read_commit(objects, version)
        if commit is None:
            raise Illegal("commit", f"{version} is not a commit of a ledger")
        commits.append(version)
        if len(commits) > MOST_REPLAYED:
            raise Illegal(
                "too-large",
                f"the past of a restored ledger has more than {MOST_REPLAYED} commits",
                hints=("let an admin of the server put the ref back: git update-ref",),
            )
        version = commit.before
    return commits[::-1]
