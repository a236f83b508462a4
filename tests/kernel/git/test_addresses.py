"""Two URLs lead to one repository if they have one host and one path, however they are written."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.availability import missing
from support.repos import git

from gitlease.kernel.git import addresses
from gitlease.kernel.git.addresses import Address, lead_to_one, read_address

pytestmark = pytest.mark.default

CONFIG = """\
Host work
    HostName git.example.com
Host play
    HostName GIT.example.com
    User git
Host moved
    HostName git.example.com
    Port 2222
Host other
    HostName git.example.org
"""


@pytest.fixture(autouse=True)
def asked_anew() -> Iterator[None]:
    """What ssh said to one test is not kept for the next."""
    addresses._ask_ssh.cache_clear()
    yield
    addresses._ask_ssh.cache_clear()


def one(a: str, b: str, ssh: str | None = "/bin/false") -> bool:
    """Whether two URLs lead to one repository, either way round; usually without any ssh."""
    found = {lead_to_one(x, y, folder="/nowhere", ssh_command=ssh) for x, y in ((a, b), (b, a))}
    assert len(found) == 1
    return found.pop()


@pytest.mark.parametrize(
    ("a", "b"),
    [
        # read over https, write over ssh
        ("https://git.example.com/o/r.git", "git@git.example.com:o/r.git"),
        ("https://git.example.com/o/r", "ssh://git@git.example.com/o/r.git"),
        ("https://git.example.com/o/r/", "git@git.example.com:/o/r.git"),
        ("git://git.example.com/o/r", "ssh://git.example.com/o/r"),
        # ports of two schemes
        ("https://git.example.com:8443/o/r", "ssh://git@git.example.com:7999/o/r"),
        ("http://git.example.com:3000/o/r", "https://git.example.com/o/r"),
        # names of one host
        ("https://GIT.Example.com/o/r", "git@git.example.com.:o/r"),
        ("https://[2001:DB8::1]/o/r", "git@[2001:db8:0:0:0:0:0:1]:o/r"),
        ("http://[::1]:3000/o/r", "ssh://git@[::1]:2222/o/r"),
        # users and passwords
        ("https://jo:secret@git.example.com/o/r", "https://kim@git.example.com/o/r"),
        ("ssh://jo@git.example.com/o/r", "ssh://kim@git.example.com/o/r"),
        # one scheme, written in two ways
        ("git@git.example.com:o/r.git", "ssh://git@git.example.com/o/r"),
        ("git@git.example.com:o/r", "git+ssh://git@git.example.com:22/o/r"),
        ("[git@git.example.com:2222]:o/r", "ssh://git@git.example.com:2222/o/r"),
        ("jo@git.example.com:o/r", "jo@git.example.com:~/o/r"),
        ("ssh://jo@git.example.com/~/o/r", "jo@git.example.com:o/r"),
        ("https://git.example.com:443/o/r", "https://git.example.com/o/r"),
        ("https://git.example.com/o/a%20b", "git@git.example.com:o/a b"),
        ("https://git.example.com/o/r/.git", "https://git.example.com/o/r"),
        # what is the same to the letter, whatever it is
        ("hg::https://git.example.com/o/r", "hg::https://git.example.com/o/r"),
    ],
)
def test_one_host_and_path_are_one_repository(a: str, b: str) -> None:
    assert one(a, b)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        # another path
        ("https://git.example.com/o/r", "git@git.example.com:fork/r"),
        ("https://git.example.com/o/r", "git@git.example.com:o/r2"),
        ("https://git.example.com/o/r", "git@git.example.com:o/R"),
        ("https://git.example.com/o/r", "https://git.example.com/o/r.git.git"),
        ("https://git.example.com/o/r?a", "https://git.example.com/o/r?b"),
        ("https://git.example.com/scm/o/r", "git@git.example.com:o/r"),
        # another host
        ("https://git.example.com/o/r", "git@git.example.org:o/r"),
        ("https://example.com/o/r", "https://www.example.com/o/r"),
        ("http://[::1]/o/r", "http://[::2]/o/r"),
        ("https://git.example.com/o/r", "https://git.example.com@evil.example/o/r"),
        ("https://git.example.com/o/r", "https://evil.example/git.example.com/o/r"),
        # another server on one host
        ("http://git.example.com:3000/o/r", "http://git.example.com:3001/o/r"),
        ("ssh://git@git.example.com:2222/o/r", "git@git.example.com:o/r"),
        # below the homes of two users
        ("jo@git.example.com:r", "kim@git.example.com:r"),
        ("ssh://jo@git.example.com/~/r", "ssh://kim@git.example.com/~/r"),
        ("jo@git.example.com:~jo/r", "jo@git.example.com:r"),
        # no path, no host, or another transport
        ("https://git.example.com", "ssh://git@git.example.com"),
        ("https://git.example.com/", "ssh://git@git.example.com/"),
        ("https:///o/r", "ssh:///o/r"),
        ("hg::https://git.example.com/o/r", "https://git.example.com/o/r"),
        ("https://git.example.com:444444/o/r", "https://git.example.com:44444/o/r"),
        ("ext::sh -c cat", "https://git.example.com/o/r"),
        ("", "https://git.example.com/o/r"),
        # a path here, and a host
        ("/srv/o/r", "ssh://localhost/srv/o/r"),
        ("file:///srv/o/r", "git@localhost:/srv/o/r"),
    ],
)
def test_anything_else_is_another_repository(a: str, b: str) -> None:
    assert not one(a, b)


def test_an_address_is_read_as_git_reads_it() -> None:
    assert read_address("jo@h:x/y.git") == Address("ssh", "jo", "h", 22, "x/y", True)
    assert read_address("ssh://jo%40a@h:2222/x") == Address("ssh", "jo@a", "h", 2222, "x", False)
    assert read_address("https://jo:a@b@h/x") == Address("https", "", "h", 443, "x", False)
    assert read_address("./x:y") is None, "a path, as git tells by the slash before the colon"
    assert read_address("svn://h/x") is None


# --- paths ------------------------------------------------------------------------------------


def test_paths_are_one_repository_if_they_really_are(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--bare", "r.git")
    git(tmp_path, "init", "-q", "--bare", "fork.git")
    git(tmp_path, "init", "-q", "tree")
    (tmp_path / "link").symlink_to(tmp_path / "r.git")

    def are_one(a: str, b: str) -> bool:
        return lead_to_one(a, b, folder=str(tmp_path / "tree"), ssh_command=None)

    there = str(tmp_path / "r.git")
    for same in (
        "../r.git",
        "../r",
        "../link/",
        f"file://{there}",
        f"{there}/../r.git",
        f"{there}/",
    ):
        assert are_one(there, same), same
    assert are_one("../tree", f"{tmp_path}/tree/.git")
    assert are_one("../gone", f"{tmp_path}/gone")
    for other in ("../fork.git", "../gone", f"file://{tmp_path}/fork.git", "../tree", ""):
        assert not are_one(there, other), other


def test_a_path_in_a_file_url_is_decoded(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--bare", "a b.git")
    plain, url = f"{tmp_path}/a b.git", f"file://{tmp_path}/a%20b.git"
    assert lead_to_one(plain, url, folder="/", ssh_command=None)


# --- ssh's configuration ----------------------------------------------------------------------


@pytest.fixture
def ssh(tmp_path: Path) -> str:
    """The command of a real ssh with hosts of its own."""
    if shutil.which("ssh") is None:
        missing("ssh is not installed")
    (tmp_path / "config").write_text(CONFIG)
    return f"ssh -F '{tmp_path}/config'"


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ("https://git.example.com/o/r", "git@work:o/r.git", True),
        ("git@git.example.com:o/r", "git@work:o/r", True),
        ("ssh://git@work/o/r", "play:o/r", True),
        ("https://git.example.com:8443/o/r", "moved:o/r", True),
        ("git@moved:o/r", "ssh://git@git.example.com:2222/o/r", True),
        ("git@work:o/r", "ssh://git@moved/o/r", False),
        ("https://git.example.com/o/r", "git@other:o/r", False),
        ("https://git.example.com/o/r", "git@work:fork/r", False),
        ("play:r", "kim@work:r", False),
        ("https://work/o/r", "git@git.example.com:o/r", False),
    ],
)
def test_an_alias_is_the_host_that_ssh_connects_to(ssh: str, a: str, b: str, same: bool) -> None:
    assert one(a, b, ssh) is same


def test_ssh_is_not_asked_what_the_urls_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, asked = tmp_path / "ssh", tmp_path / "asked"
    program.write_text(
        f'#!/bin/sh\necho "$@" >>{asked}\nprintf "hostname h\\nport 22\\nuser u\\n"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("GIT_SSH", str(program))
    for b in ("git@h:o/r", "ssh://h:2222/o/r", "git@x:o/other", "https://x/o/r"):
        one("https://h/o/r", b, None)
    assert not asked.exists()
    # What would be an option, or words of a shell, is no host.
    for b in ("git@-oProxyCommand=x:o/r", "git@$(x):o/r", "ssh://-x/o/r", "-lx@alias:o/r"):
        assert not one("https://h/o/r", b, None)
    assert not asked.exists()
    assert one("https://h/o/r", "ssh://git@alias:2222/o/r", None)
    assert one("https://h/o/r", "ssh://git@alias:2222/o/r", None)
    assert asked.read_text() == "-G -p 2222 -l git -- alias\n", "once"


@pytest.mark.parametrize(
    "command", ["plink", "ssh $OPTIONS", "ssh 'x", "no-such-folder/ssh", "FOO=1 ssh"]
)
def test_an_alias_that_cannot_be_resolved_is_another_host(command: str) -> None:
    assert not one("https://git.example.com/o/r", "git@work:o/r", command)


def test_the_command_of_the_environment_comes_first(
    tmp_path: Path, ssh: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_SSH_COMMAND", ssh)
    assert one("https://git.example.com/o/r", "git@work:o/r", "plink")
    monkeypatch.setenv("GIT_SSH_COMMAND", "plink")
    assert not one("https://git.example.com/o/r", "git@work:o/r", ssh)
    monkeypatch.delenv("GIT_SSH_COMMAND")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert one("https://git.example.com/o/r", "git@work:o/r", "ssh -F ~/config")
