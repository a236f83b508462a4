"""Every setting there is: its name, its form, its default, and where else it may be set.

And the effective ones, each with its source: flag, environment, git config, file, built-in. Every
source is checked, also where a stronger one wins: a bad setting is never passed over. The file of
the work tree is read through a cache of its bytes: hooks have no time to parse YAML.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Generic, TypeVar, overload

from gitlease.kernel.git.files import Unreadable, load_json, read_with_status, store_json
from gitlease.kernel.git.mainline import Presence, read_main_file
from gitlease.kernel.git.objects import BLOB, objects_of
from gitlease.kernel.git.repository import TIMEOUT, ConfigEntry, Repository, Ways, ask, listed_refs
from gitlease.kernel.git.run import run_git
from gitlease.kernel.rules.errors import GitleaseError, Invalid, UsageError, check_text, hint, shown
from gitlease.kernel.rules.frozen import dataclass, field
from gitlease.kernel.rules.instant import format_duration, parse_duration
from gitlease.kernel.rules.resources import (
    GLOBAL_LAYER,
    fold,
    parse_layer,
    path_resource,
    resolve_path,
)

FILE = ".gitlease.yaml"
LEDGER = "lease.ledger"
PREFIX = "lease.ref_prefix"
MAX_SESSION = 128
NEWER = "schema"
"""Set if a file's schema is newer than ours; its value is the warnings about ignored keys."""
BACKLOG_FOLDERS = frozenset({"backlog", ".backlog"})

T = TypeVar("T")
Reader = Callable[[str, str], T]
"""Reads a text; the second argument names the setting in the UsageError it raises."""


@dataclass(frozen=True)
class Found:
    """A value that was set, read and checked, and where."""

    value: Any
    source: str


class Form(Enum):
    """The form of a setting in the file."""

    WORD = "a single value"
    LIST = "a list"
    MAP = "a mapping"
    LISTS = "a mapping of lists"


@dataclass(frozen=True)
class Key(Generic[T]):
    """One setting. ``members`` are the keys that a mapping may have (none given: any).

    ``git`` is its name in git config, ``flag`` on the command line and in the environment. As an
    attribute of ``Settings`` it is the effective value, of the type that its reader returns.
    """

    name: str
    read: Reader[Any]
    default: T
    form: Form = Form.WORD
    members: tuple[str, ...] = ()
    git: str | None = None
    flag: str | None = None

    @overload
    def __get__(self, settings: None, owner: type[Settings]) -> Key[T]: ...
    @overload
    def __get__(self, settings: Settings, owner: type[Settings]) -> T: ...

    def __get__(self, settings: Settings | None, owner: type[Settings]) -> Key[T] | T:
        return self if settings is None else self.of(settings.found)

    def of(self, found: Mapping[str, Found]) -> T:
        """Its value among found ones."""
        value: T = found[self.name].value
        return value

    @property
    def variable(self) -> str | None:
        return f"GITLEASE_{self.flag.upper()}" if self.flag else None

    def show(self, value: Any) -> Any:
        """The value as people write it, and without secrets."""
        if self.read is read_duration and value is not None:
            return format_duration(value)
        return without_password(value) if self.read is read_remote else value

    def problem(self, value: Any) -> str | None:
        """The fault of a value in the file as a whole."""
        if self.members == FIELDS:
            return _clash_of_fields(value)
        if self.read is read_ref_prefix:
            return _hides_work(value)
        return _clash_of_words(value) if self.form is Form.LISTS else None


def word(
    name: str, read: Reader[T], default: T, *, git: str | None = None, flag: str | None = None
) -> Key[T]:
    """A setting of a single value."""
    return Key(name, read, default, git=git, flag=flag)


def listed(name: str, read: Reader[T], default: Sequence[T]) -> Key[Sequence[T]]:
    """A setting that is a list."""
    return Key(name, read, default, Form.LIST)


def mapping(
    name: str, read: Reader[T], default: Mapping[str, T], members: tuple[str, ...] = ()
) -> Key[Mapping[str, T]]:
    """A setting that has keys of its own."""
    return Key(name, read, default, Form.MAP, members)


