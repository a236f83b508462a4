"""The marked section of AGENTS.md: written on request only, and taken out again."""

from __future__ import annotations

import re

from gitlease.install.agents.place import Done, Place, read, take_out, write
from gitlease.install.managed_text import find_marked, swap

BEGIN, END = "<!-- BEGIN GITLEASE v=1 -->", "<!-- END GITLEASE -->"
SECTION = (
    BEGIN,
    "## Leases",
    "",
    "Several people and agents work in this repository at once. `gitlease` says who works on what:",
    "",
    "- `gitlease brief` shows what you hold, what others hold, and free tasks",
    "- `gitlease next --claim` takes the next free task, `gitlease claim RESOURCE` a certain one",
    "- what another holds is theirs until it is free: work on something else meanwhile",
    '- `gitlease release RESOURCE --note "..."` gives back, `gitlease done TASK` finishes',
    END,
)


def write_section(place: Place) -> Done:
    """Write the marked section at the end of the file, or anew where it is."""
    before = read(place)
    text = before or b""
    end = b"\r\n" if b"\r\n" in text else b"\n"
    section = end.join(line.encode() for line in SECTION) + end
    found = _find(text)
    if found:
        after = swap(text, found, section)
    else:
        gap = b"" if not text else end if text.endswith(b"\n") else end + end
        after = text + gap + section
    if after == before:
        return Done(place.name, "unchanged")
    original = before if not found else _without(text, found)
    write(place, after, original=original, before=before)
    return Done(place.name, "written")


def remove_section(place: Place, *, keep: bool = False) -> Done:
    """Take the section out, with the empty line that came with it; ``keep``: others need it yet."""
    before = read(place)
    found = _find(before or b"")
    if before is None or found is None:
        return Done(place.name, "absent")
    if keep:
        return Done(place.name, "kept")
    rest = _without(before, found)
    return take_out(place, before, rest, nothing_left=not rest.strip())


def _find(text: bytes) -> re.Match[bytes] | None:
    return find_marked(text, b"<!-- BEGIN GITLEASE", rb"<!-- END GITLEASE -->[ \t]*")


def _without(text: bytes, found: re.Match[bytes]) -> bytes:
    before = text[: found.start()].removesuffix(b"\n").removesuffix(b"\r")
    return before + text[found.end() :]
