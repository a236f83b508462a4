"""``verify``: a ledger's history, judged by rules that share nothing with what wrote it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from gitlease.faces.cli import output, refusals
from gitlease.faces.cli.verb import Verb, option
from gitlease.faces.codes import Violations, exit_of
from gitlease.verify.state import several

if TYPE_CHECKING:
    from gitlease.faces.cli.call import Call
    from gitlease.verify.checker import Verified
    from gitlease.wiring.verify import LedgerVersion

EXITS = (1, 2, 4, 5, 7, 128)
SHOWN = 20  # broken rules that people are told, of however many


@click.command(
    "verify",
    cls=Verb,
    help="""Check a ledger's whole history, commit by commit, independently of what wrote it.

The configured ledger is fetched and read from its first commit on. Its records, and the operations
that the commits name, are held against what leases promise: one holder at a time for a resource and
scope and for paths that overlap (exclusive); no grant over another's lease before it lapsed (lapse)
but by its holder or an admin (holder, admin, takeover); tokens that only grow and are given once
(token); one revision more with each decision (revision); a chain of digests (digest); no operation
applied twice (operation-twice); nothing that no operation explains (unexplained). The rules are
written apart from those that claims are decided by, and share no code with them.

Where later renewals replaced earlier ones, decisions are judged, and of the renewals only what they
came to. What else nobody can judge later is said: by the policy's rule observed only the taker knew
how long it had waited. Times are those that the writers' clocks gave.

REF is a branch, ref or commit of this repository that holds a ledger, or a commit of the ledger
that this clone knows; nothing is fetched then. --tip names a commit that was seen at the ledger's
ref at some time: it must still be in its history, or be a renewal that another one replaced.

It needs to read only, and no user.email.""",
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
@option("--tip", "tips", metavar="COMMIT", multiple=True, help="Was at the ledger's ref.")
@click.pass_obj
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
    said = f"{version.shown}: {several(len(found.broken), 'violation')}"
    if call.json:
        error = Violations(said)
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
