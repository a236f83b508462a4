"""Which hooks are live, by their files, and by a probe that git itself runs.

The probe ends each hook at our section, which is before anything else in it. Other hooks, from
git's configuration or from a folder, are switched off for it. A gitlease that is probed only
answers.
"""

from __future__ import annotations

import os
import re
import shutil

from gitlease.core.frozen import dataclass
from gitlease.git.repository import TIMEOUT, Repository
from gitlease.git.run import run_git
from gitlease.install.hooks.managers import (
    LEFTHOOK_MADE,
    LEFTHOOK_SNIPPET,
    PRE_COMMIT_MADE,
    lefthook_hooks,
    own_call,
    pre_commit_hooks,
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
from gitlease.install.hooks.plan import MANAGED, manager_install
from gitlease.install.hooks.shims import (
    ANSWER,
    HOOKS,
    PROBE,
    SKIP,
    UNMANAGED,
    find_section,
    is_current,
)

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


def _state(place: HookPlace, name: str) -> HookState:
    managed = _managed(place, name)
    if managed is not None:
        return managed
    script, way = _script(place, name)
    data = read_file(script)
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
    if name == UNMANAGED and way in MANAGED:
        return os.path.join(place.folder, name), Way.FOLDER.value
    return os.path.join(place.scripts, name), way.value


def _managed(place: HookPlace, name: str) -> HookState | None:
    # A manager is not run: it would run all of its hooks.
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
    live = made.search(read_file(hook) or b"") is not None and os.access(hook, os.X_OK)
    tell = manager_install(place.way, [name])
    problem = "" if live else f"git does not call {place.way.value} yet: {tell}"
    way = place.way.value
    return HookState(name=name, way=way, live=live, problem=problem, awaits=not live)


def _answers(place: HookPlace, name: str, *, files: bool) -> bool:
    """Whether our hook answers, with those of others off; ``files``: it is a hook file."""
    settings = [f"hook.{other}.enabled=false" for other in place.others]
    settings += [] if files else ["core.hooksPath=/dev/null"]
    options = (word for one in settings for word in ("-c", one))
    return ask_hook(name, place.top, *options) is not None


def ask_hook(name: str, cwd: str, *options: str, repository: bool = True) -> str | None:
    """The gitlease that a hook would start, as it answers through git; None without an answer."""
    ran = run_git(
        (*options, "hook", "run", "--ignore-missing", name),
        cwd=cwd,
        timeout=TIMEOUT,
        env={PROBE: "1", SKIP: ""},
        repository=repository,
    )
    said = _ANSWER.finditer(ran.out.decode("utf-8", "replace") + ran.err)
    return next((found[3].strip() for found in said if found[1] == name), None)
