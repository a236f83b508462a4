"""The commits of a clone: what each changed, who made it, and which commits some ids reach.

No connection is opened for objects that a partial clone lacks, and replacement refs are ignored:
others get the real objects. None of it can be trusted: file names may hold any byte, dates may be
of any time, addresses and names may be anything.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from gitlease.kernel.git.repository import PATHS, Repository, ask, is_id, lines_as_input
from gitlease.kernel.rules.errors import Invalid
from gitlease.kernel.rules.frozen import dataclass
from gitlease.kernel.rules.instant import LATEST, MS
from gitlease.kernel.rules.work import Authorship

# --- git's raw format of changes --------------------------------------------------------------

GITLINK, LINK = "160000", "120000"  # the modes of a submodule and of a symbolic link

# Regardless of the user's settings: every submodule counts, and names begin at the root.
FORM = (
    *("--raw", "-z", "--no-abbrev", "--no-color", "--no-relative", "-O/dev/null"),
    *("--no-ext-diff", "--no-textconv", "--ignore-submodules=none"),
)
# A git that knows sparse indexes would name folders, and find nothing below them.
_INDEX = ("-c", "index.sparse=false", "diff-index", "--cached", "--ita-invisible-in-index")
# Beyond so many pairs only exact renames are found: the others are a D and an A.
RENAMES, NO_RENAMES = ("-M", "-l1000"), ("--no-renames",)
MAX_WORDS = 500  # ids in the arguments of one process


@dataclass(frozen=True)
class Changed:
    """One changed path, relative to the root, with surrogates if it is not UTF-8.

    ``kind`` is A, M, D, R, C or T as in ``git diff``, and ``old`` the source of R and C. Modes are
    git's six digits and blobs full ids (for a submodule a commit's), ``""`` for none. ``lost`` is
    the work that a merge drops here by taking another side whole: the change concerns only those
    who did that work.
    """

    path: str
    old: str | None
    kind: str
    mode_before: str
    mode_after: str
    blob_before: str
    blob_after: str
    lost: tuple[Authorship, ...] = ()

    @property
    def is_folder(self) -> bool:
        """Return whether it is, or was, a submodule."""
        return GITLINK in (self.mode_before, self.mode_after)


def differs(
    repository: Repository,
    base: str,
    made: str | None,
    moved: Sequence[str],
    env: Mapping[str, str] | None = None,
) -> bytes:
    """The raw difference of a commit, or the index, from a commit or tree. Raises Invalid.

    A file that was only added with ``--intent-to-add`` does not count.
    """
    ends = (base,) if made is None else (base, made)
    how = _INDEX if made is None else ("diff-tree", "-r")
    result = ask(repository, *how, *FORM, *moved, *ends, "--", env=env)
    if result.code != 0 and not result.timed_out and moved != NO_RENAMES:
        # Renames are found by comparing contents, which a partial clone may not have.
        result = ask(repository, *how, *FORM, *NO_RENAMES, *ends, "--", env=env)
    what = "what is staged cannot be read" if made is None else "commits cannot be read"
    return result.checked(what)


def paths_between(repository: Repository, base: str, made: str) -> frozenset[str]:
    """The paths in which a commit differs from another. Raises Invalid."""
    return frozenset(x.path for x in read(differs(repository, base, made, NO_RENAMES)))


def by_commit(out: bytes) -> Iterator[tuple[str, Changed | None]]:
    """Each header of git's log, alone and then with each change of its commit.

    Without a commit the header is ``""``. Raises Invalid for malformed output.
    """
    tokens = iter(out.split(b"\0"))
    header = ""
    try:
        for token in tokens:
            token = token.lstrip(b"\n")  # never a file name: those are taken below
            if token.startswith(b":"):
                yield header, read_change(token.decode("ascii"), tokens)
            elif token:
                header = token.decode("utf-8", "replace")
                yield header, None
    except (StopIteration, RuntimeError, ValueError, IndexError):
        raise Invalid("git's answer about changes cannot be read") from None


def read(out: bytes) -> Iterator[Changed]:
    """The changes of git's raw lines."""
    for _, change in by_commit(out):
        if change is not None:
            yield change


