"""The id of the repository's ledger, which ``init`` records in ``.gitlease.yaml``.

What counts is what is committed: of the fetched default branch, else of HEAD.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable

from gitlease.core.errors import GitleaseError
from gitlease.git.files import Unreadable, read_small, replace_file
from gitlease.git.objects import BLOB, objects_of
from gitlease.git.repository import Repository, default_branches
from gitlease.settings.schema import FILE, LEDGER

MAX_BYTES = 256 * 1024
MAX_OUT = 8 * MAX_BYTES
_ID = r"[0-9A-Za-z-]{1,64}"
# As gitlease writes it, which spares the import of a parser.
_OWN = re.compile(rb"(?m)^lease:(?: \{|[ \t]*\n +)ledger: (" + _ID.encode() + rb")(?:$|[,}])")
# Where the line of an id may be, in a file that cannot be parsed.
_LINE = re.compile(rb"(?m)^[^#\n]*?\bledger['\"]?[ \t]*:[ \t]*['\"]?(" + _ID.encode() + rb")\b")
_LEASE = re.compile(r"(?m)^lease:[ \t]*(?:#.*)?$")
COMMENTED = "#lease:\n"
_FLOW = re.compile(r"(?m)^lease:[ \t]*\{[ \t]*")


def recorded_id(repository: Repository, remotes: Iterable[str]) -> str | None:
    """The committed id, by one git process; None where none is, or git cannot tell."""
    objects = objects_of(repository)
    for place in (*default_branches(repository, remotes), "HEAD"):
        with contextlib.suppress(Unreadable):
            found = _id_in(objects.named(f"{place}:{FILE}", BLOB, MAX_OUT))
            if found is not None:
                return found
    return None


def _id_in(data: bytes) -> str | None:
    if found := _OWN.search(data):
        return found[1].decode()
    if len(data) > MAX_BYTES or not (b"ledger" in data or b"\\" in data):
        return None
    from gitlease.settings.parse import parse_settings

    try:
        setting = parse_settings(data).get(LEDGER)
    except GitleaseError:  # what it says of other settings must not hide the id
        found = _LINE.search(data)
        return found[1].decode() if found else None
    return None if setting is None else str(setting.value)


def record(repository: Repository, wanted: dict[str, str]) -> bool | None:
    """Write settings of ``lease`` into the work tree's file, whatever is there of the same names.

    None where it has them already, and False where it has to be by hand.
    """
    path = os.path.join(repository.toplevel or "", FILE)
    data = read_small(path, MAX_BYTES) if repository.toplevel is not None else None
    if data is None:
        return False
    from gitlease.settings.parse import parse_settings

    try:
        expected = {k: x.value for k, x in parse_settings(data).items()} | wanted
        text = data.decode()
        for name in sorted(wanted, reverse=True):  # the id first, where it is looked for
            text = _with_setting(text, name.removeprefix("lease."), wanted[name])
        if {k: x.value for k, x in parse_settings(text.encode()).items()} != expected:
            return False
        if text.encode() == data:
            return None
        replace_file(path, text.encode(), mode=os.stat(path).st_mode & 0o777)
    except (GitleaseError, UnicodeDecodeError, OSError):
        return False
    return True


def _with_setting(text: str, key: str, value: str) -> str:
    line = rf"(?m)^[^#\n]*?\b{key}['\"]?[ \t]*:[ \t]*['\"]?([\w./-]+)"
    if (there := re.search(line, text)) is not None:
        return text[: there.start(1)] + value + text[there.end(1) :]
    if (block := _LEASE.search(text)) is not None:
        inner = re.compile(r"\n([ ]+)[^\s#]").match(text, block.end())
        indent = inner[1] if inner else "  "
        return f"{text[: block.end()]}\n{indent}{key}: {value}{text[block.end() :]}"
    if (flow := _FLOW.search(text)) is not None:
        rest = text[flow.end() :]
        comma = "" if rest.startswith("}") else ", "
        return f"{text[: flow.end()]}{key}: {value}{comma}{rest}"
    about = "# The ledger's id: no lease is granted on another one."
    if COMMENTED in text:  # as a new file has it: uncommented later, no key may stand twice
        return text.replace(COMMENTED, f"{about}\nlease:\n  {key}: {value}\n", 1)
    end = "" if not text or text.endswith("\n") else "\n"
    return f"{text}{end}\n{about}\nlease:\n  {key}: {value}\n"
