"""Private state on a disk that fails: what is claimed stands, and the next command goes on."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.availability import missing
from support.fences import clean_env
from support.remotes import Remote
from support.running import Desk

from gitlease.kernel.git import files

Clones = Callable[..., list[Path]]
# Fails each n-th call below a folder, in gitlease and in the gits that it starts: what only writes
# can meet (a disk that is full or read-only) as they write, and without locks every lock.
LIBRARY = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
static int fails(const char *path, int writes) {
    static int calls;
    const char *below = getenv("BAD_BELOW");
    int error = atoi(getenv("BAD_ERROR"));
    if (strncmp(path, below, strlen(below))) return 0;
    if ((error == EROFS || error == ENOSPC) && !writes) return 0;
    if (++calls % atoi(getenv("BAD_EVERY"))) return 0;
    errno = error;
    return 1;
}
#define REAL(name) ((__typeof__(&name)) dlsym(RTLD_NEXT, #name))
#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        va_list more; va_start(more, flags); int mode = va_arg(more, int); va_end(more); \
        int writes = flags & (O_WRONLY | O_RDWR | O_CREAT); \
        return fails(path, writes) ? -1 : REAL(name)(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)
int rename(const char *from, const char *to) { return fails(to, 1) ? -1 : REAL(rename)(from, to); }
int mkdir(const char *path, mode_t mode) { return fails(path, 1) ? -1 : REAL(mkdir)(path, mode); }
int flock(int file, int how) {
    if (atoi(getenv("BAD_ERROR")) != ENOLCK) return REAL(flock)(file, how);
    errno = ENOLCK;
    return -1;
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if (compiler := shutil.which("cc")) is None:
        missing("there is no cc, which makes a library that fails")
    made = tmp_path_factory.mktemp("bad") / "bad.so"
    words = [compiler, "-shared", "-fPIC", "-w", "-x", "c", "-o", str(made), "-", "-ldl"]
    subprocess.run(words, input=LIBRARY.encode(), env=clean_env(), check=True)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("error", ["ESTALE", "EIO", "ENOLCK", "ENOSPC", "EROFS"])
def test_errors_of_a_disk_lose_nothing_that_was_granted(
    error: str, path_remote: Remote, clones: Clones, library: Path
) -> None:
    jo = Desk(clones(1)[0], env=path_remote.env)
    jo.document("claim", "first")
    private, won = jo.clone / ".git" / "gitlease", {"first"}
    bad = {"LD_PRELOAD": str(library), "BAD_BELOW": str(private)}
    for every in (1, 2, 3, 4, 7):
        env = {**bad, "BAD_EVERY": f"{every}", "BAD_ERROR": f"{getattr(errno, error)}"}
        for argv in (["claim", f"n{every}"], ["renew", "first"], ["list"]):
            done = jo.ask("--json", *argv, env=env)
            assert done.returncode in (0, 5, 7), done
            assert argv != ["list"] or done.returncode == 0, done
            if argv[0] == "claim" and done.returncode == 0:
                won.add(argv[1])
    assert won <= set(jo.live())
    for every in (1, 2, 3, 4, 7):
        jo.document("claim", f"n{every}")
    assert not list((private / "state/default/global/pending").iterdir())


def test_a_file_that_cannot_be_read_twice_the_same_is_given_up(tmp_path: Path) -> None:
    file = tmp_path / "known.json"

    def change(before: bytes | None) -> bytes:
        file.write_bytes(os.urandom(8))
        return b"mine"

    with pytest.raises(OSError, match="keeps changing"):
        files.change_kept(str(file), change, 64)
