"""``gitlease hook NAME``, called by the shims: 1 blocks git, 0 lets it continue; never a crash.

This runs with every commit, so it imports no library of the command line.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Callable, Sequence

from gitlease.guard.hooks import HookDecision
from gitlease.guard.opening import HookContext, open_hooks, probe_answer
from gitlease.kernel.rules.errors import (
    Denied,
    GitleaseError,
    Invalid,
    LeaseLost,
    NotARepository,
    clean,
)
from gitlease.kernel.rules.instant import moment_of
from gitlease.kernel.rules.resources import layer_words
from gitlease.kernel.rules.viewpoint import Severity

BLOCKED = 1
FORMER = "reference-transaction"  # the shims of earlier versions still call it
USAGE = 2
SHOWN = 10  # findings that are listed
MAX_INPUT = 8 * 1024 * 1024  # bytes of a hook's standard input


def run_hook(argv: Sequence[str], opener: Callable[[], HookContext] | None = None) -> int:
    """Run one hook and return its exit status: 1 if git must stop, else 0."""
    name, args = (argv[0], list(argv[1:])) if argv else ("", [])
    if name == FORMER:
        return 0
    act = HOOKS.get(name) or IN_BACKGROUND.get(name)
    if act is None:
        say(f"unknown hook {name[:60]!r}; known hooks: {', '.join(HOOKS)}")
        return USAGE
    context, failure = None, NOT_CHECKED.get(name, "not done")
    try:
        if answer := probe_answer(name, os.path.abspath(sys.argv[0])):
            if sys.stderr is not None:
                print(answer, file=sys.stderr, flush=True)
            # So that a user's script with our lines stops there.
            return BLOCKED
        context = (opener or open_hooks)()
        # For hook managers, which bypass our shim.
        if context.environ.get("GITLEASE_SKIP"):
            return 0
        status = act(context, args)
        _say_or_leave(context, name, context.guard.lost())
    except NotARepository:
        return 0
    except GitleaseError as error:
        # If opening fails, all hooks of a commit would report it: those that check do.
        if context is not None or name in NOT_CHECKED:
            hints = (f"hint: {hint}" for hint in error.hints)
            _say_or_leave(context, name, [f"{failure}: {error.message}", *hints])
        return 0
    except Exception as error:
        line = f"{type(error).__name__}: {error}".splitlines()[0]
        _say_or_leave(context, name, [f"{failure}: internal error: {line}"])
        return 0
    return status


def _is_hidden(context: HookContext, name: str) -> bool:
    # The pre-commit framework hides the output of hooks that neither fail nor check something.
    return name not in NOT_CHECKED and context.environ.get("PRE_COMMIT") == "1"


def _say_or_leave(context: HookContext | None, name: str, texts: Sequence[str]) -> None:
    if context is not None and _is_hidden(context, name):
        context.inbox.leave(texts)
        return
    for text in texts:
        say(text)


def pre_commit(context: HookContext, args: Sequence[str]) -> int:
    """Block a commit of files that others hold, and claim the tasks that it starts."""
    report_inbox(context)
    decision = context.hooks.pre_commit()
    report(context, decision, "commit")
    return BLOCKED if decision.blocked else 0


def prepare_commit_msg(context: HookContext, args: Sequence[str]) -> int:
    """Add the leases that cover the commit to its message."""
    if args:
        # The pre-commit framework passes git's arguments in these variables only.
        words = ("PRE_COMMIT_COMMIT_MSG_SOURCE", "PRE_COMMIT_COMMIT_OBJECT_NAME")
        given = args[1:] or [context.environ[name] for name in words if context.environ.get(name)]
        # For an amended commit, git passes "commit HEAD", unless it has a new message; -c and -C
        # name a different commit.
        source = given[0] if given else ""
        unknown = source in ("", "message", "template")
        amended = None if unknown else list(given) == ["commit", "HEAD"]
        context.hooks.name_leases(args[0], amended=amended)
    return 0


def commit_msg(context: HookContext, args: Sequence[str]) -> int:
    """Make git treat a message with only our trailers as empty."""
    if args:
        context.hooks.end_message(args[0])
    return 0


def pre_push(context: HookContext, args: Sequence[str]) -> int:
    """Check the pushed commits with the remote's current ledger."""
    from gitlease.guard.pushes import JUDGED

    report_inbox(context)
    remote = args[0] if args else ""
    # Already judged by `gitlease push`.
    if remote and context.environ.get(JUDGED) == remote:
        return 0
    decision = context.hooks.pre_push(_stdin_lines(), remote)
    report(context, decision, "push")
    if decision.blocked:
        return BLOCKED
    context.look_for_landed()
    return 0


