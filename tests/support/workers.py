"""People and sessions who type at the same moment."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.commands import run_gitlease


@dataclass(frozen=True)
class Answer:
    """How one command line ended; ``document`` is its JSON."""

    exit: int
    document: dict[str, Any]
    err: str

    @property
    def code(self) -> str | None:
        """The error's code, None when it succeeded."""
        return None if self.document.get("ok") else str(self.document["error"]["code"])


class Workers:
    """One for each set of fixed words and variables that they were made with."""

    def __init__(self, made: Iterable[tuple[Sequence[str], Mapping[str, str]]]) -> None:
        self._made = [*made]
        self._threads = ThreadPoolExecutor(len(self._made))

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown()

    def at_once(self, lines: Iterable[Sequence[str]]) -> list[Answer]:
        """Have every worker type its command line at the same moment; their answers in order."""
        return [*self._threads.map(self._ask, range(len(self._made)), lines)]

    def all(self, *line: str) -> list[Answer]:
        """The same command line for every worker."""
        return self.at_once([line] * len(self._made))

    def one(self, number: int, *line: str) -> Answer:
        """A command line for one worker alone."""
        return self._ask(number, line)

    def _ask(self, number: int, line: Sequence[str]) -> Answer:
        words, env = self._made[number]
        done = run_gitlease([*line, "--json", *words], Path.cwd(), env)
        assert done.stdout.startswith("{"), done
        return Answer(done.returncode, json.loads(done.stdout), done.stderr)
