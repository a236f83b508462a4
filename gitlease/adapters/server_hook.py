"""The pre-receive hook of a server: the shell that git calls, which calls gitlease.

A missing or broken gitlease must neither let a ledger's change through that nobody judged nor hold
up work: the shell decides that by itself, with the mode that git's configuration has.
"""

from __future__ import annotations

import re
import shlex
from enum import Enum

from gitlease.domain.frozen import dataclass

VERSION = 2
NAME = "pre-receive"
ASIDE_FOLDER = "gitlease.d"  # has the hook that was there before, under its own name
OLD_ASIDE = ".before-gitlease"  # what version 1 added to its name instead
PROBE, ANSWER = "GITLEASE_PROBE", "gitlease-probe"
ACCEPTED, REFUSED = 0, 9  # statuses of gitlease; any other is a fault of its own


class Form(Enum):
    """How our hook stands: alone, before a hook that was set aside, or as one of a folder's."""

    FILE = "file"
    CHAIN = "chain"
    PART = "part"


@dataclass(frozen=True, slots=True)
class Placed:
    """A hook of ours as it was found: its form, and the gitlease that it starts."""

    form: Form
    version: int
    program: str


def shim(form: Form, program: str) -> bytes:
    """A whole hook file of ours. ``program`` is tried before the gitlease on PATH."""
    text = (
        _SHIM.replace("@FORM@", form.value)
        .replace("@VERSION@", str(VERSION))
        .replace("@PROGRAM@", shlex.quote(program))
        .replace("@ACCEPTED@", str(ACCEPTED))
        .replace("@REFUSED@", str(REFUSED))
        .replace("@CHAIN@", _CHAIN if form is Form.CHAIN else "")
    )
    return text.encode()


def find_shim(data: bytes) -> Placed | None:
    """What a hook file of ours says of itself; None for any other file."""
    found = _HEAD.match(data)
    if found is None:
        return None
    try:
        words = shlex.split(found[3].decode("utf-8", "surrogateescape"))
    except ValueError:
        return None
    program = words[0] if words else ""
    return Placed(Form(found[2].decode()), int(found[1]), program)


def is_current(data: bytes) -> bool:
    """Whether a hook file is what this version of gitlease writes."""
    placed = find_shim(data)
    return placed is not None and data == shim(placed.form, placed.program)


_HEAD = re.compile(
    rb"#!/bin/sh\n# gitlease pre-receive v(\d{1,6}) (file|chain|part): [^\n]*\np=([^\n]*)\n"
)
# What comes in is read whole, since whoever stands behind us wants it as well. Mode and prefix are
# asked of git's files, where no client can write, and not of what the environment adds to them.
_SHIM = """\
#!/bin/sh
# gitlease pre-receive v@VERSION@ @FORM@: see `gitlease server --help`
p=@PROGRAM@
[ -f "$p" ] && [ -x "$p" ] || p=gitlease
command -v "$p" >/dev/null 2>&1 || p=
if [ -n "${GITLEASE_PROBE-}" ]; then echo "gitlease-probe pre-receive v@VERSION@ $p" >&2; exit 1; fi
in=$(cat)
give() { trap '' PIPE; printf '%s' "${in:+$in
}" 2>/dev/null || :; }
s=127
if [ -n "$p" ]; then
  give | "$p" server-hook pre-receive
  s=$?
fi
case $s in
  @ACCEPTED@) ;;
  @REFUSED@) exit 1 ;;
  *)
    why="gitlease failed with status $s"
    [ -n "$p" ] || why="gitlease is not found on this server"
    mode=$(git config --local gitlease.mode 2>/dev/null)
    for f in local global system; do
      prefix=$(git config --$f --includes lease.refPrefix 2>/dev/null) && break
    done
    prefix=${prefix:-refs/gitlease}
    if [ "$mode" != warn ] && give | grep -iF -e "$prefix/" >/dev/null; then
      echo "gitlease: refused (fault): $why, and a ledger is not changed unseen" >&2
      exit 1
    fi
    echo "gitlease: warning: $why, so this push is not checked" >&2
    ;;
esac
@CHAIN@exit 0
"""
_CHAIN = """\
before=$(dirname -- "$0")/gitlease.d/pre-receive
if [ -x "$before" ]; then
  give | "$before" "$@"
  exit $?
fi
"""
