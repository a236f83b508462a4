"""The pre-receive hook of a server: the script that git calls, installed, removed and tested.

Without a working gitlease nothing may be accepted unjudged: the script itself refuses the push,
unless git's configuration has mode ``warn``.
"""

from __future__ import annotations

import contextlib
import filecmp
import os
import re
import shlex
import shutil
from collections.abc import Sequence
from enum import Enum

from gitlease.guard.hook_places import hooks_folder, is_below, read_file
from gitlease.guard.install import ask_hook, own_program
from gitlease.kernel.git.files import replace_file
from gitlease.kernel.git.repository import TIMEOUT, GitConfig, Repository
from gitlease.kernel.git.run import run_git
from gitlease.kernel.rules.errors import Invalid, UsageError, check_text, hint
from gitlease.kernel.rules.frozen import dataclass
from gitlease.kernel.settings.schema import KEYS
from gitlease.server.settings import (
    BLOCK,
    GATEWAY_KEY,
    HOLDER,
    IDENTITY_KEY,
    KNOWN_VARIABLES,
    MERGER_KEY,
    MODE_KEY,
    PREFIX_KEY,
    TRUSTED,
    ServerSettings,
    project_settings,
    read_variable,
    server_settings,
)

VERSION = 4
NAME = "pre-receive"
# Whoever runs git on a server need not own the hook.
MODE = 0o755
ASIDE_FOLDER = "gitlease.d"  # has the hook that was there before, under its own name


class HookForm(Enum):
    """The form of our hook: alone, after a hook set aside, or one of a folder of hooks."""

    # It judges last: while another hook runs, somebody may claim what the push touches.
    FILE = "file"
    CHAIN = "chain"
    PART = "part"


@dataclass(frozen=True)
class PlacedHook:
    """A hook file of ours: its form, and the gitlease that it starts."""

    form: HookForm
    program: str


def shim(form: HookForm, program: str) -> bytes:
    """A whole hook file of ours. ``program`` is tried before the gitlease on PATH."""
    text = (
        _SHIM.replace("@FORM@", form.value)
        .replace("@VERSION@", str(VERSION))
        .replace("@PROGRAM@", shlex.quote(program))
        .replace("@READ@", _READ if form is HookForm.CHAIN else "")
        .replace("@JUDGE@", _JUDGE_COPY if form is HookForm.CHAIN else _JUDGE)
        .replace("@CHAIN@", _CHAIN if form is HookForm.CHAIN else "")
    )
    return text.encode()


def aside_of(hook: str) -> str:
    """The place for the hook from before, under its own name: many hooks depend on that."""
    return os.path.join(os.path.dirname(hook), ASIDE_FOLDER, NAME)


def find_shim(data: bytes) -> PlacedHook | None:
    """Read the head of a hook file of ours; None for any other file."""
    head = _HEAD.match(data)
    if head is None:
        return None
    try:
        words = shlex.split(head[2].decode("utf-8", "surrogateescape"))
    except ValueError:
        return None
    return PlacedHook(HookForm(head[1].decode()), words[0] if words else "")


_HEAD = re.compile(
    rb"#!/bin/sh\n# gitlease pre-receive v\d{1,6} (file|chain|part): [^\n]*\np=([^\n]*)\n"
)
# Of gitlease 0 means accepted, 9 refused, and anything else that it has not judged.
# The mode is read from git's files, which no client can write, and not from the environment.
_SHIM = """\
#!/bin/sh
# gitlease pre-receive v@VERSION@ @FORM@: see `gitlease server --help`
p=@PROGRAM@
[ -f "$p" ] && [ -x "$p" ] || p=gitlease
command -v "$p" >/dev/null 2>&1 || p=
if [ -n "${GITLEASE_PROBE-}" ]; then echo "gitlease-probe pre-receive v@VERSION@ $p" >&2; exit 1; fi
@READ@@CHAIN@s=127
if [ -n "$p" ]; then
  @JUDGE@
  s=$?
fi
case $s in
  0) ;;
  9) exit 1 ;;
  *)
    why="gitlease failed with status $s"
    [ -n "$p" ] || why="gitlease is not found on this server"
    if [ "$(git config --local gitlease.mode 2>/dev/null)" != warn ]; then
      echo "gitlease: refused (fault): $why, and what is not judged is not accepted" >&2
      echo "gitlease: hint: whoever runs this server: gitlease server status says what it needs" >&2
      exit 1
    fi
    echo "gitlease: warning: $why, so this push is not checked" >&2
    ;;
esac
exit 0
"""
_JUDGE = '"$p" server-hook pre-receive'
# The hook before ours needs the input as well: it is read whole, and passed on with a mark at its
# end, since the process that passes it on may be killed.
_READ = """\
in=$(cat) || { echo "gitlease: refused (fault): what is pushed cannot be read" >&2; exit 1; }
give() { trap '' PIPE; printf '%s\\n' "$in" "$@" 2>/dev/null || :; }
"""
_JUDGE_COPY = 'give end | "$p" server-hook pre-receive end'
_CHAIN = """\
before=$(dirname -- "$0")/gitlease.d/pre-receive
if [ -x "$before" ]; then
  give | "$before" "$@" || exit $?
fi
"""


