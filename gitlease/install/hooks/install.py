"""Installs hooks beside those that are there, and removes them again to the byte.

Everything is planned before anything is written. The files themselves are the only record, so that
hooks can be removed no matter who installed them.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence

from gitlease.core.frozen import replace
from gitlease.git.repository import Repository
from gitlease.install.hooks.managers import (
    LEFTHOOK_SNIPPET,
    is_snippet,
    pre_commit_ids,
    without_section,
)
from gitlease.install.hooks.places import (
    BACKUPS,
    HUSKY,
    LEFTHOOK_FILES,
    PRE_COMMIT_FILES,
    PROGRAM,
    SCRIPTS,
    HookPlace,
    Way,
    find_place,
    is_own,
    marked_files,
    read_file,
)
from gitlease.install.hooks.plan import plan_install
from gitlease.install.hooks.shims import (
    ASIDE,
    FORMER_HOOK,
    HOOKS,
    SHEBANG,
    SectionForm,
    find_section,
)
from gitlease.install.hooks.status import HOOKS_PATH
from gitlease.install.hooks.write import HookChange, Plan, carry_out

REMOVED = (*HOOKS, FORMER_HOOK)


def install(
    repository: Repository,
    names: Sequence[str] = HOOKS,
    *,
    yes: bool = False,
    dry_run: bool = False,
    program: str | None = None,
) -> Plan:
    """Install hooks and return what was done. Without ``yes`` no file of a manager is written.

    ``program`` is the gitlease that the hooks try before the one on PATH; by default the one that
    runs now. Raises Invalid without a work tree, and if something cannot be written.
    """
    place = find_place(repository)
    wanted = tuple(name for name in HOOKS if name in names)
    plan = plan_install(place, wanted, yes=yes)
    if plan.changes or place.way is Way.FOLDER:
        changes = (*_note_program(place, program), *plan.changes)
        plan = replace(plan, changes=changes, where=place.where)
    former = _former_hook(place, repository)
    if not dry_run:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(place.private, HOOKS_PATH))
        carry_out(place, former)
        carry_out(place, plan)
    told = f"{FORMER_HOOK}: gitlease no longer uses this hook"
    notes = (f"{told} and {'would remove' if dry_run else 'removed'} it",) if former.changes else ()
    return replace(plan, notes=(*plan.notes, *notes))


def uninstall(repository: Repository, *, dry_run: bool = False) -> Plan:
    """Remove every hook of ours, and return what was done and what is left to do by hand."""
    place = find_place(repository)
    plan = plan_uninstall(place, repository)
    if not dry_run:
        carry_out(place, plan)
        for folder in {os.path.dirname(change.path) for change in plan.changes} - {""}:
            with contextlib.suppress(OSError):  # somebody else's files are in it
                os.rmdir(folder)
    return plan


def own_program() -> str | None:
    """The gitlease that runs now, as a file that a shell can start; None if it is not one."""
    beside = os.path.join(os.path.dirname(sys.executable), "gitlease")
    for path in (os.path.abspath(sys.argv[0]), beside):
        named = os.path.basename(path) in ("gitlease", "git-lease")
        if named and os.path.isfile(path) and os.access(path, os.X_OK) and "\n" not in path:
            return path
    return None


def _note_program(place: HookPlace, program: str | None) -> Iterator[HookChange]:
    program = own_program() if program is None else program
    path = os.path.join(place.private, PROGRAM)
    if program:
        new = os.fsencode(program) + b"\n"
        if read_file(path) != new:
            yield HookChange(said=f"noted {program}", path=path, new=new, mode=0o644, quiet=True)


def plan_uninstall(place: HookPlace, repository: Repository) -> Plan:
    """The changes that remove our hooks, and notes on what is left to a person and why."""
    notes: list[str] = []
    changes = [
        *_settings_out(repository, REMOVED),
        *_hooks_out(place, repository, REMOVED, notes),
        *_managers_out(place, notes),
    ]
    private = [os.path.join(place.private, SCRIPTS, name) for name in REMOVED]
    private.append(os.path.join(place.private, PROGRAM))
    changes += [
        HookChange(said=f"removed {path}", path=path, quiet=True)
        for path in private
        if os.path.lexists(path)
    ]
    return Plan(place.way, tuple(changes), (), tuple(notes))


def _former_hook(place: HookPlace, repository: Repository) -> Plan:
    notes: list[str] = []
    script = os.path.join(place.private, SCRIPTS, FORMER_HOOK)
    changes = [
        *_settings_out(repository, (FORMER_HOOK,)),
        *_hooks_out(place, repository, (FORMER_HOOK,), notes),
    ]
    if os.path.lexists(script):
        changes.append(HookChange(said=f"removed {script}", path=script))
    return Plan(place.way, tuple(changes))


def _settings_out(repository: Repository, hooks: Sequence[str]) -> Iterator[HookChange]:
    sections = dict.fromkeys(
        entry.key.rpartition(".")[0]
        for entry in repository.config.section("hook")
        if entry.key.startswith("hook.gitlease-") and entry.scope == "local"
    )
    for name in sections:
        if name.removeprefix("hook.gitlease-") in hooks:
            yield HookChange(said=f"unset {name}", setting=(name, ""))


def _hooks_out(
    place: HookPlace, repository: Repository, hooks: Sequence[str], notes: list[str]
) -> Iterator[HookChange]:
    for folder in _folders(place, repository):
        if is_own(repository, folder):
            for path, name in marked_files(folder):
                if name in hooks:
                    yield from _hook_out(path, name, notes)


def _folders(place: HookPlace, repository: Repository) -> tuple[str, ...]:
    folders = [place.scripts, place.folder, os.path.join(repository.common_dir, "hooks")]
    return tuple(dict.fromkeys((*folders, os.path.join(place.top, HUSKY))))


def _hook_out(path: str, name: str, notes: list[str]) -> Iterator[HookChange]:
    data = read_file(path)
    if data is None:
        return
    placed = find_section(data, name)
    if placed is None:
        if b"BEGIN gitlease" in data:
            notes.append(f"{path} has half a section of ours: remove it by hand")
        return
    rest = data[: placed.start] + data[placed.end :]
    own = placed.form is not SectionForm.SECTION and rest == SHEBANG
    aside = _aside_of(path, name)
    if own and placed.form is SectionForm.CHAIN and os.path.lexists(aside):
        yield HookChange(said=f"put {path} back", path=path, back=aside)
    elif own:
        yield HookChange(said=f"removed {path}", path=path)
    else:
        if placed.form is not SectionForm.SECTION:
            notes.append(f"{path} has lines of yours: only our section is removed")
        if placed.form is SectionForm.CHAIN and os.path.lexists(aside):
            notes.append(f"{aside} is the hook that was here before: put it back by hand")
        yield HookChange(said=f"removed our section from {path}", path=path, new=rest)


def _aside_of(path: str, name: str) -> str:
    """The hook that was set aside for ours, which a manager may have moved since."""
    folder = os.path.dirname(path)
    folders = [folder, *([os.path.dirname(folder)] if os.path.basename(folder) == BACKUPS else [])]
    places = [path + ASIDE, *(os.path.join(x, name + ASIDE) for x in folders)]
    return next(filter(os.path.lexists, places), path + ASIDE)


def _managers_out(place: HookPlace, notes: list[str]) -> Iterator[HookChange]:
    for name in (*PRE_COMMIT_FILES, *LEFTHOOK_FILES):
        path = os.path.join(place.top, name)
        data = read_file(path)
        if data is None:
            continue
        new = without_section(data)
        if new is not None:
            yield HookChange(said=f"removed our lines from {name}", path=path, new=new)
        if (new is None and pre_commit_ids(data)) or LEFTHOOK_SNIPPET.encode() in (new or data):
            notes.append(f"{name} names our hooks in lines of yours: they stay")
    snippet = os.path.join(place.top, LEFTHOOK_SNIPPET)
    data = read_file(snippet)
    if data is not None and is_snippet(data):
        yield HookChange(said=f"removed {LEFTHOOK_SNIPPET}", path=snippet)
