"""The text of ``.gitlease.yaml``: what it says, and a new one that fits the project.

Every value is checked by the schema, and refused with its line. It is a text until the schema says
otherwise: ``no`` is not a boolean by itself, ``1:30`` is no number. In a file of a newer schema,
keys that are not known here are passed over with a warning, so that a team can update one by one.
The file of a commit is read, too, since the rules that judge commits must not arrive with them.
"""

from __future__ import annotations

import contextlib
import json
import os
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from gitlease.kernel.git.files import Unreadable, read_small, replace_file
from gitlease.kernel.git.objects import BLOB, TooLarge, objects_of
from gitlease.kernel.git.plain_yaml import BadYaml, Node, Shape, fields_of, read_fields
from gitlease.kernel.git.repository import TIMEOUT, Repository, ask
from gitlease.kernel.git.run import GitFailed, run_git
from gitlease.kernel.rules.errors import GitleaseError, Invalid, UsageError, shown
from gitlease.kernel.rules.frozen import dataclass
from gitlease.kernel.rules.resources import escape, fold
from gitlease.kernel.settings.schema import (
    FILE,
    FILE_STEM,
    KEYS,
    MAX_FILE,
    NEWER,
    SECTIONS,
    Form,
    Found,
    Key,
    near,
    usual_handles,
)

SCHEMA = 1
LINK = "120000"


def parse_settings(data: bytes) -> dict[str, Found]:
    """Read the values of a settings file, by dotted key."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _bad(data.count(b"\n", 0, error.start) + 1, "this is not UTF-8") from None
    try:
        return _settings(text)
    except BadYaml as error:
        raise _bad(error.line, error.message, *error.hints) from None


def committed_settings(where: Repository, commit: str) -> dict[str, Found]:
    """Return the settings in the file at the root of a commit (full id), by dotted key.

    Raises Invalid, which names the commit, if the file is not a regular file, is too large, is not
    in these objects or says something wrong; {} means that there is no file.
    """
    words = ("--literal-pathspecs", "ls-tree", "-z", "--full-tree", commit, "--", FILE)
    name = f"{FILE} in {commit[:10]}"
    entry = os.fsdecode(ask(where, *words).checked(f"{name} cannot be read"))
    if not entry:
        return {}
    mode, kind, rest = entry.split(" ", 2)
    if kind != "blob" or mode == LINK:  # nor is a link followed in a work tree
        raise Invalid(f"{name} is not a regular file")
    try:
        data = objects_of(where).read(rest.partition("\t")[0], BLOB, MAX_FILE)
    except TooLarge as large:
        raise Invalid(f"{name} {large}") from None
    except Unreadable as why:
        raise GitFailed(f"{name} cannot be read: it {why}") from None
    try:
        return parse_settings(data)
    except Invalid as error:
        raise Invalid(f"{error.message} (in {commit[:10]})", hints=error.hints) from None


def _settings(text: str) -> dict[str, Found]:
    fields = read_fields(text, "the file")
    values: dict[str, Found] = {}
    if (node := fields.get(NEWER)) is not None and not node.unset:
        word = node.text or node.shape.value
        if not re.fullmatch("[1-9][0-9]{0,8}", word):
            raise _bad(node.line, f"schema is a number like {SCHEMA}, not {shown(word)}")
        if int(word) > SCHEMA:
            values[NEWER] = Found([], f"{FILE}:{node.line}")
    for name, node in fields.items():
        if name in KEYS:
            _take(values, KEYS[name], node)
        elif name in SECTIONS:
            for word, inner in {} if node.unset else fields_of(node, name).items():
                dotted = f"{name}.{word}"
                if dotted in KEYS:
                    _take(values, KEYS[dotted], inner)
                else:
                    _unknown(values, inner, dotted, [k for k in KEYS if k.startswith(f"{name}.")])
        elif name != NEWER:
            _unknown(values, node, name, [NEWER, *SECTIONS, *KEYS])
    return values


def _take(values: dict[str, Found], key: Key[Any], node: Node) -> None:
    if node.unset:
        return
    value = _value(values, key, node)
    if problem := key.problem(value):
        raise _bad(node.line, f"{key.name} {problem}")
    values[key.name] = Found(value, f"{FILE}:{node.line}")


def _value(values: dict[str, Found], key: Key[Any], node: Node) -> Any:
    if key.form is Form.WORD:
        return _word(key, node, key.name)
    if key.form is Form.LIST:
        return _list(key, node, key.name)
    value = dict(key.default)
    for name, inner in fields_of(node, key.name).items():
        dotted = f"{key.name}.{shown(name)}"
        if key.members and name not in key.members:
            _unknown(values, inner, dotted, [f"{key.name}.{member}" for member in key.members])
            continue
        _read(key, name, f"a key of {key.name}", inner.line)
        if dotted == "tasks.fields.id" and inner.shape is Shape.MAP:
            if {word: x.text for word, x in fields_of(inner, dotted).items()} != {"file": "stem"}:
                raise _bad(inner.line, f"{dotted} is the name of a field, or {FILE_STEM}")
            value[name] = FILE_STEM
        elif not inner.unset:
            value[name] = (_list if key.form is Form.LISTS else _word)(key, inner, dotted)
    return value


def _word(key: Key[Any], node: Node, name: str) -> Any:
    return _read(key, node.need(Shape.TEXT, name).text, name, node.line)


def _read(key: Key[Any], text: str, name: str, line: int) -> Any:
    try:
        return key.read(text, name)
    except UsageError as error:
        raise _bad(line, error.message, *error.hints) from None


def _list(key: Key[Any], node: Node, name: str) -> list[Any]:
    items = node.need(Shape.LIST, name).nodes
    for item in items:
        if item.null:
            raise _bad(item.line, f"an entry of {name} must not be empty")
    return [_word(key, item, f"an entry of {name}") for item in items]


def _unknown(values: dict[str, Found], node: Node, name: str, siblings: list[str]) -> None:
    problem = f"unknown key {shown(name)}"
    if NEWER not in values:
        hint = near(name, [*KEYS, *siblings]) or f"known keys: {', '.join(siblings)}"
        raise _bad(node.line, problem, hint)
    newer = f"the file's schema is newer than {SCHEMA}, which this gitlease knows: update it"
    values[NEWER].value.append(f"{FILE}:{node.line}: {problem} is passed over; {newer}")


def _bad(line: int, message: str, *hints: str) -> Invalid:
    return Invalid(f"{FILE}:{line}: {message}", hints=hints)


# --- a new file -----------------------------------------------------------------------------------

Lines = Iterator[tuple[str, bool]]
"""Lines without their ``#``, each with whether it is set; those that are not get one."""
DEFAULTS: Mapping[str, Any] = {}

