"""``claim``: take a lease, or renew your own."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from gitlease.faces.cli.leases import claiming
from gitlease.faces.cli.verb import LEASE_EXITS, option, resources_argument, verb

if TYPE_CHECKING:
    from gitlease.faces.cli.call import Call


@verb(
    "claim",
    """Take a lease on each RESOURCE: on all of them, or on none.

A resource is a name (a task id such as F001, deploy-prod, port-8080) or a path (src/auth/,
'src/**/*.py', path:Makefile). Anyone else who claims it, or a path that could match the same file,
is refused and sees who holds it and until when. If you already hold it, your lease is renewed; you
are warned if you claimed it in another terminal or on another machine. --new refuses this instead.

If the resource is a task, you are also assigned in its task file. The assignment outlasts the
lease. The edit stays in your work tree unless you commit it. In a repository with task files, other
names need --any.

A task assigned to someone else stays theirs after their lease has expired. If there is no sign of
work on it for the ledger's edges.abandoned_after (default: 7 days), a claim takes it over and
notifies them. Until then, ask them. If they cannot answer, --takeover with a --reason replaces
their assignment, but never a live lease.""",
    advice=claiming.LENGTHS,
    examples=(
        "gitlease claim F001",
        "gitlease claim F001 --ttl 30m --reason 'rate limits'",
        "gitlease claim F001 --commit          # and commit the line in its task file, alone",
        "gitlease claim src/auth/ docs/auth.md",
        "gitlease claim F001 --path src/auth/ --path tests/auth/",
        "gitlease claim F001 --scope parser    # others may claim its other scopes",
        "gitlease claim F001 --wait 15m        # block until it is free",
        "gitlease claim deploy-prod --any      # a name that is not a task",
    ),
    exits=LEASE_EXITS,
    done="you hold all of them",
    scope=claiming.SCOPE,
)
@resources_argument
@claiming.path_option
@claiming.claim_options
@claiming.any_option
@claiming.new_option
@claiming.commit_option
@option("-v", "verbose", is_flag=True, help="Also print the id of each lease.")
def claim_verb(
    call: Call,
    /,
    *,
    words: tuple[str, ...],
    paths: tuple[str, ...],
    verbose: bool,
    **options: Any,
) -> None:
    from gitlease.engine import claim

    request = claiming.ClaimRequest(**options)
    resources, covered = call.to_claim(words, paths, any_name=request.any)
    call.covers = covered
    call.retry = partial(request.waiting, call, "claim", resources, covered=covered)
    claiming.expect_wait(request.wait)
    answer = claim.claim(
        call.ledger,
        resources,
        request.options(covered),
        wait=request.wait,
        on_wait=claiming.report_waiting(call, request.wait),
    )
    claiming.answer_claim(call, answer, scope=request.scope, verbose=verbose)
