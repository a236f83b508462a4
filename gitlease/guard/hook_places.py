"""The places of a clone's git hooks, what calls them there (git, a person, or a manager), and the
shell scripts themselves.

A section of a script is between two lines that name it, so that it can be removed to the byte. It
is the same in every repository: what differs is read from the clone's private folder.
Files of husky, lefthook and pre-commit are only read. What to add to them is shown to a person.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import stat
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum

from gitlease.guard.notes import ACTIVITY, COMMIT, MESSAGE, NOW, SINCE, WHO
from gitlease.kernel.git.files import PUBLIC, read_small, replace_file, share
from gitlease.kernel.git.repository import TIMEOUT, GitConfig, Repository
from gitlease.kernel.git.run import run_git
from gitlease.kernel.rules.errors import Invalid, hint
from gitlease.kernel.rules.frozen import dataclass

VERSION = 2
# No hook does the work of two: git skips commit-msg with --no-verify and in a rebase, where
# prepare-commit-msg names leases too, and post-checkout cannot see that a rebase by patches begins.
HOOKS = (
    *("pre-commit", "pre-merge-commit", "prepare-commit-msg", "commit-msg", "post-commit"),
    *("post-checkout", "post-merge", "post-rewrite", "pre-push"),
)
# The hooks that may stop git, and what. A merge without a conflict has a hook of its own.
CHECKED = {"pre-commit": "commit", "pre-merge-commit": "merge", "pre-push": "push"}
SHEBANG = b"#!/bin/sh\n"
LEGACY = ".legacy"  # pre-commit's suffix of the hooks that it replaces, and runs before its own
ASIDE = ".before-gitlease"  # suffix of a hook that is not a shell script, and was set aside
READS_INPUT = ("pre-push",)
PROBE, SKIP = "GITLEASE_PROBE", "GITLEASE_SKIP"
ANSWER = "gitlease-probe"


class SectionForm(Enum):
    """How a section is in its file: alone, in somebody's script, or before a hook set aside."""

    FILE = "file"
    SECTION = "section"
    CHAIN = "chain"


@dataclass(frozen=True)
class PlacedSection:
    """A section that was found in a file, from byte ``start`` up to ``end``."""

    form: SectionForm
    start: int
    end: int
    text: bytes


def shim(name: str, form: SectionForm = SectionForm.FILE) -> bytes:
    """A whole hook file of ours."""
    return SHEBANG + section(name, form)


def section(name: str, form: SectionForm) -> bytes:
    """The lines of one hook. They pass standard input on to what follows them."""
    begin, end = "(", ") || exit 1"
    if name in READS_INPUT and form is not SectionForm.FILE:
        begin, end = _KEEP_INPUT, f"{end}\n{_GIVE_INPUT}"
    if form is SectionForm.CHAIN:
        # Where it is, whoever moved this file: pre-commit renames it.
        aside = f"${{0%{LEGACY}}}{ASIDE}"
        end += f'\n[ ! -x "{aside}" ] || exec "{aside}" "$@"'
    # A push has no idle marker: it asks the remote anyway.
    idle = {"pre-push": "", "post-rewrite": _REWRITTEN + _IDLE}.get(name, _IDLE)
    body = (
        (_FIND + idle + _PROGRAM + (_ASK if name in CHECKED else _TELL))
        .replace("@GIT@", _NOTHING_STAGED if _MARKERS.get(name) == COMMIT else "")
        .replace("@MARKER@", _MARKERS.get(name, ACTIVITY))
        .replace("@NAME@", name)
        .replace("@WHAT@", CHECKED.get(name, ""))
        .replace("@INPUT@", "" if name in READS_INPUT else " </dev/null")
    )
    lines = [f"# BEGIN gitlease {name} v{VERSION} {form.value}: see `gitlease hooks --help`"]
    lines += [begin, *body.splitlines(), end, f"# END gitlease {name}"]
    return ("\n".join(lines) + "\n").encode()


def find_marked(data: bytes, begin: bytes, end: bytes) -> re.Match[bytes] | None:
    """The lines from one that begins with ``begin`` to one that is ``end``; both are patterns."""
    lines = rb"^" + begin + rb"[^\n]*\n(?:[^\n]*\n)*?" + end + rb"(?:\r?\n|\Z)"
    return re.search(lines, data, re.MULTILINE)


