"""The facts about claims that may be stale: records, edges, past task files, and commits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gitlease.core.edge import Task
from gitlease.core.expiry import Moment, Standing, standing
from gitlease.core.frozen import dataclass, field
from gitlease.core.instant import MS
from gitlease.core.lease import Lease, State
from gitlease.core.persons import Persons
from gitlease.core.policy import Policy
from gitlease.core.resources.pattern import fold


@dataclass(frozen=True, slots=True)
class Held:
    """A record of a ledger, its layer, and whether it lapsed or is of completed work (``done``)."""

    lease: Lease
    layer: str
    lapsed: bool = False
    done: bool = False

    @property
    def live(self) -> bool:
        return not self.lapsed and not self.done


def held(leases: Iterable[Lease], layer: str, policy: Policy, moment: Moment) -> list[Held]:
    """The records of a layer, without completed ones that are kept no longer."""
    found = []
    for lease in leases:
        if lease.state is State.COMPLETED:
            if moment.now.wall_ms < lease.renewed_at + policy.keep_completed * MS:
                found.append(Held(lease, layer, done=True))
        else:
            lapsed = standing(lease, policy, moment) is Standing.LAPSED
            found.append(Held(lease, layer, lapsed=lapsed))
    return found


@dataclass(frozen=True, slots=True)
class Edge:
    """A name in the task file of a task that is not done."""

    task: Task
    name: str


@dataclass(frozen=True, slots=True)
class Version:
    """A commit's change of a task file: who was assigned in it before and after.

    ``at`` is the later of the commit's two dates in wall-clock milliseconds, ``by`` its author.
    """

    commit: str
    at: int
    by: str
    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """The past of a task file, the newest version first.

    ``committed`` is who is assigned in the last commit of the current branch, None if that has no
    such file. ``former`` are other names that the file had. ``whole``: nothing is missing, as it
    may be in a shallow clone. ``horizon``: what was before that time was not read.
    """

    versions: tuple[Version, ...] = ()
    committed: tuple[str, ...] | None = None
    former: tuple[str, ...] = ()
    whole: bool = True
    horizon: int | None = None

    def written(self, name: str) -> Version | None:
        """The last commit that put a name into the file."""
        return next(
            (v for v in self.versions if is_among(v.after, name) and not is_among(v.before, name)),
            None,
        )

    def assigns_somewhere(self, persons: Persons, holder: str) -> bool:
        """Whether some branch assigns a holder, and none took that back."""
        for version in self.versions:
            before, after = (
                any(persons.stands_for(name, holder) for name in names)
                for names in (version.before, version.after)
            )
            if before != after:
                return after
        return False


def is_among(names: Iterable[str], name: str) -> bool:
    return any(fold(one) == fold(name) for one in names)


@dataclass(frozen=True, slots=True)
class BranchWork:
    """A commit: whose it is, each with their own date in ms, and the paths that it touches.

    Addresses are those of the mailmap.
    """

    commit: str
    by: tuple[tuple[str, int], ...]
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Works:
    """The commits that this clone has; those before ``horizon`` were not read."""

    commits: Sequence[BranchWork] = ()
    horizon: int | None = None


@dataclass(frozen=True, slots=True)
class Sign:
    """A sign of life of an assignee: when, what it was, and in which commit if in one."""

    at: int
    what: str
    commit: str | None = None


@dataclass(frozen=True, slots=True)
class Deleted:
    """The commit that deleted the file of a task: ``at`` in ms, ``by`` its author."""

    file: str
    commit: str
    at: int
    by: str


@dataclass(frozen=True, slots=True)
class FileQuery:
    """The file of a task whose past is asked for, by the names that are looked for in it."""

    task: Task
    names: frozenset[str] = field(default_factory=frozenset)


@dataclass(frozen=True, slots=True)
class Lack:
    """What a clone does not have, and how to get it, in words for people."""

    what: str
    way: str


def by_resource(records: Iterable[Held]) -> Mapping[str, list[Held]]:
    """Records by the key of their resource."""
    found: dict[str, list[Held]] = {}
    for record in records:
        found.setdefault(record.lease.resource.key, []).append(record)
    return found
