"""``uninstall``: remove gitlease from a clone, and show what remains elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gitlease.core.errors import GitleaseError
from gitlease.core.lease import same_person
from gitlease.faces.cli import output
from gitlease.faces.cli.verb import flag, verb
from gitlease.faces.codes import Violations

if TYPE_CHECKING:
    from gitlease.faces.cli.call import Call


@verb(
    "uninstall",
    """Remove gitlease from this clone: git's hooks, the hooks and tools of coding agents, settings,
and its private files. Refused while you hold leases that this clone knows of.

Others are not affected: .gitlease.yaml is removed from the work tree only, and the ledger stays on
the remote until someone deletes its ref, for everyone. The command for that is shown, and so is
anything that could not be removed. To remove the program itself: pip uninstall gitlease.""",
    examples=(
        "gitlease uninstall --dry-run",
        "gitlease uninstall",
        "gitlease uninstall --user       # also the agents' hooks in your own files",
    ),
    exits=(1, 2, 7, 128),
    done="removed, or there was nothing to remove",
    no=("violations",),
    session=False,
)
@flag("--dry-run", help="Print what would be done, and do nothing.")
@flag("--user", help="Also the agents' hooks in your own files, for all repositories.")
def uninstall_verb(call: Call, *, dry_run: bool, user: bool) -> int | None:
    from gitlease.install.removal import remove_all
    from gitlease.wiring.workspace import find_repository

    repository = find_repository(call.directory or ".")
    held, stays = _known(call)
    if held and not dry_run:
        hints = (call.typed("release", options=["--all"]), call.typed("session", "list"))
        raise Violations(f"you still hold {', '.join(held[:5])}: release it first", hints=hints)
    found = remove_all(repository, user=user, dry_run=dry_run)
    body = {"dry_run": dry_run, "done": list(found.done), "stays": stays}

    def show() -> None:
        done = [f"would have {text}" for text in found.done] if dry_run else found.done
        output.lines(done or ["gitlease is not installed in this clone"])
        for text in stays:
            output.whole(text)

    if not found.failed:
        call.answer(body, show=show)
        return None
    error = Violations(f"could not be removed: {'; '.join(found.failed)}")
    return call.fail(error, body, show=show)


def _known(call: Call) -> tuple[list[str], list[str]]:
    """Return the caller's cached leases, and what remains elsewhere; both empty on errors."""
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
                    f"the ledger {space.layer} stays; to delete it for everyone: "
                    f"git push {place.name or 'URL'} :{ref}"
                )
    except GitleaseError:
        pass
    return held, stays
