"""A run in the foreground, from its claim to the end of its leases."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from gitlease.core.errors import GitleaseError, Invalid
from gitlease.core.frozen import dataclass, replace
from gitlease.engine.answers import Answer
from gitlease.runs.leased_command import LeasedCommand, OnStop, RunRequest
from gitlease.runs.running import Ended

if TYPE_CHECKING:
    from gitlease.runs.place import RunPlace


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What a run came to: how it ended, how many leases ended completed, and warnings."""

    answer: Answer
    ended: Ended
    finished: int
    warnings: tuple[str, ...]


def run_claimed(
    place: RunPlace,
    request: RunRequest,
    claim: Callable[[], Answer],
    *,
    on_claim: Callable[[Answer], None],
    on_stop: OnStop,
    brief: Callable[[Answer], str] | None = None,
) -> Ran:
    """Claim, run the command while that is held, and give back or finish what was claimed.

    ``on_claim`` is called with the claim before the command starts, ``on_stop`` with why it is
    stopped. ``brief`` makes the command's brief, which is in a file while it runs.
    Raises what a claim and ``LeasedCommand.run`` raise: then all is given back.
    """
    answer, started = claim(), False
    command = LeasedCommand(place, answer, request)

    def on_start(_process: object) -> None:
        nonlocal started
        started = True

    try:
        on_claim(answer)
        with _temporary_file(brief(answer) if brief else "") as file:
            briefed = replace(command, request=replace(request, brief_file=file))
            ended = briefed.run(on_start=on_start, on_stop=on_stop)
    except GitleaseError as refusal:
        refusal.warnings = (*refusal.warnings, *command.give_back())
        raise
    except BaseException:
        if not started:  # a fault of ours: what never ran needs no lease
            command.give_back()
        raise
    finished, warnings = command.finish(ended)
    return Ran(answer=answer, ended=ended, finished=finished, warnings=warnings)


@contextlib.contextmanager
def _temporary_file(text: str) -> Iterator[str]:
    if not text:
        yield ""
        return
    import tempfile

    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(
                tempfile.NamedTemporaryFile("w", suffix=".md", encoding="utf-8")
            )
            file.write(text)
            file.flush()
        except OSError as error:
            raise Invalid(f"GITLEASE_BRIEF cannot be written: {error.strerror}") from None
        yield file.name
