"""The ledger of a clone and its local state: the parts that every opened place needs.

What a hook runs with every commit is imported at once, the store only when it is opened.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from shlex import quote
from typing import TYPE_CHECKING

from gitlease.guard.notes import NotedInbox, head_moved, origin_of
from gitlease.kernel.git.files import Unreadable
from gitlease.kernel.git.mainline import (
    Mailmap,
    MainBranch,
    known_main,
    learn_main,
)
from gitlease.kernel.git.objects import ID_BYTES
from gitlease.kernel.git.repository import Repository, Ways, main_branch, without_secrets
from gitlease.kernel.git.run import GitResult
from gitlease.kernel.ledger.ports import Clock
from gitlease.kernel.rules.errors import (
    GitleaseError,
    Invalid,
    PlaceLearnt,
    UsageError,
    hint,
    shown,
)
from gitlease.kernel.rules.frozen import dataclass, replace
from gitlease.kernel.rules.instant import MS
from gitlease.kernel.rules.lease import Actor
from gitlease.kernel.rules.ledger import Header
from gitlease.kernel.rules.resources import GLOBAL_LAYER, LOCAL_LAYER, parse
from gitlease.kernel.settings.schema import (
    FILE,
    KEYS,
    LEDGER,
    PREFIX,
    Found,
    Location,
    Settings,
    branch_id,
    former_id,
    load_settings,
    recorded_id,
    remotes_of_work,
    resolve_remote,
)
from gitlease.kernel.store.state import KNOWN_FILE, StateFolder
from gitlease.wiring.places import (
    LAYER,
    PLACE,
    REMOTE,
    USUAL_STATE,
    Located,
    MainPlace,
    Values,
    deciding_remotes,
    is_decided_by_main,
    keep_used,
    kept_id,
    locate,
    main_place,
    main_place_at,
    moved,
    read_place,
    read_used,
    values_of,
)

if TYPE_CHECKING:
    from gitlease.guard.service import GuardService
    from gitlease.kernel.store.admission import RemoteFacts
    from gitlease.kernel.store.elsewhere import OtherPlaces
    from gitlease.kernel.store.git_ledger import RefLedgerStore, StorePlace
    from gitlease.kernel.store.transport import GitRefs, Remote, Watched
    from gitlease.tasks.files import GitTaskFiles


# ``includeIf.gitdir:<one git directory>.path``; that of a whole folder holds for the store as well.
_BY_PLACE = re.compile(r"includeif\.gitdir(?:/i)?:.*[^/*]\.path", re.IGNORECASE | re.DOTALL)
_STORE = re.compile(r"store(?:-[a-z0-9-]+)?\.git")

LEARN = 10.0  # seconds for what this clone lacks of the main branch
HERE = Location(None, None, True)
SEE_REWRITES = "see what sends pushes elsewhere: git config --show-origin --get-regexp insteadof"


def open_place(
    repository: Repository,
    environ: Mapping[str, str],
    flags: Mapping[str, str | None] | None = None,
    *,
    local: bool = False,
    committed: Mapping[str, Found] | None = None,
    store: RefLedgerStore | None = None,
    keeps: bool = True,
    brief: bool = False,
) -> LedgerPlace:
    """The place of a repository's ledger, with arguments as for ``open_workspace``.

    ``keeps``: what was read to find it is kept for the next command.
    """
    flags = flags or {}
    if local and (flags.get("layer") or flags.get("remote")):
        raise UsageError("local is a layer of its own: it goes with neither layer nor remote")
    settings = load_settings(repository, environ=environ, flags=flags, committed=committed)
    located = None
    if not local and store is None:
        folder = os.path.join(repository.common_dir, "gitlease")
        located = locate(settings, repository, folder, tells=committed is None, keeps=keeps)
        settings = located.settings
    location = HERE if local else resolve_remote(settings, repository)
    layer = LOCAL_LAYER if local else settings.layer
    return LedgerPlace(repository, settings, location, layer, store, located=located, brief=brief)


@dataclass(frozen=True)
class LedgerPlace:
    """The place of a layer's ledger by the settings of one clone.

    ``given`` is a store to use in its place, ``folder`` another one for private state. ``located``
    says what decided it, if it was not named by hand. ``beside``: an answer about another layer
    includes this one, whose leases it names with their layer. ``brief``: for one command or hook.
    """

    repository: Repository
    settings: Settings
    location: Location
    layer: str = GLOBAL_LAYER
    given: RefLedgerStore | None = None
    folder: str = ""
    located: Located | None = None
    beside: bool = False
    brief: bool = False

    @property
    def local(self) -> bool:
        """Return whether the ledger never leaves this clone: that of ``--local``."""
        return self.layer == LOCAL_LAYER

    @property
    def private(self) -> str:
        """The clone's private folder."""
        return self.folder or os.path.join(self.repository.common_dir, "gitlease")

    @property
    def key(self) -> str:
        """The folder of this place's state: each URL, with a prefix, has one of its own.

        The first place has ``default``, as has a clone without a remote, so that a remote that was
        added or is gone is noticed.
        """
        if self.local:
            return LOCAL_LAYER
        names = {} if self.located is None else self.located.used.names
        name = self.place_name
        if (known := next((x for x in names if names[x] == name), None)) is not None:
            return known
        usual = names.get(USUAL_STATE)
        if usual is None and self.settings.remote_explicit:
            repository, url = self.repository, self.location.url
            word = repository.config.get("lease.remote") or "origin"
            if self.location.name == word or url == repository.ways_to(word).ledger:
                return USUAL_STATE
        elif not usual or not name:
            return USUAL_STATE
        from hashlib import sha256

        from gitlease.kernel.store.transport import USUAL_PREFIX

        # An older gitlease named the state of a URL by it alone.
        text = name.removesuffix(f" {USUAL_PREFIX}")
        return "at-" + sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]

    @property
    def place_name(self) -> str:
        """The URL, without credentials, and the prefix of the refs; ``""`` without a remote."""
        url, ways = self.location.url, self.location.ways
        if url is None:
            return ""
        return f"{without_secrets(ways.fetch if ways else url)} {self.settings.ref_prefix}"

    def state(self, layer: str) -> str:
        """The folder of a layer's state."""
        return os.path.join(self.private, "state", self.key, layer)

    @property
    def objects(self) -> str:
        """The repository with the objects of its ledgers, as far as they were fetched.

        A ledger that was moved goes on in the one of its former place.
        """
        key = self.key
        own = os.path.join(self.private, "store.git" if key == USUAL_STATE else f"store-{key}.git")
        kept = os.path.join("refs", "known", key)
        if os.path.isdir(os.path.join(own, kept)):
            return own
        names = list[str]()
        with contextlib.suppress(OSError):
            names = [x for x in sorted(os.listdir(self.private)) if _STORE.fullmatch(x)]
        stores = (os.path.join(self.private, x) for x in names)
        return next((x for x in stores if os.path.isdir(os.path.join(x, kept))), own)

    def layers_in_use(self) -> tuple[str, ...]:
        """The configured layer, ``global``, and all others with a ledger known here."""
        if self.local:
            return (LOCAL_LAYER,)
        known: list[str] = []
        with contextlib.suppress(OSError), os.scandir(self.state("")) as folders:
            known = sorted(x.name for x in folders if os.path.exists(f"{x.path}/{KNOWN_FILE}"))
        if os.path.exists(os.path.join(self.of_layer(LOCAL_LAYER).state(LOCAL_LAYER), KNOWN_FILE)):
            known.append(LOCAL_LAYER)
        return tuple(dict.fromkeys([self.settings.layer, GLOBAL_LAYER, *known]))

    def of_layer(self, layer: str) -> LedgerPlace:
        """The place of a layer's ledger: that of ``--local`` is a place of its own."""
        location = HERE if layer == LOCAL_LAYER else self.location
        return replace(self, location=location, layer=layer)

    def everywhere(self) -> tuple[LedgerPlace, ...]:
        """The places of all layers that this clone has used by now; this one is the first."""
        home = self
        if self.local:
            with contextlib.suppress(GitleaseError):
                location = resolve_remote(self.settings, self.repository)
                home = replace(self, location=location, layer=self.settings.layer)
        others = (home.of_layer(x) for x in home.layers_in_use())
        return (self, *(x for x in others if x.layer != self.layer))

    @property
    def shared_layers(self) -> list[str]:
        """The layers whose leases count here: what is exclusive everywhere is in ``global``."""
        return [LOCAL_LAYER] if self.local else [GLOBAL_LAYER, self.layer]

    def task_files(self) -> GitTaskFiles:
        """The task files of this work tree; intents are kept beside the ledger they go with."""
        from gitlease.tasks.files import GitTaskFiles

        return GitTaskFiles(
            self.repository,
            self.settings.tasks,
            folder=os.path.join(self.private, "tasks"),
            journal=os.path.join(self.state(self.layer), "edges"),
            main=self.main,
        )

    def main_branch(self, *, now: float | None = None) -> str | None:
        """The ref of the remote's default branch as it was last fetched, if there is one.

        Given the time ``now``, a remote whose default branch is not known here is asked for it.
        """
        names = remotes_of_work(self.location, self.repository)
        return main_branch(self.repository, names, now=now)

    def main(self) -> MainBranch:
        """The remote's default branch as far as it is known here."""
        return known_main(self.repository, remotes_of_work(self.location, self.repository))

    def learn_main(
        self, *, now: float, seconds: float, commit: str = "", afresh: bool = False
    ) -> MainBranch:
        """Learn what this clone lacks of that branch; no contact where nothing is lacking.

        ``commit`` is one that it has moved on to. ``afresh`` tries again at once what failed.
        """
        from gitlease.tasks.scan import Wanted, missing_objects

        if self.local or self.folder or (self.given is not None and self.given.in_memory):
            return self.main()  # no remote is asked for these, or nothing is kept in this clone
        repository, wanted = self.repository, Wanted(self.settings.tasks)
        names = remotes_of_work(self.location, repository)

        def missing(id: str) -> list[str]:
            return missing_objects(repository, id, wanted)

        def fetch(
            name: str,
            store: str,
            options: Sequence[str],
            settings: Sequence[str],
            source: str,
            limit: float,
        ) -> GitResult:
            from gitlease.kernel.store.transport import fetch_objects

            remote = self.remote_at(repository.ways_to(name).fetch, name)
            return fetch_objects(remote, store, options, settings, source, limit)

        return learn_main(
            repository,
            names,
            missing=missing,
            purpose=repr((self.settings.tasks.files, self.settings.tasks.completed)),
            fetch=fetch,
            now=now,
            seconds=seconds,
            commit=commit,
            afresh=afresh,
        )

    def main_now(self, *, now: float, seconds: float) -> MainPlace:
        """What the remote's default branch says of the ledger now; asks the remote, moves no ref.

        Raises Unavailable and Denied.
        """
        from gitlease.kernel.git.branches import Branches

        repository, ref = self.repository, self.main().ref
        asked = self.settings if self.located is None else self.located.asked
        remotes = deciding_remotes(asked, repository)
        branches = Branches(repository)
        tip = branches.fetched_tip(ref) if ref else ""
        if ref and not tip and (tip := branches.tip_now(ref)):
            # A shallow clone is left as it is: what is read lies beside it.
            self.learn_main(now=now, seconds=seconds, commit=tip, afresh=True)
        if tip:
            return main_place_at(repository, tip, f"the default branch of {remotes[0]}")
        self.learn_main(now=now, seconds=seconds, afresh=True)
        return main_place(repository, remotes, self.private, keeps=False)

    def mailmap(self) -> Mapping[str, str]:
        """The mailmap of the remote's default branch; it is read when it is first asked for."""
        return Mailmap(self.repository, lambda: remotes_of_work(self.location, self.repository))

    def headless_remote(self) -> str | None:
        """The remote whose branches are known here, while its default branch is not."""
        names = remotes_of_work(self.location, self.repository)
        if self.main_branch() is not None:
            return None
        from gitlease.kernel.git.branches import Branches

        branches = Branches(self.repository)
        return next((name for name in names if branches.known([name])), None)

    def inbox(self, actor: Actor) -> NotedInbox:
        """The messages of background work for an actor."""
        return NotedInbox(self.private, actor.holder, actor.session)

    def guard(self, actor: Actor, clock: Clock) -> GuardService:
        """The guard of the shared layers; it never waits long for a remote."""
        from gitlease.guard.service import GuardedLayers, GuardService, MarkerRules, WatchFolder

        settings, limit = self.settings, float(self.settings.guard_timeout)
        origin = origin_of(self.repository)
        marker = MarkerRules(
            tasks=None if settings.guard_mode == "off" else self._task_places,
            one_holder=not self._may_have_other_holders(),
        )
        return GuardService(
            WatchFolder(self.private, lambda x: self.of_layer(x).state(x), clock, origin),
            lambda: self.store(clock, time_limit=limit),
            clock=clock,
            actor=actor,
            layers=GuardedLayers(self.shared_layers, in_use=self.layers_in_use()),
            max_age=settings.guard_max_age,
            marker=marker,
            local=lambda: self.of_layer(LOCAL_LAYER).store(clock, time_limit=limit),
        )

    def _may_have_other_holders(self) -> bool:
        """Return whether ``user.email`` may differ in the next command.

        It may in another work tree, on another branch, or if it was given for this command only.
        """
        return self._worktree_has_config() or any(
            e.key.startswith("includeif.onbranch:")
            or (e.scope == "command" and e.key.startswith(("user.", "lease.", "include")))
            for e in self.repository.config.entries
        )

    def _worktree_has_config(self) -> bool:
        return (self.repository.config.get("extensions.worktreeConfig") or "").lower() == "true"

    def store(
        self, clock: Clock, *, time_limit: float, watched: Watched | None = None
    ) -> RefLedgerStore:
        """The ledgers there, with a limit in seconds for each call of git.

        Contacts learn of the ref ``watched`` by the way.
        """
        if self.given is not None:
            return self.given
        url, name = self.location.url, self.location.name
        alone = () if self.located is None else self.located.notices
        place = shown = without_secrets(url or "")
        if url is None:
            place = "the local ledger of this clone"
            why = "" if self.local else "there is no remote: "
            # A clone that once used it would read this with everything it asks of another layer.
            if not self.beside:
                alone += (f"{why}this is {place}, which nobody else sees",)
        elif name:
            place = f"{name} ({shown})"
        refs = self.refs(time_limit=time_limit, watched=watched)

        def on_move() -> None:
            head_moved(self.private)
            self._remember()

        def state(layer: str) -> StateFolder:
            return StateFolder(self.state(layer), on_move=on_move)

        from gitlease.kernel.store.admission import RemoteFacts
        from gitlease.kernel.store.git_ledger import RefLedgerStore, StorePlace

        at = StorePlace(
            refs,
            state,
            place,
            RemoteFacts() if self.local else self._facts(refs, clock, time_limit),
            refs,
            self._elsewhere,
            notices=alone,
            follow=None if self.located is None else self._follower(clock, time_limit),
        )
        learn_place = partial(self._learn_place, clock, time_limit, watched)
        return RefLedgerStore(at, clock, learn_place=learn_place)

    def _new_place(
        self, word: str, former: LedgerPlace, clock: Clock, time_limit: float
    ) -> tuple[StorePlace, LedgerPlace]:
        """Where the ledger goes on that was moved away from ``former``. Raises Invalid.

        Another remote counts only if main names it as well: the ledger is what anyone may write.
        """
        located, values = self.located, read_place(word)
        if located is None or values is None:
            raise Invalid(f"the ledger was moved to {shown(word)}, which is no place")
        named = f"{values[PREFIX]}/{values[LAYER]}"
        if values[REMOTE] != located.values[REMOTE]:
            asked, repository = located.asked, self.repository
            main = main_place(repository, deciding_remotes(asked, repository), self.private)
            if values_of(main) != values:
                # It may have moved on since it was fetched.
                main = self.main_now(now=clock.now().wall_ms / MS, seconds=min(time_limit, LEARN))
            if values_of(main) != values:
                where = shown(without_secrets(str(values[REMOTE] or "the usual remote")))
                raise Invalid(
                    f"the ledger was moved to {named} of {where}, which {main.name} does not name"
                    + (f": {main.why}" if main.why else ""),
                    hints=("git fetch",),
                )
        place, layers = self._place_at(located, values)
        layer = place.layer
        if (place.place_name, layer) == (former.place_name, former.layer):
            raise Invalid(
                f"the ledger was moved to {named}, and this clone's own settings name the former "
                "place",
                hints=(hint("see what names it: {}", "config"),),
            )
        refs = place.refs(time_limit=time_limit, layers=layers, objects=self.objects)

        def on_move() -> None:
            head_moved(self.private)
            place._remember()

        def state(name: str) -> StateFolder:
            return StateFolder(place.state(layers.get(name, name)), on_move=on_move)

        from gitlease.kernel.store.git_ledger import StorePlace

        new = StorePlace(
            refs,
            state,
            f"{place.location.name or without_secrets(place.location.url or '')} ({named})",
            place._facts(refs, clock, time_limit),
            refs,
            place._elsewhere,
            opened=lambda: place._remember(moved=True),
        )
        return new, place

    def _place_at(self, located: Located, values: Values) -> tuple[LedgerPlace, Mapping[str, str]]:
        """The place that these values name, and how layers are called there."""
        now = moved(located, values)
        # Other layers than the configured one keep their names.
        layers = {located.values[LAYER]: str(values[LAYER])}
        location = resolve_remote(now.settings, self.repository)
        layer = layers.get(self.layer, self.layer)
        place = replace(self, settings=now.settings, location=location, layer=layer, located=now)
        return place, layers

    def header_at(
        self, located: Located, values: Values, layer: str, *, time_limit: float
    ) -> Header | None:
        """The header of the ledger that a layer has at another place; None if there is none."""
        place, layers = self._place_at(located, values)
        refs = place.refs(time_limit=time_limit, layers=layers, objects=self.objects)
        version = refs.fetch(layer)
        return None if version is None else refs.read(layer, version)[0]

    @property
    def _elsewhere(self) -> OtherPlaces | None:
        """What this clone knows at other places."""
        if self.local or self.folder or self.located is None:
            return None
        used, folder = self.located.used, os.path.join(self.private, "state")
        last = "" if self.settings.remote_explicit else used.last
        from gitlease.kernel.store.elsewhere import OtherPlaces

        return OtherPlaces(folder, self.key, last, used.names)

    def refs(
        self,
        *,
        time_limit: float,
        watched: Watched | None = None,
        layers: Mapping[str, str] | None = None,
        objects: str = "",
    ) -> GitRefs:
        """The refs on which the ledgers there lie.

        ``layers`` are called otherwise there, and ``objects`` is another repository for objects.
        """
        from gitlease.kernel.store.private_store import PrivateStore

        if (url := self.location.url) is None:
            from gitlease.kernel.store.private_store import make_bare, make_folder
            from gitlease.kernel.store.transport import USUAL_PREFIX, Remote

            own = os.path.join(self.private, "local.git")
            make_folder(self.private)
            make_bare(own)
            remote, prefix = Remote(url=own, folder=self.private), USUAL_PREFIX
        else:
            remote, prefix = self.remote_at(url, self.location.name), self.settings.ref_prefix
            ways = self.location.ways
            if ways is not None and not ways.is_one:
                # For pushes as well: no rule of the clone's rewrites a name that only this one has.
                own = f"gitlease-fetched:{ways.fetch}"
                settings = ((f"url.{ways.reads}.insteadOf", own), *remote.settings)
                remote = replace(remote, url=own, effective=ways.reads, settings=settings)
        # A local ledger is kept under SHA-1, whatever the clone uses.
        sizes = {"id_bytes": ID_BYTES[self.repository.object_format]} if url else {}
        store = PrivateStore(objects or self.objects, brief=self.brief, **sizes)

        def state(layer: str) -> str:
            return self.state((layers or {}).get(layer, layer))

        from gitlease.kernel.store.transport import GitRefs

        return GitRefs(
            remote, store, state, prefix, time_limit=time_limit, watched=watched, layers=layers
        )

    def recorded_id(self) -> str | None:
        """The id of the ledger that the repository's settings record. Invalid if it is unknown."""
        location, repository = self.location, self.repository
        try:
            id = recorded_id(repository, remotes_of_work(location, repository))
        except Unreadable as why:
            main = self.main()
            bring = f"git show {quote(f'{main.name}:{FILE}')}"
            if not main.ref:
                remote, _, branch = main.name.partition("/")
                spec = quote(f"{branch}:refs/remotes/{main.name}")
                bring = f"git fetch {quote(remote)} {spec}" if branch else ""
            hints = (f"bring it here, then repeat this: {bring}",) if bring else ()
            raise Invalid(f"which ledger {FILE} records is unknown: {why}", hints=hints) from None
        return self._id_without_remote() if id is None and location.url is None else id

    def _id_without_remote(self) -> str | None:
        """The id in the work tree, on any branch, or on main as it was when there was a remote.

        The branches of a remote are deleted with it, so nothing tells what is on main now. Before
        there is a local ledger, an id that was removed counts as well.
        """
        found, repository = self.settings.found[LEDGER].value, self.repository
        id = str(found) if found else kept_id(self.private) or branch_id(repository)
        if id is None and not os.path.exists(os.path.join(self.state(self.layer), KNOWN_FILE)):
            return former_id(repository)
        return id

    def _facts(self, refs: GitRefs, clock: Clock, time_limit: float) -> RemoteFacts:
        """The remote by the settings; git is asked only where something is granted."""
        location, repository, ways = self.location, self.repository, self.location.ways

        learn = partial(self._learn_afresh, clock, time_limit)
        undecided = partial(self._undecided, learn)
        from gitlease.kernel.store.admission import RemoteFacts

        if ways is None:
            recorded = self.recorded_id
            return RemoteFacts(
                recorded=recorded, lacking=True, left=self._left, undecided=undecided
            )

        def apart() -> Sequence[tuple[str, GitRefs]]:
            here = (ways.reads, *ways.writes)
            urls = {x: repository.ways_to(x) for x in repository.remote_names()}
            named = {x: self.remote_at(y.fetch, x) for x, y in urls.items() if y.reads not in here}
            return [(x, refs.at(remote)) for x, remote in named.items()]

        def others() -> Sequence[tuple[str, GitRefs]]:
            return () if location.explicit else apart()

        problem, way_out = "", tuple[str, ...]()
        if not ways.is_one:
            from gitlease.kernel.store.admission import NAME_REMOTE

            problem = _refusal_of(location.name or "the remote", ways)
            leads_on = repository.ways_to(ways.fetch).is_one
            way_out = (name_url(without_secrets(ways.fetch)),)
            way_out = way_out if leads_on else (NAME_REMOTE, SEE_REWRITES)
        return RemoteFacts(
            problem=problem,
            way_out=way_out,
            writes_to=without_secrets(ways.writes[0]),
            recorded=self.recorded_id,
            learn=learn,
            others=others,
            apart=apart,
            undecided=undecided,
            beside=lambda layer: self._ledger_beside(refs, layer),
            named=any(self.settings.found[x].source.startswith(FILE) for x in (PREFIX, LAYER)),
        )

    @property
    def _left(self) -> str:
        """The URL of the ledger that a clone without a remote has used at one; ``""`` if none."""
        used = read_used(self.private)
        names = (used.names.get(x, "") for x in (USUAL_STATE, used.last))
        return next((x.partition(" ")[0] for x in names if x), "")

    # --- what decided the place -------------------------------------------------------------------

    def _remember(self, *, decided: bool = False, moved: bool = False) -> None:
        """Keep in mind that this place was used; ``decided``: its doubt has been settled.

        ``moved``: the ledger itself named it, and it is not used yet.
        """
        located = self.located
        if located is None or self.local or self.folder:
            return
        used = read_used(self.private)
        now = replace(used, names={**used.names, self.key: self.place_name})
        if moved:
            now = replace(now, moved=located.values)
        elif not self.settings.remote_explicit:
            values = located.values if decided or not located.doubt else used.values
            now = replace(now, last=self.key, values=values)
        if now != used or not used.is_kept:
            keep_used(self.private, now)

    def _undecided(self, learn: Callable[[], None]) -> Invalid | None:
        """Why nothing may be granted before someone decides where the ledger is, if so.

        ``learn`` asks the remote for its default branch, if this clone does not know it.
        """
        located, repository = self.located, self.repository
        if located is None or not located.doubt:
            return None
        if not located.knows_main:
            learn()
            again = locate(located.asked, repository, self.private)
            if not again.doubt and all(
                again.settings.found[x].value == located.settings.found[x].value for x in PLACE
            ):
                # The id that main records is compared with what is there after this.
                self._remember(decided=True)
                return None
            located = again if again.doubt else located
        return Invalid(located.doubt, hints=located.way_out)

    def _learn_afresh(self, clock: Clock, time_limit: float) -> None:
        now = clock.now().wall_ms / MS
        self.learn_main(now=now, seconds=min(time_limit, LEARN), afresh=True)

    def _learn_place(
        self, clock: Clock, time_limit: float, watched: Watched | None
    ) -> StorePlace | None:
        """Return where main says that the ledger is, if this clone did not know main before.

        Until main is known, only the usual place may be read: raises Invalid for any other. Where
        main is known, reads go where it says, whatever else is in doubt.
        """
        located, repository = self.located, self.repository
        if located is None or not located.doubt or located.knows_main:
            return None
        again = locate(located.asked, repository, self.private)
        if not again.knows_main:
            self._learn_afresh(clock, time_limit)
            again = locate(located.asked, repository, self.private)
        if not again.knows_main:
            usual = all(again.values[x] == KEYS[x].default for x in PLACE)
            if usual:
                return None
            raise Invalid(again.doubt, hints=again.way_out)
        if again.settings.layer != located.settings.layer:
            # Whoever opened this place has chosen its layers by the former name.
            raise PlaceLearnt(
                "this command began at the place of the ledger that the work tree names, and the "
                "default branch, which it fetched just now and which decides, names another layer",
                hints=("repeat the command: it goes to the other place then",),
            )
        location = resolve_remote(again.settings, repository)
        place = replace(self, settings=again.settings, location=location, located=again)
        return place._as_new_place(clock, time_limit, watched)

    def _as_new_place(self, clock: Clock, time_limit: float, watched: Watched | None) -> StorePlace:
        """This place for a store that was opened at another one."""
        refs = self.refs(time_limit=time_limit, watched=watched)
        located, name = self.located, self.location.name
        shown = without_secrets(self.location.url or "")

        def on_move() -> None:
            head_moved(self.private)
            self._remember()

        def state(layer: str) -> StateFolder:
            return StateFolder(self.state(layer), on_move=on_move)

        from gitlease.kernel.store.git_ledger import StorePlace

        return StorePlace(
            refs,
            state,
            f"{name} ({shown})" if name else shown,
            self._facts(refs, clock, time_limit),
            refs,
            self._elsewhere,
            notices=() if located is None else located.notices,
            follow=self._follower(clock, time_limit),
        )

    def _follower(self, clock: Clock, time_limit: float) -> Callable[[str], StorePlace]:
        """Return a function that finds where the ledger was moved, move after move."""
        former = self

        def follow(word: str) -> StorePlace:
            nonlocal former
            new, former = self._new_place(word, former, clock, time_limit)
            return new

        return follow

    def _ledger_beside(self, refs: GitRefs, layer: str) -> str:
        """The ref of another ledger on this remote that a clone may use by other settings.

        ``""`` if there is none, and if this clone has used its own place before.
        """
        located, settings = self.located, self.settings
        if located is None or located.used.values is not None or self.location.explicit:
            return ""
        free = [x for x in (PREFIX, LAYER) if is_decided_by_main(settings.found[x])]
        return refs.ledger_beside(
            layer, prefixes=PREFIX in free, layers=LAYER in free and layer == settings.layer
        )

    def remote_at(self, url: str, name: str | None) -> Remote:
        """How git reaches a URL: with the settings of this clone."""
        from gitlease.kernel.store.transport import Remote

        repository, config = self.repository, self.repository.config
        settings = [("include.path", os.path.join(repository.common_dir, "config"))]
        if self._worktree_has_config():
            settings.append(("include.path", os.path.join(repository.git_dir, "config.worktree")))
        # What git includes by the path of this git directory: that condition fails in the private
        # store, and CI keeps the credentials of a checkout so.
        read = {entry.origin for entry in config.entries}
        files = [x.value for x in config.entries if _BY_PLACE.fullmatch(x.key) and x.value in read]
        settings += [("include.path", file) for file in dict.fromkeys(files)]
        if name is not None and (proxy := config.get(f"remote.{name}.proxy")) is not None:
            settings.append(("http.proxy", proxy))
        return Remote(
            url=url,
            folder=repository.toplevel or repository.git_dir,
            effective=repository.ways_to(url).writes[0],
            settings=tuple(settings),
            upload_pack=config.get(f"remote.{name}.uploadpack") if name else None,
            receive_pack=config.get(f"remote.{name}.receivepack") if name else None,
        )

    def _task_places(self) -> tuple[str, ...]:
        """The literal heads of the patterns of task files; none if one has no literal head."""
        if not all(text.isascii() for text in self.settings.tasks.files):
            return ()
        heads = [parse(text).head for text in self.settings.tasks.files]
        places = tuple(dict.fromkeys("/".join(head) for head in heads))
        # Git is asked without regard to case, which it knows of letters of ASCII only.
        return places if all(places) else ()


def _refusal_of(place: str, ways: Ways) -> str:
    """Why a ledger there would not be everybody's: git pushes elsewhere than others fetch from."""
    if len(ways.writes) > 1:
        urls = " and ".join(map(without_secrets, ways.writes))
        return f"{place} has several push URLs, {urls}, which git updates one by one"
    reads, apart = without_secrets(ways.reads), without_secrets(ways.apart)
    return f"git pushes to {apart}, and others fetch from {reads}, which is another host or path"


def name_url(url: str) -> str:
    """The hint where git pushes elsewhere; the remote's own name would lead there again."""
    return f"name the repository whose ledger everybody uses: git config lease.remote {quote(url)}"
