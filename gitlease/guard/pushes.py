"""What a push brings to a remote, and what it takes away.

That is the commits that git's pre-push hook announces, and those that none of the remote's refs
has any more. Of a main branch also those that another branch has: they had landed there. Elsewhere
the pusher may take back their own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice

from gitlease.guard.history import commit_ids, rev_range
from gitlease.kernel.git.branches import Branches
from gitlease.kernel.git.repository import (
    HEADS,
    Repository,
    ask,
    commit_of,
    is_id,
    without_secrets,
)
from gitlease.kernel.rules.errors import Denied, Invalid, Unavailable, shown
from gitlease.kernel.rules.frozen import dataclass, replace
from gitlease.kernel.rules.lease import same_person
from gitlease.kernel.rules.work import Became, WorkRef

JUDGED = "GITLEASE_PUSHING"
"""Names, in the environment of hooks, the remote of a push that ``gitlease push`` itself judges."""
MAX_FETCHED = 1024 * 1024
_FETCHED = r"(?P<oid>[0-9a-f]{40,64})\t[^\t]*\tbranch '(?P<branch>.+)' of (?P<place>.+)"
MAX_COMMITS = 10_000
MAX_REFS = 10_000
REPLACES = (Became.FORCED, Became.DELETED)
UPDATE, NEW, DELETE, LEDGER = "update", "new", "delete", "ledger"


def names_of(repository: Repository, remote: str) -> list[str]:
    """The remotes with this name or URL, or with the same URL as the remote of this name."""
    names = repository.remote_names()
    url = repository.remote_url(remote) if remote in names else remote
    return [x for x in names if x == remote or (url and repository.remote_url(x) == url)]


def is_main(ref: str, main: Collection[str]) -> bool:
    """Return whether a ref, by its full name, is one of these main branches."""
    return ref.removeprefix(HEADS) in main


def heads_known(repository: Repository, remote: str) -> list[tuple[str, str]]:
    """Ask where a push to a remote, a name or a URL, goes for its branches; those with ids here.

    A branch that has moved on to a commit that is not here is given as ``git fetch`` last saw it.
    Nothing if there is no answer in time.
    """
    url = remote  # a push need not go where it is fetched from
    if remote in repository.remote_names():
        result = ask(repository, "remote", "get-url", "--push", "--", remote)
        url = next(iter(os.fsdecode(result.out).splitlines() if result.code == 0 else ()), remote)
    try:
        now = Branches(repository).asked(url)
    except (Unavailable, Denied):
        return []
    here = set(commit_ids(repository, list(now.values())))
    moved_on = {ref for ref, oid in now.items() if oid not in here}
    before = [(ref, oid) for ref, oid in _fetched(repository, remote) if ref in moved_on]
    return [(ref, oid) for ref, oid in now.items() if oid in here] + before


def _fetched(repository: Repository, remote: str) -> list[tuple[str, str]]:
    urls = {remote, *(repository.remote_url(x) for x in names_of(repository, remote))}
    places = {_place(url) for url in urls if url}
    try:
        with open(os.path.join(repository.git_dir, "FETCH_HEAD"), encoding="utf-8") as opened:
            lines = opened.read(MAX_FETCHED).splitlines()
    except (OSError, ValueError):
        return []
    matches = (re.fullmatch(_FETCHED, line) for line in lines)
    return [(HEADS + x["branch"], x["oid"]) for x in matches if x and _place(x["place"]) in places]


def _place(url: str) -> str:
    # As FETCH_HEAD shows it.
    return without_secrets(url).rstrip("/").removesuffix(".git")


@dataclass(frozen=True)
class Push:
    """One ref of the remote in a push. ``kind`` is update, new, delete or ledger.

    Ids are full, ``""`` for none. ``commits`` are those that the remote is not known to have, the
    newest first, and ``again`` those that it has on other branches only; ``cut``: there were more
    than ``MAX_COMMITS``. Commits of a ledger are not listed.
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
    strict: bool = False,
) -> list[Push]:
    """List what is about to be pushed to ``remote``, a name or a URL.

    Commits that ``shared``, the ledger's remote, has were judged when they came there. But they
    count again if they come to a main branch of ``shared`` and were on none, with ``strict`` on any
    branch unless they are on a main one: somebody may hold by now what they touch.

    ``lines`` are the standard input of pre-push; without any, the variables of the pre-commit
    framework, which reads that input itself. Raises Invalid for a malformed line, and if git does
    not answer.
    """
    asked, remote = announced(repository, lines, remote, environ, ref_prefix)
    known = _refs_of(repository, remote)
    if shared is not None and "--remotes" not in known:
        known += [word for word in _refs_of(repository, shared) if word not in known]
    tips = [push.local_oid for push in asked if push.kind in (UPDATE, NEW)]
    # One process for all: many tags may be of commits that the remote has already.
    if len(tips) <= 1 or rev_range(repository, tips, others=known, most=1, strict=True):
        for n, push in enumerate(asked):
            if push.kind in (UPDATE, NEW):
                # Commits that the remote has on any branch were judged when they were pushed: a
                # merge of main brings them again.
                commits, cut = _beyond(repository, push, [push.remote_oid], [], known)
                asked[n] = replace(push, commits=commits, cut=cut)
    names = names_of(repository, remote)
    if not any(push.kind == UPDATE for push in asked) or not (strict or shared in names):
        return asked
    main = Branches(repository).main(names)
    for n, push in enumerate(asked):
        if push.kind == UPDATE and (strict or is_main(push.remote_ref, main)):
            # Those that are new to the target count, even if other branches have them; but not
            # those of another main branch, which are merged everywhere.
            target = push.remote_ref.removeprefix(HEADS)
            tips = [oid for name, ids in main.items() if name != target for oid in ids]
            kept, instead = [push.remote_oid, *tips], [*tips, *main.get(target, ())]
            new, cut = _beyond(repository, push, kept, instead)
            known_already = set(push.commits)
            again = tuple(x for x in new if x not in known_already)
            asked[n] = replace(push, again=again, cut=push.cut or cut)
    return asked


