"""The verb ``config``: the settings of a clone, and the policy of its ledger."""

from __future__ import annotations

import json
from collections.abc import Sequence

from gitlease.core.errors import GitleaseError, Hint, UsageError
from gitlease.core.instant import parse_duration
from gitlease.core.policy import KEYS, check_change, policy_words
from gitlease.engine import acts
from gitlease.engine.reading import read_leases
from gitlease.verbs import parameters as takes
from gitlease.verbs.table import AT_A_CLONE, DoorOfClone, Result, Table, verb
from gitlease.wiring.workspace import Setting, write_setting

TTL = "lease.ttl"


@verb(
    "config",
    """Show the effective settings with their sources, show one (KEY), or set one (KEY VALUE).

Values are set in this clone's git config (lease.*); an empty value unsets. Shared settings belong
in .gitlease.yaml. --ledger shows or sets the ledger's policy instead, which all clients must agree
on: limits of the TTL, margins for clocks, admins, and when an assignment counts as abandoned.
Anyone may set it until there are admins. To remove all admins, an admin sets admins to 'none ME',
where ME is their own email address.""",
    examples=(
        "gitlease config",
        "gitlease config lease.ttl 30m",
        "gitlease config --schema > .gitlease.schema.json    # for an editor",
        "gitlease config --ledger",
        "gitlease config --ledger ttl_max 4h",
        "gitlease config --ledger edges.abandoned_after 14d",
        "gitlease config --ledger admins 'ada@example.com jo@example.com'",
    ),
    exits=(2, 4, 5, 6, 7, 128),
    done="shown, or set",
    session=False,
    reads=True,
    doors=AT_A_CLONE,
)
def config_verb(
    door: DoorOfClone,
    key: takes.SettingKey = None,
    value: takes.SettingValue = None,
    *,
    ledger: takes.OfLedger = False,
    cached: takes.Cached = False,
) -> Result:
    if value is not None and key is None:
        raise UsageError("a value needs a key")
    if cached and (not ledger or value is not None):
        needs = f"{door.option('cached')} needs {door.option('ledger')}"
        raise UsageError(f"{needs}, without a value to set")
    if ledger:
        return _policy(door, key and key.lower(), value, cached=cached)
    if key is not None and value is not None:
        name = write_setting(door.workspace.repository, key, value)
        shown = Setting(name, value or None, f"git config (local) {name}")
        done = f"set {name} to {value}" if value else f"unset {name}"
        return _result([shown], [done], *_beyond_limits(door, value if name == TTL else ""))
    table, remote = door.workspace.settings.table(), door.workspace.location.name
    if remote is not None:  # the default remote, if none is configured
        unset = ("lease.remote", None)
        table = tuple(
            Setting(x.key, remote, x.source) if (x.key, x.value) == unset else x for x in table
        )
    return _chosen(table, key, ())


def _beyond_limits(door: DoorOfClone, ttl: str) -> tuple[list[str], list[Hint]]:
    """Warn of a TTL that the ledger, as known here, will refuse, and how to allow it."""
    try:
        policy = door.ledger.known_policy() if ttl else None
    except GitleaseError:  # the next command reports it
        return [], []
    if policy is None or policy.ttl_min <= (seconds := parse_duration(ttl)) <= policy.ttl_max:
        return [], []
    key, kind = ("ttl_max", "more") if seconds > policy.ttl_max else ("ttl_min", "less")
    who = f"its admins, {', '.join(policy.admins)}" if policy.admins else "anyone"
    text = f"{ttl} is {kind} than the ledger allows, {policy_words(policy)[key]}"
    allow = Hint("config", {"ledger": True, "key": key, "value": ttl}, "to change that")
    return [f"{text}, so claims will be refused; {who} may change that"], [allow]


def _policy(door: DoorOfClone, key: str | None, value: str | None, *, cached: bool) -> Result:
    if key is not None and (value is not None or key not in KEYS):
        check_change(key, value or "")  # before any network call; the ledger checks the limits
    if key is not None and value is not None:
        warnings = acts.set_policy(door.ledger, {key: value}).warnings
        reading = read_leases(door.ledger, cached=True)  # what was written just now
    else:
        reading = read_leases(door.ledger, cached=cached)
        warnings = reading.warnings
    source = "ledger" if reading.ledger_id else "built-in"
    table = [Setting(name, x, source) for name, x in policy_words(reading.policy).items()]
    return _chosen(table, key, warnings, changed=value is not None)


def _chosen(
    table: Sequence[Setting], key: str | None, warnings: Sequence[str], *, changed: bool = False
) -> Result:
    """Return the setting of a key, or without one all of them. UsageError for an unknown key."""
    if key is None:
        rows = [(one.key, _text(one), one.source) for one in table]
        return _result(table, [Table(headings=("KEY", "VALUE", "SOURCE"), rows=rows)], warnings)
    shown = [one for one in table if one.key.lower() == key.lower()]
    if not shown:
        known = ", ".join(one.key for one in table)
        raise UsageError(f"unknown setting {key[:60]!r}", hints=(f"known settings: {known}",))
    text = _text(shown[0])
    return _result(shown, [f"set {shown[0].key} to {text}" if changed else text], warnings)


def _result(
    shown: Sequence[Setting],
    lines: Sequence[str | Table],
    warnings: Sequence[str],
    hints: Sequence[Hint] = (),
) -> Result:
    settings = [{"key": x.key, "value": x.value, "source": x.source} for x in shown]
    return Result(
        body={"settings": settings},
        lines=lambda: lines,
        value=tuple(shown),
        warnings=warnings,
        hints=hints,
    )


def _text(one: Setting) -> str:
    """Return a value as typed on the command line."""
    if isinstance(one.value, str):
        return one.value
    return "" if one.value is None else json.dumps(one.value, ensure_ascii=False)
