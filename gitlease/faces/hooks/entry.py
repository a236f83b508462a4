"""``gitlease hook NAME``: what a shim calls. It blocks with 1, goes on with 0, and never crashes.

No library of the command line is imported: this runs with every commit.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from gitlease.domain.errors import GitleaseError, Invalid, NotARepository
from gitlease.domain.work import JUDGED
from gitlease.faces.printable import clean

if TYPE_CHECKING:
    from gitlease.bootstrap_hooks import HookDesk
    from gitlease.hooking import Ruling

BLOCKED = 1
USAGE = 2
SHOWN = 10  # findings that are spelt out
MAX_INPUT = 8 * 1024 * 1024  # bytes of the list of refs that are pushed


def run_hook(argv: Sequence[str], opener: Callable[[], HookDesk] | None = None) -> int:
    """Carry out one hook and give its exit status: 1 where git must stop, else 0."""
    name, args = (argv[0], list(argv[1:])) if argv else ("", [])
    act = HOOKS.get(name) or IN_BACKGROUND.get(name)
    if act is None:
        say(f"there is no hook {name[:60]!r}; there are {', '.join(HOOKS)}")
        return USAGE
    desk = None
    try:
        if _answers_probe(name):
            return BLOCKED  # so that a script with the lines that are printed ends there
        desk = opener() if opener else _open()
        status = act(desk, args)
        for text in desk.guard.lost():
            say(text)
    except NotARepository:
        return 0  # nothing here is anybody's
    except GitleaseError as error:
        if desk is not None or name in NOT_CHECKED:  # what every hook meets is said by one
            say(f"{NOT_CHECKED.get(name, 'not done')}: {error.message}")
            for hint in error.hints:
                say(f"hint: {hint}")
        return 0
    except Exception as error:
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        say(f"{NOT_CHECKED.get(name, 'not done')}: internal error: {what}")
        return 0
    return status


def _answers_probe(name: str) -> bool:
    """Say that this hook is called, where `gitlease hooks status` asks by having git run it."""
    from gitlease.bootstrap_hooks import probe_answer

    said = probe_answer(name, os.path.abspath(sys.argv[0]))
    if said and sys.stderr is not None:
        print(said, file=sys.stderr, flush=True)
    return bool(said)


def _open() -> HookDesk:
    from gitlease.bootstrap_hooks import open_hooks

    return open_hooks(".")


def pre_commit(desk: HookDesk, args: Sequence[str]) -> int:
    """Block a commit of what another holds, and claim the tasks that it starts."""
    told(desk)
    ruling = desk.hooks.pre_commit()
    tell(desk, ruling, "commit")
    return BLOCKED if ruling.blocked else 0


def prepare_commit_msg(desk: HookDesk, args: Sequence[str]) -> int:
    """Name the leases that the commit falls under in its message."""
    if args:
        # The pre-commit framework keeps what git says to itself, but for these variables.
        words = ("PRE_COMMIT_COMMIT_MSG_SOURCE", "PRE_COMMIT_COMMIT_OBJECT_NAME")
        given = args[1:] or [desk.environ[name] for name in words if desk.environ.get(name)]
        # Git says "commit HEAD" of an amended one, but not where it was given another message; -c
        # and -C name another commit, whose change is not this one.
        source = given[0] if given else ""
        unsaid = source in ("", "message", "template")
        amended = None if unsaid else list(given) == ["commit", "HEAD"]
        desk.hooks.name_leases(args[0], amended=amended, template=source == "template")
    return 0


def commit_msg(desk: HookDesk, args: Sequence[str]) -> int:
    """Have git take a message of nothing but our own trailers for an empty one."""
    if args:
        desk.hooks.end_message(args[0])
    return 0


def pre_push(desk: HookDesk, args: Sequence[str]) -> int:
    """Check again, with what the remote knows now."""
    told(desk)
    remote = args[0] if args else ""
    if remote and desk.environ.get(JUDGED) == remote:
        return 0  # by whoever started this push
    ruling = desk.hooks.pre_push(_pushed(), remote)
    tell(desk, ruling, "push")
    return BLOCKED if ruling.blocked else 0


def _pushed() -> list[str]:
    """The lines that git gives its pre-push hook. Invalid where they cannot be read."""
    unread = "standard input, which says what is pushed, cannot be read"
    if sys.stdin is None:
        raise Invalid(f"{unread}: it is closed")
    try:
        return os.fsdecode(sys.stdin.buffer.read(MAX_INPUT)).split("\n")
    except (OSError, ValueError) as error:
        raise Invalid(f"{unread}: {error}") from None


def post(desk: HookDesk, args: Sequence[str]) -> int:
    """Activity: have what this run holds renewed in the background, when it is time."""
    told(desk)
    desk.guard.refresh()
    desk.start_beat()
    return 0


def beat(desk: HookDesk, args: Sequence[str]) -> int:
    """What ``post`` starts: nobody waits for it, and what it has to say is told later."""
    from gitlease.bootstrap_push import after_push

    with after_push(desk.repository.common_dir):
        desk.beat()
    desk.words.leave(desk.guard.lost())
    return 0


def told(desk: HookDesk) -> None:
    """Say what work in the background left to be said."""
    for text in desk.words.take():
        say(text)


HOOKS: dict[str, Callable[[HookDesk, Sequence[str]], int]] = {
    "pre-commit": pre_commit,
    "prepare-commit-msg": prepare_commit_msg,
    "commit-msg": commit_msg,
    "post-commit": post,
    "post-checkout": post,
    "post-merge": post,
    "post-rewrite": post,
    "pre-push": pre_push,
}
IN_BACKGROUND: dict[str, Callable[[HookDesk, Sequence[str]], int]] = {"beat": beat}
NOT_CHECKED = {"pre-commit": "this commit is not checked", "pre-push": "this push is not checked"}


def say(text: str) -> None:
    """One line to the person who runs git, if anybody listens."""
    if sys.stderr is None:
        return
    with contextlib.suppress(OSError, ValueError):
        print("gitlease: " + clean(text).replace("\n", " "), file=sys.stderr, flush=True)


def tell(desk: HookDesk, ruling: Ruling, what: str) -> None:
    """Everything that was found: who, where, until when and why; never a way around it."""
    from gitlease.domain.errors import Denied
    from gitlease.domain.guard import Severity
    from gitlease.faces import sentences

    now = datetime.fromtimestamp(desk.clock.now().wall_ms / 1_000, UTC)
    findings, views = ruling.guarded.findings, ruling.guarded.views
    for finding in findings[:SHOWN]:
        view = views[finding.lease.lease_id]
        where = "" if view.resource == finding.path else f", under the lease of {view.resource}"
        line = f"{finding.path} is held by {sentences.whose(view)}{where}, "
        line += sentences.until(view, now) + sentences.quoted(view.reason)
        blocks = ruling.blocked and finding.severity is Severity.BLOCK
        say(line if blocks else f"warning: {line}")
    if len(findings) > SHOWN:
        say(f"and {len(findings) - SHOWN} more")
    if ruling.refused is not None:
        line = sentences.refusal(ruling.refused, now)
        say(line if ruling.blocked else f"warning: {line}")
    for text in dict.fromkeys(ruling.warnings):
        say(f"warning: {text}")
    for claimed in ruling.claimed:
        say(f"claimed {claimed.resource}, since this {what} starts it")
    for file in ruling.written:
        say(f"its assignee was written to {file}, which is not part of this {what}")
    if ruling.blocked and isinstance(ruling.refused, Denied):
        for hint in ruling.refused.hints:
            say(f"hint: {hint}")
    if ruling.blocked:
        first = next(
            (f.lease.resource.text for f in findings if f.severity is Severity.BLOCK), None
        )
        first = first or (ruling.refused.resource if ruling.refused else None)
        if first is not None:
            show = shlex.join(["gitlease", "show", first])
            say(f"hint: leave it to them for now; {show} says when it is free")
        elif ruling.guarded.offline:
            say("hint: try again when the remote can be reached")
