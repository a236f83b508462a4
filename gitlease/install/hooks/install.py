"""Puts hooks in place beside what is there, and takes them out again to the byte.

Everything is planned before anything is written. What can be told from the files themselves is
kept nowhere else, so that hooks can be taken out whoever put them in.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence

from gitlease.core.frozen import replace
from gitlease.git.repository import Repository
from gitlease.install.hooks.places import PROGRAM, HookPlace, Way, find_place, read_file
from gitlease.install.hooks.plan import plan_install
from gitlease.install.hooks.removal import plan_uninstall
from gitlease.install.hooks.shims import HOOKS
from gitlease.install.hooks.write import HookChange, Plan, carry_out


def install(
    repository: Repository,
    names: Sequence[str] = HOOKS,
    *,
    yes: bool = False,
    dry_run: bool = False,
    program: str | None = None,
) -> Plan:
    """Put hooks in place and say what was done. Without ``yes`` no file of a manager is written.

    ``program`` is the gitlease that the hooks try before the one on PATH; by default the one that
    runs now. Raises Invalid where there is no work tree, and where something cannot be written.
    """
    place = find_place(repository)
    wanted = tuple(name for name in HOOKS if name in names)
    plan = plan_install(place, wanted, yes=yes)
    if plan.changes or place.way is Way.FOLDER:
        changes = (*_private(place, program), *plan.changes)
        plan = replace(plan, changes=changes, where=place.where)
    if not dry_run:
        carry_out(place, plan)
    return plan


def uninstall(repository: Repository, *, dry_run: bool = False) -> Plan:
    """Take out every hook of ours, however it came in, and say what was done and what was left."""
    place = find_place(repository)
    plan = plan_uninstall(place, repository)
    if not dry_run:
        carry_out(place, plan)
        for folder in {os.path.dirname(change.path) for change in plan.changes} - {""}:
            with contextlib.suppress(OSError):  # somebody else's files are in it
                os.rmdir(folder)
    return plan


def own_program() -> str | None:
    """The gitlease that runs now, as a file that a shell can start; None where there is none."""
    beside = os.path.join(os.path.dirname(sys.executable), "gitlease")
    for path in (os.path.abspath(sys.argv[0]), beside):
        named = os.path.basename(path) in ("gitlease", "git-lease")
        if named and os.path.isfile(path) and os.access(path, os.X_OK) and "\n" not in path:
            return path
    return None


def _private(place: HookPlace, program: str | None) -> Iterator[HookChange]:
    """What hooks find in the private folder: which gitlease to start."""
    program = own_program() if program is None else program
    path = os.path.join(place.private, PROGRAM)
    if program:
        new = os.fsencode(program) + b"\n"
        if read_file(path) != new:
            yield HookChange(said=f"noted {program}", path=path, new=new, mode=0o644, quiet=True)
