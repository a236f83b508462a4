"""Files of people that get a part of ours: where they are, and how they are read and written."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping

from gitlease.core.errors import Invalid
from gitlease.core.frozen import dataclass
from gitlease.git.files import read_regular
from gitlease.git.repository import Repository
from gitlease.install.agents.hosts import Host
from gitlease.install.managed_text import mode_of, written_aside

MAX_BYTES = 1024 * 1024
AGENTS_MD = "AGENTS.md"


@dataclass(frozen=True, slots=True)
class AgentFile:
    """A file that may have our part: what it is called, and where it really is."""

    name: str
    file: str


@dataclass(frozen=True, slots=True)
class FileDone:
    """What became of one file: ``written``, ``unchanged``, ``removed``, ``absent`` or ``kept``.

    ``removed``: our part was, or the file where nothing else is in it. ``kept``: our part is left
    to another host, which has its hooks here.
    """

    file: str
    what: str
    notes: tuple[str, ...] = ()


def place_of(
    host: Host, repository: Repository | None, *, user: bool, environ: Mapping[str, str]
) -> AgentFile:
    """The host's file: the person's own, or that of the work tree. Invalid where there is none."""
    if user:
        file = os.path.join(os.path.abspath(host.user_folder(environ)), host.file)
        return AgentFile(file, os.path.realpath(file))
    if repository is None:
        raise Invalid("there is no work tree here", hints=("for all of them: --user",))
    return inside(repository, os.path.join(host.folder, host.file))


def agents_md(repository: Repository) -> AgentFile:
    """The AGENTS.md of a work tree. Raises Invalid where there is none."""
    return inside(repository, AGENTS_MD)


def inside(repository: Repository, name: str) -> AgentFile:
    """A file of a work tree. Raises Invalid where there is none, and for one that leads out."""
    if repository.toplevel is None:
        raise Invalid("there is no work tree here", hints=("for all of them: --user",))
    root = os.path.realpath(repository.toplevel)
    file = os.path.realpath(os.path.join(root, name))
    if not file.startswith(os.path.join(root, "")):
        raise Invalid(f"{name} leads out of the work tree", hints=("replace the link by a file",))
    return AgentFile(name, file)


def read(place: AgentFile, *, most: int = MAX_BYTES) -> bytes | None:
    """The bytes of a file, None where there is none. Invalid for what is no ordinary small file."""
    try:
        data = read_regular(place.file, most)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Invalid(f"{place.name} cannot be read: {error.strerror}") from None
    if data is None:
        raise Invalid(f"{place.name} is not a file")
    if len(data) > most:
        raise Invalid(f"{place.name} is larger than {most // 1024} KiB")
    return data


def write(place: AgentFile, data: bytes) -> None:
    """Write a file, or remove it and its folder where nothing is left in them."""
    folder = os.path.dirname(place.file)
    try:
        if data:
            os.makedirs(folder, exist_ok=True)
            with written_aside(place.file, data, mode=mode_of(place.file)):
                pass
        else:
            os.unlink(place.file)
    except OSError as error:
        raise Invalid(f"{place.name} cannot be written: {error.strerror}") from None
    home = os.path.realpath(os.path.expanduser("~"))
    if not data and os.path.dirname(place.name) and folder != home:  # nor the work tree's root
        with contextlib.suppress(OSError):
            os.rmdir(folder)
