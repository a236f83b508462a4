"""Where a clone's ledger is: never where a branch says that someone merely checked out.

The place of a ledger is a remote, a prefix of refs and a layer. Flags, the environment and git's
config decide it, then ``.gitlease.yaml`` on the fetched default branch of the remote. A clone that
does not know that branch stays where it was. What main says is kept by the refs that it was read
from, because hooks have no time to ask git for it again.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping, Sequence
from shlex import quote
from typing import Any

from gitlease.kernel.git.files import MAIN_FILE, load_json, store_json
from gitlease.kernel.git.mainline import (
    NOT_SET_UP,
    MainFile,
    Presence,
    read_file_at,
    read_main_file,
    traces_of_main,
)
from gitlease.kernel.git.objects import Absent
from gitlease.kernel.git.repository import (
    Repository,
)
from gitlease.kernel.rules.errors import GitleaseError, shown
from gitlease.kernel.rules.frozen import dataclass, field, replace
from gitlease.kernel.rules.resources import GLOBAL_LAYER
from gitlease.kernel.settings.schema import (
    BUILT_IN,
    DEFAULT_REMOTE,
    FILE,
    KEYS,
    LEDGER,
    MAX_FILE,
    PREFIX,
    Found,
    Settings,
    refuse_inner_remote,
    settings_of,
)

REMOTE, LAYER = "lease.remote", "lease.layer"
PLACE = (REMOTE, PREFIX, LAYER)
PLACE_FILE = "place.json"
MAX_BYTES = 64 * 1024
FORMAT = 1
USUAL_STATE = "default"
"""The folder of state of the first place that a clone used, as an older gitlease called any."""

Values = Mapping[str, Any]
"""The values of ``PLACE``, by their keys."""


@dataclass(frozen=True)
class MainPlace:
    """What the default branch says of the ledger; ``name`` is what people call that branch."""

    presence: Presence
    found: Mapping[str, Found]
    name: str = "main"
    why: str = ""


@dataclass(frozen=True)
class UsedPlaces:
    """The places that this clone has used, as they stand in ``place.json``.

    ``values`` are those that main, or the work tree, gave when the ledger was last used (None: it
    never was). ``names`` has the URL and the prefix of each folder of state, and ``last`` is the
    folder of the place that the settings named last. ``moved`` are values that the ledger itself
    named as its new place. ``is_kept`` is False if there is no such file.
    """

    values: Values | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    last: str = ""
    moved: Values | None = None
    is_kept: bool = True


@dataclass(frozen=True)
class Located:
    """The settings of a clone with the place of its ledger decided; ``asked`` are those before.

    ``values`` are what main decided, or what counts in its place. ``notices`` are for people.
    ``doubt`` is why no lease may be granted there, with ``way_out``. ``target`` is where main says
    that the ledger is, if that is not where it is yet.
    """

    settings: Settings
    asked: Settings = field(repr=False)
    values: Values
    used: UsedPlaces
    notices: tuple[str, ...] = ()
    doubt: str = ""
    way_out: tuple[str, ...] = ()
    knows_main: bool = True
    target: Values | None = None


def locate(
    found: Settings,
    repository: Repository,
    folder: str,
    *,
    tells: bool = True,
    keeps: bool = True,
) -> Located:
    """Decide the place of the ledger. ``folder`` is the clone's private one.

    ``found`` has the settings with the work tree's file. Asks no remote. ``tells``: that file is
    the work tree's, so what it says in vain is reported. ``keeps``: what was read is kept for the
    next command.
    """
    weak = [name for name in (*PLACE, LEDGER) if is_decided_by_main(found.found[name])]
    places = [name for name in PLACE if name in weak]
    tree = {name: x for name in weak if (x := found.found[name]).source != BUILT_IN}
    remotes = deciding_remotes(found, repository)
    main = main_place(repository, remotes, folder, keeps=keeps)
    knows_main = main.presence is not Presence.UNKNOWN
    refuse_inner_remote(repository, main.found)
    given = main.found if knows_main else tree
    named = _values(given)
    used = _used_before(folder, found.layer, named, knows_main=knows_main, keeps=keeps)
    values, target = _place_in_use(named, used, knows_main=knows_main)
    notices = [] if target is None else _of_a_move(places, target, used, main)
    differing = [x for x in places if x in tree and tree[x].value != values[x]]
    lacking = [x for x in places if x not in tree and x in main.found]
    if tells:
        notices += [
            f"{_said(x, tree[x].value)} in {tree[x].source} is not used: it takes effect once it "
            f"is on {main.name}"
            for x in differing
        ]
        if LEDGER in tree and LEDGER in given and tree[LEDGER].value != given[LEDGER].value:
            notices.append(
                f"{_said(LEDGER, tree[LEDGER].value)} in {tree[LEDGER].source} is not used: "
                f"{main.name} records {given[LEDGER].value}"
            )
    doubt, hints = "", tuple[str, ...]()
    if used.values is None and REMOTE in places and not knows_main:
        doubt = f"where the ledger is cannot be told: {main.why}"
        hints = (_way_to_learn(main.why, remotes), NAMES[REMOTE])
    elif used.values is None and differing + lacking and LEDGER not in main.found and knows_main:
        doubt, hints = _disagreement([*differing, *lacking], tree, values, main)
    decided = {name: _decided(name, given, values, found.found[name]) for name in weak}
    return Located(
        settings_of({**found.found, **decided}),
        found,
        values,
        used,
        tuple(notices),
        doubt,
        hints,
        knows_main,
        target,
    )


def _used_before(
    folder: str, layer: str, named: Values, *, knows_main: bool, keeps: bool
) -> UsedPlaces:
    """The place that this clone has used; ``named`` is the one that it is told of now."""
    used = read_used(folder)
    if not used.is_kept and _has_older_state(folder, layer):
        used = UsedPlaces(named)
        if keeps:
            keep_used(folder, used)
    if keeps and knows_main and used.moved and used.moved == used.values == named:
        used = replace(used, moved=None)  # main says so too, and may say otherwise later
        keep_used(folder, used)
    return used


def _place_in_use(
    named: Values, used: UsedPlaces, *, knows_main: bool
) -> tuple[Values, Values | None]:
    """The place to use, and the one to which main wants the ledger moved, if that is another."""
    if used.values is None or named == used.values:
        return named, None
    # Until main has named the place to which the ledger moved, it is merely older than that.
    is_wanted = knows_main and used.moved not in (named, used.values)
    follows_move = knows_main and used.moved == named
    return named if follows_move else used.values, named if is_wanted else None


def _of_a_move(
    places: Sequence[str], target: Values, used: UsedPlaces, main: MainPlace
) -> list[str]:
    """What to say of a place that main names, and to which the ledger has not moved."""
    before = used.values or target
    what = ", ".join(_said(x, target[x]) for x in places if target[x] != before[x])
    if not what:
        return []
    return [
        f"{what} on {main.name} takes effect once the ledger is moved there: "
        "its admins, or anyone if it has none, do that with gitlease init --move"
    ]


def _decided(name: str, given: Mapping[str, Found], values: Values, otherwise: Found) -> Found:
    """A setting of the place in use: as it is given, if that is what is used."""
    if name in given and (name not in values or given[name].value == values[name]):
        return given[name]
    if name not in values:
        return otherwise
    if values[name] == KEYS[name].default:
        return Found(KEYS[name].default, BUILT_IN)
    return Found(values[name], f"{FILE} as used before")


def _way_to_learn(why: str, remotes: Sequence[str]) -> str:
    """What makes the settings of the default branch known to this clone."""
    if why.endswith(NOT_SET_UP):
        return "set up that filter in git config, as the project does"
    if why.endswith(str(Absent())):
        # A fetch alone brings nothing of a commit that is here already.
        fetch = f"git fetch --refetch --no-filter {quote(remotes[0])}"
        return f"fetch all of the default branch, whose .gitlease.yaml says so: {fetch}"
    return "fetch the default branch, whose .gitlease.yaml says so: git fetch"


NAMES: Mapping[str, str] = {
    REMOTE: "or name the remote whose ledger everybody uses: git config lease.remote NAME-OR-URL",
    PREFIX: "set the one that everybody uses: git config lease.refPrefix PREFIX",
    LAYER: "set the one that everybody uses: git config lease.layer LAYER",
}


def _disagreement(
    keys: Sequence[str], tree: Mapping[str, Found], values: Values, main: MainPlace
) -> tuple[str, tuple[str, ...]]:
    """Say in what the work tree and main differ before any ledger was used, and the way out."""
    name = keys[0]
    here = tree[name].value if name in tree else KEYS[name].default
    what = f"the work tree says {_said(name, here)}, and {main.name} {_said(name, values[name])}"
    push = f"push {FILE} to the default branch, and fetch it"
    names = [NAMES[x].removeprefix("or ") for x in dict.fromkeys(keys)]
    return f"where the ledger is cannot be told: {what}", (push, *names)


def _said(name: str, value: Any) -> str:
    return f"{name} {shown(str(KEYS[name].show(value)))}" if value is not None else f"no {name}"


def is_decided_by_main(entry: Found) -> bool:
    """Return whether a setting is decided by main: no flag, variable or git config sets it."""
    return entry.source == BUILT_IN or entry.source.startswith(FILE)


def _values(found: Mapping[str, Found]) -> Values:
    return {name: found[name].value if name in found else KEYS[name].default for name in PLACE}


def values_of(main: MainPlace) -> Values:
    """The values of a place as main has them."""
    return _values(main.found)


def deciding_remotes(found: Settings, repository: Repository) -> tuple[str, ...]:
    """The remotes whose default branch decides, the first one known; the work tree names none."""
    names, entry = repository.remote_names(), found.found[REMOTE]
    word = None if is_decided_by_main(entry) else entry.value
    usual = [x for x in (word, DEFAULT_REMOTE) if x in names]
    return tuple(dict.fromkeys(usual or (names if len(names) == 1 else ())))


# --- what main says ---------------------------------------------------------------------------


def main_place(
    repository: Repository, remotes: Sequence[str], folder: str, *, keeps: bool = True
) -> MainPlace:
    """Read what the default branch of these remotes says; by no git process if it was read before.

    A file that cannot be read, or says something wrong, is unknown.
    """
    if not remotes:
        return MainPlace(Presence.ABSENT, {})
    path, name = os.path.join(folder, MAIN_FILE), f"the default branch of {remotes[0]}"
    mark = [FORMAT, *traces_of_main(repository, remotes)]
    kept = load_json(path, MAX_BYTES)
    if isinstance(kept, dict) and kept.get("mark") == mark:
        with contextlib.suppress(LookupError, TypeError, ValueError):
            rows = {str(k): Found(v, str(source)) for k, (v, source) in kept["found"].items()}
            return MainPlace(Presence(kept["presence"]), rows, name)
    place = _parsed(read_main_file(repository, remotes, FILE, limit=MAX_FILE), name)
    if keeps and place.presence is not Presence.UNKNOWN and os.path.isdir(folder):
        said = {x: [y.value, y.source] for x, y in place.found.items()}
        with contextlib.suppress(OSError):
            store_json(path, {"mark": mark, "found": said, "presence": place.presence.value})
    return place


def kept_id(folder: str) -> str | None:
    """The id of the ledger on the default branch as it was read last; None if unknown."""
    kept = load_json(os.path.join(folder, MAIN_FILE), MAX_BYTES)
    with contextlib.suppress(LookupError, TypeError, ValueError):
        return str(kept["found"][LEDGER][0])
    return None


def main_place_at(repository: Repository, commit: str, name: str) -> MainPlace:
    """What a commit of the default branch says, which is called ``name``."""
    return _parsed(read_file_at(repository, commit, FILE, limit=MAX_FILE), name)


def _parsed(file: MainFile, name: str) -> MainPlace:
    if file.presence is not Presence.KNOWN:
        return MainPlace(file.presence, {}, name, file.why)
    try:
        from gitlease.kernel.settings.text import parse_settings

        found = parse_settings(file.data)
    except GitleaseError as error:
        return MainPlace(Presence.UNKNOWN, {}, name, f"{error.message} (on {name})")
    rows = {x: found[x] for x in (*PLACE, LEDGER) if x in found}
    return MainPlace(
        Presence.KNOWN,
        {x: replace(y, source=f"{y.source} on {name}") for x, y in rows.items()},
        name,
    )


# --- a place as a ledger names it -------------------------------------------------------------


def place_word(values: Values) -> str:
    """The values of a place on one line, as a ledger names the place to which it was moved."""
    return f"{values[REMOTE] or '-'} {values[PREFIX]} {values[LAYER]}"


def read_place(word: str) -> Values | None:
    """The values of such a line; None if it is none: anyone may have written it."""
    parts = word.rsplit(" ", 2)
    if len(parts) != len(PLACE):
        return None
    remote, prefix, layer = parts
    try:
        values = _checked({REMOTE: None if remote == "-" else remote, PREFIX: prefix, LAYER: layer})
    except GitleaseError:
        return None
    return None if values is None or KEYS[PREFIX].problem(values[PREFIX]) else values


def moved(located: Located, values: Values) -> Located:
    """The same clone with its ledger at another place, as far as main decides that."""
    asked = located.asked
    weak = {x: y for x, y in values.items() if is_decided_by_main(asked.found[x])}
    found = {x: Found(y, f"{FILE}, as the ledger was moved") for x, y in weak.items()}
    used = replace(located.used, moved=values)
    settings = settings_of({**located.settings.found, **found})
    return replace(
        located, settings=settings, values=values, used=used, notices=(), doubt="", target=None
    )


# --- what was used ----------------------------------------------------------------------------


_KEY = re.compile(f"{USUAL_STATE}|at-[0-9a-f]{{16}}")


def read_used(folder: str) -> UsedPlaces:
    """Read the places that this clone has used; nothing of a file that is damaged."""
    data = load_json(os.path.join(folder, PLACE_FILE), MAX_BYTES)
    with contextlib.suppress(LookupError, TypeError, ValueError, AttributeError):
        return UsedPlaces(
            _checked(data["values"]),
            {
                str(key): str(name)
                for key, name in data["names"].items()
                if _KEY.fullmatch(str(key))
            },
            str(data["last"]),
            _checked(data["moved"]),
        )
    return UsedPlaces(is_kept=False)


def _checked(values: Any) -> Values | None:
    if values is None:
        return None
    return {
        name: None if values[name] is None else KEYS[name].read(str(values[name]), name)
        for name in PLACE
    }


def keep_used(folder: str, used: UsedPlaces) -> None:
    """Remember the places that this clone has used, if that can be written."""
    rows = {"values": used.values, "names": used.names, "last": used.last, "moved": used.moved}
    with contextlib.suppress(OSError):
        if os.path.isdir(folder):
            store_json(os.path.join(folder, PLACE_FILE), rows)


def _has_older_state(folder: str, layer: str) -> bool:
    """Return whether an older gitlease has used the ledger, which kept no places."""
    state = os.path.join(folder, "state", USUAL_STATE)
    return any(os.path.exists(f"{state}/{x}/known.json") for x in (layer, GLOBAL_LAYER))
