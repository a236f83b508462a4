"""A bounded look at files that somebody else wrote: which there are, and what fields they have.

Links are not followed, pipes are not opened, and what is large or no YAML is passed over: this is
to recognise a project, and what it cannot use it may leave.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gitlease.adapters.files import open_regular, read_up_to
from gitlease.adapters.git import run_git
from gitlease.adapters.repository import TIMEOUT, Repository
from gitlease.domain.errors import UsageError
from gitlease.domain.frozen import dataclass
from gitlease.domain.resource import name_resource

MAX_BYTES = 64 * 1024  # of each file
MAX_SAMPLE = 200  # files that are read
MAX_PARSED = 512 * 1024  # characters of YAML, of all of them
MAX_ENTRIES = 50_000  # names that are looked at
MAX_DEPTH = 40  # of folders, and of values
MARKDOWN = (".md",)
SUFFIXES = (".md", ".yaml", ".yml")

_FRONT = re.compile(r"---[ \t]*\n(.*?)^(?:---|\.\.\.)[ \t]*$", re.DOTALL | re.MULTILINE)
_NULLS = ("", "~", "null", "Null", "NULL")


class NotYaml(ValueError):
    """Text that is no mapping in YAML; ``line`` is the line that it fails in."""

    def __init__(self, line: int) -> None:
        self.line = line
        super().__init__(line)


@dataclass(frozen=True, slots=True)
class Value:
    """A value of one field: its texts, none for null. ``odd``: it is neither a text nor a list."""

    texts: tuple[str, ...] = ()
    is_list: bool = False
    odd: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """Task files that were recognised, in ``folder``: how many, and the settings that fit them.

    ``live`` has what differs from the built-in settings, as `settings_yaml` takes it; ``about`` is
    said in comments above it.
    """

    kind: str
    folder: str
    files: int
    live: Mapping[str, Any]
    about: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sample:
    """One file that was read: its name relative to the root, and its fields by name."""

    file: str
    fields: Mapping[str, Value]

    def text(self, name: str) -> str:
        """The only text of a field, ``""`` where there is none or several."""
        value = self.fields.get(name)
        plain = value is not None and not (value.odd or value.is_list)
        return "".join(value.texts) if value is not None and plain else ""

    def is_task(self, name: str) -> bool:
        """Whether the field of this name can be the id of a task."""
        try:
            name_resource(self.text(name))
        except UsageError:
            return False
        return True


def trouble_with(root: str, folder: str) -> str | None:
    """Why a folder is not to be looked into (it ``is a symbolic link``, say); None where it is."""
    path = root
    for part in folder.split("/"):
        path = os.path.join(path, part)
        try:
            mode = os.lstat(path).st_mode
        except OSError:
            return "is not there"
        if stat.S_ISLNK(mode):
            return "is a symbolic link"
        if not stat.S_ISDIR(mode):
            return "is no folder"
        if os.path.lexists(os.path.join(path, ".git")):
            return "is a repository of its own"
    return None


def list_files(
    root: str, folder: str, suffixes: tuple[str, ...], *, deep: bool = True
) -> list[str]:
    """The regular files below a folder with one of the suffixes, relative to the root, sorted."""
    found: list[str] = []
    waiting, looked = [(folder, 0)], 0
    while waiting:
        place, depth = waiting.pop()
        try:
            entries = sorted(os.scandir(os.path.join(root, place)), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            looked += 1
            if looked > MAX_ENTRIES:
                return sorted(found)
            name = f"{place}/{entry.name}"
            if entry.is_file(follow_symlinks=False):
                if entry.name.lower().endswith(suffixes):
                    found.append(name)
            elif deep and depth < MAX_DEPTH and _is_own_folder(entry):
                waiting.append((name, depth + 1))
    return sorted(found)


def _is_own_folder(entry: os.DirEntry[str]) -> bool:
    """Whether it is a folder of this repository: not a link, and no other repository."""
    if entry.name == ".git" or not entry.is_dir(follow_symlinks=False):
        return False
    return not os.path.lexists(os.path.join(entry.path, ".git"))


def read_samples(root: str, files: Sequence[str]) -> tuple[list[Sample], int]:
    """The fields of the first files, of those that have any; and how many files were not read."""
    samples: list[Sample] = []
    parsed = 0
    for at, file in enumerate(files):
        if at == MAX_SAMPLE:
            return samples, len(files) - at
        is_markdown = file.lower().endswith(MARKDOWN)
        text = read_small(root, file, whole=not is_markdown)
        if text is not None and is_markdown:
            front = _FRONT.match(text)
            text = front[1] if front else None
        if text is None:
            continue
        parsed += len(text)
        if parsed > MAX_PARSED:
            return samples, len(files) - at
        with contextlib.suppress(NotYaml):
            samples.append(Sample(file, read_mapping(text)))
    return samples, 0


def read_small(root: str, file: str, *, whole: bool = True) -> str | None:
    """The text of a regular file of at most ``MAX_BYTES``, or its beginning if not ``whole``.

    None for anything else, a link included, and for what is not UTF-8. Line ends are ``\\n``.
    """
    try:
        opened = open_regular(os.path.join(root, file))
        if opened is None:
            return None
        with opened:
            data = read_up_to(opened, MAX_BYTES)
        cut = len(data) > MAX_BYTES
        if whole and cut:
            return None
        # What was cut off may be the rest of a character.
        text = codecs.getincrementaldecoder("utf-8-sig")().decode(data, final=not cut)
    except (OSError, ValueError):
        return None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_mapping(text: str) -> dict[str, Value]:
    """The fields of a YAML mapping as they are written; nothing is expanded. Raises NotYaml."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        events: Iterator[Any] = iter(yaml.parse(text, Loader=loader))
        _expect(events, "StreamStartEvent")
        _expect(events, "DocumentStartEvent")
        _expect(events, "MappingStartEvent")
        fields: dict[str, Value] = {}
        while (kind := _kind(event := next(events))) != "MappingEndEvent":
            if kind == "ScalarEvent":
                fields[event.value] = _value(events, next(events))
            else:
                _pass_over(events, event)
                _pass_over(events, next(events))
        _expect(events, "DocumentEndEvent")
        _expect(events, "StreamEndEvent")
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        # Where the end comes too early, the mark may lie behind it.
        raise NotYaml(min(mark.line, text.count("\n")) + 1 if mark else 1) from None
    except (ValueError, OverflowError, RecursionError) as error:
        raise error if isinstance(error, NotYaml) else NotYaml(1) from None
    return fields


