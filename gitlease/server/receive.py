"""The server's judgement of one push: of the ledgers that it moves, and of the work that it brings.

It reads what git has put into quarantine and writes nothing at all. What refs are is read from
them: only what they shall be is the client's to say. In mode ``block`` whatever is illegal refuses
the whole push, and so does whatever could not be judged, for any reason: a lock server lets nothing
through that it did not understand. In mode ``warn`` everything goes on, and all of it is said.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from gitlease.core.edge import printable
from gitlease.core.errors import GitleaseError
from gitlease.core.frozen import dataclass
from gitlease.core.instant import rfc3339
from gitlease.core.moves.audit import Illegal, Pusher
from gitlease.core.resources.resource import GLOBAL_LAYER
from gitlease.engine.ports import Clock
from gitlease.git.query import ask_line
from gitlease.git.repository import Repository, discover
from gitlease.guard.rules import Severity
from gitlease.server.ledger import judge_ledger
from gitlease.server.lines import (
    MAX_LEDGERS,
    RefMove,
    is_ledger,
    layer_of,
    read_moves,
    split,
)
from gitlease.server.objects import bounded_memory, open_pushed
from gitlease.server.refs import ServerRefs, heads_of, read_refs
from gitlease.settings.server import (
    BLOCK,
    ServerSettings,
    project_settings,
    server_settings,
)
from gitlease.settings.sources import Settings
from gitlease.store.damage import CacheDamaged
from gitlease.store.records import HEADER_FILE

if TYPE_CHECKING:
    import pygit2

SHOWN = 10  # findings that are spelt out
HELD, FAULT = "held", "fault"
UNJUDGED = "whoever runs this server: see to gitlease there, for what is not judged is not accepted"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a ref may not move: the rule that it breaks, and what there is to know.

    ``ref`` is ``""`` for what concerns the whole push.
    """

    ref: str
    rule: str
    message: str
    hints: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a push comes to. ``blocked``: git must refuse all of it."""

    blocked: bool
    refusals: tuple[Refusal, ...] = ()
    warnings: tuple[str, ...] = ()


def receive(
    data: bytes,
    *,
    environ: Mapping[str, str] | None = None,
    clock: Clock,
    directory: str = ".",
) -> Verdict:
    """Judge a push by the lines of its pre-receive hook, in the environment that git gave it.

    Raises GitleaseError where the repository, its refs, or the settings of its hook cannot be used,
    and MemoryError.
    """
    environ = os.environ if environ is None else environ
    with bounded_memory():
        repository = discover(directory)
        settings = server_settings(repository)
        warnings: tuple[str, ...] = ()
        try:
            told = read_moves(data)
            project = project_settings(repository)
            # The project may have moved its ledgers since the hook was installed.
            prefixes = tuple(dict.fromkeys((settings.prefix, project[0].ref_prefix)))
            refs = read_refs(repository, told, prefixes)
            for later in prefixes[1:]:
                if work_there := _work_under(repository, refs, later):
                    prefixes, warnings = prefixes[:1], (_not_followed(later, work_there),)
            work = [RefMove(move.ref, refs.now(move.ref), move.new) for move in told]
            ledgers = list[RefMove]()
            for prefix in prefixes:
                found_there, work = split(work, prefix)
                ledgers += found_there
        except Illegal as refused:
            found = (Refusal("", refused.rule, refused.message, refused.hints),)
            return Verdict(settings.mode == BLOCK, found)
        refusals = [_stale(move.ref) for move in told if move.old != refs.now(move.ref)]
        context = _PushContext(
            repository, settings, project, prefixes, refs, environ, clock.now().wall_ms
        )
        # What is refused leaves the ledgers as they are, and has no more to be judged.
        if not refusals or settings.mode != BLOCK:
            refusals += context.judge_ledgers(ledgers)
        if not refusals or settings.mode != BLOCK:
            refusals += context.judge_work(work, ledgers)
        warnings += tuple(context.warnings)
        return Verdict(bool(refusals) and settings.mode == BLOCK, tuple(refusals), warnings)


def _stale(ref: str) -> Refusal:
    """What the client says of a ref is no longer so, or never was."""
    return Refusal(ref, "stale", "it has changed since this push began", ("fetch, and push again",))


def _work_under(repository: Repository, refs: ServerRefs, prefix: str) -> str | None:
    """A ref that lies where ledgers would and is none; None where there is no such ref."""
    found = [ref for ref in refs.ids if is_ledger(ref, prefix)]
    for ref in found[:MAX_LEDGERS]:
        if not ask_line(repository, "rev-parse", "-q", "--verify", f"{ref}:{HEADER_FILE}"):
            return ref
    return found[MAX_LEDGERS] if len(found) > MAX_LEDGERS else None


def _not_followed(prefix: str, ref: str) -> str:
    """Anybody may push a file that moves the ledgers: it must not keep others from their work."""
    return (
        f"the project has its ledgers under {prefix}, where {printable(ref)} is: not judged there"
    )


class _PushContext:
    """Judges the moves of one push."""

    def __init__(
        self,
        repository: Repository,
        settings: ServerSettings,
        project: tuple[Settings, str],
        prefixes: Sequence[str],
        refs: ServerRefs,
        environ: Mapping[str, str],
        now_ms: int,
    ) -> None:
        self._project, self._prefixes, self._refs = project, prefixes, refs
        self._repository, self._settings, self._environ = repository, settings, environ
        self._now = now_ms
        self._repo: pygit2.Repository | None = None
        self.warnings: list[str] = []

    def judge_ledgers(self, moves: Sequence[RefMove]) -> Iterator[Refusal]:
        """Why these ledgers may not move, one reason for each."""
        for move in moves:
            refusal = self._tried(partial(self._judge_ledger, move), move.ref)
            if refusal is not None:
                yield refusal

    def judge_work(self, moves: Sequence[RefMove], ledgers: Sequence[RefMove]) -> list[Refusal]:
        """What of the work others hold."""
        if not moves or self._settings.identity is None:
            return []  # without an identity nobody can tell whose work it is
        found: list[Refusal] = []
        refusal = self._tried(lambda: found.extend(self._judge_work(moves, ledgers)), "")
        return found if refusal is None else [refusal]

    def _judge_ledger(self, move: RefMove) -> None:
        prefix = next(x for x in self._prefixes if is_ledger(move.ref, x))
        layer_of(move.ref, prefix)
        judge_ledger(self._opened(), move, self._pusher(), self._now)

    def _judge_work(
        self, moves: Sequence[RefMove], ledgers: Sequence[RefMove]
    ) -> Iterator[Refusal]:
        from gitlease.server.work import FINDINGS, WorkGuard

        project, problem = self._project
        if problem:
            self.warnings.append(f"{problem}: tasks are looked for where they usually are")
        after = {move.ref: move.new for move in ledgers}
        layers = (GLOBAL_LAYER, project.layer)
        heads = [
            head
            for prefix in self._prefixes
            for head in heads_of(self._refs, layers, prefix, after)
        ]
        if not heads:
            return
        guard = WorkGuard(
            self._repository,
            project,
            self._opened(),
            heads,
            self._refs,
            pusher=self._worker(),
            now_ms=self._now,
        )
        guarded = guard.check(moves)
        self.warnings += guarded.warnings
        lines = []
        for finding in guarded.findings:
            lease, path = finding.lease, finding.path
            part = "" if lease.resource.text == path else f", under the lease of {lease.resource}"
            line = f"{path} is held by {lease.holder}{part}, until {rfc3339(lease.expires_at)}"
            if finding.severity is Severity.BLOCK:
                lines.append(line)
            else:
                self.warnings.append(line)
        # What one push deletes may come back in it as well, for whoever renames a branch.
        both = any(not move.new for move in moves) and any(move.new for move in moves)
        hints = ("push what is to stay first, and then delete the rest",) if both else ()
        for line in lines[:SHOWN]:
            yield Refusal("", HELD, line, hints)
        if len(lines) > SHOWN:
            more = len(lines) - SHOWN
            yield Refusal("", HELD, f"and {more if len(lines) < FINDINGS else 'many'} more")

    def _tried(self, act: Callable[[], object], ref: str) -> Refusal | None:
        """Why it is refused, if it is: what cannot be found out is a fault, and named so."""
        try:
            act()
        except Illegal as refused:
            return Refusal(ref, refused.rule, refused.message, refused.hints)
        except GitleaseError as error:
            return Refusal(ref, FAULT, error.message, (*error.hints, UNJUDGED))
        except CacheDamaged as error:
            return Refusal(ref, FAULT, str(error), (UNJUDGED,))
        except MemoryError:
            return Refusal(ref, "too-large", "it takes more memory than a judgement may have")
        except Exception as error:
            what = f"{type(error).__name__}: {error}".splitlines()[0]
            return Refusal(ref, FAULT, f"internal error: {what}", (UNJUDGED,))
        return None

    def _pusher(self) -> Pusher:
        try:
            return self._settings.pusher(self._environ)
        except GitleaseError as error:
            raise Illegal("identity", error.message, hints=error.hints) from None

    def _worker(self) -> Pusher:
        """Whose work it is; whoever this server does not know holds nothing."""
        try:
            return self._pusher()
        except Illegal as unknown:
            self.warnings.append(unknown.message)
            return Pusher((), "somebody")

    def _opened(self) -> pygit2.Repository:
        if self._repo is None:
            self._repo = open_pushed(self._repository.git_dir, self._environ)
        return self._repo