def read_change(about: str, tokens: Iterator[bytes]) -> Changed:
    """One change by its line and the names that follow; of a merge, relative to its first parent.

    Raises StopIteration, ValueError or IndexError for malformed output.
    """
    words = about.lstrip(":").split(" ")
    parents = len(about) - len(about.lstrip(":"))
    modes, ids, letters = words[: parents + 1], words[parents + 1 : -1], words[-1]
    if len(ids) != len(modes):
        raise ValueError(about)
    # A score follows one letter; in a merge only a rename on every side counts.
    moved = all(letter in "RC" for letter in letters[:parents])
    kind = letters[0] if moved or letters[0] in "ADMT" else "M"  # unmerged: whatever comes of it
    paths = [os.fsdecode(next(tokens)) for _ in range(parents + 1 if parents > 1 else 1 + moved)]
    return Changed(
        path=paths[-1],
        old=paths[0] if moved else None,
        kind=kind,
        mode_before=modes[0].strip("0") and modes[0],
        mode_after=modes[-1].strip("0") and modes[-1],
        blob_before=ids[0].strip("0") and ids[0],
        blob_after=ids[-1].strip("0") and ids[-1],
    )


# --- the changes of a hook's index, and of commits --------------------------------------------

COMMITS_AT_ONCE = 10_000  # in one process
SECONDS = 120.0  # for one process
MAX_HEADS = 64 * 1024  # bytes of MERGE_HEAD

_EMPTY_TREE = {
    "sha1": "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    "sha256": "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
}
_LOG = ("--no-walk=unsorted", "--root", "--format=%H %P", "--no-notes", "--no-show-signature")
_MERGING = "GITHEAD_"  # a variable in the hooks of a merge, with an id


def staged(repository: Repository, *, amend_of: str | None = None) -> list[Changed]:
    """The changes of the commit that is being made, by the index that git gives this process.

    For a merge, its own changes only (``merges.rule``): the rest is others' work that it brings in.
    ``amend_of`` is the commit that is being replaced, whose changes are included. Raises Invalid if
    git does not answer.
    """
    if repository.toplevel is None:
        return []
    if amend_of is None:
        # Of a merge without conflicts git tells only the hooks that it starts, by variables.
        lines = repository.merged_heads(MAX_HEADS)
        names = sorted(x.removeprefix(_MERGING) for x in os.environ if x.startswith(_MERGING))
        bases = ["HEAD", *filter(is_id, lines or names)]
    else:
        bases = _parents(repository, amend_of) or [_EMPTY_TREE[repository.object_format]]
    if len(bases) == 1:
        return list(read(_against(repository, bases[0])))
    if bases[0] == "HEAD":  # which may be merged under its id, too
        result = ask(repository, "rev-parse", "-q", "--verify", "HEAD")
        bases[0] = os.fsdecode(result.out).strip() if result.code == 0 else "HEAD"
    from gitlease.guard.merges import merged

    return merged(repository, bases, None)


def committed(
    repository: Repository, commits: Sequence[str], *, renames: bool = True
) -> dict[str, list[Changed]]:
    """The changes of each of these commits (full ids), in their order.

    Without ``renames`` a rename is a D and an A, and no contents are compared.

    For a merge, its own changes only (``merges.rule``); for a commit at the boundary of a shallow
    clone, none. Raises Invalid if git does not answer.
    """
    for commit in commits:
        if not is_id(commit):
            raise Invalid(f"{commit[:80]!r} is not the full id of a commit")
    changes: dict[str, list[Changed]] = {commit: [] for commit in commits}
    merges: dict[str, list[str]] = {}
    # Without its parents a commit would seem to have added every file.
    cut_off = repository.shallow()
    asked = [commit for commit in changes if commit not in cut_off]
    for start in range(0, len(asked), COMMITS_AT_ONCE):
        chunk = asked[start : start + COMMITS_AT_ONCE]
        for ids, change in by_commit(_logged(repository, chunk, renames=renames)):
            commit, *parents = ids.split()
            if change is not None:
                changes.setdefault(commit, []).append(change)
            elif len(parents) > 1:
                merges[commit] = parents
    if merges:
        from gitlease.guard.merges import merged

        for commit, parents in merges.items():
            changes[commit] = merged(repository, parents, commit)
    return changes


def _against(repository: Repository, base: str) -> bytes:
    try:
        return differs(repository, base, None, RENAMES)
    except Invalid:
        if base != "HEAD" or ask(repository, "rev-parse", "-q", "--verify", "HEAD").code == 0:
            raise
    return differs(repository, _EMPTY_TREE[repository.object_format], None, RENAMES)  # unborn


