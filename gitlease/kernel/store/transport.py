"""Moves a ledger ref between the private store and a remote: one fetch, one push.

What a push came to is never taken from its message; a message only says *why*. Whether a request
can have been sent at all is known from git's own trace, so that an unreachable remote is told from
an unknown outcome.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from gitlease.kernel.git.branches import refs_in
from gitlease.kernel.git.files import CannotKeep, Unreadable, cannot_keep, is_private
from gitlease.kernel.git.rejections import (
    HEADERS,
    Rejection,
    denies,
    known_words,
    retry_hints,
)
from gitlease.kernel.git.repository import SECONDS, as_entry, detail_of, is_id, without_secrets
from gitlease.kernel.git.run import ALLOWED_PROTOCOLS, GitResult, run_git
from gitlease.kernel.ledger.ports import Cause, Change, Swapped, doing
from gitlease.kernel.rules.errors import (
    Denied,
    GitleaseError,
    Invalid,
    Unavailable,
    clean,
    hint,
    shown,
)
from gitlease.kernel.rules.frozen import dataclass, replace
from gitlease.kernel.rules.ledger import Fate, Header
from gitlease.kernel.rules.work import Became, WorkPush
from gitlease.kernel.store.private_store import PrivateStore
from gitlease.kernel.store.storage import COPY_LOST, CopyLost, Move
from gitlease.kernel.store.tree import (
    GitRecords,
    LedgerCommit,
    Parsed,
    StoreObjects,
    read_commit,
    read_state,
    walk,
    write_step,
)

TIME_LIMIT = 30.0  # seconds for one fetch or push
MEMORY = 1024**3  # bytes that git may have for the few objects of a ledger
HINTS = 5  # of a server's hooks that are passed on

# Nothing that the clone's or the user's settings say may touch more than the one ref.
_SETTINGS = {
    "core.bare": "true",
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "fetch.writeCommitGraph": "false",
    "fetch.recurseSubmodules": "false",
    "push.recurseSubmodules": "no",
    "push.gpgSign": "false",
    "pack.window": "0",  # looking for likenesses takes longer than to send the few objects
    "push.pushOption": "",  # clears the list: what a person tells servers is about their work
    "protocol.ext.allow": "never",
}

_OWN_TRANSPORTS = frozenset({"file", "git", "http", "https", "ssh", "git+ssh", "ssh+git"})
_HEADERS = {**HEADERS, "GIT_TRACE_PACKET": "1"}
# git has read the remote's refs, and has sent nothing: here a holder that was paused wakes up.
_HOLD = """#!/bin/sh
cat >/dev/null; : >"$0.reached"
while kill -0 PARENT && [ -e "$0" ]; do sleep 0.1; done 2>/dev/null; [ ! -e "$0" ]
"""
_TRACE = {"GIT_TRACE2_EVENT": "2", "GIT_TRACE2_EVENT_NESTING": "2"}
_DEBUG = {"GIT_TRANSPORT_HELPER_DEBUG": "1"}
# A helper that compares, or that has git itself speak to the other end.
_COMPARES = r"(?m)-> option cas .*\n(?:.* Waiting.*\n)*.*<- ok$|Smart transport connection ready"
# What git says, told apart; compiled only when something went wrong.
_ABSENT = r"(?im)^fatal: couldn't find remote ref "
_NOT_ALLOWED = r"transport '([a-z0-9+.-]{1,40})' not allowed"
_NO_TRANSPORT = r"transport '.*' not allowed|is not a git command|remote helper"
_LOCKED = r"cannot lock ref '(refs/[^\s']+)': Unable to create '.*\.lock'"
_NOT_UNPACKED = b"[remote rejected] (unpacker error)"
_STALE = "[rejected] (stale info)"
_HINT = r"(?:gitlease: )?hint: *(.+)"
# What is said of a ref that only shares the fate of another.
_ALONG_WITH = ("[rejected] (atomic push failed", "[remote rejected] (atomic ")
# What the receiving git on this machine says before it has offered anything to be updated.
_NO_REPOSITORY = "does not appear to be a git repository"
_OTHER_FORMAT = (  # the last of an empty repository
    r"(?i)mismatched algorithms|object.format|hash algorithm|unexpected capabilities\^\{\}"
)
# A portal's page, say: before it sends anything, git asks whether files can be locked there.
_NO_SERVER = "no DAV locking support on "
_STORE = (
    r"(?im)^(?:fatal|error): (?:not a git repository|bad object|bad config|loose object .* corrupt"
    r"|unable to read|unable to open loose object|unknown repository extension|cannot read "
    r"|object file .* is empty|bad tree object|failed to (?:write|read delta-pack base) object"
    r"|unable to write |bad shallow line"
    r"|object [0-9a-f]{40} not found|couldn't set 'refs/fetched/"
    r"|packed object|unresolved deltas|invalid object|expected git repo version|bad signature"
    r"|packfile .* )"
)


class OtherFormat(Invalid):
    """The remote's objects have ids of another format than those of the private store."""


class Watched:
    """Another ref of the remote, ``""`` for none, that pushes and peeks learn of by the way.

    ``tip`` is its id at the last contact; ``""`` if that did not show it.
    """

    ref = tip = ""


