"""``push`` and ``fence``: what a holder that lost its lease can no longer do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from gitlease.core.errors import GitleaseError, UsageError
from gitlease.faces import sentences, wire
from gitlease.faces.cli import output, refusals
from gitlease.faces.cli.verb import LEASE_EXITS, flag, option, resource_argument, verb
from gitlease.faces.push_options import REFUSED, push_request

if TYPE_CHECKING:
    from gitlease.core.work_push import WorkRef
    from gitlease.faces.cli.call import Call
    from gitlease.push.fenced_push import FencedPush, PushAnswer

EXITS = (1, 2, 3, *(x for x in LEASE_EXITS if x > 3))
SHORT = 9  # digits of an id, as people read it


def refused_options(verb: Any) -> Any:
    """Decorate with the options of ``git push`` that would break what this verb promises."""
    for name, reason in REFUSED.items():

        def refuse(
            _ctx: click.Context, param: click.Parameter, value: Any, why: str = reason
        ) -> None:
            if value:
                raise UsageError(f"{param.opts[0]} cannot be fenced: {why}")

        takes = name in ("--repo", "--receive-pack", "--exec")
        verb = option(name, is_flag=not takes, hidden=True, expose_value=False, callback=refuse)(
            verb
        )
    return verb


# Options whose value, as with git, is part of the same word or not there at all.
BARE = {"--force-with-lease": "", "--signed": "true"}


@verb(
    "push",
    """Push work and a renewal of its leases in one atomic push: both land, or neither.

So a holder that lost its lease cannot land work, also when the takeover comes in between. The
leases are those of yours whose paths or task files the pushed commits touch, and those that
--require names; lost ones are refused before anything is sent, and so are commits that touch what
another holds: those that land, and those that a forced push or a deletion takes away. With no lease
of yours in it, it is a plain atomic push, and says so.

