"""The hook that was there before ours: set aside under its own name, and put back to the byte."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat

from gitlease.core.errors import Invalid
from gitlease.install.server.hook import ASIDE_FOLDER, NAME, OLD_ASIDE

_UP = "../"  # what a relative link needs more, one folder further down


def aside_of(hook: str) -> str:
    """Where the hook at ``hook`` is set aside: many hooks go by the name they are called by."""
    return os.path.join(os.path.dirname(hook), ASIDE_FOLDER, NAME)


def find_aside(hook: str) -> str | None:
    """The hook that is set aside, where this version or an older one puts it; None for none."""
    for place in (aside_of(hook), hook + OLD_ASIDE):
        if os.path.lexists(place):
            return place
    return None


def set_aside(source: str, aside: str) -> None:
    """Have ``source`` under the name ``aside`` as well; both are there afterwards.

    Whoever replaces ``source`` then does it without a moment in which there is no hook. Raises
    OSError, and Invalid where something else has that name.
    """
    if os.path.lexists(aside):
        if not _is_same(source, aside):
            raise Invalid(
                f"{aside} is there already, and {source} is not ours",
                hints=("something replaced our hook: see which of the two is yours",),
            )
        return  # an install was stopped half way
    folder = os.path.dirname(aside)
    if not os.path.isdir(folder):
        os.mkdir(folder)
        shutil.copymode(os.path.dirname(folder), folder)  # whoever runs git here may go in
    if os.path.islink(source):
        os.symlink(_deeper(os.readlink(source)), aside)
        return
    try:
        os.link(source, aside, follow_symlinks=False)
    except OSError:  # no links here, or none of another's files
        if not stat.S_ISREG(os.lstat(source).st_mode):
            raise
        shutil.copy2(source, aside)


def put_back(hook: str, aside: str) -> None:
    """Have the hook that was set aside in its place again, at once. Raises OSError."""
    if os.path.islink(aside) and aside == aside_of(hook):
        temporary = f"{hook}.{os.getpid()}.{os.urandom(4).hex()}.tmp"
        os.symlink(_higher(os.readlink(aside)), temporary)
        os.replace(temporary, hook)
        os.unlink(aside)
    else:
        os.replace(aside, hook)
    drop_folder(hook)


def drop_folder(hook: str) -> None:
    """Remove the folder of what was set aside, where nothing is in it."""
    with contextlib.suppress(OSError):
        os.rmdir(os.path.dirname(aside_of(hook)))


def _is_same(source: str, aside: str) -> bool:
    if os.path.islink(source):
        return os.path.islink(aside) and os.readlink(aside) == _deeper(os.readlink(source))
    return os.path.samestat(os.lstat(source), os.lstat(aside))


def _deeper(target: str) -> str:
    return target if os.path.isabs(target) else _UP + target


def _higher(target: str) -> str:
    if os.path.isabs(target):
        return target
    return target[len(_UP) :] if target.startswith(_UP) else f"{ASIDE_FOLDER}/{target}"
