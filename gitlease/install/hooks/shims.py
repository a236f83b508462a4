"""The shell that git calls: a section for each hook, which decides by the gate or calls gitlease.

A section stands between two lines that name it, so that it can be found and taken out again to the
byte. It is the same in every repository: what differs is read from the clone's private folder.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum

from gitlease.core.frozen import dataclass
from gitlease.guard.idle_marker import WHO
from gitlease.install.managed_text import find_marked

VERSION = 1
HOOKS = (
    *("pre-commit", "prepare-commit-msg", "commit-msg", "post-commit", "post-checkout"),
    *("post-merge", "post-rewrite", "pre-push"),
)
CHECKED = {"pre-commit": "commit", "pre-push": "push"}  # what a hook may stop; the others never do
SHEBANG = b"#!/bin/sh\n"
ASIDE = ".before-gitlease"  # what a hook that is no shell script is called meanwhile
PROBE, SKIP = "GITLEASE_PROBE", "GITLEASE_SKIP"
ANSWER = "gitlease-probe"
MOST_PLACES = 50  # where tasks are: of more of them gitlease itself thinks


class Form(Enum):
    """How a section stands in its file: alone, in somebody's script, or before a hook set aside."""

    FILE = "file"
    SECTION = "section"
    CHAIN = "chain"


@dataclass(frozen=True, slots=True)
class Placed:
    """A section that was found in a file, from byte ``start`` up to ``end``."""

    form: Form
    version: int
    start: int
    end: int
    text: bytes


def shim(name: str, form: Form = Form.FILE) -> bytes:
    """A whole hook file of ours."""
    return SHEBANG + section(name, form)


def section(name: str, form: Form) -> bytes:
    """The lines of one hook. They leave the script's standard input to what follows them."""
    begin, end = "(", ") || exit 1"
    if name == "pre-push" and form is not Form.FILE:
        begin, end = _KEEP_INPUT, f"{end}\n{_GIVE_INPUT}"
    if form is Form.CHAIN:
        end += f'\n[ ! -x "$0{ASIDE}" ] || exec "$0{ASIDE}" "$@"'
    lines = [f"# BEGIN gitlease {name} v{VERSION} {form.value}: see `gitlease hooks --help`"]
    lines += [begin, *_body(name), end, f"# END gitlease {name}"]
    return ("\n".join(lines) + "\n").encode()


def find_section(data: bytes, name: str) -> Placed | None:
    """Our section in a hook, of whatever version; None where there is none, or half of one."""
    word = re.escape(name.encode())
    begin = rb"# BEGIN gitlease " + word + rb" v(\d{1,6}) (file|section|chain):"
    found = find_marked(data, begin, rb"# END gitlease " + word)
    if found is None:
        return None
    form = Form(found[2].decode())
    return Placed(form, int(found[1]), found.start(), found.end(), found[0])


def is_current(placed: Placed, name: str) -> bool:
    """Whether a section is what this version of gitlease writes."""
    return placed.text == section(name, placed.form)


def is_edited(placed: Placed, name: str) -> bool:
    """Whether somebody changed a section of this version by hand."""
    return placed.version == VERSION and not is_current(placed, name)


def _body(name: str) -> list[str]:
    reads = "" if name == "pre-push" else _READ_GATE.replace("@GATE@", _gate(name))
    call = _ASK if name in CHECKED else _TELL
    return (
        (_FIND + reads + _PROGRAM + call)
        .replace("@NAME@", name)
        .replace("@WHAT@", CHECKED.get(name, ""))
        .replace("@INPUT@", "" if name == "pre-push" else " </dev/null")
        .replace("@VERSION@", str(VERSION))
        .splitlines()
    )


def _gate(name: str) -> str:
    """When there is nothing to do, by the numbers of the gate.

    A push has none: it asks the remote anyway, and what it sends is judged by what is true now.
    """
    if name == "pre-commit":
        return _IF_CLEAR
    if name in ("prepare-commit-msg", "commit-msg"):
        late = '[ "$now" -ge "$held" ]'
    else:
        late = '[ "$now" -ge "$held" ] || [ "$now" -lt "$renew" ]'
    idle = f'      if [ "$held" = 0 ]; then exit 0; fi\n{_NOW}'
    return f"{idle}      if {{ {late}; }} 2>/dev/null; then exit 0; fi\n"


# The time, without a process where the shell keeps it, or where the kernel tells how long it runs
# and the gate says since when: in one boot, which has an id.
_NOW = """\
      now=${EPOCHSECONDS:-} up= id=
      case ${offset:-x} in *[!0-9]*) ;; *)
        if [ -z "$now" ] && read -r up id </proc/uptime && up=${up%%.*} &&
          read -r id </proc/sys/kernel/random/boot_id && [ "$id" = "$boot" ]; then
          case ${up:-x} in *[!0-9]*) ;; *) now=$((up + offset)) ;; esac
        fi 2>/dev/null
      esac
      [ -n "$now" ] || now=$(date +%s)
"""

# The common directory of the clone, found by shell alone: a linked work tree points to it.
_FIND = """\
  [ -z "${GITLEASE_SKIP-}" ] || exit 0
  d=${GIT_DIR:-.git} c= p=
  if [ -f "$d" ]; then IFS= read -r c <"$d" || :; d=${c#gitdir: } c=; fi
  if [ -f "$d/commondir" ]; then IFS= read -r c <"$d/commondir" || :; fi
  case $c in '') ;; /*) d=$c ;; *) d=$d/$c ;; esac
  d=${GIT_COMMON_DIR:-$d}
"""


