"""The form of a project's task files: settings that fit them, and a new file like them.

Settings are only proposed, from the folders, keys and values in use: what counts as a task is
decided by the settings alone. A new file has the folder, number, name, fields and spelling that
its neighbours have.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import chain, count
from typing import Any, NamedTuple

from gitlease.kernel.git.branches import Branches
from gitlease.kernel.git.files import notes_of, read_regular
from gitlease.kernel.git.plain_yaml import BadYaml, Node, Shape, read_yaml
from gitlease.kernel.git.repository import TIMEOUT, Repository, ask
from gitlease.kernel.git.run import run_git
from gitlease.kernel.ledger.edges import BY_INIT, in_submodule
from gitlease.kernel.ledger.ledger_session import LedgerSession
from gitlease.kernel.ledger.transaction import LONGEST_TURN
from gitlease.kernel.rules.edge import People, Progress, Task, means_nobody, printable
from gitlease.kernel.rules.errors import GitleaseError, Invalid, UsageError
from gitlease.kernel.rules.frozen import dataclass, replace
from gitlease.kernel.rules.resources import Resource, escape, fold, name_resource
from gitlease.kernel.settings.schema import (
    FILE_STEM,
    KEYS,
    LIST,
    SINGLE,
    STATUSES,
    Tasks,
    usual_handles,
)
from gitlease.kernel.settings.text import (
    SuggestedSettings,
    backlog_numbers,
    letters,
    parse_settings,
    settings_yaml,
    statuses_of,
    suggest_settings,
    with_people,
)
from gitlease.tasks.assignees import FoundPeople, fitting_people
from gitlease.tasks.edit import create_file, scalar
from gitlease.tasks.reading import (
    MAX_DEPTH,
    as_written,
    as_yaml,
    field_names,
    find_front,
    is_yaml,
    read_document,
    read_task,
    stem_of,
)
from gitlease.tasks.scan import MAX_BYTES, OWN, Wanted

MAX_FILES = 5_000  # read at most
MAX_ROOTS = 8
MOST_UNKNOWN = 5  # names that a warning lists
ENDINGS = (".md", ".markdown", ".yaml", ".yml")
FOLDERS = frozenset(
    ("task", "tasks", "todo", "todos", "issue", "issues", "ticket", "tickets", "backlog", "bugs")
)
OTHERS = frozenset((".github", ".gitlab", ".circleci", "node_modules", "vendor", "third_party"))

# The names of fields in use, letters only; the most usual one first.
ROLES: Mapping[str, tuple[str, ...]] = {
    "status": ("status", "state", "column"),
    "assigned": ("assigned", "assignee", "assignees", "assignedto", "owner", "owners"),
    "id": ("id", "ticket", "key", "taskid", "ticketid", "issueid", "task", "issue", "number"),
    "title": ("title", "name", "summary", "subject"),
    "priority": ("priority", "prio", "severity"),
    "depends_on": (
        *("dependson", "dependencies", "depends", "deps", "dep", "blockedby", "requires"),
        *("needs", "waitsfor", "prerequisites"),
    ),
    "paths": ("paths",),
    "created": ("created", "createdat", "createddate", "createdon", "date"),
}
MARKS = ("id", "title", "status", "assigned")  # a task has some of these


class _Sample(NamedTuple):
    """A file that looks like a task, with the texts of its fields; ``lists`` are lists."""

    path: str
    fields: Mapping[str, Sequence[str]]
    lists: frozenset[str] = frozenset()


def fitting_settings(repository: Repository) -> SuggestedSettings:
    """Settings that fit the work tree: Backlog.md's, else by what its files have in common."""
    suggested = suggest_settings(repository)
    if repository.toplevel is None or (suggested.warnings and suggested.folder is None):
        return suggested
    samples, headed = _samples(repository, repository.toplevel)
    if suggested.folder is not None:
        return _with_people_of_backlog(repository, suggested, samples)
    suggested = replace(suggested, headed=tuple(headed))
    values = _values(samples)
    fields = _field_names(samples) if samples else {}
    names = [name for x in samples for name in x.fields.get(fields["assigned"], ())]
    found = fitting_people(repository, names, People())
    values |= _people_settings(found, usual_handles(values.get("tasks.files", ())))
    if found.unknown:
        suggested = replace(suggested, warnings=(_unknown_people(found.unknown),))
    if not values:
        return suggested
    text = settings_yaml(values, about=("As in the task files that are here.",))
    try:
        parse_settings(text.encode())
    except (Invalid, UnicodeEncodeError):
        return suggested
    return replace(suggested, text=text, proposed=tuple(values))


