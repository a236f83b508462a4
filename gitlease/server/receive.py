"""The server's judgement of one push: of the ledgers that it moves, and of the work that it brings.

It reads git's quarantine and writes nothing at all. In mode ``block`` anything illegal refuses the
whole push, and so does anything that could not be judged. In mode ``warn`` everything passes with
warnings.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import islice
from typing import TYPE_CHECKING

from gitlease.kernel.git.files import Unreadable
from gitlease.kernel.git.objects import (
    GitObjects,
    PipedObjects,
    TooLarge,
    TreeEntry,
    read_tree,
)
from gitlease.kernel.git.repository import (
    OFFLINE,
    Pieces,
    Repository,
    ask,
    ask_line,
    discover,
    is_id,
)
from gitlease.kernel.ledger.ports import Clock
from gitlease.kernel.rules.edge import printable
from gitlease.kernel.rules.errors import GitleaseError, Invalid, hint
from gitlease.kernel.rules.frozen import dataclass
from gitlease.kernel.rules.instant import rfc3339
from gitlease.kernel.rules.lease import History
from gitlease.kernel.rules.moves.transitions import (
    NEWER,
    Applied,
    Illegal,
    Pusher,
    StepRecord,
    judge,
    refused,
)
from gitlease.kernel.rules.resources import GLOBAL_LAYER, LOCAL_LAYER
from gitlease.kernel.rules.viewpoint import GuardFinding, Severity
from gitlease.kernel.settings.schema import FILE as SETTINGS_FILE
from gitlease.kernel.settings.schema import Settings
from gitlease.kernel.store import tree
from gitlease.kernel.store.object_store import NewObjects
from gitlease.kernel.store.records import HEADER_FILE, BadStep
from gitlease.kernel.store.tree import (
    MAX_TREE,
    LedgerCommit,
    changed_files,
    read_ledger,
    write_tree,
)
from gitlease.server.deleted import has_restoration, past_of, restored_base
from gitlease.server.places import LAYER, has_ledger, moved_settings
from gitlease.server.settings import BLOCK, ServerSettings, project_settings, server_settings

if TYPE_CHECKING:
    from gitlease.guard.whose import Superseded
    from gitlease.server.work import WorkGuard


# --- what the hook is told --------------------------------------------------------------------

MAX_INPUT = 8 * 1024 * 1024  # bytes
MAX_REFS = 50_000
MAX_LEDGERS = 64  # of one push

_LAYER = re.compile(r"[a-z0-9_-]{1,64}")
_NAMESPACE = re.compile(r"(?:refs/namespaces/[^/]+/)+")


@dataclass(frozen=True)
class RefMove:
    """One ref of a push, with its full old and new ids, ``""`` for none.

    ``old`` is the client's word until the ref itself has been read.
    """

    ref: str
    old: str
    new: str


def read_moves(data: bytes) -> list[RefMove]:
    """Parse a hook's input. Raises Illegal for malformed lines, and more than can be judged."""
    if len(data) > MAX_INPUT or data.count(b"\n") > MAX_REFS:
        raise Illegal(
            "too-large",
            f"a push of more than {MAX_REFS} refs cannot be judged",
            hints=("push fewer refs at once",),
        )
    moves: dict[str, RefMove] = {}
    # A ref's name may be any bytes.
    for line in data.decode("utf-8", "surrogateescape").split("\n"):
        if not line:
            continue
        old, _, rest = line.partition(" ")
        new, _, ref = rest.partition(" ")
        if not (is_id(old) and is_id(new) and ref):
            raise Illegal("input", f"git gave its hook a malformed line: {printable(line)}")
        if ref in moves:
            raise Illegal("input", f"the push names a ref twice: {printable(ref)}")
        moves[ref] = RefMove(ref, old.strip("0") and old, new.strip("0") and new)
    if not moves:
        raise Illegal("input", "git gave its hook no ref")
    return list(moves.values())


def is_ledger(ref: str, prefix: str) -> bool:
    """Return whether a ref is among the ledgers, in any GIT_NAMESPACE and letter case."""
    # On a file system that folds letter case another spelling names the same ref.
    bare = _NAMESPACE.sub("", ref).lower()
    return bare == prefix.lower() or bare.startswith(prefix.lower() + "/")