def lists(
    name: str, read: Reader[T], default: Mapping[str, Sequence[T]]
) -> Key[Mapping[str, Sequence[T]]]:
    """A setting with a list for each of some keys."""
    return Key(name, read, default, Form.LISTS, tuple(default))


def near(word: str, known: Iterable[str]) -> str | None:
    """A question that names the known key most like ``word``, in whatever section; None if none.

    Only what follows the last dot is compared: the sections would make all of them alike.
    """
    from difflib import get_close_matches

    tails = {name.rpartition(".")[2].lower(): name for name in known}
    matches = get_close_matches(word.lower().rpartition(".")[2][:100], tails, n=1)
    return f"did you mean {tails[matches[0]]}?" if matches else None


def read_text(text: str, what: str) -> str:
    """One to 254 printable characters."""
    return check_text(text, what=what)


def read_email(text: str, what: str) -> str:
    """An email address."""
    if not re.fullmatch(r"[^\s@<>]+@[^\s@<>]+", check_text(text, what=what)):
        raise UsageError(f"{what} is not an email address: {shown(text)}")
    return text


def read_session(text: str, what: str) -> str:
    """A session: one to 128 printable characters, with no blank around them."""
    if check_text(text, what=what, limit=MAX_SESSION) != text.strip():
        raise UsageError(f"{what} begins or ends with a blank")
    return text


def read_duration(text: str, what: str) -> int:
    """Seconds."""
    return parse_duration(text, what=what)


def read_layer(text: str, what: str) -> str:
    """The name of a layer, in lower case."""
    try:
        return parse_layer(text)
    except UsageError as error:
        raise UsageError(f"{what} {error.message.removeprefix('layer ')}") from None


TRUE = frozenset({"true", "yes", "on"})
FALSE = frozenset({"false", "no", "off"})


def read_boolean(text: str, what: str) -> bool:
    """Yes or no, in the words that YAML and git have for it."""
    word = text.lower()
    if word not in TRUE | FALSE:
        raise UsageError(f"{what} must be true or false, not {shown(text)}")
    return word in TRUE


def choice(*options: str) -> Reader[str]:
    """A reader of one of a few words."""

    def read(text: str, what: str) -> str:
        if text not in options:
            known = f"{', '.join(options[:-1])} or {options[-1]}"
            raise UsageError(f"{what} is {known}, not {shown(text)}")
        return text

    return read


def read_remote(text: str, what: str) -> str:
    """The name of a remote, or a URL or path that is safe to hand to git."""
    if any(ord(character) < 32 or ord(character) == 127 for character in text):
        raise UsageError(f"{what} has control characters")
    if not text.strip():
        raise UsageError(f"{what} must not be empty")
    if text.startswith("-"):
        raise UsageError(f"{what} {shown(text)} begins with -")
    if text.lower().startswith("ext::"):
        raise UsageError(f"{what} {shown(text)} would run a command")
    return text


def read_http_url(text: str, what: str) -> str:
    """The address of a server, which begins with http:// or https:// and has no password."""
    if not re.fullmatch(r"https?://[A-Za-z0-9.\[\]:-]+(/[!\"$->@-~]*)?", text):
        raise UsageError(
            f"{what} must be an address such as https://host/repo/info/lfs, without user and query"
        )
    return text


def without_password(text: str | None) -> str | None:
    """A URL without the secret in it."""
    return text and re.sub(r"\?.*", "?***", re.sub(r"(://[^/@:]*):.*@", r"\1:***@", text))


def read_ledger_id(text: str, what: str) -> str:
    """The id of a ledger, as ``init`` records it."""
    if not re.fullmatch(r"[0-9A-Za-z-]{1,64}", text):
        raise UsageError(
            f"{what} {shown(text)} is not the id of a ledger",
            hints=("the status shows it, and init writes it",),
        )
    return text


# The rules of git-check-ref-format for each part.
_PART = r"(?!\.)(?:(?!\.\.|@\{)[^\x00-\x20\x7f~^:?*\[\\/])+(?<!\.)(?<!\.lock)"
_REF_PREFIX = rf"refs(?:/{_PART})+"
_LEDGERS = r"gitlease|(?<![a-z])leases?(?![a-z])"  # but not releases
_SHARED = frozenset({"refs/heads", "refs/tags", "refs/remotes", "refs/notes"})


