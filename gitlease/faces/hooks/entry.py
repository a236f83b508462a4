"""``gitlease hook NAME``: what a shim calls. It blocks with 1, goes on with 0, and never crashes.

No library of the command line is imported: this runs with every commit.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gitlease.core.errors import GitleaseError, Invalid, NotARepository, clean

if TYPE_CHECKING:
    from gitlease.guard.hook_decisions import HookDecision
    from gitlease.wiring.hooks import HookContext

BLOCKED = 1
USAGE = 2
SHOWN = 10  # findings that are spelt out
MAX_INPUT = 8 * 1024 * 1024  # bytes of the lines that git gives a hook


def run_hook(argv: Sequence[str], opener: Callable[[], HookContext] | None = None) -> int:
    """Carry out one hook and give its exit status: 1 where git must stop, else 0."""
    name, args = (argv[0], list(argv[1:])) if argv else ("", [])
    act = HOOKS.get(name) or IN_BACKGROUND.get(name)
    if act is None:
        say(f"unknown hook {name[:60]!r}; known hooks: {', '.join(HOOKS)}")
        return USAGE
    context = None
    try:
        if _answers_probe(name):
            return BLOCKED  # so that a script with the lines that are printed ends there
        context = opener() if opener else _open()
        if context.environ.get(
            "GITLEASE_SKIP"
        ):  # a hook manager calls without our shim, which asks
            return 0
        status = act(context, args)
        _say_or_leave(context, name, context.guard.lost())
    except NotARepository:
        return 0  # nothing here is anybody's
    except GitleaseError as error:
        if context is not None or name in NOT_CHECKED:  # what every hook meets is said by one
            why = f"{NOT_CHECKED.get(name, 'not done')}: {error.message}"
            _say_or_leave(context, name, [why, *(f"hint: {hint}" for hint in error.hints)])
        return 0
    except Exception as error:
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        said = f"{NOT_CHECKED.get(name, 'not done')}: internal error: {what}"
        _say_or_leave(context, name, [said])
        return 0
    return status


def _is_hidden(context: HookContext, name: str) -> bool:
    """Whether nobody sees what this hook says: the pre-commit framework shows it where a hook
    fails, and of the hooks that check something, which are ``verbose`` there.
    """
    return name not in NOT_CHECKED and context.environ.get("PRE_COMMIT") == "1"


def _say_or_leave(context: HookContext | None, name: str, texts: Sequence[str]) -> None:
    """Say it, or leave it for the next hook or command that is heard."""
    if context is not None and _is_hidden(context, name):
        context.inbox.leave(texts)
        return
    for text in texts:
        say(text)


def _answers_probe(name: str) -> bool:
    """Say that this hook is called, where `gitlease hooks status` asks by having git run it."""
    from gitlease.wiring.hooks import probe_answer

    said = probe_answer(name, os.path.abspath(sys.argv[0]))
    if said and sys.stderr is not None:
        print(said, file=sys.stderr, flush=True)
    return bool(said)


def _open() -> HookContext:
    from gitlease.wiring.hooks import open_hooks

    return open_hooks(".")


def pre_commit(context: HookContext, args: Sequence[str]) -> int:
    """Block a commit of what another holds, and claim the tasks that it starts."""
    told(context)
    decision = context.hooks.pre_commit()
    tell(context, decision, "commit")
    return BLOCKED if decision.blocked else 0


def prepare_commit_msg(context: HookContext, args: Sequence[str]) -> int:
    """Name the leases that the commit falls under in its message."""
    if args:
        # The pre-commit framework keeps what git says to itself, but for these variables.
        words = ("PRE_COMMIT_COMMIT_MSG_SOURCE", "PRE_COMMIT_COMMIT_OBJECT_NAME")
        given = args[1:] or [context.environ[name] for name in words if context.environ.get(name)]
        # Git says "commit HEAD" of an amended one, but not where it was given another message; -c
        # and -C name another commit, whose change is not this one.
        source = given[0] if given else ""
        unsaid = source in ("", "message", "template")
        amended = None if unsaid else list(given) == ["commit", "HEAD"]
        context.hooks.name_leases(args[0], amended=amended)
    return 0


def commit_msg(context: HookContext, args: Sequence[str]) -> int:
    """Have git take a message of nothing but our own trailers for an empty one."""
    if args:
        context.hooks.end_message(args[0])
    return 0


def pre_push(context: HookContext, args: Sequence[str]) -> int:
    """Check again, with what the remote knows now."""
    from gitlease.push.request import JUDGED

    told(context)
    remote = args[0] if args else ""
    if remote and context.environ.get(JUDGED) == remote:
        return 0  # by whoever started this push
    decision = context.hooks.pre_push(_given("pushed"), remote)
    tell(context, decision, "push")
    return BLOCKED if decision.blocked else 0


def reference_transaction(context: HookContext, args: Sequence[str]) -> int:
    """Refuse `git stash` where others work in the same work tree: nothing is lost by that."""
    if args[:1] != ["prepared"]:
        return 0
    shared = context.stashes_work_of(_given("done"))
    if shared is None:
        return 0
    from gitlease.core.instant import moment_of
    from gitlease.faces.sentences import shared_tree

    blocks = context.mode == "block"
    what, *hints = shared_tree("git stash", shared, moment_of(context.clock.now().wall_ms))
    say(what if blocks else f"warning: {what}")
    for hint in hints:
        say(f"hint: {hint}")
    return BLOCKED if blocks else 0


def _given(what: str) -> list[str]:
    """The lines on standard input. Invalid where they cannot be read."""
    unread = f"standard input, which says what is {what}, cannot be read"
    if sys.stdin is None:
        raise Invalid(f"{unread}: it is closed")
    try:
        return os.fsdecode(sys.stdin.buffer.read(MAX_INPUT)).split("\n")
    except (OSError, ValueError) as error:
        raise Invalid(f"{unread}: {error}") from None


def post(context: HookContext, args: Sequence[str]) -> int:
    """Activity: have what this run holds renewed in the background, when it is time."""
    if not _is_hidden(context, "post-commit"):
        told(context)
    context.guard.refresh()
    context.start_beat()
    return 0


def beat(context: HookContext, args: Sequence[str]) -> int:
    """What ``post`` starts: nobody waits for it, and what it has to say is told later."""
    from gitlease.wiring.push import after_push

    with after_push(context.repository.common_dir):
        context.beat()
    context.inbox.leave(context.guard.lost())
    return 0


def told(context: HookContext) -> None:
    """Say what work in the background left to be said."""
    for text in context.inbox.take():
        say(text)


HOOKS: dict[str, Callable[[HookContext, Sequence[str]], int]] = {
    "pre-commit": pre_commit,
    "pre-merge-commit": pre_commit,
    "prepare-commit-msg": prepare_commit_msg,
    "commit-msg": commit_msg,
    "post-commit": post,
    "post-checkout": post,
    "post-merge": post,
    "post-rewrite": post,
    "pre-push": pre_push,
    "reference-transaction": reference_transaction,
}
IN_BACKGROUND: dict[str, Callable[[HookContext, Sequence[str]], int]] = {"beat": beat}
NOT_CHECKED = {
    "pre-commit": "this commit is not checked",
    "pre-merge-commit": "this merge is not checked",
    "pre-push": "this push is not checked",
    "reference-transaction": "this stash is not checked",
}


def say(text: str) -> None:
    """One line to the person who runs git, if anybody listens."""
    if sys.stderr is None:
        return
    with contextlib.suppress(OSError, ValueError):
        print("gitlease: " + clean(text).replace("\n", " "), file=sys.stderr, flush=True)


def tell(context: HookContext, decision: HookDecision, what: str) -> None:
    """Everything that was found: who, where, until when and why; never a way around it."""
    from gitlease.core.errors import Denied
    from gitlease.core.instant import moment_of
    from gitlease.guard.rules import Severity

    now = moment_of(context.clock.now().wall_ms)
    findings, views = decision.report.findings, decision.report.views
    if findings or decision.refused is not None:
        from gitlease.faces import sentences
    for finding in findings[:SHOWN]:
        view = views[finding.lease.lease_id]
        line = f"{finding.path} {sentences.held(finding.path, view, now)}"
        blocks = decision.blocked and finding.severity is Severity.BLOCK
        say(line if blocks else f"warning: {line}")
    if len(findings) > SHOWN:
        say(f"and {len(findings) - SHOWN} more")
    if decision.refused is not None:
        line = sentences.refusal(decision.refused, now)
        say(line if decision.blocked else f"warning: {line}")
    for text in dict.fromkeys(decision.warnings):
        say(f"warning: {text}")
    for claimed in decision.claimed:
        say(f"claimed {claimed.resource}, since this {what} starts it")
    for file in decision.written:
        say(f"its assignee was written to {file}, which is not part of this {what}")
    if decision.blocked and isinstance(decision.refused, Denied):
        for hint in decision.refused.hints:
            say(f"hint: {hint}")
    if decision.blocked:
        blocking = (f.lease for f in findings if f.severity is Severity.BLOCK)
        first = next((views[lease.lease_id] for lease in blocking), None)
        name = first.resource if first else decision.refused.resource if decision.refused else None
        if name is not None:
            from gitlease.core.resources.resource import layer_words

            layer = layer_words(first.layer, context.place.settings.layer) if first else []
            show = shlex.join(["gitlease", "show", name, *layer])
            say(f"hint: leave it to them for now; {show} says when it is free")
        elif decision.report.offline:
            say("hint: try again when the remote can be reached")
