"""The chain of a ledger's history, and whether what clients were told agrees with it.

Nothing here knows the product's rules: histories are judged by `checker`, which shares none.

- ``read_history(git_dir, ref, tips)`` gives what it says; ``verified`` has the rules it breaks.
- ``load_calls(file)`` gives what clients logged.
- ``check_answers(history, calls)`` holds the one against the other; a list of contradictions.

A ledger is one object with a total order, its history. So it is linearizable when every answer is
in that order, nothing else is, and no call stands before one that had ended when it began.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pygit2

from ledger_checker.checker import Verified, verify
from ledger_checker.form import LeaseRecord, fold, person, resource_key
from ledger_checker.state import JudgedStep

OPEN = ("unknown_outcome",)  # of these, and of calls that were killed, either may be true
GRANTED = ("claimed", "taken_over")
RAN = ("ended", "lost", "failed")  # a command under leases
ENDED = {"released", "completed", "revoked", "parked", "run_out"}
# What may take a lease, and what may end one: of whom nothing was heard it may have done it.
TAKES = {"claim", "take", "lock", "next", "start", "set", "run", "dispatch", "work", "hold"}
ENDS = {"release", "done", "finish", "set", "run", "dispatch", "work", "park", "session", "revoke"}


@dataclass(frozen=True)
class LoggedCall:
    """One call of a client: times by one clock for all, in any unit. Reads asked the remote.

    ``answer`` is its JSON document, None where it was killed or said nothing. ``resources`` are
    those that it named; none: it chose itself, or meant all.
    """

    client: str
    holder: str
    verb: str
    start: float
    end: float
    answer: Mapping[str, Any] | None
    resources: tuple[str, ...] = ()
    session: str | None = None

    @property
    def code(self) -> str | None:
        """The code of its error; None where it succeeded, or said nothing."""
        error = (self.answer or {}).get("error")
        return None if error is None else str(error["code"])

    @property
    def is_open(self) -> bool:
        """Whether it may have taken effect or not."""
        return self.answer is None or self.code in OPEN

    @property
    def status(self) -> str | None:
        return None if self.answer is None else self.answer.get("status")

    @property
    def leases(self) -> list[Mapping[str, Any]]:
        """The leases that it was told it has, or had."""
        return list((self.answer or {}).get("leases") or ())

    def names(self, resource: str) -> bool:
        """Whether it may be about a resource."""
        if not self.resources:
            return True
        words = (spelt for word in self.resources for spelt in (word, word.rstrip("/")))
        return resource_key(resource) in map(resource_key, words)


@dataclass(frozen=True)
class Contradiction:
    """Something that clients were told and the history does not say, or the other way round."""

    rule: str
    client: str
    message: str


@dataclass
class Version:
    """A record while it stood: from one position of the history up to that which has it not."""

    record: LeaseRecord
    since: int
    until: int | None = None


@dataclass
class History:
    """What a ledger's history says. Positions count its commits, the oldest is 0."""

    verified: Verified | None = None
    commits: list[str] = field(default_factory=list)
    grants: dict[str, LeaseRecord] = field(default_factory=dict)  # by nonce, as first written
    granted_at: dict[str, int] = field(default_factory=dict)
    ended_at: dict[str, tuple[int, str]] = field(default_factory=dict)  # with who ended it
    versions: dict[str, list[Version]] = field(default_factory=lambda: defaultdict(list))
    hidden: int = 0

    def add(self, step: JudgedStep) -> None:
        at = len(self.commits)
        self.commits.append(step.id)
        self.hidden += step.hidden
        for old, new in step.changed.values():
            if old is not None:
                self.versions[old.lease_id][-1].until = at
                gone = new is None or new.lease_id != old.lease_id
                if gone or (new is not None and new.completed and not old.completed):
                    self.ended_at.setdefault(old.lease_id, (at, self._ender(step, old)))
            if new is not None:
                if new.lease_id not in self.grants:
                    self.grants[new.lease_id] = new
                    self.granted_at[new.lease_id] = at
                    if new.completed:  # done by who did not hold it: its end is its beginning
                        self.ended_at[new.lease_id] = (at, self._ender(step, new))
                self.versions[new.lease_id].append(Version(new, at))

    @staticmethod
    def _ender(step: JudgedStep, old: LeaseRecord) -> str:
        """Who gave it back, ``""`` where others took it or cleared it away."""
        for op in step.operations:
            # Done by another, what had run out is cleared away, as by any other grant.
            own = op.kind == "Revoke" or person(op.holder) == person(old.holder)
            ends = op.kind in ("Release", "Complete", "Revoke")
            named = ends and own and op.resource == old.key[0]
            if named or (op.kind in ("EndSession", "RunOut") and old.lease_id in op.grants()):
                return op.holder
        return ""

    def position(self, lease: Mapping[str, Any]) -> int | None:
        """Where the lease of an answer was written as it says; None where it never was."""
        said = (lease["token"], lease["renewals"], lease["expires_at"])
        for version in self.versions.get(str(lease["lease_id"]), ()):
            record = version.record
            if (record.token, record.renewals, _seconds(record.expires_at)) == said:
                return version.since
        return None