REMOTE and REFSPEC are those of `git push`, and so are most options. Your pre-push hooks run, and
see the push as you asked for it; the server sees the ledger's ref beside it. Where git, a hook or
the server rejects the work, its lease stays as it was, and the exit is 4.""",
    examples=(
        "gitlease push                                   # what `git push` would push",
        "gitlease push -u origin topic --require F001    # refused unless you hold F001",
        "gitlease push --force-with-lease origin topic",
        "gitlease push --dry-run --json",
    ),
    exits=EXITS,
    done="it has landed, or there was nothing to push",
    no=("held",),
    bare=BARE,
)
@click.argument("words", metavar="[REMOTE [REFSPEC]...]", nargs=-1)
@option("--require", metavar="R", multiple=True, help="A lease that you must hold.")
@option("-u", "--set-upstream", is_flag=True, help="Set the upstream of what is pushed.")
@option("-f", "--force", is_flag=True, help="Replace what is there: exactly what was seen.")
@option(
    "--force-with-lease",
    metavar="[=REF[:ID]]",
    multiple=True,
    help="Replace it if it is as you know it.",
)
@option("--force-if-includes", is_flag=True, help="And if you have taken it in.")
@option("--tags", is_flag=True, help="All tags as well.")
@flag("--follow-tags", "Annotated tags of what is pushed as well.", default=None)
@option("--all", "--branches", "all_", is_flag=True, help="All branches.")
@option("-d", "--delete", is_flag=True, help="Delete these refs.")
@option("-o", "--push-option", metavar="TEXT", multiple=True, help="Tell the server.")
@option("--signed", metavar="[=HOW]", help="Sign the push.")
@option("--recurse-submodules", metavar="HOW", help="check or no: none is pushed along.")
@option("-4", "--ipv4", is_flag=True, help="Only IPv4.")
@option("-6", "--ipv6", is_flag=True, help="Only IPv6.")
@option("--no-verify", is_flag=True, help="Without your pre-push hooks; the fence stays.")
@option("-n", "--dry-run", is_flag=True, help="Judge it, and send nothing.")
@option("-q", "--quiet", is_flag=True, help="Say nothing of what went well.")
@option("-v", "--verbose", is_flag=True, help="Name the refs that stay as they are, too.")
@refused_options
def push_verb(
    call: Call,
    /,
    *,
    words: tuple[str, ...],
    require: tuple[str, ...],
    set_upstream: bool,
    no_verify: bool,
    dry_run: bool,
    quiet: bool,
    verbose: bool,
    **options: Any,
) -> int:
    options["all"] = options.pop("all_")
    remote = words[0] if words else None
    request = push_request(remote, words[1:], options, upstream=set_upstream, hooks=not no_verify)
    fencing, required = _fencing(call), call.resources(require)
    try:
        answer = fencing.push(request, require=required, dry_run=dry_run, tell=output.aside)
    except GitleaseError as refusal:
        refs = getattr(refusal, "refs", ())
        if not refs:
            raise
        return refusals.tell(call, refusal, body={"refs": [wire.work_ref(x) for x in refs]})
    call.answer(
        wire.pushed(answer),
        warnings=answer.warnings,
        views=answer.leases,
        show=lambda: None if quiet else _show(answer, call, verbose=verbose),
    )
    return 0


def _fencing(call: Call) -> FencedPush:
    from gitlease.wiring.push import open_push

    return open_push(call.workspace)


def _show(answer: PushAnswer, call: Call, *, verbose: bool) -> None:
    now = call.now()
    if answer.status == "up_to_date":
        output.line("everything is up to date")
    for one in answer.refs:
        if one.moves or verbose:
            output.line(_line(one, answer.remote, would=answer.status == "would_push"))
    for view in answer.leases:
        left = sentences.until(view, now)
        output.line(f"under {sentences.named(view)}, renewed {left}, token {view.token}")


def _line(one: WorkRef, remote: str, *, would: bool) -> str:
    """``pushed main to origin: 1a2b3c4..5d6e7f8 (forced)``."""
    name = one.ref.removeprefix("refs/heads/").removeprefix("refs/tags/")
    became = one.became.value.replace("_", " ")
    if not one.moves:
        return f"{name} on {remote}: {became}"
    ends = f"{one.old[:SHORT]}..{one.new[:SHORT]}" if one.old and one.new else one.new[:SHORT]
    kind = f" ({became})" if became != "updated" else ""
    return f"{'would push' if would else 'pushed'} {name} to {remote}: {ends}{kind}"


def read_token(text: str) -> int:
    """A token as it was handed on. UsageError for what is none."""
    if not (text.isascii() and text.isdigit() and len(text) <= 18 and int(text)):
        raise UsageError("a token is a positive whole number, as `gitlease claim --json` shows it")
    return int(text)


@verb(
    "fence",
    """Whether the live lease of RESOURCE still has exactly this TOKEN: exit 0, or 3.

The last check of a script before a step that cannot be undone. It always asks the remote, and
counts by the clock of the holder: what has run out is not held any more, taken over or not. Tokens
compare: a greater one was given later, so whatever can keep the greatest that it has seen and
refuse smaller ones is better protected than by any check beforehand.""",
    examples=(
        "gitlease fence deploy-prod 42 && ./deploy.sh",
        'gitlease fence "$GITLEASE_RESOURCE" "$GITLEASE_TOKEN"      # within gitlease run',
    ),
    exits=(2, 3, 4, 5, 7, 128),
    done="it has this token, and has not run out",
    scope="Only this scope (default: whichever has the token).",
)
@resource_argument
@click.argument("token", metavar="TOKEN", type=read_token)
def fence_verb(call: Call, *, word: str, token: int, scope: str | None) -> None:
    view, warnings = _fencing(call).fence(call.resource(word), token, scope=scope)
    now = call.now()
    call.answer(
        {"status": "held", "leases": [wire.lease(view)], "lease": wire.lease(view)},
        warnings=warnings,
        views=[view],
        show=lambda: output.line(
            f"{sentences.named(view)} is held with token {token} {sentences.until(view, now)}"
        ),
    )
