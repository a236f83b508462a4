"""Files of people that get a part of ours: written aside, and brought back to the byte.

The former bytes are kept in the private state, and come back where nobody changed the file
meanwhile.
"""

from __future__ import annotations

import base64
import contextlib
import os
from collections.abc import Mapping
from hashlib import sha256

from gitlease.core.errors import Invalid
from gitlease.core.frozen import dataclass
from gitlease.git.files import load_json, open_regular, read_up_to, store_json
from gitlease.git.repository import Repository
from gitlease.install.agents.hosts import Host, Json
from gitlease.install.managed_text import mode_of, written_aside

MAX_BYTES = 1024 * 1024
COPIES = "agents"
AGENTS_MD = "AGENTS.md"


@dataclass(frozen=True, slots=True)
class Place:
    """A file that may have our hooks: where it is called, where it really is.

    ``root`` is the folder that it must not lead out of; ``private`` has the copies.
    """

    name: str
    file: str
    root: str | None
    private: str | None


@dataclass(frozen=True, slots=True)
class Done:
    """What became of one file: ``written``, ``unchanged``, ``restored``, ``removed``, ``absent``.

    ``removed``: our part was, the rest is as people changed it meanwhile. ``kept``: our part is
    left to another host, which has its hooks here.
    """

    file: str
    what: str
    notes: tuple[str, ...] = ()


def place_of(
    host: Host, repository: Repository | None, *, user: bool, environ: Mapping[str, str]
) -> Place:
    """The host's file: the person's own, or that of the work tree. Invalid where there is none."""
    private = os.path.join(repository.common_dir, "gitlease") if repository else None
    if user:
        folder = os.path.abspath(host.user_folder(environ))
        file = os.path.join(folder, host.file)
        kept = private if private is not None and os.path.isdir(private) else None
        return Place(file, os.path.realpath(file), None, kept)
    if repository is None or repository.toplevel is None:
        raise Invalid("there is no work tree here", hints=("for all of them: --user",))
    return _inside(repository.toplevel, os.path.join(host.folder, host.file), private)


def agents_md(repository: Repository) -> Place:
    """The AGENTS.md of a work tree."""
    if repository.toplevel is None:
        raise Invalid("there is no work tree here to have an AGENTS.md")
    private = os.path.join(repository.common_dir, "gitlease")
    return _inside(repository.toplevel, AGENTS_MD, private)


def _inside(root: str, name: str, private: str | None) -> Place:
    file, real = os.path.join(root, name), os.path.realpath(root)
    target = os.path.realpath(file)
    if not target.startswith(os.path.join(real, "")):
        raise Invalid(f"{name} leads out of the work tree", hints=("replace the link by a file",))
    return Place(name, target, real, private)


def take_out(place: Place, before: bytes, rest: bytes, *, nothing_left: bool) -> Done:
    """Put back what was there, else what is left of the file without our part."""
    known, original = _copy(place, before)
    if known and original is None:
        _unlink(place)
    elif known and original is not None:
        _replace(place, original)
    elif nothing_left and not _had_file(place):
        _unlink(place)
    else:
        _replace(place, rest)
    if (copy := _copy_file(place)) is not None:
        with contextlib.suppress(OSError):
            os.unlink(copy)
    return Done(place.name, "restored" if known else "removed")


def is_as_left(place: Place, before: bytes) -> bool:
    """Whether nobody changed a file since we did, so that its former bytes are known."""
    return _copy(place, before)[0]


def read(place: Place) -> bytes | None:
    """The bytes of a file, None where there is none. Invalid for what is no ordinary small file."""
    try:
        opened = open_regular(place.file)
        if opened is None:
            raise Invalid(f"{place.name} is not a file")
        with opened:
            data = read_up_to(opened, MAX_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Invalid(f"{place.name} cannot be read: {error.strerror}") from None
    if len(data) > MAX_BYTES:
        raise Invalid(f"{place.name} is larger than {MAX_BYTES // 1024} KiB")
    return data


def write(place: Place, after: bytes, *, original: bytes | None, before: bytes | None) -> None:
    """Write a file, and remember what stood there before the first time."""
    known, first = _copy(place, before) if before is not None else (False, None)
    original = first if known else original
    _replace(place, after)
    copy = _copy_file(place)
    if copy is None:
        return
    kept = None if original is None else base64.b64encode(original).decode("ascii")
    with contextlib.suppress(OSError):  # without it uninstall still removes what is ours
        os.makedirs(os.path.dirname(copy), exist_ok=True)
        store_json(copy, {"format": 1, "before": kept, "after": sha256(after).hexdigest()})


def _copy_file(place: Place) -> str | None:
    if place.private is None:
        return None
    name = sha256(os.fsencode(place.file)).hexdigest()[:16]
    return os.path.join(place.private, COPIES, f"{name}.json")


def _record(place: Place) -> Json | None:
    copy = _copy_file(place)
    found = load_json(copy, 2 * MAX_BYTES) if copy is not None else None
    return found if isinstance(found, dict) and found.get("format") == 1 else None


def _copy(place: Place, now: bytes) -> tuple[bool, bytes | None]:
    """Whether the file is as we left it, and then what stood there before (None: no file)."""
    found = _record(place)
    if found is None or found.get("after") != sha256(now).hexdigest():
        return False, None
    kept = found.get("before")
    if kept is None:
        return True, None
    try:
        return True, base64.b64decode(kept, validate=True)
    except (ValueError, TypeError):
        return False, None


def _had_file(place: Place) -> bool:
    """Whether there was a file before us, as far as is known."""
    found = _record(place)
    return found is None or found.get("before") is not None


def _replace(place: Place, data: bytes) -> None:
    try:
        os.makedirs(os.path.dirname(place.file), exist_ok=True)
        with written_aside(place.file, data, mode=mode_of(place.file)):
            pass
    except OSError as error:
        raise Invalid(f"{place.name} cannot be written: {error.strerror}") from None


def _unlink(place: Place) -> None:
    """Remove a file that was ours alone, and its folder where nothing else is in it."""
    try:
        os.unlink(place.file)
    except OSError as error:
        raise Invalid(f"{place.name} cannot be removed: {error.strerror}") from None
    folder = os.path.dirname(place.file)
    if folder != place.root:
        with contextlib.suppress(OSError):
            os.rmdir(folder)