def announced(
    repository: Repository,
    lines: Iterable[str],
    remote: str,
    environ: Mapping[str, str],
    ref_prefix: str,
) -> tuple[list[Push], str]:
    """Parse ``lines``, or the pre-commit framework's variables; without commits, and the remote.

    Raises Invalid.
    """
    some = islice((line for line in lines if line.strip()), MAX_REFS + 1)
    asked = [_push(line, ref_prefix) for line in some]
    if not asked:
        remote = environ.get("PRE_COMMIT_REMOTE_NAME") or remote
        asked = _by_framework(repository, environ, ref_prefix)
    if len(asked) > MAX_REFS:
        raise Invalid(f"a push of more than {MAX_REFS} refs cannot be checked")
    return asked, remote


def _push(line: str, ref_prefix: str) -> Push:
    # ``local-ref local-id remote-ref remote-id``; only the first may have blanks.
    words = line.rstrip("\r\n").rsplit(" ", 3)
    if len(words) != 4 or not (is_id(words[1]) and is_id(words[3]) and words[2]):
        raise Invalid(f"git's pre-push hook got a line that cannot be read: {shown(line)}")
    # git writes zeros for no commit.
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
    # It gives no range for a branch that is new from its very first commit.
    ref = environ.get("PRE_COMMIT_REMOTE_BRANCH", "")
    tip = environ.get("PRE_COMMIT_TO_REF") or environ.get("PRE_COMMIT_LOCAL_BRANCH", "")
    if not ref or not tip:
        return []
    base = environ.get("PRE_COMMIT_FROM_REF", "")
    known = _commit(repository, base) if base else ""
    return [_kind(ref, _commit(repository, tip), known, ref_prefix)]


def _commit(repository: Repository, name: str) -> str:
    if id := commit_of(repository, name):
        return id
    raise Invalid(f"there is no commit {shown(name)} to push")


def _refs_of(repository: Repository, remote: str) -> list[str]:
    # Options of rev-list for the refs that follow a remote.
    same = names_of(repository, remote)
    if not same:  # a URL of no remote: commits that any remote has are not this push's work
        return ["--remotes"]
    options = []
    for name in same:
        usual = f"refs/remotes/{name}/"
        options.append(f"--remotes={name}")
        # A refspec of one's own may keep the remote's branches elsewhere.
        for spec in repository.config.get_all(f"remote.{name}.fetch"):
            kept = spec.partition(":")[2]
            if kept.startswith("refs/") and "*" in kept and not kept.startswith(usual):
                options.append(f"--glob={kept}")
    return options


def _beyond(
    repository: Repository,
    push: Push,
    kept: Sequence[str],
    instead: Sequence[str],
    others: Sequence[str] = (),
) -> tuple[tuple[str, ...], bool]:
    # The commits of a push, and whether there are more. ``instead`` counts if some of ``kept``, as
    # the remote's present commit, is not here.
    tips, most = [push.local_oid], MAX_COMMITS + 1
    try:
        commits = rev_range(repository, tips, kept, others=others, most=most, strict=True)
    except Invalid:
        commits = rev_range(repository, tips, instead, others=others, most=most, strict=True)
    return tuple(commit.id for commit in commits[:MAX_COMMITS]), len(commits) > MAX_COMMITS


