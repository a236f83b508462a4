"""``verify``: check a ledger's history by rules that share no code with its writers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from gitlease.faces.cli import output, refusals
from gitlease.faces.cli.verb import option, verb
from gitlease.faces.codes import Violations, exit_of
from gitlease.verify.state import several

if TYPE_CHECKING:
    from gitlease.faces.cli.call import Call
    from gitlease.verify.checker import Verified
    from gitlease.wiring.verify import LedgerVersion

EXITS = (1, 2, 4, 5, 7, 128)
SHOWN = 20  # violations printed for people


@verb(
    "verify",
    """Check a ledger's whole history, commit by commit, independently of the code that wrote it.

The configured ledger is fetched and read from its first commit. Its records, and the operations
that its commits name, must keep the promises of leases: one holder at a time for a resource and
scope, and for overlapping paths (exclusive); no grant over a lease of someone else before it lapsed
(lapse), except by its holder or an admin (holder, admin, takeover); tokens that only grow and are
granted once (token); a revision that grows by one per decision (revision); a chain of digests
(digest); no operation applied twice (operation-twice); no change without an operation
(unexplained). These rules share no code with those that decide claims.

Where later renewals replaced earlier ones, the decisions are judged, and the final renewal.
Anything that cannot be judged is listed: under the policy's rule `observed`, only the new holder
knows how long it had waited. Times are those of the writers' clocks.

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
    from gitlease.wiring.workspace import own_process

    own_process()
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