def read_ref_prefix(text: str, what: str) -> str:
    """The part before ``/<layer>`` in the ref of a ledger."""
    if not re.fullmatch(_REF_PREFIX, text) or len(text) > 200 or not text.isprintable():
        raise UsageError(
            f"{what} {shown(text)} is not a ref prefix",
            hints=("write it like refs/gitlease or refs/heads/gitlease",),
        )
    if text in _SHARED:
        raise UsageError(
            f"{what} {text} would mix ledgers with other refs",
            hints=(f"write it like {text}/gitlease",),
        )
    return text


def _hides_work(prefix: str) -> str | None:
    # Whoever can commit the file could call people's branches a ledger, which no guard looks at.
    shared = next((x for x in _SHARED if prefix.lower().startswith(f"{x}/")), None)
    if shared is None or re.search(_LEDGERS, prefix.rpartition("/")[2].lower()):
        return None
    return (
        f"{prefix} may be where people work: below {shared} the last part of its name must have "
        f"gitlease, lease or leases in it, as in {shared}/gitlease; git config may set any other"
    )


MAX_COMMIT_PREFIX = 40  # so that a subject stays readable


def read_commit_prefix(text: str, what: str) -> str:
    """What the subjects of gitlease's own commits begin with, without a blank behind it."""
    prefix = check_text(text, what=what, limit=MAX_COMMIT_PREFIX).strip()
    if prefix.startswith("#"):
        raise UsageError(f"{what} begins with #, which git reads as a comment")
    return prefix


def read_pattern(text: str, what: str) -> str:
    """A pattern of files, relative to the root."""
    try:
        path_resource(resolve_path(check_text(text, what="a pattern", limit=512)))
    except UsageError as error:
        raise UsageError(f"{what}: {error.message}") from None
    return text


def usual_handles(files: Iterable[str]) -> bool:
    """The default of ``tasks.handles``: whether a pattern lies in Backlog.md's folder.

    That is the one it has unless it is told another.
    """
    first = (fold(resolve_path(text)).lstrip("/").partition("/")[0] for text in files)
    return not BACKLOG_FOLDERS.isdisjoint(first)


def _clash_of_words(statuses: Mapping[str, list[str]]) -> str | None:
    seen: dict[str, str] = {}
    for status, words in statuses.items():
        if not words:
            return f"needs at least one word for {status}"
        for word in words:
            if seen.setdefault(word.casefold(), status) != status:
                return f"has {shown(word)} both for {seen[word.casefold()]} and for {status}"
    return None


def _clash_of_fields(fields: Mapping[str, str]) -> str | None:
    for written in ("status", "assigned"):  # the others are only read, and may share a field
        for role, name in fields.items():
            if role != written and name == fields[written]:
                return f"has {shown(name)} both for {written} and for {role}"
    return None


FILE_STEM = "{file: stem}"
"""The name of the field of ids where a file's name without its extension is the id."""
FIELDS = ("id", "title", "status", "assigned", "priority", "depends_on", "paths", "created")
STATUSES = {
    "todo": ["todo", "ready", "open"],
    "in_progress": ["in_progress", "doing"],
    "done": ["done", "closed"],
}

SINGLE, LIST = "single", "list"  # forms of the assigned field

SESSION_KEY = "lease.session"  # in git config only: it belongs to a person, not to a project


# --- the effective settings -----------------------------------------------------------------------

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
    from gitlease.kernel.settings.text import parse_settings

    parsed = parse_settings(data)
    with contextlib.suppress(OSError):
        if os.path.isdir(folder):
            rows = {name: [entry.value, entry.source] for name, entry in parsed.items()}
            store_json(cache, {"purpose": purpose, "found": rows})
    return parsed


def _load(path: str) -> bytes | None:
    try:
        read = read_with_status(path, MAX_FILE)  # never waits for a pipe in its place
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise Invalid(f"{FILE} is a symbolic link, not a regular file") from None
        raise Invalid(f"{FILE} cannot be read: {error.strerror}") from None
    if read is None:
        raise Invalid(f"{FILE} is not a regular file")
    data, _ = read
    if len(data) > MAX_FILE:
        raise Invalid(f"{FILE} is larger than {MAX_FILE // 1024} KiB")
    return data


