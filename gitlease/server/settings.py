"""Settings on a server: the mode of its hook, who pushes, and the project's own of its tasks.

All of it stands where no client can write: in the configuration files of git on the server. What
comes with the environment of a push is never a setting.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from gitlease.kernel.git.repository import GitConfig, Repository, ask_line
from gitlease.kernel.git.run import GitFailed
from gitlease.kernel.rules.edge import printable
from gitlease.kernel.rules.errors import GitleaseError, Invalid, UsageError, shown
from gitlease.kernel.rules.frozen import dataclass, replace
from gitlease.kernel.rules.moves.transitions import Pusher
from gitlease.kernel.settings.schema import (
    BUILT_IN,
    KEYS,
    Found,
    Settings,
    load_settings,
    settings_of,
)
from gitlease.kernel.settings.text import committed_settings

BLOCK, WARN = "block", "warn"
MODES = (BLOCK, WARN)
MODE_KEY, IDENTITY_KEY = "gitlease.mode", "gitlease.identity"
GATEWAY_KEY = "gitlease.gateways"  # may stand there several times
MERGER_KEY = "gitlease.mergers"  # likewise
HOLDER = "holder"  # gitlease.<user>.holder
PREFIX_KEY = "lease.refPrefix"
KNOWN_VARIABLES = (
    "GL_USERNAME",  # GitLab
    "GITEA_PUSHER_NAME",
    "GITHUB_USER_LOGIN",  # GitHub Enterprise Server
    "GL_USER",  # gitolite
    "REMOTE_USER",  # git http-backend behind a web server
)

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
# What a client can set through a web server or sshd, or what is the same for everybody.
_BY_CLIENT = re.compile(
    r"HTTPS?|HTTP_.*|LC_.*|LANG.*|TERM|TZ|GIT_.*|GITLEASE_.*|QUERY_STRING|PATH_.*|REQUEST_.*"
    r"|CONTENT_.*|SERVER_.*|SCRIPT_.*|DOCUMENT_.*|GATEWAY_.*|REMOTE_IDENT|SSH_ORIGINAL_COMMAND"
    r"|DISPLAY|WAYLAND_DISPLAY|PWD|OLDPWD|HOME|PATH|SHELL|HOSTNAME"
)
_OF_A_PLACE = re.compile(r"REMOTE_(ADDR|HOST|PORT)|SSH_.*|AUTH_TYPE|XDG_.*")
_EMAIL = re.compile(r"[^\s@<>]+@[^\s@<>]+")
TRUSTED = ("system", "global", "local", "worktree")


@dataclass(frozen=True)
class ServerSettings:
    """The settings of one bare repository. ``identity`` is a variable's name, None for nobody.

    ``holders`` has the emails of users, ``prefix`` is where ledgers lie. ``gateways`` are
    users that push for others, ``mergers`` users whose new commits are those of their authors.
    """

    mode: str
    identity: str | None
    holders: Mapping[str, tuple[str, ...]]
    prefix: str
    gateways: tuple[str, ...] = ()
    mergers: tuple[str, ...] = ()

    def is_merger(self, environ: Mapping[str, str]) -> bool:
        """Return whether the pusher, by the variable, squashes and rebases the work of others."""
        return self.identity is not None and environ.get(self.identity, "") in self.mergers

    def pusher(self, environ: Mapping[str, str]) -> Pusher:
        """The pusher, by the variable; nobody that is known without one.

        Raises Invalid where the host does not say it, and where that user is nobody's holder.
        """
        if self.identity is None:
            return Pusher(None, "somebody")
        user = environ.get(self.identity, "")
        if not user.strip():
            raise Invalid(
                f"this server does not say who pushes: {self.identity} is not set",
                hints=("anonymous pushes cannot change a ledger: log in",),
            )
        gateway = user in self.gateways
        holders = self.holders.get(user)
        if holders is None and _EMAIL.fullmatch(user):
            holders = (user,)
        if holders is None and (gateway or user in self.mergers):
            return Pusher((), printable(user), gateway=gateway)  # it asks for nothing itself
        if holders is None:
            raise Invalid(
                f"{printable(user)} is not an email, and this server maps it to none",
                hints=("on the server: git config gitlease.USER.holder EMAIL",),
            )
        who = printable(user) if user in holders else f"{printable(user)} ({printable(holders[0])})"
        return Pusher(holders, who, gateway=gateway)


def read_variable(word: str) -> str:
    """A variable that tells who pushes. UsageError for what does not."""
    if not _VARIABLE.fullmatch(word):
        raise UsageError(f"{shown(word)} is not the name of a variable")
    why = ""
    if _BY_CLIENT.fullmatch(word.upper()):
        why = "clients can set it, or it is the same for everyone"
    elif _OF_A_PLACE.fullmatch(word.upper()):
        why = "it describes the connection, not the person"
    if why:
        raise UsageError(
            f"{word} does not identify the pusher: {why}",
            hints=("usual ones are " + ", ".join(KNOWN_VARIABLES),),
        )
    return word


def server_settings(repository: Repository) -> ServerSettings:
    """The settings of a repository on a server. Raises Invalid for one that cannot be used."""
    # Settings of the command line may come from whoever pushes.
    trusted = GitConfig(
        tuple(entry for entry in repository.config.entries if entry.scope in TRUSTED)
    )
    mode = trusted.get(MODE_KEY) or BLOCK
    if mode not in MODES:
        near = mode.strip().lower()
        raise Invalid(
            f"git config {MODE_KEY} is {shown(mode)}, not {' or '.join(MODES)}",
            hints=(f"git config {MODE_KEY} {near if near in MODES else BLOCK}",),
        )
    if identity := trusted.get(IDENTITY_KEY) or None:
        try:
            read_variable(identity)
        except UsageError as error:
            raise Invalid(f"git config {IDENTITY_KEY}: {error.message}") from None
    holders: dict[str, tuple[str, ...]] = {}
    for entry in trusted.section("gitlease"):
        user, _, name = entry.key.removeprefix("gitlease.").rpartition(".")
        if user and name == HOLDER and entry.value:
            holders[user] = (*holders.get(user, ()), entry.value)
    settings = load_settings(replace(repository, config=trusted), environ={}, flags={})
    return ServerSettings(
        mode=mode,
        identity=identity,
        holders=holders,
        prefix=settings.ref_prefix,
        gateways=tuple(dict.fromkeys(name for name in trusted.get_all(GATEWAY_KEY) if name)),
        mergers=tuple(dict.fromkeys(name for name in trusted.get_all(MERGER_KEY) if name)),
    )


def project_settings(repository: Repository, at: str = "HEAD") -> tuple[Settings, str]:
    """The settings in the project's own file at a commit (``""``: none), and why they are unusable.

    Raises Invalid where git does not answer.
    """
    usual = {name: Found(key.default, BUILT_IN) for name, key in KEYS.items()}
    commit = at and ask_line(repository, "rev-parse", "-q", "--verify", f"{at}^{{commit}}")
    try:
        committed = committed_settings(repository, commit) if commit else {}
        return settings_of(usual | committed), ""
    # git's failure is no fault of the file, and must not pass as usual settings.
    except GitFailed:
        raise
    except GitleaseError as error:
        return settings_of(usual), error.message
