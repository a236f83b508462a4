"""Opens the check of stale claims."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gitlease.check.ci import is_ci
from gitlease.check.stale.activity import GitActivity
from gitlease.check.stale.idle import StaleRules
from gitlease.check.stale.missing_history import lack_of_contents
from gitlease.check.stale.staleness import StaleService
from gitlease.core.errors import GitleaseError
from gitlease.core.resources.resource import GLOBAL_LAYER
from gitlease.git.repository import GitFailed
from gitlease.settings.sources import remotes_of_work

if TYPE_CHECKING:
    from gitlease.git.repository import Repository
    from gitlease.wiring.workspace import Workspace


def open_staleness(
    workspace: Workspace, *, environ: Mapping[str, str] | None = None
) -> StaleService:
    """The stale claims of an opened repository. Asks no remote.

    What is leased in ``global`` counts for every layer.
    """
    repository, settings = workspace.repository, workspace.settings
    local = workspace.location.url is None
    grace = settings.ttl if settings.stale_grace is None else settings.stale_grace
    return StaleService(
        workspace.ledger,
        GitActivity(
            repository,
            settings.tasks,
            ref_prefix=settings.ref_prefix,
            remotes=remotes_of_work(workspace.location, repository),
            given=is_ci(environ),
        ),
        StaleRules(
            after=max(settings.stale_after, grace),
            grace=settings.stale_grace,
            release=settings.stale_release,
        ),
        layers=[] if local else [GLOBAL_LAYER],
    )


def hint_at_contents(repository: Repository, error: GitleaseError) -> None:
    """Add a hint if git failed in a partial clone, where it may not fetch what is missing."""
    if not error.hints and isinstance(error, GitFailed):
        lack = lack_of_contents(repository)
        if lack is not None:
            error.hints = (f"{lack.what}: {lack.way}",)
