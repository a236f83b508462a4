"""Whether what is written is what everybody reads.

People reach one repository by different remotes and URLs, and each copy of it may have a ledger
of its own: whoever writes to one that others do not read would be the second holder of a lease
(invariants S2 and S3). So a grant is refused

1. where git pushes to several URLs, or to another host or path than others fetch from;
2. on any ledger but the one whose id the repository's settings record;
3. beside the ledger of another remote, unless the settings record or name one.

Leases that were granted before are renewed and released where others fetch from. In the end stands
what a storage's past tells of its decisions.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from shlex import quote
from typing import TYPE_CHECKING, Any

from gitlease.kernel.git.files import strings_in
from gitlease.kernel.ledger.ports import Snapshot
from gitlease.kernel.rules.errors import GitleaseError, Invalid, Unavailable, hint
from gitlease.kernel.rules.frozen import dataclass
from gitlease.kernel.rules.instant import Instant
from gitlease.kernel.rules.resources import GLOBAL_LAYER
from gitlease.kernel.store.state import Known
from gitlease.kernel.store.storage import Storage

if TYPE_CHECKING:
    from gitlease.kernel.store.git_ledger import RefLedgerStore


YOUNG = 5_000  # milliseconds for which the recorded id is not read anew
ALONE_FOR = 3_600_000  # after so many, other remotes are asked again if they have a ledger now
OWN, BESIDE, ALONE = "own-ledger", "beside", "alone"  # names of notes
LESS = "less"
ADD_REMOTE = "add the remote whose ledger everybody uses: git remote add origin URL"
NAME_REMOTE = "name the remote whose ledger everybody uses: git config lease.remote NAME-OR-URL"


@dataclass(frozen=True, kw_only=True)
class RemoteFacts:
    """The remote of a ledger, by the settings of a clone.

    ``problem`` is why nothing may be granted there, and ``way_out`` has the hints. ``writes_to`` is
    the effective URL for pushes, without secrets. ``recorded`` reads the id of the
    ledger in layer ``global`` from the repository's settings, and raises Invalid if what they
    record is unknown; ``learn`` fetches what it lacks for that. ``others`` gives further remotes
    that may have a ledger, by name; none where a flag names the remote, but in ``apart``.
    ``lacking``: this clone has no remote, although its ledger may be at one, and ``left`` is the
    URL of a ledger that it has used at one. ``undecided`` is why nobody can tell where the ledger
    is, and ``beside`` finds the ref of another ledger on the same remote, before a first one is
    made in a layer. ``named``: the settings file names the refs or the layer.
    """

    problem: str = ""
    way_out: tuple[str, ...] = (NAME_REMOTE,)
    writes_to: str = ""
    recorded: Callable[[], str | None] = lambda: None
    others: Callable[[], Sequence[tuple[str, Storage]]] = lambda: ()
    apart: Callable[[], Sequence[tuple[str, Storage]]] = lambda: ()
    learn: Callable[[], object] = lambda: None
    lacking: bool = False
    left: str = ""
    undecided: Callable[[], Invalid | None] = lambda: None
    beside: Callable[[str], str] = lambda layer: ""
    named: bool = False


class Admission:
    """Decides whether leases may be granted on the ledgers of one place."""

    def __init__(self, facts: RemoteFacts, ledgers: RefLedgerStore) -> None:
        self._facts, self._ledgers = facts, ledgers
        self.is_lacking = facts.lacking
        """Whether this clone has no remote, although its ledger may be at one."""
        self._recorded: tuple[Instant, str | None, Invalid | None] | None = None
        self._found_beside: dict[str, tuple[Instant, str]] = {}

    def doubt(self, head: Snapshot) -> Invalid | None:
        """Why this ledger is not to be relied on, as far as is known here."""
        if (refused := self._refused_by_urls()) is not None:
            return refused
        unknown = head.layer != GLOBAL_LAYER and self._ledgers.load(GLOBAL_LAYER) is None
        return None if unknown else self._recorded_elsewhere(head)

    def lost(self) -> Invalid | None:
        """Why the local ledger of a clone without a remote is not to be used, not even read.

        A ledger there never stands in the settings: what is recorded is that of a remote.
        """
        if not self._facts.lacking:
            return None
        if (recorded := self.recorded()) is not None:
            return Invalid(
                f".gitlease.yaml records the ledger {recorded}, and this clone has no remote: "
                "who holds what is unknown here",
                hints=(ADD_REMOTE,),
            )
        if self._facts.left:
            return Invalid(
                f"this clone has used the ledger at {self._facts.left}, and has no remote: "
                "who holds what is unknown here",
                hints=(ADD_REMOTE,),
            )
        return None

    def check_urls(self) -> None:
        """Raise Invalid if git pushes to another repository than others fetch from."""
        if (refused := self._refused_by_urls()) is not None:
            raise refused

    def _refused_by_urls(self) -> Invalid | None:
        facts = self._facts
        return Invalid(facts.problem, hints=facts.way_out) if facts.problem else None

    def check_recorded(self, head: Snapshot) -> None:
        """Raise Invalid if the settings record another ledger than that of the global layer."""
        if (error := self._recorded_elsewhere(head)) is not None:
            right, found = self._right(self.recorded() or ""), self._ids_elsewhere(head)
            there = [_USE.format(quote(x)) for x in found if found[x] in right]
            raise error.with_(hints=(*there, *error.hints))

    def check_chosen(self, head: Snapshot) -> None:
        """Raise Invalid if ``init`` would use another ledger than is recorded, or known to be used.

        A ledger at another remote counts as used where none is recorded.
        """
        if head.ledger is None:
            self._check_known()
        if self.recorded() is None:
            known = self._ledgers.load(GLOBAL_LAYER)
            if self._facts.lacking and known is not None and self._shown(head) != known.ledger_id:
                raise Invalid(
                    f"this clone knows the ledger {known.ledger_id} of a remote, and has no remote",
                    hints=(ADD_REMOTE,),
                )
            self._check_alone(head, chosen=True)
        elif head.layer == GLOBAL_LAYER:
            self.check_recorded(head)

    def check_new(self, head: Snapshot) -> None:
        """Raise Invalid if a ledger of one's own is no choice: it would be this clone's alone."""
        if self._facts.lacking:
            self.check_recorded(head)

    def may_be_lost(self, head: Snapshot) -> bool:
        """Whether the recorded ledger may have been in this place, and deleted.

        A fork looks alike, but where another remote shows that it is still there.
        """
        recorded = self.recorded()
        if recorded is None or head.layer != GLOBAL_LAYER:
            return False
        for _, storage in self._facts.apart():
            with contextlib.suppress(GitleaseError):
                version = storage.fetch(head.layer, "")
                there = storage.read(head.layer, version)[0] if version else None
                if there and there.ledger_id == recorded and there.moved_to is None:
                    return False
        return True

    def _check_known(self) -> None:
        """Raise Invalid if a ledger would be made although another one may be recorded."""
        self._facts.learn()
        self._recorded = None
        if self.recorded() is None and (unknown := self._unknown()) is not None:
            raise unknown.with_(
                message=f"no ledger is made on {self._ledgers.place}: {unknown.message}"
            )

    def _recorded_elsewhere(self, head: Snapshot) -> Invalid | None:
        if (lost := self.lost()) is not None:
            return lost
        recorded, shown = self.recorded(), self._shown(head)
        if recorded is None or shown in self._right(recorded):
            return None
        there = f"has ledger {shown}" if shown else "has none"
        prefix = hint("or name the refs where it lies: {}", "config", **_KEY, value="PREFIX")
        back = hint(
            "if it was deleted, an admin brings it back in a clone that has used it: {}",
            "init",
            restore=True,
        )
        return Invalid(
            f".gitlease.yaml records the ledger {recorded}, but {self._ledgers.place} {there}",
            hints=(
                NAME_REMOTE,
                *([] if shown else [prefix, back]),
                hint("a fork or a copy that wants a ledger of its own: `{}`", "init", **_OWN),
            ),
        )

    def accept_less(self, layer: str, elsewhere: Iterable[tuple[str, Known]]) -> None:
        """Let this clone use a ledger of which it has seen more at other places."""
        versions = [known.version for _, known in elsewhere]
        if versions:
            self._keep(layer, LESS, versions)

    def accepted_less(self, layer: str) -> frozenset[str]:
        """The versions at other places that need not be in this ledger."""
        return frozenset(strings_in(self._kept(layer, LESS)))

    def accept(self, head: Snapshot, *, another: bool) -> None:
        """Let this clone use a ledger beside those of other remotes.

        ``another``: also in the place of the recorded one.
        """
        recorded, shown = self.recorded(), self._shown(head)
        if another and recorded is not None and shown not in (None, recorded):
            self._keep(GLOBAL_LAYER, OWN, [recorded, shown])
        if head.ledger is not None:
            self._keep_alone(head, head.ledger.header.ledger_id)

    def check(self, head: Snapshot, fetch: Callable[[str], Snapshot], *, grants: bool) -> str:
        """Raise why nothing may be granted on a head; return what to tell of it, or ``""``."""
        # Renewals and releases go on anywhere: they give nobody anything.
        if not grants and head.ledger is not None:
            return ""
        self.check_urls()
        self.check_place(head)
        told = ""
        if head.ledger is None:
            self._check_known()
        if (recorded := self.recorded()) is None:
            told = self._check_alone(head)
        elif head.layer == GLOBAL_LAYER:
            self.check_recorded(head)
        else:
            self._check_beside(head, recorded, fetch)
        return told

    def check_place(self, head: Snapshot, *, another: bool = False) -> None:
        """Raise Invalid if nobody can tell where the ledger is, or others may use another one.

        ``another``: a ledger beside that of others is wanted.
        """
        if (undecided := self._facts.undecided()) is not None:
            raise undecided
        if not another:
            self.check_beside(head)

    def check_beside(self, head: Snapshot, *, reads: bool = False) -> None:
        """Raise Invalid where there is no ledger, but one that others may use beside it.

        A read is refused only if the team's settings name the place, because a ledger in another
        layer alone does not say that anything is held in this one.
        """
        if head.ledger is not None:
            return
        known = [self._ledgers.load(layer) for layer in (head.layer, GLOBAL_LAYER)]
        if any(known) or not (ref := self._beside(head.layer)):
            return
        prefix, _, layer = ref.rpartition("/")
        if self._facts.named or self.recorded() is not None:
            # The team is still there: to use either place by hand would part it.
            raise Invalid(
                f"the ledger of {self._ledgers.place} is still at {ref}, and .gitlease.yaml on the "
                f"default branch names another place for layer {head.layer}",
                hints=(
                    hint(
                        "let one of its admins, or anyone if it has none, move it in a clone that "
                        "has used it: {}",
                        "init",
                        move=True,
                    ),
                    "or name the present place again on the default branch",
                ),
            )
        if reads:
            return
        raise Invalid(
            f"{self._ledgers.place} has a ledger at {ref}, but none at the place that the settings "
            f"name for layer {head.layer}",
            hints=(
                f"to use it: git config lease.refPrefix {quote(prefix)}"
                if layer == head.layer
                else f"to use it: git config lease.layer {quote(layer)}",
                hint("for another one beside it: `{}`", "init", layer=head.layer)
                if layer != head.layer
                else "for another one beside it, set the prefix in git config as well",
            ),
        )

    def _beside(self, layer: str) -> str:
        """The ref of another ledger on this remote; it is not asked twice for one answer."""
        now, found = self._ledgers.clock.now(), self._found_beside.get(layer)
        if found is None or found[0].elapsed_at_most(now) > YOUNG:
            found = now, self._facts.beside(layer)
            self._found_beside[layer] = found
        return found[1]

    def _check_beside(
        self, head: Snapshot, recorded: str, fetch: Callable[[str], Snapshot]
    ) -> None:
        """Check another layer: the recorded ledger has to be at the same place. Asked once."""
        known = head.ledger.header.ledger_id if head.ledger else None
        here = [self._facts.writes_to, recorded, known]
        if known is not None and self._kept(head.layer, BESIDE) == here:
            return
        self.check_recorded(fetch(GLOBAL_LAYER))
        if known is not None:
            with contextlib.suppress(OSError):
                self._keep(head.layer, BESIDE, here)

    def recorded(self) -> str | None:
        """The id of the ledger that the repository's settings record; None if that is unknown."""
        return self._read_recorded()[0]

    def _unknown(self) -> Invalid | None:
        """Why it is unknown which ledger the settings record."""
        return self._read_recorded()[1]

    def _read_recorded(self) -> tuple[str | None, Invalid | None]:
        now = self._ledgers.clock.now()
        if self._recorded is None or self._recorded[0].elapsed_at_most(now) > YOUNG:
            try:
                self._recorded = now, self._facts.recorded(), None
            except Invalid as unknown:
                self._recorded = now, None, unknown
        return self._recorded[1:]

    def _shown(self, head: Snapshot) -> str | None:
        if head.layer == GLOBAL_LAYER:
            return head.ledger.header.ledger_id if head.ledger else None
        known = self._ledgers.load(GLOBAL_LAYER)
        return known.ledger_id if known else None

    def _right(self, recorded: str) -> list[str]:
        """The ids of the ledgers that may be used: the recorded one, and what replaces it here."""
        kept = self._kept(GLOBAL_LAYER, OWN)
        replaced = isinstance(kept, list) and len(kept) == 2 and kept[0] == recorded
        return [recorded, str(kept[1])] if replaced else [recorded]

    # --- a new ledger beside others ---------------------------------------------------------------

    def _check_alone(self, head: Snapshot, *, chosen: bool = False) -> str:
        """Refuse a ledger beside which another remote has one of its own; what to tell of it.

        Asked once an hour, and no more once ``init --new-ledger`` has chosen this one. A first one
        is made only where every other remote answers, or it was ``chosen``.
        """
        known = head.ledger.header.ledger_id if head.ledger else None
        others, before = self._facts.others(), self._ledgers.load(head.layer)
        first = known is None and not chosen
        if not others or (first and self._ledgers.load(GLOBAL_LAYER) is not None):
            return ""  # this place is in use
        now = self._ledgers.clock.now().wall_ms
        here = self._alone(known, others)
        match self._kept(head.layer, ALONE):
            case [place, None | int() as asked] if known is not None and place == here:
                # Not below 0: a clock that was set back must not put the next question off.
                if asked is None or 0 <= now - asked < ALONE_FOR:
                    return ""
        found = self._ids_elsewhere(head, all_answer=first)
        if theirs := [name for name in found if found[name] != known]:
            # Rather the one that this clone knew before.
            name = min(theirs, key=lambda x: before is None or found[x] != before.ledger_id)
            what = "a ledger of this repository, and {} has none"
            what = "another ledger of this repository than {}" if known is not None else what
            raise Invalid(
                f"{name} has {what.format(self._ledgers.place)}",
                hints=(_USE.format(quote(name)), *_CHOOSE),
            )
        if known is not None:
            self._keep_alone(head, known, now)
            return ""
        made = f"made the first ledger of layer {head.layer} on {self._ledgers.place}"
        return f"{made}; there is none on {', '.join(name for name, _ in others)}"

    def _keep_alone(self, head: Snapshot, known: str, asked: int | None = None) -> None:
        if others := self._facts.others():
            with contextlib.suppress(OSError):
                self._keep(head.layer, ALONE, [self._alone(known, others), asked])

    def _alone(self, known: str | None, others: Sequence[tuple[str, Storage]]) -> list[str | None]:
        return [self._facts.writes_to, known, *sorted(name for name, _ in others)]

    def _ids_elsewhere(self, head: Snapshot, *, all_answer: bool = False) -> dict[str, str]:
        """The ids of the ledgers at other remotes, by their names."""
        found = {}
        for name, storage in self._facts.others():
            try:
                version = storage.peek([head.layer]).get(head.layer)
                if version and version != head.version:
                    read = storage.fetch(head.layer, head.version) or version
                    found[name] = storage.read(head.layer, read)[0].ledger_id
            except GitleaseError as error:
                if all_answer:
                    raise Unavailable(
                        f"no ledger is made on {self._ledgers.place} before it is known whether "
                        f"{name} has one: {error.message}",
                        hints=_CHOOSE,
                    ) from None
        return found

    def _kept(self, layer: str, name: str) -> Any:
        return self._ledgers.state(layer).notes.get("facts", name)

    def _keep(self, layer: str, name: str, value: object) -> None:
        self._ledgers.state(layer).notes.put("facts", name, value, at=0)


