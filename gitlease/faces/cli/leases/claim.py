"""``claim``: take a lease, or renew one's own."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from gitlease.faces.cli import types
from gitlease.faces.cli.leases import claiming
from gitlease.faces.cli.verb import LEASE_EXITS, Verb

if TYPE_CHECKING:
    from gitlease.faces.cli.call import Call


@click.command(
    "claim",
    cls=Verb,
    help="""Take the lease of each RESOURCE: all of them, or none.

A resource is a name (a task id such as F001, deploy-prod, port-8080) or a path (src/auth/,
'src/**/*.py', path:Makefile). Whoever else claims it, or paths that could match the same file, is
told that you hold it and until when. A claim of a live lease of your own renews it, and says so
where you claimed it in another terminal or on another machine; --new refuses it instead.

Where it is a task, you are assigned in its file as well, which lasts when the lease runs out; the
change is left in your work tree unless it is committed. Where there are task files, names that are
no tasks need --any.

A task that is assigned to another stays theirs after their lease has run out. Once nobody was seen
at work on it for the time that the ledger sets (edges.abandoned_after, 7 days unless it is set), a
claim takes it over and tells them. Before that, ask them; where they cannot answer, --takeover with
a --reason replaces their assignment, but never a live lease.""",
    advice=claiming.LENGTHS,
    examples=(
        "gitlease claim F001",
        "gitlease claim F001 --ttl 30m --reason 'rate limits'",
        "gitlease claim F001 --commit          # and commit the line in its task file, alone",
        "gitlease claim src/auth/ docs/auth.md",
        "gitlease claim F001 --path src/auth/ --path tests/auth/",
        "gitlease claim F001 --scope parser    # others may claim its other scopes",
        "gitlease claim F001 --wait 15m        # block until it is free",
        "gitlease claim deploy-prod --any      # a name that is no task",
    ),
    exits=LEASE_EXITS,
    done="you hold all of them",
    scope="Take only this part of its work (default: the whole).",
)
@click.argument(
    "words", metavar="RESOURCE...", shell_complete=types.known_names, nargs=-1, required=True
)
@claiming.path_option
@claiming.claim_options
@claiming.any_option
@claiming.new_option
@claiming.commit_option
@click.pass_obj
def claim_verb(
    call: Call, /, *, words: tuple[str, ...], paths: tuple[str, ...], **options: Any
) -> None:
    from gitlease.engine import claim

    asked = claiming.ClaimRequest(**options)
    resources, covered = call.to_claim(words, paths, any_name=asked.any)
    call.retry = partial(asked.waiting, call, "claim", resources, covered=covered)
    claiming.expect_wait(asked.wait)
    tell = claiming.tell_waiting(call, asked.wait)
    answer = claim.claim(
        call.ledger, resources, asked.options(covered), wait=asked.wait, on_wait=tell
    )
    claiming.answer_claim(call, answer, scope=asked.scope)