def layer_of(ref: str, prefix: str) -> str:
    """The layer of a ledger's ref. Raises Illegal if it does not belong there."""
    layer = ref.removeprefix(prefix + "/")
    if layer in (ref, LOCAL_LAYER) or not _LAYER.fullmatch(layer):
        raise Illegal(
            "foreign-ref",
            f"{printable(ref)} is not a ledger's ref: those are {prefix}/<layer> "
            "(a-z, 0-9, _ and -), and nothing else belongs there",
        )
    return layer


# --- what is there ----------------------------------------------------------------------------
# git itself refuses most moves from another old value than the client's, but only after its hook
# has agreed, and not the other refs of the push; and it deletes a ref whose old object it lacks.

SECONDS = 60.0  # for a list of all refs

_FORM = "--format=%(refname)%00%(objectname)%00%(symref)"


@dataclass(frozen=True)
class ServerRefs:
    """The ids of some refs, by their full names. ``space`` is the namespace of this push.

    ``points`` has symbolic refs with their targets. ``main`` is the branch that HEAD names, ``""``
    if none.
    """

    ids: Mapping[str, str]
    points: Mapping[str, str]
    main: str
    space: str

    def now(self, ref: str) -> str:
        """The id of a ref by the push's name for it, ``""`` if there is none."""
        return self.ids.get(self.space + ref, "")

    def moved(self, ref: str) -> str:
        """The full name of the ref that moves when a push moves ``ref``."""
        return self.points.get(self.space + ref, self.space + ref)


def read_refs(
    repository: Repository, moves: Sequence[RefMove], prefixes: Sequence[str]
) -> ServerRefs:
    """Read the refs of these moves, and those of ledgers. Raises Invalid if git does not answer."""
    parts = os.environ.get("GIT_NAMESPACE", "").split("/")
    space = "".join(f"refs/namespaces/{part}/" for part in parts if part)
    names = {space + move.ref for move in moves}
    ids: dict[str, str] = {}
    points: dict[str, str] = {}

    def take(line: bytes) -> None:
        name, oid, target = os.fsdecode(line).split("\0")
        if name in names or any(is_ledger(name, prefix) for prefix in prefixes):
            ids[name] = oid
        if target:
            points[name] = target

    lines = Pieces(b"\n", take)
    answer = ask(repository, "for-each-ref", _FORM, timeout=SECONDS, on_out=lines.more)
    if answer.code != 0 or answer.timed_out or lines.rest:
        raise Invalid(f"git does not list the repository's refs: {answer.err.strip()[:200]}")
    return ServerRefs(
        ids, points, ask_line(repository, "symbolic-ref", "-q", f"{space}HEAD"), space
    )


def heads_of(
    refs: ServerRefs, layers: Sequence[str], prefixes: Sequence[str], moves: Mapping[str, str]
) -> list[tuple[str, str]]:
    """Some layers with the heads of their ledgers, both before and after ``moves``."""
    # Either may hold in the end: git may move some refs of a push and not others.
    heads = dict.fromkeys(
        (layer, head)
        for prefix in prefixes
        for layer in layers
        for ref in (f"{prefix}/{layer}",)
        for head in (refs.now(ref), moves.get(ref, ""))
    )
    return [(layer, head) for layer, head in heads if head]


# --- one step of a ledger ---------------------------------------------------------------------
# The judge writes each step once more, in memory: if its records, its tree and its commit do not
# have the same ids then, it is refused. No pushed record is parsed, and only those pushed folders
# are read that differ from the expected ones.

RULES = {
    HEADER_FILE: "header",
    "leases": "record",
    "paths": "record",
    "notes": "notes",
    "notices": "notices",
    "waiting": "tickets",
}


def judge_step(objects: GitObjects, before: str, version: str, pusher: Pusher, now_ms: int) -> None:
    """Raise Illegal unless a commit is a legal step after another (``""``: the first)."""
    ledger = read_ledger(objects, before) if before else None
    carry_out = partial(judge, ledger, pusher=pusher, now_ms=now_ms)
    repeat_step(objects, before, version, carry_out)


