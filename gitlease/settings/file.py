"""Reads ``.gitlease.yaml``: anyone who can commit writes it, so nothing in it is taken on trust."""

from __future__ import annotations

import os
import stat

from gitlease.core.errors import Invalid
from gitlease.core.frozen import dataclass
from gitlease.git.files import open_regular, read_up_to
from gitlease.settings.cache import remembered
from gitlease.settings.schema import Found

FILE = ".gitlease.yaml"
MAX_BYTES = 256 * 1024


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
    data = None if toplevel is None else _load(toplevel)
    return {} if data is None else remembered(data, _parse, folder)


def _parse(data: bytes) -> dict[str, Found]:
    from gitlease.settings.parse import parse_settings  # what is remembered needs none of it

    return parse_settings(data)


def _load(toplevel: str) -> bytes | None:
    path = os.path.join(toplevel, FILE)
    try:
        if stat.S_ISLNK(os.lstat(path).st_mode):
            root, path = os.path.realpath(toplevel), os.path.realpath(path)
            if os.path.commonpath((root, path)) != root:
                raise Invalid(f"{FILE} is a link to outside of the repository")
        # A pipe in its place must not make every command wait.
        opened = open_regular(path)
        if opened is None:
            raise Invalid(f"{FILE} is not a regular file")
        with opened:
            data = read_up_to(opened, MAX_BYTES)
    except FileNotFoundError:
        if os.path.lexists(path) or os.path.islink(os.path.join(toplevel, FILE)):
            raise Invalid(f"{FILE} is a link to nowhere") from None
        return None
    except OSError as error:
        raise Invalid(f"{FILE} cannot be read: {error.strerror}") from None
    if len(data) > MAX_BYTES:
        raise Invalid(f"{FILE} is larger than {MAX_BYTES // 1024} KiB")
    return data
