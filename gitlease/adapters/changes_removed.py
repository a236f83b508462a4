"""Which commits a push takes away from a remote: those that none of its refs has any more.

Of the branch that everybody builds on, also those that another one has: they had landed there. What
one takes back of one's own elsewhere is nobody's loss.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence

from gitlease.adapters.asking import ask
from gitlease.adapters.changes_push import DELETE, MAX_COMMITS, UPDATE, Push
from gitlease.adapters.reached import Made, reached
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
    found: dict[Made, None] = {}
    for one in moved:
        old = one.old or there.get(one.ref, "")
        if one.became not in REPLACES or not old:
            continue
        if ask(repository, "cat-file", "-e", old).code != 0:
            from gitlease.adapters.transport import without_secrets

            name = one.ref.removeprefix("refs/heads/").removeprefix("refs/tags/")
            raise Denied(
                f"what {name} has there is not known here, so nobody can tell whose work it is",
                hints=(f"git fetch {without_secrets(remote)}",),
            )
        asked = ask(repository, "rev-parse", "-q", "--verify", f"{old}^{{commit}}")
        commit = os.fsdecode(asked.out).split()[-1:] if asked.code == 0 else []
        if one.new and is_main(one.ref, main):
            found |= dict.fromkeys(reached(repository, commit, {one.new}, most=MAX_COMMITS + 1))
        else:
            lost += commit
    elsewhere = reached(repository, lost, kept, most=MAX_COMMITS + 1)
    cut = max(len(found), len(elsewhere)) > MAX_COMMITS
    # Who recorded another's work took part in it, as who wrote what another recorded.
    for gone in elsewhere:
        if not all(same_person(who, holder) for who in gone[1]):
            found[gone] = None
    return [commit for commit, _ in found][:MAX_COMMITS], cut or len(found) > MAX_COMMITS


def removed_by(
    repository: Repository,
    pushes: Sequence[Push],
    remote: str,
    holder: str,
    *,
    forced: Callable[[], bool],
) -> tuple[list[str], bool, tuple[str, ...]]:
    """As ``removed`` of the main branches, by what is known here of the remote, without asking it.

    Of any other branch nobody can tell here whether what it loses is a loss: its commits may have
    been squashed, or replaced by whoever made them. The main branches that go without its being
    known here what they have come last: only with ``forced`` does git replace such a one.
    """
    names = names_of(repository, remote)
    moved = [x for x in pushes if x.kind in (UPDATE, DELETE) and x.remote_oid]
    main = main_branches(repository, names) if moved else {}
    refs, unknown = list[WorkRef](), list[str]()
    for one in moved:
        if not is_main(one.remote_ref, main):
            continue
        if ask(repository, "cat-file", "-e", one.remote_oid).code != 0:
            if one.kind == DELETE or forced():
                unknown.append(one.remote_ref.removeprefix("refs/heads/"))
        elif (became := _became(repository, one)) in REPLACES:
            refs.append(WorkRef(one.remote_ref, "", one.remote_oid, one.local_oid, became))
    if not refs:
        return [], False, tuple(unknown)
    there = refs_known(repository, names)
    lost, cut = removed(repository, refs, there, main=main, remote=remote, holder=holder)
    return lost, cut, tuple(unknown)


def _became(repository: Repository, push: Push) -> Became:
    """What a push makes of a ref whose commit is known here."""
    if push.kind == DELETE:
        return Became.DELETED
    words = ("merge-base", "--is-ancestor", push.remote_oid, push.local_oid)
    return Became.FORCED if ask(repository, *words).code == 1 else Became.UPDATED
