"""Which hooks are live, by their files, and by a probe that git itself runs.

The probe ends each hook at our section, which is before anything else in it. Other hooks, from
git's configuration or from a folder, are switched off for it. A hook manager is asked to run our
hook alone. A gitlease that is probed only answers.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Sequence

from gitlease.core.errors import Invalid, shown
from gitlease.core.frozen import dataclass
from gitlease.git.files import replace_file
from gitlease.git.repository import TIMEOUT, Repository
from gitlease.git.run import run_git
from gitlease.install.hook_places import (
    HOOK_RUN,
    HOOKS_PATH,
    MADE,
    PROGRAM,
    HookPlace,
    Way,
    find_place,
    is_lefthook_call,
    managed_hooks,
    manager_install,
    own_call,
    pre_commit_item,
    pre_commit_program,
    read_file,
)
from gitlease.install.shims import ANSWER, HOOKS, LEGACY, PROBE, SKIP, find_section, is_current

OWN_WAY = "your own hook"
NO_PROGRAM = "it finds no gitlease to start"
_ANSWER = re.compile(rf"^{ANSWER} ([a-z-]+) v(\d+) ?(.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
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
    place = find_place(repository)
    return tuple(_state(place, name) for name in HOOKS)


def warn_once(repository: Repository, hooks_path: str) -> str:
    """Say that git's hooks no longer call us since ``core.hooksPath`` is set; once for each value.

    ``""`` if they do, were never installed, or somebody was warned already.
    """
    private = os.path.join(repository.common_dir, "gitlease")
    seen = os.path.join(private, HOOKS_PATH)
    value = os.fsencode(hooks_path)
    if not os.path.exists(os.path.join(private, PROGRAM)) or read_file(seen) == value:
        return ""
    with contextlib.suppress(OSError, Invalid):
        replace_file(seen, value)
        if not _state(find_place(repository), "pre-commit").live:
            return (
                f"core.hooksPath is {shown(hooks_path)}, and git no longer calls gitlease's hooks"
            )
    return ""


def _state(place: HookPlace, name: str) -> HookState:
    if name in managed_hooks(place):
        return _managed(place, name)
    script, way = os.path.join(place.folder, name), place.way.value
    if place.way is Way.CONFIG:
        configured = os.path.lexists(place.script(name))
        script, way = (place.script(name), way) if configured else (script, Way.FOLDER.value)
    data = read_file(script)
    made = data is not None and MADE[Way.PRE_COMMIT].search(data) is not None
    moved = read_file(script + LEGACY) if made else None
    if data is not None and moved is not None and find_section(moved, name) is not None:
        return _moved(place, name, script, data)
    placed = None if data is None else find_section(data, name)
    program = _program(place, noted=placed is not None)
    if placed is None:
        return _by_own_script(place, name, program)
    if program is None:
        return HookState(name=name, way=way, problem=NO_PROGRAM)
    live = os.access(script, os.X_OK)
    problem = "" if live else "not executable"
    proven = False
    if place.git >= HOOK_RUN:
        live = proven = _answers(place, name, files=script != place.script(name))
        problem = "" if live else "it is installed, but does not answer when git runs it"
    current = is_current(placed, name)
    if live and not current:
        problem = "of another version, or edited: gitlease hooks install"
    return HookState(
        name=name,
        way=way,
        live=live,
        proven=proven,
        current=current,
        program=program,
        problem=problem,
    )


def _moved(place: HookPlace, name: str, hook: str, data: bytes) -> HookState:
    """A hook of ours that pre-commit moved away, and runs before its own."""
    runs = os.access(hook, os.X_OK) and os.access(hook + LEGACY, os.X_OK)
    words = ["hook-impl", "--config=/dev/null/none", f"--hook-type={name}"]
    words += ["--hook-dir", os.path.dirname(hook), "--skip-on-missing-config", "--"]
    return HookState(
        name=name,
        way=f"{Way.PRE_COMMIT.value} ({name}{LEGACY})",
        live=runs,
        proven=runs and _asked_manager(place, name, data, words),
        program=_program(place, noted=True),
        problem="" if runs else "not executable",
    )


def _by_own_script(place: HookPlace, name: str, program: str | None) -> HookState:
    # Somebody's own script is not run: it may do anything.
    call = own_call(place, name)
    if call is None:
        return HookState(name=name, problem="not installed")
    problem = ""
    if program is None:
        problem = NO_PROGRAM
    elif not call.runs:
        problem = f"{call.path} calls it, but is not executable"
    return HookState(name=name, way=OWN_WAY, live=not problem, program=program, problem=problem)


def _program(place: HookPlace, *, noted: bool) -> str | None:
    # The one that was noted, or the one on PATH.
    path = os.fsdecode(read_file(os.path.join(place.private, PROGRAM)) or b"").partition("\n")[0]
    there = noted and os.path.isfile(path) and os.access(path, os.X_OK)
    return path if there else shutil.which("gitlease")


def _managed(place: HookPlace, name: str) -> HookState:
    hook = os.path.join(place.folder, name)
    script = read_file(hook) or b""
    live = MADE[place.way].search(script) is not None and os.access(hook, os.X_OK)
    proven = live and _manager_answers(place, name, script)
    way = place.way.value
    problem = ""
    if not live:
        problem = f"git does not call {way} yet: {manager_install(place.way, [name])}"
    elif not proven:
        problem = f"{way} did not answer for it"
    return HookState(name=name, way=way, live=live, proven=proven, problem=problem, awaits=not live)


def _manager_answers(place: HookPlace, name: str, script: bytes) -> bool:
    """Whether a manager calls our hook when it is asked to run that alone."""
    if place.way is Way.LEFTHOOK:  # its hook hands on what git is given
        if place.git < HOOK_RUN or not is_lefthook_call(script, name):
            return False
        kept = ("--no-stage-fixed", "--no-auto-install", "--force")  # nothing else is touched
        return any(
            ask_hook(name, place.top, after=(option, "gitlease", *kept)) is not None
            for option in ("--command", "--commands")  # of its versions 2 and 1
        )
    item, hook = pre_commit_item(name)
    # With files named it leaves the work tree as it is, instead of setting aside what is unstaged.
    words = ("run", item, "--verbose", "--hook-stage", name, "-c", place.file)
    files = ("--files", place.file, "--commit-msg-filename", os.devnull)
    return _asked_manager(place, hook, script, (*words, *files))


def _asked_manager(place: HookPlace, hook: str, script: bytes, words: Sequence[str]) -> bool:
    program = pre_commit_program(script)
    if program is None:
        return False
    try:
        ran = subprocess.run(
            [*program, *words],
            cwd=place.top,
            env={**os.environ, PROBE: "1", SKIP: ""},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return _answer(hook, ran.stdout + ran.stderr) is not None


def _answers(place: HookPlace, name: str, *, files: bool) -> bool:
    """Whether our hook answers, with those of others off; ``files``: it is a hook file."""
    settings = [f"hook.{other}.enabled=false" for other in place.other_hooks]
    settings += [] if files else ["core.hooksPath=/dev/null"]
    options = (word for setting in settings for word in ("-c", setting))
    return ask_hook(name, place.top, *options) is not None


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
        env={PROBE: "1", SKIP: ""},
        repository=repository,
    )
    return _answer(name, ran.out + ran.err.encode())


def _answer(name: str, output: bytes) -> str | None:
    answers = _ANSWER.finditer(output.decode("utf-8", "replace"))
    return next((match[3].strip() for match in answers if match[1] == name), None)
