"""Installs git's hooks beside those that are there, removes them to the byte, and proves them.

Everything is planned before anything is written. The files themselves are the only record, so that
hooks can be removed no matter who installed them.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from gitlease.guard import hook_places
from gitlease.guard.hook_places import HookPlace, SectionForm, Way
from gitlease.kernel.git.files import Notes, notes_of, replace_file, share
from gitlease.kernel.git.repository import TIMEOUT, Repository
from gitlease.kernel.git.run import own_archive, run_git
from gitlease.kernel.rules.errors import Invalid, hint, shown
from gitlease.kernel.rules.frozen import dataclass

# Only in scripts of these a section of sh can stand.
SHELLS = ("sh", "bash", "dash", "ash", "ksh", "mksh", "zsh", "busybox")


@dataclass(frozen=True)
class HookChange:
    """A planned change of a file or of a setting: in words, and the function that makes it."""

    text: str
    make: Callable[[], object]
    file: str = ""
    quiet: bool = False


@dataclass(frozen=True)
class Plan:
    """Changes to make, ``lines`` for a person to add, and notes. ``where`` is written to."""

    way: Way
    changes: tuple[HookChange, ...] = ()
    lines: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    where: str = ""

    @property
    def messages(self) -> tuple[str, ...]:
        return tuple(change.text for change in self.changes if not change.quiet)


# --- install ----------------------------------------------------------------------------------


def install_hooks(
    repository: Repository,
    names: Sequence[str] = hook_places.HOOKS,
    *,
    dry_run: bool = False,
    program: str | None = None,
) -> Plan:
    """Install hooks and return what was done. No file of a hook manager is written.

    ``program`` is the gitlease that the hooks try before the one on PATH; by default the one that
    runs now. Raises Invalid without a work tree, and if something cannot be written.
    """
    place = hook_places.find_place(repository)
    wanted = [name for name in hook_places.HOOKS if name in names]
    called = [name for name in wanted if hook_places.own_call(place, name) is not None]
    changes: list[HookChange] = []
    lines: tuple[str, ...] = ()
    notes: list[str] = []
    # Nothing is done for a hook in which somebody's own script calls us: it would run twice.
    if rest := [name for name in wanted if name not in called]:
        if place.way is Way.CONFIG:
            changes += _by_config(place, rest)
        elif place.way is Way.FOLDER:
            files = (_hook_file(os.path.join(place.folder, x), x, notes) for x in rest)
            changes += [change for change in files if change is not None]
            common = os.path.join(repository.common_dir, "")
            if changes and not place.folder.startswith(common):
                where = os.path.relpath(place.folder, place.top)
                notes.append(
                    f"{where} is in the work tree: commit it, and everyone has these hooks"
                )
        else:
            lines, more = hook_places.lines_to_add(place, rest)
            notes += more
    if called:
        notes.append(
            f"{', '.join(called)} call gitlease already, in lines of your own: left unchanged"
        )
    if changes or place.way is Way.FOLDER:
        program = own_program() if program is None else program
        path = os.path.join(place.private, hook_places.PROGRAM)
        data = os.fsencode(f"{program}\n")
        if program and hook_places.read_file(path) != data:
            make = partial(_write, path, data, 0o644)
            # Written before any hook calls it.
            changes.insert(0, HookChange(f"noted {program}", make, path, quiet=True))
    if not dry_run:
        # A warning of core.hooksPath from before says nothing about what is installed now.
        Notes(place.private).drop(hook_places.HOOKS_PATH, "")
        _carry_out(changes)
    where = "git's configuration"
    if place.way is not Way.CONFIG:
        where = os.path.relpath(place.folder, place.top)
    return Plan(place.way, tuple(changes), lines, tuple(notes), where)


def own_program() -> str | None:
    """The gitlease that runs now, as a file that a shell can start; None if it is not one."""
    beside = os.path.join(os.path.dirname(sys.executable), "gitlease")
    for path in (os.path.abspath(sys.argv[0]), beside):
        # Python may have been started with -m: then only the program beside it can be started.
        named = os.path.basename(path) in ("gitlease", "git-lease") or path == own_archive()
        if named and os.path.isfile(path) and os.access(path, os.X_OK) and "\n" not in path:
            return path
    return None


def _by_config(place: HookPlace, names: Sequence[str]) -> Iterator[HookChange]:
    # Git calls a script in the private folder; if that is gone, or a pipe is in its place, it is
    # skipped and not a failure.
    for name in names:
        script = place.script(name)
        quoted = shlex.quote(script)
        if hook_places.read_file(script) != hook_places.shim(name):
            make = partial(_write, script, hook_places.shim(name))
            yield HookChange(f"wrote {script}", make, script, quiet=True)
        elif not os.access(script, os.X_OK):
            yield _switched_on(script)
        # A clone that is copied, or whose private folder is deleted, keeps its configuration.
        called = f"test ! -f {quoted} || test ! -x {quoted} || {quoted}"
        wanted = {"command": called, "event": name}
        for setting, value in wanted.items():
            key = f"hook.gitlease-{name}.{setting}"
            if place.config.get(key) != value:
                words = ("--replace-all", key, value)
                yield HookChange(f"set {key}", partial(_configure, place, words))


def _hook_file(path: str, name: str, notes: list[str]) -> HookChange | None:
    """The change that makes one hook file call us; None if it does already, or cannot."""
    if not os.path.lexists(path):
        return HookChange(f"created {path}", partial(_write, path, hook_places.shim(name)), path)
    if stat.S_ISDIR(os.lstat(path).st_mode):
        notes.append(f"{path} is a folder: left unchanged")
        return None
    data = hook_places.read_file(path)
    placed = None if data is None else hook_places.find_section(data, name)
    if data is not None and placed is not None:
        if hook_places.is_current(placed, name):
            # Somebody's own script may be off on purpose.
            if os.access(path, os.X_OK) or data != hook_places.shim(name):
                return None
            return _switched_on(path)
        new = data[: placed.start] + hook_places.section(name, placed.form) + data[placed.end :]
        return HookChange(f"updated our section in {path}", partial(_write, path, new), path)
    at = None if data is None else _after_shebang(path, data)
    if data is not None and at is not None:
        new = data[:at] + hook_places.section(name, SectionForm.SECTION) + data[at:]
        return HookChange(f"added a section to {path}", partial(_write, path, new), path)
    aside = path + hook_places.ASIDE
    # A hook set aside is never written over: it is the only copy.
    if os.path.lexists(aside):
        notes.append(f"{path} cannot be set aside as {aside}: left unchanged")
        return None
    make = partial(_chain, path, hook_places.shim(name, SectionForm.CHAIN), aside)
    return HookChange(f"created {path}, which goes on to {aside}", make, path)


def _switched_on(path: str) -> HookChange:
    return HookChange(f"made {path} executable", partial(os.chmod, path, 0o755), path)


def _after_shebang(path: str, data: bytes) -> int | None:
    # At the very beginning, so that no exit comes before it. None for what is not a shell script,
    # and for a script that is switched off: it must stay off.
    line, newline, _ = data.partition(b"\n")
    words = line[2:].split() if line.startswith(b"#!") else []
    while words and (os.path.basename(words[0]) == b"env" or words[0].startswith(b"-")):
        del words[0]
    shell = os.path.basename(words[0]).decode("latin-1") if words else ""
    good = shell in SHELLS and newline and not line.endswith(b"\r") and b"\0" not in data
    return len(line) + 1 if good and os.access(path, os.X_OK) else None


# --- uninstall --------------------------------------------------------------------------------


def uninstall(repository: Repository, *, dry_run: bool = False) -> Plan:
    """Remove every hook of ours, and return what was done and what is left to do by hand."""
    place = hook_places.find_place(repository)
    notes: list[str] = []
    changes = [*_removals(place, repository, notes)]
    program = os.path.join(place.private, hook_places.PROGRAM)
    if os.path.lexists(program):
        make = partial(os.unlink, program)
        changes.append(HookChange(f"removed {program}", make, program, quiet=True))
    for name in (*hook_places.PRE_COMMIT_FILES, *hook_places.LEFTHOOK_FILES):
        data = hook_places.read_file(os.path.join(place.top, name)) or b""
        if hook_places.pre_commit_ids(data) or hook_places.LEFTHOOK_SNIPPET.encode() in data:
            notes.append(f"{name} names our hooks in lines of yours: they stay")
    if not dry_run:
        _carry_out(changes)
        folders = {os.path.dirname(change.file) for change in changes} - {""}
        # The inner ones first.
        for folder in sorted(folders, key=len, reverse=True):
            with contextlib.suppress(OSError):  # somebody else's files are in it
                os.rmdir(folder)
    return Plan(place.way, tuple(changes), (), tuple(notes))


def _removals(place: HookPlace, repository: Repository, notes: list[str]) -> Iterator[HookChange]:
    """The changes that remove our hooks. Notes say what is left to a person, and why."""
    settings = dict.fromkeys(
        entry.key.rpartition(".")[0]
        for entry in repository.config.section("hook")
        if entry.key.startswith("hook.gitlease-") and entry.scope == "local"
    )
    for key in settings:
        yield HookChange(f"unset {key}", partial(_configure, place, ("--remove-section", key)))
    common = os.path.join(repository.common_dir, "hooks")
    husky = os.path.join(place.top, hook_places.HUSKY)
    for folder in dict.fromkeys((place.folder, common, husky)):
        if hook_places.is_own(repository, folder):
            for path, name in hook_places.marked_files(folder):
                yield from _hook_out(path, name, notes)
    scripts = os.path.join(place.private, hook_places.SCRIPTS)
    for path, _ in hook_places.marked_files(scripts):
        yield HookChange(f"removed {path}", partial(os.unlink, path), path, quiet=True)


def _hook_out(path: str, name: str, notes: list[str]) -> Iterator[HookChange]:
    data = hook_places.read_file(path)
    placed = None if data is None else hook_places.find_section(data, name)
    if data is None or placed is None:
        notes.append(f"{path} has half a section of ours: remove it by hand")
        return
    rest = data[: placed.start] + data[placed.end :]
    alone = placed.form is not SectionForm.SECTION and rest == hook_places.SHEBANG
    # A manager may have moved ours since, apart from what was set aside.
    folder, above = os.path.dirname(path), os.path.dirname(os.path.dirname(path))
    folders = [folder, above] if os.path.basename(folder) == hook_places.BACKUPS else [folder]
    beside = path + hook_places.ASIDE
    moved = [beside, *(os.path.join(x, name + hook_places.ASIDE) for x in folders)]
    aside = next(filter(os.path.lexists, moved), beside)
    chained = placed.form is SectionForm.CHAIN and os.path.lexists(aside)
    if alone and chained:
        yield HookChange(f"put {path} back", partial(os.replace, aside, path), path)
    elif alone:
        yield HookChange(f"removed {path}", partial(os.unlink, path), path)
    else:
        if placed.form is not SectionForm.SECTION:
            notes.append(f"{path} has lines of yours: only our section is removed")
        if chained:
            notes.append(f"{aside} is the hook that was here before: put it back by hand")
        yield HookChange(f"removed our section from {path}", partial(_write, path, rest), path)


# --- carrying out -----------------------------------------------------------------------------


def _carry_out(changes: Sequence[HookChange]) -> None:
    for change in changes:
        try:
            change.make()
        except OSError as error:
            raise Invalid(
                f"{change.file} cannot be written: {error.strerror}",
                hints=(hint("{} undoes what was done before", "hooks uninstall"),),
            ) from None


def _configure(place: HookPlace, words: Sequence[str]) -> None:
    done = run_git(("config", "--local", *words), cwd=place.top, timeout=TIMEOUT, repository=True)
    if done.code != 0 or done.timed_out:
        raise Invalid(f"git cannot set {words[1]}: {done.err.strip()[:200]}")


def _write(path: str, data: bytes, mode: int = 0o755) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    hook_places.rewrite_file(path, data, mode=mode)


def _chain(path: str, data: bytes, aside: str) -> None:
    os.rename(path, aside)
    try:
        replace_file(path, data, mode=0o755)
    except BaseException:
        # Not half of it: without this git would run no hook at all.
        os.rename(aside, path)
        raise
    share(path)


# --- status -----------------------------------------------------------------------------------

# The probe ends each hook at our section, which is before anything else in it. Other hooks, from
# git's configuration or from a folder, are switched off for it. A hook manager is asked to run our
# hook alone. A gitlease that is probed only answers.
OWN_WAY = "your own hook"
NO_PROGRAM = "it finds no gitlease to start"
OFF = "not executable"
_ANSWER = re.compile(rf"^{hook_places.ANSWER} ([a-z-]+) v(\d+) ?(.*)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class HookState:
    """One hook of git. ``live``: git calls us in it. ``proven``: the probe just showed that.

    ``current`` is None without a section to compare; ``program`` is the gitlease that it would
    start, if any. ``problem`` says what is wrong, ``""`` for nothing. ``awaits``: the manager has
    it in its file, but has not installed its own hook.
    """

    name: str
    way: str = ""
    live: bool = False
    proven: bool = False
    current: bool | None = None
    program: str | None = None
    problem: str = ""
    awaits: bool = False


def hook_states(repository: Repository) -> tuple[HookState, ...]:
    """The state of every hook that gitlease uses."""
    place = hook_places.find_place(repository)
    return tuple(_state(place, name) for name in hook_places.HOOKS)


def warn_once(repository: Repository, hooks_path: str) -> str:
    """Say that git's hooks no longer call us since ``core.hooksPath`` is set; once for each value.

    ``""`` if they do, were never installed, or somebody was warned already.
    """
    notes = notes_of(repository.common_dir)
    program = os.path.join(repository.common_dir, "gitlease", hook_places.PROGRAM)
    if not os.path.exists(program) or notes.get(hook_places.HOOKS_PATH, "") == hooks_path:
        return ""
    notes.put(hook_places.HOOKS_PATH, "", hooks_path, at=0)
    with contextlib.suppress(OSError, Invalid):
        if not _state(hook_places.find_place(repository), "pre-commit").live:
            return (
                f"core.hooksPath is {shown(hooks_path)}, and git no longer calls gitlease's hooks"
            )
    return ""


def _state(place: HookPlace, name: str) -> HookState:
    state, hook = partial(HookState, name=name), os.path.join(place.folder, name)
    script, way = hook, place.way.value
    if name in hook_places.managed_hooks(place):
        made_by_manager = hook_places.read_file(hook) or b""
        is_made = hook_places.MADE[place.way].search(made_by_manager) is not None
        live = is_made and os.access(hook, os.X_OK)
        proven = live and _manager_answers(place, name, made_by_manager)
        problem = "" if proven else f"{way} did not answer for it"
        if not live:
            command = hook_places.manager_install(place.way, [name])
            problem = f"git does not call {way} yet: {command}"
        return state(way=way, live=live, proven=proven, problem=problem, awaits=not live)
    if place.way is Way.CONFIG:
        configured = os.path.lexists(place.script(name))
        script, way = (place.script(name), way) if configured else (script, Way.FOLDER.value)
    data = hook_places.read_file(script)
    made = data is not None and hook_places.MADE[Way.PRE_COMMIT].search(data) is not None
    moved = hook_places.read_file(script + hook_places.LEGACY) if made else None
    if data is not None and moved is not None and hook_places.find_section(moved, name) is not None:
        # pre-commit moved ours away, and runs it before its own.
        runs = os.access(script, os.X_OK) and os.access(script + hook_places.LEGACY, os.X_OK)
        words = ["hook-impl", "--config=/dev/null/none", f"--hook-type={name}"]
        words += ["--hook-dir", os.path.dirname(script), "--skip-on-missing-config", "--"]
        proven = runs and _asked_manager(place, name, data, words)
        way = f"{Way.PRE_COMMIT.value} ({name}{hook_places.LEGACY})"
        problem = "" if runs else OFF
        program = _program(place, noted=True)
        return state(way=way, live=runs, proven=proven, program=program, problem=problem)
    placed = None if data is None else hook_places.find_section(data, name)
    program = _program(place, noted=placed is not None)
    if placed is None:
        # Somebody's own script is not run: it may do anything.
        caller = hook_places.own_call(place, name)
        if caller is None:
            return state(problem="not installed")
        runs, problem = os.access(hook, os.X_OK), ""
        if program is None or not runs:
            problem = f"{caller} calls it, but is not executable" if program else NO_PROGRAM
        return state(way=OWN_WAY, live=not problem, program=program, problem=problem)
    if program is None:
        return state(way=way, problem=NO_PROGRAM)
    live, proven = os.access(script, os.X_OK), False
    problem = "" if live else f"{OFF}: chmod +x {shlex.quote(script)}"
    if place.git >= hook_places.HOOK_RUN:
        # With the hooks of others off; a script of ours needs no folder of hooks.
        off = [f"hook.{other}.enabled=false" for other in place.other_hooks]
        off += ["core.hooksPath=/dev/null"] if script == place.script(name) else []
        options = [word for setting in off for word in ("-c", setting)]
        live = proven = ask_hook(name, place.top, *options) is not None
        problem = "" if live else problem or "it is installed, but does not answer when git runs it"
    current = hook_places.is_current(placed, name)
    if live and not current:
        problem = "of another version, or edited: gitlease hooks install"
    state = partial(state, way=way, program=program, problem=problem)
    return state(live=live, proven=proven, current=current)


def _program(place: HookPlace, *, noted: bool) -> str | None:
    # The one that was noted, or the one on PATH.
    data = hook_places.read_file(os.path.join(place.private, hook_places.PROGRAM)) or b""
    path = os.fsdecode(data).partition("\n")[0]
    there = noted and os.path.isfile(path) and os.access(path, os.X_OK)
    return path if there else shutil.which("gitlease")


def _manager_answers(place: HookPlace, name: str, script: bytes) -> bool:
    """Return whether a manager calls our hook when it is asked to run that alone."""
    if place.way is Way.LEFTHOOK:
        # Its hook hands on what git is given.
        passes_on = re.search(hook_places.LEFTHOOK_CALL % name.encode(), script, re.MULTILINE)
        if place.git < hook_places.HOOK_RUN or not passes_on:
            return False
        # Nothing else is touched by a probe: lefthook stages and installs of its own accord.
        kept = ("--no-stage-fixed", "--no-auto-install", "--force")
        return any(
            ask_hook(name, place.top, after=(option, "gitlease", *kept)) is not None
            for option in ("--command", "--commands")  # of its versions 2 and 1
        )
    item, hook = next(
        (item, hook) for item, _, hook, stages in hook_places.PRE_COMMIT_ITEMS if name in stages
    )
    # With files named it leaves the work tree as it is, instead of setting aside what is unstaged.
    words = ("run", item, "--verbose", "--hook-stage", name, "-c", place.file)
    files = ("--files", place.file, "--commit-msg-filename", os.devnull)
    return _asked_manager(place, hook, script, (*words, *files))


def _asked_manager(place: HookPlace, hook: str, script: bytes, words: Sequence[str]) -> bool:
    program = hook_places.pre_commit_program(script)
    if program is None:
        return False
    try:
        ran = subprocess.run(
            [*program, *words],
            cwd=place.top,
            # SKIP of the caller's must not make an installed hook look dead.
            env={**os.environ, hook_places.PROBE: "1", hook_places.SKIP: ""},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return _answer(hook, ran.stdout + ran.stderr) is not None


def ask_hook(
    name: str, cwd: str, *options: str, after: Sequence[str] = (), repository: bool = True
) -> str | None:
    """The gitlease that a hook would start, as it answers through git; None without an answer.

    ``after``: the arguments of the hook.
    """
    ran = run_git(
        (*options, "hook", "run", "--ignore-missing", name, *(["--", *after] if after else [])),
        cwd=cwd,
        timeout=TIMEOUT,
        env={hook_places.PROBE: "1", hook_places.SKIP: ""},
        repository=repository,
    )
    return _answer(name, ran.out + ran.err.encode())


def _answer(name: str, output: bytes) -> str | None:
    answers = _ANSWER.finditer(output.decode("utf-8", "replace"))
    return next((match[3].strip() for match in answers if match[1] == name), None)
