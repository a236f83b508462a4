"""A forge of ledger commits: honest ones, as clients write them, and any that are made of those."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pygit2

from gitlease.kernel.git.run import SystemClock
from gitlease.kernel.rules.instant import Instant
from gitlease.kernel.rules.lease import DEFAULT_POLICY, Actor, Lease, Moment
from gitlease.kernel.rules.ledger import Changes, Header, Ledger, Note, Notice, Records, Ticket
from gitlease.kernel.rules.moves.operations import Create, Event, Operation
from gitlease.kernel.rules.moves.transitions import StepRecord, create, decide
from gitlease.kernel.rules.resources import Resource, parse_resource
from gitlease.kernel.store.libgit import LibgitObjects
from gitlease.kernel.store.records import lease_file, write_message
from gitlease.kernel.store.tree import changed_files, read_ledger, write_tree
from support.ledgers import Entry, raw_tree, read_files, write_object
from support.ledgers import write_tree as write_files
from support.repos import git, run_git

REF = "refs/gitlease/global"
JO, KIM = Actor("jo@example.com", host="laptop"), Actor("kim@example.com", host="desk")
MINUTE = 60


def objects_in(repo: pygit2.Repository) -> LibgitObjects:
    """The objects of a repository of tests, as gitlease reads and writes them."""
    return LibgitObjects(repo.path)


@dataclass(frozen=True)
class Draft:
    """One step that is to become a commit. ``files`` are put into its tree as they are."""

    base: str
    ledger: Ledger
    events: tuple[Event, ...]
    renewal: bool
    actor: Actor
    at: Instant
    parents: tuple[str, ...]
    record: StepRecord
    files: Mapping[str, bytes | Entry | None] = field(default_factory=dict)
    author: str | None = None

    def header(self, **changes: Any) -> Draft:
        """With other fields of the header."""
        header: Header = replace(self.ledger.header, **changes)
        return replace(self, ledger=self.ledger.with_header(header))

    def lease(self, name: str, **changes: Any) -> Draft:
        """With other fields of the record that the step writes of a resource."""
        resource = parse_resource(name)
        kept = dict(self.ledger.changes.leases)
        for key, (old, new) in kept.items():
            if new is not None and new.resource == resource:
                kept[key] = (old, replace(new, **changes))
        return self.changes(leases=kept)

    def changes(self, **changes: Any) -> Draft:
        more: Changes = replace(self.ledger.changes, **changes)
        return replace(self, ledger=replace(self.ledger, changes=more))

    def put(self, lease: Lease) -> Draft:
        return replace(self, ledger=self.ledger.put(lease))

    def remove(self, lease: Lease) -> Draft:
        return replace(self, ledger=self.ledger.remove(lease))

    def of(self, actor: Actor) -> Draft:
        """With operations that say that somebody else asked for them."""
        operations = tuple(replace(op, actor=actor) for op in self.record.operations)
        return self.naming(*operations)

    def naming(self, *operations: Operation) -> Draft:
        """With other operations than those that made it."""
        return replace(self, record=replace(self.record, operations=operations))

    def told(self, **changes: Any) -> Draft:
        """With other fields in every line of its message."""
        return replace(self, events=tuple(event._replace(**changes) for event in self.events))

    def file(self, name: str) -> str:
        """Where the record of a resource lies that the step writes."""
        resource = parse_resource(name)
        news = (new for _, new in self.ledger.changes.leases.values())
        return next(lease_file(x) for x in news if x is not None and x.resource == resource)


class Forge:
    """A bare repository of somebody who pushes to a server, and the server's ledger there."""

    def __init__(self, path: Path, server: Path, *, actor: Actor = KIM) -> None:
        self.path, self.server, self.actor = path, server, actor
        if not path.exists():
            git(path.parent, "init", "-q", "--bare", str(path))
            (path / "objects" / "info" / "alternates").write_text(f"{server}/objects\n")
        self.repo = pygit2.Repository(str(path))

    @property
    def now(self) -> Instant:
        return SystemClock().now()

    def later(self, seconds: float) -> Instant:
        now = self.now
        move = round(seconds * 1_000)
        return replace(now, wall_ms=now.wall_ms + move, boot_ms=now.boot_ms + move)

    def tip(self, ref: str = REF) -> str:
        return run_git(self.server, "rev-parse", "-q", "--verify", ref).stdout.strip()

    def ledger(self, version: str | None = None) -> Ledger:
        """The ledger at a commit; that of the server where none is named."""
        return read_ledger(objects_in(self.repo), version or self.tip())

    def lease(self, name: str) -> Lease:
        """The record that the server has of a resource."""
        return self.ledger().leases_of(parse_resource(name))[0]

    def parents(self, version: str) -> tuple[str, ...]:
        found = cast(pygit2.Commit, self.repo[version])
        return tuple(str(x) for x in found.parent_ids)

    def honest(
        self,
        *operations: Operation,
        base: str | None = None,
        at: Instant | None = None,
        unseen: Iterable[str] = (),
        replaces: bool = False,
        actor: Actor | None = None,
        instead: Sequence[Lease] = (),
        together: bool = True,
    ) -> Draft:
        """What a client would write, if it did not see the records ``unseen`` of the ledger.

        It takes the records ``instead`` for those that are there of their resources.
        """
        version = self.tip() if base is None else base
        ledger = self.ledger(version)
        hidden = {parse_resource(x).key for x in unseen}
        blind = Ledger(ledger.header, _Blind(ledger, hidden, instead))
        at = at or self.now
        decided = decide(blind, operations, Moment(now=at), together=together)
        applied = decided.applied
        return Draft(
            base=version,
            ledger=applied.ledger,
            record=decided.record,
            events=applied.events,
            renewal=applied.only_renews,
            actor=actor or self.actor,
            at=at,
            parents=self.parents(version) if replaces else (version,),
        )

    def first(self, *operations: Operation) -> Draft:
        """The first step of a new ledger."""
        made = create(
            Create(id="create", actor=self.actor, ledger_id="feedc0de", policy=DEFAULT_POLICY)
        )
        at = self.now
        decided = decide(made, operations, Moment(now=at))
        applied, record = decided.applied, decided.record
        renewal = applied.only_renews
        return Draft("", applied.ledger, applied.events, renewal, self.actor, at, (), record)

    def write(self, draft: Draft) -> str:
        """The commit of a draft; its id."""
        base = cast(pygit2.Commit, self.repo[draft.base]) if draft.base else None
        below = None if base is None else str(base.tree_id)
        tree = write_tree(objects_in(self.repo), below, changed_files(draft.ledger), {})
        if draft.files:
            tree = self._with_files(tree, draft.files)
        holder = draft.author or draft.actor.holder
        who = pygit2.Signature(holder.split("@")[0], holder, draft.at.wall_ms // 1_000, 0, "utf-8")
        message = write_message(draft.events, draft.record, renewal=draft.renewal)
        return str(self.repo.create_commit(None, who, who, message, tree, [*draft.parents]))

    def _with_files(self, tree: str, files: Mapping[str, bytes | Entry | None]) -> str:
        every: dict[str, bytes | Entry] = dict(read_files(self.path, tree))
        for path, value in files.items():
            if value is None:
                every.pop(path, None)
            else:
                every[path] = value
        return write_files(self.path, every)

    def by_hand(self, draft: Draft, tree: str) -> str:
        """The commit of a draft with any tree in its place."""
        made = self.repo[self.write(draft)]
        raw = made.read_raw().split(b"\n", 1)[1]
        return write_object(self.path, b"tree " + tree.encode() + b"\n" + raw, "commit")

    def root_of(self, draft: Draft) -> list[tuple[str, bytes, str]]:
        """The entries of a draft's tree, as they stand there."""
        found = []
        for line in git(self.path, "ls-tree", "-z", self.write(draft)).split("\0"):
            if line:
                head, _, name = line.partition("\t")
                mode, _, oid = head.split(" ")
                found.append((mode.lstrip("0"), name.encode(), oid))
        return found

    def raw(self, entries: Sequence[tuple[str, bytes, str]]) -> str:
        return raw_tree(self.path, entries)

    def environ(self, **more: str) -> dict[str, str]:
        """What git gives a hook of the server when this forge's objects are in quarantine."""
        return {
            "GIT_OBJECT_DIRECTORY": str(self.path / "objects"),
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(self.server / "objects"),
            **more,
        }

    def push(
        self, url: str, new: str, ref: str = REF, *, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Push whatever it is, past every check of a client's."""
        return run_git(self.path, "push", "--porcelain", url, f"+{new}:{ref}", env=env)


def objects_of(server: Path) -> list[str]:
    """Every file among the objects of a repository, however it came there."""
    return sorted(
        os.path.relpath(os.path.join(folder, name), server)
        for folder, _, names in os.walk(server / "objects")
        for name in names
    )


class _Blind:
    """Records as somebody sees them who does not see some, and takes others for what is there."""

    def __init__(self, ledger: Ledger, unseen: set[str], instead: Sequence[Lease]) -> None:
        self._inner: Records = ledger.records
        self._unseen, self._instead = unseen, instead

    def of(self, resource: Resource) -> list[Lease]:
        if own := [x for x in self._instead if x.resource == resource]:
            return own
        return [x for x in self._inner.of(resource) if x.resource.key not in self._unseen]

    def with_paths(self) -> list[Lease]:
        return [x for x in self._inner.with_paths() if x.resource.key not in self._unseen]

    def every(self) -> Iterator[Any]:
        return iter(self._inner.every())

    def notes(self, resource: Resource) -> tuple[Note, ...]:
        return self._inner.notes(resource)

    def notices(self, holder: str) -> tuple[Notice, ...]:
        return self._inner.notices(holder)

    def tickets(self, resource: Resource) -> tuple[Ticket, ...]:
        return self._inner.tickets(resource)

    def every_ticket(self) -> list[Ticket]:
        return list(self._inner.every_ticket())