def _words(names: Sequence[str]) -> str:
    """Whether each variable is set, and to what."""
    return ":".join(f"${{{name}+.${name}}}" for name in names)


# A gate serves whom it was made for, as long as the settings that say who that is are older than
# it: the places of git's settings go into the comparison, the files themselves by their dates. The
# further lines of the gate begin with such files, by their full paths. What is not three numbers
# lets nothing pass, and is not compared: ksh takes it for a sum. The file may go at any moment.
# EPOCHSECONDS of the environment is no clock; a shell that keeps one ignores the assignment, but
# for zsh, which would end there.
_READ_GATE = f"""\
  g=$d/gitlease/gate
  who={_words(WHO[:3])}
  who=$who:{_words(WHO[3:5])}
  who=$who:{_words(WHO[5:])}
  fits() {{ [ ! -e "$1" ] || [ "$g" -nt "$1" ]; }}
  [ -n "${{ZSH_VERSION-}}" ] || EPOCHSECONDS=
  if [ -z "${{GITLEASE_PROBE-}}" ] && [ -f "$g" ] && {{
    fits "$d/config" && fits .gitlease.yaml && fits "${{HOME-}}/.gitconfig" &&
      fits "${{XDG_CONFIG_HOME:-${{HOME-}}/.config}}/git/config" &&
      fits "${{GIT_CONFIG_GLOBAL-}}" && {{
        read -r clear renew held word offset boot made && [ "$made" = "$who" ] &&
          while IFS= read -r line; do
            case $line in /*) fits "$line" || clear=x ;; *) break ;; esac
          done
      }} <"$g"
  }} 2>/dev/null; then
    case $clear$renew${{held:-x}} in *[!0-9]*) ;; *)
@GATE@    esac
  fi
"""
# What is held here is another's for whoever git is told to be for this one command. Where a commit
# may claim a task, git says whether anything is staged where tasks are: the further lines of the
# gate. They are literal, but in upper or lower case, as in the settings; git takes no
# dots out of them. What this clone alone cannot tell for certain is gitlease's to find out.
_IF_CLEAR = f"""\
{_NOW}      case $held:${{GIT_CONFIG_COUNT-}}:${{GIT_CONFIG_PARAMETERS-}} in
        0:*) ;;
        *:[0-9]*:* | *[eE][mM][aA][iI][lL]* | *[lL][eE][aA][sS][eE].* | *[iI]nclude*) clear=0 ;;
      esac
      if [ "$clear" != 0 ] && [ "$now" -lt "$clear" ] 2>/dev/null; then
        case $word in '' | -) exit 0 ;; esac
        if [ "$word" = tasks ] && (
          exec <"$g" || exit 1
          read -r again renew held word offset boot made || exit 1
          [ "$again $word $made" = "$clear tasks $who" ] || exit 1
          set --
          while IFS= read -r line; do
            case $#$line in 0/*) continue ;; esac
            case /$line/ in *//* | */./* | */../*) exit 1 ;; esac
            [ $# -lt {MOST_PLACES} ] || exit 1
            set -- "$@" ":(top,literal,icase)$line"
          done
          [ $# -gt 0 ] && [ -z "$line" ] || exit 1
          unset GIT_LITERAL_PATHSPECS GIT_GLOB_PATHSPECS GIT_NOGLOB_PATHSPECS GIT_ICASE_PATHSPECS
          export GIT_ALLOW_PROTOCOL=none GIT_NO_LAZY_FETCH=1
          exec git --no-replace-objects -c index.sparse=false diff-index --cached --quiet \\
            --ignore-submodules=none HEAD -- "$@"
        ) 2>/dev/null; then exit 0; fi
      fi
"""
_PROGRAM = """\
  if [ -f "$d/gitlease/program" ]; then IFS= read -r p <"$d/gitlease/program" || :; fi
  [ -f "$p" ] && [ -x "$p" ] || p=gitlease
  command -v "$p" >/dev/null 2>&1 || p=
  if [ -n "${GITLEASE_PROBE-}" ]; then echo "gitlease-probe @NAME@ v@VERSION@ $p" >&2; exit 1; fi
"""
# 1 is also what an interpreter ends with that cannot load gitlease: then nobody was asked.
_ASK = """\
  if [ -z "$p" ]; then echo "gitlease: not found, so this @WHAT@ is not checked" >&2; exit 0; fi
  "$p" hook @NAME@ "$@"@INPUT@ && exit 0
  s=$?
  if [ $s = 1 ] && "$p" --version </dev/null >/dev/null 2>&1; then exit 1; fi
  echo "gitlease: it failed with status $s, so this @WHAT@ is not checked" >&2
  exit 0
"""
# These never stop git; what is missing is said once, by the hook that checks.
_TELL = """\
  [ -z "$p" ] || "$p" hook @NAME@ "$@" </dev/null || :
  exit 0
"""
# Whoever does not read it all must not fail for that, whatever the script sets for its pipes.
_KEEP_INPUT = """\
gitlease_in=$(cat)
{ trap '' PIPE; printf '%s' "${gitlease_in:+$gitlease_in
}" 2>/dev/null || :; } | ("""
_GIVE_INPUT = """\
if [ -n "$gitlease_in" ]; then exec <<gitlease_in
$gitlease_in
gitlease_in
else exec </dev/null; fi"""