# Words that every reader of YAML takes for text; all others are put in quotes.
_PLAIN = re.compile(r"(?!(?:null|true|false|yes|no|on|off|y|n)$)[A-Za-z][A-Za-z0-9_-]*", re.I)
_BESIDE = 20  # the column of what is said beside a line

_HEAD = """\
# Settings of gitlease for everyone who works in this repository.
# Commented lines are defaults; uncomment to change.
# What is in effect in this clone, and why: gitlease config
schema: 1

#lease:
#  ttl: 15m          # a claim lapses this long after its last renewal
#  remote: origin    # where the ledgers are kept
#  layer: global     # another layer is another set of leases

"""
_EMAILS = """
# Names of people in task files, by their email:
#people:
#  jo@example.com: "@jo"
"""
_HANDLES = """
# People who are not @jo for jo@example.com in task files:
#people:
#  jo@example.com: "@jay"
"""
_TAIL = """
# An edge as a commit of its own; otherwise an edited task file stops `git pull --rebase`:
#edges:
#  commit: false

# Commits and pushes that touch what somebody else holds:
#guard:
#  mode: block       # or warn, or off
#  offline: warn     # when the remote cannot be reached

# Claims that nobody is working on:
#stale:
#  after: 7d
#  release: false

# When a task says done on the remote's main branch, its holder's lease ends:
#landing:
#  release: done     # or merged (and all its commits are there), or never
#  by: rebase        # how gitlease land brings work onto a base that has moved on; or merge
"""


def settings_yaml(live: Mapping[str, Any] = DEFAULTS, *, about: Sequence[str] = ()) -> str:
    """The text of a new settings file: without settings it teaches, and changes nothing.

    ``live`` has settings of ``tasks``, and ``people``, by dotted key; mappings have only the
    members that are set. ``about`` is said above the tasks, a line each.
    """
    remarks = "".join(f"# {line}\n" for line in about)
    files = KEYS["tasks.files"].default
    handles = usual_handles(live.get("tasks.files", files))
    lines = (line if is_set else f"#{line}" for line, is_set in _tasks(live, files, handles))
    people = _HANDLES if live.get("tasks.handles", handles) else _EMAILS
    text = _HEAD + remarks + "\n".join(lines) + "\n" + people + _TAIL
    return with_people(text, live["people"]) if "people" in live else text