def find_section(data: bytes, name: str) -> PlacedSection | None:
    """Our section in a hook, of any version; None without one, or for half of one."""
    word = re.escape(name.encode())
    begin = rb"# BEGIN gitlease " + word + rb" v\d{1,6} (file|section|chain):"
    match = find_marked(data, begin, rb"# END gitlease " + word)
    if match is None:
        return None
    form = SectionForm(match[1].decode())
    return PlacedSection(form, match.start(), match.end(), match[0])


def is_current(placed: PlacedSection, name: str) -> bool:
    """Return whether a section is what this version of gitlease writes."""
    return placed.text == section(name, placed.form)


_MARKERS = {
    **dict.fromkeys(("pre-commit", "pre-merge-commit"), COMMIT),
    **dict.fromkeys(("prepare-commit-msg", "commit-msg"), MESSAGE),
    # What is merged may have landed: there is something to do as long as anything is held.
    "post-merge": MESSAGE,
    "post-rewrite": "$m",
}
_REWRITTEN = f"""\
  m={ACTIVITY}; [ "${{1-}}" != rebase ] || m={MESSAGE}
"""
# The clone's private folder, found by shell alone: a linked work tree has the common directory two
# levels up.
_FIND = """\
  [ -z "${GITLEASE_SKIP-}" ] || exit 0
  d=${GIT_COMMON_DIR:-${GIT_DIR:-.git}}
  [ ! -f "$d/commondir" ] || d=$d/../..; d=$d/gitlease
"""


def _words(names: Sequence[str]) -> str:
    return ":".join(f"${{{name}-}}" for name in names)


# A marker's modification time is when it ends, so that a shell can tell without a process whether
# that is in the future: it compares it with a file truncated now (touch is a process, and some
# file systems wait for written data). Its first line names the person and settings that it was made
# for; then, up to an empty line, come the settings files, which must not have changed since.
# Settings for one command may name somebody else (email, lease, include). Some shells end if the
# file that a function reads is missing.
_TELLING = "*[mM][aA][iI]* | *[eE][aA][sS]* | *[nN][cC][lL]*"
_IDLE = f"""\
  idle() {{
    case ${{GIT_CONFIG_PARAMETERS-}} in {_TELLING}) return 1 ;; esac
    true >"$d/{NOW}" && [ "$d/@MARKER@" -nt "$d/{NOW}" ] && IFS= read -r who || return 1
    [ "$who" = "{_words(WHO[:4])}:\\
{_words(WHO[4:])}" ] || return 1
    while IFS= read -r f && [ -n "$f" ]; do [ ! "$f" -nt "$d/{SINCE}" ] || return 1; done
@GIT@  }} 2>/dev/null
  [ -n "${{GITLEASE_PROBE-}}" ] || [ ! -f "$d/@MARKER@" ] || ! idle <"$d/@MARKER@" || exit 0
"""
# If a commit may claim a task, git tells whether anything is staged where task files are: the
# remaining lines of the marker. What this clone alone cannot tell, gitlease finds out. git 2.55
# finds nothing by a path below a folder that is one entry of a sparse index.
_NOTHING_STAGED = """\
    while IFS= read -r f; do set -- "$@" "$f"; done
    [ $# = 0 ] || GIT_ALLOW_PROTOCOL=none git --no-literal-pathspecs -c index.sparse=false \\
      diff-index --cached --quiet HEAD -- "$@"
"""
_PROGRAM = """\
  { [ -f "$d/program" ] && IFS= read -r p <"$d/program" && [ -x "$p" ]; } 2>/dev/null || p=gitlease
"""
# An interpreter that cannot load gitlease ends with 1 as well: then nothing was checked.
_ASK = """\
  command -v "$p" >/dev/null && "$p" hook @NAME@ "$@"@INPUT@; s=$?
  [ $s != 1 ] || ! "$p" --version </dev/null >/dev/null 2>&1 || exit 1
  [ $s = 0 ] || echo "gitlease: missing or failed (status $s), so this @WHAT@ is not checked" >&2
"""
# These never stop git, except in a probe; a missing gitlease is reported by the hook that checks.
_TELL = """\
  command -v "$p" >/dev/null || exit 0
  "$p" hook @NAME@ "$@" </dev/null || [ -z "${GITLEASE_PROBE-}" ]
"""
# Not reading all of it must not be a failure, whatever the script sets for its pipes.
_KEEP_INPUT = """\
gitlease_in=$(cat)
{ trap '' PIPE; printf '%s' "${gitlease_in:+$gitlease_in
}" 2>/dev/null || :; } | ("""
_GIVE_INPUT = """\
if [ -n "$gitlease_in" ]; then exec <<gitlease_in
$gitlease_in
gitlease_in
else exec </dev/null; fi"""