def read_history(git_dir: Path | str, ref: str, tips: Iterable[str] = ()) -> History:
    """What a ledger's history says; ``tips``: commits that were seen at its ref."""
    found = History()
    tip = pygit2.Repository(str(git_dir)).references[ref].target
    found.verified = verify(git_dir, str(tip), tips, on_step=found.add)
    return found


def load_calls(file: Path) -> list[LoggedCall]:
    """The calls that clients logged, a JSON object a line; what is not known is passed over."""
    known = LoggedCall.__dataclass_fields__.keys()
    calls = []
    for line in file.read_text(encoding="utf-8").splitlines():
        said = {key: value for key, value in json.loads(line).items() if key in known}
        if "client" not in said:  # what befell the clients may stand between their calls
            continue
        said["resources"] = tuple(said.get("resources") or ())
        calls.append(LoggedCall(**said))
    return calls


def check_answers(history: History, calls: Sequence[LoggedCall]) -> list[Contradiction]:
    """Hold what clients were told against the history. Calls may come in any order.

    Renewals are not asked for a call: heartbeats in the background write them as well.
    """
    return list(_Answers(history, calls).contradictions())


class _Answers:
    def __init__(self, history: History, calls: Sequence[LoggedCall]) -> None:
        self._history = history
        self._calls = sorted(calls, key=lambda call: call.start)
        # What is called lost as it is taken may have been granted, and confirmed after its time.
        self._open = [
            call
            for call in self._calls
            if (call.is_open and call.verb in TAKES | ENDS)
            or (call.code == "lost" and call.verb in TAKES)
        ]
        # Who finishes what is finished is told the same again.
        self._ended_by: dict[str, LoggedCall] = {}
        for call in self._calls:
            for lease in call.leases if call.status in ("released", "completed", "revoked") else ():
                self._ended_by.setdefault(str(lease["lease_id"]), call)
        self._places = [(call, at) for call in calls if (at := self._place(call)) is not None]
        by_end = sorted((call.end, at) for call, at in self._places)
        by_start = sorted(((call.start, at) for call, at in self._places), reverse=True)
        self._ends, self._last = [end for end, _ in by_end], _running(max, by_end)
        self._starts = [-start for start, _ in by_start]
        self._first = _running(min, by_start)

    def contradictions(self) -> Iterator[Contradiction]:
        for call in self._calls:
            yield from self._told(call)
        yield from self._order()
        yield from self._unheard_grants()
        yield from self._unheard_ends()

    # --- every answer is in history -------------------------------------------------------------

    def _place(self, call: LoggedCall) -> int | None:
        """The position at which a call took effect; None where it had none, or nobody can say."""
        if call.is_open or call.code is not None or self._after_an_open_one(call):
            return None
        if call.status == "run_out":  # the record of an edge that stays may look as before
            return None
        found = [self._effect(call, lease) for lease in call.leases]
        known = [at for at in found if at is not None]
        return max(known) if known and call.verb in TAKES | ENDS | {"renew", "extend"} else None

    def _after_an_open_one(self, call: LoggedCall) -> bool:
        """Whether it may tell of what an earlier call of the same client did."""
        resources = [str(lease["resource"]) for lease in call.leases]
        return any(
            one.client == call.client and one.start < call.start and any(map(one.names, resources))
            for one in self._open
        )

    def _effect(self, call: LoggedCall, lease: Mapping[str, Any]) -> int | None:
        if call.status in ("released", "completed", "revoked"):
            if self._ended_by[str(lease["lease_id"])] is not call:
                return None
            ended = self._history.ended_at.get(str(lease["lease_id"]))
            return None if ended is None else ended[0]
        return self._history.position(lease)

    def _told(self, call: LoggedCall) -> Iterator[Contradiction]:
        for lease in call.leases:
            yield from self._told_of(call, lease)
        if call.code in ("held", "not_holder"):
            yield from self._refused(call)
        if call.code == "lost":
            yield from self._lost(call)

    def _told_of(self, call: LoggedCall, lease: Mapping[str, Any]) -> Iterator[Contradiction]:
        shown, nonce = f"{lease['resource']} (token {lease['token']})", str(lease["lease_id"])
        grant = self._history.grants.get(nonce)
        if grant is None:
            yield self._wrong("answer", call, f"was told of {shown}, which is not in history")
            return
        said = (resource_key(lease["resource"]), fold(lease["scope"]), person(lease["holder"]))
        if (*grant.key, person(grant.holder), grant.token) != (*said, lease["token"]):
            yield self._wrong("answer", call, f"was told of {shown}, and history has another one")
        elif call.status in ("released", "completed", "revoked"):
            if nonce not in self._history.ended_at:
                yield self._wrong("answer", call, f"was told that {shown} ended, and it did not")
        elif self._history.position(lease) is None and not self._history.hidden:
            yield self._wrong("answer", call, f"was told of a renewal of {shown} that is none")
        elif call.code is None and call.status is None:
            yield from self._in_time(call, lease, shown)

    def _refused(self, call: LoggedCall) -> Iterator[Contradiction]:
        """A refusal names a lease that stood at some moment of the call."""
        error = (call.answer or {})["error"]
        for lease in error.get("conflicts") or filter(None, [error.get("lease")]):
            shown = f"{lease['resource']} of {lease['holder']}"
            if self._history.position(lease) is None and not self._history.hidden:
                yield self._wrong("refusal", call, f"was refused for {shown}, which never was")
            else:
                yield from self._in_time(call, lease, shown)

    def _in_time(
        self, call: LoggedCall, lease: Mapping[str, Any], shown: str
    ) -> Iterator[Contradiction]:
        least, most = self._window(call)
        versions = self._history.versions[str(lease["lease_id"])]
        same = [x for x in versions if x.record.renewals == lease["renewals"]]
        in_time = (x.since < most and (x.until is None or x.until > least) for x in same)
        if same and not any(in_time):
            yield self._wrong("stale", call, f"was told of {shown} out of its time")

    def _lost(self, call: LoggedCall) -> Iterator[Contradiction]:
        """What was called lost did not stand all through the call: of long leases that is known."""
        least, most = self._window(call)
        wanted = {resource_key(word): word for word in call.resources}
        for nonce, grant in self._history.grants.items():
            word = wanted.get(grant.key[0])
            mine = person(grant.holder) == person(call.holder) and grant.session == call.session
            if word is None or not mine or self._history.granted_at[nonce] > least:
                continue
            ended = self._history.ended_at.get(nonce)
            versions = self._history.versions[nonce]
            if (ended is None or ended[0] >= most) and all(map(_is_long, versions)):
                yield self._wrong("lost", call, f"{word} was called lost, and it was not")

    def _window(self, call: LoggedCall) -> tuple[int, int]:
        """The positions between which a call happened: after all that had ended when it began."""
        before = bisect_left(self._ends, call.start)
        after = bisect_left(self._starts, -call.end)
        least = self._last[before - 1] if before else -1
        most = self._first[after - 1] if after else len(self._history.commits)
        return least, most

    # --- in an order that agrees with when they were made ---------------------------------------

    def _order(self) -> Iterator[Contradiction]:
        latest: LoggedCall | None = None
        for call, _ in sorted(self._places, key=lambda place: place[1]):
            if latest is not None and call.end < latest.start:
                told = (
                    f"its {call.verb} had ended before the {latest.verb} of {latest.client} began"
                )
                yield self._wrong("order", call, f"{told}, and comes after it in history")
            if latest is None or call.start > latest.start:
                latest = call

    # --- and nothing else is in history ---------------------------------------------------------

    def _unheard_grants(self) -> Iterator[Contradiction]:
        told: dict[str, LoggedCall] = {}
        for call in self._calls:
            for lease in call.leases if call.status in (*GRANTED, *RAN) else ():
                nonce = str(lease["lease_id"])
                first = told.setdefault(nonce, call)
                if first is not call and lease["renewals"] == 0 and first.client != call.client:
                    yield self._wrong("twice", call, f"was told of the grant of {first.client}")
        unheard = [grant for nonce, grant in self._history.grants.items() if nonce not in told]
        yield from self._unclaimed([x for x in unheard if not x.completed], TAKES, "grant")

    def _unheard_ends(self) -> Iterator[Contradiction]:
        told = {
            str(lease["lease_id"])
            for call in self._calls
            for lease in call.leases
            if call.status in ENDED or call.verb in ("run", "dispatch", "work", "session", "set")
        }
        ended = self._history.ended_at.items()
        unheard = [
            self._history.grants[nonce] for nonce, (_, who) in ended if who and nonce not in told
        ]
        yield from self._unclaimed(unheard, ENDS, "end")

    def _unclaimed(
        self, grants: Iterable[LeaseRecord], verbs: set[str], what: str
    ) -> Iterator[Contradiction]:
        """What nobody was told must be the doing of a call that may have done it, each of one."""
        used: set[tuple[int, str]] = set()
        maybe = [(n, call) for n, call in enumerate(self._open) if call.verb in verbs]
        for grant in grants:
            found = next(
                (
                    number
                    for number, call in maybe
                    if (number, grant.key[0]) not in used
                    and self._may_be(call, grant, what)
                    and call.names(grant.resource)
                ),
                None,
            )
            if found is None:
                told = f"the {what} of {grant.resource} (token {grant.token}) is nobody's answer"
                yield Contradiction("unheard", grant.holder, told)
            else:
                used.add((found, grant.key[0]))

    def _may_be(self, call: LoggedCall, grant: LeaseRecord, what: str) -> bool:
        """It is not of before the call, and of its person and session."""
        ended = self._history.ended_at[grant.lease_id] if what == "end" else None
        at, who = ended or (self._history.granted_at[grant.lease_id], grant.holder)
        if person(call.holder) != person(who) or at <= self._window(call)[0]:
            return False
        return ended is not None or call.session in (None, grant.session)

    @staticmethod
    def _wrong(rule: str, call: LoggedCall, message: str) -> Contradiction:
        return Contradiction(rule, call.client, message)


def _seconds(ms: int) -> str:
    """A time as answers have it: whole seconds, rounded down."""
    return datetime.fromtimestamp(ms // 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _running(choose: Any, pairs: Iterable[tuple[float, int]]) -> list[int]:
    found: list[int] = []
    for _, at in pairs:
        found.append(choose(found[-1], at) if found else at)
    return found


def _is_long(version: Version) -> bool:
    """Whether a lease cannot have run out in a test, whatever its clocks do."""
    return version.record.expires_at - version.record.renewed_at >= 3_600_000
