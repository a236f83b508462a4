"""The pre-receive hook of a server: the shell script that git calls, which calls gitlease.

Without a working gitlease nothing may be accepted unjudged: the script itself refuses the push,
unless git's configuration has mode ``warn``.
"""

from __future__ import annotations

import os
import re
import shlex
from enum import Enum

from gitlease.core.frozen import dataclass

VERSION = 4
NAME = "pre-receive"
ASIDE_FOLDER = "gitlease.d"  # has the hook that was there before, under its own name
ACCEPTED, REFUSED = 0, 9  # exit codes of gitlease; any other means that it has not judged


class HookForm(Enum):
    """The form of our hook: alone, after a hook set aside, or one of a folder of hooks.

    It judges last: while another hook runs, somebody may claim what the push touches.
    """

    FILE = "file"
    CHAIN = "chain"
    PART = "part"


@dataclass(frozen=True, slots=True)
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
        .replace("@ACCEPTED@", str(ACCEPTED))
        .replace("@REFUSED@", str(REFUSED))
        .replace("@READ@", _READ if form is HookForm.CHAIN else "")
        .replace("@JUDGE@", _JUDGE_COPY if form is HookForm.CHAIN else _JUDGE)
        .replace("@CHAIN@", _CHAIN if form is HookForm.CHAIN else "")
    )
    return text.encode()


def aside_of(hook: str) -> str:
    """Where the hook from before is set aside, under its own name: many hooks depend on that."""
    return os.path.join(os.path.dirname(hook), ASIDE_FOLDER, NAME)


def find_shim(data: bytes) -> PlacedHook | None:
    """Read the head of a hook file of ours; None for any other file."""
    found = _HEAD.match(data)
    if found is None:
        return None
    try:
        words = shlex.split(found[2].decode("utf-8", "surrogateescape"))
    except ValueError:
        return None
    return PlacedHook(HookForm(found[1].decode()), words[0] if words else "")


def is_current(data: bytes) -> bool:
    """Whether a hook file is what this version of gitlease writes."""
    placed = find_shim(data)
    return placed is not None and data == shim(placed.form, placed.program)


_HEAD = re.compile(
    rb"#!/bin/sh\n# gitlease pre-receive v\d{1,6} (file|chain|part): [^\n]*\np=([^\n]*)\n"
)
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
  @ACCEPTED@) ;;
  @REFUSED@) exit 1 ;;
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
