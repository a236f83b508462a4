"""Folders that this user cannot write, as root leaves them: whose they are, and the way out."""

from __future__ import annotations

import os
import re

from gitlease.kernel.rules.errors import Invalid

_FAN_OUT = re.compile(r"[0-9a-f]{2}|pack|info")
# What git says if it cannot write an object; it never names the folder of that one.
REFUSED = ("insufficient permission for adding an object", "unable to create temporary object")


def closed_objects(common_dir: str) -> str:
    """The first folder of a repository's objects that this user cannot write; ``""`` if none."""
    objects = os.path.join(common_dir, "objects")
    if is_closed_folder(objects):
        return objects
    try:
        names = sorted(filter(_FAN_OUT.fullmatch, os.listdir(objects)))
    except OSError:
        return ""
    paths = (os.path.join(objects, name) for name in names)
    return next(filter(is_closed_folder, paths), "")


def is_closed_folder(path: str) -> bool:
    """Return whether this is a folder in which this user can make no file."""
    return os.path.isdir(path) and not os.access(path, os.W_OK | os.X_OK)


def cannot_write(folder: str, what: str) -> Invalid:
    """The refusal for such a folder: who owns it, and the command that gives it back."""
    owner = os.stat(folder).st_uid
    if owner == os.geteuid():
        hint = f"to make it writable: {way_back(folder)}"
        return Invalid(f"{what}: {folder} is read-only", hints=(hint,))
    hint = f"to give it back to you: {way_back(folder)}"
    return Invalid(f"{what}: {folder} belongs to {_name_of(owner)}", hints=(hint,))


def way_back(path: str) -> str:
    """The command that lets this user write a folder or file, and all around it of that owner."""
    import shlex  # for a refusal alone

    owner = os.stat(path).st_uid
    place = shlex.quote(_whole(path, owner))
    if owner == os.geteuid():
        return f"chmod -R u+rwX {place}"
    return f"sudo chown -R {_name_of(os.geteuid())} {place}"


def _whole(folder: str, owner: int) -> str:
    # Where one folder of objects is another's, the next command would find the next.
    above = os.path.dirname(folder)
    if os.path.basename(above) == "objects":
        folder = above
    while os.path.basename(above := os.path.dirname(folder)) not in ("", ".git"):
        if os.stat(above).st_uid != owner:
            break
        folder = above
    return folder


def _name_of(user: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:  # a container's users need no names
        return str(user)