def _with_people_of_backlog(
    repository: Repository, suggested: SuggestedSettings, samples: Sequence[_Sample]
) -> SuggestedSettings:
    names = [name for x in samples for name in x.fields.get("assignee", ())]
    found = fitting_people(repository, names, People(handles=True))
    text = with_people(suggested.text, found.people)
    try:
        parse_settings(text.encode())
    except (Invalid, UnicodeEncodeError):
        return suggested
    return replace(suggested, text=text)


def fitting_words(
    repository: Repository,
    tasks: Iterable[Task],
    known: Mapping[str, Sequence[str]],
    people: People,
) -> SuggestedSettings | None:
    """What settings lack for the words of tasks: status words of one usual meaning, and people."""
    tasks = list(tasks)
    unknown = [task.status for task in tasks if task.progress is Progress.OTHER]
    more = statuses_of(unknown, dict.fromkeys(known, ()))
    values: dict[str, Any] = {}
    if any(more.values()):
        values["tasks.statuses"] = {role: [*words, *more[role]] for role, words in known.items()}
    found = fitting_people(repository, (name for x in tasks for name in x.assigned), people)
    values |= _people_settings(found, people.handles)
    warnings = (_unknown_people(found.unknown),) if found.unknown else ()
    if not values:
        return SuggestedSettings("", warnings=warnings) if warnings else None
    if "people" in values:
        values["people"] = {**people.names, **values["people"]}
    text = settings_yaml(values)
    try:
        parse_settings(text.encode())
    except (Invalid, UnicodeEncodeError):
        return None
    return SuggestedSettings(text, proposed=tuple(values), warnings=warnings)


def _people_settings(found: FoundPeople, usual: bool) -> dict[str, Any]:
    values: dict[str, Any] = {"people": found.people} if found.people else {}
    return values | ({"tasks.handles": True} if found.handles and not usual else {})


def _unknown_people(names: Sequence[str]) -> str:
    named = ", ".join(map(printable, names[:MOST_UNKNOWN]))
    named += ", …" * (len(names) > MOST_UNKNOWN)
    return (
        f"tasks are assigned to {named}, and the commits show no one email for them: "
        "add EMAIL: NAME to people in .gitlease.yaml"
    )


def _samples(repository: Repository, root: str) -> tuple[list[_Sample], list[str]]:
    # The files that look like tasks, and those of their folders that have nothing but a heading.
    words = ("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--")
    wanted = [f":(icase)*{ending}" for ending in ENDINGS]
    listed = run_git([*words, *wanted], cwd=root, timeout=TIMEOUT, repository=True)
    paths = [os.fsdecode(x) for x in sorted(set(listed.out.split(b"\0"))) if x]
    samples, headed = list[_Sample](), list[str]()
    for path in [x for x in paths if _named_folder(x)][:MAX_FILES]:
        name = posixpath.basename(path)
        if name.startswith(OWN) or not OTHERS.isdisjoint(path.split("/")):
            continue
        try:
            data = read_regular(os.path.join(root, path), MAX_BYTES) or b""
            front = find_front(data, path)
        except (Invalid, OSError):
            continue
        found = None if front is None else _fields(front.text)
        fields = None if found is None else found[0]
        if found is None or fields is None:
            # Plain Markdown may be meant as tasks: init says that gitlease does not see them.
            heading_alone = front is None and data.startswith(b"# ") and not is_yaml(path)
            if heading_alone and not fold(name).startswith("readme"):
                headed.append(printable(path))
        # One such field makes Markdown a task, but any YAML file may have a `name`.
        elif sum(any(letters(k) in ROLES[r] for k in fields) for r in MARKS) > int(is_yaml(path)):
            samples.append(_Sample(path, *found))
    return samples, headed


