"""``note``, for anyone, and ``revoke``, for the ledger's admins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gitlease.core.errors import UsageError
from gitlease.faces import sentences, wire
from gitlease.faces.cli import output, types
from gitlease.faces.cli.leases.claiming import any_option
from gitlease.faces.cli.verb import LEASE_EXITS, option, resource_argument, verb

if TYPE_CHECKING:
    from gitlease.engine.answers import Answer
    from gitlease.faces.cli.call import Call

EXITS = tuple(status for status in LEASE_EXITS if status != 1)


@verb(
    "note",
    """Leave a note for the next holder of RESOURCE. Anyone may, with or without a lease.

`show` and every claim display it until the work is done.""",
    examples=(
        "gitlease note F001 'the fixture in tests/api is flaky'",
        "gitlease note src/auth/ 'ask jo before touching the tokens'",
    ),
    exits=EXITS,
    done="the note is left",
)
@resource_argument
@click.argument("text", metavar="TEXT", type=types.note)
@any_option
def note_verb(call: Call, *, word: str, text: str, any: bool) -> None:
    from gitlease.engine import govern
    from gitlease.faces.cli.read.reading import check_names

    resource = call.resource(word)
    if not any:
        check_names(call, [resource])
    answer = govern.note(call.ledger, resource, text)
    call.answer_verb(
        answer,
        wire.changed(answer) | {"notes": [wire.note(n) for n in answer.notes]},
        show=lambda: output.line(f"left your note for the next holder of {resource}"),
    )


@verb(
    "revoke",
    """End someone else's lease. Only the ledger's admins may; the holder is notified.

If the holder is gone for good, just wait: a lease that is not renewed ends by itself. The ledger's
policy names the admins (`config --ledger admins`). By default there are none.""",
    examples=(
        "gitlease revoke F001 --reason 'the machine is gone'",
        "gitlease revoke F001 --reason 'stuck run' --expect-holder jo@example.com",
        "gitlease revoke --record leases/ab/cd.yaml --reason 'cannot be read'",
    ),
    exits=LEASE_EXITS,
    done="the resource is free",
    scope="Only this scope (default: all).",
)
@click.argument("word", metavar="RESOURCE", shell_complete=types.known_names, required=False)
@option(
    "--reason",
    metavar="TEXT",
    type=types.reason,
    required=True,
    help="Why; shown to the holder.",
)
@option("--expect-holder", metavar="H", help="Only if H holds it.")
@option("--record", metavar="FILE", help="Remove this damaged record instead.")
def revoke_verb(
    call: Call,
    *,
    word: str | None,
    reason: str,
    expect_holder: str | None,
    record: str | None,
    scope: str | None,
) -> None:
    from gitlease.engine import govern

    if (word is None) == (record is None):
        raise UsageError("name either a resource or, with --record, a damaged record")
    if word is None and record is not None:
        if expect_holder is not None or scope is not None:
            raise UsageError("--record takes neither --scope nor --expect-holder")
        dropped = govern.drop_record(call.ledger, record, reason=reason)
        _answer(call, dropped, f"removed the damaged record {record}")
    elif word is not None:
        resource = call.resource(word)
        revoked = govern.revoke(
            call.ledger, resource, reason=reason, scope=scope, expect_holder=expect_holder
        )
        _answer(call, revoked, f"{resource} is not leased: nothing to revoke")


def _answer(call: Call, answer: Answer, otherwise: str) -> None:
    def show() -> None:
        for view in answer.leases:
            output.line(f"revoked {sentences.named(view)} from {sentences.whose(view)}")
        if not answer.leases:
            output.line(otherwise)

    call.answer_verb(answer, wire.changed(answer), show=show)