@dataclass(frozen=True)
class Remote:
    """A place to push to and fetch from, as git understands it: a URL or a path.

    ``settings`` are further git settings, ``folder`` is what relative paths are relative to, and
    ``effective`` the URL as git's settings rewrite it.
    """

    url: str
    folder: str
    effective: str = ""
    settings: tuple[tuple[str, str], ...] = ()
    upload_pack: str | None = None
    receive_pack: str | None = None


def fetch_into(
    remote: Remote, store: str, specs: Sequence[str], *options: str, timeout: float
) -> GitResult:
    """Fetch into a store of ours, and nothing but what these refspecs say."""
    args = ["fetch", "--quiet", "--no-write-fetch-head", "--no-tags", "--no-prune"]
    args += ["--no-recurse-submodules", "--no-auto-maintenance", "--no-show-forced-updates"]
    if remote.upload_pack:
        args.append(f"--upload-pack={remote.upload_pack}")
    args += [*options, "--end-of-options", remote.url, *specs]
    return _run_on_store(remote, store, args, timeout)


MAIN = "gitlease-main"  # what git calls the remote when it fetches single objects


def fetch_objects(
    remote: Remote,
    store: str,
    options: Sequence[str],
    settings: Sequence[str],
    source: str,
    timeout: float,
) -> GitResult:
    """Fetch the objects whose ids are in the file ``source`` into a private repository.

    It may have a part of the history alone. No ref is made.
    """
    args = ["fetch", "--quiet", "--no-write-fetch-head", "--no-tags", "--no-prune", "--stdin"]
    args += ["--no-recurse-submodules", "--no-auto-maintenance", "--no-show-forced-updates"]
    if remote.upload_pack:
        args.append(f"--upload-pack={remote.upload_pack}")
    # Under a name: git would write the URL, with what is secret in it, beside the filter.
    own = [(f"remote.{MAIN}.url", remote.url), (f"remote.{MAIN}.promisor", "true")]
    own.append((f"remote.{MAIN}.partialclonefilter", "blob:none"))
    own += [(key, value) for key, _, value in (x.partition("=") for x in settings)]
    args += [*options, "--end-of-options", MAIN]
    return _run_on_store(remote, store, args, timeout, settings=own, source=source)


def peek_refs(remote: Remote, store: str, refs: Sequence[str], *, timeout: float) -> dict[str, str]:
    """The object ids that refs have now, of those that the remote has; of all without ``refs``.

    Raises Unavailable, Denied or Invalid.
    """
    result = _listed(remote, store, refs, timeout)
    # A pattern is the end of a name for git: other refs may end alike.
    lines = (x.partition("\t") for x in result.out.decode("utf-8", "replace").splitlines())
    return {x: id for id, _, x in lines if (x in refs or (x and not refs)) and is_id(id)}


def _listed(
    remote: Remote,
    store: str,
    refs: Sequence[str],
    timeout: float,
    *,
    env: Mapping[str, str] | None = None,
) -> GitResult:
    args = ["ls-remote", "--quiet"]
    if remote.upload_pack:
        args.append(f"--upload-pack={remote.upload_pack}")
    args += ["--end-of-options", remote.url, *refs]
    result = _run_on_store(remote, store, args, timeout, env=env)
    if result.code or result.timed_out:
        plain = re.sub(r"(?m)^\d\d:\d\d:\d\d\.\d+ .*\n?", "", result.err)  # a trace has secrets
        raise _fetch_error(replace(result, err=plain), remote, store, timeout)
    return result


def _retry_hints(remote: Remote, store: str, printed: str) -> tuple[str, ...]:
    """The hint with the time after which a host that fails over HTTP wants to be tried again."""
    words = ["ls-remote", "--quiet", "--end-of-options", remote.url, "HEAD"]

    def look(env: Mapping[str, str]) -> GitResult:
        return _run_on_store(remote, store, words, SECONDS, env=env)

    return retry_hints(printed, remote.effective or remote.url, look)


def ask_about(remote: Remote, store: str, *, timeout: float) -> tuple[str, str]:
    """Have a remote answer: its time as HTTP tells it, else ``""``, and its object format.

    Raises Unavailable, Denied or Invalid.
    """
    traced = _listed(remote, store, ["HEAD"], timeout, env=_HEADERS).err
    date = re.search(r"(?im)<= recv header: date: (.{10,40}?)\r?$", traced)
    # An old git does not tell it.
    kind = re.search(r"< .*?\bobject-format=(sha256|sha1)\b", traced)
    return date[1] if date else "", kind[1] if kind else "sha1"


@contextlib.contextmanager
def held_up(push: Callable[[str], object], folder: str) -> Iterator[Any]:
    """Begin a push with the folder of a hook, which holds it up until the block ends."""
    from concurrent.futures import ThreadPoolExecutor

    os.mkdir(folder)
    hook = f"{folder}/pre-push"
    with open(os.open(hook, os.O_WRONLY | os.O_CREAT, 0o700), "w", encoding="utf-8") as file:
        file.write(_HOLD.replace("PARENT", str(os.getpid())))
    with ThreadPoolExecutor(1) as pool:
        pushed = pool.submit(push, folder)
        try:
            while not (pushed.done() or os.path.exists(f"{hook}.reached")):
                time.sleep(0.02)
            yield pushed
        finally:
            os.unlink(hook)


