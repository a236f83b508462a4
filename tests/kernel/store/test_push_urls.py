"""A push URL is accepted on the host and the path of the fetch URL, and no other is."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from support.commands import typed
from support.ledgers import REF, door
from support.remotes import Remote
from support.repos import git
from support.running import Desk

from gitlease.kernel.rules.errors import Invalid, LeaseHeld
from gitlease.wiring.workspace import open_workspace

pytestmark = pytest.mark.default

Clones = Callable[..., list[Path]]
SSH = """\
#!/bin/sh
for word
do
    case $word in -G) printf 'hostname 127.0.0.1\\nport 22\\nuser git\\n'; exit;; esac
    last=$word
done
cd {root} && exec git shell -c "$last"
"""


@pytest.fixture
def fork(path_remote: Remote, tmp_path: Path) -> Path:
    """Another repository with the same branches."""
    fork = tmp_path / "fork.git"
    git(tmp_path, "clone", "-q", "--bare", path_remote.url, str(fork))
    return fork


def ssh_to(remote: Remote, tmp_path: Path) -> tuple[str, str]:
    """A program in the place of ssh, and the path below which it has a remote over http."""
    path = urlsplit(remote.url).path.strip("/")
    there = tmp_path / "ssh-root" / path
    there.parent.mkdir(parents=True)
    there.symlink_to(remote.bare)
    program = tmp_path / "ssh"
    program.write_text(SSH.format(root=shlex.quote(str(tmp_path / "ssh-root"))))
    program.chmod(0o755)
    return str(program), path


@pytest.mark.parametrize("host", ["127.0.0.1", "alias"])
def test_https_to_read_and_ssh_to_write_are_one_repository(
    clones: Clones, http_remote: Remote, tmp_path: Path, host: str
) -> None:
    ada, bob = clones(2)
    program, path = ssh_to(http_remote, tmp_path)
    git(ada, "config", "core.sshCommand", program)
    git(ada, "remote", "set-url", "--push", "origin", f"git@{host}:{path}")
    assert door(ada).claim("F001").mine
    with pytest.raises(LeaseHeld):
        door(bob).claim("F001")
    assert Desk(ada).document("status")["ledger"]["written_to"] == f"git@{host}:{path}"
    git(ada, "remote", "set-url", "--push", "origin", f"git@{host}:fork/{path}")
    with pytest.raises(Invalid):
        door(ada).claim("F002")


def test_an_alias_of_another_host_is_refused(
    clones: Clones, http_remote: Remote, tmp_path: Path
) -> None:
    (ada,) = clones(1)
    program, path = ssh_to(http_remote, tmp_path)
    Path(program).write_text(Path(program).read_text().replace("127.0.0.1", "127.0.0.2"))
    git(ada, "config", "core.sshCommand", program)
    git(ada, "config", f"url.git@alias:{path}.pushInsteadOf", http_remote.url)
    with pytest.raises(Invalid) as caught:
        door(ada).claim("F001")
    assert f"git@alias:{path}" in caught.value.message
    assert not git(http_remote.bare, "for-each-ref", REF)


@pytest.mark.parametrize("several", [True, False])
def test_the_refusal_names_the_one_setting_to_make(
    clones: Clones, path_remote: Remote, fork: Path, several: bool
) -> None:
    ada, bob = clones(2)
    Desk(bob).document("claim", "F001")
    for url in (str(fork), path_remote.url)[: 1 + several]:
        git(ada, "remote", "set-url", "--add", "--push", "origin", url)
    desk = Desk(ada)
    for words in (("claim", "F002"), ("init",)):
        error = desk.document(*words, expect=7)["error"]
        assert str(fork) in error["message"]
        (hint,) = error["hints"]
    assert any(str(fork) in x for x in desk.document("list")["warnings"])
    git(ada, *shlex.split(hint.partition(": git ")[2]))  # as it is typed
    desk.document("claim", "F002")
    desk.document("claim", "F001", expect=1)
    assert not git(fork, "for-each-ref", REF)


@pytest.mark.slow
@pytest.mark.parametrize("user_wide", [True, False])
def test_leases_from_before_are_renewed_and_released_where_others_fetch(
    clones: Clones,
    path_remote: Remote,
    fork: Path,
    user_wide: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (ada,) = clones(1)
    for name in ("F001", "F002"):
        door(ada).claim(name)
    git(fork, "fetch", "-q", path_remote.url, f"{REF}:{REF}")  # where a push would fit as well
    before = git(fork, "for-each-ref", REF)
    # The rule leads pushes to the fetch URL away as well, and the user's file is read first.
    rule = f'[url "{fork}"]\n\tpushInsteadOf = {path_remote.url}\n'
    own = fork.parent / "own.config"
    own.write_text(rule if user_wide else "")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(own))
    if not user_wide:
        with (ada / ".git/config").open("a", encoding="utf-8") as file:
            file.write(rule)
    assert door(ada).renew("F001").mine
    door(ada).release("F001")
    assert [x.resource for x in door(ada).list()] == ["F002"]
    assert git(path_remote.bare, "ls-tree", "-r", "--name-only", REF).count("leases/") == 1
    assert git(fork, "for-each-ref", REF) == before
    workspace = open_workspace(str(ada))
    assert workspace.location.url == path_remote.url


def test_settings_may_lead_to_one_repository_by_many_ways(
    clones: Clones, path_remote: Remote, tmp_path: Path
) -> None:
    ada, bob = clones(2)
    for name in ("a.git", "b.git"):
        (tmp_path / name).symlink_to(path_remote.bare)
    git(ada, "config", f"url.{tmp_path}/a.git.pushInsteadOf", path_remote.url)
    git(ada, "config", f"url.{tmp_path}/b.git.insteadOf", f"{tmp_path}/a.git")
    door(ada).claim("F001")
    with pytest.raises(LeaseHeld):
        door(bob).claim("F001")


def test_work_goes_unfenced_to_another_repository(
    clones: Clones, path_remote: Remote, fork: Path
) -> None:
    (ada,) = clones(1)
    door(ada).claim("src/")
    git(ada, "remote", "set-url", "--push", "origin", str(fork))
    (ada / "src").mkdir()
    (ada / "src/a").write_text("a")
    git(ada, "add", ".")
    git(ada, "commit", "-qm", "work")
    head = git(path_remote.bare, "rev-parse", REF)
    pushed = typed(ada, "push", "origin", "HEAD:refs/heads/topic")
    assert (pushed.returncode, str(fork) in pushed.stderr) == (0, True)
    assert git(fork, "rev-parse", "topic") == git(ada, "rev-parse", "HEAD")
    assert git(path_remote.bare, "rev-parse", REF) == head
    assert typed(ada, "push", "--require", "src/", "origin", "HEAD:topic").returncode == 7
