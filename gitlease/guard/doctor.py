"""The checks of `doctor` on git's hooks, and on who works in this clone."""

from __future__ import annotations

from functools import partial

from gitlease.guard.hook_places import Way, manager_install
from gitlease.guard.install import hook_states, install_hooks
from gitlease.guard.presence import RUN, git_dirs_of, others
from gitlease.kernel.rules.errors import Hint
from gitlease.kernel.rules.instant import MS
from gitlease.kernel.rules.lease import State
from gitlease.runs.records import RunsFolder
from gitlease.wiring.examined import (
    BAD,
    COMMAND,
    GOOD,
    MENDS,
    UNKNOWN,
    WARNING,
    Examined,
    Row,
    Rows,
)


def hooks(of: Examined) -> Rows:
    if of.repository.toplevel is None:
        return
    states, fix = hook_states(of.repository), Hint("hooks install", {})
    if not any(x.way for x in states):
        yield Row(WARNING, "none are installed: commits and pushes are not checked", fix)
        return
    sound = [x for x in states if x.live and x.current is not False]
    if proven := [x.name for x in sound if x.proven]:
        yield Row(GOOD, f"git calls {', '.join(proven)}: each answered")
    if unproven := [x.name for x in sound if not x.proven]:
        yield Row(UNKNOWN, f"{', '.join(unproven)}: installed, but not shown to fire here")
    if missing := [x.name for x in states if not x.way]:
        yield Row(WARNING, f"not installed: {', '.join(missing)}", fix)
    dead = [x for x in states if x.way and x not in sound]
    ours = [x.name for x in dead if x.current is not None]
    for problem in dict.fromkeys(x.problem for x in dead):
        hook, *_ = alike = [x for x in dead if x.problem == problem]
        names = [x.name for x in alike]
        again = partial(install_hooks, of.repository, ours) if ours[:1] == names[:1] else None
        typed = COMMAND.search(problem)
        by = manager_install(Way(hook.way), names) if hook.awaits else typed[1] if typed else fix
        starts = f" ({hook.program})" if hook.program and not typed else ""
        yield Row(BAD, f"{', '.join(names)}: {problem}{starts}", by, again)


def sessions(of: Examined) -> Rows:
    now = of.clock.now()
    runs = RunsFolder(of.private, now.boot_id)
    every = runs.alive()
    seen = [
        f"{x.session} runs {', '.join(x.resources)} (process {x.pid or x.runner})"
        for x in filter(runs.is_alive, every)
        if not runs.may_outlive(x)
    ]
    for y in others(git_dirs_of(of.repository.common_dir), (), now=now.wall_ms / MS):
        if y.by != RUN:
            seen.append(f"{y.session} ({y.by}{f', process {y.pid}' if y.pid else ''})")
    yield Row(GOOD, "; ".join(seen) or "nobody is at work in this clone")
    ledger = of.contact.head.ledger if of.contact.head else None
    every_lease = ledger.every_lease() if ledger else ()
    live = {x.lease_id for x in every_lease if x.state is State.ACTIVE}
    for x in filter(runs.may_outlive, every):
        what = f"the run of {', '.join(x.resources)} in session {x.session} was killed"
        unsure = "what it started may still run, so its lease is left to lapse"
        yield Row(WARNING, f"{what} with its guardian: {unsure}")
    for x in filter(runs.is_dead, every):
        what = f"the run of {', '.join(x.resources)} in session {x.session} was killed"
        if ledger is None or x.layer != of.place.layer or not live.isdisjoint(x.lease_ids):
            yield Row(WARNING, f"{what}: your next claim or release here lets go of it")
        else:
            yield Row(WARNING, f"{what}, and has left its record", MENDS, partial(runs.retire, x))
