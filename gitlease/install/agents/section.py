"""The marked section of AGENTS.md: written on request only, and taken out again."""

from __future__ import annotations

import re

from gitlease.install.agents.place import AgentFile, FileDone, read, write
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


def write_section(place: AgentFile) -> FileDone:
    """Write the marked section after a line end of its own, or anew where it is."""
    before = read(place) or b""
    end = b"\r\n" if b"\r\n" in before else b"\n"
    section = end.join(line.encode() for line in SECTION) + end
    found = _find(before)
    after = swap(before, found, section) if found else before + (end if before else b"") + section
    if after == before:
        return FileDone(place.name, "unchanged")
    write(place, after)
    return FileDone(place.name, "written")


def remove_section(place: AgentFile, *, keep: bool = False) -> FileDone:
    """Take the section out, with the line end before it; ``keep``: others need it yet."""
    before = read(place) or b""
    found = _find(before)
    if found is None:
        return FileDone(place.name, "absent")
    if keep:
        return FileDone(place.name, "kept")
    head = before[: found.start()].removesuffix(b"\n").removesuffix(b"\r")
    write(place, head + before[found.end() :])
    return FileDone(place.name, "removed")


def _find(text: bytes) -> re.Match[bytes] | None:
    return find_marked(text, b"<!-- BEGIN GITLEASE", rb"<!-- END GITLEASE -->[ \t]*")