def push_refs(
    remote: Remote,
    store: str,
    moves: Sequence[tuple[str, str, str]],
    watched: Watched | None = None,
    *,
    timeout: float,
    hooks: str = "",
    on_start: Callable[[], object] = lambda: None,
) -> Swapped:
    """Move refs, each given as (ref, expected, new) with full commit ids, all or none.

    An expected of ``""`` means that the ref must not exist. The ref ``watched`` is learnt of in the
    same connection. ``hooks`` is a folder with a pre-push hook, if one is to run.
    """
    args = ["push", "--porcelain", "--no-follow-tags", "--no-signed", "--no-recurse-submodules"]
    args += [] if hooks else ["--no-verify"]
    if len(moves) > 1:
        args.append("--atomic")
    if remote.receive_pack:
        args.append(f"--receive-pack={remote.receive_pack}")
    args += leases_of(moves)
    # Ids, not names: what was decided, whatever the store's refs are by now.
    args += ["--", remote.url, *(f"{new}:{ref}" for ref, _, new in moves)]
    far, ours = is_far(remote.url), [ref for ref, _, _ in moves]
    if helper := helper_of(remote.effective or remote.url):
        # A dry run shows whether the helper heeds the expectation, before anything is sent.
        words = [args[0], "--dry-run", "--no-verify", *args[1:]]
        tried = _run_on_store(remote, store, words, timeout, env=_DEBUG)
        if not re.search(_COMPARES, tried.err):
            read = read_push(tried, ours, timeout, far=True)
            if read.cause is Cause.MOVED:
                return read
            raise Invalid(
                f"the transport {helper} does not compare and swap: of two claims both could win",
                hints=(
                    "reach the repository by ssh, https or a path: git config lease.remote URL",
                ),
            )
    with _listed_refs(watched) as listing:
        env = {**(_TRACE if far else {}), **listing}
        place = [("core.hooksPath", hooks)] if hooks else []
        result = _run_on_store(
            remote, store, args, timeout, env=env, settings=place, on_start=on_start
        )
    if result.code and not result.timed_out and nothing_came(result.out):
        if _is_of_other_format(result.err):
            raise _other_format(detail_of(result.err.splitlines(), result, timeout))
        if _blames_store(result, store):
            raise CopyLost("git cannot read it")
    pushed = read_push(result, ours, timeout, far=far)
    if pushed.cause is Cause.UNREACHABLE and not result.timed_out:
        pushed = replace(pushed, hints=_retry_hints(remote, store, result.err))
    # What a helper says of its own push is read back before it is believed.
    return replace(pushed, fate=Fate.UNDECIDED, sent=True) if helper else pushed


@contextlib.contextmanager
def _listed_refs(watched: Watched | None) -> Iterator[Mapping[str, str]]:
    """The environment in which a push notes what the remote lists; one ref is read from that."""
    # A remote lists all refs to whoever pushes, but git itself shows none of them.
    if watched is None or not watched.ref:
        yield {}
        return
    from tempfile import NamedTemporaryFile

    wanted = re.escape(os.fsencode(watched.ref))
    line = re.compile(rb"< ([0-9a-f]{40,64}) " + wanted + rb"(?:\\0.*)?\n")
    with NamedTemporaryFile("rb", prefix="gitlease-") as file:
        yield {"GIT_TRACE_PACKET": file.name}
        found = next(filter(None, map(line.search, file)), None)
        watched.tip = "" if found is None else found[1].decode()


def leases_of(moves: Sequence[tuple[str, str, str]], others: Iterable[str] = ()) -> list[str]:
    """The words that have a push replace exactly what is expected, by ids and nothing else."""
    for new in (*(new for _, _, new in moves), *others):
        if not is_id(new):
            # An empty source would delete the ref, and a server does not compare on delete.
            raise Invalid(f"refusing to push {new!r}: it is not an object id")
    return [f"--force-with-lease={ref}:{expected}" for ref, expected, _ in moves]


def helper_of(url: str) -> str:
    """The program by which git reaches a URL over a transport not its own; ``""`` if none."""
    # What git itself speaks is compared by the receiving git; a helper may leave that out.
    found = re.match(r"([A-Za-z0-9][A-Za-z0-9+.-]*)(::|://)", url)
    return "" if found is None or found[1].lower() in _OWN_TRANSPORTS else found[1]


def is_far(url: str) -> bool:
    """Return whether a URL leads over a network, where tracing a push costs little beside it."""
    # A rewrite (``insteadOf``) may make it otherwise; then a failure is an unknown outcome.
    return not url.startswith("file://") and (":" in url.split("/", 1)[0])


