"""The effective settings, each with its source: flag, environment, git config, file, built-in.

Every source is checked, also where a stronger one wins: a bad setting is never passed over. The
file of the work tree is read through a cache of its bytes: hooks have no time to parse YAML.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

from gitlease import git, settings
from gitlease.core.errors import GitleaseError, Invalid, UsageError, hint, shown
from gitlease.core.frozen import dataclass, field
from gitlease.git.files import Unreadable, load_json, read_regular, store_json
from gitlease.git.repository import TIMEOUT, ConfigEntry, Repository, Ways, default_branches
from gitlease.git.run import run_git
from gitlease.settings import schema
from gitlease.settings.schema import FILE, KEYS, Found

MAX_FILE = 256 * 1024
CACHE_FORMAT = 1
MAX_CACHE = 1024 * 1024  # bytes


def read_settings_file(toplevel: str | None, *, folder: str) -> dict[str, Found]:
    """Return the settings in the file at the work tree's root, by dotted key; {} without a file.

    The cache is in ``folder``. Raises Invalid, which names the line.
    """
    data = None if toplevel is None else _load(os.path.join(toplevel, FILE))
    if data is None:
        return {}
    # Compared whole, which costs less than a digest.
    forms = repr([(k.name, k.form.value, k.default, k.members) for k in KEYS.values()])
    purpose = [CACHE_FORMAT, forms, data.decode("latin-1")]
    cache = os.path.join(folder, "settings.json")
    kept = load_json(cache, MAX_CACHE)
    if isinstance(kept, dict) and kept.get("purpose") == purpose:
        with contextlib.suppress(LookupError, TypeError, ValueError, AttributeError):
            return {
                name: Found(value, str(source)) for name, (value, source) in kept["found"].items()
            }
    parsed = settings.parse_settings(data)
    with contextlib.suppress(OSError):
        if os.path.isdir(folder):
            rows = {name: [entry.value, entry.source] for name, entry in parsed.items()}
            store_json(cache, {"purpose": purpose, "found": rows})
    return parsed


def _load(path: str) -> bytes | None:
    try:
        data = read_regular(path, MAX_FILE)  # never waits for a pipe in its place
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise Invalid(f"{FILE} is a symbolic link, not a regular file") from None
        raise Invalid(f"{FILE} cannot be read: {error.strerror}") from None
    if data is None:
        raise Invalid(f"{FILE} is not a regular file")
    if len(data) > MAX_FILE:
        raise Invalid(f"{FILE} is larger than {MAX_FILE // 1024} KiB")
    return data


BUILT_IN = "built-in"
DEFAULT_REMOTE = "origin"


@dataclass(frozen=True, slots=True)
class Setting:
    """One effective setting as people write it (durations like ``15m``), and where it is set."""

    key: str
    value: object
    source: str


@dataclass(frozen=True, slots=True)
class Tasks:
    """How task files look. ``required`` is None where nobody decided: true when there are any.

    ``exempt`` is the label, or the field, of tasks whose claims are never called stale.
    """

    files: tuple[str, ...]
    completed: tuple[str, ...]
    required: bool | None
    fields: Mapping[str, str]
    statuses: Mapping[str, tuple[str, ...]]
    exempt: str = "no-stale"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of this command. Durations are whole seconds; ``table`` tells the sources."""

    ttl: int
    ttl_is_default: bool
    remote: str | None
    remote_explicit: bool
    layer: str
    ref_prefix: str
    tasks: Tasks
    people: Mapping[str, str]
    edges_commit: bool
    guard_mode: str
    guard_max_age: int
    guard_timeout: int
    guard_offline: str
    mcp_keep: int
    stale_after: int
    stale_grace: int | None
    stale_release: bool
    lfs_lock_ttl: int | None
    lfs_objects: str | None
    landing_release: str
    landing_by: str
    check_trailer: bool
    found: Mapping[str, Found] = field(repr=False)

    @property
    def handles(self) -> bool:
        """Return whether people who are not in ``people`` are ``@localpart`` in task files.

        Where nobody decided: when the tasks are Backlog.md's, by the folder of their patterns.
        """
        decided: bool | None = self.found["tasks.handles"].value
        return schema.usual_handles(self.tasks.files) if decided is None else decided

    @property
    def warnings(self) -> tuple[str, ...]:
        """The keys of a file of a newer schema that are not known here."""
        newer = self.found.get(schema.NEWER)
        return () if newer is None else tuple(newer.value)

    def table(self) -> tuple[Setting, ...]:
        """Every setting, in the order of the file's schema, fit for JSON and free of secrets."""
        return tuple(
            Setting(name, key.show(self.found[name].value), self.found[name].source)
            for name, key in KEYS.items()
        )