def repeat_step(
    objects: GitObjects, before: str, version: str, carry_out: Callable[[StepRecord], Applied]
) -> tuple[StepRecord, Applied]:
    """Carry a step out again, and compare its commit with the result. Raises Illegal if it differs.

    The ledger's damage raises Invalid.
    """
    commit = commit_at(objects, version)
    record = step_record(commit)
    applied = carry_out(record)
    base = commit_at(objects, before).tree_id if before else None
    _check_tree(objects, base, commit.tree_id, applied)
    if not commit.is_made_by(record, applied):
        raise Illegal("commit", "its commit does not describe its changes", hints=(NEWER,))
    return record, applied


def commit_at(objects: GitObjects, version: str) -> LedgerCommit:
    """A commit of a ledger. Raises Illegal if it is not one, or too large."""
    commit = tree.read_commit(objects, version)
    if commit is None:
        raise Illegal("commit", f"{version} is not a commit of a ledger")
    return commit


def step_record(commit: LedgerCommit) -> StepRecord:
    """The operations that a commit's message names. Raises Illegal if it does not."""
    try:
        step = commit.step
    except BadStep as error:
        raise Illegal("operations", f"its operations: {error}", hints=(NEWER,)) from None
    if step is None:
        raise Illegal(
            "operations",
            "its commit does not name its operations",
            hints=("an older gitlease wrote it: upgrade that one; or it is not a ledger",),
        )
    return step


