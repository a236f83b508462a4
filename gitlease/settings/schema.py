"""Every setting there is: its name, its form, its default, and where else it may be set."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any

from gitlease.core.errors import UsageError, check_text, shown
from gitlease.core.frozen import dataclass
from gitlease.core.instant import format_duration, parse_duration
from gitlease.core.resources import GLOBAL_LAYER, fold, parse_layer, path_resource, resolve_path

FILE = ".gitlease.yaml"
LEDGER = "lease.ledger"
PREFIX = "lease.ref_prefix"
MAX_SESSION = 128
NEWER = "schema"
"""Set if a file's schema is newer than ours; its value is the warnings about ignored keys."""
BACKLOG_FOLDERS = frozenset({"backlog", ".backlog"})

Reader = Callable[[str, str], Any]
"""Reads a text; the second argument names the setting in the UsageError it raises."""


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class Key:
    """One setting. ``members`` are the keys that a mapping may have (none given: any).

    ``git`` is its name in git config, ``flag`` on the command line and in the environment.
    """

    name: str
    read: Reader
    default: Any
    form: Form = Form.WORD
    members: tuple[str, ...] = ()
    git: str | None = None
    flag: str | None = None

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


def choice(*options: str) -> Reader:
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

_ALL = (
    Key("lease.ttl", read_duration, 900, git="lease.ttl", flag="ttl"),
    Key("lease.remote", read_remote, None, git="lease.remote", flag="remote"),
    Key("lease.layer", read_layer, GLOBAL_LAYER, git="lease.layer", flag="layer"),
    Key(LEDGER, read_ledger_id, None),
    Key(PREFIX, read_ref_prefix, "refs/gitlease", git="lease.refPrefix"),
    Key("tasks.files", read_pattern, ["tasks/**/*.md", "tasks/**/*.yaml"], Form.LIST),
    Key("tasks.completed", read_pattern, [], Form.LIST),
    Key("tasks.required", read_boolean, None),
    Key("tasks.handles", read_boolean, None),
    Key("tasks.fields", read_text, {name: name for name in FIELDS}, Form.MAP, FIELDS),
    Key("tasks.statuses", read_text, STATUSES, Form.LISTS, tuple(STATUSES)),
    Key("people", read_text, {}, Form.MAP),
    Key("edges.commit", read_boolean, False),
    Key("guard.mode", choice("block", "warn", "off"), "block", git="lease.guardMode"),
    Key("guard.max_age", read_duration, 60, git="lease.guardMaxAge"),
    Key("guard.timeout", read_duration, 5),
    Key("guard.offline", choice("block", "warn", "off"), "warn", git="lease.guardOffline"),
    Key("mcp.keep", read_duration, 3_600),
    Key("stale.after", read_duration, 7 * 86_400),
    Key("stale.grace", read_duration, None),
    Key("stale.release", read_boolean, False),
    Key("stale.exempt", read_text, "no-stale"),
    Key("lfs.lock_ttl", read_duration, None),
    Key("lfs.objects", read_http_url, None),
    Key("landing.release", choice("done", "merged", "never"), "done"),
    Key("landing.by", choice("rebase", "merge"), "rebase"),
    Key("check.trailer", read_boolean, False),
)

KEYS: Mapping[str, Key] = {key.name: key for key in _ALL}
SECTIONS = tuple(dict.fromkeys(key.name.partition(".")[0] for key in _ALL if "." in key.name))
SESSION_KEY = "lease.session"  # in git config only: it belongs to a person, not to a project
GIT_KEYS: Mapping[str, Key] = {key.git.lower(): key for key in _ALL if key.git}