# --- install and uninstall --------------------------------------------------------------------

# Last by name, for the same reason.
PART = "zz-gitlease"  # its name in a folder of hooks, which hosts call in their order

# A script that calls a folder of hooks, as Gitea's, Forgejo's and Bitbucket's do.
_CALLS_FOLDER = re.compile(
    rb"^(?!\s*#).*(?:pre-receive|\$0|\$\w+|\$\{\w+\})[\"']?\.d\b", re.MULTILINE
)


class HookHost(Enum):
    """The other owners of hooks in this repository."""

    PLAIN = "git"
    FOLDER = "a folder of hooks"
    GITLAB = "GitLab's custom_hooks"


@dataclass(frozen=True)
class ServerPlace:
    """The place of the hook of a bare repository."""

    host: HookHost
    hook: str
    form: HookForm


@dataclass(frozen=True)
class ServerDone:
    """The changes, and notes for a person."""

    place: ServerPlace
    changes: tuple[str, ...]
    notes: tuple[str, ...] = ()


def find_server_place(repository: Repository) -> ServerPlace:
    """Find where the hook belongs. Raises Invalid unless it is a bare repository with own hooks."""
    if repository.toplevel is not None:
        raise Invalid(
            f"{repository.toplevel} is a work tree: the server's hook is for a bare repository",
            hints=(hint("for a clone: {}", "hooks install"),),
        )
    home = repository.common_dir
    custom = os.path.join(home, "custom_hooks")
    # GitLab calls these hooks itself, and not git.
    if os.path.isdir(custom):
        return ServerPlace(HookHost.GITLAB, os.path.join(custom, f"{NAME}.d", PART), HookForm.PART)
    folder = hooks_folder(home, f"--git-dir={home}")
    if not is_below(os.path.realpath(folder), os.path.realpath(home)):
        raise Invalid(
            f"git looks for this repository's hooks in {folder}, outside of it",
            hints=(
                "let the hook there call `gitlease server-hook pre-receive`, with its input",
                "on GitLab: create the folder custom_hooks in the repository first",
            ),
        )
    hook, parts = os.path.join(folder, NAME), os.path.join(folder, f"{NAME}.d")
    data = read_file(hook)
    placed = None if data is None else find_shim(data)
    if placed is not None:
        return ServerPlace(HookHost.PLAIN, hook, placed.form)
    # A folder of hooks that nothing calls would guard nothing.
    caller = read_file(os.path.realpath(hook)) if os.access(hook, os.X_OK) else None
    if os.path.isdir(parts) and caller and _CALLS_FOLDER.search(caller):
        return ServerPlace(HookHost.FOLDER, os.path.join(parts, PART), HookForm.PART)
    return ServerPlace(
        HookHost.PLAIN, hook, HookForm.CHAIN if os.path.lexists(hook) else HookForm.FILE
    )


