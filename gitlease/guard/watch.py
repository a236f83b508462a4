"""What hooks may know of the leases without git and without parsing: files of this clone's own.

Whatever is wrong with them, they are of no use, and no harm: the guard asks the ledger then.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from typing import Any

from gitlease.core.expiry import Sighting
from gitlease.core.frozen import replace
from gitlease.core.instant import Instant
from gitlease.core.lease import Lease, State
from gitlease.core.policy import Margins, Policy, Rule
from gitlease.core.resources.resource import Resource
from gitlease.engine.ports import Clock
from gitlease.git.files import load_json, store_json
from gitlease.guard.idle_marker import Origin, drop_idle_marker, write_idle_marker
from gitlease.guard.ports import IdleMarker, Unreachable, Watched
from gitlease.store.state import StateFolder

FORMAT = 1
FILE = "watch.json"
FAILURE = "unreachable.json"
MAX_BYTES = 32 * 1024 * 1024
MAX_FAILURE = 16 * 1024
LONGEST_MESSAGE = 1_000
LARGEST = 1 << 62

_DAMAGE = (LookupError, TypeError, ValueError, AttributeError, OverflowError)
_PLAIN = (
    *("scope", "holder", "session", "lease_id", "token", "ttl", "claimed_at", "renewed_at"),
    *("expires_at", "renewals", "reason", "host", "branch", "edge", "operation", "parked"),
)


class WatchFolder:
    """The kept leases of each layer, beside its other state, and the idle marker in ``folder``.

    ``origin`` is what the idle markers of this process are made from.
    """

    def __init__(
        self, folder: str, state: Callable[[str], str], clock: Clock, origin: Origin
    ) -> None:
        self._folder, self._state, self._clock, self._origin = folder, state, clock, origin

    def load(self, layer: str) -> Watched | None:
        data = load_json(os.path.join(self._state(layer), FILE), MAX_BYTES)
        known = StateFolder(self._state(layer)).load()
        try:
            kept = _watched(data, layer) if data is not None else None
        except _DAMAGE:
            return None
        if kept is None or kept.version != (known.version if known else ""):
            return None
        now = self._clock.now()
        if known is None:
            return kept if kept.received.same_boot(now) else None
        # A sighting of before a reboot, or a clock that was set back, counts anew.
        if known.at(now) is not known:
            return None
        return replace(kept, received=known.received)

    def save(self, watched: Watched) -> None:
        folder = self._state(watched.layer)
        with contextlib.suppress(OSError):
            os.makedirs(folder, exist_ok=True)
            store_json(os.path.join(folder, FILE), _dump(watched))

    def set_idle_marker(self, idle: IdleMarker, versions: Mapping[str, str]) -> None:
        write_idle_marker(self._folder, idle, self._origin)
        # Whoever moved a head meanwhile took the marker of before it away, and this one came after.
        if any(self._version(layer) != version for layer, version in versions.items()):
            drop_idle_marker(self._folder)

    def unreachable(self) -> Unreachable | None:
        data = load_json(self._failure, MAX_FAILURE)
        try:
            return Unreachable(_read_instant(data["at"]), _text(data["message"]))
        except _DAMAGE:
            return None

    def set_unreachable(self, failure: Unreachable | None) -> None:
        if failure is None:
            with contextlib.suppress(OSError):
                os.unlink(self._failure)
            return
        with contextlib.suppress(OSError):
            os.makedirs(self._state(""), exist_ok=True)
            value = {"at": _instant(failure.at), "message": failure.message[:LONGEST_MESSAGE]}
            store_json(self._failure, value)

    @property
    def _failure(self) -> str:
        return os.path.join(self._state(""), FAILURE)

    def _version(self, layer: str) -> str:
        known = StateFolder(self._state(layer)).load()
        return known.version if known else ""


# --- as JSON ----------------------------------------------------------------------------------


def _dump(watched: Watched) -> dict[str, object]:
    return {
        "format": FORMAT,
        "version": watched.version,
        "received": _instant(watched.received),
        "policy": {
            "skew": watched.policy.skew,
            "drift": watched.policy.drift,
            "grace": watched.policy.grace,
            "rule": watched.policy.rule.value,
            "ttl_max": watched.policy.ttl_max,
            "park_max": watched.policy.park_max,
        },
        "leases": [_lease(lease) for lease in watched.leases],
        "damage": list(watched.damage),
        "seen": {
            key: [_instant(s.at), s.changed, None if s.since is None else _instant(s.since)]
            for key, s in watched.seen.items()
        },
    }


def _instant(at: Instant) -> list[object]:
    return [at.wall_ms, at.boot_ms, at.boot_id]


def _lease(lease: Lease) -> dict[str, object]:
    margins = lease.margins
    return {name: getattr(lease, name) for name in _PLAIN} | {
        "resource": [lease.resource.text, lease.resource.key],
        "paths": list(lease.paths),
        "margins": [margins.skew, margins.drift, margins.grace, margins.rule.value],
    }


def _watched(data: Any, layer: str) -> Watched | None:
    """What was kept. Raises one of _DAMAGE for what cannot have been."""
    if data["format"] != FORMAT:
        return None
    policy = dict(data["policy"])
    return Watched(
        layer=layer,
        version=_text(data["version"]),
        received=_read_instant(data["received"]),
        policy=Policy(
            skew=_number(policy["skew"]),
            drift=_number(policy["drift"]),
            grace=_number(policy["grace"]),
            rule=Rule(policy["rule"]),
            ttl_max=_number(policy["ttl_max"]),
            park_max=_number(policy["park_max"]),
        ),
        leases=tuple(_read_lease(item) for item in data["leases"]),
        damage=tuple(_text(item) for item in data["damage"]),
        seen={
            _text(key): Sighting(
                at=_read_instant(item[0]),
                changed=bool(item[1]),
                since=None if item[2] is None else _read_instant(item[2]),
            )
            for key, item in data["seen"].items()
        },
    )


def _read_instant(data: Any) -> Instant:
    return Instant(wall_ms=_number(data[0]), boot_ms=_number(data[1]), boot_id=_text(data[2]))


def _read_lease(data: Mapping[str, Any]) -> Lease:
    skew, drift, grace, rule = data["margins"]
    text, key = data["resource"]
    for name in ("token", "ttl", "claimed_at", "renewed_at", "expires_at", "renewals"):
        _number(data[name])
    for name in ("scope", "holder", "lease_id", "operation"):
        _text(data[name])
    for name in ("session", "reason", "host", "branch"):
        if data[name] is not None:
            _text(data[name])
    if type(data["edge"]) is not bool or type(data["parked"]) is not bool:
        raise TypeError
    return Lease(
        resource=Resource(text=_text(text), key=_text(key)),
        paths=tuple(_text(path) for path in data["paths"]),
        state=State.ACTIVE,
        margins=Margins(_number(skew), _number(drift), _number(grace), Rule(rule)),
        **{name: data[name] for name in _PLAIN},
    )


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError
    return value


def _number(value: Any) -> int:
    if type(value) is not int or abs(value) > LARGEST:
        raise TypeError
    return value
