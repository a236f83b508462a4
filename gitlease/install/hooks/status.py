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
from gitlease.install.hooks.managers import (
    LEFTHOOK_MADE,
    LEFTHOOK_SNIPPET,
    PRE_COMMIT_MADE,
    is_lefthook_call,
    lefthook_hooks,
    own_call,
    pre_commit_hooks,
    pre_commit_item,
    pre_commit_program,
)
from gitlease.install.hooks.places import (
    HOOK_RUN,
    PROGRAM,
    SCRIPTS,
    HookPlace,
    Way,
    find_place,
    read_file,
)
from gitlease.install.hooks.plan import manager_install
from gitlease.install.hooks.shims import (
    ANSWER,
    HOOKS,
    LEGACY,
    PROBE,
    SKIP,
    find_section,
    is_current,
)

OWN_WAY = "your own hook"
HOOKS_PATH = "hooks-path"  # in the private folder: the value that was looked at
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

    ``""`` if they do, were never installed, or somebody was told already.
    """
    private = os.path.join(repository.common_dir, "gitlease")
    told = os.path.join(private, HOOKS_PATH)
    value = os.fsencode(hooks_path)
    if not os.path.exists(os.path.join(private, PROGRAM)) or read_file(told) == value:
        return ""
    with contextlib.suppress(OSError, Invalid):
        replace_file(told, value)
        if not _state(find_place(repository), "pre-commit").live:
            return (
                f"core.hooksPath is {shown(hooks_path)}, and git no longer calls gitlease's hooks"
            )
    return ""


def _state(place: HookPlace, name: str) -> HookState:
    managed = _managed(place, name)
    if managed is not None:
        return managed
    script, way = _script(place, name)
    data = read_file(script)
    made = data is not None and PRE_COMMIT_MADE.search(data) is not None
    moved = read_file(script + LEGACY) if made else None
    if data is not None and moved is not None and find_section(moved, name) is not None:
        return _moved(place, name, script, data)
    placed = None if data is None else find_section(data, name)
    program = _program(place, noted=placed is not None)
    if placed is None:
        return _own(place, name, program)
    if program is None:
        return HookState(name=name, way=way, problem=NO_PROGRAM)
    live = os.access(script, os.X_OK)
    problem = "" if live else "not executable"
    proven = False
    if place.git >= HOOK_RUN:
        live = proven = _answers(place, name, files=script != _own_script(place, name))
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
    folder = os.path.dirname(hook)
    words = ["hook-impl", "--config=/dev/null/none", f"--hook-type={name}", "--hook-dir", folder]
    asked = (*words, "--skip-on-missing-config", "--") if runs else ()
    proven = bool(asked) and _asked_manager(place, name, data, asked)
    return HookState(
        name=name,
        way=f"{Way.PRE_COMMIT.value} ({name}{LEGACY})",
        live=runs,
        proven=proven,
        program=_program(place, noted=True),
        problem="" if runs else "not executable",
    )


def _own(place: HookPlace, name: str, program: str | None) -> HookState:
    # Somebody's own script is not run: it may do anything.
    own = own_call(place, name)
    if own is None:
        return HookState(name=name, problem="not installed")
    problem = ""
    if program is None:
        problem = NO_PROGRAM
    elif not own.runs:
        problem = f"{own.path} calls it, but is not executable"
    return HookState(name=name, way=OWN_WAY, live=not problem, program=program, problem=problem)


def _program(place: HookPlace, *, noted: bool) -> str | None:
    # The one that was noted, or the one on PATH.
    path = os.fsdecode(read_file(os.path.join(place.private, PROGRAM)) or b"").partition("\n")[0]
    there = noted and os.path.isfile(path) and os.access(path, os.X_OK)
    return path if there else shutil.which("gitlease")


def _own_script(place: HookPlace, name: str) -> str:
    return os.path.join(place.private, SCRIPTS, name)


def _script(place: HookPlace, name: str) -> tuple[str, str]:
    """The file that should have our section, and how it is called."""
    own = _own_script(place, name)
    if place.way is Way.CONFIG and os.path.lexists(own):
        return own, place.way.value
    way = Way.FOLDER if place.way is Way.CONFIG else place.way
    return os.path.join(place.scripts, name), way.value


def _managed(place: HookPlace, name: str) -> HookState | None:
    found = read_file(os.path.join(place.top, place.file)) if place.file else None
    data = found or b""
    if place.way is Way.PRE_COMMIT:
        called, made = pre_commit_hooks(data), PRE_COMMIT_MADE
    elif place.way is Way.LEFTHOOK:
        snippet = read_file(os.path.join(place.top, LEFTHOOK_SNIPPET))
        called, made = lefthook_hooks(snippet, data), LEFTHOOK_MADE
    else:
        return None
    if name not in called:
        return None
    hook = os.path.join(place.folder, name)
    script = read_file(hook) or b""
    live = made.search(script) is not None and os.access(hook, os.X_OK)
    proven = live and _manager_answers(place, name, script)
    way, tell = place.way.value, manager_install(place.way, [name])
    problem = "" if live else f"git does not call {way} yet: {tell}"
    if live and not proven:
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
    settings = [f"hook.{other}.enabled=false" for other in place.others]
    settings += [] if files else ["core.hooksPath=/dev/null"]
    options = (word for one in settings for word in ("-c", one))
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
    return next((found[3].strip() for found in answers if found[1] == name), None)