def _run_on_store(
    remote: Remote,
    store: str,
    args: Sequence[str],
    timeout: float,
    *,
    env: Mapping[str, str] | None = None,
    settings: Sequence[tuple[str, str]] = (),
    source: str | None = None,
    on_start: Callable[[], object] = lambda: None,
) -> GitResult:
    settings = [*remote.settings, *_SETTINGS.items(), *settings]
    words = [f"--git-dir={store}"]
    for key, value in settings:
        words += ["-c", f"{key}={value}"]
    # A work tree may be removed while a command runs in it; only a relative URL needs it.
    folder = remote.folder if os.path.isdir(remote.folder) else store
    with doing(f"waiting for the remote (git {args[0]})"):
        return run_git(
            [*words, *args],
            cwd=folder,
            timeout=timeout,
            env=env,
            memory=MEMORY,
            source=source,
            on_start=on_start,
        )


def read_push(
    result: GitResult, ours: Sequence[str], timeout: float, *, far: bool, work: Sequence[str] = ()
) -> Swapped:
    """Git's report of a push of our refs, and of those of the user's ``work`` beside them.

    Applied, without a cause against it: this very push updated our refs, and it is done. Else
    undecided.
    """
    trace = [line for line in result.err.splitlines() if line.startswith('{"event":')]
    said = [line for line in result.err.splitlines() if '{"event":' not in line]
    lines = result.out.decode("utf-8", "replace").splitlines()
    flags = _flags_of(lines)
    # `=` is no win: it means that the ref was there before, by somebody else's push.
    took = (
        result.code == 0
        and not result.timed_out
        and "Done" in lines
        and all(flags.get(ref, ("", ""))[0] in (" ", "+", "*") for ref in ours)
        # Work may also be deleted, or be there already; neither is a win of a ledger.
        and all(flags.get(ref, ("", ""))[0] in (" ", "+", "*", "-", "=") for ref in work)
    )
    of_server = (x.removeprefix("remote:").strip() for x in said if x.startswith("remote:"))
    printed = tuple(without_secrets(line) for line in of_server if line)
    if took:
        return Swapped(fate=Fate.APPLIED, said=printed)
    notes = " ".join(note for flag, note in flags.values() if flag in ("!", "="))
    detail = detail_of([*said, *([notes] if notes else [])], result, timeout)
    # A git whose trace does not show that it listed the remote's refs proves nothing.
    labels = '"label":"get_refs_list"', '"label":"push_refs"'
    listed, began = (any(label in line for line in trace) for label in labels)
    sent = began or not listed if far else _NO_REPOSITORY not in result.err or bool(flags)
    if flags and all(note == _STALE for _, note in flags.values()):
        sent = False  # git itself saw that the ref is not what was expected, before it sent
    if _NO_SERVER in result.err and not result.timed_out and not flags:
        sent, detail = False, "what answers at its URL is no git server that takes pushes"
    cause = _cause(result, notes, said)
    hints = dict.fromkeys(clean(x[1])[:300] for line in printed if (x := re.match(_HINT, line)))
    pushed = Swapped(
        fate=Fate.UNDECIDED,
        sent=sent,
        cause=cause,
        detail=detail,
        said=printed,
        hints=tuple(hints)[:HINTS],
        # A server that names no ref may mean a replica of its own, or the work.
        unnamed=not any(ref in text for ref in ours for text in (notes, *said)),
    )
    if not work:
        return pushed
    # Only a name that was pushed is repeated.
    locked = next((x[1] for line in printed if (x := re.search(_LOCKED, line))), "")
    pushed = replace(pushed, locked=locked if locked in work else "")
    refused = {ref: note for ref, (flag, note) in flags.items() if flag == "!"}
    own = {ref: x for ref, x in refused.items() if not x.startswith(_ALONG_WITH)}
    if own and all(note.startswith("[rejected]") for note in refused.values()):
        pushed = replace(pushed, sent=False)  # git itself saw it: refs that move together stay
    if noted := " ".join(own[ref] for ref in ours if ref in own):
        return replace(pushed, cause=_cause(result, noted, said))
    if not own or cause in (Cause.BUSY, Cause.TROUBLE):
        return pushed
    detail = "; ".join(f"{ref}: {without_secrets(note)}" for ref, note in sorted(own.items()))
    why = next((f" remote: {clean(x)[:300]}" for x in printed if not re.match(_HINT, x)), "")
    return replace(pushed, cause=Cause.WORK, detail=detail + why)


def _flags_of(lines: Sequence[str]) -> dict[str, tuple[str, str]]:
    """What git's report says of each ref that was pushed: a flag, and a note."""
    flags = {}
    for line in lines:
        flag, tab, rest = line.partition("\t")
        ref, _, note = rest.partition("\t")
        if tab and len(flag) == 1:
            flags[ref.rpartition(":")[2]] = (flag, note)
    return flags


def _cause(result: GitResult, notes: str, said: Sequence[str]) -> Cause:
    if notes.startswith("[up to date]"):
        return Cause.MOVED
    row = known_words("\n".join([notes, *said]))
    kind = None if row is None else row.kind
    if row is not None and kind is Rejection.RACE:
        return Cause.MOVED if row.by_client else Cause.BUSY
    # Only what the host says of our refs is an answer: a gateway's 503 may come after they moved.
    answered = "[remote rejected]" in notes or "[rejected]" in notes
    if answered:
        return Cause.TROUBLE if kind is Rejection.TROUBLE else Cause.REFUSED
    if kind is Rejection.REFUSAL and not result.timed_out:
        return Cause.REFUSED
    return Cause.UNREACHABLE


