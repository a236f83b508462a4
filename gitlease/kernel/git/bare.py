"""Makes bare repositories of gitlease's own, by git; tells what git and libgit2 say of a disk."""

from __future__ import annotations

import errno
import os

from gitlease.kernel.git.files import make_folders, replace_file
from gitlease.kernel.git.objects import SHA256
from gitlease.kernel.git.run import run_git

INIT_LIMIT = 30.0  # seconds for git to make a repository
# What a file system may say, in the words of git or libgit2.
_ERRORS = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EMFILE),
    *(errno.ENOENT, errno.ENOTDIR, errno.EFBIG, errno.EIO),
)


def make_aside(path: str, config: str, id_bytes: int, *, shared: str = "") -> str:
    """Make an empty bare repository beside a path, to be moved there; return where it is.

    ``config`` are settings of its own, to which git adds what it finds out of the file system, and
    ``shared`` is how git's settings say with whom its files are shared. Raises OSError.
    """
    aside = f"{path}.{os.getpid()}.{os.urandom(4).hex()}.tmp"
    make_folders(aside)
    replace_file(os.path.join(aside, "config"), config.encode())
    words = ["init", "--quiet", "--bare", "--template=", "--initial-branch=main"]
    words += [f"--shared={shared}"] if shared else []
    # The person's settings may name other formats.
    formats = {"GIT_DEFAULT_HASH": "sha256" if id_bytes == SHA256 else "sha1"}
    formats["GIT_DEFAULT_REF_FORMAT"] = "files"
    made = run_git([*words, aside], cwd=aside, timeout=INIT_LIMIT, env=formats)
    if made.code:
        from shutil import rmtree

        rmtree(aside, ignore_errors=True)
        raise error_of(made.err, os.path.dirname(path))
    return aside


def error_of(said: str, path: str) -> OSError:
    """The error of a file system that git or libgit2 tells in words, at a folder."""
    if not os.path.isdir(path):
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    found = next((x for x in _ERRORS if os.strerror(x) in said), 0)
    if not found:
        found = errno.EACCES if "permission" in said else errno.EIO
    return OSError(found, os.strerror(found), path)
