"""Disks that get full: a small tmpfs where mounting is allowed, else a library in between."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

_ROOMY = "size=512m"

# What a full disk says, for as long as the file that $FULL_DISK names is there.
_SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static int full(void) {
    const char *flag = getenv("FULL_DISK");
    return flag && access(flag, F_OK) == 0;
}

ssize_t write(int fd, const void *data, size_t size) {
    static ssize_t (*next)(int, const void *, size_t);
    struct stat found;
    if (!next) next = dlsym(RTLD_NEXT, "write");
    if (fstat(fd, &found) == 0 && S_ISREG(found.st_mode) && full()) {
        errno = ENOSPC;
        return -1;
    }
    return next(fd, data, size);
}

int rename(const char *from, const char *to) {
    static int (*next)(const char *, const char *);
    if (!next) next = dlsym(RTLD_NEXT, "rename");
    if (full()) {
        errno = ENOSPC;
        return -1;
    }
    return next(from, to);
}
"""


class Disk:
    """A folder whose disk can be made full; ``how`` says by what: tmpfs, shim or nothing.

    With ``keep`` what was on a tmpfs stands beside it in the end, in ``<folder>.kept``.
    """

    def __init__(self, folder: Path, *, keep: bool = False) -> None:
        self.folder, self._keep = folder, keep
        self._flag = folder.with_suffix(".full")
        self._library = folder.with_suffix(".so")
        folder.mkdir(parents=True, exist_ok=True)
        if _mounted("-t", "tmpfs", "-o", _ROOMY, "tmpfs", str(folder)):
            self.how = "tmpfs"
        else:
            self.how = "shim" if _compiled(self._library) else "nothing"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.how != "tmpfs":
            return
        if self._keep:
            shutil.copytree(self.folder, self.folder.with_suffix(".kept"), symlinks=True)
        subprocess.run(["umount", "-l", str(self.folder)], check=False, capture_output=True)

    def env(self) -> dict[str, str]:
        """What a process that writes there needs in its environment."""
        if self.how != "shim":
            return {}
        return {"LD_PRELOAD": str(self._library), "FULL_DISK": str(self._flag)}

    def fill(self) -> None:
        """Let nothing more be written from now on."""
        if self.how == "tmpfs":
            used = os.statvfs(self.folder)
            size = (used.f_blocks - used.f_bfree) * used.f_frsize
            _mounted("-o", f"remount,size={size}", str(self.folder))
        elif self.how == "shim":
            self._flag.touch()

    def free(self) -> None:
        """Let there be room again."""
        if self.how == "tmpfs":
            _mounted("-o", f"remount,{_ROOMY}", str(self.folder))
        self._flag.unlink(missing_ok=True)


def _mounted(*words: str) -> bool:
    with contextlib.suppress(OSError):
        done = subprocess.run(["mount", *words], capture_output=True, check=False)
        return done.returncode == 0
    return False


def _compiled(library: Path) -> bool:
    compiler = shutil.which("cc")
    if compiler is None:
        return False
    source = library.with_suffix(".c")
    source.write_text(_SHIM, encoding="ascii")
    words = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0
