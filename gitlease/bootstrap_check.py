"""The composition root of the check: nobody in particular, who only reads.

What judges commits must not come along with them: the settings are those of the commit that was
there before, as the mailmap is. Flags, the environment and git's own config stand above them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from gitlease.adapters.check_commits import GitCommits, place_of
from gitlease.adapters.check_range import Ranges
from gitlease.adapters.check_store import HistoryStore
from gitlease.adapters.ci import read_surroundings, surroundings
from gitlease.adapters.private_store import PrivateStore
from gitlease.adapters.repository import Repository, discover
from gitlease.adapters.settings import Location, Settings, load_settings, resolve_remote
from gitlease.adapters.settings_commit import committed_settings
from gitlease.adapters.settings_file import CommittedFile
from gitlease.adapters.system_clock import SystemClock
from gitlease.adapters.task_files import GitTaskFiles
from gitlease.adapters.trail import GitTrails
from gitlease.adapters.transport import TIME_LIMIT
from gitlease.bootstrap_ledger import LedgerPlace
from gitlease.checking import CheckRules, CheckService
from gitlease.domain.frozen import dataclass
from gitlease.domain.resource import GLOBAL_LAYER, LOCAL_LAYER
from gitlease.ports import Clock
from gitlease.ports_check import Asked, Chosen

__all__ = ("CheckDesk", "Chosen", "open_check", "said_by_host")

USUAL_REMOTE = "origin"
_NO_FILE = CommittedFile(None, "")

Load = Callable[[CommittedFile | None], Settings]


@dataclass(frozen=True, slots=True)
class CheckDesk:
    """What the check has at hand. ``asked`` is what continuous integration says, if it runs there.

    ``root`` is the work tree's, None in a bare repository.
    """

    asked: Asked
    repository: Repository
    ranges: Ranges
    load: Load
    open: Callable[[Settings], CheckService]

    @property
    def root(self) -> str | None:
        return self.repository.toplevel

    def choose(self, words: str | None = None) -> Chosen:
        """The commits of a range, or those that the surroundings ask for.

        The remote is asked only for what this clone lacks of them. Raises UsageError and NotFound.
        """
        chosen = self.ranges.choose(words, self.asked)
        prefix = self.load(self.committed(chosen)).ref_prefix
        if words is None and self.asked.head_ref.startswith(f"{prefix}/"):
            # A ledger that lies among the branches is no work.
            return Chosen(commits=(), shown=chosen.shown, base=chosen.base, place=chosen.place)
        return chosen

    def committed(self, chosen: Chosen) -> CommittedFile | None:
        """The settings file by which commits are judged; None where nothing was there before."""
        if not chosen.base:
            return None
        return committed_settings(place_of(self.repository, chosen), chosen.base)

    def service(self, chosen: Chosen) -> CheckService:
        """The check of chosen commits. Asks no remote yet. Raises Invalid for bad settings."""
        return self.open(self.load(self.committed(chosen)))


def said_by_host(environ: Mapping[str, str] | None = None) -> Asked:
    """What continuous integration says, where no repository could be opened."""
    return read_surroundings(surroundings(environ))


def open_check(
    directory: str = ".",
    *,
    layer: str | None = None,
    local: bool = False,
    remote: str | None = None,
    environ: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    time_limit: float = TIME_LIMIT,
) -> CheckDesk:
    """Open the repository around ``directory`` to check its commits. Asks no remote.

    Raises NotARepository, Invalid for bad settings, and UsageError for bad flags.
    """
    environ = surroundings(environ)
    clock = clock or SystemClock()
    repository = discover(directory)
    flags = {"remote": remote or "", "layer": layer or ""}
    asked = read_surroundings(environ)

    def load(committed: CommittedFile | None) -> Settings:
        return load_settings(repository, environ=environ, flags=flags, committed=committed)

    def service(settings: Settings) -> CheckService:
        location = Location(None, None, True) if local else resolve_remote(settings, repository)
        place = LedgerPlace(repository, settings, location, local=local)
        name = LOCAL_LAYER if local else settings.layer
        return CheckService(
            place.store(clock, time_limit=time_limit),
            GitCommits(repository, settings.tasks),
            GitTrails(PrivateStore(os.path.join(place.private, "store.git"))),
            GitTaskFiles(
                repository,
                settings.tasks,
                folder=os.path.join(place.private, "tasks"),
                journal=os.path.join(place.state(name), "edges"),
            ),
            clock=clock,
            layers=[LOCAL_LAYER] if local else [GLOBAL_LAYER, name],
            rules=CheckRules(people=settings.people, trailer=settings.check_trailer),
            asked=asked,
        )

    return CheckDesk(asked, repository, _ranges(repository, load, asked), load, service)


def _ranges(repository: Repository, load: Load, asked: Asked) -> Ranges:
    """The ranges of a clone, and of the remote that has its work: the ledger may be elsewhere."""
    settings = load(_NO_FILE)
    place = LedgerPlace(repository, settings, Location(None, None, True))
    name = _remote_of_work(repository, settings, load, asked)

    def beside() -> HistoryStore | None:
        url = None if name is None else repository.config.get(f"remote.{name}.url")
        if not url:
            return None
        return HistoryStore(repository, place.remote_at(url, name), folder=place.private)

    return Ranges(repository, remote=name, store=beside)


def _remote_of_work(
    repository: Repository, settings: Settings, load: Load, asked: Asked
) -> str | None:
    names = repository.remote_names()
    if USUAL_REMOTE in names:
        return USUAL_REMOTE
    if settings.remote in names:
        return settings.remote
    if len(names) < 2 or asked.provider:  # a pull request must not choose what it is compared with
        return names[0] if len(names) == 1 else None
    word = load(None).remote
    return word if word in names else None
