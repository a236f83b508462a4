"""The composition root of the check of stale claims: opened only for that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gitlease.adapters.activity import GitActivity
from gitlease.domain.resource import GLOBAL_LAYER
from gitlease.domain.stale import StaleRules
from gitlease.staleness import StaleService

if TYPE_CHECKING:
    from gitlease.bootstrap import Workspace


def open_staleness(workspace: Workspace) -> StaleService:
    """The stale claims of an opened repository. Asks no remote.

    What is leased in ``global`` counts for every layer.
    """
    repository, settings = workspace.repository, workspace.settings
    local = workspace.location.url is None
    return StaleService(
        workspace.service,
        GitActivity(repository, settings.tasks, ref_prefix=settings.ref_prefix),
        StaleRules(after=settings.stale_after, release=settings.stale_release),
        layers=[] if local else [GLOBAL_LAYER],
    )
