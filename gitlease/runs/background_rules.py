"""A command that runs in the background under leases, as it is remembered."""

from __future__ import annotations

from gitlease.core.frozen import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """What is known of a run in the background. Times are wall-clock milliseconds.

    ``runner`` is the process that holds the leases, ``pid`` the command's, each with when it
    started. ``outcome`` is None while it runs, and stays so where the runner was killed;
    ``message`` says more. ``log`` is the file that has all that was printed.
    """

    id: str
    holder: str
    session: str
    layer: str
    resources: tuple[str, ...]
    scope: str
    lease_ids: tuple[str, ...]
    tokens: tuple[int, ...]
    command: tuple[str, ...]
    log: str
    began_at: int
    boot_id: str
    grace_ms: int = 0
    runner: int = 0
    runner_started: str = ""
    pid: int = 0
    pid_started: str = ""
    ended_at: int | None = None
    outcome: str | None = None
    exit: int | None = None
    message: str | None = None