def with_people(text: str, people: Mapping[str, str]) -> str:
    """The text of a new settings file with people in the place of its example."""
    rows = "".join(f"  {_shown(email)}: {_shown(name)}\n" for email, name in people.items())
    block = f"\n# Names of people in task files, by their email:\npeople:\n{rows}"
    return text.replace(_HANDLES, block).replace(_EMAILS, block) if people else text


def _tasks(live: Mapping[str, Any], files: Sequence[str], handles: bool) -> Lines:
    yield "tasks:", any(key.startswith("tasks.") for key in live)
    yield _line(live, "tasks.files", files, "")
    yield _line(live, "tasks.completed", [], "folders whose tasks count as done")
    yield _line(live, "tasks.required", True, "claiming a name without a task file needs --any")
    yield _line(live, "tasks.handles", handles, "whether jo@example.com is written @jo")
    if "tasks.assigned_form" in live:
        yield _line(live, "tasks.assigned_form", None, "how a first assignee is written")
    yield from _members(live, "tasks.fields", "the names of these fields in task files")
    yield from _members(live, "tasks.statuses", "gitlease writes the first word of each")


def _line(live: Mapping[str, Any], key: str, usual: Any, beside: str) -> tuple[str, bool]:
    name, value = key.rpartition(".")[2], live.get(key, usual)
    return _with(f"  {name}: {_shown(value)}", beside), key in live


def _members(live: Mapping[str, Any], key: str, beside: str) -> Lines:
    is_set: Mapping[str, Any] = live.get(key, {})
    yield _with(f"  {key.rpartition('.')[2]}:", beside), bool(is_set)
    for name, usual in KEYS[key].default.items():
        yield f"    {name}: {_shown(is_set.get(name, usual))}", name in is_set


def _with(line: str, beside: str) -> str:
    return f"{line:<{_BESIDE - 1}} # {beside}" if beside else line


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return (
            value
            if _PLAIN.fullmatch(value) or value == FILE_STEM
            else json.dumps(value, ensure_ascii=False)
        )
    return f"[{', '.join(map(_shown, value))}]"


# --- Backlog.md -----------------------------------------------------------------------------------

MAX_BYTES = 64 * 1024  # of the configuration
# Where Backlog.md has its configuration. The one at the root may name any folder. Tasks are in
# ``tasks`` there, finished ones in ``completed``.
ROOT_CONFIG = "backlog.config.yml"
FOLDERS = ("backlog", ".backlog")
CONFIGS = (ROOT_CONFIG, *(f"{x}/config.{end}" for x in FOLDERS for end in ("yml", "yaml")))
FIELDS = {"assigned": "assignee", "depends_on": "dependencies", "created": "created_date"}
USUAL = {"todo": ["To Do"], "in_progress": ["In Progress"], "done": ["Done"]}
_DIGITS = [*"123456789"]
_OWN_KEYS = {"project_name", "statuses", "default_status", "task_prefix", "date_format"}


@dataclass(frozen=True)
class SuggestedSettings:
    """The text of a settings file for a project.

    If Backlog.md was recognised, ``folder`` has its tasks, ``files`` of them. ``proposed`` are the
    settings that other task files brought in, and ``headed`` the files in folders of tasks that
    have a heading and no front matter, so that they cannot be tasks.
    """

    text: str
    folder: str | None = None
    files: int = 0
    warnings: tuple[str, ...] = ()
    proposed: tuple[str, ...] = ()
    headed: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """Return whether it differs from the default settings."""
        return bool(self.proposed or self.folder)


def suggest_settings(repository: Repository) -> SuggestedSettings:
    """Return settings that fit the work tree. The text always loads."""
    root = repository.toplevel or ""
    for file in CONFIGS:
        if os.path.lexists(os.path.join(root, file)):
            warnings: list[str] = []
            fields = _read_config(root, file, warnings)
            base = os.path.dirname(file) or _configured_folder(root, fields, warnings)
            has_tasks = os.path.lexists(os.path.join(root, base, "tasks"))
            if file == ROOT_CONFIG or has_tasks or _OWN_KEYS & fields.keys():
                return _backlog_settings(repository, file, base, fields, warnings)
    return SuggestedSettings(settings_yaml())


