"""A server with gitlease's hook and two users, reached by path, http or ssh."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from gitlease.kernel.git.repository import discover
from gitlease.kernel.rules.lease_view import LeaseView
from gitlease.server.install import install_server
from support.hooked import Person
from support.remotes import Remote, Servers, new_bare
from support.repos import git, real_clone, run_git

USERS = {"jo": "one", "kim": "two"}
VARIABLES = {"path": "GL_USER", "http": "REMOTE_USER", "ssh": "GL_USER"}
REF = "refs/gitlease/global"


def own_program(folder: Path) -> Path:
    """A gitlease that a hook can start, of this very tree."""
    program = folder / "gitlease"
    if not program.exists():
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m gitlease "$@"\n')
        program.chmod(0o755)
    return program


class User(Person):
    """Somebody with a clone of what is on a server, who says there who they are."""

    def claim(self, *names: str, **more: Any) -> LeaseView:
        with mock.patch.dict(os.environ, self.env):
            return super().claim(*names, **more)

    def release(self, name: str) -> None:
        with mock.patch.dict(os.environ, self.env):
            super().release(name)


@dataclass
class Host:
    """One bare repository on a server, and how its users reach it."""

    kind: str
    bare: Path
    folder: Path
    _servers: Servers
    _http: Remote | None = None
    _people: dict[str, User] = field(default_factory=dict)

    def install(self, *, mode: str = "block", program: str = "") -> None:
        """Put the hook in place, and map its users to their emails."""
        install_server(
            discover(str(self.bare)),
            mode=mode,
            identity=VARIABLES[self.kind],
            program=program or str(own_program(self.folder)),
        )
        for name in USERS:
            git(self.bare, "config", f"gitlease.{name}.holder", f"{name}@example.com")

    def url(self, user: str) -> str:
        """Where a user pushes to."""
        if self.kind == "path":
            return str(self.bare)
        if self.kind == "ssh":
            return self._servers.ssh.url(self.bare)
        assert self._http is not None
        return self._http.as_user(user, USERS[user]).url

    def env(self, user: str) -> dict[str, str]:
        """What git needs in the environment of a user."""
        if self.kind == "path":
            return {"GL_USER": user}
        return {"GIT_SSH_COMMAND": self._servers.ssh.command_as(user)} if self.kind == "ssh" else {}

    def person(self, name: str) -> User:
        """A user with a clone."""
        if name not in self._people:
            root = self.folder / name
            env = self.env(name)
            real_clone(self.url(name), root, f"{name}@example.com", env=env)
            self._people[name] = User(name, root, env)
        return self._people[name]

    def tip(self, ref: str = REF) -> str:
        return run_git(self.bare, "rev-parse", "-q", "--verify", ref).stdout.strip()


@contextlib.contextmanager
def serve(
    kind: str, folder: Path, servers: Servers, *, copy_of: Path | None = None
) -> Iterator[Host]:
    """A fresh repository on a server, or a copy of one that is there."""
    folder.mkdir(parents=True, exist_ok=True)
    bare = Path(os.path.realpath(folder)) / "origin.git"
    if copy_of is None:
        new_bare(bare)
    else:
        shutil.copytree(copy_of, bare, symlinks=True)
    if kind != "http":
        yield Host(kind, bare, folder, servers)
        return
    published = servers.http.publish(bare, USERS)
    try:
        remote = Remote("http", published.url, bare, {}, published)
        yield Host(kind, bare, folder, servers, dataclasses.replace(remote))
    finally:
        servers.http.withdraw(published)


def in_folder(host: Host) -> Mapping[str, bytes]:
    """Every hook of a repository, by name: what it holds, and its mode."""
    hooks = host.bare / "hooks"
    found = {}
    for path in sorted(hooks.rglob("*")):
        data = os.readlink(path).encode() if path.is_symlink() else b""
        if path.is_file() and not path.is_symlink():
            data = path.read_bytes()
        found[str(path.relative_to(hooks))] = f"{path.lstat().st_mode:o} ".encode() + data
    return found