def load_settings(
    repository: Repository,
    *,
    environ: Mapping[str, str],
    flags: Mapping[str, str | None],
    committed: Mapping[str, Found] | None = None,
) -> Settings:
    """Read every source. ``flags`` may have ``ttl``, ``remote`` and ``layer``; empty is unset.

    ``committed`` replaces the settings of the work tree's file. Raises UsageError for a bad flag,
    and Invalid, which names the source, for anything else that is bad.
    """
    if committed is None:
        folder = os.path.join(repository.common_dir, "gitlease")
        committed = read_settings_file(repository.toplevel, folder=folder)
    _refuse_inner_remote(repository, committed)
    return settings_of(
        {name: Found(key.default, BUILT_IN) for name, key in KEYS.items()}
        | dict(committed)
        | _from_git(repository)
        | {
            name: Found(checked(key.read, text, key.variable), f"environment {key.variable}")
            for name, key in KEYS.items()
            if key.variable and (text := environ.get(key.variable))
        }
        | {
            name: Found(key.read(text, f"--{key.flag}"), f"flag --{key.flag}")
            for name, key in KEYS.items()
            if key.flag and (text := flags.get(key.flag))
        }
    )


def settings_of(found: dict[str, Found]) -> Settings:
    """The settings of found values, each with its source."""
    value: dict[str, Any] = {name: entry.value for name, entry in found.items()}
    # A field of Settings has the name of its key, without the section ``lease``.
    fields = {name.removeprefix("lease.").replace(".", "_"): x for name, x in value.items()}
    return Settings(
        **{name: x for name, x in fields.items() if name in Settings.__annotations__},
        ttl_is_default=found["lease.ttl"].source == BUILT_IN,
        remote_explicit=found["lease.remote"].source.startswith("flag "),
        tasks=Tasks(
            files=tuple(value["tasks.files"]),
            completed=tuple(value["tasks.completed"]),
            required=value["tasks.required"],
            fields=value["tasks.fields"],
            statuses={name: tuple(words) for name, words in value["tasks.statuses"].items()},
            exempt=value["stale.exempt"],
        ),
        found=found,
    )


def checked(read: schema.Reader, text: str, what: str) -> Any:
    """A value that no flag has given. Raises Invalid where its reader raises UsageError."""
    try:
        return read(text, what)
    except UsageError as error:
        raise Invalid(error.message, hints=error.hints) from None


def _from_git(repository: Repository) -> dict[str, Found]:
    strongest: dict[str, ConfigEntry] = {}
    # A mistyped key would leave its setting at the default without a word.
    for entry in repository.config.section("lease"):
        if entry.key not in schema.GIT_KEYS and entry.key != schema.SESSION_KEY:
            known = [schema.SESSION_KEY, *(key.git for key in schema.GIT_KEYS.values() if key.git)]
            raise Invalid(
                f"{git_source(entry, shown(entry.key))} is not a known key",
                hints=(schema.near(entry.key, known) or f"known keys: {', '.join(known)}",),
            )
        strongest[entry.key] = entry
    values = {}
    for name, entry in strongest.items():
        key = schema.GIT_KEYS.get(name)
        if key is None or not entry.value:
            continue
        source = git_source(entry, key.git)
        values[key.name] = Found(checked(key.read, entry.value, f"{source}:"), source)
    return values


