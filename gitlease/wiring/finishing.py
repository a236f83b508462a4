"""A run from its claim to its end, and how it ends for its task.

That is done where the command succeeded and that was asked for, and given back where not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from gitlease.core.errors import GitleaseError, Invalid
from gitlease.core.frozen import dataclass, replace
from gitlease.core.lease import State
from gitlease.core.loss import Lost
from gitlease.core.moves.operations import MAX_NOTE
from gitlease.engine import end
from gitlease.engine.answers import Answer
from gitlease.engine.keeping import holds_of
from gitlease.git.query import without_secrets
from gitlease.runs.running import Ended
from gitlease.wiring.alive import forget
from gitlease.wiring.holding import at_the_end
from gitlease.wiring.running import RunRequest, ends_orderly, give_back, run_under_leases
from gitlease.wiring.workspace import Workspace

LAST_LINES, LONGEST_TAIL = 10, 800  # of a log in a note; lines and characters


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What a run came to: how it ended, how many leases ended completed, and what is to be said."""

    answer: Answer
    ended: Ended
    finished: int
    said: tuple[str, ...]


def run_claimed(
    workspace: Workspace,
    request: RunRequest,
    claim: Callable[[], Answer],
    *,
    on_claim: Callable[[Answer], None],
    on_stop: Callable[[Lost | str | None], None],
    brief: Callable[[Answer], str] | None = None,
) -> Ran:
    """Claim, run the command while that is held, and give back or finish what was claimed.

    ``on_claim`` is told of the claim before the command starts, ``on_stop`` why it is stopped.
    ``brief`` says what the command is to know, in a file that is there while it runs.
    Raises what a claim raises, and what ``run_under_leases`` does: then all is given back.
    """
    answer, started = claim(), False

    def on_start(_process: object) -> None:
        nonlocal started
        started = True

    try:
        on_claim(answer)
        with _in_a_file(brief(answer) if brief else "") as file:
            told = replace(request, brief_file=file)
            ended = run_under_leases(workspace, answer, told, on_start=on_start, on_stop=on_stop)
    except GitleaseError as refusal:
        refusal.warnings = (*refusal.warnings, *give_back(workspace, answer, request))
        raise
    except BaseException:
        if not started:  # a fault of ours: what never ran needs no lease
            give_back(workspace, answer, request)
        raise
    finished, said = finish(workspace, answer, request, ended)
    return Ran(answer=answer, ended=ended, finished=finished, said=said)


@contextlib.contextmanager
def _in_a_file(text: str) -> Iterator[str]:
    if not text:
        yield ""
        return
    import tempfile

    with contextlib.ExitStack() as until_its_end:
        try:
            file = until_its_end.enter_context(
                tempfile.NamedTemporaryFile("w", suffix=".md", encoding="utf-8")
            )
            file.write(text)
            file.flush()
        except OSError as error:
            raise Invalid(f"GITLEASE_BRIEF cannot be written: {error.strerror}") from None
        yield file.name


def finish(
    workspace: Workspace, answer: Answer, request: RunRequest, ended: Ended, log: bytes = b""
) -> tuple[int, tuple[str, ...]]:
    """End the leases of a run; how many ended completed, and what is to be said. Never fails.

    ``log`` is the end of what the command printed: a task that it failed on is given back with a
    note that has the last lines of it.
    """
    said: tuple[str, ...] = ()
    if request.done and ended.outcome == "ended" and ended.status == 0:
        finished, said = _complete(workspace, answer, request)
        if finished == len(answer.leases):
            forget(workspace, answer)
            return finished, said
    elif request.tells and request.note is None and not ended.stopped:
        request = replace(request, note=_note(ended, log))
    said += give_back(workspace, answer, request, ended.lost, hurried=ended.hurried)
    return _completed(workspace, answer), said


def _complete(
    workspace: Workspace, answer: Answer, request: RunRequest
) -> tuple[int, tuple[str, ...]]:
    finished, said = 0, []
    grants = [hold.grant for hold in holds_of(answer)]
    ledger = at_the_end(workspace, {grant.lease_id for grant in grants})
    for grant in grants:
        try:
            with ends_orderly():
                done = end.complete(
                    ledger, grant.resource, scope=request.scope, commit=request.commit
                )
        except (GitleaseError, KeyboardInterrupt, SystemExit) as why:
            reason = why.message if isinstance(why, GitleaseError) else "interrupted"
            said.append(f"{grant.resource} was not marked as done: {reason}")
        else:
            finished += 1
            said += [text for text in done.warnings if text not in ledger.store.warnings]
    return finished, tuple(said)


def _completed(workspace: Workspace, answer: Answer) -> int:
    """How many leases the command itself had completed, by what this clone knows."""
    try:
        look = workspace.ledger.known_look()
    except GitleaseError:
        return 0
    known = look.leases if look else ()
    done = {(x.lease_id, x.token) for x in known if x.state is State.COMPLETED}
    return sum((view.lease_id, view.token) in done for view in answer.leases)


def _note(ended: Ended, log: bytes) -> str | None:
    """What the next one to work on it should know; None where it did not fail."""
    if ended.exit == 0:
        return None
    how = f"a run of it ended with {ended.exit}" + (f": {ended.message}" if ended.message else "")
    text = without_secrets(log.decode("utf-8", "replace"))
    shown = "".join(c if c == "\n" or c.isprintable() else " " for c in text).strip()
    lines = shown.splitlines()[-LAST_LINES:]
    tail = "\n".join(line.rstrip() for line in lines)[-LONGEST_TAIL:]
    return f"{how[: MAX_NOTE - LONGEST_TAIL - 1]}\n{tail}" if tail else how[:MAX_NOTE]
