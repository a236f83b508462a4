"""The host of a repository's issues, and the addresses of their pages."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote

from gitlease.core.policy import Issues

if TYPE_CHECKING:
    from gitlease.wiring.workspace import Workspace

# https://host/owner/name.git, ssh://git@host:22/owner/name and git@host:owner/name
_URL = re.compile(r"(?:(?:https?|ssh|git)://)(?:[^@/]*@)?([^/:@]+)(?::\d+)?/(.+)")
_SCP = re.compile(r"(?:[^@/:]+@)?([^/:@]+):(?!//)(.+)")
_PAGES = {Issues.GITHUB: "issues", Issues.GITLAB: "-/issues"}


def host_of_work(workspace: Workspace) -> Issues:
    """The issue host of a repository, by the name of the server that has its work."""
    place = _place(workspace)
    name = "" if place is None else place[0].lower()
    return next((x for x in _PAGES if x.value in name.split(".")), Issues.NONE)


def issue_pages(workspace: Workspace) -> str | None:
    """The address of an issue's page, without the number; None if it is not known."""
    policy, place = workspace.ledger.known_policy(), _place(workspace)
    if policy is None or policy.issues is Issues.NONE or place is None:
        return None
    host, path = place
    return f"https://{host}/{quote(path)}/{_PAGES[policy.issues]}/"


def _place(workspace: Workspace) -> tuple[str, str] | None:
    """The server of the work, and the path there; None for a local path, and without a remote."""
    from gitlease.settings.sources import remotes_of_work

    for name in remotes_of_work(workspace.location, workspace.repository):
        url = workspace.repository.remote_url(name) or ""
        found = _URL.fullmatch(url) or ("://" not in url and _SCP.fullmatch(url)) or None
        if found is not None and len(found[1]) > 1:  # one letter is a drive
            return found[1], found[2].strip("/").removesuffix(".git")
    return None