def install_server(
    repository: Repository,
    *,
    mode: str | None = None,
    identity: str | None = None,
    gateways: Sequence[str] | None = None,
    mergers: Sequence[str] | None = None,
    program: str | None = None,
) -> ServerDone:
    """Install the hook with its settings; a hook that was there before is kept.

    A ``mode``, ``identity``, ``gateways`` or ``mergers`` of None stays as it is; the default mode
    is ``block``. Raises Invalid if something cannot be written, and UsageError for an ``identity``
    that a client could set, and for gateways and mergers without an identity.
    """
    variable = None if identity is None else read_variable(identity)
    for what, names in (("gateway", gateways), ("merger", mergers)):
        if names and not (variable or repository.config.get(IDENTITY_KEY)):
            raise UsageError(
                f"{what}s need an identity: this server does not know who pushes",
                hints=(hint("name the variable that has it: {}", identity="VARIABLE"),),
            )
        for name in names or ():
            if check_text(name, what=f"the name of a {what}").startswith("-"):
                raise UsageError(f"invalid {what} {name}: git would take it for an option")
    place = find_server_place(repository)
    changes, notes = list[str](), list[str]()
    _set(
        repository,
        MODE_KEY,
        [mode or repository.config.get(MODE_KEY) or BLOCK],
        changes,
    )
    if variable is not None:
        _set(repository, IDENTITY_KEY, [variable], changes)
    if gateways is not None:
        _set(repository, GATEWAY_KEY, gateways, changes)
    if mergers is not None:
        _set(repository, MERGER_KEY, mergers, changes)
    # Fix the prefix of ledgers: anybody who can push could change the project's file, and the hook
    # may run without a home, and so without the server's other files of git.
    trusted = GitConfig(tuple(e for e in repository.config.entries if e.scope in TRUSTED))
    prefix = trusted.get(PREFIX_KEY) or project_settings(repository)[0].ref_prefix
    if prefix != KEYS["lease.ref_prefix"].default:
        _set(repository, PREFIX_KEY, [prefix], changes)
    try:
        new = shim(place.form, program if program is not None else own_program() or "")
        _write(place, new, changes, notes)
    except OSError as error:
        raise Invalid(f"{place.hook} cannot be written: {error.strerror}") from None
    place = find_server_place(repository)
    # git asks these once pre-receive has agreed, and a folder's hooks are called by name.
    folder = hooks_folder(repository.common_dir, f"--git-dir={repository.common_dir}")
    files = [os.path.join(folder, name) for name in ("update", "reference-transaction")]
    if place.form is HookForm.PART:
        parts = os.path.dirname(place.hook)
        files += [os.path.join(parts, x) for x in sorted(os.listdir(parts)) if x > PART]
    notes += [
        f"{hook} runs after it: while that works, a lease may be granted that the push ignores"
        for hook in files
        if os.path.isfile(hook) and os.access(hook, os.X_OK)
    ]
    return ServerDone(place, tuple(changes), tuple(notes))


def check_identity(
    repository: Repository, given: str | None, *, gateways: Sequence[str], no_identity: bool
) -> None:
    """Raise UsageError unless it is known, or deliberately not known, who pushes."""
    find_server_place(repository)
    identity = given or server_settings(repository).identity
    if no_identity and identity:
        raise UsageError(
            f"no identity is wanted, but {identity} names who pushes",
            hints=(f"to forget it, on the server: git config --unset {IDENTITY_KEY}",),
        )
    if not (identity or no_identity or gateways):
        known = ", ".join(KNOWN_VARIABLES)
        none = "on a host that has none: {} checks ledgers, but not commits"
        raise UsageError(
            "without an identity anyone may push over what another holds",
            hints=(
                hint(f"name the variable that says who pushes, {{}}: {known}", identity="VARIABLE"),
                hint(none, no_identity=True),
            ),
        )


def uninstall_server(repository: Repository) -> ServerDone:
    """Remove the hook; the one from before is in its place again, to the byte."""
    place = find_server_place(repository)
    changes, notes = list[str](), list[str]()
    data, aside = read_file(place.hook), aside_of(place.hook)
    try:
        if data is not None and find_shim(data) is not None:
            if place.form is HookForm.CHAIN and os.path.lexists(aside):
                # A relative link was lengthened as it was set aside, and is shortened again.
                target = os.readlink(aside) if os.path.islink(aside) else ""
                if target.startswith(_UP):
                    temporary = f"{aside}.{os.getpid()}.tmp"
                    os.symlink(target.removeprefix(_UP), temporary)
                    os.replace(temporary, aside)
                # In one step: there is no moment without a hook.
                os.replace(aside, place.hook)
                changes.append(f"put {place.hook} back as it was")
            else:
                os.unlink(place.hook)
                changes.append(f"removed {place.hook}")
            _drop_folder(place.hook)
    except OSError as error:
        raise Invalid(f"{place.hook} cannot be removed: {error.strerror}") from None
    for key in (MODE_KEY, IDENTITY_KEY, GATEWAY_KEY, MERGER_KEY):
        _set(repository, key, (), changes)
    ours = repository.config.section("gitlease")
    if any(e.scope == "local" and e.key.endswith(f".{HOLDER}") for e in ours):
        notes.append("the holders of users stay in git's configuration: gitlease.USER.holder")
    return ServerDone(place, tuple(changes), tuple(notes))


