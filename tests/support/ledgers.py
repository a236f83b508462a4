"""Ledgers written by hand with git's plumbing, and doors of clones with short time limits."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

from gitlease.kernel.ledger.ledger_session import Terms
from gitlease.kernel.rules.lease import DEFAULT_POLICY, Lease, State
from gitlease.kernel.rules.ledger import Header
from gitlease.kernel.rules.resources import parse_resource
from gitlease.kernel.store import transport
from gitlease.kernel.store.records import (
    HEADER_FILE,
    lease_file,
    read_header,
    write_header,
    write_lease,
)
from gitlease.kernel.store.transport import GitRefs
from gitlease.library.leases import Leases
from gitlease.wiring import workspace as bootstrap
from gitlease.wiring.workspace import Workspace
from support.clock import ManualClock
from support.fences import clean_env
from support.repos import git, run_git

REF = "refs/gitlease/global"
AUTHOR = "author Eve <eve@example.com> 1700000000 +0000"
COMMITTER = "committer Eve <eve@example.com> 1700000000 +0000"
EPOCH_MS = 1_800_000_000_000  # where a ManualClock starts


@dataclass(frozen=True)
class Entry:
    """An entry of a tree as it is: a mode and the id of any object, there or not."""

    mode: str
    oid: str


Files = Mapping[str, bytes | Entry]


# --- objects ------------------------------------------------------------------------------------


def write_object(bare: Path, data: bytes, kind: str = "blob") -> str:
    """Write an object as it is, however malformed, and give its id."""
    words = ["git", "hash-object", "-w", "--literally", "-t", kind, "--stdin"]
    done = subprocess.run(
        words, cwd=bare, env=clean_env(), input=data, capture_output=True, check=True, timeout=60
    )
    return done.stdout.decode().strip()


def write_tree(bare: Path, files: Files) -> str:
    """A tree of these paths: contents, or entries as they are."""
    here: dict[str, bytes | Entry] = {}
    below: dict[str, dict[str, bytes | Entry]] = {}
    for path, value in files.items():
        top, slash, rest = path.partition("/")
        if slash:
            below.setdefault(top, {})[rest] = value
        else:
            here[top] = value
    for name, inside in below.items():
        here[name] = Entry("040000", write_tree(bare, inside))
    lines = []
    for name, value in here.items():
        entry = value if isinstance(value, Entry) else Entry("100644", write_object(bare, value))
        kind = {"040000": "tree", "160000": "commit"}.get(entry.mode, "blob")
        lines.append(f"{entry.mode} {kind} {entry.oid}\t{name}\0")
    return git(bare, "mktree", "-z", "--missing", input="".join(lines))


def raw_tree(bare: Path, entries: Sequence[tuple[str, bytes, str]]) -> str:
    """A tree object of exactly these (mode, name, id), in this order, however illegal."""
    body = b"".join(
        mode.encode() + b" " + name + b"\0" + bytes.fromhex(oid) for mode, name, oid in entries
    )
    return write_object(bare, body, "tree")


def write_commit(
    bare: Path,
    tree: str,
    *,
    parents: Sequence[str] = (),
    message: bytes = b"by hand\n",
    headers: Sequence[bytes] = (),
) -> str:
    """A commit with any message and any further headers."""
    lines = [f"tree {tree}", *(f"parent {p}" for p in parents), AUTHOR, COMMITTER]
    head = b"".join(line.encode() + b"\n" for line in lines)
    head += b"".join(line + b"\n" for line in headers)
    return write_object(bare, head + b"\n" + message, "commit")


def tip(bare: Path, ref: str = REF) -> str:
    """What a ref of the remote is now; empty when it does not exist."""
    return run_git(bare, "rev-parse", "--verify", "-q", ref).stdout.strip()


def set_tip(bare: Path, oid: str) -> None:
    """Move the ref behind everyone's back."""
    git(bare, "update-ref", REF, oid)


def place(
    bare: Path,
    files: Files,
    *,
    onto: bool = False,
    parents: Sequence[str] | None = None,
    message: bytes = b"by hand\n",
    headers: Sequence[bytes] = (),
) -> str:
    """Put a commit with these files at the ledger's ref and give its id.

    ``onto``: on top of the files that are there, as the next revision. Without a ``ledger.yaml``
    among them they get a sound one.
    """
    before = tip(bare)
    every: dict[str, bytes | Entry] = {}
    if onto:
        every |= read_files(bare)
        header = header_of(bare)
        every["ledger.yaml"] = write_header(replace(header, revision=header.revision + 1))
    elif "ledger.yaml" not in files:
        every["ledger.yaml"] = write_header(make_header())
    if parents is None:
        parents = [before] if before else []
    tree = write_tree(bare, every | dict(files))
    made = write_commit(bare, tree, parents=parents, message=message, headers=headers)
    set_tip(bare, made)
    return made