BUILT_IN = "built-in"
DEFAULT_REMOTE = "origin"


@dataclass(frozen=True)
class Setting:
    """One effective setting as people write it (durations like ``15m``), and where it is set."""

    key: str
    value: object
    source: str


@dataclass(frozen=True)
class Tasks:
    """How task files look. ``required`` is None where nobody decided: true when there are any.

    ``exempt`` is the label, or the field, of tasks whose claims are never called stale.
    ``assigned_form``: in which form a first name is written; None: as the field itself shows.
    ``commit_prefix`` begins the subjects of commits of these files that gitlease makes.
    """

    files: tuple[str, ...]
    completed: tuple[str, ...]
    required: bool | None
    fields: Mapping[str, str]
    statuses: Mapping[str, tuple[str, ...]]
    exempt: str = "no-stale"
    assigned_form: str | None = None
    commit_prefix: str = ""

    def subject(self, text: str) -> str:
        """The subject of a commit that gitlease makes on a branch of work."""
        return f"{self.commit_prefix} {text}" if self.commit_prefix else text


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of this command. Durations are whole seconds; ``table`` tells the sources.

    Every setting is declared here, once, in the order of the file's schema.
    """

    tasks: Tasks
    found: Mapping[str, Found] = field(repr=False)

    ttl = word("lease.ttl", read_duration, 900, git="lease.ttl", flag="ttl")
    remote = word("lease.remote", read_remote, None, git="lease.remote", flag="remote")
    layer = word("lease.layer", read_layer, GLOBAL_LAYER, git="lease.layer", flag="layer")
    ledger = word(LEDGER, read_ledger_id, None)
    ref_prefix = word(PREFIX, read_ref_prefix, "refs/gitlease", git="lease.refPrefix")
    commit_prefix = word("lease.commit_prefix", read_commit_prefix, None, git="lease.commitPrefix")
    tasks_files = listed("tasks.files", read_pattern, ["tasks/**/*.md", "tasks/**/*.yaml"])
    tasks_completed = listed("tasks.completed", read_pattern, [])
    tasks_required = word("tasks.required", read_boolean, None)
    tasks_handles = word("tasks.handles", read_boolean, None)
    tasks_assigned_form = word("tasks.assigned_form", choice(SINGLE, LIST), None)
    tasks_fields = mapping("tasks.fields", read_text, {name: name for name in FIELDS}, FIELDS)
    tasks_statuses = lists("tasks.statuses", read_text, STATUSES)
    people = mapping("people", read_text, {})
    bots = listed("bots", read_email, [])
    edges_commit = word("edges.commit", read_boolean, False)
    guard_mode = word("guard.mode", choice("block", "warn", "off"), "block", git="lease.guardMode")
    guard_max_age = word("guard.max_age", read_duration, 60, git="lease.guardMaxAge")
    guard_timeout = word("guard.timeout", read_duration, 5)
    guard_offline = word(
        "guard.offline", choice("block", "warn", "off"), "warn", git="lease.guardOffline"
    )
    mcp_keep = word("mcp.keep", read_duration, 3_600)
    stale_after = word("stale.after", read_duration, 7 * 86_400)
    stale_grace = word("stale.grace", read_duration, None)
    stale_release = word("stale.release", read_boolean, False)
    stale_exempt = word("stale.exempt", read_text, "no-stale")
    lfs_lock_ttl = word("lfs.lock_ttl", read_duration, None)
    lfs_objects = word("lfs.objects", read_http_url, None)
    landing_release = word("landing.release", choice("done", "merged", "never"), "done")
    landing_by = word("landing.by", choice("rebase", "merge"), "rebase")
    check_trailer = word("check.trailer", read_boolean, False)

    @property
    def ttl_is_default(self) -> bool:
        """Return whether nobody chose how long a lease lasts."""
        return self.found["lease.ttl"].source == BUILT_IN

    @property
    def remote_explicit(self) -> bool:
        """Return whether the remote was named in this call."""
        return self.found["lease.remote"].source.startswith("flag ")

    @property
    def handles(self) -> bool:
        """Return whether people who are not in ``people`` are ``@localpart`` in task files.

        Where nobody decided: when the tasks are Backlog.md's, by the folder of their patterns.
        """
        decided = self.tasks_handles
        return usual_handles(self.tasks.files) if decided is None else decided

    @property
    def warnings(self) -> tuple[str, ...]:
        """The keys of a file of a newer schema that are not known here."""
        newer = self.found.get(NEWER)
        return () if newer is None else tuple(newer.value)

    def table(self) -> tuple[Setting, ...]:
        """Every setting, in the order of the file's schema, fit for JSON and free of secrets."""
        return tuple(
            Setting(name, key.show(self.found[name].value), self.found[name].source)
            for name, key in KEYS.items()
        )