def _breaks_a_rule(pushed: Swapped, ref: str) -> bool:
    """Return whether a host that refused a push with work names a rule about this ref of ours."""
    told = re.compile(rf"\bGH013\b.*\s{re.escape(ref)}(?![\w/-])")
    return any(told.search(line) for line in (pushed.detail, *pushed.said))


def nothing_came(said: bytes) -> bool:
    """Return whether git ended before the remote had the objects, so that no ref can have moved."""
    lines = [line for line in said.splitlines() if b"\t" in line]
    return all(line.endswith(_NOT_UNPACKED) for line in lines)


def _is_of_other_format(said: str) -> bool:
    return re.search(_OTHER_FORMAT, said) is not None and _NO_REPOSITORY not in said


def _other_format(detail: str) -> OtherFormat:
    return OtherFormat(
        f"the remote has another object format: {detail}",
        hints=("set lease.remote to a separate repository for the ledger",),
    )


def _blames_store(result: GitResult, store: str) -> bool:
    """True if git complains of the store itself; traces, which name it too, are no complaint."""
    blamed = any(store in x for x in result.err.splitlines() if x.startswith(("fatal:", "error:")))
    return blamed or re.search(_STORE, result.err) is not None


def _fetch_error(
    result: GitResult, remote: Remote, store: str, timeout: float
) -> GitleaseError | CopyLost:
    said = result.err.splitlines()
    detail = detail_of(said, result, timeout)
    if not result.timed_out:
        if _is_of_other_format(result.err):
            return _other_format(detail)
        if _blames_store(result, store):
            return CopyLost(detail)
        if helper := re.search(_NOT_ALLOWED, result.err):
            every = ":".join((*ALLOWED_PROTOCOLS, helper[1]))
            return Invalid(
                f"gitlease uses the transport {helper[1]} only if it is allowed by name",
                hints=(f"export GIT_ALLOW_PROTOCOL={every}",) if helper[1] != "ext" else (),
            )
        if re.search(_NO_TRANSPORT, result.err):
            return Invalid(f"git cannot use this remote: {detail}")
        if denies(result.err):
            return Denied(f"the remote refused to be read: {detail}")
    hints = () if result.timed_out else _retry_hints(remote, store, result.err)
    return Unavailable(f"the remote cannot be reached: {detail}", hints=hints)


# --- a push of the user's work, with the refs of ledgers beside it ----------------------------
# It runs in the user's repository, which has the objects of the work; those of the ledgers are lent
# to it. What is pushed are ids, not names: what was judged, and nothing that came later.

# What git finds missing at the other end before it sends anything.
UNABLE = re.compile(r"(?m)^fatal: the receiving end (does not support [a-z' -]+)")
_SENT_BY_CONFIG = "push.pushOption in git config sends some: git -c push.pushOption= lease push"
_ALTERNATES = "GIT_ALTERNATE_OBJECT_DIRECTORIES"


def push_work(
    work: WorkPush, moves: Sequence[tuple[str, str, str]] = (), *, objects: str = ""
) -> Swapped:
    """Push work and ledgers together; ``moves`` has (ref, expected, new) of each ledger.

    ``objects`` is the folder with the objects of the ledgers.
    """
    moved = [one for one in work.refs if one.moves]
    words = ["push", "--porcelain", *(["--atomic"] if work.atomic else []), "--no-verify"]
    words += ["--no-follow-tags", "--no-recurse-submodules", *work.words]
    words += leases_of(moves, (x.new for x in moved if x.new))
    # What is forced replaces exactly what was looked at, whatever it was forced with.
    words += [f"--force-with-lease={x.ref}:{x.old}" for x in moved if x.became is Became.FORCED]
    words += ["--", work.remote]
    words += [f"{new}:{ref}" for ref, _, new in moves] + [f"{x.new}:{x.ref}" for x in moved]
    far = is_far(work.url)
    env = {**_TRACE} if far else {}
    if objects:
        others = os.environ.get(_ALTERNATES, "")
        env[_ALTERNATES] = os.pathsep.join(filter(None, (others, as_entry(objects))))
    # An earlier try may have brought the objects already.
    settings = [*work.settings, *([("push.negotiate", "true")] if work.again else [])]
    result = run_in(work, words, settings=settings, env=env, seconds=work.seconds)
    unable = UNABLE.search(result.err)
    if result.code and unable is not None:
        said = f"the remote {unable[1]}"
        if "push options" in said and not any(x.startswith("--push-option") for x in work.words):
            said += f", and {_SENT_BY_CONFIG}"
        return Swapped(fate=Fate.UNDECIDED, sent=False, cause=Cause.WORK, detail=said)
    if objects and result.code and not result.timed_out and nothing_came(result.out):
        blamed = [x for x in result.err.splitlines() if x.startswith(("fatal:", "error:"))]
        ours = (os.path.dirname(objects), *(new for _, _, new in moves))
        if any(name in line for line in blamed for name in ours):
            raise CopyLost("git cannot read it")
    names = [x.ref for x in moved]
    return read_push(result, [ref for ref, _, _ in moves], work.seconds, far=far, work=names)


