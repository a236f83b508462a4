"""A real sshd on a loopback port, for the current user, which runs git services only."""

from __future__ import annotations

import contextlib
import os
import pwd
import shlex
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Self

from support.availability import missing
from support.fences import clean_env

HOST_ALIAS = "gitlease-test-host"
_ATTEMPTS = 10
_START_SECONDS = 60.0
_PRIVILEGE_SEPARATION = Path("/run/sshd")

_CONFIG = """\
ListenAddress 127.0.0.1:{port}
HostKey "{base}/host_key"
PidFile none
AuthorizedKeysFile "{base}/authorized_keys"
StrictModes no
UsePAM no
PubkeyAuthentication yes
AuthenticationMethods publickey
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
PermitUserEnvironment no
AllowTcpForwarding no
X11Forwarding no
PrintMotd no
UseDNS no
MaxStartups 200
ClientAliveInterval 5
ClientAliveCountMax 4
AcceptEnv GIT_PROTOCOL
SetEnv {environ}
"""
# Newer servers punish an address whose connections break, which is what tests do.
_PATIENCE = "PerSourcePenalties no\n"

# What each key may do; its user's name is told as hosts of git tell it to hooks.
_KEY = 'restrict,command="{base}/serve {user}" {key}'
_SERVE = """\
#!/bin/sh
[ -z "${{1-}}" ] || export GL_USER="$1"
printf '%s\\n' "$SSH_ORIGINAL_COMMAND" >>{log}
exec {git} shell -c "$SSH_ORIGINAL_COMMAND"
"""


class SshServer:
    """Starts sshd in `base`; every git service a client starts is a line of `base/services`."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.user = pwd.getpwuid(os.getuid()).pw_name
        self.log = base / "services"
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._sshd = _find("sshd")
        self._prepare()
        self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def command(self) -> str:
        """The GIT_SSH_COMMAND of a client; the port is in the URL, so that a proxy fits between."""
        return self._command("user_key")

    def command_as(self, user: str) -> str:
        """The same for a user of that name, whom the server tells to hooks as GL_USER."""
        if not (self.base / user).exists():
            self._add_key(user, user)
        return self._command(user)

    def _command(self, key: str) -> str:
        options = [
            f'UserKnownHostsFile="{self.base}/known_hosts"',
            "GlobalKnownHostsFile=/dev/null",
            f"HostKeyAlias={HOST_ALIAS}",
            "StrictHostKeyChecking=yes",
            "IdentitiesOnly=yes",
            "IdentityAgent=none",
            "BatchMode=yes",
            "LogLevel=ERROR",
        ]
        words = ["ssh", "-F", "/dev/null"]
        for option in options:
            words += ["-o", option]
        return shlex.join([*words, "-i", str(self.base / key)])

    def url(self, bare: Path) -> str:
        """The URL of a repository on this machine."""
        return f"ssh://{self.user}@127.0.0.1:{self.port}{bare}"

    def services(self, bare: Path) -> list[str]:
        """The git services started so far for one repository."""
        found = []
        for line in self.log.read_text(encoding="utf-8").splitlines():
            words = shlex.split(line)
            if len(words) == 2 and words[1] == str(bare):
                found.append(words[0].removeprefix("git-"))
        return found

    def environ(self) -> dict[str, str]:
        """What every service on this server has in its environment."""
        return clean_env()

    def restart(self) -> None:
        """Stop and start again, with the same keys but on another port."""
        self.close()
        self._start()

    def close(self) -> None:
        """Stop the server and the sessions which are still open."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _prepare(self) -> None:
        _find("ssh")
        if os.geteuid() == 0:
            try:
                _PRIVILEGE_SEPARATION.mkdir(mode=0o755, parents=True, exist_ok=True)
            except OSError as error:
                missing(f"sshd cannot run as root here: {error}")
        self._make_key("host_key")
        self._add_key("user_key", "")
        host = (self.base / "host_key.pub").read_text(encoding="ascii")
        (self.base / "known_hosts").write_text(f"{HOST_ALIAS} {host}", encoding="ascii")
        self.log.touch()
        serve = self.base / "serve"
        git = shutil.which("git", path=clean_env()["PATH"]) or "git"
        serve.write_text(_SERVE.format(log=shlex.quote(str(self.log)), git=shlex.quote(git)))
        serve.chmod(0o755)

    def _make_key(self, name: str) -> str:
        words = [_find("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-C", name]
        subprocess.run([*words, "-f", str(self.base / name)], check=True, env=clean_env())
        return (self.base / f"{name}.pub").read_text(encoding="ascii")

    def _add_key(self, name: str, user: str) -> None:
        line = _KEY.format(base=self.base, user=user, key=self._make_key(name))
        with (self.base / "authorized_keys").open("a", encoding="ascii") as keys:
            keys.write(line)

    def _start(self) -> None:
        """Start sshd; a port that was taken in the meantime leads to another attempt."""
        for _ in range(_ATTEMPTS):
            with socket.create_server(("127.0.0.1", 0)) as free:
                self.port = free.getsockname()[1]
            config = self._write_config()
            with (self.base / "sshd.log").open("ab") as log:
                process = subprocess.Popen(
                    [self._sshd, "-D", "-e", "-f", str(config)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=clean_env(),
                    start_new_session=True,
                )
            self._process = process
            if self._answers(process):
                return
            self.close()
        log_text = (self.base / "sshd.log").read_text(encoding="utf-8", errors="replace")
        missing(f"sshd does not start here: {log_text[-2000:]}")

    def _write_config(self) -> Path:
        environ = {name: value for name, value in self.environ().items() if name != "TMPDIR"}
        pairs = " ".join(f'"{name}={value}"' for name, value in sorted(environ.items()))
        text = _CONFIG.format(port=self.port, base=self.base, environ=pairs)
        config = self.base / "sshd_config"
        config.write_text(text + _PATIENCE, encoding="utf-8")
        words = [self._sshd, "-t", "-f", str(config)]
        tried = subprocess.run(words, capture_output=True, check=False, env=clean_env())
        if tried.returncode and b"PerSourcePenalties" in tried.stderr:
            config.write_text(text, encoding="utf-8")
        return config

    def _answers(self, process: subprocess.Popen[bytes]) -> bool:
        """Wait (bounded) for the server's banner."""
        until = time.monotonic() + _START_SECONDS
        while time.monotonic() < until and process.poll() is None:
            with contextlib.suppress(OSError):
                address = ("127.0.0.1", self.port)
                with socket.create_connection(address, timeout=_START_SECONDS) as probe:
                    return probe.recv(4) == b"SSH-"
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.02)
        return False


def _find(name: str) -> str:
    """The absolute path of a program of OpenSSH (sshd insists on one)."""
    path = clean_env()["PATH"] + ":/usr/sbin:/usr/local/sbin:/sbin"
    found = shutil.which(name, path=path)
    if found is None:
        missing("openssh-server is not installed")
    return os.path.abspath(found)
