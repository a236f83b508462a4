"""``push``: work and its leases in one atomic push."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from gitlease.cli import output
from gitlease.cli.app import flag, option, verb
from gitlease.cli.call import Call, tell
from gitlease.kernel.rules.errors import GitleaseError, UsageError, hint
from gitlease.kernel.rules.frozen import replace
from gitlease.kernel.rules.work import WorkRef
from gitlease.landing.fenced_push import PushAnswer
from gitlease.landing.opening import open_push
from gitlease.landing.plan import elsewhere
from gitlease.landing.push_options import override_reason, push_request
from gitlease.verbs import sentences, wire
from gitlease.verbs.table import LEASE_EXITS, Result, find_verb

EXITS = (1, 2, 3, *(x for x in LEASE_EXITS if x > 3))
REFUSED = {
    "--mirror": "it would replace or delete every ledger on the remote",
    "--prune": "it deletes whatever this clone does not have, ledgers too",
    "--no-atomic": "work could land without its lease",
    "--repo": "name the remote as the first word",
    "--receive-pack": "the remote chooses the program that receives the push",
    "--exec": "the remote chooses the program that receives the push",
}
SHORT = 9  # digits of an id, as people read it


def refused_options(verb: Any) -> Any:
    """Decorate with the options of ``git push`` that would break the fence; all are refused."""
    for name, reason in REFUSED.items():
        # Of its own for each option: a closure would see the last reason of the loop.
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


# Options whose value, as in git, is part of the same word or absent.
BARE = {"--force-with-lease": "", "--signed": "true"}


@verb(
    "push",
    """Push work and a renewal of its leases in one atomic push: both land, or neither.

A holder that lost its lease therefore cannot land work, even if the takeover comes in between. The
push includes your leases whose paths or task files the pushed commits touch, and those named by
--require. It is refused before anything is sent if one of them is lost, or if a commit touches what
someone else holds; this includes commits that a forced push or a deletion removes. A commit whose
trailer names a lease is also refused if the same was granted to another lease since, unless you
hold it again: then you vouch for what you push. If none of your leases is involved, this is a plain
atomic push, with a warning.