def read_files(bare: Path, version: str = REF) -> dict[str, Entry]:
    """Every file of a ledger, by path."""
    found = {}
    for line in git(bare, "ls-tree", "-r", "-z", version).split("\0"):
        if line:
            head, _, path = line.partition("\t")
            mode, _, oid = head.split(" ")
            found[path] = Entry(mode, oid)
    return found


def text_of(bare: Path, path: str) -> str:
    """The text of one file of the ledger."""
    return git(bare, "cat-file", "blob", f"{REF}:{path}")


def header_of(bare: Path) -> Header:
    """The header of the ledger on a remote."""
    return read_header(text_of(bare, "ledger.yaml").encode() + b"\n")


# --- sound records ------------------------------------------------------------------------------


def make_header(*, sequence: int = 1_000) -> Header:
    """A sound header."""
    return Header(ledger_id="c0ffee", revision=7, epoch=0, sequence=sequence, policy=DEFAULT_POLICY)


def make_lease(
    resource: str,
    *,
    holder: str = "eve@example.com",
    at: int = EPOCH_MS,
    ttl: int = 900,
    token: int = 1,
    paths: tuple[str, ...] = (),
) -> Lease:
    """A sound lease that was claimed at ``at``."""
    return Lease(
        resource=parse_resource(resource),
        scope="*",
        holder=holder,
        session=None,
        lease_id=f"{token:020x}",
        token=token,
        ttl=ttl,
        claimed_at=at,
        renewed_at=at,
        expires_at=at + ttl * 1_000,
        renewals=0,
        paths=paths,
        reason=None,
        host="evil",
        branch="main",
        state=State.ACTIVE,
        edge=False,
        operation=f"{token:020x}",
        margins=DEFAULT_POLICY.margins,
    )


file_of, record_of = lease_file, write_lease


# --- doors --------------------------------------------------------------------------------------


@contextlib.contextmanager
def limits(time_limit: float | None = None, patience: float | None = None) -> Iterator[None]:
    """Workspaces opened meanwhile give up a fetch or push after ``time_limit`` seconds, and a
    contended change after ``patience``."""
    with contextlib.ExitStack() as stack:
        if time_limit is not None:

            def refs(*args: Any, **options: Any) -> GitRefs:
                return GitRefs(*args, **{**options, "time_limit": time_limit})

            stack.enter_context(mock.patch.object(transport, "GitRefs", refs))
        if patience is not None:

            def terms(**options: Any) -> Terms:
                return Terms(**{**options, "patience": patience})

            stack.enter_context(mock.patch.object(bootstrap, "Terms", terms))
        yield


def workspace(
    clone: Path,
    *,
    clock: ManualClock | None = None,
    time_limit: float | None = None,
    patience: float | None = None,
    **how: Any,
) -> Workspace:
    """A clone's workspace on a clock of the test, as a new process of the clone would open it."""
    with limits(time_limit, patience):
        return bootstrap.open_workspace(
            str(clone), **{"environ": {}, **how}, clock=clock or ManualClock()
        )


def door(clone: Path, **how: Any) -> Leases:
    """The library door of a clone, on a clock of the test."""
    return Leases(workspace(clone, **how))


def write_ledger(bare: Path, leases: Sequence[Lease]) -> None:
    """A ledger of these leases alone, written to a remote at once, in one pack."""
    files = {lease_file(lease): write_lease(lease) for lease in leases}
    files[HEADER_FILE] = write_header(make_header(sequence=len(leases)))
    head = f"commit {REF}\ncommitter Eve <eve@example.com> 1700000000 +0000\ndata 6\ngrown\n\n"
    parts = [head.encode()]
    for path, data in files.items():
        parts.append(f"M 100644 inline {path}\ndata {len(data)}\n".encode() + data + b"\n")
    subprocess.run(
        ["git", "-c", "fastimport.unpackLimit=0", "fast-import", "--quiet"],
        cwd=bare,
        env=clean_env(),
        input=b"".join(parts),
        check=True,
        timeout=60,
    )