def _kind(event: Any) -> str:
    return type(event).__name__


def _expect(events: Iterator[Any], kind: str) -> None:
    event = next(events)
    if _kind(event) != kind:
        raise NotYaml(event.start_mark.line + 1)


def _value(events: Iterator[Any], event: Any) -> Value:
    if _kind(event) == "ScalarEvent" and not (event.anchor or event.tag):
        return Value(() if _is_null(event) else (event.value,))
    if _kind(event) != "SequenceStartEvent" or event.anchor or event.tag:
        _pass_over(events, event)
        return Value(odd=True)
    texts, odd = [], False
    while _kind(event := next(events)) != "SequenceEndEvent":
        if _kind(event) != "ScalarEvent" or event.anchor or event.tag:
            _pass_over(events, event)
            odd = True
        elif not _is_null(event):
            texts.append(event.value)
    return Value(tuple(texts), is_list=True, odd=odd)


def _is_null(event: Any) -> bool:
    return event.style in (None, "") and event.value in _NULLS


def _pass_over(events: Iterator[Any], event: Any) -> None:
    depth = 0
    while True:
        kind = _kind(event)
        depth += kind in ("SequenceStartEvent", "MappingStartEvent")
        depth -= kind in ("SequenceEndEvent", "MappingEndEvent")
        if depth == 0:
            return
        if depth > MAX_DEPTH:  # the parser takes ever longer, the deeper it goes
            raise NotYaml(event.start_mark.line + 1)
        event = next(events)


def is_ignored(repository: Repository, file: str) -> bool:
    """Whether git ignores a file of the work tree that it does not track."""
    # With ./ before it a name is never magic; literal pathspecs this command does not know.
    words, env = ["check-ignore", "-q", "--", f"./{file}"], {"GIT_LITERAL_PATHSPECS": "0"}
    top = repository.toplevel or repository.git_dir
    return run_git(words, cwd=top, timeout=TIMEOUT, repository=True, env=env).code == 0