def remote_refs(work: WorkPush, *, timeout: float) -> dict[str, str]:
    """The refs of some work on the remote now, ``""`` for those that are not there.

    Raises Unavailable and Denied.
    """
    names = [x.ref for x in work.refs if x.moves]
    there = refs_at(work, work.remote, *names, timeout=timeout)
    return {name: there.get(name, "") for name in names}


def refs_at(work: WorkPush, place: str, *patterns: str, timeout: float) -> dict[str, str]:
    """The refs of a repository, a remote or a URL, each with its id; only those of a pattern.

    Raises Unavailable and Denied.
    """
    words = ("ls-remote", "--quiet", "--", place, *patterns)
    return refs_in(run_in(work, words, seconds=timeout), timeout)


def run_in(
    work: WorkPush,
    words: Sequence[str],
    *,
    seconds: float,
    settings: Sequence[tuple[str, str]] = (),
    env: dict[str, str] | None = None,
    on_err: Callable[[bytes], None] | None = None,
) -> GitResult:
    """Run git in the user's repository, as the user would."""
    set_so = [word for key, value in settings for word in ("-c", f"{key}={value}")]
    return run_git(
        [*set_so, *words],
        cwd=work.folder,
        timeout=seconds,
        env={**dict(work.places), **(env or {})},
        repository=True,
        on_err=on_err,
    )


# --- the refs of one remote, with their objects in a private store -----------------------------

FIRST_STEPS = 3_000  # that a first contact brings: below 2 MB; what is older on demand
USUAL_PREFIX = "refs/gitlease"
CANDIDATES = 8  # refs of which it is found out whether they hold a ledger
_LEDGER_REFS = r"(?i)^refs/gitlease$|/[^/]*(?:gitlease|(?<![a-z])leases?(?![a-z]))[^/]*$"
STATES_KEPT = 3
PARSED_KEPT = 5_000  # records; of a larger ledger as many as it has
_OF_NAMES = r"(?i)(?!gitlease:).*(\bbranch|\btags?\b|refs/(?:heads|tags)/)"  # a server's hook says


