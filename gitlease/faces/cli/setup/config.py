"""``config``: the settings of this clone, and the policy of its ledger."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, NamedTuple

import click

from gitlease.core.errors import UsageError
from gitlease.faces.cli import output, types
from gitlease.faces.cli.output import DOCS, Row
from gitlease.faces.cli.verb import flag, option, verb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gitlease.faces.cli.call import Call

SCHEMAS = ("settings", "answers")
LEDGER, BUILT_IN = "ledger", "built-in"


class ShownSetting(NamedTuple):
    """One setting with its source."""

    key: str
    value: object
    source: str

    @property
    def text(self) -> str:
        """The value as typed on the command line."""
        if isinstance(self.value, str):
            return self.value
        return "" if self.value is None else json.dumps(self.value, ensure_ascii=False)


@types.completed_by
def known_keys(ctx: click.Context) -> Sequence[str]:
    """Complete the settings of the clone or of the ledger's policy."""
    if ctx.params.get("ledger"):
        from gitlease.core.policy import KEYS

        return KEYS
    return [setting.key for setting in ctx.find_root().obj.workspace.settings.table()]


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
    cached=True,
    session=False,
    bare={"--schema": "settings"},
)
@click.argument("key", metavar="[KEY", shell_complete=known_keys, required=False)
@click.argument("value", metavar="[VALUE]]", required=False)
@flag("--ledger", help="The ledger's policy instead of this clone's settings.")
@option(
    "--schema",
    metavar="[=NAME]",
    type=click.Choice(SCHEMAS),
    help="Print the JSON schema of .gitlease.yaml (settings) or of --json output (answers).",
)
def config_verb(
    call: Call,
    *,
    key: str | None,
    value: str | None,
    ledger: bool,
    schema: str | None,
    cached: bool,
) -> None:
    call.anonymous = value is None or not ledger
    if schema is not None:
        if ledger or cached or key is not None:
            raise UsageError("--schema cannot be combined with anything else")
        with open(os.path.join(DOCS, f"{schema}.schema.json"), encoding="utf-8") as file:
            text = file.read()
        call.answer({"document": json.loads(text)}, show=lambda: print(text, end=""))
        return
    if cached and (not ledger or value is not None):
        raise UsageError("--cached needs --ledger, without a value to set")
    if ledger:
        _ledger_policy(call, key, value, cached)
    else:
        _settings(call, key, value)


def _settings(call: Call, key: str | None, value: str | None) -> None:
    if key is not None and value is not None:
        from gitlease.wiring.workspace import write_setting

        name = write_setting(call.workspace.repository, key, value)
        shown = [ShownSetting(name, value or None, f"git config (local) {name}")]
        done = f"set {name} to {value}" if value else f"unset {name}"
        call.answer(
            {"settings": [e._asdict() for e in shown]},
            warnings=_beyond_limits(call, value) if value and name == "lease.ttl" else (),
            show=lambda: output.line(done),
        )
        return
    table = [ShownSetting(s.key, s.value, s.source) for s in call.workspace.settings.table()]
    remote = call.workspace.location.name
    if remote is not None:  # the default remote, if none is configured
        table = [
            e._replace(value=remote) if (e.key, e.value) == ("lease.remote", None) else e
            for e in table
        ]
    _answer(call, table, key, ())


def _beyond_limits(call: Call, ttl: str) -> list[str]:
    """Warn of a TTL that the ledger, as known here, will refuse."""
    from gitlease.core.errors import GitleaseError
    from gitlease.core.instant import parse_duration
    from gitlease.core.policy import policy_words

    try:
        policy = call.ledger.known_policy()
    except GitleaseError:  # the next command reports it
        return []
    seconds = parse_duration(ttl)
    if policy is None or policy.ttl_min <= seconds <= policy.ttl_max:
        return []
    key, kind = ("ttl_max", "more") if seconds > policy.ttl_max else ("ttl_min", "less")
    who = f"its admins, {', '.join(policy.admins)}" if policy.admins else "anyone"
    change = call.typed("config", key, ttl, ledger=True)
    return [
        f"{ttl} is {kind} than the ledger allows, {policy_words(policy)[key]}, so claims will be "
        f"refused; {who} may change that: {change}"
    ]


def _ledger_policy(call: Call, key: str | None, value: str | None, cached: bool) -> None:
    from gitlease.core.policy import policy_words
    from gitlease.engine import acts
    from gitlease.engine.reading import read_leases

    if key is not None:
        _check_policy(key, value)
    if key is not None and value is not None:
        warnings = acts.set_policy(call.ledger, {key: value}).warnings
        reading = read_leases(call.ledger, cached=True)  # what was written just now
    else:
        reading = read_leases(call.ledger, cached=cached)
        warnings = reading.warnings
    source = LEDGER if reading.ledger_id else BUILT_IN
    table = [ShownSetting(k, v, source) for k, v in policy_words(reading.policy).items()]
    _answer(call, table, key, warnings, changed=value is not None)


def _check_policy(key: str, value: str | None) -> None:
    """Refuse a bad key or value before any network call; the ledger checks the limits."""
    from gitlease.core.policy import KEYS, check_change

    if value is not None or key not in KEYS:
        check_change(key, value or "")


def _answer(
    call: Call,
    table: Sequence[ShownSetting],
    key: str | None,
    warnings: Sequence[str],
    *,
    changed: bool = False,
) -> None:
    shown = table if key is None else [e for e in table if e.key.lower() == key.lower()]
    if key is not None and not shown:
        known = ", ".join(e.key for e in table)
        raise UsageError(
            f"unknown setting {key[:60]!r}",
            hints=(f"known settings: {known}",),
        )

    def show() -> None:
        if key is not None:
            output.line(f"set {shown[0].key} to {shown[0].text}" if changed else shown[0].text)
            return
        rows = [Row((e.key, e.text, e.source)) for e in shown]
        output.table(("KEY", "VALUE", "SOURCE"), rows)

    call.answer({"settings": [e._asdict() for e in shown]}, warnings=warnings, show=show)
