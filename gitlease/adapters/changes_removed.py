"""Which commits a push takes away from a remote: those that none of its refs has any more.

Of the branch that everybody builds on, also those that another one has: they had landed there. What
one takes back of one's own elsewhere is nobody's loss.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence

from gitlease.adapters.changes import ask, is_id, refusal
from gitlease.adapters.changes_push import DELETE, MAX_COMMITS, UPDATE, Push
from gitlease.adapters.remote_branches import is_main, main_branches, names_of, refs_known
from gitlease.adapters.repository import Repository
from gitlease.domain.errors import Denied
from gitlease.domain.lease import same_person
from gitlease.domain.work import Became, WorkRef

REPLACES = (Became.FORCED, Became.DELETED)


def removed(
    repository: Repository,
    refs: Sequence[WorkRef],
    there: Mapping[str, str],
    *,
    main: Collection[str],
    remote: str,
    holder: str,
) -> tuple[list[str], bool]:
    """The commits that are lost with what these refs were, and whether there are too many.

    ``there`` has every ref of the remote, and ``main`` the main branches among them; what is not
    known here keeps nothing. ``holder`` is whose push it is. Denied where it is not known here what
    would be replaced.
    """
    moved = [x for x in refs if x.moves]
    kept = {x.new for x in moved if x.new}
    names = {x.ref for x in moved}
    kept |= {oid for ref, oid in there.items() if ref.removesuffix("^{}") not in names | {"HEAD"}}
    lost: list[str] = []
    found: dict[str, None] = {}
    for one in moved:
        old = one.old or there.get(one.ref, "")
        if one.became not in REPLACES or not old:
            continue
        if ask(repository, "cat-file", "-e", old).code != 0:
            name = one.ref.removeprefix("refs/heads/").removeprefix("refs/tags/")
            raise Denied(
                f"what {name} has there is not known here, so nobody can tell whose work it is",
                hints=(f"git fetch {remote}",),
            )
        asked = ask(repository, "rev-parse", "-q", "--verify", f"{old}^{{commit}}")
        commit = os.fsdecode(asked.out).split()[-1:] if asked.code == 0 else []
        if one.new and is_main(one.ref, main):
            found |= dict.fromkeys(_listed(repository, commit, {one.new}, ""))
        else:
            lost += commit
    found |= dict.fromkeys(_listed(repository, lost, kept, holder))
    return list(found)[:MAX_COMMITS], len(found) > MAX_COMMITS


def removed_by(
    repository: Repository, pushes: Sequence[Push], remote: str, holder: str
) -> tuple[list[str], bool]:
    """As ``removed`` of the main branches, by what is known here of the remote, without asking it.

    Of any other branch nobody can tell here whether what it loses is a loss: its commits may have
    been squashed, or replaced by whoever made them. What a ref has there and is not known here,
    ``unknown_to`` tells.
    """
    names = names_of(repository, remote)
    main = main_branches(repository, names)
    refs = [
        WorkRef(x.remote_ref, "", x.remote_oid, x.local_oid, became)
        for x in pushes
        if x.kind in (UPDATE, DELETE)
        and is_main(x.remote_ref, main)
        and (became := _became(repository, x)) in REPLACES
    ]
    if not refs:
        return [], False
    there = refs_known(repository, names)
    return removed(repository, refs, there, main=main, remote=remote, holder=holder)


def unknown_to(repository: Repository, pushes: Sequence[Push], remote: str) -> tuple[str, ...]:
    """The main branches that would be replaced or deleted with commits that are not known here."""
    main = main_branches(repository, names_of(repository, remote))
    return tuple(
        x.remote_ref.removeprefix("refs/heads/")
        for x in pushes
        if x.kind in (UPDATE, DELETE)
        and is_main(x.remote_ref, main)
        and x.remote_oid
        and ask(repository, "cat-file", "-e", x.remote_oid).code != 0
    )


def _became(repository: Repository, push: Push) -> Became:
    """What the push makes of a ref; UP_TO_DATE also for what is not known here."""
    if not push.remote_oid or ask(repository, "cat-file", "-e", push.remote_oid).code != 0:
        return Became.UP_TO_DATE
    if push.kind == DELETE:
        return Became.DELETED
    words = ("merge-base", "--is-ancestor", push.remote_oid, push.local_oid)
    return Became.FORCED if ask(repository, *words).code == 1 else Became.UP_TO_DATE


def _listed(
    repository: Repository, lost: Sequence[str], kept: Collection[str], but: str
) -> list[str]:
    """The commits that these reach, and the others do not, ``but`` for those of one author.

    Ids that are unknown here are passed over.
    """
    if not lost:
        return []
    from tempfile import NamedTemporaryFile

    with NamedTemporaryFile("w", prefix="gitlease-", encoding="ascii") as names:
        names.write("".join(f"{x}\n" for x in lost))
        names.write("".join(f"^{x}\n" for x in sorted(kept) if is_id(x)))
        names.flush()
        words = ("log", "--no-show-signature", "--format=%H %ae", "--ignore-missing", "--stdin")
        said = ask(repository, *words, f"--max-count={MAX_COMMITS + 1}", source=names.name)
    if said.code != 0:
        raise refusal(said, "what would be replaced cannot be read")
    lines = (x.partition(" ") for x in said.out.decode("utf-8", "replace").splitlines())
    return [commit for commit, _, author in lines if not but or not same_person(author, but)]