def _fields(front: str) -> tuple[dict[str, list[str]], frozenset[str]] | None:
    try:
        top, _ = read_yaml(as_yaml(front), max_depth=MAX_DEPTH + 1)
    except BadYaml:
        return None
    if top is None or top.shape is not Shape.MAP:
        return None
    pairs = [(key.text, value) for key, value in top.pairs if key.shape is Shape.TEXT]
    lists = frozenset(key for key, value in pairs if value.shape is Shape.LIST)
    return {key: _texts(value) for key, value in pairs}, lists


def _texts(value: Node) -> list[str]:
    nodes = value.nodes if value.shape is Shape.LIST else [value]
    texts = [as_written(node) for node in nodes if node.shape is Shape.TEXT]
    return [node.text for node in texts if node.says_something]


def _values(samples: Sequence[_Sample]) -> dict[str, Any]:
    if not samples:
        return {}
    values: dict[str, Any] = {"tasks.files": _patterns(samples)}
    if set(values["tasks.files"]) <= set(KEYS["tasks.files"].default):
        del values["tasks.files"]
    fields = _field_names(samples)
    if changed := {role: name for role, name in fields.items() if name != role}:
        values["tasks.fields"] = changed
    words = Counter(text.strip() for x in samples for text in x.fields.get(fields["status"], ()))
    statuses = statuses_of((word for word, _ in words.most_common()), STATUSES)
    # A word in another letter case reads the same, but would be written as no neighbour has it.
    if any({*statuses[role]} != {*usual} for role, usual in STATUSES.items()):
        values["tasks.statuses"] = statuses
    if form := _form_of(samples, fields["assigned"]):
        values["tasks.assigned_form"] = form
    return values


def _form_of(samples: Sequence[_Sample], name: str) -> str:
    """The one form in which names are written, if files without a name do not show it."""
    named = [x for x in samples if any(not means_nobody(text) for text in x.fields.get(name, ()))]
    lists = [x for x in samples if name in x.lists]
    if lists and all(x in lists for x in named):
        return LIST if len(lists) < len(samples) else ""
    # A field without any value would become a list.
    blank = any(not x.fields[name] for x in samples if name in x.fields)
    return SINGLE if named and not lists and blank else ""


def _patterns(samples: Sequence[_Sample]) -> list[str]:
    endings: dict[str, list[str]] = {}
    for path, *_ in samples:
        ending = posixpath.splitext(path)[1].lower()
        endings.setdefault(_named_folder(path) or "", []).append(ending)
    most = sorted(endings, key=lambda folder: (-len(endings[folder]), folder))[:MAX_ROOTS]
    return [
        f"{escape(folder)}/**/*{ending}" for folder in most for ending in sorted({*endings[folder]})
    ]


def _field_names(samples: Sequence[_Sample]) -> dict[str, str]:
    names: dict[str, str] = {}
    for role in ROLES:
        keys = Counter(
            key
            for sample in samples
            for key in sample.fields
            if letters(key) in ROLES[role] and key not in names.values()
        )
        if role == "id":
            # A `number` or `key` that repeats, or mostly cannot be leased, is no id.
            keys = Counter({k: n for k, n in keys.items() if k == role or _are_ids(samples, k)})
        order = {key: ROLES[role].index(letters(key)) for key in keys}
        usual = FILE_STEM if role == "id" else role
        names[role] = min(keys, key=lambda k: (-keys[k], order[k], k)) if keys else usual
    return names


def _are_ids(samples: Sequence[_Sample], key: str) -> bool:
    ids = [fold(" ".join(x.fields[key])) for x in samples if key in x.fields]
    return len(set(ids)) == len(ids) and 2 * sum(map(_is_name, ids)) > len(ids)


def _is_name(word: str) -> bool:
    try:
        name_resource(word)
    except UsageError:
        return False
    return True


def _named_folder(path: str) -> str | None:
    parts = path.split("/")[:-1]
    for depth, part in enumerate(parts, 1):
        if letters(part) in FOLDERS:
            return "/".join(parts[:depth])
    return None