class GitRefs:
    """The refs ``<prefix>/<layer>`` of one remote, and the private store with their objects.

    ``state`` gives the folder of a layer's state, and ``time_limit`` is that of each call of git.
    ``layers`` has those that are called otherwise on the remote.
    """

    def __init__(
        self,
        remote: Remote,
        store: PrivateStore,
        state: Callable[[str], str],
        prefix: str,
        *,
        time_limit: float,
        watched: Watched | None = None,
        has_format: bool = False,
        layers: Mapping[str, str] | None = None,
    ) -> None:
        self._remote, self._store, self._state_path = remote, store, state
        self._prefix, self._limit = prefix, time_limit
        self._markers: dict[str, str] = {}
        self._layers = layers or {}
        self.watched = watched or Watched()
        self._objects = StoreObjects(lambda: store.objects, store.lose)
        self._kept: dict[tuple[int, str, str], tuple[Header, GitRecords]] = {}
        self._parsed: Parsed = {}
        self._has_format = has_format
        self._keeping = threading.Lock()

    # --- the copy ---------------------------------------------------------------------------------

    @property
    def folder(self) -> str:
        """The repository with what was fetched: the clone's, or a temporary one of this process."""
        return self._store.path

    def read(self, layer: str, version: str) -> tuple[Header, GitRecords]:
        if (found := self._kept.get((self._store.losses, layer, version))) is None:
            found = read_state(self._objects, version, self._state_path(layer), self._parsed)
            self._remember(layer, version, found)
        return found

    def _remember(self, layer: str, version: str, state: tuple[Header, GitRecords]) -> None:
        with self._keeping:  # threads of a gateway share this
            while len(self._kept) >= STATES_KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[self._store.losses, layer, version] = state
            if len(self._parsed) > PARSED_KEPT:
                each = [y for _, x in self._kept.values() for y in [*x.folders.values()]]
                if len(self._parsed) > 2 * sum(map(len, each)):
                    for id in {*self._parsed} - {y.id for x in each for y in x.values()}:
                        self._parsed.pop(id, None)

    def history(self, version: str, *, whole: bool = False) -> Iterator[LedgerCommit]:
        before = version
        for commit in walk(self._store.objects, version, self._objects):
            yield commit
            before = commit.before
        if whole and before:
            if self._store.is_cut():  # it is used on where the rest cannot be had
                peek_refs(self._remote, self._store.path, ["HEAD"], timeout=self._limit)
            self._store.lose()
            raise CopyLost(f"the ledger's history cannot be read beyond {before}")

    def write(self, change: Change, *, replace_tip: bool) -> str:
        store, tip = self._store, change.base.version
        store.ready()
        try:
            with self._checked(), store.in_use(), store.objects.together() as objects:
                decided = change.decided
                version, state = write_step(objects, decided, tip, replace_tip=replace_tip)
        except FileNotFoundError:  # another process has made the store anew
            store.lose()
            raise CopyLost(COPY_LOST) from None
        except OSError as error:
            raise cannot_keep(store.path, error) from None
        if state is not None:  # it is not read back
            self._remember(change.base.layer, version, state)
        return version

    @contextlib.contextmanager
    def _checked(self) -> Iterator[None]:
        """Delete the copy where the block finds it damaged, or let go of what others deleted."""
        try:
            yield
        except OtherFormat as other:  # nothing was sent: it can be made anew in that format
            if self._has_format:
                raise
            self._has_format = True
            self._store.switch()
            raise CopyLost(other.message) from None
        except (CopyLost, Unreadable) as error:
            self._store.lose()
            raise CopyLost(f"{COPY_LOST} ({error})") from None

    def _keep(self, layer: str, version: str, *, came_as: str = "") -> None:
        """Have a ref keep a version; that of the fetch that brought it is deleted."""
        # In a store made anew since, a ref would vouch for objects that are not there.
        name = known_ref(self._state_path(layer))
        if not self._store.replaced():
            refs: dict[str, str | None] = {name: version}
            refs |= {came_as: None} if came_as else {}
            with contextlib.suppress(OSError):
                self._store.set_refs(refs)
                if self._store.replaced():  # in that very moment
                    self._store.set_refs({name: None})
        self._store.tidy()

    # --- refs -------------------------------------------------------------------------------------

    def fetch(self, layer: str, known: str = "", *, before_push: bool = False) -> str | None:
        """The commit id at the ref, with its objects fetched; None when there is no ref."""
        # A fetch shows no other ref, so a peek does, unless a push soon will.
        if known and self.watched.ref and not self.watched.tip and not before_push:
            is_same = self.peek([layer]).get(layer) == known
            if is_same and read_commit(self._store.objects, known) is not None:
                return known
        try:
            version = self._fetched(layer, first=not known)
        except CannotKeep:
            if not self._store.move_aside():
                raise
            version = self._fetched(layer, first=True)
        url = self._remote.effective or self._remote.url
        is_gone = version is None and known and re.match("(?i)https?://", url)
        # A portal's page may stand in the place of the server: it has no refs.
        if is_gone and not peek_refs(self._remote, self._store.path, (), timeout=self._limit):
            raise Unavailable(
                "the remote cannot be reached: what answers at its URL shows no refs at all"
            )
        return version

    def _fetched(self, layer: str, *, first: bool) -> str | None:
        # Each fetch has a ref of its own: two at once in one clone must not disturb each other.
        store, to = self._store, f"refs/fetched/{os.getpid()}-{os.urandom(6).hex()}"
        remote, ref, limit = self._remote, self._ref(layer), self._limit
        store.ready()
        with self._checked(), store.in_use(cutting=limit if first else 0):
            came = not first or store.ref(known_ref(self._state_path(layer)))  # by another
            # Without a depth once anything is here: it would cut what others have read.
            options, specs = [] if came else [f"--depth={FIRST_STEPS}"], [f"+{ref}:{to}"]
            result = fetch_into(remote, store.path, specs, *options, timeout=limit)
            if result.code and re.search(_ABSENT, result.err) and not result.timed_out:
                return None
            if result.code or result.timed_out:
                raise _fetch_error(result, remote, store.path, self._limit)
            if (version := store.ref(to)) is None:
                raise CopyLost("the fetched ledger cannot be read")
            self._keep(layer, version, came_as=to)
            if not came:
                store.filled()
            return version

    def _announce(self, layer: str) -> None:
        if (marker := self._marker(layer)) is not None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            with contextlib.suppress(OSError), open(os.open(marker, flags, 0o600), "wb") as opened:
                os.utime(opened.fileno())

    def watch(self, layer: str) -> str:
        with contextlib.suppress(OSError):  # nobody has announced anything yet
            if (marker := self._marker(layer)) is not None:
                return str(os.lstat(marker).st_mtime_ns)
        return ""

    def _marker(self, layer: str) -> str | None:
        # Who waits looks at it four times a second.
        shared = os.environ.get("XDG_RUNTIME_DIR", "")
        folder = os.path.join(shared, "gitlease")
        # In a folder of others a marker could be forged, or lead elsewhere.
        if not os.path.isabs(shared) or not is_private(shared):
            return None
        with contextlib.suppress(OSError):
            os.mkdir(folder, 0o700)
        if layer not in self._markers:
            from hashlib import sha256

            url = self._remote.url
            if not is_far(url):  # a path, however it is written
                path = os.path.join(self._remote.folder, url.removeprefix("file://"))
                url = os.path.realpath(path)
            self._markers[layer] = sha256(f"{url}\0{self._ref(layer)}".encode()).hexdigest()
        return os.path.join(folder, self._markers[layer]) if is_private(folder) else None

    def peek(self, layers: Sequence[str]) -> Mapping[str, str]:
        refs = {self._ref(layer): layer for layer in layers}
        names = [*refs, *filter(None, [self.watched.ref])]
        self._store.ready()
        with self._checked():
            found = peek_refs(self._remote, self._store.path, names, timeout=self._limit)
        self.watched.tip = found.pop(self.watched.ref, "")
        return {refs[ref]: version for ref, version in found.items()}

    def swap(
        self,
        moves: Sequence[Move],
        work: WorkPush | None = None,
        *,
        hooks: str = "",
        on_start: Callable[[], object] = lambda: None,
    ) -> Swapped:
        """``hooks`` is a folder with a pre-push hook, if one is to run."""
        named = [(self._ref(move.layer), move.expected, move.new) for move in moves]
        path, limit = self._store.path, self._limit
        with self._checked():
            if work is None:
                pushed = push_refs(
                    self._remote,
                    path,
                    named,
                    self.watched,
                    timeout=limit,
                    hooks=hooks,
                    on_start=on_start,
                )
                if pushed.cause is Cause.REFUSED:
                    pushed = replace(pushed, hints=pushed.hints or self._ref_hints(moves, pushed))
            else:
                pushed = push_work(work, named, objects=os.path.join(path, "objects"))
                if any(_breaks_a_rule(pushed, ref) for ref, _, _ in named):
                    pushed = replace(pushed, hints=(*pushed.hints, self._rule_hint()))
        for move in moves if pushed.fate is Fate.APPLIED else ():
            self._keep(move.layer, move.new)
            if move.ends:
                self._announce(move.layer)
        return pushed

    def _ref_hints(self, moves: Sequence[Move], pushed: Swapped) -> tuple[str, ...]:
        """The way out where a remote refuses to make a ref of this name."""
        if any("GH013" in line for line in (pushed.detail, *pushed.said)):
            # Rules are about branches and tags: as a branch the ledger would fall under more.
            return (self._rule_hint(),)
        if taken := re.search(r"'(refs/[^\s']+)' exists; cannot create", pushed.detail):
            return (
                f"{shown(taken[1])} on the remote leaves no room for {self._prefix}/…: rename it, "
                "or set another lease.ref_prefix in .gitlease.yaml, such as refs/heads/leases",
            )
        if "[remote rejected]" not in pushed.detail or self._prefix.startswith("refs/heads/"):
            return ()
        for_all = (
            "if this host accepts only branches and tags, set lease: {ref_prefix: "
            "refs/heads/gitlease} in .gitlease.yaml, for everyone",
        )
        if any(move.expected for move in moves):  # others use the ledger that is there
            says_so = not pushed.said or any(re.match(_OF_NAMES, line) for line in pushed.said)
            return for_all if says_so else ()
        in_this = hint(
            "in this clone alone: {}", "config", key="lease.ref_prefix", value="refs/heads/gitlease"
        )
        return (*for_all, in_this)

    def _rule_hint(self) -> str:
        return (
            f"a rule of the repository refuses {self._prefix}/*: exclude that from the rule, "
            "or let this account bypass it"
        )

    def work_refs(self, work: WorkPush) -> Mapping[str, str]:
        return remote_refs(work, timeout=self._limit)

    def at(self, remote: Remote) -> GitRefs:
        """The same refs of another remote, with their objects in the same store."""
        terms: dict[str, Any] = {"time_limit": self._limit, "has_format": True}
        return GitRefs(remote, self._store, self._state_path, self._prefix, **terms)

    def ledger_beside(self, layer: str, *, prefixes: bool, layers: bool) -> str:
        """The ref of another ledger on this remote, ``""`` if there is none.

        Looks under other ``prefixes``, or at other ``layers`` of this one. A ref that is called
        like a ledger's counts if it holds one.
        """
        self._store.ready()
        with self._checked():
            there = peek_refs(self._remote, self._store.path, (), timeout=self._limit)
        found = 0
        for ref in sorted(there):
            prefix, _, name = ref.rpartition("/")
            same = prefix == self._prefix
            if not (layers and name != layer if same else prefixes):
                continue
            if not same and not re.search(_LEDGER_REFS, prefix):
                continue
            if (found := found + 1) > CANDIDATES:
                break
            terms: dict[str, Any] = {"time_limit": self._limit, "has_format": self._has_format}
            other = GitRefs(self._remote, self._store, lambda x: f"aside/{x}", prefix, **terms)
            with contextlib.suppress(Invalid):
                if (version := other.fetch(name)) is not None:
                    other.read(name, version)
                    return ref
        return ""

    def _ref(self, layer: str) -> str:
        return f"{self._prefix}/{self._layers.get(layer, layer)}"

    def layers(self) -> list[str]:
        """The layers that have a ref on the remote."""
        self._store.ready()
        with self._checked():
            there = peek_refs(self._remote, self._store.path, (), timeout=self._limit)
        place = f"{self._prefix}/"
        names = [x.removeprefix(place) for x in there if x.startswith(place)]
        return sorted(x for x in names if "/" not in x)


def known_ref(state_path: str) -> str:
    """The private ref that keeps a known head's objects and tells a fetch what is there."""
    place, layer = os.path.split(state_path)
    return f"refs/known/{os.path.basename(place)}/{layer}"