KEYS: Mapping[str, Key[Any]] = {x.name: x for x in vars(Settings).values() if isinstance(x, Key)}
SECTIONS = tuple(dict.fromkeys(name.partition(".")[0] for name in KEYS if "." in name))
GIT_KEYS: Mapping[str, Key[Any]] = {key.git.lower(): key for key in KEYS.values() if key.git}


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
    refuse_inner_remote(repository, committed)
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
    statuses = Settings.tasks_statuses.of(found)
    tasks = Tasks(
        files=tuple(Settings.tasks_files.of(found)),
        completed=tuple(Settings.tasks_completed.of(found)),
        required=Settings.tasks_required.of(found),
        fields=Settings.tasks_fields.of(found),
        statuses={name: tuple(words) for name, words in statuses.items()},
        exempt=Settings.stale_exempt.of(found),
        assigned_form=Settings.tasks_assigned_form.of(found),
        commit_prefix=Settings.commit_prefix.of(found) or "",
    )
    return Settings(found=found, tasks=tasks)


def checked(read: Reader[T], text: str, what: str) -> T:
    """A value that no flag has given. Raises Invalid where its reader raises UsageError."""
    try:
        return read(text, what)
    except UsageError as error:
        raise Invalid(error.message, hints=error.hints) from None


def _from_git(repository: Repository) -> dict[str, Found]:
    strongest: dict[str, ConfigEntry] = {}
    # A mistyped key would leave its setting at the default without a word.
    for entry in repository.config.section("lease"):
        if entry.key not in GIT_KEYS and entry.key != SESSION_KEY:
            known = [SESSION_KEY, *(key.git for key in GIT_KEYS.values() if key.git)]
            raise Invalid(
                f"{git_source(entry, shown(entry.key))} is not a known key",
                hints=(near(entry.key, known) or f"known keys: {', '.join(known)}",),
            )
        strongest[entry.key] = entry
    values = {}
    for name, entry in strongest.items():
        key = GIT_KEYS.get(name)
        if key is None or not entry.value:
            continue
        source = git_source(entry, key.git)
        values[key.name] = Found(checked(key.read, entry.value, f"{source}:"), source)
    return values


def git_source(entry: ConfigEntry, name: str | None = None) -> str:
    """How the source of a value of git config is called: ``git config (local: …) lease.ttl``."""
    place = f"{entry.scope}: {entry.origin}" if entry.origin else "command line"
    return f"git config ({place}) {name or entry.key}"


def refuse_inner_remote(repository: Repository, in_file: Mapping[str, Found]) -> None:
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


@dataclass(frozen=True)
class Location:
    """The place of the ledger: a remote (its ``name``, when it has one) or, without ``url``, here.

    It is read and written at ``url``. ``ways`` has how git itself would reach the remote.
    """

    name: str | None
    url: str | None
    explicit: bool
    ways: Ways | None = field(default=None, compare=False, repr=False)


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
        checked(read_remote, url, f"the URL of remote {shown(word)}")
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
    hint = near(word, names) or known
    return kind(f"{source}: there is no remote {shown(word)}", hints=(hint,))


