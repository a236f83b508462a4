"""Reads ``.gitlease.yaml``: anyone who can commit writes it, so nothing in it is taken on trust.

What it says is remembered by its bytes: hooks have no time to parse YAML.
"""

from __future__ import annotations

import contextlib
import errno
import os

from gitlease.core.errors import Invalid
from gitlease.core.frozen import dataclass
from gitlease.git.files import load_json, read_regular, store_json
from gitlease.settings.schema import KEYS, Found

FILE = ".gitlease.yaml"
MAX_BYTES = 256 * 1024
CACHE_FORMAT = 1
MAX_CACHE = 1024 * 1024  # bytes


@dataclass(frozen=True, slots=True)
class CommittedFile:
    """The file as a commit has it: its bytes, None where the commit has none."""

    data: bytes | None
    commit: str


def read_committed(file: CommittedFile) -> dict[str, Found]:
    """What a committed file sets, by dotted key. Raises Invalid, which names line and commit."""
    try:
        return {} if file.data is None else _parse(file.data)
    except Invalid as error:
        raise Invalid(f"{error.message} (in {file.commit[:10]})", hints=error.hints) from None


def read_settings_file(toplevel: str | None, *, folder: str) -> dict[str, Found]:
    """What the file at the work tree's root sets, by dotted key; nothing where there is no file.

    What is read is remembered in ``folder``. Raises Invalid, which names the line, for anything
    that is not exactly as it should be.
    """
    data = None if toplevel is None else _load(os.path.join(toplevel, FILE))
    if data is None:
        return {}
    cache, purpose = os.path.join(folder, "settings.json"), _purpose(data)
    kept = load_json(cache, MAX_CACHE)
    if isinstance(kept, dict) and kept.get("purpose") == purpose:
        with contextlib.suppress(LookupError, TypeError, ValueError, AttributeError):
            return {
                name: Found(value, str(source)) for name, (value, source) in kept["found"].items()
            }
    found = _parse(data)
    with contextlib.suppress(OSError):
        if os.path.isdir(folder):
            rows = {name: [entry.value, entry.source] for name, entry in found.items()}
            store_json(cache, {"purpose": purpose, "found": rows})
    return found


def _purpose(data: bytes) -> list[object]:
    """These bytes, read by this schema: compared whole, which costs less than a digest."""
    schema = repr([(k.name, k.form.value, k.default, k.members) for k in KEYS.values()])
    return [CACHE_FORMAT, schema, data.decode("latin-1")]


def _parse(data: bytes) -> dict[str, Found]:
    from gitlease.settings.parse import parse_settings  # what is remembered needs none of it

    return parse_settings(data)


def _load(path: str) -> bytes | None:
    try:
        data = read_regular(path, MAX_BYTES)  # never waits for a pipe in its place
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise Invalid(f"{FILE} is a symbolic link, not a regular file") from None
        raise Invalid(f"{FILE} cannot be read: {error.strerror}") from None
    if data is None:
        raise Invalid(f"{FILE} is not a regular file")
    if len(data) > MAX_BYTES:
        raise Invalid(f"{FILE} is larger than {MAX_BYTES // 1024} KiB")
    return data
