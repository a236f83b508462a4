"""Files of people that get a section of ours: where they are, and how they are read and written."""

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
    """A file that may have our section: its name for people, and its real path."""

    name: str
    file: str


@dataclass(frozen=True, slots=True)
class FileDone:
    """The result for one file: ``written``, ``unchanged``, ``removed``, ``absent`` or ``kept``.

    ``removed``: our section was, or the file if it had nothing else. ``kept``: our section is left
    for another host, which has its hooks here.
    """

    file: str
    what: str
    notes: tuple[str, ...] = ()


def place_of(
    host: Host, repository: Repository | None, *, user: bool, environ: Mapping[str, str]
) -> AgentFile:
    """The host's file of hooks: the person's own, or that of the work tree. Invalid without one."""
    if user:
        file = os.path.join(os.path.abspath(host.user_folder(environ)), host.file)
        return AgentFile(file, os.path.realpath(file))
    return inside(repository, os.path.join(host.folder, host.file))


def inside(repository: Repository | None, name: str) -> AgentFile:
    """A file of a work tree. Raises Invalid without a work tree, and for a link that leads out."""
    if repository is None or repository.toplevel is None:
        raise Invalid("not in a work tree", hints=("for all repositories: --user",))
    root = os.path.realpath(repository.toplevel)
    file = os.path.realpath(os.path.join(root, name))
    if not file.startswith(os.path.join(root, "")):
        raise Invalid(f"{name} leads out of the work tree", hints=("replace the link with a file",))
    return AgentFile(name, file)


def read(place: AgentFile, *, most: int = MAX_BYTES) -> bytes | None:
    """The bytes of a file, None without one. Invalid for anything but an ordinary small file."""
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
    """Write a file; without data remove it, and its folder if that is empty then."""
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
