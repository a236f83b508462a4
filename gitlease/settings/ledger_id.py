"""The id of the repository's ledger, which ``init`` records in ``.gitlease.yaml``.

What counts is what is committed: of the fetched default branch, else of HEAD.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator

from gitlease.core.errors import GitleaseError
from gitlease.git.files import read_small, replace_file
from gitlease.git.repository import Repository, ask_objects, default_branches
from gitlease.settings.schema import FILE, LEDGER

MAX_BYTES = 256 * 1024
MAX_OUT = 8 * MAX_BYTES
_ID = r"[0-9A-Za-z-]{1,64}"
# As gitlease writes it, which spares the import of a parser.
_OWN = re.compile(rb"(?m)^lease:(?: \{|[ \t]*\n +)ledger: (" + _ID.encode() + rb")(?:$|[,}])")
# Where the line of an id may be, in a file that is edited, or that cannot be parsed.
_LINE = re.compile(rb"(?m)^[^#\n]*?\bledger['\"]?[ \t]*:[ \t]*['\"]?(" + _ID.encode() + rb")\b")
_LEASE = re.compile(r"(?m)^lease:[ \t]*(?:#.*)?$")
COMMENTED = "#lease:\n"
_FLOW = re.compile(r"(?m)^lease:[ \t]*\{[ \t]*")


def recorded_id(repository: Repository, remotes: Iterable[str]) -> str | None:
    """The committed id, by one git process; None where none is, or git cannot tell."""
    places = (*default_branches(repository, remotes), "HEAD")
    out: list[bytes] = []

    def take(data: bytes) -> None:
        if sum(map(len, out)) < MAX_OUT:
            out.append(data)

    ask_objects(repository, [f"{place}:{FILE}" for place in places], "--batch", on_out=take)
    return next((x for data in _files_in(b"".join(out)) if (x := _id_in(data)) is not None), None)


def _files_in(out: bytes) -> Iterator[bytes]:
    """The files in git's answer, in the order in which they were asked for."""
    while out:
        head, _, out = out.partition(b"\n")
        size = head.rpartition(b" ")[2]
        if size.isdigit():
            yield out[: int(size)]
            out = out[int(size) + 1 :]


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


def record_id(repository: Repository, id: str) -> bool:
    """Write the id into the settings file of the work tree; False where it has to be by hand."""
    path = os.path.join(repository.toplevel or "", FILE)
    data = read_small(path, MAX_BYTES) if repository.toplevel is not None else None
    if data is None:
        return False
    from gitlease.settings.parse import parse_settings

    try:
        before = parse_settings(data)
        edited = _with_id(data.decode(), id).encode()
        after = parse_settings(edited)
    except (GitleaseError, UnicodeDecodeError):
        return False
    others = {k: x.value for k, x in before.items() if k != LEDGER}
    if {k: x.value for k, x in after.items() if k != LEDGER} != others or after[LEDGER].value != id:
        return False
    if edited != data:
        try:
            replace_file(path, edited, mode=os.stat(path).st_mode & 0o777)
        except OSError:
            return False
    return True


def line_of(id: str) -> str:
    """What people add to the file by hand."""
    return f"lease: {{ledger: {id}}}"


def _with_id(text: str, id: str) -> str:
    there = _LINE.search(text.encode())
    if there is not None:
        data = text.encode()
        return (data[: there.start(1)] + id.encode() + data[there.end(1) :]).decode()
    if (block := _LEASE.search(text)) is not None:
        inner = re.compile(r"\n([ ]+)[^\s#]").match(text, block.end())
        indent = inner[1] if inner else "  "
        return f"{text[: block.end()]}\n{indent}ledger: {id}{text[block.end() :]}"
    if (flow := _FLOW.search(text)) is not None:
        rest = text[flow.end() :]
        comma = "" if rest.startswith("}") else ", "
        return f"{text[: flow.end()]}ledger: {id}{comma}{rest}"
    about = "# The ledger's id: no lease is granted on another one."
    if COMMENTED in text:  # as a new file has it: uncommented later, no key may stand twice
        return text.replace(COMMENTED, f"{about}\nlease:\n  ledger: {id}\n", 1)
    end = "" if not text or text.endswith("\n") else "\n"
    return f"{text}{end}\n{about}\nlease:\n  ledger: {id}\n"
