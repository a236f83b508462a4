"""One push of the user's work, with the refs of ledgers beside it: all of them move, or none.

It runs in the user's repository, which has the objects of the work; those of the ledgers are lent
to it. What is pushed are ids, not names: what was judged, and nothing that came later.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence

from gitlease.core.errors import Invalid
from gitlease.core.work_push import Became, WorkPush
from gitlease.engine.ports import Cause
from gitlease.git.remote_branches import ls_remote
from gitlease.git.repository import as_entry, is_id
from gitlease.git.run import GitResult, run_git
from gitlease.store.damage import CacheDamaged
from gitlease.store.ref_store import Pushed
from gitlease.store.transport import is_far, nothing_came, read_push

# What git finds missing at the other end before it sends anything.
UNABLE = re.compile(r"(?m)^fatal: the receiving end (does not support [a-z' -]+)")
_SENT_BY_CONFIG = "push.pushOption in git config sends some: git -c push.pushOption= lease push"
_ALTERNATES = "GIT_ALTERNATE_OBJECT_DIRECTORIES"


def push_work(
    work: WorkPush, moves: Sequence[tuple[str, str, str]] = (), *, objects: str = ""
) -> Pushed:
    """Push work and ledgers together; ``moves`` has (ref, expected, new) of each ledger.

    ``objects`` is the folder with the objects of the ledgers.
    """
    moved = [one for one in work.refs if one.moves]
    for new in (*(new for _, _, new in moves), *(x.new for x in moved if x.new)):
        if not is_id(new):
            raise Invalid(f"refusing to push {new!r}: it is not an object id")
    words = ["push", "--porcelain", "--atomic", "--no-verify", "--no-follow-tags"]
    words += ["--no-recurse-submodules", *work.words]
    words += [f"--force-with-lease={ref}:{expected}" for ref, expected, _ in moves]
    # What is forced replaces exactly what was looked at, whatever it was forced with.
    words += [f"--force-with-lease={x.ref}:{x.old}" for x in moved if x.became is Became.FORCED]
    words += ["--", work.remote]
    words += [f"{new}:{ref}" for ref, _, new in moves] + [f"{x.new}:{x.ref}" for x in moved]
    far = is_far(work.url)
    env = {"GIT_TRACE2_EVENT": "2", "GIT_TRACE2_EVENT_NESTING": "2"} if far else {}
    if objects:
        others = os.environ.get(_ALTERNATES, "")
        env[_ALTERNATES] = os.pathsep.join(filter(None, (others, as_entry(objects))))
    settings = [*work.settings, *([("push.negotiate", "true")] if work.again else [])]
    result = run_in(work, words, settings=settings, env=env, seconds=work.seconds)
    unable = UNABLE.search(result.err)
    if result.code and unable is not None:
        said = f"the remote {unable[1]}"
        if "push options" in said and not any(x.startswith("--push-option") for x in work.words):
            said += f", and {_SENT_BY_CONFIG}"
        return Pushed(clean=False, sent=False, cause=Cause.WORK, detail=said)
    if objects and result.code and not result.timed_out and nothing_came(result.out):
        blamed = [x for x in result.err.splitlines() if x.startswith(("fatal:", "error:"))]
        ours = (os.path.dirname(objects), *(new for _, _, new in moves))
        if any(name in line for line in blamed for name in ours):
            raise CacheDamaged("this clone's copy of the ledger is damaged")
    names = [x.ref for x in moved]
    return read_push(result, [ref for ref, _, _ in moves], work.seconds, far=far, work=names)


def remote_refs(work: WorkPush, *, timeout: float) -> dict[str, str]:
    """What the refs of some work are on the remote now, ``""`` for those that are not there.

    Raises Unavailable and Denied.
    """
    names = [x.ref for x in work.refs if x.moves]
    there = refs_at(work, work.remote, *names, timeout=timeout)
    return {name: there.get(name, "") for name in names}


def refs_at(work: WorkPush, place: str, *patterns: str, timeout: float) -> dict[str, str]:
    """The refs of a repository, a remote or a URL, each with its id; only those of a pattern.

    Raises Unavailable and Denied.
    """
    words = ("ls-remote", "--quiet", "--", place, *patterns)
    return ls_remote(words, work.folder, seconds=timeout, env=dict(work.places))


def run_in(
    work: WorkPush,
    words: Sequence[str],
    *,
    seconds: float,
    settings: Sequence[tuple[str, str]] = (),
    env: dict[str, str] | None = None,
    on_err: Callable[[bytes], None] | None = None,
) -> GitResult:
    """Run git in the user's repository, as the user would."""
    set_so = [word for key, value in settings for word in ("-c", f"{key}={value}")]
    return run_git(
        [*set_so, *words],
        cwd=work.folder,
        timeout=seconds,
        env={**dict(work.places), **(env or {})},
        repository=True,
        on_err=on_err,
    )