def _logged(repository: Repository, commits: Sequence[str], *, renames: bool) -> bytes:
    for moved in (RENAMES, NO_RENAMES) if renames else (NO_RENAMES,):
        # Renames are found by comparing contents, which a partial clone may not have.
        with commits_as_words(commits) as (named, source):
            words = ("log", *_LOG, *FORM, *moved, *named, "--")
            result = ask(repository, *words, timeout=SECONDS, source=source)
        if result.code == 0 or result.timed_out:
            break
    return result.checked("commits cannot be read")


def _parents(repository: Repository, commit: str) -> list[str]:
    words = ("rev-list", "--no-walk", "--parents", "--end-of-options", commit, "--")
    result = ask(repository, *words)
    ids = os.fsdecode(result.out).split()
    if result.code != 0 or not ids:
        raise result.failure("the commit to amend cannot be read")
    if ids[0] in repository.shallow():
        return ids[:1]  # its parents are not here, and not all of its files are its change
    return ids[1:]


# --- the log ----------------------------------------------------------------------------------

# Numbers come first, where no address can displace them.
_HEAD = "%H%x1f%at%x1f%ct%x1f%P%x1f%ae%x1f%aE%x1f%ce%x1f%cE"
_QUIET = ("--root", "--no-notes", "--no-show-signature", "--encoding=none")
# Against settings of the user's.
_PLAIN = ("-c", "log.diffMerges=separate", "-c", "log.follow=false")
_CONTACT = r"[^\s<>\x00-\x1f\x7f]{1,254}"


class Commit(NamedTuple):
    """One commit: its later date in wall-clock ms, addresses as written and by the mailmap."""

    id: str
    at: int
    parents: tuple[str, ...]
    author: str
    author_usual: str
    committer: str
    committer_usual: str


Logged = tuple[Commit, Changed | None]


def read_log(repository: Repository, words: Sequence[str]) -> Iterator[Logged]:
    """The commits, the newest first, each alone and then with each of its changes.

    A merge has its changes relative to each parent. Raises Invalid.
    """
    form = (*FORM, *_QUIET, f"--format={_HEAD}")
    result = ask(repository, *_PLAIN, "log", *form, *words, timeout=SECONDS, env=PATHS)
    return read_answer(result.checked("the commits cannot be read"))


def read_answer(out: bytes) -> Iterator[Logged]:
    """Parse the output of ``git log``. Raises Invalid."""
    commit: Commit | None = None
    for header, changed in by_commit(out):
        if changed is None:
            commit = _commit(header)
        if commit is None:
            raise Invalid("git's answer about commits cannot be read")
        yield commit, changed


def _commit(header: str) -> Commit:
    words = header.split("\x1f", 7)
    if len(words) != 8 or not is_id(words[0]):
        raise Invalid("git's answer about commits cannot be read")
    oid, authored, committed, parents, author, usual, committer, committer_usual = words
    return Commit(
        id=oid,
        at=max(_time(authored), _time(committed)),
        parents=tuple(parents.split()),
        author=author,
        author_usual=usual,
        committer=committer,
        committer_usual=committer_usual,
    )


def _time(text: str) -> int:
    try:
        return min(max(int(text), 0) * MS, LATEST)
    except ValueError:
        return 0  # as long ago as possible


def usual_addresses(
    repository: Repository, emails: Iterable[str], words: Sequence[str] = ()
) -> dict[str, str]:
    """The mailmap's address for each of these, else itself. ``words`` choose another mailmap."""
    # An address with a bracket or a line break would change the lines that git reads.
    asked = [email for email in dict.fromkeys(emails) if re.fullmatch(_CONTACT, email)]
    config = repository.config
    maps = (*words, config.get("mailmap.file"), config.get("mailmap.blob"))
    root = repository.toplevel
    # Spares a process where there can be no mailmap.
    if root and not any(maps) and not os.path.lexists(os.path.join(root, ".mailmap")):
        return {email: email for email in asked}
    if not asked:
        return {}
    with lines_as_input(f"<{email}>" for email in asked) as source:
        result = ask(repository, *words, "check-mailmap", "--stdin", timeout=SECONDS, source=source)
    lines = result.checked("the mailmap cannot be read").decode("utf-8", "replace").splitlines()
    matches = zip(asked, (re.search(r"<([^<>]*)>$", line) for line in lines), strict=False)
    return {email: match[1] if match else email for email, match in matches}


# --- ranges -----------------------------------------------------------------------------------

