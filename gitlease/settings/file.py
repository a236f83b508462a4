"""Reads the ``.gitlease.yaml`` of a work tree, with a cache keyed by its bytes.

Hooks have no time to parse YAML.
"""

from __future__ import annotations

import contextlib
import errno
import os

from gitlease.core.errors import Invalid
from gitlease.git.files import load_json, read_regular, store_json
from gitlease.settings.schema import FILE, KEYS, Found

MAX_BYTES = 256 * 1024
CACHE_FORMAT = 1
MAX_CACHE = 1024 * 1024  # bytes


def read_settings_file(toplevel: str | None, *, folder: str) -> dict[str, Found]:
    """Return the settings in the file at the work tree's root, by dotted key; {} without a file.

    The cache is in ``folder``. Raises Invalid, which names the line.
    """
    data = None if toplevel is None else _load(os.path.join(toplevel, FILE))
    if data is None:
        return {}
    # Compared whole, which costs less than a digest.
    schema = repr([(k.name, k.form.value, k.default, k.members) for k in KEYS.values()])
    purpose = [CACHE_FORMAT, schema, data.decode("latin-1")]
    cache = os.path.join(folder, "settings.json")
    kept = load_json(cache, MAX_CACHE)
    if isinstance(kept, dict) and kept.get("purpose") == purpose:
        with contextlib.suppress(LookupError, TypeError, ValueError, AttributeError):
            return {
                name: Found(value, str(source)) for name, (value, source) in kept["found"].items()
            }
    from gitlease.settings.parse import parse_settings  # slow, and needed only after a change

    found = parse_settings(data)
    with contextlib.suppress(OSError):
        if os.path.isdir(folder):
            rows = {name: [entry.value, entry.source] for name, entry in found.items()}
            store_json(cache, {"purpose": purpose, "found": rows})
    return found


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