def git_source(entry: ConfigEntry, name: str | None = None) -> str:
    """How the source of a value of git config is called: ``git config (local: …) lease.ttl``."""
    return f"git config ({entry.place}) {name or entry.key}"


def _refuse_inner_remote(repository: Repository, in_file: Mapping[str, Found]) -> None:
    """Refuse a committed setting that leads to a folder of this same clone."""
    # Who commits a bare repository and names it here would have its hooks run by everyone's claims.
    remote = in_file.get("lease.remote")
    if remote is None or repository.toplevel is None or remote.value in repository.remote_names():
        return
    path = remote.value
    if path.lower().startswith("file://"):
        from urllib.parse import unquote

        path = unquote(path[len("file://") :])
    elif "://" in path or ":" in path.partition("/")[0] or not looks_like_url(path):
        return
    # Links may lead back in, too.
    target = os.path.realpath(os.path.join(repository.toplevel, path))
    for folder in (repository.toplevel, repository.common_dir):
        inner = os.path.join(os.path.realpath(folder), "")
        if (target + os.sep).startswith(inner):
            raise Invalid(
                f"{remote.source}: lease.remote {shown(remote.value)} is inside this repository",
                hints=("to use a remote of your own: git config lease.remote PATH",),
            )


@dataclass(frozen=True, slots=True)
class Location:
    """The place of the ledger: a remote (its ``name``, when it has one) or, without ``url``, here.

    It is read and written at ``url``. ``ways`` has how git itself would reach the remote.
    """

    name: str | None
    url: str | None
    explicit: bool
    ways: Ways | None = field(default=None, compare=False, repr=False)

    @property
    def fetched_elsewhere(self) -> bool:
        """Return whether others read another URL than the one that is written to."""
        ways = self.ways
        return ways is not None and len(ways.writes) == 1 and ways.writes[0] != ways.reads


def resolve_remote(settings: Settings, repository: Repository) -> Location:
    """The remote of the ledgers: ``lease.remote``, else ``origin``, else the only one, else none.

    Raises UsageError (flag) or Invalid for a name that is no remote.
    """
    names = repository.remote_names()
    word = settings.remote
    if word is None:
        word = DEFAULT_REMOTE if DEFAULT_REMOTE in names or len(names) != 1 else names[0]
        if word not in names:
            if names:
                # Taking the local ledger instead would let two clones of one remote both win.
                raise Invalid(
                    f"cannot tell which remote has the ledger: none is called {DEFAULT_REMOTE} "
                    f"among {', '.join(map(shown, names))}",
                    hints=(hint("set it: {}", "config", key="lease.remote", value="NAME"),),
                )
            return Location(None, None, explicit=False)
    if word in names:
        url = repository.remote_url(word) or ""
        checked(schema.read_remote, url, f"the URL of remote {shown(word)}")
    elif not looks_like_url(word):
        kind = UsageError if settings.remote_explicit else Invalid
        raise _no_such_remote(word, settings.found["lease.remote"].source, names, kind)
    ways = repository.ways_to(word)
    name = word if word in names else None
    return Location(name, ways.ledger, settings.remote_explicit, ways)


def remotes_of_work(location: Location, repository: Repository) -> tuple[str, ...]:
    """The remotes whose branches people work on: the ledger may be elsewhere, and origin a fork."""
    names = repository.remote_names()
    usual = [x for x in (location.name, DEFAULT_REMOTE) if x is not None and x in names]
    return tuple(dict.fromkeys(usual or (names if len(names) == 1 else ())))


def looks_like_url(word: str) -> bool:
    """Return whether a word that names no remote is meant as a URL or a path."""
    return "/" in word or ":" in word or word.startswith(".")