def backlog_numbers(repository: Repository, files: Sequence[str]) -> tuple[str, int] | None:
    """How ids of Backlog.md's tasks begin, and how many digits they have; None elsewhere.

    ``files`` are the patterns of task files.
    """
    root = repository.toplevel or ""
    for file in CONFIGS:
        if os.path.lexists(os.path.join(root, file)):
            fields = _read_config(root, file, [])
            base = os.path.dirname(file) or _configured_folder(root, fields, [])
            if any(text.startswith(f"{escape(base)}/") for text in files):
                prefix, digits = (
                    fields[name].text if name in fields else ""
                    for name in ("task_prefix", "zero_padded_ids")
                )
                return f"{prefix or 'task'}-".upper(), int(digits) if digits in _DIGITS else 0
    return None


def _read_config(root: str, file: str, warnings: list[str]) -> dict[str, Node]:
    problem = f"{file} is not a small text file"
    try:
        data = read_small(os.path.join(root, file), MAX_BYTES)
        if data is not None:
            return read_fields(data.decode("utf-8-sig"), "the file")
    except BadYaml as error:
        problem = f"{file}:{error.line}: {error.message}"
    except ValueError:
        pass
    warnings.append(f"{problem}: the default statuses are used")
    return {}


def _configured_folder(root: str, fields: Mapping[str, Node], warnings: list[str]) -> str:
    usual = next((x for x in FOLDERS if os.path.isdir(os.path.join(root, x))), FOLDERS[0])
    node = fields.get("backlog_directory") or fields.get("backlogDirectory")
    word = "" if node is None or node.null else node.text.strip()
    folder = posixpath.normpath(word.replace("\\", "/")) if word else usual
    if folder in (".", "..") or folder.startswith(("/", "../")) or folder[1:2] == ":":
        warnings.append(f"{ROOT_CONFIG}: {shown(word)} is not below the root: {usual} is used")
        return usual
    return folder


def _backlog_settings(
    repository: Repository, file: str, base: str, fields: Mapping[str, Node], warnings: list[str]
) -> SuggestedSettings:
    folder = f"{base}/tasks"
    names: list[str] = []
    with (
        contextlib.suppress(OSError),
        os.scandir(os.path.join(repository.toplevel or "", folder)) as x,
    ):
        names = [entry.name for entry in x if entry.is_file(follow_symlinks=False)]
    files = sorted(f"{folder}/{name}" for name in names if name.lower().endswith(".md"))
    if problem := _why_unusable(repository, folder, files):
        warning = f"{shown(folder)} {problem}: its tasks are left out"
        return SuggestedSettings(settings_yaml(), warnings=(warning,))
    patterns = [f"{escape(folder)}/*.md"]
    values: dict[str, Any] = {
        "tasks.files": patterns,
        "tasks.completed": [f"{escape(base)}/completed"],
        "tasks.fields": FIELDS,
        "tasks.statuses": _statuses(file, fields.get("statuses"), warnings),
    }
    if not usual_handles(patterns):
        values["tasks.handles"] = True
    text = settings_yaml(values, about=(f"The tasks of Backlog.md, as in {shown(file)}.",))
    try:
        parse_settings(text.encode())
    except (Invalid, UnicodeEncodeError):
        warning = f"{shown(folder)} cannot be written as a pattern: its tasks are left out"
        return SuggestedSettings(settings_yaml(), warnings=(*warnings, warning))
    return SuggestedSettings(text, folder, len(files), tuple(warnings))


def _why_unusable(repository: Repository, folder: str, files: list[str]) -> str:
    root = repository.toplevel or repository.git_dir
    # Task files behind a link are never edited, so such tasks could not be claimed.
    if os.path.realpath(os.path.join(root, folder)) != os.path.join(os.path.realpath(root), folder):
        return "is behind a symbolic link"
    # With ./ before it a name is never magic; check-ignore does not know literal pathspecs.
    file = files[0] if files else f"{folder}/task-1.md"
    words, env = ["check-ignore", "-q", "--", f"./{file}"], {"GIT_LITERAL_PATHSPECS": "0"}
    result = run_git(words, cwd=root, timeout=TIMEOUT, repository=True, env=env)
    return "is ignored by git" if result.code == 0 else ""


