"""Disks that get full: a small tmpfs, where mounting is allowed."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Self

_ROOMY = "size=512m"


class Disk:
    """A folder whose disk can be made full; ``how`` says by what: tmpfs or nothing.

    With ``keep`` what was on a tmpfs stands beside it in the end, in ``<folder>.kept``.
    """

    def __init__(self, folder: Path, *, keep: bool = False) -> None:
        self.folder, self._keep = folder, keep
        folder.mkdir(parents=True, exist_ok=True)
        made = _mounted("-t", "tmpfs", "-o", _ROOMY, "tmpfs", str(folder))
        self.how = "tmpfs" if made else "nothing"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.how != "tmpfs":
            return
        if self._keep:
            shutil.copytree(self.folder, self.folder.with_suffix(".kept"), symlinks=True)
        subprocess.run(["umount", "-l", str(self.folder)], check=False, capture_output=True)

    def fill(self) -> None:
        """Let nothing more be written from now on."""
        if self.how == "tmpfs":
            used = os.statvfs(self.folder)
            size = (used.f_blocks - used.f_bfree) * used.f_frsize
            _mounted("-o", f"remount,size={size}", str(self.folder))

    def free(self) -> None:
        """Let there be room again."""
        if self.how == "tmpfs":
            _mounted("-o", f"remount,{_ROOMY}", str(self.folder))


def _mounted(*words: str) -> bool:
    with contextlib.suppress(OSError):
        done = subprocess.run(["mount", *words], capture_output=True, check=False)
        return done.returncode == 0
    return False