REMOTE, REFSPEC and most options are those of `git push`. Your pre-push hooks run and see the push
as you typed it; the server also sees the ledger's ref. If git, a hook or the server rejects the
work, the lease stays unchanged, and the exit status is 4.""",
    examples=(
        "gitlease push                                   # what `git push` would push",
        "gitlease push -u origin topic --require F001    # refused unless you hold F001",
        "gitlease push --force-with-lease origin topic",
        "gitlease push --dry-run --json",
        "gitlease push --done F001 origin main           # `gitlease land F001`",
    ),
    exits=EXITS,
    done="the work has landed, or there was nothing to push",
    no=("held", "violations"),
    bare=BARE,
)
@click.argument("words", metavar="[REMOTE [REFSPEC]...]", nargs=-1)
@option(
    "--done",
    metavar="R",
    multiple=True,
    help="Finish R with it: `gitlease land R`, on BRANCH if named.",
)
@option("--require", metavar="R", multiple=True, help="Push only if you hold R; repeatable.")
@option(
    "--override",
    metavar="REASON",
    help="Push superseded commits all the same; the ledger records it.",
)
@option("-u", "--set-upstream", is_flag=True, help="Set the upstream of the pushed branches.")
@option("-f", "--force", is_flag=True, help="Replace the remote refs if they have not moved since.")
@option(
    "--force-with-lease",
    metavar="[=REF[:ID]]",
    multiple=True,
    help="Replace REF if it is what you expect.",
)
@option("--force-if-includes", is_flag=True, help="And only if you integrated it.")
@option("--tags", is_flag=True, help="Also push all tags.")
@flag("--follow-tags/--no-follow-tags", "Also push annotated tags of these commits.", default=None)
@option("--all", "--branches", "all_", is_flag=True, help="Push all branches.")
@option("-d", "--delete", is_flag=True, help="Delete these refs.")
@option("-o", "--push-option", metavar="TEXT", multiple=True, help="Send TEXT to the server.")
@option("--signed", metavar="[=HOW]", help="Sign the push.")
@option("--recurse-submodules", metavar="HOW", help="check or no; submodules are never pushed.")
@option("-4", "--ipv4", is_flag=True, help="Use IPv4 only.")
@option("-6", "--ipv6", is_flag=True, help="Use IPv6 only.")
@option("--no-verify", is_flag=True, help="Without your pre-push hooks; the fence stays.")
@option("-n", "--dry-run", is_flag=True, help="Check everything, and send nothing.")
@option("-q", "--quiet", is_flag=True, help="Print nothing on success.")
@option("-v", "--verbose", is_flag=True, help="Also list unchanged refs.")
@refused_options
def push_verb(
    call: Call,
    /,
    *,
    words: tuple[str, ...],
    done: tuple[str, ...],
    require: tuple[str, ...],
    override: str | None,
    set_upstream: bool,
    no_verify: bool,
    dry_run: bool,
    quiet: bool,
    verbose: bool,
    **options: Any,
) -> int:
    if done:
        given = {"require": require, "override": override, "set_upstream": set_upstream}
        given |= {"dry_run": dry_run, **options}
        given |= {"verbose": verbose, "no_follow_tags": options["follow_tags"] is False}
        if len(done) > 1:
            raise UsageError("--done lands one task: use it once")
        return _land(call, done[0], words, given, no_verify=no_verify, quiet=quiet)
    options["all"] = options.pop("all_")
    remote = words[0] if words else None
    request = push_request(remote, words[1:], options, upstream=set_upstream, hooks=not no_verify)
    fenced, required = open_push(call.workspace), call.resources(require)
    reason = override_reason(override)
    try:
        answer = fenced.push(
            request, require=required, dry_run=dry_run, override=reason, tell=output.aside
        )
    except GitleaseError as refusal:
        # What the remote made of each ref is told along where it refused some.
        refs = getattr(refusal, "refs", ())
        if not refs:
            raise
        return tell(call, refusal, body={"refs": [wire.work_ref(x) for x in refs]})
    return call.respond(
        Result(
            body=wire.pushed(answer),
            lines=lambda: () if quiet else _lines(answer, call, verbose=verbose),
            leases=answer.leases,
            warnings=answer.warnings,
        )
    )


def _land(
    call: Call,
    name: str,
    words: tuple[str, ...],
    given: dict[str, Any],
    *,
    no_verify: bool,
    quiet: bool,
) -> int:
    """Land a task by the words of a push: a remote, and the branch to land on."""
    way = hint("to finish a task: {}", "land", resource=name)
    # What a landing would ignore is refused.
    odd = next((x.strip("_") for x, value in given.items() if value), None)
    if odd is not None or len(words) > 2:
        what = f"--{odd.replace('_', '-')}" if odd else "several branches"
        raise UsageError(f"--done lands a task: it cannot be combined with {what}", hints=(way,))
    source, colon, base = words[1].rpartition(":") if words[1:] else ("", "", None)
    here = {None, "", "HEAD", call.workspace.repository.branch()}
    # `:BRANCH` would delete it.
    if source.removeprefix("refs/heads/") not in here or (colon and not source):
        raise UsageError("--done lands what is checked out, and no other branch", hints=(way,))
    if words and words[0] != call.workspace.location.name:
        raise elsewhere(call.workspace.location, words[0])
    landing = find_verb("land").function
    result = landing(call, call.resources([name])[0], base=base, no_verify=no_verify)
    return call.respond(replace(result, lines=tuple) if quiet else result)


def _lines(answer: PushAnswer, call: Call, *, verbose: bool) -> Iterable[str]:
    now = call.now()
    if answer.status == "up_to_date":
        yield "everything is up to date"
    for ref in answer.refs:
        if ref.moves or verbose:
            yield _line(ref, answer.remote, would=answer.status == "would_push")
    for view in answer.leases:
        until = sentences.until(view, now)
        yield f"under {sentences.named(view)}, renewed {until}, token {view.token}"


def _line(ref: WorkRef, remote: str, *, would: bool) -> str:
    """``pushed main to origin: 1a2b3c4..5d6e7f8 (forced)``."""
    name = ref.ref.removeprefix("refs/heads/").removeprefix("refs/tags/")
    became = ref.became.value.replace("_", " ")
    if not ref.moves:
        return f"{name} on {remote}: {became}"
    ends = f"{ref.old[:SHORT]}..{ref.new[:SHORT]}" if ref.old and ref.new else ref.new[:SHORT]
    kind = f" ({became})" if became != "updated" else ""
    return f"{'would push' if would else 'pushed'} {name} to {remote}: {ends}{kind}"