# --- places -----------------------------------------------------------------------------------

CONFIG_HOOKS = (2, 54)  # the first git that reads hooks from its configuration
HOOK_RUN = (2, 36)  # the first that has `git hook run`
MAX_BYTES = 1024 * 1024
PRE_COMMIT_FILES = (".pre-commit-config.yaml", ".pre-commit-config.yml")
LEFTHOOK_FILES = tuple(
    f"{start}lefthook.{end}" for end in ("yml", "yaml", "toml", "json") for start in ("", ".")
)
LEFTHOOK_SNIPPET = "lefthook-gitlease.yml"
HUSKY = ".husky"
BACKUPS = "old-hooks"  # where overcommit moves the hooks that it replaces
# In the private folder: what to start, scripts, and the value of core.hooksPath at the last look.
PROGRAM, SCRIPTS = "program", "hooks"
HOOKS_PATH = "hooks-path"  # a kind of notes: that of which somebody was warned
_MARK = re.compile(rb"^# BEGIN gitlease ([a-z-]{1,40}) v\d", re.MULTILINE)


class Way(Enum):
    """How git comes to call our hooks."""

    CONFIG = "git config"
    PRE_COMMIT = "pre-commit"
    LEFTHOOK = "lefthook"
    HUSKY = "husky"
    FOLDER = "hook files"
    OUTSIDE = "a folder outside"


@dataclass(frozen=True)
class HookPlace:
    """The place of this clone's hooks. ``folder`` is where git looks for hook files.

    ``file`` is the settings file of a hook manager, relative to the root of the work tree.
    """

    way: Way
    top: str
    private: str
    folder: str
    file: str = ""
    git: tuple[int, int] = (0, 0)
    config: GitConfig = GitConfig()

    @property
    def other_hooks(self) -> tuple[str, ...]:
        """The hooks in git's configuration that are not ours."""
        keys = (entry.key.removeprefix("hook.") for entry in self.config.section("hook"))
        names = dict.fromkeys(key.rpartition(".")[0] for key in keys)
        return tuple(x for x in names if x and x.removeprefix("gitlease-") not in HOOKS)

    def script(self, name: str) -> str:
        """The script for git's configuration."""
        return os.path.join(self.private, SCRIPTS, name)


def find_place(repository: Repository) -> HookPlace:
    """Find where hooks of this clone belong. Raises Invalid for a bare repository."""
    top = repository.toplevel
    if top is None:
        raise Invalid(
            "not in a work tree: these hooks are for clones that people work in",
            hints=(hint("for the bare repository of a server: {}", "server install"),),
        )
    private = os.path.join(repository.common_dir, "gitlease")
    folder, git = hooks_folder(top), git_version(top)

    def place(way: Way, file: str = "") -> HookPlace:
        return HookPlace(way, top, private, folder, file, git, repository.config)

    # Hooks from git's configuration run beside whatever manager there is, and touch no file.
    if git >= CONFIG_HOOKS:
        return place(Way.CONFIG)
    husky = os.path.join(top, HUSKY)
    inside = is_below(os.path.realpath(folder), os.path.realpath(top))
    # Git's own setting tells: husky sets core.hooksPath, and a folder .husky alone runs nothing.
    if inside and folder in (husky, os.path.join(husky, "_")):
        return place(Way.HUSKY)
    for way, names in ((Way.PRE_COMMIT, PRE_COMMIT_FILES), (Way.LEFTHOOK, LEFTHOOK_FILES)):
        for name in names:
            if os.path.isfile(os.path.join(top, name)):
                return place(way, name)
    return place(Way.FOLDER if is_own(repository, folder) else Way.OUTSIDE)


