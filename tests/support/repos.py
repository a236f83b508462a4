"""Helpers for repositories: run git, make clones, picture a repository byte for byte."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import stat
import struct
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from support.fences import clean_env, raise_fences

if TYPE_CHECKING:
    from support.remotes import Remote

GIT_TIMEOUT_SECONDS = 60
OWN_DIRECTORY = "gitlease"


class GitFailed(AssertionError):
    """A git command of a test ended with an error; `code`, `stdout` and `stderr` tell which."""

    def __init__(self, args: tuple[str, ...], done: subprocess.CompletedProcess[str]) -> None:
        self.code = done.returncode
        self.stdout = done.stdout
        self.stderr = done.stderr
        super().__init__(f"git {' '.join(args)} ended with {self.code}:\n{self.stderr}")


def run_git(
    cwd: Path,
    *args: str,
    env: Mapping[str, str] | None = None,
    input: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run git in a clean environment (plus `env`) and hand back how it ended, good or bad."""
    return subprocess.run(
        ["git", *args],
        cwd=cwd,
        env=clean_env(env),
        input="" if input is None else input,
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        timeout=GIT_TIMEOUT_SECONDS,
        check=False,
    )


def git(
    cwd: Path,
    *args: str,
    env: Mapping[str, str] | None = None,
    input: str | None = None,
) -> str:
    """Run git in a clean environment (plus `env`); its output without the last line end.

    Raises GitFailed, which carries stderr, when git ends with an error.
    """
    done = run_git(cwd, *args, env=env, input=input)
    if done.returncode:
        raise GitFailed(args, done)
    return done.stdout.removesuffix("\n")


def commit_by_hand(root: Path, tree: str, parents: Sequence[str], email: str) -> str:
    """Write a commit of a tree with these parents (full ids), the same one twice if need be."""
    who = f"Somebody <{email}> {int(time.time())} +0000"
    lines = [f"tree {tree}", *(f"parent {x}" for x in parents), f"author {who}"]
    text = "\n".join([*lines, f"committer {who}", "", "by hand", ""])
    return git(root, "hash-object", "-t", "commit", "-w", "--stdin", input=text)


def make_clone(remote: Remote, path: Path, email: str, name: str) -> Path:
    """Clone the remote to `path`, with user.email and user.name set in the clone only.

    A new remote on this disk is not asked: its clone is the copy of another one.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    seed = remote.seed
    if seed is not None and not set('#;"\\\n') & set(remote.url + email + name):
        _copy_clone(seed, path, {str(seed): remote.url, "EMAIL": email, "NAME": name})
    else:
        real_clone(remote.url, path, email, name=name, env=remote.env)
    return path


def real_clone(
    url: str | Path,
    path: Path,
    email: str,
    *options: str,
    name: str = "",
    env: Mapping[str, str] | None = None,
) -> Path:
    """Have git clone a repository, however new it is, for a person called like their email."""
    identity = ("-c", f"user.email={email}", "-c", f"user.name={name or _name_of(email)}")
    git(path.parent, "clone", "-q", *identity, *options, "--", str(url), str(path), env=env)
    return path


def make_repository(root: Path, *options: str, email: str = "jo@example.com") -> Path:
    """Copy an empty repository on main, made with options of git init, and set an identity."""
    return copy_repository(_empty(options), root, {"EMAIL": email, "NAME": _name_of(email)})


def _name_of(email: str) -> str:
    return email.partition("@")[0].title()


@functools.cache
def _empty(options: tuple[str, ...]) -> Path:
    path = Path(tempfile.mkdtemp(prefix="empty-", dir=raise_fences().root)) / "repo"
    git(path.parent, "init", "-q", "-b", "main", *options, str(path))
    git(path, "config", "user.email", "EMAIL")
    git(path, "config", "user.name", "NAME")
    return path


@functools.cache
def _clone_of(seed: Path) -> Path:
    return real_clone(str(seed), seed.with_suffix(".clone"), "EMAIL", name="NAME")


def copy_repository(made: Path, path: Path, words: Mapping[str, str]) -> Path:
    """Copy a repository, with other words in its settings and logs."""
    shutil.copytree(made, path, symlinks=True, dirs_exist_ok=True)
    own = path / ".git" if (path / ".git").is_dir() else path
    for file in (own / "config", *(own / "logs").rglob("*")):
        if file.is_file():
            text = file.read_text(encoding="utf-8")
            for old, new in words.items():
                text = text.replace(old, new)
            file.write_text(text, encoding="utf-8")
    return path


def _copy_clone(seed: Path, path: Path, words: Mapping[str, str]) -> None:
    """Copy the clone of a repository whose one file is README; git sees it as unchanged."""
    own = copy_repository(_clone_of(seed), path, words) / ".git"
    index, now = bytearray((own / "index").read_bytes()), (path / "README").stat()
    times = [part for ns in (now.st_ctime_ns, now.st_mtime_ns) for part in divmod(ns, 10**9)]
    struct.pack_into(">6I", index, 12, *times, now.st_dev & 0xFFFFFFFF, now.st_ino & 0xFFFFFFFF)
    index[-20:] = hashlib.sha1(index[:-20]).digest()
    (own / "index").write_bytes(index)


def settle(*files: Path) -> None:
    """Date files of settings back: the idle marker passes nobody who changed them a moment ago."""
    for file in files:
        before = file.stat().st_mtime - 3_600
        os.utime(file, (before, before))


def commit_file(clone: Path, name: str, content: str, message: str = "change") -> str:
    """Write a file in a clone and commit it; the new commit's id."""
    target = clone / name
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(content, encoding="utf-8")
    git(clone, "add", "--", name)
    git(clone, "commit", "-q", "-m", message)
    return git(clone, "rev-parse", "HEAD")


