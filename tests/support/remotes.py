"""Real git remotes for tests, of four kinds, which count the connections made to them."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args
from urllib.parse import quote, urlsplit, urlunsplit

import pytest

from support.faults import HttpFault
from support.fences import clean_env, raise_fences
from support.http_server import HttpRepo, HttpServer, Request
from support.repos import git
from support.ssh_server import SshServer

Kind = Literal["path", "file", "http", "ssh"]
KINDS: tuple[Kind, ...] = get_args(Kind)

_SEED = """\
commit refs/heads/main
committer Seed <seed@example.com> 1700000000 +0000
data 5
seed

M 100644 inline README
data 5
seed

"""

_COUNTING = """\
#!/bin/sh
for last; do :; done
printf '%s\\t%s\\t%s\\n' {service} "$PWD" "$last" >>{log}
exec {real} "$@"
"""


@dataclass
class Remote:
    """A real remote. Every git command against it needs `env`, or nothing is counted (path, file)
    and no key is found (ssh)."""

    kind: Kind
    url: str
    bare: Path
    env: dict[str, str] = field(default_factory=dict)
    http: HttpRepo | None = field(default=None, repr=False)
    _services: Callable[[], list[str]] = field(default=list, repr=False)

    def open_to(self, patch: pytest.MonkeyPatch) -> None:
        """Let this process and all that it starts reach it."""
        for name, value in self.env.items():
            patch.setenv(name, value)

    @property
    def seed(self) -> Path | None:
        """What this is still the same as, where it is new and on this disk."""
        seed, same = _seeded(()), ("config", "refs/heads/main")
        changed = any((self.bare / x).read_bytes() != (seed / x).read_bytes() for x in same)
        refs = sum(x.is_file() for x in (self.bare / "refs").rglob("*"))
        if changed or refs != 1 or (self.bare / "packed-refs").exists() or self.kind != "path":
            return None
        return seed

    def services(self) -> list[str]:
        """Every service clients opened so far: "upload-pack" or "receive-pack", in order."""
        return self._services()

    def connections(self) -> int:
        """How many transport connections clients opened so far; exact."""
        return len(self.services())

    def pushes(self) -> int:
        """How many of them were pushes (receive-pack)."""
        return self.services().count("receive-pack")

    def fetches(self) -> int:
        """How many of them were reads (upload-pack): clone, fetch, ls-remote."""
        return self.services().count("upload-pack")

    @property
    def port(self) -> int:
        """The server's loopback port, as a `FaultProxy` needs it (http and ssh)."""
        found = urlsplit(self.url).port
        if found is None:
            raise ValueError(f"a {self.kind} remote has no port")
        return found

    def through(self, port: int) -> Remote:
        """The same remote, reached by another loopback port (http and ssh): that of a proxy."""
        parts = urlsplit(self.url)
        before, _, _ = parts.netloc.rpartition(":")
        if self.port == port:
            return self
        return dataclasses.replace(self, url=urlunsplit(parts._replace(netloc=f"{before}:{port}")))

    def as_user(self, name: str, password: str) -> Remote:
        """The same http remote, with credentials in its URL."""
        self._http()
        parts = urlsplit(self.url)
        credentials = f"{quote(name, safe='')}:{quote(password, safe='')}"
        host = parts.netloc.rpartition("@")[2]
        return dataclasses.replace(
            self, url=urlunsplit(parts._replace(netloc=f"{credentials}@{host}"))
        )

    def arm(self, fault: HttpFault) -> HttpFault:
        """Arm an HTTP fault (http only); hands the same fault back."""
        return self._http().arm(fault)

    def disarm(self) -> None:
        """Take all HTTP faults away (http only)."""
        self._http().disarm()

    def requests(self) -> list[Request]:
        """All HTTP requests so far (http only)."""
        return self._http().requests()

    def _http(self) -> HttpRepo:
        if self.http is None:
            raise ValueError(f"only for http remotes, not for {self.kind}")
        return self.http


