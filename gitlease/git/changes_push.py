"""Which commits a push brings to a remote, by the lines that git gives its pre-push hook, and which
it takes away: those that none of the remote's refs has any more.

Of the branch that everybody builds on, also those that another one has: they had landed there. What
one takes back of one's own elsewhere is nobody's loss.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice

from gitlease.core.errors import Denied, Invalid, shown
from gitlease.core.frozen import dataclass, replace
from gitlease.core.work_push import Became, WorkRef
from gitlease.git.query import ask, is_id, without_secrets
from gitlease.git.remote_branches import heads_known, is_main, main_branches, names_of, refs_known
from gitlease.git.repository import Repository
from gitlease.git.rev_range import RangeCommit, rev_range

MAX_COMMITS = 10_000
MAX_REFS = 10_000

REPLACES = (Became.FORCED, Became.DELETED)
UPDATE, NEW, DELETE, LEDGER = "update", "new", "delete", "ledger"


@dataclass(frozen=True, slots=True)
class Push:
    """What a push does to one ref of the remote. ``kind`` is update, new, delete or ledger.

    Ids are full, ``""`` where there is none. ``commits`` are those that the remote is not known to
    have, the newest first, and ``again`` those of the pusher's own that it has elsewhere; ``cut``
    says that there were more than ``MAX_COMMITS``. A ledger of leases is no work: nothing of it is
    listed.
    """

    remote_ref: str
    local_oid: str
    remote_oid: str
    commits: tuple[str, ...]
    kind: str
    cut: bool = False
    again: tuple[str, ...] = ()

    @property
    def every(self) -> tuple[str, ...]:
        return self.commits + self.again


def outgoing(
    repository: Repository,
    lines: Iterable[str],
    *,
    remote: str,
    environ: Mapping[str, str],
    ref_prefix: str = "refs/gitlease",
    shared: str | None = None,
    holder: str | None = None,
    strict: bool = False,
) -> list[Push]:
    """What is about to be pushed to ``remote``, a name or a URL.

    What ``shared``, the remote of the ledger, has was judged when it came there. But commits of
    ``holder``, whose push it is, count where they come to a main branch of ``shared`` and were on
    none, and if ``strict`` wherever they come to, save from a main branch: the lease may have been
    lost since.

    ``lines`` are the standard input of pre-push. Where there are none, the variables of the
    pre-commit framework say it, which reads that input itself. Raises Invalid for what is no such
    line, and where git does not answer.
    """
    asked, remote = announced(repository, lines, remote, environ, ref_prefix)
    there = _on_remote(repository, remote)
    if shared is not None and "--remotes" not in there:
        there += [word for word in _on_remote(repository, shared) if word not in there]
    open_ends = [push.local_oid for push in asked if push.kind in (UPDATE, NEW)]
    if len(open_ends) > 1 and not rev_range(
        repository, open_ends, others=there, most=1, strict=True
    ):
        listed = asked  # many tags of what is there already: one process for all of them
    else:
        listed = [_listed(repository, x, there) if x.kind in (UPDATE, NEW) else x for x in asked]
    if holder is None or not any(push.kind == UPDATE for push in listed):
        return listed
    names = names_of(repository, remote)
    main = main_branches(repository, names)
    if not strict and shared not in names:
        return listed
    return [
        _with_own(repository, x, main, holder)
        if x.kind == UPDATE and (strict or is_main(x.remote_ref, main))
        else x
        for x in listed
    ]


def announced(
    repository: Repository,
    lines: Iterable[str],
    remote: str,
    environ: Mapping[str, str],
    ref_prefix: str,
) -> tuple[list[Push], str]:
    """What ``lines`` or the pre-commit framework say is pushed, without commits, and where to.

    Raises Invalid.
    """
    some = islice((line for line in lines if line.strip()), MAX_REFS + 1)
    asked = [_push(line, ref_prefix) for line in some]
    if not asked:
        remote = environ.get("PRE_COMMIT_REMOTE_NAME") or remote
        asked = _by_framework(repository, environ, ref_prefix)
    if len(asked) > MAX_REFS:
        raise Invalid(f"one push of more than {MAX_REFS} refs cannot be looked at")
    return asked, remote


def _push(line: str, ref_prefix: str) -> Push:
    """One line: ``local-ref local-id remote-ref remote-id``; only the first may have blanks."""
    words = line.rstrip("\r\n").rsplit(" ", 3)
    if len(words) != 4 or not (is_id(words[1]) and is_id(words[3]) and words[2]):
        raise Invalid(f"git's pre-push hook got a line that cannot be read: {shown(line)}")
    local, remote = (word.strip("0") and word for word in (words[1], words[3]))
    return _kind(words[2], local, remote, ref_prefix)


def _kind(ref: str, local: str, remote: str, ref_prefix: str) -> Push:
    if ref.startswith(ref_prefix + "/"):
        kind = LEDGER
    elif not local:
        kind = DELETE
    else:
        kind = UPDATE if remote else NEW
    return Push(ref, local, remote, (), kind)


def _by_framework(
    repository: Repository, environ: Mapping[str, str], ref_prefix: str
) -> list[Push]:
    """The one push that the pre-commit framework tells its hooks about.

    It gives no range for a branch that is new from its very first commit.
    """
    ref = environ.get("PRE_COMMIT_REMOTE_BRANCH", "")
    tip = environ.get("PRE_COMMIT_TO_REF") or environ.get("PRE_COMMIT_LOCAL_BRANCH", "")
    if not ref or not tip:
        return []
    base = environ.get("PRE_COMMIT_FROM_REF", "")
    known = _commit(repository, base) if base else ""
    return [_kind(ref, _commit(repository, tip), known, ref_prefix)]


def _commit(repository: Repository, name: str) -> str:
    words = ("rev-parse", "-q", "--verify", "--end-of-options", f"{name}^{{commit}}")
    said = ask(repository, *words)
    # Before git 2.30 the option was printed as well.
    found = os.fsdecode(said.out).split()[-1:] if said.code == 0 else []
    if not found or not is_id(found[0]):
        raise Invalid(f"there is no commit {shown(name)} to push")
    return found[0]


def _on_remote(repository: Repository, remote: str) -> list[str]:
    """Words for rev-list that name what the remote is known to have.

    For a URL that no remote has, what any remote has is no work of this push.
    """
    same = names_of(repository, remote)
    if not same:
        return ["--remotes"]
    found = []
    for name in same:
        usual = f"refs/remotes/{name}/"
        found.append(f"--remotes={name}")
        for spec in repository.config.get_all(f"remote.{name}.fetch"):
            kept = spec.partition(":")[2]
            if kept.startswith("refs/") and "*" in kept and not kept.startswith(usual):
                found.append(f"--glob={kept}")
    return found


def _listed(repository: Repository, push: Push, there: Sequence[str]) -> Push:
    """The push with its commits.

    What the remote has under any name was judged when it was pushed: a merge of main brings it
    again. The id that the remote has now need not be known here.
    """
    found = _known_or(repository, push, [push.remote_oid], [], there)
    ids = tuple(commit.id for commit in found[:MAX_COMMITS])
    return replace(push, commits=ids, cut=len(found) > MAX_COMMITS)


def _with_own(
    repository: Repository, push: Push, main: Mapping[str, Sequence[str]], holder: str
) -> Push:
    """The push with the commits of its pusher that its target gets, wherever else they are.

    What a main branch has is merged everywhere; but of the target itself it is known what it has.
    """
    target = push.remote_ref.removeprefix("refs/heads/")
    tips = [oid for name, ids in main.items() if name != target for oid in ids]
    found = _known_or(repository, push, [push.remote_oid, *tips], [*tips, *main.get(target, ())])
    known = set(push.commits)
    own = (x.id for x in found if x.id not in known and x.concerns([holder]))
    return replace(push, again=tuple(own), cut=push.cut or len(found) > MAX_COMMITS)


def _known_or(
    repository: Repository,
    push: Push,
    kept: Sequence[str],
    instead: Sequence[str],
    others: Sequence[str] = (),
) -> list[RangeCommit]:
    """What a push has beyond ``kept``, or beyond ``instead`` where some of that is not known."""
    most = MAX_COMMITS + 1
    try:
        return rev_range(repository, [push.local_oid], kept, others=others, most=most, strict=True)
    except Invalid:
        tips = [push.local_oid]
        return rev_range(repository, tips, instead, others=others, most=most, strict=True)


def taken_away(
    repository: Repository,
    *,
    landed: Iterable[tuple[str, str]] = (),
    dropped: Iterable[str] = (),
    others: Iterable[str],
    kept: Collection[str],
    refs: Sequence[str] = (),
    holders: Sequence[str],
    strict: bool = False,
) -> tuple[list[str], bool]:
    """The commits that a push takes away, at most ``MAX_COMMITS``, and whether there are more.

    ``landed`` are main branches, each as it was and shall be: what they had is lost, whoever else
    has it. ``dropped`` are tips of which whatever neither ``kept`` nor ``refs`` (words of git) have
    is lost, and ``others`` those of which only what others than ``holders`` made is: what one takes
    back of one's own is nobody's loss.
    """
    most = MAX_COMMITS + 1
    found: dict[str, None] = {}
    for old, new in landed:
        gone = rev_range(repository, [old], [new], most=most, strict=strict)
        found |= dict.fromkeys(commit.id for commit in gone)
    gone = rev_range(repository, dropped, kept, others=refs, most=most, strict=strict)
    found |= dict.fromkeys(commit.id for commit in gone)
    gone = rev_range(repository, others, kept, others=refs, most=most, strict=strict)
    found |= dict.fromkeys(commit.id for commit in gone if not commit.is_of(holders))
    return list(found)[:MAX_COMMITS], max(len(found), len(gone)) > MAX_COMMITS


@dataclass(frozen=True, slots=True)
class Landed:
    """Which commits of a push a remote has already: on any branch of it, and on a main one.

    ``lands`` are those that come to a main branch now: one's own count there, wherever they were.
    """

    anywhere: frozenset[str]
    on_main: frozenset[str]
    lands: frozenset[str]

    def has(self, commit: str, *, own: bool) -> bool:
        """Whether a commit is not this push's, by whether it is the pusher's own."""
        again = own and commit in self.lands
        return commit in self.on_main or (commit in self.anywhere and not again)


def landed(
    repository: Repository, pushes: Sequence[Push], remote: str, *, strict: bool = False
) -> Landed:
    """What of some pushes the remote has by its own word, or by what was fetched last.

    The refs that follow it need not have all of its branches. ``strict``: everything lands, as in
    ``outgoing``. Asks the remote.
    """
    heads = heads_known(repository, remote)
    main = main_branches(repository, names_of(repository, remote))
    tips = [push.local_oid for push in pushes if push.every]
    every = {commit for push in pushes for commit in push.every}

    def had(oids: Sequence[str]) -> frozenset[str]:
        if not oids:
            return frozenset()
        new = rev_range(repository, tips, oids, most=MAX_COMMITS + 1)
        whole = len(new) <= MAX_COMMITS
        return frozenset(every - {commit.id for commit in new}) if whole else frozenset()

    landing = (push for push in pushes if strict or is_main(push.remote_ref, main))
    return Landed(
        had([oid for _, oid in heads]),
        had([oid for ref, oid in heads if is_main(ref, main)]),
        frozenset(commit for push in landing for commit in push.every),
    )


# --- what it takes away --------------------------------------------------------------------------


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
    landed, others = list[tuple[str, str]](), list[str]()
    for one in moved:
        old = one.old or there.get(one.ref, "")
        if one.became not in REPLACES or not old:
            continue
        if ask(repository, "cat-file", "-e", old).code != 0:
            name = one.ref.removeprefix("refs/heads/").removeprefix("refs/tags/")
            raise Denied(
                f"what {name} has there is not known here, so nobody can tell whose work it is",
                hints=(f"git fetch {without_secrets(remote)}",),
            )
        if one.new and is_main(one.ref, main):
            landed.append((old, one.new))
        else:
            others.append(old)
    return taken_away(repository, landed=landed, others=others, kept=kept, holders=[holder])


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
