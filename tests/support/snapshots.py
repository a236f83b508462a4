"""Sentences, held word by word in ``snapshots/`` beside the tests, and nowhere else.

``check_words(error)`` compares what a test has in hand with its snapshot. After a change of
words ``python tests/record.py words PATH…`` writes the snapshots of these tests anew: read
their diff as you would read the code's.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pytest

from support.recording import how_to_record

E = TypeVar("E", bound=BaseException)
TEST, PART = "===== ", "-----"
Sections = dict[str, list[str]]


class _Running:
    """The test that runs, and how many texts of it were compared."""

    def __init__(self) -> None:
        self.item: pytest.Item | None = None
        self.texts: list[str] = []


_running = _Running()


def check_words(value: object) -> None:
    """Hold what a command, a refusal or a list of messages says to its snapshot."""
    item = _running.item
    assert item is not None, "only tests have snapshots"
    text = _without_place(as_text(value), item)
    _running.texts.append(text)
    if item.config.getoption("--record"):
        return
    snapshot = _expected(item)
    at = len(_running.texts) - 1
    way = how_to_record("words", item.nodeid.partition("[")[0])
    assert at < len(snapshot), f"in no snapshot ({way}):\n{text}"
    expected = snapshot[at]
    if isinstance(value, set | frozenset):  # which has no order to be held
        text, expected = ("\n".join(sorted(x.splitlines())) for x in (text, expected))
    assert text == expected, way


@contextlib.contextmanager
def raises(kind: type[E] | tuple[type[E], ...]) -> Iterator[pytest.ExceptionInfo[E]]:
    """Expect an error of a kind; its message, subject and hints are as in the snapshot."""
    with pytest.raises(kind) as caught:
        yield caught
    check_words(caught.value)


def compare(item: pytest.Item) -> Iterator[None]:
    """Run a test: what its snapshot has more than it compared is an error too."""
    _running.item, _running.texts = item, []
    try:
        yield
    finally:
        _running.item = None
    if item.config.getoption("--record"):
        _fresh.setdefault(_file(item), {})[_test(item)] = _running.texts
    elif _running.texts:
        way = how_to_record("words", item.nodeid.partition("[")[0])
        what = f"the snapshot has more than this test: {way}"
        assert len(_running.texts) == len(_expected(item)), what


def as_text(value: Any) -> str:
    """The words of a value, a line each."""
    if isinstance(value, str):
        return value
    if isinstance(value, BaseException):
        subject = [getattr(value, name, None) for name in ("resource", "scope", "holder")]
        about = [type(value).__name__, *(x for x in subject if x)]
        hints = [f"hint: {hint}" for hint in getattr(value, "hints", ())]
        return "\n".join([" ".join(about), str(value), *hints])
    if isinstance(value, Mapping):
        return "\n".join(f"{key}: {as_text(part)}" for key, part in value.items())
    if isinstance(value, Iterable):
        return "\n".join(as_text(part) for part in value)
    return repr(value)


def cleaned(text: str) -> str:
    """A text without times, spans, ids and the name of this machine."""
    for pattern, word in (
        (r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME"),
        (r"\b\d\d:\d\d:\d\dZ?", "TIME"),  # with its date where that is not today
        (r"\b(\d+h)?(\d+m)?\d+s\b|\b(\d+h)?\d+m\b|\b\d+h\b", "SPAN"),
        (r"\b[0-9a-f]{16,64}\b", "HEX"),
        (rf"\b{re.escape(socket.gethostname())}\b", "HOST"),
        (r"[ \t]+", " "),
    ):
        text = re.sub(pattern, word, text)
    return text


def _without_place(text: str, item: pytest.Item) -> str:
    folder = getattr(item, "funcargs", {}).get("tmp_path")
    for place in {str(folder), os.path.realpath(folder)} if folder else ():
        text = text.replace(place, "FOLDER")
    text = re.sub(r"\bcommit [0-9a-f]{10}\b", "commit HEX", text)
    return re.sub(rf"\bon {re.escape(socket.gethostname())}\b", "on HOST", text)


def _test(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[2]


def _file(item: pytest.Item) -> Path:
    return item.path.parent / "snapshots" / f"{item.path.stem}.txt"


def _expected(item: pytest.Item) -> list[str]:
    """The texts of a test, else those that all variants of it share."""
    sections, test = _sections(_file(item)), _test(item)
    return sections.get(test, sections.get(test.partition("[")[0], []))


@functools.cache
def _sections(file: Path) -> Sections:
    return _read(file)


def _read(file: Path) -> Sections:
    sections: Sections = {}
    parts: list[str] = []
    lines: list[str] = []
    if not file.exists():
        return sections
    for line in file.read_text(encoding="utf-8").split("\n"):
        if line.startswith(TEST):
            parts = sections[line.removeprefix(TEST)] = []
        elif line == PART:
            parts.append("\n".join(lines))
            lines = []
        else:
            lines.append(line)
            continue
        lines = []
    return sections


_fresh: dict[Path, Sections] = {}


def write_all() -> None:
    """Put the fresh texts of this process among those that are there."""
    for file, fresh in _fresh.items():
        if file.exists() or any(fresh.values()):
            file.parent.mkdir(exist_ok=True)
            folder = os.open(file.parent, os.O_RDONLY)
            fcntl.flock(folder, fcntl.LOCK_EX)
            _write(file, _joined(_read(file), fresh))
            os.close(folder)


def _joined(old: Sections, fresh: Sections) -> Sections:
    """The sections in order; what all variants of a test share stands once, by its name alone."""
    sections = old | fresh
    for test in {name.partition("[")[0] for name in fresh if "[" in name}:
        variants = {x: y for x, y in sections.items() if x.startswith(f"{test}[")}
        texts = list(variants.values())
        if len(texts) > 1 and all(x == texts[0] for x in texts):
            sections[test] = texts[0]
        elif sections.get(test) not in texts:
            sections.pop(test, None)
        for name, text in variants.items():
            if text == sections.get(test):
                del sections[name]
    return {name: texts for name, texts in sorted(sections.items()) if texts}


def _write(file: Path, sections: Sections) -> None:
    if not sections:
        file.unlink(missing_ok=True)
        return
    lines = []
    for name, texts in sections.items():
        lines.append(TEST + name)
        for text in texts:
            lines += [text, PART]
    file.write_text("\n".join([*lines, ""]), encoding="utf-8")