def read_file(path: str) -> bytes | None:
    """The bytes of a regular file; None for a link, a missing file, or one that is too large."""
    return read_small(path, MAX_BYTES)


def marked_files(folder: str) -> Iterator[tuple[str, str]]:
    """The files in a folder of hooks that have our mark, and the hook that it names."""
    # Under any name: managers rename what they replace, and some of them still run it.
    for place in (folder, os.path.join(folder, BACKUPS)):
        names = []
        with contextlib.suppress(OSError):
            names = sorted(os.listdir(place))
        for name in names:
            path = os.path.join(place, name)
            for hook in dict.fromkeys(_MARK.findall(read_file(path) or b"")):
                yield path, hook.decode()


def is_own(repository: Repository, folder: str) -> bool:
    """True if a folder is this clone's own: in a work tree of it, or in its git directory."""
    common = repository.common_dir
    roots = [common, *([repository.toplevel] if repository.toplevel else [])]
    # The main work tree, seen from a linked one.
    if os.path.basename(common) == ".git":
        roots.append(os.path.dirname(common))
    real = os.path.realpath(folder)
    return any(is_below(real, os.path.realpath(root)) for root in roots)


def hooks_folder(where: str, *options: str) -> str:
    """The folder of the hooks of the repository around a folder, or of ``--git-dir``."""
    words = (*options, "rev-parse", "--path-format=absolute", "--git-path", "hooks")
    asked = run_git(words, cwd=where, timeout=TIMEOUT, repository=not options)
    folder = os.fsdecode(asked.out).removesuffix("\n")
    if asked.code != 0 or asked.timed_out or not os.path.isabs(folder):
        raise Invalid(f"git does not tell where its hooks are: {asked.err.strip()[:200]}")
    return os.path.normpath(folder)


def git_version(folder: str) -> tuple[int, int]:
    """The first two numbers of git's version. Raises Invalid without git."""
    asked = run_git(("--version",), cwd=folder, timeout=TIMEOUT)
    match = re.search(rb"(\d{1,4})\.(\d{1,4})", asked.out)
    # An unknown version gets the way that works with every git.
    return (int(match[1]), int(match[2])) if match else (0, 0)


def is_below(path: str, root: str) -> bool:
    """Return whether a path is a folder or lies in it, by its text."""
    return path == root or path.startswith(os.path.join(root, ""))


# --- lines for the scripts of people ----------------------------------------------------------

# An interpreter that cannot load gitlease ends with 1 as well: that is a failure, and no refusal.
_STOP = "[ $? -ne 1 ] || ! gitlease --version >/dev/null 2>&1 || exit 1"


def hook_call(name: str, words: str = ' "$@"') -> str:
    """The shell line that calls one hook: a refusal ends the script, a failure does not."""
    return f"gitlease hook {name}{words} || " + (_STOP if name in CHECKED else "true")


def hook_lines(name: str) -> tuple[str, ...]:
    """The lines for somebody's own script that call one hook."""
    # A probe ends there.
    if name not in CHECKED:
        return (f'gitlease hook {name} "$@" || [ -z "${{{PROBE}-}}" ] || exit 1',)
    if name not in READS_INPUT:
        return (hook_call(name),)
    call = f"printf '%s\\n' \"$gitlease_in\" | {hook_call(name)}"
    # Git's standard input is left to the rest of the script.
    take = "gitlease_in=$(cat)"
    give = ('[ -z "$gitlease_in" ] || exec <<gitlease_in', "$gitlease_in", "gitlease_in")
    return (take, call, *give)


def own_call(place: HookPlace, name: str) -> str | None:
    """Somebody's own script that calls one hook; None if it has no call, or a section of ours."""
    above, last = os.path.split(place.folder)
    # The scripts of husky are above git's folder.
    husky = last == "_" and os.path.basename(above) == HUSKY
    for folder in (*([above] if husky else []), place.folder):
        path = os.path.join(folder, name)
        data = read_file(path)
        if data is not None and find_section(data, name) is None and _calls(data, name):
            return path
    return None