def _statuses(file: str, listed: Node | None, warnings: list[str]) -> dict[str, list[str]]:
    if listed is None or listed.unset:
        return USUAL
    if listed.shape is not Shape.LIST or not all(n.shape is Shape.TEXT for n in listed.nodes):
        warnings.append(f"{file}: statuses is not a list of words: the default ones are used")
        return USUAL
    texts = [node.text.strip() for node in listed.nodes]
    by_role = statuses_of(texts, USUAL)
    for role, (first, *_) in by_role.items():
        if texts and first not in texts:
            warnings.append(f"{file} has no status for {role.replace('_', ' ')}: {first} is used")
    return by_role


# Status words with one usual meaning, letters only. The settings alone say what any other word
# means: "cancelled" may be done or to do.
_MEANINGS = {
    "todo": "todo ready open pending new notstarted planned backlog queued",
    "in_progress": "inprogress doing wip started active working ongoing",
    "done": "done closed completed complete finished resolved fixed",
}
_ROLES = {word: role for role, words in _MEANINGS.items() for word in words.split()}


def statuses_of(words: Iterable[str], usual: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    """Return the words of each status: those of ``words`` that mean it, then the usual ones."""
    by_role: dict[str, dict[str, str]] = {role: {} for role in usual}
    pairs = [(_ROLES.get(letters(word), ""), word.strip()) for word in words if word.isprintable()]
    pairs += [(role, word) for role, known in usual.items() for word in known]
    for role, word in pairs:
        by_role.get(role, {}).setdefault(fold(word), word)
    return {role: list(spellings.values()) for role, spellings in by_role.items()}


def letters(word: str) -> str:
    """Return the folded letters and digits of a word."""
    return "".join(filter(str.isalnum, fold(word)))


# --- settings that init records -------------------------------------------------------------------

_LEASE = re.compile(r"(?m)^lease:[ \t]*(?:#.*)?$")
COMMENTED = "#lease:\n"
_FLOW = re.compile(r"(?m)^lease:[ \t]*\{[ \t]*")


def record(repository: Repository, wanted: dict[str, str]) -> bool | None:
    """Write settings of ``lease`` into the work tree's file, whatever is there of the same names.

    None where it has them already, and False where it has to be by hand.
    """
    path = os.path.join(repository.toplevel or "", FILE)
    data = read_small(path, MAX_FILE) if repository.toplevel is not None else None
    if data is None:
        return False
    try:
        expected = {k: x.value for k, x in parse_settings(data).items()} | wanted
        text = data.decode()
        for name in sorted(wanted, reverse=True):  # the id first, where it is looked for
            text = _with_setting(text, name.removeprefix("lease."), wanted[name])
        # The proof of the edit: nothing but the wanted settings may differ.
        if {k: x.value for k, x in parse_settings(text.encode()).items()} != expected:
            return False
        if text.encode() == data:
            return None
        replace_file(path, text.encode(), mode=os.stat(path).st_mode & 0o777)
    except (GitleaseError, UnicodeDecodeError, OSError):
        return False
    return True


def _with_setting(text: str, key: str, value: str) -> str:
    line = rf"(?m)^[^#\n]*?\b{key}['\"]?[ \t]*:[ \t]*['\"]?([\w./-]+)"
    if (there := re.search(line, text)) is not None:
        return text[: there.start(1)] + value + text[there.end(1) :]
    if (block := _LEASE.search(text)) is not None:
        inner = re.compile(r"\n([ ]+)[^\s#]").match(text, block.end())
        indent = inner[1] if inner else "  "
        return f"{text[: block.end()]}\n{indent}{key}: {value}{text[block.end() :]}"
    if (flow := _FLOW.search(text)) is not None:
        rest = text[flow.end() :]
        comma = "" if rest.startswith("}") else ", "
        return f"{text[: flow.end()]}{key}: {value}{comma}{rest}"
    about = "# The ledger's id: no lease is granted on another one."
    if COMMENTED in text:  # as a new file has it: uncommented later, no key may stand twice
        return text.replace(COMMENTED, f"{about}\nlease:\n  {key}: {value}\n", 1)
    end = "" if not text or text.endswith("\n") else "\n"
    return f"{text}{end}\n{about}\nlease:\n  {key}: {value}\n"