def lost_commits(
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

    ``landed`` are main branches, each as it was and will be: their commits are lost even if other
    branches have them. ``dropped`` are tips whose commits are lost unless ``kept`` or ``refs``
    (options of git) have them, and ``others`` those of which ``holders`` may take back their own.
    """
    most = MAX_COMMITS + 1
    lost: dict[str, None] = {}
    for old, new in landed:
        removed = rev_range(repository, [old], [new], most=most, strict=strict)
        lost |= dict.fromkeys(commit.id for commit in removed)
    removed = rev_range(repository, dropped, kept, others=refs, most=most, strict=strict)
    lost |= dict.fromkeys(commit.id for commit in removed)
    removed = rev_range(repository, others, kept, others=refs, most=most, strict=strict)
    foreign = (
        x for x in removed if not all(any(same_person(y, z) for z in holders) for y in x.people)
    )
    lost |= dict.fromkeys(commit.id for commit in foreign)
    return list(lost)[:MAX_COMMITS], max(len(lost), len(removed)) > MAX_COMMITS


def brought_new(
    repository: Repository, pushes: Sequence[Push], remote: str, *, strict: bool = False
) -> tuple[list[str], frozenset[str]]:
    """The commits that pushes bring, as the remote is asked, and those of them that it has.

    It has them on other branches, and they come to a main branch now (``strict``: to any), where
    they count again. If it does not answer, the last fetch counts: the tracking refs need not have
    all of its branches.
    """
    heads = heads_known(repository, remote)
    main = Branches(repository).main(names_of(repository, remote))
    tips = [push.local_oid for push in pushes if push.every]
    commits = dict.fromkeys(commit for push in pushes for commit in push.every)

    def had(oids: Sequence[str]) -> frozenset[str]:
        if not oids:
            return frozenset()
        new = rev_range(repository, tips, oids, most=MAX_COMMITS + 1)
        # Where there are too many to tell, none counts as known: all are judged again.
        return frozenset(commits) - {x.id for x in new} if len(new) <= MAX_COMMITS else frozenset()

    anywhere = had([oid for _, oid in heads])
    on_main = had([oid for ref, oid in heads if is_main(ref, main)])
    landing = (push for push in pushes if strict or is_main(push.remote_ref, main))
    lands = {commit for push in landing for commit in push.every}
    brought = [x for x in commits if x not in on_main and (x not in anywhere or x in lands)]
    return brought, anywhere.intersection(brought)


def removed(
    repository: Repository,
    refs: Sequence[WorkRef],
    remote_refs: Mapping[str, str],
    *,
    main: Collection[str],
    remote: str,
    holder: str,
) -> tuple[list[str], bool]:
    """The commits that are lost by moving these refs, and whether there are too many.

    ``remote_refs`` has every ref of the remote, and ``main`` its main branches; objects that are
    not here keep nothing. ``holder`` is the pusher. Raises Denied if what is replaced is not here.
    """
    moved = [x for x in refs if x.moves]
    kept = {x.new for x in moved if x.new}
    names = {x.ref for x in moved}
    # ls-remote gives the commit of a tag as `TAG^{}`, and HEAD beside the branch that it is.
    kept |= {
        oid for ref, oid in remote_refs.items() if ref.removesuffix("^{}") not in names | {"HEAD"}
    }
    landed, others = list[tuple[str, str]](), list[str]()
    for moved_ref in moved:
        old = moved_ref.old or remote_refs.get(moved_ref.ref, "")
        if moved_ref.became not in REPLACES or not old:
            continue
        if ask(repository, "cat-file", "-e", old).code != 0:
            name = moved_ref.ref.removeprefix("refs/heads/").removeprefix("refs/tags/")
            raise Denied(
                f"this clone does not have the remote's {name}, so it cannot tell whose work "
                "would be lost",
                hints=(f"git fetch {without_secrets(remote)}",),
            )
        if moved_ref.new and is_main(moved_ref.ref, main):
            landed.append((old, moved_ref.new))
        else:
            others.append(old)
    return lost_commits(repository, landed=landed, others=others, kept=kept, holders=[holder])


def removed_by(
    repository: Repository,
    pushes: Sequence[Push],
    remote: str,
    holder: str,
    *,
    forced: Callable[[], bool],
) -> tuple[list[str], bool, tuple[str, ...]]:
    """Like ``removed`` for the main branches, by the tracking refs, without asking the remote.

    For other branches this clone cannot tell a loss: their author may have squashed or replaced the
    commits. Last come the main branches that are lost though their commits are not here: git
    replaces such a one only with ``forced``.
    """
    names = names_of(repository, remote)
    moved = [x for x in pushes if x.kind in (UPDATE, DELETE) and x.remote_oid]
    main = Branches(repository).main(names) if moved else {}
    refs, unknown = list[WorkRef](), list[str]()
    for push in moved:
        if not is_main(push.remote_ref, main):
            continue
        if ask(repository, "cat-file", "-e", push.remote_oid).code != 0:
            if push.kind == DELETE or forced():
                unknown.append(push.remote_ref.removeprefix("refs/heads/"))
            continue
        became = Became.DELETED if push.kind == DELETE else Became.FORCED
        ancestry = ("merge-base", "--is-ancestor", push.remote_oid, push.local_oid)
        # Any other status is a failure, not a no.
        if push.kind == DELETE or ask(repository, *ancestry).code == 1:
            refs.append(WorkRef(push.remote_ref, "", push.remote_oid, push.local_oid, became))
    if not refs:
        return [], False, tuple(unknown)
    known = Branches(repository).known(names)
    lost, cut = removed(repository, refs, known, main=main, remote=remote, holder=holder)
    return lost, cut, tuple(unknown)