def _check_tree(objects: GitObjects, base: str | None, tree: str, applied: Applied) -> None:
    try:
        files = changed_files(applied.ledger)
    except Invalid as error:
        raise Illegal("record", error.message) from None
    # In memory: a push that is refused leaves nothing on the server's disk.
    dry_run = NewObjects(objects, len(tree) // 2)
    expected = write_tree(dry_run, base, files, {})
    if expected == tree:
        return
    path, pushed = _difference(dry_run, expected, tree, "")
    # The operation's own refusal tells more than that its result differs.
    if why := refused(applied):
        raise why
    if path not in files:
        what = f"{printable(path)} differs, but no operation of this step changes it"
        raise Illegal("unexplained", what)
    if pushed is not None and not pushed.is_file:
        raise Illegal("mode", f"{printable(path)} is not a plain file")
    raise Illegal(
        RULES[path.partition("/")[0]],
        f"{printable(path)} is not the result of the operations of this step",
        hints=(NEWER,),
    )


def _difference(
    objects: GitObjects, expected: str, actual: str | None, folder: str
) -> tuple[str, TreeEntry | None]:
    # The first path that differs, and its pushed entry.
    wanted = {entry.name: entry for entry in read_tree(objects, expected, MAX_TREE)}
    try:
        entries = [] if actual is None else read_tree(objects, actual, MAX_TREE)
    except Unreadable as error:
        rule = "too-large" if isinstance(error, TooLarge) else "tree"
        raise Illegal(rule, f"its folder /{folder} {error}") from None
    pushed = {entry.name: entry for entry in entries}
    for name in sorted(wanted.keys() | pushed.keys()):
        want, entry = wanted.get(name), pushed.get(name)
        if want == entry:
            continue
        path = f"{folder}/{name}".lstrip("/")
        if want is not None and want.is_folder and (entry is None or entry.is_folder):
            return _difference(objects, want.id, entry and entry.id, path)
        return path, entry
    raise Illegal("tree", f"its folder /{folder} is malformed")


# --- all steps of a move ----------------------------------------------------------------------

MAX_STEPS = 100  # commits of one push
MAX_PAST = 100_000  # commits since a ledger was at a place to which it comes back
LOOKED_BACK = 1_000  # commits that are searched for an earlier tip


Replay = Callable[[GitObjects, Sequence[str]], None]
"""Carries out a whole history again, the oldest commit first. Raises Illegal."""


def no_replay(objects: GitObjects, commits: Sequence[str]) -> None:
    """Refuse every history, where nobody can carry it out again."""
    raise Illegal("restore", "this server cannot judge the past of a restored ledger")


def judge_ledger(
    objects: GitObjects,
    old: str,
    new: str,
    pusher: Pusher,
    now_ms: int,
    replay: Replay = no_replay,
    *,
    opens: bool = False,
) -> None:
    """Raise Illegal for the first step of a ref's move that is not legal.

    ``replay`` judges the past of a ledger whose ref was deleted, and is put back. ``opens``: it
    goes on after ``old`` at a new place, where it may have been deleted.
    """
    if not new:
        raise Illegal("delete", "a ledger is never deleted")
    try:
        if not old and (base := restored_base(objects, new)):
            replay(objects, past_of(objects, base))
            judge_step(objects, base, new, pusher, now_ms)
            return
        for version in _steps(objects, old, new):
            if old and not opens and has_restoration(step_record(commit_at(objects, version))):
                raise Illegal("restore", "the ledger is there, and only a deleted one is restored")
            judge_step(objects, old, version, pusher, now_ms)
            old, opens = version, False
    except Illegal:
        raise
    except GitleaseError as damage:
        raise Illegal("damaged", damage.message, hints=damage.hints) from None


def check_waits(objects: GitObjects, new: str) -> None:
    """Raise Illegal for a new ledger that grants at once, where the settings record one.

    That one was deleted, or never seen here: who pushes cannot know what it has granted.
    """
    if restored_base(objects, new):
        return
    first = _steps(objects, "", new)[0]
    if not has_restoration(step_record(commit_at(objects, first))):
        raise Illegal(
            "recorded",
            f"{SETTINGS_FILE} on the default branch records a ledger, and there is none here: "
            "a new one in its place has to wait",
            hints=(hint("an admin brings the former one back: {}", "init", restore=True),),
        )


def check_not_reopened(objects: GitObjects, move: RefMove) -> None:
    """Raise Illegal if a ledger that was moved away would go on at its former place."""
    if move.old and move.new and read_ledger(objects, move.old).header.moved_to is not None:
        raise Illegal("moved", "the ledger was moved away: nothing changes here any more")


def _steps(objects: GitObjects, old: str, new: str) -> list[str]:
    # The commits that a push adds, the oldest first: on top of the tip or, as a renewal may be, in
    # its place.
    base = commit_at(objects, old).parent_ids if old else ()
    steps = [new]
    while len(steps) <= MAX_STEPS:
        parents = commit_at(objects, steps[0]).parent_ids
        if len(parents) > 1:
            raise Illegal("merge", "a ledger has no merges: each state follows one before it")
        if [*parents] == ([old] if old else []):
            return steps
        if parents and parents == base:
            _check_replacement(objects, old, steps[0])
            return steps
        if not parents:
            break
        steps.insert(0, parents[0])
    if not old:
        raise Illegal("too-large", f"a push has at most {MAX_STEPS} steps of a ledger")
    # Only for the words of the refusal: it is illegal either way.
    if new in (commit.id for commit in islice(tree.walk(objects, old), LOOKED_BACK)):
        raise Illegal("rewind", "a ledger never goes back to an earlier state")
    raise Illegal(
        "history", "it does not follow the ledger's present state: its history is not rewritten"
    )


def _check_replacement(objects: GitObjects, old: str, version: str) -> None:
    # A renewal may replace the renewal at the tip, if the policy says so.
    if not commit_at(objects, old).is_renewal:
        raise Illegal("history", "it replaces a decision: only a renewal may be replaced")
    if not commit_at(objects, version).is_renewal:
        raise Illegal("history", "it is a decision: only a renewal may replace a renewal")
    if read_ledger(objects, old).header.policy.history is not History.REPLACE:
        raise Illegal("history", "it replaces a renewal: by the ledger's policy they append")


# --- the objects of a push that is not accepted yet -------------------------------------------
# git keeps them in a quarantine until its hook has agreed, and knows that place from its own
# environment. Nothing is written there or elsewhere.

MEMORY = 512 * 1024 * 1024  # bytes that a hook may ask of the system for itself


@contextlib.contextmanager
def bounded_memory() -> Iterator[None]:
    """Have the system refuse this process, and what it starts, memory beyond all that is needed."""
    # What a push holds may unfold without measure in places where nobody asks for its size first.
    try:
        import resource as limits

        before = limits.getrlimit(limits.RLIMIT_DATA)
        most = MEMORY if before[1] == limits.RLIM_INFINITY else min(MEMORY, before[1])
        if before[0] == limits.RLIM_INFINITY or before[0] > most:
            limits.setrlimit(limits.RLIMIT_DATA, (most, before[1]))
    except (ImportError, ValueError, OSError):
        yield
        return
    try:
        yield
    finally:
        limits.setrlimit(limits.RLIMIT_DATA, before)


# --- the judgement ----------------------------------------------------------------------------

SHOWN = 10  # findings that are printed
HELD, SUPERSEDED, FAULT = "held", "superseded", "fault"
LOOKS = 5  # judgements of one push, while the ledgers change
FETCH = "fetch, and push again"
AGAIN = "push again"
UNJUDGED = "the server's administrator has to repair gitlease there: it accepts nothing unjudged"


@dataclass(frozen=True)
class Refusal:
    """Why a ref may not move: the rule that it breaks. ``ref`` is ``""`` for the whole push."""

    ref: str
    rule: str
    message: str
    hints: tuple[str, ...] = ()


@dataclass(frozen=True)
class PushVerdict:
    """The outcome of a push. ``blocked``: git must refuse all of it."""

    blocked: bool
    refusals: tuple[Refusal, ...] = ()
    warnings: tuple[str, ...] = ()


def receive(
    data: bytes,
    *,
    environ: Mapping[str, str] | None = None,
    clock: Clock,
    directory: str = ".",
    replay: Replay = no_replay,
) -> PushVerdict:
    """Judge a push by the lines of its pre-receive hook, in the environment that git gave it.

    ``replay`` judges the past of a restored ledger. Raises GitleaseError if the repository, its
    refs, or the settings of its hook are unusable, and MemoryError.
    """
    environ = os.environ if environ is None else environ
    with bounded_memory():
        repository = discover(directory)
        settings = server_settings(repository)
        blocks = settings.mode == BLOCK
        for _ in range(LOOKS):
            try:
                now_ms = clock.now().wall_ms
                push = _Push(repository, settings, read_moves(data), environ, now_ms, replay)
            except Illegal as refused:
                return PushVerdict(blocks, (_refusal("", refused),))
            # A refused push leaves the ledgers as they are: the rest need not be judged.
            refusals = push.stale()
            if not refusals or not blocks:
                refusals += push.judge_ledgers()
            if not refusals or not blocks:
                refusals += push.judge_work()
            blocked = bool(refusals) and blocks
            # Judged again where a ledger moved meanwhile: somebody may hold what the push touches.
            if blocked or push.is_current():
                return PushVerdict(blocked, tuple(refusals), tuple(push.warnings))
        refusals = [Refusal("", "stale", "the ledgers keep changing while it is judged", (AGAIN,))]
        return PushVerdict(blocks, tuple(refusals), tuple(push.warnings))


def _refusal(ref: str, refused: Illegal) -> Refusal:
    return Refusal(ref, refused.rule, refused.message, refused.hints)


class _Push:
    def __init__(
        self,
        repository: Repository,
        settings: ServerSettings,
        lines: Sequence[RefMove],
        environ: Mapping[str, str],
        now_ms: int,
        replay: Replay,
    ) -> None:
        self._repository, self._settings, self._lines = repository, settings, lines
        self._environ, self._now, self._replay = environ, now_ms, replay
        self.warnings: list[str] = []
        self._rests_on: list[str] = []  # the refs of ledgers by which work is judged
        # Who could bring settings along could unguard what they touch: those before count as well.
        self._project, self._problem = project_settings(repository)
        # The project may have moved its ledgers since the hook was installed.
        prefixes = list(dict.fromkeys((settings.prefix, self._project.ref_prefix)))
        self._refs = read_refs(repository, lines, prefixes)
        for later in prefixes[1:]:
            if work := self._work_under(later):
                # Anybody may push a file that moves them: it must not keep others from their work.
                prefixes.remove(later)
                self.warnings.append(
                    f"the project has its ledgers under {later}, where {printable(work)} is: "
                    "not judged there"
                )
        self._prefixes = prefixes
        # Of the client's lines only the new values count: the old ones are the refs' own.
        moves = [RefMove(x.ref, self._refs.now(x.ref), x.new) for x in lines]
        refs = {x.ref for x in moves if any(is_ledger(x.ref, prefix) for prefix in prefixes)}
        # Each is judged by itself, and a server judges within bounded time.
        if len(refs) > MAX_LEDGERS:
            most = f"more than {MAX_LEDGERS} ledgers"
            raise Illegal("too-large", f"a push of {most} cannot be judged")
        self._ledgers = [x for x in moves if x.ref in refs]
        self._work = [x for x in moves if x.ref not in refs]

    def _work_under(self, prefix: str) -> str | None:
        # A ref among the ledgers' that is not a ledger.
        refs = [ref for ref in self._refs.ids if is_ledger(ref, prefix)]
        for ref in refs[:MAX_LEDGERS]:
            if not ask_line(
                self._repository, "rev-parse", "-q", "--verify", f"{ref}:{HEADER_FILE}"
            ):
                return ref
        return refs[MAX_LEDGERS] if len(refs) > MAX_LEDGERS else None

    def stale(self) -> list[Refusal]:
        """Refuse refs whose old value is not, or no longer, what the client says."""
        return [
            Refusal(x.ref, "stale", "it has changed since this push began", (FETCH,))
            for x in self._lines
            if x.old != self._refs.now(x.ref)
        ]

    def judge_ledgers(self) -> Iterator[Refusal]:
        """Refuse illegal moves of ledgers, with one reason for each."""
        for move in self._ledgers:

            def judged(move: RefMove = move) -> tuple[()]:
                layer_of(move.ref, next(x for x in self._prefixes if is_ledger(move.ref, x)))
                former = self._former_place(move)
                if former is None:
                    check_not_reopened(self._objects, move)
                old = move.old if former is None else former
                judge_ledger(
                    self._objects,
                    old,
                    move.new,
                    self._pusher(),
                    self._now,
                    self._replay,
                    opens=former is not None,
                )
                recorded = self._project.ledger
                if not old and recorded and move.ref.rpartition("/")[2] == GLOBAL_LAYER:
                    check_waits(self._objects, move.new)
                return ()

            yield from self._refusals(judged, move.ref)

    def _former_place(self, move: RefMove) -> str | None:
        """The last state at its former place of a ledger that goes on at a new ref, if it does."""
        if not move.new:
            return None
        if move.old and read_ledger(self._objects, move.old).header.moved_to is None:
            return None
        parents = commit_at(self._objects, move.new).parent_ids
        if len(parents) != 1:
            return None
        former = parents[0]
        if move.old and (former == move.old or not self._is_past(move.old, former)):
            return None  # it comes back only where the state there is a past of its own
        there = {x.removeprefix(self._refs.space): id for x, id in self._refs.ids.items()}
        # It may have ended there in this very push.
        there |= {x.ref: x.new for x in self._ledgers if x.ref != move.ref}
        prefixes = self._prefixes
        places = [x for x, id in there.items() if id == former]
        places = [x for x in places if any(is_ledger(x, prefix) for prefix in prefixes)]
        to = read_ledger(self._objects, former).header.moved_to if places else None
        if to is None:
            return None
        _, prefix, layer = [*to.rsplit(" ", 2), "", ""][:3]
        # Other layers than the configured one keep their names.
        names = {layer, *(place.rpartition("/")[2] for place in places)}
        if move.ref not in {f"{prefix}/{name}" for name in names}:
            raise Illegal("moved", f"the ledger was moved to {printable(to)}, not to {move.ref}")
        return former

    def _is_past(self, earlier: str, version: str) -> bool:
        """True if a commit of a ledger is in the past of another one."""
        parents = commit_at(self._objects, version).parent_ids
        for _ in range(MAX_PAST):
            if len(parents) != 1:
                return False
            if parents[0] == earlier:
                return True
            parents = commit_at(self._objects, parents[0]).parent_ids
        return False

    def judge_work(self) -> list[Refusal]:
        """Refuse work that others hold, and ledgers where no work may be one."""
        refusals = self._refusals(self._ledgers_elsewhere, "")
        # Without an identity nobody can tell whose work it is.
        if not self._work or self._settings.identity is None or refusals:
            return refusals
        return self._refusals(self._judge_work, "")

    def _ledgers_elsewhere(self) -> Iterator[Refusal]:
        # A second ledger, which nobody judges, is where settings could lead others.
        prefixes = (self._settings.prefix, self._project.ref_prefix)
        places = " and ".join(f"{prefix}/<layer>" for prefix in dict.fromkeys(prefixes))
        judged = dict[str, bool]()  # a push may bring one commit to many refs
        for move in self._work:
            if not move.new or any(is_ledger(move.ref, prefix) for prefix in prefixes):
                continue
            if move.new not in judged:
                judged[move.new] = has_ledger(self._objects, move.new)
            if judged[move.new]:
                what = f"it has a ledger, and this repository has its ledgers at {places}"
                hints = ("the prefix is set by lease.ref_prefix on the default branch",)
                yield Refusal(move.ref, "foreign-ledger", what, hints)

    def is_current(self) -> bool:
        """Return whether no ledger moved since the work was judged by it."""
        if not self._rests_on:
            return True
        now = read_refs(self._repository, self._lines, list(self._prefixes))
        return all(now.now(ref) == self._refs.now(ref) for ref in self._rests_on)

    def _judge_work(self) -> Iterator[Refusal]:
        if self._problem:
            self.warnings.append(f"{self._problem}: tasks are looked for in the default places")
        after = {move.ref: move.new for move in self._ledgers}
        moved = [
            x for x in self._work if self._refs.main and self._refs.moved(x.ref) == self._refs.main
        ]
        each, broken = [self._project], list[RefMove]()
        for move in moved:
            settings, problem = project_settings(self._repository, move.new)
            if problem:
                self.warnings.append(f"{problem}: it would be without settings")
                broken += [] if self._problem else [move]
            each.append(settings)
        layers = dict.fromkeys((GLOBAL_LAYER, *(settings.layer for settings in each)))
        prefixes = dict.fromkeys((*self._prefixes, *(settings.ref_prefix for settings in each)))
        ids = self._ledger_ids(heads_of(self._refs, [GLOBAL_LAYER], list(prefixes), after))
        leads = [moved_settings(self._project, settings, ids) for settings in each[1:]]
        led = list(layers)  # away from their ledgers, as all layers are by another place
        if any({*keys} - {LAYER} for keys in leads) or broken:
            led += [layer for layer in self._layers() if layer not in layers]
        self._rests_on = [f"{prefix}/{layer}" for prefix in prefixes for layer in led]
        if not heads_of(self._refs, led, list(prefixes), after):
            return
        pusher = self._pusher_or_nobody()

        def guard_of(layers: Sequence[str]) -> WorkGuard:
            from gitlease.server.work import WorkGuard, WorkSettings

            return WorkGuard(
                self._repository,
                WorkSettings(
                    tasks=[settings.tasks for settings in each],
                    people=self._project.people,
                    bots=self._project.bots,
                ),
                self._objects,
                heads_of(self._refs, layers, list(prefixes), after),
                self._refs,
                pusher=pusher,
                now_ms=self._now,
                merger=self._settings.is_merger(self._environ),
            )

        of_settings = guard_of(led)
        for move, after_it, keys in zip(moved, each[1:], leads, strict=True):
            yield from self._check_settings(
                of_settings, after_it, move, keys, broken=move in broken
            )
        guard = guard_of(list(layers))
        findings = guard.check(self._work)
        superseded = guard.superseded(self._work)
        self.warnings += guard.warnings
        yield from self._refuse_superseded(superseded)
        yield from self._refuse_held(findings)

    def _pusher_or_nobody(self) -> Pusher:
        try:
            return self._pusher()
        except Illegal as unknown:
            self.warnings.append(unknown.message)
            return Pusher((), "somebody")  # who holds nothing

    def _refuse_superseded(self, superseded: Sequence[Superseded]) -> Iterator[Refusal]:
        """Refuse commits that name a token after which somebody else got the resource."""
        for one in superseded[:SHOWN]:
            error = one.error
            yield Refusal("", SUPERSEDED, error.message, error.hints)
        if len(superseded) > SHOWN:
            yield Refusal("", SUPERSEDED, f"and {len(superseded) - SHOWN} more")

    def _refuse_held(self, findings: Sequence[GuardFinding]) -> Iterator[Refusal]:
        """Refuse changes to what others hold, or warn of them."""
        lines = []
        for finding in findings:
            lease, path = finding.lease, finding.path
            part = "" if lease.resource.text == path else f", under the lease of {lease.resource}"
            line = f"{path} is held by {lease.holder}{part}, until {rfc3339(lease.expires_at)}"
            if finding.severity is Severity.BLOCK:
                lines.append(line)
            else:
                self.warnings.append(line)
        # A renamed branch: one push deletes commits and brings them back.
        both = len({bool(move.new) for move in self._work}) == 2
        hints = ("push the new branch first, then delete the old one",) if both else ()
        for line in lines[:SHOWN]:
            yield Refusal("", HELD, line, hints)
        if len(lines) > SHOWN:
            from gitlease.server.work import FINDINGS

            more = len(lines) - SHOWN
            yield Refusal("", HELD, f"and {more if len(lines) < FINDINGS else 'many'} more")

    def _layers(self) -> list[str]:
        """The layers that have a ledger before this push."""
        names = {
            ref.removeprefix(f"{self._refs.space}{prefix}/")
            for prefix in self._prefixes
            for ref in self._refs.ids
            if ref.startswith(f"{self._refs.space}{prefix}/")
        }
        return sorted(name for name in names if _LAYER.fullmatch(name))[:MAX_LEDGERS]

    def _ledger_ids(self, heads: Iterable[tuple[str, str]]) -> set[str]:
        return {read_ledger(self._objects, head).header.ledger_id for _, head in heads}

    def _check_settings(
        self,
        guard: WorkGuard,
        after: Settings,
        move: RefMove,
        leads: Sequence[str],
        *,
        broken: bool,
    ) -> Iterator[Refusal]:
        # Settings that take the guard from a live lease of another come when it has ended, and so
        # does a file that cannot be read any more: it stops every client.
        before = self._project
        lost = guard.unguarded(before.tasks, after.tasks, move.new)
        if broken or {*leads} - {LAYER}:
            lost += [x for x in guard.others() if x not in lost]
        elif leads:
            lost += [x for x in guard.others(before.layer) if x not in lost]
        changed = f" ({', '.join(leads)} would change)" if leads else ""
        hints = ("change the settings when it has ended",)
        for lease in lost[:SHOWN]:
            until = rfc3339(lease.expires_at)
            guarded = f"{lease.resource}, of {lease.holder} until {until}"
            line = f"{SETTINGS_FILE} would no longer guard {guarded}{changed}"
            yield Refusal(move.ref, "settings", line, hints)
        for path, lease in guard.gained(before.tasks, after.tasks, move.new)[:SHOWN]:
            until = rfc3339(lease.expires_at)
            line = (
                f"{SETTINGS_FILE} would make {path} a file of {lease.resource}, "
                f"which is held by {lease.holder} until {until}"
            )
            yield Refusal(move.ref, "settings", line, hints)

    def _refusals(self, judge: Callable[[], Iterable[Refusal]], ref: str) -> list[Refusal]:
        # Any failure refuses: a lock server lets nothing through that it did not understand.
        try:
            return list(judge())
        except Illegal as refused:
            return [_refusal(ref, refused)]
        except GitleaseError as error:
            return [Refusal(ref, FAULT, error.message, (*error.hints, UNJUDGED))]
        except MemoryError:
            return [Refusal(ref, "too-large", "judging it takes more memory than is allowed")]
        except Exception as error:
            what = f"{type(error).__name__}: {error}".splitlines()[0]
            return [Refusal(ref, FAULT, f"internal error: {what}", (UNJUDGED,))]

    def _pusher(self) -> Pusher:
        try:
            return self._settings.pusher(self._environ)
        except GitleaseError as error:
            raise Illegal("identity", error.message, hints=error.hints) from None

    @cached_property
    def _objects(self) -> GitObjects:
        # Of the repository, of the push's quarantine, and of what git was told besides.
        environ = {**self._environ, **OFFLINE, "LC_ALL": "C"}
        return PipedObjects(self._repository.git_dir, environ)
