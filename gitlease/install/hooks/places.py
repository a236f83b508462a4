"""Where hooks of a clone belong: git's configuration, a hook manager's files, or a folder."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from enum import Enum

from gitlease.core.errors import Invalid
from gitlease.core.frozen import dataclass
from gitlease.git.files import read_small
from gitlease.git.repository import TIMEOUT, GitConfig, Repository
from gitlease.git.run import run_git
from gitlease.install.hooks.shims import HOOKS

CONFIG_HOOKS = (2, 54)  # the first git that reads hooks from its configuration
HOOK_RUN = (2, 36)  # the first that has `git hook run`
MAX_BYTES = 1024 * 1024
PRE_COMMIT_FILES = (".pre-commit-config.yaml", ".pre-commit-config.yml")
LEFTHOOK_FILES = tuple(
    f"{start}lefthook.{end}" for end in ("yml", "yaml", "toml", "json") for start in ("", ".")
)
HUSKY = ".husky"
BACKUPS = "old-hooks"  # where overcommit moves the hooks that it replaces
_MARK = re.compile(rb"^# BEGIN gitlease ([a-z-]{1,40}) v\d", re.MULTILINE)
PROGRAM, SCRIPTS = "program", "hooks"  # in the private folder: what to start, and scripts


class Way(Enum):
    """How git comes to call our hooks."""

    CONFIG = "git config"
    PRE_COMMIT = "pre-commit"
    LEFTHOOK = "lefthook"
    HUSKY = "husky"
    FOLDER = "hook files"
    OUTSIDE = "a folder outside"


@dataclass(frozen=True, slots=True)
class HookPlace:
    """Where this clone's hooks go. ``folder`` is where git looks for hook files.

    ``file`` is the settings file of a hook manager, relative to the root of the work tree.
    """

    way: Way
    top: str
    private: str
    folder: str
    file: str = ""
    git: tuple[int, int] = (0, 0)
    config: GitConfig = GitConfig()

    @property
    def others(self) -> tuple[str, ...]:
        """The hooks in git's configuration that are not ours."""
        keys = (entry.key.removeprefix("hook.") for entry in self.config.section("hook"))
        names = dict.fromkeys(key.rpartition(".")[0] for key in keys)
        return tuple(x for x in names if x and x.removeprefix("gitlease-") not in HOOKS)

    @property
    def where(self) -> str:
        """The place in words."""
        if self.way is Way.CONFIG:
            return "git's configuration"
        return self.file or os.path.relpath(self.scripts, self.top)

    @property
    def scripts(self) -> str:
        """The folder of people's scripts: for husky not the one that git knows."""
        if self.way is Way.HUSKY and os.path.basename(self.folder) == "_":
            return os.path.dirname(self.folder)
        return self.folder


def find_place(repository: Repository) -> HookPlace:
    """Find where hooks of this clone belong. Raises Invalid for a bare repository."""
    top = repository.toplevel
    if top is None:
        raise Invalid(
            "not in a work tree: these hooks are for clones that people work in",
            hints=("for the bare repository of a server: gitlease server install",),
        )
    private = os.path.join(repository.common_dir, "gitlease")
    folder, git = hooks_folder(top), _git_version(top)

    def place(way: Way, file: str = "") -> HookPlace:
        return HookPlace(way, top, private, folder, file, git, repository.config)

    if git >= CONFIG_HOOKS:
        return place(Way.CONFIG)
    if _is_husky(top, folder):
        return place(Way.HUSKY)
    for way, names in ((Way.PRE_COMMIT, PRE_COMMIT_FILES), (Way.LEFTHOOK, LEFTHOOK_FILES)):
        for name in names:
            if os.path.isfile(os.path.join(top, name)):
                return place(way, name)
    return place(Way.FOLDER if is_own(repository, folder) else Way.OUTSIDE)


def read_file(path: str) -> bytes | None:
    """The bytes of a regular file; None for a link, a missing file, or one that is too large."""
    return read_small(path, MAX_BYTES)


def marked_files(folder: str) -> Iterator[tuple[str, str]]:
    """The files in a folder of hooks that have our mark, and the hook that it names.

    Under any name: managers rename what they replace, and some of them still run it.
    """
    for place in (folder, os.path.join(folder, BACKUPS)):
        names = []
        with contextlib.suppress(OSError):
            names = sorted(os.listdir(place))
        for name in names:
            path = os.path.join(place, name)
            for hook in dict.fromkeys(_MARK.findall(read_file(path) or b"")):
                yield path, hook.decode()


def is_own(repository: Repository, folder: str) -> bool:
    """Whether a folder is this clone's own: in a work tree of it, or in its git directory."""
    common = repository.common_dir
    roots = [common, *([repository.toplevel] if repository.toplevel else [])]
    if os.path.basename(common) == ".git":
        roots.append(os.path.dirname(common))  # the main work tree, seen from a linked one
    real = os.path.realpath(folder)
    return any(is_below(real, os.path.realpath(root)) for root in roots)


def hooks_folder(where: str, *options: str) -> str:
    """Where git looks for the hooks of the repository around a folder, or of ``--git-dir``."""
    words = (*options, "rev-parse", "--path-format=absolute", "--git-path", "hooks")
    asked = run_git(words, cwd=where, timeout=TIMEOUT, repository=not options)
    folder = os.fsdecode(asked.out).removesuffix("\n")
    if asked.code != 0 or asked.timed_out or not os.path.isabs(folder):
        raise Invalid(f"git does not tell where its hooks are: {asked.err.strip()[:200]}")
    return os.path.normpath(folder)


def _git_version(top: str) -> tuple[int, int]:
    asked = run_git(("--version",), cwd=top, timeout=TIMEOUT)
    found = re.search(rb"(\d{1,4})\.(\d{1,4})", asked.out)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _is_husky(top: str, folder: str) -> bool:
    home = os.path.join(top, HUSKY)
    inside = is_below(os.path.realpath(folder), os.path.realpath(top))
    return inside and folder in (home, os.path.join(home, "_"))


def is_below(path: str, root: str) -> bool:
    """Whether a path is a folder or lies in it, by its text."""
    return path == root or path.startswith(os.path.join(root, ""))