IDS_AT_ONCE = 500  # in the arguments of one process

# Not re-encoded: git would take all of a commit, ids and addresses too, for what its header says.
_FORM = ("--format=%H%x00%ct%x00%ae%x00%ce", "--encoding=none")


class RangeCommit(NamedTuple):
    """A commit of a range, with the email addresses of its author and its committer, and the
    committer's date in seconds."""

    id: str
    people: tuple[str, ...]
    recorded: int


def rev_range(
    repository: Repository,
    tips: Iterable[str],
    kept: Iterable[str] = (),
    *,
    others: Sequence[str] = (),
    most: int,
    strict: bool = False,
) -> list[RangeCommit]:
    """The commits that ``tips`` reach and neither ``kept`` nor the refs of ``others`` do.

    The newest first, at most ``most``. ``others`` are git options that choose refs. Ids that are
    not here are skipped unless ``strict``. Raises Invalid if git does not answer.
    """
    # What is no full id could be an option, or another commit by now.
    begin = list(dict.fromkeys(x for x in tips if is_id(x)))
    if not begin:
        return []
    ends = [f"^{x}" for x in sorted(set(kept)) if is_id(x)]
    words = [f"--max-count={most}", *([] if strict else ["--ignore-missing"])]
    words += ["--not", *others, "--not"] if others else []
    if len(begin) + len(ends) <= IDS_AT_ONCE:
        return _listed(repository, *words, *begin, *ends, "--")
    with lines_as_input((*begin, *ends)) as source:
        return _listed(repository, *words, "--stdin", source=source)


def _listed(repository: Repository, *words: str, source: str | None = None) -> list[RangeCommit]:
    result = ask(repository, "rev-list", *_FORM, *words, source=source)
    listed = result.checked("the commits of a range cannot be read").decode("utf-8", "replace")
    # Not splitlines: an address may have what ends a line elsewhere.
    rows = (line.split("\0") for line in listed.split("\n"))
    return [
        RangeCommit(id, tuple(people), int(date) if date.isdecimal() else 0)
        for id, date, *people in (x for x in rows if len(x) > 2)
    ]


def commit_ids(repository: Repository, names: Sequence[str]) -> list[str | None]:
    """The full ids of commits by any names that git accepts, in one process; None for no commit."""
    # A line break would make two questions of a name.
    asked = [name for name in names if name and "\n" not in name]
    if not asked:
        return [None] * len(names)
    with lines_as_input([f"{name}^{{commit}}" for name in asked]) as source:
        result = ask(repository, "cat-file", "--batch-check", source=source)
    answers = (line.split(" ") for line in os.fsdecode(result.out).split("\n"))
    ids = [x[0] if len(x) == 3 and is_id(x[0]) and x[1] == "commit" else None for x in answers]
    by_name = dict(zip(asked, ids, strict=False))
    return [by_name.get(name) for name in names]


def in_range(
    repository: Repository, head: str, bases: Sequence[str], *, most: int
) -> tuple[tuple[str, ...], bool]:
    """The newest commits of ``head`` that no base has, the oldest first, and whether that is sure.

    In a shallow clone an old commit may look new, since the path from a base to it is missing. It
    is sure if no commit on either side is at the boundary, and all are younger than it.
    """
    rows = _listed(repository, "--topo-order", f"--max-count={most}", head, "--not", *bases, "--")
    commits = tuple(x.id for x in reversed(rows))
    edge = repository.shallow()
    if not edge:
        return commits, True
    others = _listed(repository, *bases, "--not", head, "--") if bases else []
    cut = edge & {x.id for x in (*rows, *others)}
    newest, ids = 0, sorted(edge)
    for start in range(0, len(ids), IDS_AT_ONCE):
        some = ids[start : start + IDS_AT_ONCE]
        boundary = _listed(repository, "--no-walk", "--ignore-missing", *some, "--")
        newest = max([newest, *(x.recorded for x in boundary)])
    return commits, not cut and all(x.recorded > newest for x in rows)


class TooMuch(Invalid):
    """There is more work to examine than the limits allow."""


@contextmanager
def commits_as_words(commits: Sequence[str]) -> Iterator[tuple[Sequence[str], str | None]]:
    """How git is told of commits: few in its arguments, many in a file that it reads as input."""
    if len(commits) <= MAX_WORDS:
        yield commits, None
        return
    with lines_as_input(commits) as source:
        yield ["--stdin"], source
