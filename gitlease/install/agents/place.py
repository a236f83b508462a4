"""Files of people that get a section of ours: where they are, and how they are read and written."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping

from gitlease.core.errors import Invalid
from gitlease.core.frozen import dataclass, replace
from gitlease.git.files import read_regular, read_small
from gitlease.git.repository import Repository
from gitlease.install.agents.hosts import Host
from gitlease.install.managed_text import mode_of, written_aside

MAX_BYTES = 1024 * 1024
AGENTS_MD = "AGENTS.md"


@dataclass(frozen=True, slots=True)
class AgentFile:
    """A file that may have our section: its name for people, and its real path.

    ``aside`` is where the file from before our section is kept, ``""`` for nowhere.
    """

    name: str
    file: str
    aside: str = ""


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
        real = os.path.realpath(file)
        return AgentFile(file, real, f"{real}.before-gitlease")
    place = inside(repository, os.path.join(host.folder, host.file))
    if repository is None:
        return place
    aside = os.path.join(repository.common_dir, "gitlease", "before", f"{host.name}-{host.file}")
    return replace(place, aside=aside)


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


def keep_aside(place: AgentFile, data: bytes) -> None:
    """Keep a file as it is before our section comes into it."""
    try:
        os.makedirs(os.path.dirname(place.aside), exist_ok=True)
        with written_aside(place.aside, data, mode=0o600):
            pass
    except OSError as error:
        raise Invalid(f"{place.aside} cannot be written: {error.strerror}") from None


def read_aside(place: AgentFile) -> bytes | None:
    return read_small(place.aside, MAX_BYTES) if place.aside else None


def drop_aside(place: AgentFile) -> None:
    with contextlib.suppress(OSError):
        os.unlink(place.aside)
        os.rmdir(os.path.dirname(place.aside))


def write(place: AgentFile, data: bytes, *, empty: bool = False) -> None:
    """Write a file; without data remove it, and its folder if that is empty then.

    ``empty``: a file without data is one, too.
    """
    folder = os.path.dirname(place.file)
    try:
        if data or empty:
            os.makedirs(folder, exist_ok=True)
            with written_aside(place.file, data, mode=mode_of(place.file)):
                pass
        else:
            os.unlink(place.file)
    except OSError as error:
        raise Invalid(f"{place.name} cannot be written: {error.strerror}") from None
    home = os.path.realpath(os.path.expanduser("~"))
    if (
        not (data or empty) and os.path.dirname(place.name) and folder != home
    ):  # nor the work tree's root
        with contextlib.suppress(OSError):
            os.rmdir(folder)