def _write(place: ServerPlace, new: bytes, changes: list[str], notes: list[str]) -> None:
    hook, aside = place.hook, aside_of(place.hook)
    data = read_file(hook)
    if data == new and os.access(hook, os.X_OK):
        return
    others = os.path.lexists(hook) and (data is None or find_shim(data) is None)
    if others and (place.form is not HookForm.CHAIN or os.path.isdir(hook)):
        raise Invalid(f"{hook} exists, and is not ours", hints=("move it away",))
    os.makedirs(os.path.dirname(hook), exist_ok=True)
    if others:
        _set_aside(hook, aside)
    replace_file(hook, new, mode=MODE)
    os.chmod(hook, MODE)
    if others:
        if not os.access(aside, os.X_OK):
            notes.append(f"{hook} was not executable: it is kept, and not called")
        changes.append(f"set {hook} aside as {aside}: it is called before ours")
        notes.append(f"{NAME} is called from another folder now: check it if it uses $0")
    changes.append(f"wrote {hook}")


# A relative link leads to the same file from one folder further down with this before it.
_UP = "../"


def _set_aside(hook: str, aside: str) -> None:
    # A second name, and not a move: there is no moment without a hook.
    target = os.readlink(hook) if os.path.islink(hook) else ""
    target = target if os.path.isabs(target) or not target else _UP + target
    if os.path.lexists(aside):  # perhaps from an install that was interrupted
        link = os.readlink(aside) if os.path.islink(aside) else ""
        if link != target or not (link or filecmp.cmp(hook, aside, shallow=False)):
            raise Invalid(
                f"{aside} exists already, and {hook} is not ours",
                hints=("something replaced our hook: check which of the two is yours",),
            )
        return
    folder = os.path.dirname(aside)
    if not os.path.isdir(folder):
        os.mkdir(folder)
        # Whoever runs git here may go in.
        shutil.copymode(os.path.dirname(folder), folder)
    try:
        os.symlink(target, aside) if target else shutil.copy2(hook, aside)
    except BaseException:
        _drop_folder(hook)
        raise


def _drop_folder(hook: str) -> None:
    for folder in (os.path.dirname(aside_of(hook)), os.path.dirname(hook)):
        with contextlib.suppress(OSError):  # somebody else's hooks are in it
            os.rmdir(folder)


def _set(repository: Repository, key: str, values: Sequence[str], changes: list[str]) -> None:
    """Set a setting of this repository to these values; without any, unset it."""
    entries = repository.config.section(key.partition(".")[0])
    have = [e.value for e in entries if e.key == key.lower() and e.scope == "local"]
    wanted = list(dict.fromkeys(values))
    if have == wanted:
        return
    home = repository.common_dir
    steps: list[tuple[str, ...]] = [
        ("--replace-all" if x == wanted[0] else "--add", key, x) for x in wanted
    ]
    for words in steps or [("--unset-all", key)]:
        done = run_git(
            (f"--git-dir={home}", "config", "--local", *words), cwd=home, timeout=TIMEOUT
        )
        if done.code != 0 or done.timed_out:
            raise Invalid(f"git cannot set {key}: {done.err.strip()[:200]}")
    changes.append(f"set {key} to {', '.join(wanted)}" if wanted else f"unset {key}")


# --- status -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ServerState:
    """The hook of one bare repository. ``proven``: the probe just showed that git calls it.

    ``program`` is the gitlease that it would start, if any. ``kept`` is the hook from before.
    ``problem`` says what is wrong, ``""`` for nothing.
    """

    hook: str
    way: str
    installed: bool
    proven: bool
    current: bool
    program: str | None
    kept: str | None
    settings: ServerSettings
    problem: str


def server_state(repository: Repository) -> ServerState:
    """The state of the hook. Raises Invalid unless it is the bare repository of a server."""
    settings = server_settings(repository)
    place = find_server_place(repository)
    data = read_file(place.hook)
    placed = None if data is None else find_shim(data)
    installed = placed is not None
    current = placed is not None and data == shim(placed.form, placed.program)
    home, aside = repository.common_dir, aside_of(place.hook)
    answer = ask_hook(NAME, home, f"--git-dir={home}", repository=False) if installed else None
    problem = ""
    if not installed:
        problem = "not installed"
    elif not os.access(place.hook, os.X_OK):
        problem = "it is not executable"
    # `git hook run` does not know GitLab's folder: no probe reaches that.
    elif answer is None and place.host is not HookHost.GITLAB:
        problem = "it is installed, but does not answer when git runs it"
    elif answer == "":
        problem = "it finds no gitlease to start"
    elif not current:
        problem = "it is of another version, or edited: gitlease server install"
    return ServerState(
        hook=place.hook,
        way=place.host.value,
        installed=installed,
        proven=bool(answer),
        current=current,
        program=answer or (placed.program if placed is not None and answer is None else None),
        kept=aside if place.form is HookForm.CHAIN and os.path.lexists(aside) else None,
        settings=settings,
        problem=problem,
    )
