"""Plans how git comes to call us, beside whatever calls hooks here already."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterable, Sequence

from gitlease.core.errors import Invalid
from gitlease.install.hooks.managers import (
    LEFTHOOK_SNIPPET,
    add_to_lefthook,
    add_to_pre_commit,
    hook_lines,
    is_snippet,
    lefthook_hooks,
    lefthook_snippet,
    own_call,
    pre_commit_ids,
    pre_commit_lines,
    without_section,
)
from gitlease.install.hooks.places import HUSKY, SCRIPTS, HookPlace, Way, read_file
from gitlease.install.hooks.shims import (
    ASIDE,
    READS_INPUT,
    SectionForm,
    find_section,
    is_current,
    section,
    shim,
)
from gitlease.install.hooks.write import HookChange, Plan

SHELLS = ("sh", "bash", "dash", "ash", "ksh", "mksh", "zsh", "busybox")


def plan_install(place: HookPlace, names: Sequence[str], *, yes: bool) -> Plan:
    """Plan the changes for these hooks. Without ``yes`` no file of a manager is changed.

    Nothing is done for a hook in which somebody's own script calls us: it would run twice.
    """
    own = [name for name in names if own_call(place, name) is not None]
    rest = [name for name in names if name not in own]
    plan = _PLANNERS[place.way](place, rest, yes) if rest else Plan(place.way)
    said = "call gitlease already, in lines of your own: left unchanged"
    told = [f"{', '.join(own)} {said}"] if own else []
    return Plan(plan.way, plan.changes, plan.lines, (*plan.notes, *told))


def _by_config(place: HookPlace, names: Sequence[str], yes: bool) -> Plan:
    # Git calls a script in the private folder; if that is gone, it is skipped and not a failure.
    changes = []
    for name in names:
        script = os.path.join(place.private, SCRIPTS, name)
        quoted = shlex.quote(script)
        if read_file(script) != shim(name):
            changes.append(
                HookChange(said=f"wrote {script}", path=script, new=shim(name), quiet=True)
            )
        wanted = {"command": f"test ! -x {quoted} || {quoted}", "event": name}
        for setting, value in wanted.items():
            key = f"hook.gitlease-{name}.{setting}"
            if place.config.get(key) != value:
                changes.append(HookChange(said=f"set {key}", setting=(key, value)))
    return Plan(place.way, tuple(changes))


def _by_files(place: HookPlace, names: Sequence[str], yes: bool) -> Plan:
    changes: list[HookChange] = []
    notes: list[str] = []
    for name in names:
        made = _hook_file(os.path.join(place.scripts, name), name, place, notes)
        changes += [made] if made else []
    if changes and not place.folder.startswith(os.path.join(os.path.dirname(place.private), "")):
        where = os.path.relpath(place.scripts, place.top)
        notes.append(f"{where} is in the work tree: commit it, and everyone has these hooks")
    return Plan(place.way, tuple(changes), (), tuple(notes))


def _by_husky(place: HookPlace, names: Sequence[str], yes: bool) -> Plan:
    plan = _by_files(place, names, yes)
    if yes or not plan.changes:
        return plan
    hooks = [os.path.basename(change.path) for change in plan.changes]
    said = "husky runs the hooks here: add these lines at the top, or use --yes"
    return Plan(place.way, (), _to_add(hooks, f"{HUSKY}/"), (said,))


def manager_install(way: Way, names: Iterable[str]) -> str:
    """The command with which a manager installs its own hooks."""
    if way is Way.LEFTHOOK:
        return "lefthook install"
    return "pre-commit install " + " ".join(f"-t {name}" for name in names)


def _by_pre_commit(place: HookPlace, names: Sequence[str], yes: bool) -> Plan:
    path = os.path.join(place.top, place.file)
    data = read_file(path) or b""
    before = without_section(data)
    if before is None and pre_commit_ids(data):
        return Plan(place.way, (), (), (f"{place.file} names our hooks already",))
    new = add_to_pre_commit(data if before is None else before, tuple(names))
    if new == data:
        return Plan(place.way)
    last = manager_install(place.way, names)
    if not yes or new is None:
        or_yes = "" if new is None else ", or use --yes"
        said = f"pre-commit runs the hooks here: add this to repos: in {place.file}{or_yes}"
        return Plan(place.way, (), (*pre_commit_lines(tuple(names)).splitlines(), last), (said,))
    change = HookChange(said=f"added our hooks to {place.file}", path=path, new=new)
    return Plan(place.way, (change,), (last,), (f"commit {place.file}",))


def _by_lefthook(place: HookPlace, names: Sequence[str], yes: bool) -> Plan:
    path, snippet = (os.path.join(place.top, n) for n in (place.file, LEFTHOOK_SNIPPET))
    data, there = read_file(path) or b"", read_file(snippet)
    wanted = lefthook_snippet(tuple(names))
    if os.path.lexists(snippet) and (there is None or not is_snippet(there)):
        if lefthook_hooks(there, data) >= {*names}:
            return Plan(place.way, (), (), (f"{place.file} names our hooks already",))
        raise Invalid(f"{LEFTHOOK_SNIPPET} is here and is not ours", hints=("move it away",))
    named = LEFTHOOK_SNIPPET.encode() in data
    if named and there == wanted:
        return Plan(place.way)
    typed = () if named else (f"extends: [{LEFTHOOK_SNIPPET}]",)
    if not yes:
        lines = (f"# {LEFTHOOK_SNIPPET}", *wanted.decode().splitlines()[1:])
        said = f"lefthook runs the hooks here: write these lines to {LEFTHOOK_SNIPPET}"
        more = (f"# {place.file}", *typed) if typed else ()
        return Plan(place.way, (), (*lines, *more), (f"{said}, or use --yes",))
    changes = [HookChange(said=f"wrote {LEFTHOOK_SNIPPET}", path=snippet, new=wanted, mode=0o644)]
    is_yaml = place.file.endswith((".yml", ".yaml"))
    new = add_to_lefthook(data) if is_yaml and not named else None
    if new is not None:
        changes.append(HookChange(said=f"added it to {place.file}", path=path, new=new))
        typed = ()
    notes = [f"commit {LEFTHOOK_SNIPPET} and {place.file}"]
    notes += [f"{place.file} has another layout: add the line to it"] if typed else []
    return Plan(
        place.way, tuple(changes), (*typed, manager_install(place.way, names)), tuple(notes)
    )


def _by_nobody(place: HookPlace, names: Sequence[str], yes: bool) -> Plan:
    return Plan(
        place.way,
        (),
        _to_add(names),
        (
            f"git looks for hooks in {place.folder}, outside of this clone: nothing is written",
            "add these lines to the scripts in that folder, below their first line, or unset "
            "core.hooksPath here",
        ),
    )


def _to_add(names: Sequence[str], folder: str = "") -> tuple[str, ...]:
    lines: list[str] = []
    for name in names:
        read = " (standard input is read, and passed on to what follows)"
        lines += [f"# {folder}{name}{read if name in READS_INPUT else ''}", *hook_lines(name)]
    return tuple(lines)


_PLANNERS = {
    Way.CONFIG: _by_config,
    Way.PRE_COMMIT: _by_pre_commit,
    Way.LEFTHOOK: _by_lefthook,
    Way.HUSKY: _by_husky,
    Way.FOLDER: _by_files,
    Way.OUTSIDE: _by_nobody,
}


def _hook_file(path: str, name: str, place: HookPlace, notes: list[str]) -> HookChange | None:
    """The change that makes one hook file call us; None if it does already, or cannot."""
    if not os.path.lexists(path):
        return HookChange(said=f"created {path}", path=path, new=shim(name))
    if stat.S_ISDIR(os.lstat(path).st_mode):
        notes.append(f"{path} is a folder: left unchanged")
        return None
    data = read_file(path)
    placed = None if data is None else find_section(data, name)
    if data is not None and placed is not None:
        if is_current(placed, name):
            return None
        new = data[: placed.start] + section(name, placed.form) + data[placed.end :]
        return HookChange(said=f"updated our section in {path}", path=path, new=new)
    at = None if data is None else _after_shebang(path, data, husky=place.way is Way.HUSKY)
    if data is not None and at is not None:
        new = data[:at] + section(name, SectionForm.SECTION) + data[at:]
        return HookChange(said=f"added a section to {path}", path=path, new=new)
    aside = path + ASIDE
    if place.way is Way.HUSKY or os.path.lexists(aside):
        why = (
            "is not a shell script" if place.way is Way.HUSKY else f"cannot be set aside as {aside}"
        )
        notes.append(f"{path} {why}: left unchanged")
        return None
    return HookChange(
        said=f"created {path}, which goes on to {aside}",
        path=path,
        new=shim(name, SectionForm.CHAIN),
        aside=aside,
    )


def _after_shebang(path: str, data: bytes, *, husky: bool) -> int | None:
    # At the very beginning, so that no exit comes before it. None for what is not a shell script,
    # and for a script that is switched off: it must stay off.
    line, newline, _ = data.partition(b"\n")
    if not line.startswith(b"#!"):
        return 0 if husky and b"\0" not in data else None
    words = line[2:].split()
    while words and (os.path.basename(words[0]) == b"env" or words[0].startswith(b"-")):
        del words[0]
    shell = os.path.basename(words[0]).decode("latin-1") if words else ""
    runs = husky or os.access(path, os.X_OK)
    good = shell in SHELLS and newline and not line.endswith(b"\r") and b"\0" not in data
    return len(line) + 1 if runs and good else None
