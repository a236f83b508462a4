"""The server's judgement of one push: of the ledgers that it moves, and of the work that it brings.

It reads what git has put into quarantine and writes nothing at all. In mode ``block`` whatever is
illegal refuses the whole push, and so does a fault of our own where a ledger would move: a lock
server lets nothing through that it did not understand. Work is not held up by such a fault: it goes
on, and that is said. In mode ``warn`` everything goes on, and all of it is said.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from gitlease.adapters.asking import ask
from gitlease.adapters.receive_ledger import judge_ledger
from gitlease.adapters.receive_lines import (
    MAX_LEDGERS,
    RefMove,
    is_ledger,
    layer_of,
    read_moves,
    split,
)
from gitlease.adapters.receive_objects import PushedObjects, bounded_memory
from gitlease.adapters.records import HEADER_FILE
from gitlease.adapters.repository import Repository, discover
from gitlease.adapters.server_settings import (
    BLOCK,
    ServerSettings,
    project_settings,
    server_settings,
)
from gitlease.adapters.settings import Settings
from gitlease.domain.audit import Illegal, Pusher
from gitlease.domain.audit_values import quoted
from gitlease.domain.errors import CacheDamaged, GitleaseError
from gitlease.domain.frozen import dataclass
from gitlease.domain.guard import Severity
from gitlease.domain.instant import rfc3339
from gitlease.domain.resource import GLOBAL_LAYER
from gitlease.ports import Clock

SHOWN = 10  # findings that are spelt out
HELD, FAULT = "held", "fault"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a ref may not move: the rule that it breaks, and what there is to know.

    ``ref`` is ``""`` for what concerns the whole push. ``stops`` is False for a fault that only
    work is touched by.
    """

    ref: str
    rule: str
    message: str
    hints: tuple[str, ...] = ()
    stops: bool = True


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

    Raises GitleaseError where the repository or the settings of its hook cannot be used.
    """
    environ = os.environ if environ is None else environ
    with bounded_memory():
        repository = discover(directory)
        settings = server_settings(repository)
        try:
            work, ledgers = read_moves(data), list[RefMove]()
            project = project_settings(repository)
            # The project may have moved its ledgers since the hook was installed.
            prefixes: tuple[str, ...] = (settings.prefix,)
            warnings: tuple[str, ...] = ()
            if (later := project[0].ref_prefix) != settings.prefix:
                work_there = _work_under(repository, later)
                prefixes = (*prefixes, later) if work_there is None else prefixes
                warnings += (_not_followed(later, work_there),) if work_there else ()
            for prefix in prefixes:
                found_there, work = split(work, prefix)
                ledgers += found_there
        except Illegal as refused:
            found = (Refusal("", refused.rule, refused.message, refused.hints),)
            return Verdict(settings.mode == BLOCK, found)
        bench = _Bench(repository, settings, project, prefixes, environ, clock.now().wall_ms)
        refusals = [*bench.judge_ledgers(ledgers)]
        if not refusals or settings.mode != BLOCK:  # else the ledgers stay as they are
            refusals += bench.judge_work(work, ledgers)
        stops = any(refusal.stops for refusal in refusals)
        warnings += tuple(bench.warnings)
        return Verdict(stops and settings.mode == BLOCK, tuple(refusals), warnings)


def _work_under(repository: Repository, prefix: str) -> str | None:
    """A ref that lies where ledgers would and is none; None where there is no such ref."""
    said = ask(repository, "for-each-ref", "--format=%(refname)")
    refs = os.fsdecode(said.out).splitlines()
    found = [ref for ref in refs if is_ledger(ref, prefix)]
    for ref in found[:MAX_LEDGERS]:
        if ask(repository, "cat-file", "-e", f"{ref}:{HEADER_FILE}").code != 0:
            return ref
    return found[MAX_LEDGERS] if len(found) > MAX_LEDGERS else None


def _not_followed(prefix: str, ref: str) -> str:
    """Anybody may push a file that moves the ledgers: it must not keep others from their work."""
    return f"the project has its ledgers under {prefix}, where {quoted(ref)} is: not judged there"


class _Bench:
    """Judges the moves of one push."""

    def __init__(
        self,
        repository: Repository,
        settings: ServerSettings,
        project: tuple[Settings, str],
        prefixes: Sequence[str],
        environ: Mapping[str, str],
        now_ms: int,
    ) -> None:
        self._project, self._prefixes = project, prefixes
        self._repository, self._settings, self._environ = repository, settings, environ
        self._now = now_ms
        self._objects: PushedObjects | None = None
        self.warnings: list[str] = []

    def judge_ledgers(self, moves: Sequence[RefMove]) -> Iterator[Refusal]:
        """Why these ledgers may not move, one reason for each."""
        for move in moves:
            refusal = self._tried(partial(self._judge_ledger, move), move.ref)
            if refusal is not None:
                yield refusal

    def judge_work(self, moves: Sequence[RefMove], ledgers: Sequence[RefMove]) -> list[Refusal]:
        """What of the work others hold; a fault of our own does not stop it."""
        if not moves:
            return []
        if self._settings.identity is None:
            return []  # nobody can tell whose work it is
        found: list[Refusal] = []
        refusal = self._tried(lambda: found.extend(self._judge_work(moves, ledgers)), "")
        if refusal is None:
            return found
        stops = refusal.rule != FAULT
        return [Refusal(refusal.ref, refusal.rule, refusal.message, refusal.hints, stops)]

    def _judge_ledger(self, move: RefMove) -> None:
        prefix = next(x for x in self._prefixes if is_ledger(move.ref, x))
        layer_of(move.ref, prefix)
        judge_ledger(self._opened(), move, self._pusher(), self._now)

    def _judge_work(
        self, moves: Sequence[RefMove], ledgers: Sequence[RefMove]
    ) -> Iterator[Refusal]:
        from gitlease.adapters.receive_work import WorkGuard, heads_after

        project, problem = self._project
        if problem:
            self.warnings.append(f"{problem}: tasks are looked for where they usually are")
        after = {move.ref: move.new for move in ledgers}
        layers = (GLOBAL_LAYER, project.layer)
        heads = [
            head
            for prefix in self._prefixes
            for head in heads_after(self._repository, layers, prefix, after)
        ]
        if not heads:
            return
        guard = WorkGuard(
            self._repository,
            project,
            self._opened(),
            heads,
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
        for line in lines[:SHOWN]:
            yield Refusal("", HELD, line)
        if len(lines) > SHOWN:
            yield Refusal("", HELD, f"and {len(lines) - SHOWN} more")

    def _tried(self, act: Callable[[], object], ref: str) -> Refusal | None:
        """Why it is refused, if it is: what cannot be found out is a fault, and named so."""
        try:
            act()
        except Illegal as refused:
            return Refusal(ref, refused.rule, refused.message, refused.hints)
        except CacheDamaged as error:
            return Refusal(ref, FAULT, error.message, error.hints)
        except GitleaseError as error:
            return Refusal(ref, FAULT, error.message, error.hints)
        except MemoryError:
            return Refusal(ref, "too-large", "it takes more memory than a judgement may have")
        except Exception as error:
            what = f"{type(error).__name__}: {error}".splitlines()[0]
            return Refusal(ref, FAULT, f"internal error: {what}")
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

    def _opened(self) -> PushedObjects:
        if self._objects is None:
            self._objects = PushedObjects(self._repository.git_dir, self._environ)
        return self._objects
