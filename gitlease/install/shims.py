"""The shell scripts that git calls: a section for each hook, which calls gitlease if need be.

A section is between two lines that name it, so that it can be found and removed again to the byte.
It is the same in every repository: what differs is read from the clone's private folder.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum

from gitlease.core.frozen import dataclass
from gitlease.guard.notes import ACTIVITY, COMMIT, MESSAGE, NOW, SINCE, WHO

VERSION = 2
# No hook does the work of two: git skips commit-msg with --no-verify and in a rebase, where
# prepare-commit-msg names leases too, and post-checkout cannot see that a rebase by patches begins.
HOOKS = (
    *("pre-commit", "pre-merge-commit", "prepare-commit-msg", "commit-msg", "post-commit"),
    *("post-checkout", "post-merge", "post-rewrite", "pre-push"),
)
# The hooks that may stop git, and what. A merge without a conflict has a hook of its own.
CHECKED = {
    "pre-commit": "commit",
    "pre-merge-commit": "merge",
    "pre-push": "push",
}
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


@dataclass(frozen=True, slots=True)
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
        aside = f"${{0%{LEGACY}}}{ASIDE}"  # where it is, whoever moved this file
        end += f'\n[ ! -x "{aside}" ] || exec "{aside}" "$@"'
    lines = [f"# BEGIN gitlease {name} v{VERSION} {form.value}: see `gitlease hooks --help`"]
    lines += [begin, *_body(name), end, f"# END gitlease {name}"]
    return ("\n".join(lines) + "\n").encode()


def find_marked(data: bytes, begin: bytes, end: bytes) -> re.Match[bytes] | None:
    """The lines from one that begins with ``begin`` to one that is ``end``; both are patterns."""
    lines = rb"^" + begin + rb"[^\n]*\n(?:[^\n]*\n)*?" + end + rb"(?:\r?\n|\Z)"
    return re.search(lines, data, re.MULTILINE)


def find_section(data: bytes, name: str) -> PlacedSection | None:
    """Our section in a hook, of any version; None without one, or for half of one."""
    word = re.escape(name.encode())
    begin = rb"# BEGIN gitlease " + word + rb" v\d{1,6} (file|section|chain):"
    found = find_marked(data, begin, rb"# END gitlease " + word)
    if found is None:
        return None
    form = SectionForm(found[1].decode())
    return PlacedSection(form, found.start(), found.end(), found[0])


def is_current(placed: PlacedSection, name: str) -> bool:
    """Whether a section is what this version of gitlease writes."""
    return placed.text == section(name, placed.form)


def _body(name: str) -> list[str]:
    # A push has no idle marker: it asks the remote anyway.
    idle = {"pre-push": "", "post-rewrite": _REWRITTEN + _IDLE}.get(name, _IDLE)
    return (
        (_FIND + idle + _PROGRAM + (_ASK if name in CHECKED else _TELL))
        .replace("@GIT@", _NOTHING_STAGED if _MARKERS.get(name) == COMMIT else "")
        .replace("@MARKER@", _MARKERS.get(name, ACTIVITY))
        .replace("@NAME@", name)
        .replace("@WHAT@", CHECKED.get(name, ""))
        .replace("@INPUT@", "" if name in READS_INPUT else " </dev/null")
        .splitlines()
    )


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
