"""Whether two URLs lead to one repository: the same host and path, however each is written.

People read over https what they push over ssh, so schemes, user names and the ports of different
schemes do not count. No remote is asked. ``ssh -G`` is, and only if an alias in ssh's configuration
could make two hosts the same.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from functools import lru_cache

from gitlease.kernel.rules.frozen import dataclass, replace

SECONDS = 5.0  # for ssh to print its configuration
_PORTS = {"ssh": 22, "http": 80, "https": 443, "git": 9418}
_OF_SSH = ("git+ssh", "ssh+git")
_URL = re.compile(
    r"(?P<scheme>[a-z+]+)://(?:(?P<user>[^/]*)@)?(?P<host>\[[^][/]*\]|[^]:/[]*)(?::(?P<port>[0-9]{0,5}))?"
    r"(?P<path>/.*)",
    re.DOTALL,
)
# git@host:owner/name, git@[::1]:name and [git@host:22]:name
_SCP = re.compile(r"(?:(?P<user>[^/:[]*)@)?(?P<host>\[[^][/]*\]|[^]:/[]+):(?P<path>.*)", re.DOTALL)
_IN_BRACKETS = re.compile(r"\[(?:(?P<user>[^@]*)@)?(?P<host>[^@:]+):(?P<port>[0-9]{1,5})\]")
# Settings name what ssh is asked about: none of it may be an option, or words of a shell.
_HOST = re.compile(r"[A-Za-z0-9_:][A-Za-z0-9._:%-]*")
_USER = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9._+-]*)?")
_FOR_A_SHELL = re.compile(r"[$`;|&<>(){}*?\n]")
_GIT_FOLDERS = ("/.git", "", ".git/.git", ".git")  # in the order in which git tries them


@dataclass(frozen=True)
class Address:
    """A repository on a host. ``in_home``: its path begins at the home of ``user``."""

    scheme: str
    user: str
    host: str
    port: int
    path: str
    in_home: bool


def lead_to_one(one: str, other: str, *, folder: str, ssh_command: str | None) -> bool:
    """Return whether two URLs, as git's settings rewrite them, lead to the same repository.

    Relative paths are relative to ``folder``. ``ssh_command`` is ``core.sshCommand``.
    """
    if one == other:
        return True
    paths = [_local_path(url, folder) for url in (one, other)]
    if None not in paths:
        return paths[0] == paths[1]
    a, b = read_address(one), read_address(other)
    if a is None or b is None or a.path != b.path:
        return False
    if _are_one(a, b):
        return True
    if "ssh" not in (a.scheme, b.scheme):
        return False
    words = _ssh_words(ssh_command)
    return _are_one(_as_ssh_connects(a, words), _as_ssh_connects(b, words))


def _are_one(a: Address, b: Address) -> bool:
    """Return whether two addresses with one path are of one repository."""
    if a.host != b.host:
        return False
    if a.scheme != b.scheme:
        return True  # the ports of two schemes always differ
    # Below the homes of two users one path names two repositories.
    return a.port == b.port and (a.user == b.user or not (a.in_home and b.in_home))


def read_address(url: str) -> Address | None:
    """Read where a URL leads; None for a path on this machine, and for any other transport."""
    scheme, port, in_home = "ssh", "", False
    if found := _URL.fullmatch(url):
        from urllib.parse import unquote

        scheme = "ssh" if found["scheme"] in _OF_SSH else found["scheme"]
        user, port, path = unquote(found["user"] or ""), found["port"] or "", unquote(found["path"])
        host = found["host"]
    elif "://" not in url and (found := _SCP.fullmatch(url)):
        user, host, path = found["user"] or "", found["host"], found["path"]
        in_home = not path.startswith(("/", "~"))
        if inner := _IN_BRACKETS.fullmatch(host):
            user, host, port = inner["user"] or user, inner["host"], inner["port"]
    else:
        return None
    if scheme == "ssh" and re.match(r"/?~/", path):
        path, in_home = path.partition("~/")[2], True
    host, path = _plain(host), path.strip("/").removesuffix(".git").rstrip("/")
    if scheme not in _PORTS or not host or not path:
        return None
    user = user if scheme == "ssh" else ""
    return Address(scheme, user, host, int(port or _PORTS[scheme]), path, in_home)


def _plain(host: str) -> str:
    host = host.strip("[]").lower().removesuffix(".")
    if ":" in host:
        from ipaddress import ip_address

        with contextlib.suppress(ValueError):
            return str(ip_address(host))
    return host


def _local_path(url: str, folder: str) -> str | None:
    """The real path of a repository on this machine; None for a URL that leads elsewhere."""
    if url.startswith("file://"):
        from urllib.parse import unquote

        path = "/" + unquote(url.removeprefix("file://")).lstrip("/")
    elif ":" in url.partition("/")[0]:
        return None
    else:
        path = os.path.join(folder, url)
    path = path.rstrip("/") or "/"
    for end in _GIT_FOLDERS:
        if os.path.exists(f"{path}{end}/HEAD"):
            return os.path.realpath(path + end)
    return os.path.realpath(path)


# --- ssh --------------------------------------------------------------------------------------


def _ssh_words(configured: str | None) -> tuple[str, ...]:
    """The words by which git runs ssh; none if that is another program, or takes a shell."""
    import shlex

    text = os.environ.get("GIT_SSH_COMMAND") or configured
    words = [os.environ.get("GIT_SSH") or "ssh"]
    if text:
        if _FOR_A_SHELL.search(text):
            return ()
        try:
            words = [os.path.expanduser(x) for x in shlex.split(text)]
        except ValueError:
            return ()
    return tuple(words) if words and os.path.basename(words[0]) == "ssh" else ()


def _as_ssh_connects(address: Address, words: tuple[str, ...]) -> Address:
    """The address with the host, the port and the user that ssh's configuration has for it."""
    known = _HOST.fullmatch(address.host) and _USER.fullmatch(address.user)
    if address.scheme != "ssh" or not words or not known:
        return address
    host, port, user = _ask_ssh(words, address.user, address.host, address.port)
    return replace(address, host=host, port=port, user=user)


@lru_cache
def _ask_ssh(words: tuple[str, ...], user: str, host: str, port: int) -> tuple[str, int, str]:
    """The host, the port and the user to which ssh connects; those given if it does not tell."""
    # A port is given only if it is not the usual one, which the configuration may replace.
    options = [
        *(["-p", str(port)] if port != _PORTS["ssh"] else []),
        *(["-l", user] if user else []),
    ]
    try:
        done = subprocess.run(
            [*words, "-G", *options, "--", host],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return host, port, user
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    found = {key: value for key, _, value in (line.partition(" ") for line in lines)}
    if (
        done.returncode
        or not found.get("hostname")
        or not re.fullmatch("[0-9]{1,5}", found.get("port", ""))
    ):
        return host, port, user  # another program of that name
    return _plain(found["hostname"]), int(found["port"]), found.get("user", user)