def set_config(repository: Repository, key: str, value: str) -> str:
    """Set a key in the clone's git config, or unset it with an empty value; git's name for it.

    ``key`` is as in the file (``guard.max_age``) or as in git config (``lease.guardMaxAge``).
    Raises UsageError for a bad value and for a key that only the file may have.
    """
    setting = GIT_KEYS.get(key.lower()) or KEYS.get(key.lower())
    if key.lower() == SESSION_KEY:
        name = SESSION_KEY
    elif setting is None:
        hint = near(key, [SESSION_KEY, *KEYS, *(k.git for k in GIT_KEYS.values() if k.git)])
        raise UsageError(f"{shown(key)} is not a setting", hints=(hint,) if hint else ())
    elif setting.git is None:
        hint = f"edit {FILE} at the root of the work tree"
        if setting.form is Form.WORD and value.isalnum():
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
        word = (read_session if setting is None else setting.read)(value, key)
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
MAX_CHANGES = 50  # commits in which an id is looked for that is not recorded any more
_ID = rb"[0-9A-Za-z-]{1,64}"
# As gitlease writes it, which spares the import of a parser.
_OWN = rb"(?m)^lease:(?: \{|[ \t]*\n +)ledger: (" + _ID + rb")(?:$|[,}])"
# Where the line of an id may be, in a file that cannot be parsed.
_LINE = rb"(?m)^[^#\n]*?\bledger['\"]?[ \t]*:[ \t]*['\"]?(" + _ID + rb")\b"


def recorded_id(repository: Repository, remotes: Sequence[str]) -> str | None:
    """The committed id; None if none is. Raises Unreadable if that cannot be known here."""
    objects, unknown = objects_of(repository), ""
    main = read_main_file(repository, remotes, FILE, limit=MAX_FILE, objects=objects)
    if main.presence is Presence.KNOWN:
        try:
            if (id := _id_in(main.data)) is not None:
                return id
        except Unreadable as why:
            unknown = f"{FILE} on the default branch {why}"
    elif main.presence is Presence.UNKNOWN:
        unknown = main.why
    # A branch that has the id of the ledger is as good: whoever made it had that from main.
    try:
        id = _id_in(objects.named(f"HEAD:{FILE}", BLOB, MAX_FILE))
    except Unreadable:
        id = None
    if id is None and unknown:
        raise Unreadable(unknown)
    return id


def branch_id(repository: Repository) -> str | None:
    """The id on any branch of this clone, or on any that was fetched; None if none has one."""
    objects, files = objects_of(repository), set[bytes]()
    for _, ref, symref in listed_refs(repository, ["refs/heads/", "refs/remotes/"]):
        if symref:
            continue
        with contextlib.suppress(Unreadable):
            data = objects.named(f"{ref}:{FILE}", BLOB, MAX_FILE)
            if data not in files and (id := _id_in(data)) is not None:
                return id
            files.add(data)
    return None


def former_id(repository: Repository) -> str | None:
    """An id that commits of this clone recorded and removed, or whose branch was deleted."""
    command = ["rev-list", f"-n{MAX_CHANGES}", "--full-history", "--all", "--reflog", "--", FILE]
    done, objects = ask(repository, *command), objects_of(repository)
    for commit in os.fsdecode(done.out).split() if done.code == 0 else ():
        for name in (commit, f"{commit}^"):
            with contextlib.suppress(Unreadable):
                if (id := _id_in(objects.named(f"{name}:{FILE}", BLOB, MAX_FILE))) is not None:
                    return id
    return None


def _id_in(data: bytes) -> str | None:
    if match := re.search(_OWN, data):
        return match[1].decode()
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        data = data.decode("utf-16", "replace").encode()
    # A backslash may be an escape that spells the word otherwise.
    if not (b"ledger" in data or b"\\" in data):
        try:
            data.decode()
        except UnicodeDecodeError:
            raise Unreadable("cannot be read: it is not UTF-8") from None
        return None
    try:
        from gitlease.kernel.settings.text import parse_settings

        setting = parse_settings(data).get(LEDGER)
    except GitleaseError as error:  # what it says of other settings must not hide the id
        match = re.search(_LINE, data)
        if match is None and b"\\" in data:
            raise Unreadable(f"cannot be read: {error.message}") from None
        return match[1].decode() if match else None
    return None if setting is None else str(setting.value)
