"""Which commits a push brings to a remote, by the lines that git gives its pre-push hook."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from gitlease.adapters.asking import ask, is_id, refusal
from gitlease.adapters.git import GitResult
from gitlease.adapters.reached import PEOPLE, lines_of, reached, with_people
from gitlease.adapters.remote_branches import heads_known, is_main, main_branches, names_of
from gitlease.adapters.repository import Repository
from gitlease.adapters.settings_schema import shown
from gitlease.domain.errors import Invalid
from gitlease.domain.frozen import dataclass, replace
from gitlease.domain.lease import same_person

MAX_COMMITS = 10_000
MAX_REFS = 10_000

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
    if len(open_ends) > 1 and not _needed(repository, *open_ends, "--not", *there, most=1):
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
    listed = None
    if push.remote_oid:
        listed, _ = _asked(repository, (push.local_oid, "--not", push.remote_oid, *there))
    if listed is None:
        listed = _needed(repository, push.local_oid, "--not", *there)
    cut = len(listed) > MAX_COMMITS
    return replace(push, commits=tuple(listed[:MAX_COMMITS]), cut=cut)


def _with_own(
    repository: Repository, push: Push, main: Mapping[str, Sequence[str]], holder: str
) -> Push:
    """The push with the commits of its pusher that its target gets, wherever else they are.

    What a main branch has is merged everywhere; but of the target itself it is known what it has.
    """
    every = [oid for ids in main.values() for oid in ids]
    target = push.remote_ref.removeprefix("refs/heads/")
    tips = [oid for name, ids in main.items() if name != target for oid in ids]
    most = f"--max-count={MAX_COMMITS + 1}"
    words = ("log", "--no-show-signature", PEOPLE, most, push.local_oid, "--not")
    said = ask(repository, *words, push.remote_oid, *tips, "--")
    if said.code != 0:  # what the remote has now is not known here
        said = ask(repository, *words, *every, "--")
    if said.code != 0:
        raise refusal(said, "what is to be pushed cannot be read")
    lines = lines_of(said.out.decode("utf-8", "replace"))
    known = set(push.commits)
    own = [
        commit
        for commit, people in map(with_people, lines)
        if commit not in known and any(same_person(holder, one) for one in people)
    ]
    cut = push.cut or len(lines) > MAX_COMMITS
    return replace(push, again=tuple(own), cut=cut)


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
        new = reached(repository, tips, oids, most=MAX_COMMITS + 1)
        whole = len(new) <= MAX_COMMITS
        return frozenset(every - {commit for commit, _ in new}) if whole else frozenset()

    landing = (push for push in pushes if strict or is_main(push.remote_ref, main))
    return Landed(
        had([oid for _, oid in heads]),
        had([oid for ref, oid in heads if is_main(ref, main)]),
        frozenset(commit for push in landing for commit in push.every),
    )


def _needed(repository: Repository, *words: str, most: int = MAX_COMMITS + 1) -> list[str]:
    found, said = _asked(repository, words, most)
    if found is None:
        raise refusal(said, "what is to be pushed cannot be read")
    return found


def _asked(
    repository: Repository, words: Sequence[str], most: int = MAX_COMMITS + 1
) -> tuple[list[str] | None, GitResult]:
    """At most so many commits; None where git fails, as for an id that is not known here."""
    said = ask(repository, "rev-list", f"--max-count={most}", *words, "--")
    return (os.fsdecode(said.out).split() if said.code == 0 else None), said
