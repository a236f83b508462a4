"""The composition root of the check of stale claims: opened only for that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gitlease.adapters.activity import GitActivity
from gitlease.adapters.activity_lack import lack_of_contents
from gitlease.adapters.ci import surroundings
from gitlease.domain.errors import GitleaseError
from gitlease.domain.resource import GLOBAL_LAYER
from gitlease.domain.stale import StaleRules
from gitlease.staleness import StaleService

if TYPE_CHECKING:
    from gitlease.adapters.repository import Repository
    from gitlease.bootstrap import Workspace

USUAL_REMOTE = "origin"
# What git says, of any version, where it may not fetch what a partial clone lacks.
_LACKING = ("promisor remote", "lazy fetch", "unable to read", "bad object", "missing")


def open_staleness(
    workspace: Workspace, *, environ: Mapping[str, str] | None = None
) -> StaleService:
    """The stale claims of an opened repository. Asks no remote.

    What is leased in ``global`` counts for every layer.
    """
    repository, settings = workspace.repository, workspace.settings
    local = workspace.location.url is None
    told = surroundings(environ).get("CI", "").lower()
    return StaleService(
        workspace.service,
        GitActivity(
            repository,
            settings.tasks,
            ref_prefix=settings.ref_prefix,
            remotes=_remotes_of_work(workspace),
            given=told not in ("", "0", "false"),
        ),
        StaleRules(after=settings.stale_after, release=settings.stale_release),
        layers=[] if local else [GLOBAL_LAYER],
    )


def _remotes_of_work(workspace: Workspace) -> tuple[str, ...]:
    """The remotes whose branches people work on: the ledger may be elsewhere, and origin a fork."""
    names = workspace.repository.remote_names()
    usual = [x for x in (workspace.location.name, USUAL_REMOTE) if x is not None and x in names]
    return tuple(dict.fromkeys(usual or (names if len(names) == 1 else ())))


def hint_at_contents(repository: Repository, error: GitleaseError) -> None:
    """Add the way out to an error of git that a partial clone has for want of contents."""
    if not error.hints and any(words in error.message for words in _LACKING):
        lack = lack_of_contents(repository)
        if lack is not None:
            error.hints = (f"{lack.what}: {lack.way}",)
