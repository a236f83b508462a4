"""``uninstall``: everything of gitlease out of a clone, and what is left to say of the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gitlease.core.errors import GitleaseError
from gitlease.core.lease import same_person
from gitlease.faces.cli import output, refusals
from gitlease.faces.cli.verb import Verb, flag
from gitlease.faces.codes import Violations

if TYPE_CHECKING:
    from gitlease.faces.cli.call import Call


@click.command(
    "uninstall",
    cls=Verb,
    help="""Take gitlease out of this clone: git's hooks, the hooks and tools of coding agents,
settings, and what it keeps in the clone. Refused while you hold leases that this clone knows of.

Others are not concerned: .gitlease.yaml is only removed from the work tree, and the ledger stays on
the remote until somebody deletes its ref, for everybody; the command for that is shown. So is what
could not be taken out. The program itself goes as it came (pip uninstall gitlease).""",
    examples=(
        "gitlease uninstall --dry-run",
        "gitlease uninstall",
        "gitlease uninstall --user       # the agents' handlers in your own files as well",
    ),
    exits=(1, 2, 7, 128),
    done="done, or there was nothing to take out",
    no=("violations",),
    session=False,
)
@flag("--dry-run", help="Say what would be done, and do nothing.")
@flag("--user", help="Also the agents' hooks in your own files, for all repositories.")
@click.pass_obj
def uninstall_verb(call: Call, *, dry_run: bool, user: bool) -> int | None:
    from gitlease.install.removal import remove_all
    from gitlease.wiring.workspace import find_repository

    repository = find_repository(call.directory or ".")
    held, stays = _known(call)
    if held and not dry_run:
        hints = (call.typed("release", options=["--all"]), call.typed("session", "list"))
        raise Violations(f"you hold {', '.join(held[:5])} here: release it first", hints=hints)
    found = remove_all(repository, user=user, dry_run=dry_run)
    body = {"dry_run": dry_run, "done": list(found.done), "stays": stays}

    def show() -> None:
        if dry_run:
            output.line("would do:")
        output.lines(found.done or ["there is nothing of gitlease in this clone"])
        for text in stays:
            output.whole(text)

    if not found.failed:
        call.answer(body, show=show)
        return None
    if not call.json:
        show()
    error = Violations(f"could not be taken out: {'; '.join(found.failed)}")
    return refusals.tell(call, error, body=body)


def _known(call: Call) -> tuple[list[str], list[str]]:
    """What the person holds by what this clone knows, and what stays; nothing where it is broken"""
    held: list[str] = []
    stays: list[str] = []
    try:
        spaces = call.workspace.in_use
        place = call.workspace.location
        for space in spaces:
            look = space.ledger.known_look()
            views = space.ledger.views(look, look.leases) if look is not None else ()
            holder = space.identity.actor.holder
            held += [
                x.resource for x in views if x.state == "active" and same_person(x.holder, holder)
            ]
            if look is not None and place.url is not None:
                ref = f"{space.settings.ref_prefix}/{space.layer}"
                stays.append(
                    f"the ledger {space.layer} stays; to delete it for everybody: "
                    f"git push {place.name or 'URL'} :{ref}"
                )
    except GitleaseError:
        pass
    return held, stays
