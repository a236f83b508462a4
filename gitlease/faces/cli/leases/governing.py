"""``note``, which anyone may, and ``revoke``, which the ledger's admins may."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gitlease.core.errors import UsageError
from gitlease.faces import sentences, wire
from gitlease.faces.cli import output, types
from gitlease.faces.cli.leases.claiming import any_option
from gitlease.faces.cli.verb import LEASE_EXITS, Verb, option

if TYPE_CHECKING:
    from gitlease.engine.answers import Answer
    from gitlease.faces.cli.call import Call

EXITS = tuple(status for status in LEASE_EXITS if status != 1)


@click.command(
    "note",
    cls=Verb,
    help="""Leave a note for the next holder of RESOURCE; anyone may, lease or not.

`show` and every claim show it until the work is done.""",
    examples=(
        "gitlease note F001 'the fixture in tests/api is flaky'",
        "gitlease note src/auth/ 'ask jo before touching the tokens'",
    ),
    exits=EXITS,
    done="the note is left",
)
@click.argument("word", metavar="RESOURCE", shell_complete=types.known_names)
@click.argument("text", metavar="TEXT", type=types.note)
@any_option
@click.pass_obj
def note_verb(call: Call, *, word: str, text: str, any: bool) -> None:
    from gitlease.engine import govern
    from gitlease.engine.reading import check_known
    from gitlease.faces.cli.read.reading import check_layer

    resource = call.resource(word)
    if not any:
        check_layer(call)
        check_known(call.ledger, [resource])
    answer = govern.note(call.ledger, resource, text)
    call.answer_verb(
        answer,
        wire.changed(answer) | {"notes": [wire.note(n) for n in answer.notes]},
        show=lambda: output.line(f"left your note for the next holder of {resource}"),
    )


@click.command(
    "revoke",
    cls=Verb,
    help="""End someone else's lease. For the ledger's admins; recorded, and told to its holder.

A holder that is gone for good needs no revocation: a lease that is not renewed ends by itself. Who
the admins are is the ledger's policy (`config --ledger admins`); until it is set nobody is.""",
    examples=(
        "gitlease revoke F001 --reason 'the machine is gone'",
        "gitlease revoke F001 --reason 'stuck run' --expect-holder jo@example.com",
        "gitlease revoke --record leases/ab/cd.yaml --reason 'cannot be read'",
    ),
    exits=LEASE_EXITS,
    done="nobody holds it",
    scope="Only this scope (default: all).",
)
@click.argument("word", metavar="RESOURCE", shell_complete=types.known_names, required=False)
@option(
    "--reason",
    metavar="TEXT",
    type=types.reason,
    required=True,
    help="Why: the holder is shown it.",
)
@option("--expect-holder", metavar="H", help="Only if H holds it; refused otherwise.")
@option("--record", metavar="FILE", help="Drop this damaged record instead.")
@click.pass_obj
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
        raise UsageError("name a resource or, with --record, the file of a damaged record")
    if word is None and record is not None:
        if expect_holder is not None or scope is not None:
            raise UsageError("--record takes neither --scope nor --expect-holder")
        dropped = govern.drop_record(call.ledger, record, reason=reason)
        _answer(call, dropped, f"dropped the damaged record {record}")
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