class LocalCounter:
    """An exec path for git in which the two services note that they were started.

    Git puts its exec path before PATH, so wrappers on PATH alone would never run.
    """

    def __init__(self, base: Path) -> None:
        self.directory = base / "exec-path"
        self.log = base / "local-services"
        self.log.touch()
        self.directory.mkdir()
        real = Path(git(base, "--exec-path"))
        for entry in os.scandir(real):
            (self.directory / entry.name).symlink_to(entry.path)
        for service in ("upload-pack", "receive-pack"):
            wrapper = self.directory / f"git-{service}"
            wrapper.unlink(missing_ok=True)
            wrapper.write_text(
                _COUNTING.format(
                    service=service,
                    log=shlex.quote(str(self.log)),
                    real=shlex.quote(str(real / wrapper.name)),
                )
            )
            wrapper.chmod(0o755)

    def services(self, bare: Path) -> list[str]:
        """The services started so far for one repository, however its path was spelt."""
        wanted = os.path.realpath(bare)
        found = []
        for line in self.log.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
            service, cwd, path = line.split("\t")
            if os.path.realpath(os.path.join(cwd, path)) == wanted:
                found.append(service)
        return found


class Servers:
    """The servers of a test session, each started when it is first needed."""

    def __init__(self, base: Path) -> None:
        self.base = Path(os.path.realpath(base))
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Servers:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @functools.cached_property
    def local(self) -> LocalCounter:
        """The counter for remotes on this machine's disk."""
        return LocalCounter(self._directory("local"))

    @functools.cached_property
    def http(self) -> HttpServer:
        """The http server."""
        return self._stack.enter_context(HttpServer(self._directory("http") / "backend.log"))

    @functools.cached_property
    def ssh(self) -> SshServer:
        """The ssh server."""
        return self._stack.enter_context(SshServer(self._directory("ssh")))

    def _directory(self, name: str) -> Path:
        path = self.base / name
        path.mkdir(parents=True, exist_ok=True)
        return path


def new_bare(path: Path, *options: str) -> Path:
    """A new bare repository with one seed commit on main; ``options`` are those of git init."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(_seeded(options), path)
    return path


@functools.cache
def _seeded(options: tuple[str, ...]) -> Path:
    """A repository of which each new one is a copy."""
    path = raise_fences().root / f"seeded-{len(list(raise_fences().root.glob('seeded-*')))}.git"
    git(path.parent, "init", "-q", "--bare", "-b", "main", *options, str(path))
    with (path / "config").open("a", encoding="utf-8") as config:
        config.write("[http]\n\treceivepack = true\n")
    subprocess.run(
        ["git", "fast-import", "--quiet"],
        cwd=path,
        env=clean_env(),
        input=_SEED.encode(),
        check=True,
        timeout=60,
    )
    return path


@contextlib.contextmanager
def open_remote(
    kind: Kind | str,
    tmp: Path,
    *,
    servers: Servers,
    users: Mapping[str, str] | None = None,
    name: str = "origin",
    options: Sequence[str] = (),
    latency: float = 0.0,
) -> Iterator[Remote]:
    """A new remote of this kind, its bare repository at `tmp/<name>.git`, made with `options`.

    `users` (http only) demands basic auth; `latency` (http only): seconds each way to the server.
    """
    if kind not in KINDS or (users is not None and kind != "http"):
        raise ValueError(f"no such kind of remote: {kind}")
    with contextlib.ExitStack() as stack:
        bare = new_bare(Path(os.path.realpath(tmp)) / f"{name}.git", *options)
        if kind == "http":
            repo = servers.http.publish(bare, users)
            repo.latency = latency
            stack.callback(servers.http.withdraw, repo)
            yield Remote(kind, repo.url, bare, {}, repo, lambda: [*repo.services()])
        elif kind == "ssh":
            ssh = servers.ssh
            env = {"GIT_SSH_COMMAND": ssh.command}
            yield Remote(kind, ssh.url(bare), bare, env, None, lambda: ssh.services(bare))
        else:
            local = servers.local
            url = str(bare) if kind == "path" else bare.as_uri()
            env = {"GIT_EXEC_PATH": str(local.directory)}
            yield Remote(kind, url, bare, env, None, lambda: local.services(bare))
