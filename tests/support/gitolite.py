"""A real gitolite of a user of its own, behind a real sshd, with jo and kim as its users."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from support.availability import missing
from support.fences import clean_env
from support.ssh_server import SshServer

REPO = "project"
_CONF = f"""\
repo gitolite-admin
    RW+ = admin

repo {REPO}
    RW+ = jo kim
"""


class Gitolite(SshServer):
    """gitolite in `base/home`; its users push to the repository `project`."""

    def __init__(self, base: Path) -> None:
        path = clean_env()["PATH"]
        self._program = shutil.which("gitolite", path=path) or ""
        if not self._program:
            missing("gitolite3 is not installed")
        self.home = base / "home"
        super().__init__(base)

    @property
    def bare(self) -> Path:
        """The repository on the server's disk."""
        return self.home / "repositories" / f"{REPO}.git"

    def url(self, bare: Path) -> str:
        return f"ssh://{self.user}@127.0.0.1:{self.port}/{bare.name.removesuffix('.git')}"

    def command_as(self, user: str) -> str:
        return self._command(user)

    def environ(self) -> dict[str, str]:
        template = str(self.base / "template")  # gitolite links its hooks into their folder
        return {**clean_env(), "HOME": str(self.home), "GIT_TEMPLATE_DIR": template}

    def run(self, *words: str) -> None:
        """Run a command of gitolite's as its own user."""
        done = subprocess.run(
            [self._program, *words],
            cwd=self.base,
            env=self.environ(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    def _prepare(self) -> None:
        super()._prepare()
        self.home.mkdir()
        (self.base / "template" / "hooks").mkdir(parents=True)
        for name in ("admin", "jo", "kim"):
            self._make_key(name)
        self.run("setup", "-pk", str(self.base / "admin.pub"))
        keys, conf = self.home / ".gitolite" / "keydir", self.home / ".gitolite" / "conf"
        for name in ("jo", "kim"):
            shutil.copyfile(self.base / f"{name}.pub", keys / f"{name}.pub")
        (conf / "gitolite.conf").write_text(_CONF, encoding="ascii")
        self.run("compile")
        self.run("trigger", "POST_COMPILE")
        shutil.copyfile(self.home / ".ssh" / "authorized_keys", self.base / "authorized_keys")
