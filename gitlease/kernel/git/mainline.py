"""What this clone knows of a file on the remote's default branch: its bytes, that it is not there,
or nothing at all.

A clone may lack the branch (``--single-branch``), its trees or its blobs (``--filter``). Absence is
proven by a tree that was read; anything that could not be read is unknown, never absent.

A command that contacts the remote anyway learns what is missing: the name of the default branch
from the remote's HEAD, and the objects that are wanted of it, by their ids, once for each new
commit. They go into a private repository beside the clone's own objects: nothing of the user's
repository changes, and lazy fetching stays off.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from functools import cached_property, partial
from typing import Any

from gitlease.kernel.git.files import Notes, Unreadable, notes_of, read_small
from gitlease.kernel.git.objects import (
    BLOB,
    COMMIT,
    EXECUTABLE,
    FILE,
    FOLDER,
    ID_BYTES,
    GitObjects,
    TooLarge,
    fetched_store,
    objects_of,
    read_tree,
    with_fetched,
)
from gitlease.kernel.git.repository import (
    ASK_EVERY,
    BRANCHES,
    HEADS,
    SECONDS,
    USUAL,
    Repository,
    as_entry,
    ask,
    ask_remote,
    default_branches,
    detail_of,
    is_id,
    is_on,
    lines_as_input,
    main_of,
    remote_key,
    without_secrets,
)
from gitlease.kernel.git.run import GitResult
from gitlease.kernel.rules.frozen import dataclass
from gitlease.kernel.rules.lease import person_key

ATTRIBUTES = ".gitattributes"
GIT_CRYPT = b"\0GITCRYPT\0"  # what git-crypt stores begins so
NOT_SET_UP = "which is not set up here"
ENCRYPTED = "is encrypted with git-crypt"
MAX_TREE = 16 * 1024 * 1024  # bytes of one folder's listing
MAX_ROUNDS = 16  # fetches for one commit: a clone without trees needs one for each level
MAX_PACKS = 50  # of the private repository; then it begins again
MAX_OBJECTS = 60_000  # that one commit may be fetched for
TIPS, COMPLETE, FAILED = "main tips", "main complete", "main failed"  # kinds of notes
AGAIN = 60  # seconds after which a remote is asked again
QUICK = 3.0  # seconds for what failed within the last ``AGAIN``
KEPT_NAME = 200


class Presence(Enum):
    """What a clone knows of a file on the main branch."""

    KNOWN = "known"
    ABSENT = "absent"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class MainFile:
    """One file of the main branch: ``data`` if it is known, ``why`` for people if it is unknown."""

    presence: Presence
    data: bytes = b""
    why: str = ""


ABSENT = MainFile(Presence.ABSENT)


@dataclass(frozen=True)
class MainBranch:
    """The default branch of a remote as far as it is known here.

    ``ref`` is this clone's copy of it, ``""`` if it has none; ``commit`` is its tip, ``""`` if the
    remote has no commit yet. ``name`` is for people. ``why`` says what is unknown of it; with a
    ``commit`` that only concerns some of its objects.
    """

    name: str = ""
    ref: str = ""
    commit: str = ""
    why: str = ""

    @property
    def place(self) -> str:
        """What readers of task files call it: its ref, else its commit."""
        return self.ref or self.commit


NO_MAIN = MainBranch()
"""There is no remote, or it has no commit: nothing is on the main branch."""

Missing = Callable[[str], Sequence[str]]
"""The ids of the objects of a commit that are wanted and are not here, as far as is known."""

Fetch = Callable[[str, str, Sequence[str], Sequence[str], str, float], GitResult]
"""Fetches from a remote into a private repository, with options and settings, the objects whose
ids are in a file, within so many seconds."""


def _unknown(why: str) -> MainFile:
    return MainFile(Presence.UNKNOWN, why=why)


def read_main_file(
    repository: Repository,
    remotes: Sequence[str],
    path: str,
    *,
    limit: int,
    objects: GitObjects | None = None,
) -> MainFile:
    """Read a file of the default branch of the first of these remotes that this clone tracks.

    ``path`` is relative to the root of the repository. A file of more than ``limit`` bytes is
    unknown. ``objects`` are those of the repository, if they are open already. Asks no remote.
    """
    main = known_main(repository, remotes)
    if main.commit:
        return read_file_at(repository, main.commit, path, limit=limit, objects=objects)
    return _unknown(main.why) if main.why else ABSENT


def read_file_at(
    repository: Repository,
    commit: str,
    path: str,
    *,
    limit: int,
    objects: GitObjects | None = None,
) -> MainFile:
    """Read a file of a commit as a checkout would write it, from the objects that this clone has.

    ``commit`` is a full id.
    """
    objects = objects or objects_of(repository)
    attributes, above = dict[str, str](), ""
    try:
        header = objects.read(commit, COMMIT, MAX_TREE)
        tree = header.partition(b"\n")[0].removeprefix(b"tree ").decode("ascii", "replace")
        mode, id = FOLDER, tree
        for part in path.split("/"):
            if mode != FOLDER:
                return ABSENT
            entries = {x.name: x for x in read_tree(objects, id, MAX_TREE)}
            if ATTRIBUTES in entries:
                attributes[above + ATTRIBUTES] = entries[ATTRIBUTES].id
            if part not in entries:
                return ABSENT
            _, mode, id = entries[part]
            above = f"{above}{part}/"
        if mode not in (FILE, EXECUTABLE):
            return _unknown(f"{path} is not a regular file")
        changed: bytes | Unreadable | None = None
        if may_have_filters(repository, attributes):
            from gitlease.kernel.git.smudging import as_checked_out  # few files have filters

            changed = as_checked_out(repository, objects, {path: id}, attributes).get(path)
        if isinstance(changed, Unreadable):
            raise changed
        data = objects.read(id, BLOB, limit) if changed is None else changed
        if len(data) > limit:
            raise TooLarge(limit)
        if data.startswith(GIT_CRYPT):
            raise Unreadable(ENCRYPTED)
        return MainFile(Presence.KNOWN, data)
    except Unreadable as why:
        return _unknown(f"{path} {why}")


def may_have_filters(repository: Repository, attributes: Mapping[str, str]) -> bool:
    """Return whether it is worth a look which filters files have, by attributes or settings.

    A filter that only the attributes name is one that this clone cannot apply.
    """
    if attributes or filter_settings(repository):
        return True
    return any(map(os.path.exists, attribute_files(repository)))


def attribute_files(repository: Repository) -> tuple[str, str]:
    """The files of attributes that git reads besides those of a commit; they may not exist."""
    config = repository.config.get("core.attributesfile")
    folder = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return (
        os.path.join(repository.common_dir, "info", "attributes"),
        os.path.expanduser(config) if config else os.path.join(folder, "git", "attributes"),
    )


def filter_settings(repository: Repository) -> str:
    """A word for the filters that are set up in this clone; ``""`` if there are none."""
    rows = [(x.key, x.value) for x in repository.config.section("filter")]
    if not rows:
        return ""
    from hashlib import sha256  # OpenSSL, for which hooks have no time

    return sha256(repr(rows).encode("utf-8", "replace")).hexdigest()[:16]


# --- the branch ---------------------------------------------------------------------------------


def known_main(repository: Repository, remotes: Sequence[str]) -> MainBranch:
    """The default branch of the first of these remotes of which one is known. Asks no remote."""
    if not remotes:
        return NO_MAIN
    found = (main_of(repository, x, likely_only=False) for x in remotes)
    for ref, commit in filter(None, found):
        name = ref.removeprefix("refs/remotes/")
        return MainBranch(name, ref, commit, _failure(repository, remotes))
    notes = notes_of(repository.common_dir)
    for remote in remotes:
        match notes.get(TIPS, remote_key(repository, remote)):
            case ["", ""]:
                return NO_MAIN
            case [str() as branch, str() as tip] if is_id(tip):
                name = f"{remote}/{branch}"
                if _has_commit(repository, tip):
                    return MainBranch(name, "", tip, _failure(repository, remotes))
                why = _failure(repository, remotes) or f"{name} is not in this clone"
                return MainBranch(name, why=why)
    why = _failure(repository, remotes)
    return MainBranch(why=why or f"the default branch of {remotes[0]} is not in this clone")


def _has_commit(repository: Repository, commit: str) -> bool:
    try:
        objects_of(repository).read(commit, COMMIT, MAX_TREE)
    except Unreadable:
        return False
    return True


def _failure(repository: Repository, remotes: Sequence[str]) -> str:
    notes = notes_of(repository.common_dir)
    found = (notes.get(FAILED, remote_key(repository, x)) for x in remotes)
    return next((x for x in found if isinstance(x, str) and x), "")


def is_partial(repository: Repository) -> bool:
    """Return whether the clone has only a part of its objects, as ``--filter`` makes it."""
    config = repository.config
    if config.get("extensions.partialclone"):
        return True
    return any(x.key.endswith(".promisor") and is_on(x.value) for x in config.section("remote"))


# --- learning it from the remote ----------------------------------------------------------------


def learn_main(
    repository: Repository,
    remotes: Sequence[str],
    *,
    missing: Missing,
    purpose: str,
    fetch: Fetch,
    now: float,
    seconds: float = SECONDS,
    commit: str = "",
    afresh: bool = False,
) -> MainBranch:
    """Learn what this clone lacks of the default branch, from the first of these remotes.

    No contact where nothing is lacking. What failed is tried again; within a minute for a short
    time only, except with ``afresh``. ``purpose`` names what is wanted of a commit: what is
    complete for one purpose is not for another. ``commit`` is a tip that this clone's copy of the
    branch has not moved on to; with ``afresh`` it is fetched although the clone is not partial.
    Never fails: what stays unknown is in the answer.
    """
    main, deadline = known_main(repository, remotes), time.monotonic() + seconds

    def left() -> float:
        return max(0.0, deadline - time.monotonic())

    if not remotes:
        return main
    remote, notes = remotes[0], notes_of(repository.common_dir)
    if main.ref:
        remote = next((x for x in remotes if main.name.startswith(f"{x}/")), remote)
    key = remote_key(repository, remote)
    # git noted the name with the clone: a branch that was renamed since may still be tracked.
    if main.ref and _is_old(notes, key, now):
        _ask_head(repository, remote, seconds=min(seconds, SECONDS), now=now)
        main = known_main(repository, remotes)
    if not main.ref:
        if not afresh and not notes.is_due("main asked", key, every=AGAIN, now=now):
            return main
        if why := _ask_head(repository, remote, seconds=left(), now=now):
            notes.put(FAILED, key, why, at=now)
            return known_main(repository, remotes)
        main = known_main(repository, remotes)
    tip = commit or main.commit or _noted_tip(repository, remote)
    if not tip or (main.ref and not is_partial(repository) and not (commit and afresh)):
        notes.drop(FAILED, key)
        return known_main(repository, remotes)
    complete = f"{key} next" if commit else key
    if notes.get(COMPLETE, complete) == [tip, purpose] and _is_there(repository):
        return main
    if not notes.is_due("main tried", key, every=AGAIN, now=now) and main.why and not afresh:
        seconds = min(seconds, QUICK)  # it may work by now; who waits for it waits again
        deadline = min(deadline, time.monotonic() + seconds)
    why = _fetch_missing(
        repository, tip, missing, partial(fetch, remote), left(), name=main.name or remote
    )
    if why:
        notes.put(FAILED, key, why, at=now)
    else:
        notes.drop(FAILED, key)
        notes.put(COMPLETE, complete, [tip, purpose], at=now)
    return known_main(repository, remotes)


def _is_old(notes: Notes, key: str, now: float) -> bool:
    """Return whether the name of the default branch was not asked for an hour, and is to be."""
    if notes.get("main asked", key) is None:
        notes.put("main asked", key, "", at=now)  # it was learnt with the clone, or the last fetch
        return False
    return notes.is_due("main asked", key, every=ASK_EVERY, now=now)


def _is_there(repository: Repository) -> bool:
    return os.path.isdir(fetched_store(repository)) or not is_partial(repository)


def _noted_tip(repository: Repository, remote: str) -> str:
    match notes_of(repository.common_dir).get(TIPS, remote_key(repository, remote)):
        case [str(), str() as tip] if is_id(tip):
            return tip
    return ""


def _ask_head(repository: Repository, remote: str, *, seconds: float, now: float) -> str:
    """Note the default branch of a remote and its tip; return why they stay unknown, or ``""``."""
    usual = [HEADS + x for x in USUAL]
    words = ("ls-remote", "--quiet", "--symref", "--", remote, "HEAD", *usual)
    result = ask_remote(repository, *words, seconds=seconds)
    if result.code or result.timed_out:
        detail = detail_of(result.err.splitlines(), result, seconds)
        return f"{remote} did not tell its default branch: {detail}"
    branch, tips = "", dict[str, str]()
    for line in os.fsdecode(result.out).splitlines():
        left, _, ref = line.partition("\t")
        if left.startswith(f"ref: {HEADS}") and ref == "HEAD":
            branch = left.removeprefix(f"ref: {HEADS}")
        elif is_id(left):
            tips[ref] = left
    # A HEAD that names no branch: its hosts' usual names are tried before nothing is there.
    if "HEAD" not in tips:
        branch = next((x for x in USUAL if HEADS + x in tips), "")
    tip = tips.get("HEAD") or tips.get(HEADS + branch) or ""
    if not branch and tip:
        return f"{remote} has a HEAD that is on no branch"
    if len(branch) > KEPT_NAME or not branch.isprintable() or branch.startswith("-"):
        return f"the default branch of {remote} has a name that cannot be used"
    notes, key = notes_of(repository.common_dir), remote_key(repository, remote)
    if branch:
        notes.put(BRANCHES, key, branch, at=now)
    notes.put(TIPS, key, [branch, tip], at=now)
    return ""


def _fetch_missing(
    repository: Repository,
    commit: str,
    missing: Missing,
    fetch: Callable[[str, Sequence[str], Sequence[str], str, float], GitResult],
    seconds: float,
    *,
    name: str,
) -> str:
    """Fetch what is missing of a commit; return why some of it still is, or ``""``."""
    ids, before, deadline = list[str](), list[str](), time.monotonic() + seconds
    for _ in range(MAX_ROUNDS):
        is_new = not _has_commit(repository, commit)
        ids = [commit] if is_new else list(missing(commit))
        if not ids:
            return ""
        if ids == before or len(ids) > MAX_OBJECTS:
            break
        before = ids
        try:
            store = _store_for(repository)
        except OSError as error:
            return f"what this clone lacks of {name} cannot be kept: {error.strerror}"
        # Objects by their ids, and nothing that hangs on them; of a commit its trees as well.
        kind = "blob:none" if is_new else "tree:0"
        options = [f"--filter={kind}", *(["--depth=1"] if is_new else [])]
        settings = [] if is_new else ["fetch.negotiationAlgorithm=noop"]
        with lines_as_input(ids) as source:
            left = max(0.0, deadline - time.monotonic())
            result = fetch(store, options, settings, source, left)
        if result.code or result.timed_out:
            if store in result.err:  # it is damaged, perhaps: the next try makes it anew
                _remove(store)
            detail = without_secrets(detail_of(result.err.splitlines(), result, seconds))
            return f"this clone has only a part of {name}, and the rest was not fetched: {detail}"
    return f"this clone has only a part of {name}, and the remote did not give all of the rest"


def _remove(store: str) -> None:
    from shutil import rmtree

    rmtree(store, ignore_errors=True)


_CONFIG = "[extensions]\n\tpartialClone = gitlease-main\n"


def _store_for(repository: Repository) -> str:
    """Make the private repository, or make it anew when it has too many packs. Raises OSError."""
    store = fetched_store(repository)
    packs = os.path.join(store, "objects", "pack")
    with contextlib.suppress(OSError):
        if sum(x.endswith(".pack") for x in os.listdir(packs)) < MAX_PACKS:
            return store
        _remove(store)
    from gitlease.kernel.git.bare import make_aside  # hooks load this module, and make nothing

    own = os.path.join(repository.common_dir, "objects")
    aside = make_aside(store, _CONFIG, ID_BYTES[repository.object_format])
    try:
        with open(os.path.join(aside, "objects", "info", "alternates"), "wb") as file:
            file.write(os.fsencode(f"{as_entry(own)}\n"))
        os.rename(aside, store)
    except OSError:
        _remove(aside)
        if not os.path.isdir(packs):  # another process was not quicker either
            raise
    return store


def traces_of_main(repository: Repository, remotes: Sequence[str]) -> list[Any]:
    """What changes whenever the default branch of one of these remotes may have moved."""
    common, usual = repository.common_dir, repository.config.get("init.defaultBranch")
    refs = default_branches(repository, remotes)
    refs += [f"refs/remotes/{name}/{usual}" for name in remotes if usual not in (None, *USUAL)]
    texts = [_text(common, ref) for ref in refs]
    named = [x.removeprefix("ref: ") for x in texts if x.startswith("ref: refs/remotes/")]
    texts += [_text(common, ref) for ref in named if ".." not in ref]
    # A branch that is updated is moved into its folder, whose time changes with it.
    files = ["packed-refs", "reftable/tables.list", *(f"refs/remotes/{x}" for x in remotes)]
    notes = notes_of(common)
    tips = [[x := remote_key(repository, name), notes.get(TIPS, x)] for name in remotes]
    return [tips, texts, [_stamp(os.path.join(common, x)) for x in files]]


def _text(folder: str, name: str) -> str:
    return (read_small(os.path.join(folder, name), 1_024) or b"").decode("latin-1").strip()


def _stamp(path: str) -> list[int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return [status.st_ino, status.st_mtime_ns, status.st_size]


def missing_of(repository: Repository, ids: Sequence[str]) -> list[str]:
    """Return those of some ids whose objects are not here."""
    wanted = list(dict.fromkeys(ids))
    if not wanted:
        return []
    with lines_as_input(wanted) as source:
        words = ("cat-file", "--batch-check=%(objectname)")
        result = ask(repository, *words, env=with_fetched(repository), source=source)
    lines = os.fsdecode(result.out).splitlines()
    gone = {x.removesuffix(" missing") for x in lines if x.endswith(" missing")}
    if result.code or len(lines) != len(wanted):
        return wanted
    return [x for x in wanted if x in gone]


# --- the mailmap ----------------------------------------------------------------------------------
# Not as the work tree has it: whoever checks out a branch must not become another person by it.

MAILMAP = ".mailmap"
MAX_MAILMAP = 1024 * 1024  # bytes
# `Name <usual> <other>`; an entry with a second name is about commits of that name alone.
_LINE = re.compile(r"[^<>#]*<([^<>\s]+)>\s*<([^<>\s]+)>\s*(?:#.*)?")


def read_mailmap(data: bytes) -> dict[str, str]:
    """Return the usual address of each other one, both as ``person_key`` has them."""
    lines = data.decode("utf-8", "replace").splitlines()
    found = filter(None, map(_LINE.fullmatch, lines))
    return {person_key(match[2]): person_key(match[1]) for match in found}


class Mailmap(Mapping[str, str]):
    """The usual address of each other one, read when it is first asked for.

    It is that of the default branch of the first of some remotes, ``names``, that has one.
    """

    def __init__(self, repository: Repository, names: Callable[[], Sequence[str]]) -> None:
        self._repository, self._names = repository, names

    @cached_property
    def _pairs(self) -> dict[str, str]:
        names = self._names()
        main = read_main_file(self._repository, names, MAILMAP, limit=MAX_MAILMAP)
        return read_mailmap(main.data)

    def __getitem__(self, address: str) -> str:
        return self._pairs[address]

    def __iter__(self) -> Iterator[str]:
        return iter(self._pairs)

    def __len__(self) -> int:
        return len(self._pairs)
