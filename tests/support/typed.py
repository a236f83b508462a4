"""A person at a clone, in this process: command lines, and what their answers say to type next."""

from __future__ import annotations

import io
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gitlease.agents import background, handling
from gitlease.agents.opening import AgentContext, open_for_agent
from gitlease.cli.app import run
from gitlease.wiring.workspace import Workspace, open_workspace
from support.clock import ManualClock

# A command within a text ends where the text goes on: at a remark, a stop, a word of what it does,
# or the end of the line.
_COMMAND = re.compile(r"\bgitlease [a-z](?:(?! (?:says|shows|explains) )[^\n;#()])*")
# A word in capitals stands for what the reader puts there.
_PLACE = re.compile(r"\b[A-Z]{3,}\b")


def commands_in(text: str) -> tuple[str, ...]:
    """Every command of gitlease that a text says to type, as it is printed there."""
    found = (match.group().split(", ")[0].strip(" .") for match in _COMMAND.finditer(text))
    return tuple(dict.fromkeys(x for x in found if not _PLACE.search(x)))


@dataclass(frozen=True)
class Typed:
    """What became of a command line."""

    line: str
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The document on standard output."""
        return json.loads(self.out)

    @property
    def hints(self) -> tuple[str, ...]:
        """The commands that it says to type next."""
        told = [x.removeprefix("hint: ") for x in self.err.splitlines() if x.startswith("hint: ")]
        return tuple(x for text in told for x in commands_in(text))


class _Stream(io.TextIOWrapper):
    """A stream that takes text and bytes, as a real one does."""

    def __init__(self) -> None:
        self._bytes = io.BytesIO()
        super().__init__(self._bytes, encoding="utf-8", newline="", write_through=True)

    def said(self) -> str:
        """All that was written."""
        return self._bytes.getvalue().decode("utf-8")


@dataclass
class Typist:
    """Whoever types in one clone, by one clock; ``env`` is all that their shell has set."""

    clone: Path
    clock: ManualClock
    env: dict[str, str] = field(default_factory=dict)

    def open(self, directory: str, **options: Any) -> Workspace:
        """The clone as it is for whoever types there."""
        place = str(self.clone / directory)
        return open_workspace(place, environ=self.env, clock=self.clock, **options)

    def types(self, line: str, *, env: Mapping[str, str] | None = None) -> Typed:
        """Type a command, with or without ``gitlease`` before it."""
        before, self.env = self.env, {**self.env, **(env or {})}
        out, err = _Stream(), _Stream()
        words = shlex.split(line, comments=True)
        try:
            with chdir(self.clone), redirect_stdout(out), redirect_stderr(err):
                code = run(words[words[0] == "gitlease" :], opener=self.open)
        finally:
            self.env = before
        return Typed(line, code, out.said(), err.said())

    def ok(self, line: str, *, env: Mapping[str, str] | None = None) -> Typed:
        """Type one that must succeed."""
        typed = self.types(line, env=env)
        assert typed.code == 0, typed
        return typed

    def accepts(self, command: str) -> Typed:
        """Type a command back as it was printed: it must do what it says.

        A wait may run out, and a claim that waits with it; everything else succeeds.
        """
        typed = self.types(command)
        verb, *words = shlex.split(command)[1:]
        waits = verb == "wait" or (verb == "claim" and "--wait" in words)
        assert typed.code in ((0, 1) if waits else (0,)), (command, typed)
        return typed


@dataclass
class Agent:
    """A coding agent at work in a clone: its events, handled as its host would have them handled.

    What its hooks leave to the background is done at once.
    """

    at: Typist
    session: str = "5b1f0c2e-0000"
    host: str = "claude"
    later: list[tuple[list[str], str]] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The session of its leases."""
        return f"{self.host}:{self.session[:8]}"

    @property
    def terminal(self) -> Mapping[str, str]:
        """What its terminal has set."""
        return {"CLAUDE_CODE_SESSION_ID": self.session}

    def sends(self, event: str, **data: Any) -> str:
        """All that is answered to one event, as one text."""
        given = {"session_id": self.session, "cwd": str(self.at.clone), **data}
        answer, _ = handling.handle(
            (self.host, event),
            json.dumps(given).encode(),
            opener=self._open,
            start=self._background,
            now=lambda: self.at.clock.wall_ms / 1_000,
        )
        said = (answer or {}).get("hookSpecificOutput", {})
        return "\n".join(str(text) for name, text in said.items() if name != "hookEventName")

    def uses_a_tool(self) -> str:
        """What it is told after a tool that edits nothing."""
        return self.sends("after-tool")

    def a_minute_later(self) -> None:
        """Let the ends take effect that waited for a conversation that continues them."""
        self.at.clock.advance(61)
        while self.later:
            words, cwd = self.later.pop()

            def opened(_: str, *, session: str, at: str = cwd) -> Workspace:
                env, clock = self.at.env, self.at.clock
                return open_workspace(at, session=session, environ=env, clock=clock)

            background.release_pending(words, opened)

    def edits(self, path: str) -> str:
        """What it is told before it edits a file."""
        return self.sends("before-edit", tool_input={"file_path": str(self.at.clone / path)})

    def _open(self, directory: str, **who: Any) -> AgentContext | None:
        return open_for_agent(directory, environ=self.at.env, clock=self.at.clock, **who)

    def _background(self, words: Sequence[str], *, cwd: str) -> bool:
        def opened(_: str, *, session: str | None = None) -> Workspace:
            return open_workspace(cwd, session=session, environ=self.at.env, clock=self.at.clock)

        if words[2] == handling.LOOK:
            background.look(opened, cwd)
            return True
        if words[2] == handling.END_LATER:
            self.later.append((list(words[3:]), cwd))
            return True
        act = background.renew if words[2] == handling.RENEW else background.release
        act(words[3:], opened)
        return True
