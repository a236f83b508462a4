"""Calls of gitlease that people wrote into hooks of their own, as `hooks install` prints them.

They are known by their words, not by their bytes, and are never written to.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator

from gitlease.adapters.hook_managers import hook_lines
from gitlease.adapters.hook_places import HUSKY, Place, read_file
from gitlease.adapters.hook_shims import CHECKED, HOOKS, find_section
from gitlease.domain.frozen import dataclass

_WORDS = r"[\"']?(?P<word>(?:[^\s\"'`;|&()]*/)?(?:gitlease|git-lease)|git\s+lease)[\"']?\s+hook\s+"
_ENDS = r"(?=$|[\s;&|)<>])"
# What may stand before a command on its line: other commands, and variables for this one.
_BEFORE = re.compile(
    r"(?:.*(?:[;&|({]|\b(?:then|do|else|if|exec|command|env|time)\b))?\s*(?:\w+=\S*\s+)*"
)
_COMMENT = re.compile(r"(?:^|\s)#")
_SHELL = re.compile(r"#!.*\b(?:sh|bash|dash|ash|ksh|mksh|zsh|busybox)\b")
_HEREDOC = re.compile(r"<<-?\s*['\"]?(?P<end>\w+)")
# How a refusal is heeded: by an exit of its own, by `set -e`, or since nothing comes after it.
_EXITS = re.compile(r"\|\|.*\b(?:exit|return)\b(?!\s+0)")
_FAILS_FAST = re.compile(r"set\s+-\w*e\w*\b.*")
_ALONE = re.compile(r"\s*(?:exec\s+)?(?:\w+=\S*\s+)*")
_PLAIN = re.compile(r"[^;&|<>()`#]*(?:&&[^;&|<>()`#]*)?(?:#.*)?")
# What starts nothing: a probe may pass over it.
_QUIET = re.compile(r"#.*|set [-+].*|\w+=[\w./:-]*|gitlease_in=\$\(cat\)|")


@dataclass(frozen=True, slots=True)
class OwnCall:
    """A call in a script of somebody's own. ``word`` is the gitlease that it names.

    ``first``: it is the line that is printed, and nothing else is started before it, so that a
    probe ends there. ``runs``: the script may be executed.
    """

    path: str
    word: str
    first: bool
    runs: bool


def own_call(place: Place, name: str) -> OwnCall | None:
    """The call of one hook in a script of somebody's own; None where there is none, or ours."""
    for folder in script_folders(place):
        path = os.path.join(folder, name)
        data = read_file(path)
        if data is None or find_section(data, name) is not None:
            continue
        found = _find(data, name, fails_fast=folder != place.folder)  # husky's are run by sh -e
        if found is not None:
            called = path if folder == place.folder else os.path.join(place.folder, name)
            return OwnCall(path, *found, os.access(called, os.X_OK))
    return None


def own_calls(folders: Iterable[str]) -> Iterator[str]:
    """A sentence for each of these folders with scripts that call gitlease in others' lines."""
    for folder in folders:
        read = ((name, read_file(os.path.join(folder, name))) for name in HOOKS)
        names = [name for name, data in read if data is not None and _stays(data, name)]
        if names:
            yield f"{', '.join(names)} in {folder} call gitlease in lines of your own"


def script_folders(place: Place) -> tuple[str, ...]:
    """Where scripts of people are: husky's lie above the folder that git knows."""
    above, last = os.path.split(place.folder)
    husky = last == "_" and os.path.basename(above) == HUSKY
    return (*([above] if husky else []), place.folder)


def _stays(data: bytes, name: str) -> bool:
    placed = find_section(data, name)
    rest = data if placed is None else data[: placed.start] + data[placed.end :]
    return _find(rest, name) is not None


def _find(data: bytes, name: str, *, fails_fast: bool = False) -> tuple[str, bool] | None:
    """The word that a script calls us by, and whether it is the first of what the script starts.

    A call whose refusal is passed over is none, nor is one below a plain ``exit``. ``fails_fast``:
    the script ends with the first command that fails.
    """
    call = re.compile(_WORDS + re.escape(name) + _ENDS)
    printed = {line.strip() for line in hook_lines(name)}
    lines = _commands(data.decode("utf-8", "surrogateescape"))
    quiet = True
    for number, line in enumerate(lines):
        if re.match(r"exit\b", line):
            return None
        text = line.strip()
        found = call.search(text)
        if found and _is_command(text[: found.start()]):
            last = not any(lines[number + 1 :])
            heeded = _is_heeded(text, found, fails_fast=fails_fast, last=last)
            if name not in CHECKED or text in printed or heeded:
                return found["word"], quiet and text in printed
        fails_fast = fails_fast or _FAILS_FAST.fullmatch(text) is not None
        quiet = quiet and _QUIET.fullmatch(text) is not None
    return None


def _commands(text: str) -> list[str]:
    """The lines of a shell's script, empty where they are a comment or the text of a here-document.

    Nothing where it is a script of something else.
    """
    lines = text.split("\n")
    if lines[0].startswith("#!") and not _SHELL.match(lines[0]):
        return []
    found, end = list[str](), ""
    for line in lines:
        inside = end != ""
        if line.strip() == end:
            end = ""
        elif not inside and (begun := _HEREDOC.search(line)):
            end = begun["end"]
        found.append("" if inside or line.lstrip().startswith("#") else line.rstrip("\r"))
    return found


def _is_command(before: str) -> bool:
    quoted = before.count("'") % 2 or before.count('"') % 2
    return not quoted and not _COMMENT.search(before) and _BEFORE.fullmatch(before) is not None


def _is_heeded(text: str, found: re.Match[str], *, fails_fast: bool, last: bool) -> bool:
    """Whether the script ends with a refusal, as far as one line can tell."""
    before, after = text[: found.start()], text[found.end() :]
    if _EXITS.search(after):
        return True
    if not _PLAIN.fullmatch(after):
        return False
    return last or "exec" in before.split() or (fails_fast and _ALONE.fullmatch(before) is not None)
