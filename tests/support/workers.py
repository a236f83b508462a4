"""Long-lived worker processes: each imports gitlease once and runs one command line per round."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from support.fences import clean_env

ROOT = Path(__file__).parents[2]

_WORKER = """\
import contextlib, io, json, os, sys
import yaml
from gitlease.faces.cli.app import run
inbox, outbox = sys.stdin, os.fdopen(os.dup(1), "w")
print("ready", file=outbox, flush=True)
for line in inbox:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = run(json.loads(line))
    answer = {"exit": status, "out": out.getvalue(), "err": err.getvalue()}
    print(json.dumps(answer), file=outbox, flush=True)
"""


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
    """Worker processes, one for each set of fixed words and variables they were made with."""

    def __init__(self, made: Iterable[tuple[Sequence[str], Mapping[str, str]]]) -> None:
        self._stack = ExitStack()
        self._words: list[Sequence[str]] = []
        self._processes: list[subprocess.Popen[str]] = []
        for words, env in made:
            process = subprocess.Popen(
                [sys.executable, "-c", _WORKER],
                env={**clean_env(env), "PYTHONPATH": str(ROOT)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            self._words.append(words)
            self._processes.append(self._stack.enter_context(process))
        for process in self._processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
        self._stack.close()

    def __len__(self) -> int:
        return len(self._processes)

    def at_once(self, lines: Sequence[Sequence[str]]) -> list[Answer]:
        """Give every worker its command line at the same moment; their answers in order."""
        sent = [
            json.dumps([*line, "--json", *fixed]) + "\n"
            for line, fixed in zip(lines, self._words, strict=True)
        ]
        for process, text in zip(self._processes, sent, strict=True):
            assert process.stdin is not None
            process.stdin.write(text)
        for process in self._processes:  # what was written lies ready: this is the start
            assert process.stdin is not None
            process.stdin.flush()
        found = []
        for process in self._processes:
            assert process.stdout is not None
            said = json.loads(process.stdout.readline())
            text = said["out"] or said["err"]
            assert text.startswith("{"), said
            found.append(Answer(said["exit"], json.loads(said["out"]), said["err"]))
        return found

    def all(self, *line: str) -> list[Answer]:
        """The same command line for every worker."""
        return self.at_once([line] * len(self))

    def one(self, number: int, *line: str) -> Answer:
        """A command line for one worker alone."""
        process = self._processes[number]
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps([*line, "--json", *self._words[number]]) + "\n")
        process.stdin.flush()
        said = json.loads(process.stdout.readline())
        return Answer(said["exit"], json.loads(said["out"]), said["err"])