# --- a new task -----------------------------------------------------------------------------------
# Its text is read back and compared before it is written, as an edit's is. Nothing is replaced.

GIVEN = "given"  # a kind of notes: ids that work trees of this clone have, perhaps uncommitted
LONGEST_NAME = 80  # characters of a title in the name of a file
FIRST = ("id", "title", "status", "assigned", "created", "depends_on")  # where there is no form
NEEDED = ("title", "id", "priority", "depends_on", "paths")  # also where that has no such field
_ID = re.compile(r"(.*?)([0-9]{1,12})(?:\.[0-9]+)*")
# Device names with any ending, signs that no name may have there, and an end that it cuts off.
_WINDOWS = re.compile(r'(?is)(con|prn|aux|nul|(com|lpt)[0-9])(\..*)?|.*[:*?<>|"\\].*|.*[. ]')
_BARE = re.compile(r"[0-9A-Za-z](?:[\w.-]*\w)?(?:[ T][0-9:.]*[0-9]Z?)?", re.ASCII)
_DATES = (("T", "%Y-%m-%dT%H:%M:%SZ"), (":", "%Y-%m-%d %H:%M"), ("", "%Y-%m-%d"))


@dataclass(frozen=True, kw_only=True)
class NewTask:
    """A task to be added; without an ``id`` it gets the next one. ``at`` is now, in UTC."""

    title: str
    status: str
    at: datetime
    id: Resource | None = None
    depends_on: Sequence[str] = ()
    paths: Sequence[str] = ()
    priority: str = ""


