"""Judges the work of a push: whether its commits touch what others hold, by the ledgers as they
will be once the push is accepted.

Only leases that cover paths are gone through; one of a task is looked up when its file is touched.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from gitlease.adapters.asking import ask
from gitlease.adapters.changes import committed
from gitlease.adapters.changes_tasks import task_status_changes, touched
from gitlease.adapters.reached import PEOPLE, lines_of, with_people
from gitlease.adapters.receive_lines import RefMove
from gitlease.adapters.receive_lost import lost, namespace
from gitlease.adapters.receive_objects import Commit, PushedObjects
from gitlease.adapters.receive_records import path_records
from gitlease.adapters.repository import Repository
from gitlease.adapters.settings import Settings
from gitlease.adapters.tree import read_ledger
from gitlease.domain.audit import Illegal
from gitlease.domain.audit_values import Pusher
from gitlease.domain.errors import CacheDamaged, GitleaseError, Invalid
from gitlease.domain.frozen import dataclass
from gitlease.domain.guard import Finding, Touched, judge
from gitlease.domain.instant import Instant
from gitlease.domain.lapse import Moment, Sighting
from gitlease.domain.lease import Actor, Lease, State, same_person
from gitlease.domain.ledger import Ledger
from gitlease.domain.policy import Policy
from gitlease.domain.resource import parse_resource

MAX_COMMITS = 10_000
MOVES_JUDGED = 500  # refs that were there before, of one push
REFS_AT_ONCE = 2_000
COMMITS_AT_ONCE = 200
LEASES_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class Guarded:
    """What a push touches that others hold, and which records could not be judged."""

    findings: tuple[Finding, ...] = ()
    warnings: tuple[str, ...] = ()


class WorkGuard:
    """Judges commits against the ledgers at ``heads`` (a commit each), for one pusher."""

    def __init__(
        self,
        repository: Repository,
        settings: Settings,
        objects: PushedObjects,
        heads: Sequence[str],
        *,
        pusher: Pusher,
        now_ms: int,
    ) -> None:
        self._repository, self._settings, self._objects = repository, settings, objects
        self._heads = [_Head(objects, objects.commit(oid)) for oid in heads]
        self._holders = pusher.holders or ()
        self._now = now_ms
        self._damaged: dict[str, None] = {}

    def check(self, moves: Sequence[RefMove]) -> Guarded:
        """What the work of these moves touches. Illegal for more than can be looked at."""
        if not any(head.holds_anything(self._theirs) for head in self._heads):
            return Guarded()
        tips = list(dict.fromkeys(move.new for move in moves if move.new))
        again = [move for move in moves if move.old]
        if len(again) > MOVES_JUDGED:
            raise Illegal(
                "too-large",
                f"more than {MOVES_JUDGED} refs cannot be judged while others hold leases",
                hints=("push them in parts",),
            )
        found_in = [*self._commits(tips), *(x for move in again for x in self._landing(move))]
        found_in += lost(
            self._repository,
            self._objects,
            moves,
            pusher=self._holders,
            most=MAX_COMMITS + 1,
            asked=self._asked,
        )
        commits = list(dict.fromkeys(found_in))
        if len(commits) > MAX_COMMITS:
            raise Illegal(
                "too-large",
                f"more than {MAX_COMMITS} new commits cannot be judged while others hold leases",
                hints=("push them in parts",),
            )
        found: dict[tuple[str, str], Finding] = {}
        rest = iter(commits)
        while chunk := list(islice(rest, COMMITS_AT_ONCE)):
            for finding in self._judged(self._touched(chunk)):
                found.setdefault((finding.path, finding.lease.lease_id), finding)
        return Guarded(tuple(found.values()), tuple(self._damaged))

    def _commits(self, tips: Sequence[str]) -> list[str]:
        """The commits that no ref of this repository has yet."""
        found: dict[str, None] = {}
        for start in range(0, len(tips), REFS_AT_ONCE):
            some = tips[start : start + REFS_AT_ONCE]
            most = f"--max-count={MAX_COMMITS + 1}"
            found |= dict.fromkeys(self._asked("rev-list", most, *some, "--not", "--all", "--"))
        return list(found)

    def _landing(self, move: RefMove) -> Iterator[str]:
        """What a ref gains of the pusher's own, though other refs had it before.

        Work that came to one branch lands on another only now. What others made is theirs to land.
        """
        if not move.new:
            return
        most = f"--max-count={MAX_COMMITS + 1}"
        usual = ask(self._repository, "rev-parse", "-q", "--verify", "HEAD^{commit}")
        landed = os.fsdecode(usual.out).split() if usual.code == 0 else []
        words = ("log", most, PEOPLE, move.new, "--not", move.old, *landed, "--")
        for line in self._asked(*words, by_line=True):
            commit, people = with_people(line)
            if any(same_person(x, y) for x in people for y in self._holders):
                yield commit

    def _asked(self, *words: str, by_line: bool = False) -> list[str]:
        """Git's answer; Illegal where there is none: how long it takes, and for how many names it
        is asked, is the pusher's doing.
        """
        try:
            said = ask(self._repository, *words)
        except Invalid as error:
            raise _unjudged(error.message) from None
        if said.code != 0:
            raise _unjudged("what is pushed cannot be listed")
        text = os.fsdecode(said.out)
        return lines_of(text) if by_line else text.split()

    def _touched(self, commits: Sequence[str]) -> list[Touched]:
        try:
            changes = committed(self._repository, commits, renames=False)
        except Invalid as error:
            raise _unjudged(error.message) from None
        changed = [one for several in changes.values() for one in several]
        tasks = self._settings.tasks
        return touched(changed, task_status_changes(self._repository, tasks, changed))

    def _judged(self, some: Sequence[Touched]) -> Iterator[Finding]:
        for head in self._heads:
            leases = self._leases(head, some)
            while chunk := list(islice(leases, LEASES_AT_ONCE)):
                yield from judge(
                    some,
                    chunk,
                    actor=self._actor(chunk),
                    policy=head.policy,
                    moment=Moment(now=_instant(self._now), seen=_written),
                )

    def _leases(self, head: _Head, some: Sequence[Touched]) -> Iterator[Lease]:
        """Live leases of others that may cover something that is touched."""
        for file, lease in path_records(self._objects, head.commit.tree):
            if isinstance(lease, str):
                self._damaged[f"{file} cannot be read: what it covers is not guarded"] = None
            elif self._theirs(lease):
                yield lease
        for name in dict.fromkeys(name for one in some for name in one.tasks):
            try:
                resource = parse_resource(name)
                leases = [] if resource.is_path else head.ledger.leases_of(resource)
            except CacheDamaged:
                raise
            except GitleaseError as damage:
                self._damaged[damage.message] = None
                continue
            yield from (x for x in leases if not x.patterns and self._theirs(x))

    def _theirs(self, lease: Lease) -> bool:
        mine = any(lease.same_holder(Actor(holder)) for holder in self._holders)
        return lease.state is State.ACTIVE and not mine

    def _actor(self, leases: Sequence[Lease]) -> Actor:
        """Somebody who holds none of them."""
        return Actor(holder=self._holders[0] if self._holders else "")


def _unjudged(what: str) -> Illegal:
    return Illegal(
        "too-large", f"{what}, while others hold leases", hints=("push it in smaller parts",)
    )


class _Head:
    """One ledger as it will be."""

    def __init__(self, objects: PushedObjects, commit: Commit) -> None:
        import pygit2

        self._objects, self.commit = objects, commit
        self.ledger: Ledger = read_ledger(objects.repo, pygit2.Oid(hex=commit.oid))

    @property
    def policy(self) -> Policy:
        return self.ledger.header.policy

    def holds_anything(self, theirs: object) -> bool:
        """Whether there is any record at all that may be in somebody's way."""
        tops = dict(self._objects.entries(self.commit.tree, "/"))
        return "paths" in tops or "leases" in tops


def _instant(wall_ms: int) -> Instant:
    return Instant(wall_ms=wall_ms, boot_ms=wall_ms, boot_id="server")


def _written(lease: Lease) -> Sighting:
    """The server saw a record when it was written, which it was judged to be then."""
    return Sighting(at=_instant(lease.renewed_at), changed=False)


def heads_after(
    repository: Repository, layers: Sequence[str], prefix: str, moves: Mapping[str, str]
) -> list[str]:
    """The commits of some layers' ledgers once the push is accepted; ``moves`` are its ledgers."""
    heads = []
    space = namespace()
    for layer in dict.fromkeys(layers):
        ref = f"{prefix}/{layer}"
        if ref in moves:
            heads += [moves[ref]] if moves[ref] else []
            continue
        said = ask(repository, "rev-parse", "-q", "--verify", f"{space}{ref}^{{commit}}")
        if said.code == 0:
            heads.append(os.fsdecode(said.out).strip())
    return heads
