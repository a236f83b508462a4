"""Repositories for tests of hooks, and a gitlease that only writes down how it was called."""

from __future__ import annotations

import functools
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from gitlease.guard import hook_places as places
from gitlease.guard.hook_places import Way
from gitlease.guard.notes import IdleMarker, Origin, origin_of, write_idle_marker
from gitlease.kernel.git.repository import discover
from support.fences import clean_env, raise_fences
from support.repos import commit_file, copy_repository, git, make_repository, run_git

HOUR = 3_600
LATER = int(time.time()) + 8 * HOUR
IDLE = IdleMarker(clear_until=LATER)


@dataclass(frozen=True)
class HookRepo:
    """A repository with one commit, a bare remote, and ``bin`` first on PATH for its commands."""

    root: Path
    bin: Path
    calls_file: Path

    @property
    def env(self) -> dict[str, str]:
        """The environment in which the fake gitlease is found."""
        return {"PATH": f"{self.bin}:{clean_env()['PATH']}", "CALLS": str(self.calls_file)}

    @property
    def hooks(self) -> Path:
        return self.root / ".git" / "hooks"

    def calls(self) -> list[str]:
        """The hooks that called gitlease since the last time this was asked."""
        if not self.calls_file.exists():
            return []
        lines = self.calls_file.read_text(encoding="utf-8").splitlines()
        self.calls_file.unlink()
        return lines

    def answer(self, status: int, *, broken: bool = False) -> None:
        """Let gitlease end with a status; ``broken``: whatever it is asked."""
        text = "#!/bin/sh\n"
        if not broken:
            text += '[ "$1" != --version ] || exit 0\n'
            answer = 'echo "gitlease-probe $2 v0 $0" >&2; exit 1'
            text += f'[ -z "$GITLEASE_PROBE" ] || {{ {answer}; }}\n'
        text += f'echo "$2 $(cat | tr "\\n" ";")" >>"$CALLS"\nexit {status}\n'
        file = self.bin / "gitlease"
        file.write_text(text, encoding="utf-8")
        file.chmod(0o755)

    def commit(self, *options: str) -> tuple[int, str]:
        """Commit something; the status, and what was said."""
        done = run_git(
            self.root, "commit", "-q", "--allow-empty", "-m", "x", *options, env=self.env
        )
        return done.returncode, done.stderr

    def push(self) -> tuple[int, str]:
        done = run_git(self.root, "push", "-q", "origin", "HEAD:refs/heads/new", env=self.env)
        return done.returncode, done.stderr

    @property
    def private(self) -> Path:
        return self.root / ".git" / "gitlease"

    def set_idle(
        self,
        idle: IdleMarker = IDLE,
        *,
        files: tuple[str, ...] = (),
        read_at: int | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Write the markers for whoever the fences name, after all settings were made."""
        environ = clean_env(env or {})
        made = time.time_ns() + HOUR * 10**9 if read_at is None else read_at
        here = origin_of(discover(str(self.root)), environ)
        origin = Origin(here.who, (*here.files, *files), made)
        write_idle_marker(str(self.private), idle, origin, now=int(time.time()))

    def write(self, name: str, data: bytes, mode: int = 0o755) -> Path:
        """Write a file of the repository."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(mode)
        return path


def into_files(patch: pytest.MonkeyPatch) -> None:
    """Let the installer take git for one that reads no hooks from its configuration."""
    real = places.git_version
    patch.setattr(places, "git_version", lambda top: min(real(top), (2, 53)))


def choose_way(name: str, patch: pytest.MonkeyPatch) -> Way:
    """Let the installer go this way, on any git that knows it; else the test is skipped."""
    if name == "files":
        into_files(patch)
        return Way.FOLDER
    if places.git_version(".") < places.CONFIG_HOOKS:
        pytest.skip("this git reads no hooks from its configuration")
    return Way.CONFIG


def make_hook_repo(tmp_path: Path) -> HookRepo:
    """A fresh one below ``tmp_path``."""
    made, root, tools = _made(), tmp_path / "repo", tmp_path / "bin"
    tools.mkdir()
    for name in ("repo", "remote.git"):
        copy_repository(made / name, tmp_path / name, {str(made): str(tmp_path)})
    repo = HookRepo(root, tools, tmp_path / "calls")
    repo.answer(0)
    return repo


@functools.cache
def _made() -> Path:
    base = Path(tempfile.mkdtemp(prefix="hooks-", dir=raise_fences().root))
    git(base, "init", "-q", "--bare", "remote.git")
    root = make_repository(base / "repo")
    git(root, "remote", "add", "origin", str(base / "remote.git"))
    commit_file(root, "a.txt", "a")
    return base