class TaskForm:
    """The form of the task files of a work tree: that of the newest open one where most lie."""

    def __init__(self, repository: Repository, tasks: Tasks, known: Iterable[Task]) -> None:
        self._tasks, self._names, self._wanted = tasks, field_names(tasks), Wanted(tasks)
        self._repository, self._root = repository, repository.toplevel or ""
        self._backlog = backlog_numbers(repository, tasks.files)
        here = [x for x in known if not x.ref and not self._wanted.done(x.file)]
        here = [x for x in here if x.progress is Progress.TODO] or here
        places = Counter(map(_place, here))
        self._place = places.most_common(1)[0][0] if places else self.first_place()
        near = [x for x in here if _place(x) == self._place]
        self._near = sorted(near, key=lambda x: (x.created, number_in(x)))
        self._nodes, self._text = dict[str, Node](), ""
        for task in self._near[-1:]:
            data = read_regular(os.path.join(self._root, task.file), MAX_BYTES) or b""
            if (document := read_document(data, file=task.file, names=())) is not None:
                self._nodes = {key.text: value for key, value in document.root.pairs}
                self._text = document.front.text

    def refuse_submodules(self, modules: Iterable[str]) -> None:
        """Raise Invalid if a new file would lie in a submodule, and so in another repository."""
        for module in modules:
            if f"{self._place[0]}/".startswith(f"{module}/"):
                message = f"a new task would be in {self._place[0]}, which is in a submodule"
                raise Invalid(message, hints=(in_submodule(module),))

    def next_id(self, title: str, ids: Iterable[str], is_taken: Callable[[Resource], bool]) -> str:
        """The next id that is free; UsageError where nothing shows what it looks like."""
        numbered = [x for task in self._near if (x := _ID.fullmatch(task.resource.text))]
        prefix, width = self._backlog or ("", 0)
        if self._near and 2 * len(numbered) >= len(self._near):
            prefix, width = numbered[-1][1], max(width, len(numbered[-1][2]))
        elif self._near:  # words are the ids here
            word = re.sub(r"[^a-z0-9]+", "-", title.lower())[:LONGEST_NAME].strip("-")
            if not word:
                raise UsageError("no id can be made of this title", hints=("give it one",))
            words = chain([word], (f"{word}-{number}" for number in count(2)))
            return next(x for x in words if not is_taken(name_resource(x)))
        elif self._backlog is None:
            first = "to begin with the first task, give it an id, such as T001"
            message = "no task here shows how tasks are numbered"
            raise UsageError(message, hints=(first, BY_INIT))
        others = (_ID.fullmatch(x) for x in ids)
        last = max((int(x[2]) for x in others if x and fold(x[1]) == fold(prefix)), default=0)
        numbers = (f"{prefix}{number:0{width}}" for number in count(last + 1))
        return next(x for x in numbers if not is_taken(name_resource(x)))

    def write(self, new: NewTask, id: str) -> Task:
        """Write the file of a task, and return that. Raises Invalid if it cannot be."""
        file = posixpath.join(self._place[0], self.name_of(id, new.title) + self._place[1])
        # One such file would break every checkout on Windows.
        if _WINDOWS.fullmatch(id) or _WINDOWS.fullmatch(stem_of(file)):
            raise UsageError(f"{printable(file)} could not be checked out on Windows", resource=id)
        text = self.text_of(new, id)
        made = read_task(text.encode(), file=file, tasks=self._tasks)
        wanted = (fold(id), new.title, (*new.depends_on,), (*new.paths,), new.priority)
        if made is None or not self._wanted.covers(file) or self._wanted.done(file):
            raise Invalid(f"{printable(file)} would be no open task by tasks.files")
        if wanted != (made.resource.key, made.title, made.depends_on, made.paths, made.priority):
            raise Invalid(f"{printable(file)} would not say what was asked for: write it by hand")
        # With ./ before it a name is never magic; literal pathspecs this command does not know.
        if ask(self._repository, "check-ignore", "-q", "--", f"./{file}").code == 0:
            raise Invalid(f"{printable(file)} would be ignored by git: nobody else would see it")
        create_file(self._root, file, text.encode())
        return made

    def first_place(self) -> tuple[str, str]:
        folder, pattern = self._wanted.folders()[0], self._tasks.files[0]
        if not folder:
            raise Invalid("tasks.files names no folder, and there is no task file yet")
        return folder, ".yaml" if pattern.endswith((".yaml", ".yml")) else ".md"

    def name_of(self, id: str, title: str) -> str:
        if self._names["id"] == FILE_STEM:
            return id
        stem, known = ("x-1 - A-b", "X-1") if self._backlog else ("X", "X")
        if self._near:
            stem, known = stem_of(self._near[-1].file), self._near[-1].resource.text
        if not fold(stem).startswith(fold(known)):
            return _slug(title, stem) or id
        between, words = re.split(r"(?![-_ .])", stem[len(known) :], maxsplit=1)
        slug = _slug(title, words) if words else ""
        return (id if stem.startswith(known) else id.lower()) + (between + slug if slug else "")

    def text_of(self, new: NewTask, id: str) -> str:
        created = self._near[-1].created if self._near else ":" * bool(self._backlog)
        form = next(form for mark, form in _DATES if mark in created) if created else ""
        values: dict[str, str | Sequence[str]] = {
            "id": id,
            "title": new.title,
            "status": new.status,
            "assigned": (),
            "created": new.at.strftime(form),
            "priority": new.priority,
            "depends_on": new.depends_on,
            "paths": new.paths,
        }
        named = {self._names[role]: value for role, value in values.items()}
        usual = [self._names[role] for role in FIRST if role != "created" or self._backlog]
        needed = [self._names[role] for role in NEEDED if values[role]]
        lines = list[str]()
        for key in dict.fromkeys((*(self._nodes or usual), *needed)):
            lines += self.lines_of(key, named.get(key, ())) if key != FILE_STEM else ()
        text = "".join(f"{line}\n" for line in lines)
        if self._place[1].lower() not in (".yaml", ".yml"):
            text = f"---\n{text}---\n"
        return text.replace("\n", "\r\n") if "\r\n" in self._text else text

    def lines_of(self, key: str, value: str | Sequence[str]) -> list[str]:
        node = self._nodes.get(key)
        if value and isinstance(value, str):
            return [f"{key}: {_styled(value, node)}"]
        if not value:
            is_form = (
                key == self._names["assigned"] and node and means_nobody(as_written(node).text)
            )
            if node is not None and (node.text or node.shape is Shape.MAP) and not is_form:
                return []  # a value of that task alone
            blank = "[]" if node is None or node.nodes else self._text[node.start : node.end]
            return [f"{key}: {blank}".rstrip()]
        lists = [x for x in (node, *self._nodes.values()) if x and x.shape is Shape.LIST]
        like = next((x for x in lists if x.nodes), None)
        words = [_styled(x, like and like.nodes[0]) for x in value]
        if like and like.flow:
            return [f"{key}: [{', '.join(words)}]"]
        indent = " " * (like.column if like else 2)
        return [f"{key}:", *(f"{indent}- {word}" for word in words)]


