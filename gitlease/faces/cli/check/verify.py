"""``verify``: carry out a ledger's history once more, by the rules of its writers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from gitlease.faces.cli import output, refusals
from gitlease.faces.cli.verb import option, verb
from gitlease.faces.codes import Violations, exit_of
from gitlease.verify.replay import several

if TYPE_CHECKING:
    from gitlease.faces.cli.call import Call
    from gitlease.verify.replay import Verified
    from gitlease.wiring.verify import LedgerVersion

EXITS = (1, 2, 4, 5, 7, 128)
SHOWN = 20  # violations printed for people


@verb(
    "verify",
    """Replay a ledger's whole history, and compare each commit with what its operations come to.

The configured ledger is fetched and read from its first commit. Every commit names its operations:
they are carried out once more on the state before it, by the rules that decide claims and that the
server's hook uses, and must come to the same bytes. So one who writes to the ref without gitlease
is found: a grant over somebody's lease, a token used twice, a record or a policy that changed
without an operation, a past that was rewritten. A mistake in those rules is not found.

Where later renewals replaced earlier ones, the decisions are replayed, and the final renewal must
be one of the leases that were there. Anything that cannot be judged is listed: under the policy's
rule `observed`, only the new holder knows how long it had waited. Who pushed a commit is not known.
Times are those of the writers' clocks.

REF is a branch, ref or commit of this repository that holds a ledger, or a commit of the ledger
known to this clone; nothing is fetched then. --tip names a commit that someone saw at the ledger's
ref: it must still be in its history, or be a renewal that was replaced.

verify only reads, and needs no user.email.""",
    examples=(
        "gitlease verify",
        "gitlease verify --remote backup",
        "gitlease verify refs/copies/ledger",
        "gitlease verify --tip 4f2a9c1 --json",
    ),
    exits=EXITS,
    done="no rule is broken",
    no=("violations",),
    session=False,
    cached=True,
)
@click.argument("ref", metavar="[REF]", required=False)
@option("--tip", "tips", metavar="COMMIT", multiple=True, help="A commit seen at the ledger's ref.")
def verify_verb(call: Call, *, ref: str | None, tips: tuple[str, ...], cached: bool) -> int | None:
    from gitlease.wiring.verify import open_version

    if ref is None and not cached:
        call.cached = call.typed("verify", options=["--cached"])
    version = open_version(
        call.directory or ".",
        ref=ref,
        layer=call.layer,
        local=call.local,
        remote=call.remote,
        cached=cached,
    )
    found = version.verify(tips)
    body = _body(found)
    if not found.broken:
        call.answer(body, warnings=version.warnings, show=lambda: _show(version, found))
        return None
    if call.json:
        error = Violations(f"{version.shown}: {several(len(found.broken), 'violation')}")
        error.warnings = version.warnings
        return refusals.tell(call, error, body=body)
    _show(version, found)
    output.warn(version.warnings)
    return exit_of(Violations.code)


def _body(found: Verified) -> dict[str, Any]:
    return {
        "ledger": found.ledger_id or None,
        "commit": found.tip,
        "revision": found.revision,
        "commits": found.commits,
        "decisions": found.decisions,
        "grants": found.leases,
        "unjudged": list(found.unjudged),
        "violations": [
            {"commit": one.commit, "rule": one.rule, "message": one.message} for one in found.broken
        ],
    }


def _show(version: LedgerVersion, found: Verified) -> None:
    for one in found.broken[:SHOWN]:
        output.line(f"{one.commit}: {one.rule}: {one.message}")
    if len(found.broken) > SHOWN:
        output.line(f"and {several(len(found.broken) - SHOWN, 'more violation')}: --json has them")
    for why in found.unjudged:
        output.line(f"not judged: {why}")
    checked = (
        several(found.commits, "commit"),
        several(found.decisions, "decision"),
        several(found.leases, "grant"),
    )
    came = several(len(found.broken), "violation") if found.broken else "no rule is broken"
    output.line(f"{version.shown} at revision {found.revision}: {', '.join(checked)}: {came}")