def _stdin_lines() -> list[str]:
    if sys.stdin is None:
        raise Invalid("cannot read git's list of refs from standard input: it is closed")
    try:
        return os.fsdecode(sys.stdin.buffer.read(MAX_INPUT)).split("\n")
    except (OSError, ValueError) as error:
        raise Invalid(f"cannot read git's list of refs from standard input: {error}") from None


def post(context: HookContext, args: Sequence[str]) -> int:
    """Renew due leases in the background."""
    _renew(context)
    return 0


def post_merge(context: HookContext, args: Sequence[str]) -> int:
    """Complete leases of what a merge or a pull brought, in the background."""
    # A heartbeat does so, too.
    if not _renew(context):
        context.look_for_landed(pushed=False)
    return 0


def post_rewrite(context: HookContext, args: Sequence[str]) -> int:
    """Do so after a rebase, which may be that of a pull; an amended commit brings nothing."""
    return (post_merge if args[:1] == ["rebase"] else post)(context, args)


def _renew(context: HookContext) -> bool:
    if not _is_hidden(context, "post-commit"):
        report_inbox(context)
    context.guard.refresh()
    return context.start_beat()


def landed(context: HookContext, args: Sequence[str]) -> int:
    """Complete leases of landed tasks, after the push of the process ``PID STARTED`` if given."""
    if len(args) == 2 and args[0].isdecimal():
        context.wait_for_end(int(args[0]), args[1])
    context.end_landed()
    context.inbox.leave(context.guard.lost())
    return 0


def beat(context: HookContext, args: Sequence[str]) -> int:
    """Renew due leases in the process started by ``post``, and leave messages in the inbox."""
    context.beat()
    context.inbox.leave(context.guard.lost())
    return 0


def report_inbox(context: HookContext) -> None:
    """Print the messages that background work left in the inbox."""
    for text in context.inbox.take():
        say(text)


HOOKS: dict[str, Callable[[HookContext, Sequence[str]], int]] = {
    "pre-commit": pre_commit,
    "pre-merge-commit": pre_commit,
    "prepare-commit-msg": prepare_commit_msg,
    "commit-msg": commit_msg,
    "post-commit": post,
    "post-checkout": post,
    "post-merge": post_merge,
    "post-rewrite": post_rewrite,
    "pre-push": pre_push,
}
IN_BACKGROUND: dict[str, Callable[[HookContext, Sequence[str]], int]] = {
    "beat": beat,
    "landed": landed,
}
NOT_CHECKED = {
    "pre-commit": "this commit is not checked",
    "pre-merge-commit": "this merge is not checked",
    "pre-push": "this push is not checked",
}


def say(text: str) -> None:
    """Print one line to the person who runs git, unless standard error is closed."""
    if sys.stderr is None:
        return
    with contextlib.suppress(OSError, ValueError):
        print("gitlease: " + clean(text).replace("\n", " "), file=sys.stderr, flush=True)


def report(context: HookContext, decision: HookDecision, event: str) -> None:
    """Print all findings with holder, place, time and reason, but never a way around them."""
    now = moment_of(context.clock.now().wall_ms)
    findings, views = decision.report.findings, decision.report.views
    for finding in findings[:SHOWN]:
        from gitlease.verbs import sentences

        view = views[finding.lease.lease_id]
        line = f"{finding.place} {sentences.held(finding.path, view, now)}"
        blocks = decision.blocked and finding.severity is Severity.BLOCK
        say(line if blocks else f"warning: {line}")
    if len(findings) > SHOWN:
        say(f"and {len(findings) - SHOWN} more")
    if decision.refused is not None:
        from gitlease.verbs import sentences

        line = sentences.refusal(decision.refused, now)
        say(line if decision.blocked else f"warning: {line}")
    for text in dict.fromkeys(decision.warnings):
        say(f"warning: {text}")
    for claimed in decision.claimed:
        say(f"claimed {claimed.resource}, because this {event} starts it")
    for file in decision.written:
        say(f"the assignee was written to {file}, which is not part of this {event}")
    # A superseded commit is refused because of a lease that is gone: nobody need hold it now.
    is_lost = isinstance(decision.refused, LeaseLost)
    if (
        decision.blocked
        and decision.refused is not None
        and isinstance(decision.refused, Denied | LeaseLost)
    ):
        for hint in decision.refused.hints:
            say(f"hint: {hint}")
    if decision.blocked:
        blocking = (f.lease for f in findings if f.severity is Severity.BLOCK)
        first = next((views[lease.lease_id] for lease in blocking), None)
        name = first.resource if first else None
        if first is None and decision.refused is not None and not is_lost:
            name = decision.refused.resource
        if name is not None:
            layer = layer_words(first.layer, context.place.settings.layer) if first else []
            show = shlex.join(["gitlease", "show", name, *layer])
            say(f"hint: leave it to them for now; to see when it is free: {show}")
        elif decision.report.offline:
            say("hint: try again when the remote can be reached")
