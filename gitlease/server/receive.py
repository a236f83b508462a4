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

from gitlease.core.edge import printable
from gitlease.core.errors import GitleaseError
from gitlease.core.frozen import dataclass
from gitlease.core.instant import rfc3339
from gitlease.core.moves.audit import Illegal, Pusher
from gitlease.core.resources.resource import GLOBAL_LAYER
from gitlease.engine.ports import Clock
from gitlease.git.objects import GitObjects
from gitlease.git.query import ask_line
from gitlease.git.repository import Repository, discover
from gitlease.guard.rules import Severity
from gitlease.server.ledger import judge_ledger
from gitlease.server.lines import MAX_LEDGERS, RefMove, is_ledger, layer_of, read_moves, split
from gitlease.server.objects import bounded_memory, open_pushed
from gitlease.server.refs import heads_of, read_refs
from gitlease.settings.server import BLOCK, ServerSettings, project_settings, server_settings
from gitlease.store.damage import CacheDamaged
from gitlease.store.records import HEADER_FILE

SHOWN = 10  # findings that are spelt out
HELD, FAULT = "held", "fault"
FETCH = "fetch, and push again"
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
class PushVerdict:
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
) -> PushVerdict:
    """Judge a push by the lines of its pre-receive hook, in the environment that git gave it.

    Raises GitleaseError where the repository, its refs, or the settings of its hook cannot be used,
    and MemoryError.
    """
    environ = os.environ if environ is None else environ
    with bounded_memory():
        repository = discover(directory)
        settings = server_settings(repository)
        blocks = settings.mode == BLOCK
        try:
            push = _Push(repository, settings, read_moves(data), environ, clock.now().wall_ms)
        except Illegal as refused:
            return PushVerdict(blocks, (_refusal("", refused),))
        # What is refused leaves the ledgers as they are, and has no more to be judged.
        refusals = push.stale()
        if not refusals or not blocks:
            refusals += push.judge_ledgers()
        if not refusals or not blocks:
            refusals += push.judge_work()
        return PushVerdict(bool(refusals) and blocks, tuple(refusals), tuple(push.warnings))


def _refusal(ref: str, refused: Illegal) -> Refusal:
    return Refusal(ref, refused.rule, refused.message, refused.hints)


class _Push:
    """One push that is judged. Raises Illegal where it cannot be told what it moves."""

    def __init__(
        self,
        repository: Repository,
        settings: ServerSettings,
        told: Sequence[RefMove],
        environ: Mapping[str, str],
        now_ms: int,
    ) -> None:
        self._repository, self._settings, self._told = repository, settings, told
        self._environ, self._now = environ, now_ms
        self._objects: GitObjects | None = None
        self.warnings: list[str] = []
        self._project, self._problem = project_settings(repository)
        # The project may have moved its ledgers since the hook was installed.
        prefixes = list(dict.fromkeys((settings.prefix, self._project.ref_prefix)))
        self._refs = read_refs(repository, told, prefixes)
        for later in prefixes[1:]:
            if there := self._work_under(later):
                # Anybody may push a file that moves them: it must not keep others from their work.
                prefixes.remove(later)
                self.warnings.append(
                    f"the project has its ledgers under {later}, where {printable(there)} is: "
                    "not judged there"
                )
        self._prefixes = prefixes
        self._work = [RefMove(x.ref, self._refs.now(x.ref), x.new) for x in told]
        self._ledgers = list[RefMove]()
        for prefix in prefixes:
            found, self._work = split(self._work, prefix)
            self._ledgers += found

    def _work_under(self, prefix: str) -> str | None:
        """A ref that lies where ledgers would and is none; None where there is no such ref."""
        found = [ref for ref in self._refs.ids if is_ledger(ref, prefix)]
        for ref in found[:MAX_LEDGERS]:
            if not ask_line(
                self._repository, "rev-parse", "-q", "--verify", f"{ref}:{HEADER_FILE}"
            ):
                return ref
        return found[MAX_LEDGERS] if len(found) > MAX_LEDGERS else None

    def stale(self) -> list[Refusal]:
        """The refs of which what the client says is no longer so, or never was."""
        return [
            Refusal(x.ref, "stale", "it has changed since this push began", (FETCH,))
            for x in self._told
            if x.old != self._refs.now(x.ref)
        ]

    def judge_ledgers(self) -> Iterator[Refusal]:
        """Why ledgers may not move, one reason for each."""
        for move in self._ledgers:
            refusal = self._tried(partial(self._judge_ledger, move), move.ref)
            if refusal is not None:
                yield refusal

    def judge_work(self) -> list[Refusal]:
        """What of the work others hold."""
        if not self._work or self._settings.identity is None:
            return []  # without an identity nobody can tell whose work it is
        found: list[Refusal] = []
        refusal = self._tried(lambda: found.extend(self._judge_work()), "")
        return found if refusal is None else [refusal]

    def _judge_ledger(self, move: RefMove) -> None:
        prefix = next(x for x in self._prefixes if is_ledger(move.ref, x))
        layer_of(move.ref, prefix)
        judge_ledger(self._opened(), move, self._pusher(), self._now)

    def _judge_work(self) -> Iterator[Refusal]:
        from gitlease.server.work import FINDINGS, WorkGuard

        if self._problem:
            self.warnings.append(f"{self._problem}: tasks are looked for where they usually are")
        after = {move.ref: move.new for move in self._ledgers}
        layers = (GLOBAL_LAYER, self._project.layer)
        heads = heads_of(self._refs, layers, self._prefixes, after)
        if not heads:
            return
        guard = WorkGuard(
            self._repository,
            self._project,
            self._opened(),
            heads,
            self._refs,
            pusher=self._worker(),
            now_ms=self._now,
        )
        guarded = guard.check(self._work)
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
        both = len({bool(move.new) for move in self._work}) == 2
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
            return _refusal(ref, refused)
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

    def _opened(self) -> GitObjects:
        if self._objects is None:
            self._objects = open_pushed(self._repository.git_dir, self._environ)
        return self._objects