_USE = "use the ledger of {0}: git config lease.remote {0}"
_KEY, _OWN = {"key": "lease.ref_prefix"}, {"new_ledger": True}
_CHOOSE = (hint("to use one of its own here all the same: `{}`", "init", **_OWN),)


# --- what the past tells ------------------------------------------------------------------------


def decision(storage: Storage, version: str) -> str:
    """The version that none may replace: this one, or the one before a renewal; ``""`` for none."""
    step = next(storage.history(version), None)
    return "" if step is None else step.before if step.is_renewal else version


def first_after(storage: Storage, earlier: str, version: str) -> str | None:
    """The first version after an earlier one on the way to another; None if it is not on it."""
    after = version
    for step in storage.history(version, whole=True):
        if step.id == earlier:
            return after
        after = step.id
    return None


def operations_since(storage: Storage, earlier: str, version: str) -> frozenset[str] | None:
    """The ids of the operations after an earlier version (``""``: of all), up to another.

    A renewal that was replaced since counts from the decision before it. None where the way from
    one to the other cannot be found, or a step does not tell its operations.
    """
    ends, found = {earlier, decision(storage, earlier) or earlier} if earlier else {""}, set[str]()
    for step in storage.history(version):
        if step.id in ends:
            return frozenset(found)
        if (ids := step.operations) is None:
            return None
        found |= ids
        if step.before in ends:
            return frozenset(found)
    return None