def _calls(data: bytes, name: str) -> bool:
    # Below a plain exit the lines would never run.
    lines = [line.strip() for line in data.decode("utf-8", "surrogateescape").split("\n")]
    printed = list(hook_lines(name))
    for at, line in enumerate(lines):
        if lines[at : at + len(printed)] == printed:
            return True
        if re.match(r"exit\b", line):
            return False
    return False


# --- hook managers ----------------------------------------------------------------------------

_IF_THERE = "command -v gitlease >/dev/null || exit 0; "
# Git's arguments, as a manager passes them. For those that git did not give, pre-commit's variables
# are empty, and lefthook's placeholders stay, which hooks ignore.
_PRE_COMMIT = {
    "prepare-commit-msg": ' "$@" $PRE_COMMIT_COMMIT_MSG_SOURCE $PRE_COMMIT_COMMIT_OBJECT_NAME',
    "commit-msg": ' "$@"',
}
_LEFTHOOK = {
    "prepare-commit-msg": ' "{1}" "{2}" "{3}"',
    "commit-msg": ' "{1}"',
    "pre-push": ' "{1}" "{2}"',
}
PRE_COMMIT_ITEMS = (
    ("gitlease-guard", "guard", "pre-commit", ("pre-commit", "pre-merge-commit")),
    ("gitlease-guard-push", "guard of pushes", "pre-push", ("pre-push",)),
    ("gitlease-trailer", "trailer", "prepare-commit-msg", ("prepare-commit-msg",)),
    ("gitlease-message", "message", "commit-msg", ("commit-msg",)),
    (
        *("gitlease-renew", "renew", "post-commit"),
        ("post-commit", "post-checkout", "post-merge", "post-rewrite"),
    ),
)
_IDS = re.compile(rb"^\s*(?:-\s*)?id:\s*['\"]?(gitlease-[a-z-]+)['\"]?\s*(?:#.*)?$", re.MULTILINE)
# What the managers write into the hooks that they make: a mark of their own, the interpreter, and
# the call that passes git's arguments on.
MADE = {
    Way.PRE_COMMIT: re.compile(rb"generated by (?:pre-commit|prek)", re.IGNORECASE),
    Way.LEFTHOOK: re.compile(rb"lefthook"),
}
_INTERPRETER = re.compile(rb"^INSTALL_PYTHON=(.+)$", re.MULTILINE)
LEFTHOOK_CALL = rb'^call_lefthook run "?%s"? "\$@"'


