"""Remembers what a settings file says, by its bytes: hooks have no time to parse YAML."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

from gitlease.git.files import load_json, store_json
from gitlease.settings.schema import KEYS, Found

FORMAT = 1
FILE = "settings.json"
MAX_BYTES = 1024 * 1024


def remembered(
    data: bytes, parse: Callable[[bytes], dict[str, Found]], folder: str
) -> dict[str, Found]:
    """What ``parse`` makes of the bytes, which it is asked only once for in this clone.

    Raises what ``parse`` raises; that is not remembered.
    """
    file, purpose = os.path.join(folder, FILE), _purpose(data)
    kept = load_json(file, MAX_BYTES)
    if isinstance(kept, dict) and kept.get("purpose") == purpose:
        with contextlib.suppress(LookupError, TypeError, ValueError, AttributeError):
            return {
                name: Found(value, str(source)) for name, (value, source) in kept["found"].items()
            }
    found = parse(data)
    with contextlib.suppress(OSError):
        if os.path.isdir(folder):
            rows = {name: [entry.value, entry.source] for name, entry in found.items()}
            store_json(file, {"purpose": purpose, "found": rows})
    return found


def _purpose(data: bytes) -> list[object]:
    """These bytes, read by this schema: compared whole, which costs less than a digest."""
    schema = repr([(k.name, k.form.value, k.default, k.members) for k in KEYS.values()])
    return [FORMAT, schema, data.decode("latin-1")]
