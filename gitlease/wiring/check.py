"""Opens a repository for the checks of commits, as nobody in particular, and of stale claims.

Commits must not change how they are judged: the settings are those of the commit before them, and
so is the mailmap. Flags, the environment and git's own config take precedence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from gitlease.check.ci import CiContext, is_ci, read_context, surroundings
from gitlease.check.commits import CheckService, Chosen, HistoryStore, Ranges
from gitlease.check.stale import StaleRules, StaleService
from gitlease.check.task_history import TaskHistory, lack_of_contents
from gitlease.core.errors import GitleaseError
from gitlease.core.frozen import dataclass, field, replace
from gitlease.core.resources.resource import GLOBAL_LAYER
from gitlease.engine.ports import Clock
from gitlease.git.repository import GitFailed, Repository, discover
from gitlease.git.system_clock import SystemClock
from gitlease.guard.commits import CommitReader
from gitlease.settings.commit import committed_settings
from gitlease.settings.schema import Found
from gitlease.settings.sources import Settings, load_settings, remotes_of_work
from gitlease.store.transport import TIME_LIMIT
from gitlease.wiring.ledger import HERE, LedgerPlace, open_place

if TYPE_CHECKING:
    from gitlease.wiring.workspace import Workspace

__all__ = ("CheckContext", "Chosen", "CommittedSettings", "open_check", "read_context")

USUAL_REMOTE = "origin"
CommittedSettings = Mapping[str, Found]
Load = Callable[[CommittedSettings | None], Settings]


@dataclass(frozen=True, slots=True)
class CheckContext:
    """The parts of a check. ``ci`` is the context of continuous integration, if it runs there."""

    ci: CiContext
    repository: Repository
    ranges: Ranges
    load: Load
    open: Callable[[Chosen, CommittedSettings | None], CheckService]
    _committed: dict[str, CommittedSettings] = field(default_factory=dict)

    def choose(self, words: str | None = None) -> Chosen:
        """The commits of a range, or those of the CI context.

        The remote is asked only for what this clone lacks. Raises UsageError and NotFound.
        """
        chosen = self.ranges.choose(words, self.ci)
        prefix = self.load(self.committed(chosen)).ref_prefix
        if words is None and self.ci.head_ref.startswith(f"{prefix}/"):
            return replace(chosen, commits=())  # a ledger among the branches is not work
        return chosen

    def committed(self, chosen: Chosen) -> CommittedSettings | None:
        """Return the settings that commits are judged by; None if there is no earlier commit."""
        base = chosen.base
        if base and base not in self._committed:
            self._committed[base] = committed_settings(chosen.place or self.repository, base)
        return self._committed.get(base)

    def service(self, chosen: Chosen) -> CheckService:
        """The check of chosen commits. Asks no remote yet. Raises Invalid for bad settings."""
        return self.open(chosen, self.committed(chosen))


def open_check(
    directory: str = ".",
    *,
    layer: str | None = None,
    local: bool = False,
    remote: str | None = None,
    environ: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    time_limit: float = TIME_LIMIT,
) -> CheckContext:
    """Open the repository around ``directory`` to check its commits. Asks no remote.

    Raises NotARepository, Invalid for bad settings, and UsageError for bad flags.
    """
    environ = surroundings(environ)
    clock = clock or SystemClock()
    repository = discover(directory)
    flags = {"remote": remote, "layer": layer}
    ci = read_context(environ)

    def load(committed: CommittedSettings | None) -> Settings:
        return load_settings(repository, environ=environ, flags=flags, committed=committed)

    def service(chosen: Chosen, committed: CommittedSettings | None) -> CheckService:
        place = open_place(repository, environ, flags, local=local, committed=committed)
        settings, where = place.settings, chosen.place or repository
        return CheckService(
            chosen=chosen,
            store=place.git_store(clock, time_limit=time_limit),
            reader=CommitReader(where, settings.tasks, base=chosen.base),
            tasks=place.task_files(),
            clock=clock,
            layers=place.shared_layers,
            people=settings.people,
            trailer=settings.check_trailer,
            context=ci,
        )

    usual = load({})
    name = _remote_of_work(repository, usual, load, ci)

    def beside() -> HistoryStore | None:
        # Of the remote that has the clone's work: the ledger may be elsewhere.
        url = None if name is None else repository.config.get(f"remote.{name}.url")
        if not url:
            return None
        place = LedgerPlace(repository, usual, HERE)
        return HistoryStore(repository, place.remote_at(url, name), folder=place.private)

    ranges = Ranges(repository=repository, remote=name, store=beside)
    return CheckContext(ci, repository, ranges, load, service)


def _remote_of_work(
    repository: Repository, settings: Settings, load: Load, ci: CiContext
) -> str | None:
    names = repository.remote_names()
    for usual in (USUAL_REMOTE, settings.remote):
        if usual in names:
            return usual
    if len(names) < 2 or ci.provider:  # a pull request must not choose what it is compared with
        return names[0] if len(names) == 1 else None
    word = load(None).remote
    return word if word in names else None


def open_staleness(workspace: Workspace) -> StaleService:
    """The stale claims of an opened repository. Asks no remote.

    What is leased in ``global`` counts for every layer.
    """
    repository, settings = workspace.repository, workspace.settings
    local = workspace.location.url is None
    grace = settings.ttl if settings.stale_grace is None else settings.stale_grace
    return StaleService(
        workspace.ledger,
        TaskHistory(
            repository,
            settings.tasks,
            ref_prefix=settings.ref_prefix,
            remotes=remotes_of_work(workspace.location, repository),
            in_ci=is_ci(),
        ),
        StaleRules(
            after=max(settings.stale_after, grace),
            grace=settings.stale_grace,
            release=settings.stale_release,
        ),
        layers=[] if local else [GLOBAL_LAYER],
    )


def hint_at_contents(repository: Repository, error: GitleaseError) -> GitleaseError:
    """Return the error, with a hint if git lacks contents in a partial clone."""
    lack = None if error.hints or not isinstance(error, GitFailed) else lack_of_contents(repository)
    return error if lack is None else error.with_(hints=(f"{lack.what}: {lack.way}",))
