"""A workspace in memory, on a manual clock, and a way to run the command line in it."""

from __future__ import annotations

import io
import json
import os
import re
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

from support.clock import ManualClock
from support.documents import held_to_schema
from support.memory import MemoryClone
from support.session import LeaseService, ledger_session
from support.tasks import MemoryTasks

from gitlease.cli.app import run
from gitlease.guard.notes import CarriedLeases
from gitlease.kernel.ledger.edges import EdgeRules
from gitlease.kernel.ledger.ports import TaskList
from gitlease.kernel.rules.edge import Task
from gitlease.kernel.rules.errors import NotFound
from gitlease.kernel.rules.lease import Actor
from gitlease.kernel.settings.identity import Identity
from gitlease.kernel.store.git_ledger import RefLedgerStore, StorePlace
from gitlease.kernel.store.memory import MemoryStorage
from gitlease.tasks.queue import TaskQueue

NOON = 1_795_176_000_000  # 2026-11-20T12:00:00Z


class DeskStore(RefLedgerStore):
    """The ledgers of all desks, in memory."""

    in_memory = True

    def __init__(self, clock: ManualClock) -> None:
        self.remote = DeskRemote()
        super().__init__(StorePlace(self.remote, MemoryClone().state, "origin (memory)"), clock)


class DeskRemote(MemoryStorage):
    """Counts how often the remote would be asked."""

    asked = 0

    def ask(self) -> None:
        self.asked += 1
        super().ask()


@dataclass
class DeskTasks(MemoryTasks):
    """The task files on one desk; ``refs`` has those of other places than the work tree."""

    refs: dict[str, tuple[Task, ...]] = field(default_factory=dict)

    def read(self, ref: str | None = None) -> TaskList:
        if ref is None:
            return super().read()
        if ref not in self.refs:
            raise NotFound(f"there is no ref {ref}", hints=("fetch it first",))
        return TaskList(self.refs[ref])


@dataclass
class Ran:
    """How a command line ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The document on standard output, which must be all that is there."""
        return held_to_schema(json.loads(self.out))


@dataclass
class Desk:
    """One worker's seat: a clone of the fake remote in which command lines are run."""

    store: DeskStore
    clock: ManualClock
    holder: str = "ada@example.com"
    session: str | None = None
    host: str | None = "laptop"
    branch: str | None = "main"
    folder: str = ""
    toplevel: str | None = None
    default_ttl: int = 900
    private: str = os.devnull
    opened: list[dict[str, Any]] = field(default_factory=list)
    settings: tuple[Any, ...] = ()
    tasks: DeskTasks = field(default_factory=DeskTasks)

    def open(self, directory: str, **options: Any) -> Any:
        """Stand in for ``bootstrap.open_workspace``."""
        self.opened.append({"directory": directory, **options})
        session = options["session"] or (None if options["no_session"] else self.session)
        actor = Actor(
            holder=self.holder,
            session=session,
            session_explicit=options["session"] is not None,
            host=self.host,
            branch=self.branch,
        )
        layer = "local" if options["local"] else options["layer"] or "global"
        service = LeaseService(
            ledger_session(
                self.store,
                clock=self.clock,
                actor=actor,
                layer=layer,
                files=self.tasks,
                rules=self.tasks.rules,
                default_ttl=self.default_ttl,
            )
        )
        space = SimpleNamespace(
            repository=SimpleNamespace(
                folder=self.folder,
                toplevel=self.toplevel,
                common_dir="/nowhere",
                remote_names=tuple,
                config=SimpleNamespace(get=lambda key: None),
            ),
            settings=SimpleNamespace(
                table=lambda: self.settings, landing_release="never", warnings=(), found={}
            ),
            location=SimpleNamespace(name=None, url=None, ways=None),
            identity=Identity(
                actor,
                "git config (local: .git/config) user.email",
                "flag --session" if options["session"] else "none",
            ),
            actor=actor,
            again=lambda **_run: self.open(directory, **options),
            layer=layer,
            ledger=service.session,
            carried=CarriedLeases(self.private, self.holder, session),
        )
        chosen = options["local"] or options["layer"] or options.get("alone")
        others = () if chosen else sorted({"global", *self.store.remote.heads} - {layer})
        space.in_use = (
            space,
            *(self.open(directory, **{**options, "layer": x, "alone": True}) for x in others),
        )
        space.queue = TaskQueue(service.session, lambda: [x.ledger for x in space.in_use[1:]])
        return space

    def run(self, *argv: str, prog: str = "gitlease", terminal: bool = False) -> Ran:
        """Run one command line here."""
        out, err = _Stream(terminal), _Stream(terminal)
        with redirect_stdout(out), redirect_stderr(err):
            code = run(argv, prog=prog, opener=self.open)
        return Ran(code, out.getvalue(), err.getvalue())

    def ok(self, *argv: str, **options: Any) -> Ran:
        """Run one that must succeed."""
        ran = self.run(*argv, **options)
        assert ran.code == 0, ran
        return ran


class _Stream(io.StringIO):
    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


def make_desks(*tasks: Task, rules: EdgeRules | None = None) -> tuple[Desk, Desk]:
    """Ada's and Bob's desks, on one remote and under one clock, at noon.

    Each has these task files in a clone of its own.
    """
    clock = ManualClock(wall_ms=NOON)
    store = DeskStore(clock)

    def files() -> DeskTasks:
        return DeskTasks({t.file: t for t in tasks}, rules=rules or EdgeRules())

    ada = Desk(store, clock, tasks=files())
    bob = replace(
        ada, holder="bob@example.com", host="desktop", branch="topic", opened=[], tasks=files()
    )
    return ada, bob


def words(value: object) -> str | None:
    """The id of a test's command line; anything else is left to pytest."""
    return " ".join(value) if isinstance(value, tuple) else None


def shown(desk: Desk, *argv: str) -> str:
    """What a terminal shows, without its colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", desk.ok(*argv, terminal=True).out)