def lines_to_add(place: HookPlace, names: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The lines with which a person makes a manager, or a folder outside, call these hooks; and
    notes on where they belong. No lines where the manager's file names our hooks already.
    """
    if place.way is Way.OUTSIDE:
        return _for_scripts(names), (
            f"git looks for hooks in {place.folder}, outside of this clone: nothing is written",
            "add these lines to the scripts in that folder, below their first line, or unset "
            "core.hooksPath here",
        )
    if place.way is Way.HUSKY:
        return _for_scripts(names, f"{HUSKY}/"), (
            "husky runs the hooks here: add these lines at the top",
        )
    data = read_file(os.path.join(place.top, place.file)) or b""
    if place.way is Way.PRE_COMMIT:
        added = bool(pre_commit_ids(data))
        where = f"pre-commit runs the hooks here: add this to repos: in {place.file}"
        lines = [*pre_commit_lines(names).splitlines(), manager_install(place.way, names)]
    else:
        added = managed_hooks(place) >= {*names}
        where = f"lefthook runs the hooks here: write these lines to {LEFTHOOK_SNIPPET}"
        lines = [f"# {LEFTHOOK_SNIPPET}", *lefthook_snippet(names).splitlines()]
        if LEFTHOOK_SNIPPET.encode() not in data:
            lines += [f"# {place.file}", f"extends: [{LEFTHOOK_SNIPPET}]"]
    if added:
        return (), (f"{place.file} names our hooks already",)
    return tuple(lines), (where,)


def _for_scripts(names: Sequence[str], folder: str = "") -> tuple[str, ...]:
    lines: list[str] = []
    for name in names:
        read = " (standard input is read, and passed on to what follows)"
        lines += [f"# {folder}{name}{read if name in READS_INPUT else ''}", *hook_lines(name)]
    return tuple(lines)


def manager_install(way: Way, names: Iterable[str]) -> str:
    """The command with which a manager installs its own hooks."""
    if way is Way.LEFTHOOK:
        return "lefthook install"
    return "pre-commit install " + " ".join(f"-t {name}" for name in names)


def managed_hooks(place: HookPlace) -> frozenset[str]:
    """The hooks of git in which a manager's file calls us; empty without a manager."""
    data = read_file(os.path.join(place.top, place.file)) if place.file else None
    if place.way is Way.PRE_COMMIT:
        return pre_commit_hooks(data or b"")
    snippet = read_file(os.path.join(place.top, LEFTHOOK_SNIPPET))
    if place.way is not Way.LEFTHOOK or LEFTHOOK_SNIPPET.encode() not in (data or b""):
        return frozenset()
    names = re.findall(rb"^([a-z-]+):$", snippet or b"", re.MULTILINE)
    return frozenset(name.decode() for name in names)


def pre_commit_lines(names: Sequence[str]) -> str:
    """The entry for ``repos:`` in ``.pre-commit-config.yaml`` that calls these hooks."""
    lines = ["- repo: local", "  hooks:"]
    for item, title, hook, stages in PRE_COMMIT_ITEMS:
        wanted = [stage for stage in stages if stage in names]
        if not wanted:
            continue
        words = _PRE_COMMIT.get(hook, "")
        lines += [
            f"    - id: {item}",
            f"      name: gitlease {title}",
            f"      entry: sh -c '{_IF_THERE}{hook_call(hook, words)}' gitlease",
            "      language: system",
            f"      stages: [{', '.join(wanted)}]",
            "      always_run: true",
            f"      pass_filenames: {'true' if words else 'false'}",
            # Pre-commit shows the output of a hook that passes, such as a warning, only so.
            *(["      verbose: true"] if hook in CHECKED else []),
        ]
    return "".join(f"  {line}\n" for line in lines)


def pre_commit_ids(data: bytes) -> frozenset[str]:
    """The ids of our hooks in a ``.pre-commit-config.yaml``."""
    return frozenset(item.decode() for item in _IDS.findall(data))


def pre_commit_hooks(data: bytes) -> frozenset[str]:
    """The hooks of git in which a ``.pre-commit-config.yaml`` calls us, judging by ids."""
    ids = pre_commit_ids(data)
    return frozenset(s for item, _, _, stages in PRE_COMMIT_ITEMS if item in ids for s in stages)


def pre_commit_program(hook: bytes) -> list[str] | None:
    """The words that start pre-commit (or prek) as a hook that it made would; None without it."""
    match = _INTERPRETER.search(hook)
    words = shlex.split(os.fsdecode(match[1])) if match else []
    if len(words) == 1 and os.path.isabs(words[0]) and os.access(words[0], os.X_OK):
        return [words[0], "-mpre_commit"]
    program = shutil.which("prek" if b"generated by prek" in hook else "pre-commit")
    return [program] if program else None


def lefthook_snippet(names: Sequence[str]) -> str:
    """A file for lefthook that calls these hooks."""
    text = ""
    for name in names:
        text += f"{name}:\n  commands:\n    gitlease:\n"
        text += f"      run: {_IF_THERE}{hook_call(name, _LEFTHOOK.get(name, ''))}\n"
        text += "      use_stdin: true\n" if name == "pre-push" else ""
    return text


def rewrite_file(file: str, data: bytes, *, mode: int = PUBLIC) -> None:
    """Replace a file of a person's, which keeps its permissions; ``mode`` is that of a new one.

    Raises OSError.
    """
    try:
        kept = stat.S_IMODE(os.stat(file).st_mode)
    except FileNotFoundError:
        replace_file(file, data, mode=mode)
        share(file)
    else:
        replace_file(file, data, mode=kept)
        os.chmod(file, kept)