def common_dir(repo: Path) -> Path:
    """The git common directory of a repository, work tree, linked work tree or submodule."""
    return Path(os.path.realpath(repo / git(repo, "rev-parse", "--git-common-dir")))


def snapshot(repo: Path) -> dict[str, bytes]:
    """A byte-for-byte picture of a user's repository, without `<git common dir>/gitlease/`.

    Keys are `git/...` (common directory), `private/...` (a git directory outside it) and
    `tree/...` (work tree); values are "<type> <mode>" and content. Objects are listed by name.
    """
    common = common_dir(repo)
    picture: dict[str, bytes] = {}
    _walk("git", common, picture, {common / OWN_DIRECTORY}, objects=common / "objects")
    private = Path(os.path.realpath(repo / git(repo, "rev-parse", "--git-dir")))
    if private != common and not private.is_relative_to(common):
        _walk("private", private, picture, set())
    if git(repo, "rev-parse", "--is-inside-work-tree") == "true":
        tree = Path(os.path.realpath(git(repo, "rev-parse", "--show-toplevel")))
        _walk("tree", tree, picture, {common, private})
    return picture


def assert_untouched(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> None:
    """Fail with a readable account of every entry that was added, removed or changed."""
    lines: list[str] = []
    lines += [f"added:   {name}" for name in sorted(after.keys() - before.keys())]
    lines += [f"removed: {name}" for name in sorted(before.keys() - after.keys())]
    both = sorted(before.keys() & after.keys())
    lines += [
        f"changed: {x}\n    {before[x][:999]!r} -> {after[x][:999]!r}"
        for x in both
        if before[x] != after[x]
    ]
    if lines:
        raise AssertionError("the repository was touched:\n" + "\n".join(lines))


def _walk(
    label: str,
    root: Path,
    picture: dict[str, bytes],
    skipped: set[Path],
    objects: Path | None = None,
) -> None:
    """Add everything below `root` to the picture, under `label`."""
    directories = [root]
    while directories:
        directory = directories.pop()
        for entry in sorted(os.scandir(directory), key=lambda found: found.name):
            path = Path(entry.path)
            if path in skipped:
                continue
            name = f"{label}/{path.relative_to(root).as_posix()}"
            if entry.is_dir(follow_symlinks=False):
                directories.append(path)
            is_object = objects is not None and path.is_relative_to(objects)
            in_info = is_object and path.parent.name == "info"  # alternates and the like
            picture[name] = b"object" if is_object and not in_info else _entry(path)


def _entry(path: Path) -> bytes:
    """One entry: its type and mode, and the bytes it holds."""
    status = path.lstat()
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISLNK(status.st_mode):
        return b"link\n" + os.fsencode(os.readlink(path))
    if stat.S_ISDIR(status.st_mode):
        return f"directory {mode:04o}".encode()
    if stat.S_ISREG(status.st_mode):
        return f"file {mode:04o}\n".encode() + path.read_bytes()
    return f"special {stat.S_IFMT(status.st_mode):o} {mode:04o}".encode()
