"""Opens a repository for the checks of commits, of stale claims, and of a ledger's history.

Commits must not change how they are judged: the settings are those of the commit before them, and
so is the mailmap. Flags, the environment and git's own config take precedence.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from gitlease.check.commits import CheckService, Chosen, HistoryStore, Ranges, is_ci, read_context
from gitlease.check.stale import StaleRules, StaleService
from gitlease.check.task_history import TaskHistory, lack_of_contents
from gitlease.guard.commits import CommitReader
from gitlease.guard.history import commit_ids
from gitlease.kernel.git.repository import Repository, discover, is_id, without_secrets
from gitlease.kernel.git.run import GitFailed, SystemClock
from gitlease.kernel.ledger.ports import Clock
from gitlease.kernel.rules.errors import GitleaseError, Invalid, NotFound, UsageError
from gitlease.kernel.rules.frozen import replace
from gitlease.kernel.rules.resources import GLOBAL_LAYER
from gitlease.kernel.settings.schema import Found, Settings, load_settings, remotes_of_work
from gitlease.kernel.settings.text import committed_settings
from gitlease.kernel.store.transport import TIME_LIMIT, GitRefs
from gitlease.wiring.ledger import HERE, LedgerPlace, open_place

if TYPE_CHECKING:
    from gitlease.check.replay import Verified
    from gitlease.wiring.workspace import Workspace


USUAL_REMOTE = "origin"
CommittedSettings = Mapping[str, Found]


class CheckContext:
    """The check of the commits of the repository around ``directory``. Asks no remote yet.

    ``ci`` is the context of continuous integration, if it runs there. Raises NotARepository,
    Invalid for bad settings, and UsageError for bad flags.
    """

    def __init__(
        self,
        directory: str = ".",
        *,
        layer: str | None = None,
        local: bool = False,
        remote: str | None = None,
        environ: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        time_limit: float = TIME_LIMIT,
    ) -> None:
        self._environ = os.environ if environ is None else environ
        self._clock = clock or SystemClock()
        self._flags, self._local, self._limit = (
            {"remote": remote, "layer": layer},
            local,
            time_limit,
        )
        self.repository, self.ci = discover(directory), read_context(self._environ)
        self._usual = self._load({})
        self._remote = self._remote_of_work()
        self._committed: dict[str, CommittedSettings] = {}

    def choose(self, words: str | None = None) -> Chosen:
        """The commits of a range, or those of the CI context.

        The remote is asked only for what this clone lacks. Raises UsageError and NotFound.
        """
        ranges = Ranges(repository=self.repository, remote=self._remote, store=self._beside)
        chosen = ranges.choose(words, self.ci)
        prefix = self._load(self.committed(chosen)).ref_prefix
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
        place = open_place(
            self.repository,
            self._environ,
            self._flags,
            local=self._local,
            committed=self.committed(chosen),
        )
        settings, where = place.settings, chosen.place or self.repository
        return CheckService(
            chosen=chosen,
            store=place.store(self._clock, time_limit=self._limit),
            reader=CommitReader(where, settings.tasks, base=chosen.base),
            tasks=place.task_files(),
            clock=self._clock,
            layers=place.shared_layers,
            people=settings.people,
            bots=settings.bots,
            trailer=settings.check_trailer,
            context=self.ci,
        )

    def _load(self, committed: CommittedSettings | None) -> Settings:
        return load_settings(
            self.repository, environ=self._environ, flags=self._flags, committed=committed
        )

    def _remote_of_work(self) -> str | None:
        names = self.repository.remote_names()
        for usual in (USUAL_REMOTE, self._usual.remote):
            if usual in names:
                return usual
        if len(names) < 2 or self.ci.provider:  # a request must not choose what it is compared with
            return names[0] if len(names) == 1 else None
        word = self._load(None).remote
        return word if word in names else None

    def _beside(self) -> HistoryStore | None:
        # Of the remote that has the clone's work: the ledger may be elsewhere.
        name, config = self._remote, self.repository.config
        url = None if name is None else config.get(f"remote.{name}.url")
        if not url:
            return None
        place = LedgerPlace(self.repository, self._usual, HERE)
        return HistoryStore(self.repository, place.remote_at(url, name), folder=place.private)


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


def prefix_in(workspace: str, repository: Repository) -> str:
    """Return a repository's path below the folder to which a CI host's paths are relative."""
    if not workspace or repository.toplevel is None:
        return ""
    place = os.path.relpath(os.path.realpath(repository.toplevel), os.path.realpath(workspace))
    return "" if place == "." or place.startswith("..") else place


def hint_at_contents(repository: Repository, error: GitleaseError) -> GitleaseError:
    """Return the error, with a hint if git lacks contents in a partial clone."""
    lack = None if error.hints or not isinstance(error, GitFailed) else lack_of_contents(repository)
    return error if lack is None else error.with_(hints=(f"{lack.what}: {lack.way}",))


# --- a ledger to verify ---------------------------------------------------------------------------


def verify_ledger(
    place: LedgerPlace, *, ref: str | None = None, cached: bool = False, tips: Sequence[str] = ()
) -> tuple[str, Verified, tuple[str, ...]]:
    """Replay the history of the ledger at ``ref``, else of the configured one as it is now.

    The latter is fetched first, unless ``cached``. ``tips`` are commits that were at its ref at
    other times. Returns what it was, for people, and warnings as well. Raises NotFound without such
    a commit or ledger, Invalid for one that this gitlease does not know, and what a fetch raises.
    """
    where, tip, shown, warnings = _version(place, ref, cached=cached)
    sampled = []
    for word, oid in zip(tips, commit_ids(where, tips), strict=True):
        if oid is None and not is_id(word):
            raise NotFound(f"{word[:80]!r} is not a commit of this ledger")
        sampled.append(oid or word)  # a renewal that was replaced may be gone by now
    from gitlease.check.replay import NoLedger

    try:
        from gitlease.check.replay import verify

        is_own = where is not place.repository
        done = verify(where, tip, sampled, environ=os.environ, is_own=is_own)
        return shown, done, warnings
    except NoLedger as error:
        raise Invalid(f"{shown} holds no ledger: {error}") from None


def _version(
    place: LedgerPlace, ref: str | None, *, cached: bool
) -> tuple[Repository, str, str, tuple[str, ...]]:
    if ref is not None:
        for where in (place.repository, _private(place, place.objects)):
            if os.path.isdir(where.git_dir) and (oid := commit_ids(where, [ref])[0]) is not None:
                return where, oid, ref, ()
        raise NotFound(f"{ref[:80]!r} is not a commit of this repository or its ledger")
    if place.given is not None:
        raise UsageError("a ledger in memory has no history to verify")
    name = place.layer
    store = place.store(SystemClock(), time_limit=TIME_LIMIT)
    head = store.known(name) if cached else store.fetch(name)
    if not cached:
        store.history(name, 10**9, older=True)
    if head is None or not head.version:
        if cached:
            raise NotFound.of_copy(name)
        raise NotFound(f"there is no ledger {name} at {without_secrets(store.place)}")
    said = ("this is what the clone knows: nothing was fetched",) if cached else ()
    copy = cast(GitRefs, store.storage).folder
    return _private(place, copy), head.version, f"ledger {name}", (*store.warnings, *said)


def _private(place: LedgerPlace, copy: str) -> Repository:
    plain = replace(place.repository, toplevel=None, folder="", worktree=None)
    return replace(plain, common_dir=copy, git_dir=copy)