def _no_such_remote(
    word: str, source: str, names: tuple[str, ...], kind: type[UsageError] | type[Invalid]
) -> UsageError | Invalid:
    known = f"known remotes: {', '.join(names)}" if names else "this clone has none: git remote add"
    hint = schema.near(word, names) or known
    return kind(f"{source}: there is no remote {shown(word)}", hints=(hint,))


def set_config(repository: Repository, key: str, value: str) -> str:
    """Set a key in the clone's git config, or unset it with an empty value; git's name for it.

    ``key`` is as in the file (``guard.max_age``) or as in git config (``lease.guardMaxAge``).
    Raises UsageError for a bad value and for a key that only the file may have.
    """
    setting = schema.GIT_KEYS.get(key.lower()) or KEYS.get(key.lower())
    if key.lower() == schema.SESSION_KEY:
        name = schema.SESSION_KEY
    elif setting is None:
        hint = schema.near(
            key, [schema.SESSION_KEY, *KEYS, *(k.git for k in schema.GIT_KEYS.values() if k.git)]
        )
        raise UsageError(f"{shown(key)} is not a setting", hints=(hint,) if hint else ())
    elif setting.git is None:
        hint = f"edit {FILE} at the root of the work tree"
        if setting.form is schema.Form.WORD and value.isalnum():
            setting.read(value, key)  # says what a value must be
            section, _, member = setting.name.partition(".")
            hint += f": {section}: {{{member}: {value}}}"
        raise UsageError(
            f"{setting.name} applies to everyone who works here, so it is set in {FILE}",
            hints=(hint,),
        )
    else:
        name = setting.git
    if value:
        word = (schema.read_session if setting is None else setting.read)(value, key)
        if name == "lease.remote" and not looks_like_url(word):
            names = repository.remote_names()
            if word not in names:
                raise _no_such_remote(word, key, names, UsageError)
        words = ["--replace-all", "--", name, value]
    else:
        words = ["--unset-all", "--", name]
    git_dir = repository.common_dir
    command = [f"--git-dir={git_dir}", "config", "--local", *words]
    done = run_git(command, cwd=git_dir, timeout=TIMEOUT)
    if done.code not in ((0,) if value else (0, 5)):  # 5: there was nothing to unset
        rows = done.err.strip().splitlines()
        why = (
            rows[-1].removeprefix("fatal: ").removeprefix("error: ") if rows else "no reason given"
        )
        raise Invalid(f"git did not write {name}: {why}")
    return name


# --- the id of the repository's ledger, which ``init`` records ------------------------------------
# What counts is what is committed: of the fetched default branch, else of HEAD.

MAX_OUT = 8 * MAX_FILE
_ID = rb"[0-9A-Za-z-]{1,64}"
# As gitlease writes it, which spares the import of a parser.
_OWN = rb"(?m)^lease:(?: \{|[ \t]*\n +)ledger: (" + _ID + rb")(?:$|[,}])"
# Where the line of an id may be, in a file that cannot be parsed.
_LINE = rb"(?m)^[^#\n]*?\bledger['\"]?[ \t]*:[ \t]*['\"]?(" + _ID + rb")\b"


def recorded_id(repository: Repository, remotes: Iterable[str]) -> str | None:
    """The committed id, by one git process; None where none is, or git cannot tell."""
    objects = git.objects_of(repository)
    for place in (*default_branches(repository, remotes), "HEAD"):
        with contextlib.suppress(Unreadable):
            id = _id_in(objects.named(f"{place}:{FILE}", git.BLOB, MAX_OUT))
            if id is not None:
                return id
    return None


def _id_in(data: bytes) -> str | None:
    if match := re.search(_OWN, data):
        return match[1].decode()
    # A backslash may be an escape that spells the word otherwise.
    if len(data) > MAX_FILE or not (b"ledger" in data or b"\\" in data):
        return None
    try:
        setting = settings.parse_settings(data).get(schema.LEDGER)
    except GitleaseError:  # what it says of other settings must not hide the id
        match = re.search(_LINE, data)
        return match[1].decode() if match else None
    return None if setting is None else str(setting.value)