def add_task(
    repository: Repository, tasks: Tasks, session: LedgerSession, new: NewTask, *, main: str | None
) -> tuple[Task, tuple[str, ...]]:
    """Write the file of a new task, whose id nothing known has; with warnings.

    That is asked of the work tree, this clone's branches, the remote's ``main`` branch as it is
    now, and the ledger. One process of a clone at a time gives a number.
    """
    edges, warnings, base = session.edges, list[str](), ""
    if repository.toplevel is None:
        raise Invalid("a bare repository has no task files to add to")
    try:
        # Without the remote a task is added all the same: two files of one id show as a problem.
        session.look()
        warnings += session.take_warnings()
        base = Branches(repository).fetched_tip(main) if main else ""
    except GitleaseError as error:
        warnings.append(f"whether the id is free on the remote is not known: {error.message}")
    notes = notes_of(repository.common_dir)
    # Two agents of one clone that add at once would get the same number.
    with session.store.turn([session.layer], LONGEST_TURN, lambda: None):
        everywhere = edges.everywhere()
        there = edges.files.read(base).tasks if base else ()
        known = {x.resource.key: x for x in (*there, *everywhere.tasks)}
        files = {key: x.file for x in everywhere.problems for key in x.keys}
        files |= {key: x.file for key, x in known.items()}
        spelt = [
            # raises NotFound, with similar ones
            (known.get(fold(x)) or edges.task(name_resource(x), away=True)).resource.text
            for x in new.depends_on
        ]
        new = replace(new, depends_on=tuple(spelt))

        def where(id: Resource) -> str:
            file = files.get(id.key, "")
            if not file and session.decisions.known_records(id):
                return "the ledger has a record of it"
            if not file and (elsewhere := edges.files.on_a_branch(id)):
                file = elsewhere[1].file
            return f"{printable(file)} has it" if file else ""

        form = TaskForm(repository, tasks, everywhere.tasks)
        form.refuse_submodules(everywhere.submodules)
        if new.id is not None:
            if why := where(new.id):
                hints = ("without an id it gets the next one",)
                raise UsageError(f"{new.id} is taken: {why}", resource=new.id.text, hints=hints)
            id = new.id.text
        else:
            # A number that another task waits for is given, even before its file is there.
            waited = [x for task in known.values() for x in task.depends_on]
            ids = [*(x.resource.text for x in known.values()), *waited, *notes.of(GIVEN)]
            id = form.next_id(new.title, ids, lambda x: bool(where(x)))
        refuse_cycle(id, new, known)
        made = form.write(new, id)
        notes.put(GIVEN, id, True, at=new.at.timestamp())
    return made, tuple(warnings)


def refuse_cycle(id: str, new: NewTask, known: Mapping[str, Task]) -> None:
    seen, pending = set[str](), [fold(x) for x in new.depends_on]
    while pending:
        if (key := pending.pop()) == fold(id):
            raise UsageError(f"{id} would wait for itself", resource=id)
        if key in known and key not in seen:
            pending += map(fold, known[key].depends_on)
        seen.add(key)


def _place(task: Task) -> tuple[str, str]:
    return posixpath.dirname(task.file), posixpath.splitext(task.file)[1]


def number_in(task: Task) -> int:
    return int(match[2]) if (match := _ID.fullmatch(task.resource.text)) else 0


def _slug(title: str, like: str) -> str:
    between = next(iter(re.findall(r"[-_ ]", like)), "-")
    words = re.sub(r"[^\w.]+", between, title.lower() if like == like.lower() else title)
    return words[:LONGEST_NAME].strip("-_. ")


def _styled(value: str, like: Node | None) -> str:
    if like is not None and not like.style and _BARE.fullmatch(value):
        return value
    return scalar(value, '"' if like is not None and like.style == '"' else "")
