"""``claim``, and the answer of every verb that claims."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gitlease.kernel.ledger import claim
from gitlease.kernel.ledger.answers import Answer, ClaimOptions
from gitlease.kernel.rules.errors import Hint, LeaseHeld, UsageError, hint
from gitlease.kernel.rules.frozen import replace
from gitlease.kernel.rules.lease import State
from gitlease.kernel.rules.ledger import is_kept, setback
from gitlease.kernel.rules.resources import WHOLE, Resource
from gitlease.verbs import parameters as takes
from gitlease.verbs import sentences, wire
from gitlease.verbs.table import LEASE_EXITS, Door, Result, changed, verb

LENGTHS = (
    "quick fix 5-10m, standard 15-30m, feature 1h, refactor 2h",
    "Prefer short leases and renew while you work: a forgotten lease ends by itself.",
)
WOULD = {"claimed": "would_claim", "renewed": "would_renew", "taken_over": "would_take_over"}
BY_NAME = ("takeover", "reason")  # what other systems' requests have of a claim's parameters
MANY = 5  # names: more are no help in a hint


@verb(
    "claim",
    """Take a lease on each RESOURCE: on all of them, or on none.

With --one it takes a single lease, on the first RESOURCE that is free; with --wait as well, on the
first that becomes free. Your own live leases count as taken, so two terminals get two ports.

A resource is a name (a task id such as F001, deploy-prod, port-8080) or a path (src/auth/,
'src/**/*.py', path:Makefile). Anyone else who claims it, or a path that could match the same file,
is refused and sees who holds it and until when. If you already hold it, your lease is renewed; you
are warned if you claimed it in another terminal or on another machine. --new refuses this instead.

If the resource is a task, you are also assigned in its task file. The assignment outlasts the
lease. The edit stays in your work tree unless you commit it. In a repository with task files, other
names need --any.

A task assigned to someone else stays theirs after their lease has expired. If there is no sign of
work on it for the ledger's edges.abandoned_after (default: 7 days), a claim takes it over and
notifies them. Until then, ask them. If they cannot answer, --takeover with a --reason replaces
their assignment, but never a live lease.""",
    advice=LENGTHS,
    examples=(
        "gitlease claim F001",
        "gitlease claim F001 --ttl 30m --reason 'rate limits'",
        "gitlease claim F001 --commit          # and commit the line in its task file, alone",
        "gitlease claim src/auth/ docs/auth.md",
        "gitlease claim F001 --path src/auth/ --path tests/auth/",
        "gitlease claim F001 --scope parser    # others may claim its other scopes",
        "gitlease claim F001 --wait 15m        # block until it is free",
        "gitlease claim deploy-prod --any      # a name that is not a task",
        "gitlease claim port-8080 port-8081 --any --one",
    ),
    exits=LEASE_EXITS,
    done="you hold all of them; with --one: the one that it names",
)
def claim_verb(
    door: Door,
    resources: takes.Wanted,
    *,
    one: takes.One = False,
    paths: takes.Paths = (),
    scope: takes.ClaimScope = None,
    ttl: takes.Ttl = None,
    wait: takes.Wait = None,
    reason: takes.Reason = None,
    takeover: takes.Takeover = False,
    expect_holder: takes.ExpectHolder = None,
    reopen: takes.Reopen = False,
    any: takes.AnyName = False,
    new: takes.New = False,
    commit: takes.Commit = None,
    dry_run: takes.DryRun = False,
    verbose: takes.Verbose = False,
) -> Result:
    # A dry run waits for nobody, and has no id that -v could print.
    if dry_run and (wait is not None or verbose):
        other = door.option("wait") if wait is not None else "-v"
        raise UsageError(f"{other} and {door.option('dry_run')} exclude each other")
    options = claim_options(
        one=one,
        scope=scope,
        ttl=ttl,
        paths=paths,
        reason=reason,
        takeover=takeover,
        expect_holder=expect_holder,
        reopen=reopen,
        new=new,
        any=any,
        commit=commit,
    )
    if one:
        check_one(options, door.option)
    warnings = door.check_claim(resources, paths, any_name=any)
    answer = door.act(
        "claim",
        resources,
        lambda ledger, some: claim.claim(
            ledger.for_dry_run() if dry_run else ledger,
            some,
            options,
            wait=wait,
            on_wait=lambda held: door.on_wait(held, wait or 0),
        ),
        scope=options.scope,
        dry_run=dry_run,
        one=one,
    )
    if dry_run:
        commits = door.ledger.edges.recorded(commit)
        return would_claim(door, answer, warnings=warnings, commits=commits)
    return claimed(door, answer, scope=scope, warnings=warnings, verbose=verbose)


def claim_by_name(door: Door, resource: Resource, **given: Any) -> Result:
    """Claim for clients to whom the claim of a task by its name is the deliberate takeover.

    They have no other way to a task that stays assigned after its lease has lapsed.
    """
    try:
        return claim_verb.function(door, [resource], **given)
    except LeaseHeld as held:
        # A live lease is never taken over by a name alone: its holder may still be at work.
        live = any(x.state == State.ACTIVE.value for x in held.views)
        # Nor is a task that its owner kept: it waits for them.
        kept = any(is_kept(x) for x in held.conflicts)
        if given.get("takeover") or not held.by_edge or live or kept:
            raise
        # Without a record there is no holder to expect: the client has to ask for it.
        if not held.views:
            way = hint("to take it over, send {}", takeover=True, reason="TEXT")
            raise held.with_(hints=(*held.hints, way)) from None
        former = held.views[0].holder
        door.ledger.messages.add(held.warnings)
    reason = given.pop("reason", None) or f"claimed by name, after {former}'s lease had lapsed"
    # Whoever took it since the refusal must not be displaced.
    terms = given | {"reason": reason, "takeover": True, "expect_holder": former}
    return claim_verb.function(door, [resource], **terms)


def claim_options(
    *, scope: str | None = None, paths: Sequence[Resource] = (), any: bool = False, **given: Any
) -> ClaimOptions:
    """Return the ledger's options for the parameters of a claim."""
    return ClaimOptions(
        scope=WHOLE if scope is None else scope, paths=patterns_of(paths), any_name=any, **given
    )


def check_one(options: ClaimOptions, option: Callable[[str], str]) -> None:
    """Raise UsageError for options that are about one resource in particular, if any will do.

    ``option`` gives a parameter's name as the caller knows it.
    """
    if not options.one:
        return
    one = option("one")
    if options.new:
        raise UsageError(f"{one} never renews a lease that you hold: leave out {option('new')}")
    if options.takeover or options.expect_holder is not None:
        name = option("takeover" if options.takeover else "expect_holder")
        raise UsageError(f"{name} cannot be combined with {one}: name the task to take over")


def patterns_of(paths: Sequence[Resource]) -> tuple[str, ...]:
    """Return the patterns of paths, as a lease has them."""
    return tuple(path.pattern for path in paths if path.pattern is not None)


def claimed(
    door: Door,
    answer: Answer,
    *,
    scope: str | None = None,
    warnings: Sequence[str] = (),
    also: Sequence[str] = (),
    more: wire.Document | None = None,
    verbose: bool = False,
) -> Result:
    """Answer a claim: ``also`` are further lines, ``more`` further keys of the document."""

    return changed(
        answer,
        wire.claimed(answer) | (more or {}),
        lambda: claimed_lines(door, answer, also, verbose=verbose),
        warnings=(*warnings, *door.granted(answer), *answer.warnings),
        then=_next_calls(answer, scope),
    )


def claimed_lines(
    door: Door,
    answer: Answer,
    also: Sequence[str] = (),
    *,
    verbose: bool = False,
    planned: Sequence[str] | None = None,
) -> list[str]:
    """Return lines for the claimed leases, their former holders, edited files and notes.

    ``planned``: the edits of a dry run; nothing was claimed.
    """
    now, lines, edits = door.now(), list[str](), planned or ()
    claim, renew, be = "claimed ", "renewed your own ", ""
    if planned is not None:
        claim, renew, be = "would claim ", "would renew your own ", "would be "
    for view in answer.leases:
        line = f"{renew if view.renewals else claim}{sentences.named_in(view)} "
        line += sentences.until(view, now)
        line += "" if planned is not None else f", token {view.token}"
        lines.append(f"{line}, holder {view.holder}" + verbose * f", lease {view.lease_id}")
    lines += [
        f"{be}{sentences.displaced(x)}" + sentences.quoted(x.reason) for x in answer.displaced
    ]
    # The notes of several resources are one list: their failures would be counted as one.
    found = setback(answer.notes) if len(answer.leases) == 1 else None
    if answer.written or answer.unassigned or found:
        people = door.ledger.edges.rules.people
        lines += [f"{be}taken over from {name}" for name in sentences.unassigned(answer, people)]
        edits = sentences.edited(answer) if planned is None else planned
        if found:
            also = (*also, f"{found.last.resource} {sentences.setback(found, now)}")
    return [*lines, *edits, *also, *(sentences.noted(note, now) for note in answer.notes)]


def would_claim(door: Door, answer: Answer, *, warnings: Sequence[str], commits: bool) -> Result:
    """Answer a dry run: the leases as they would be, which nobody has, so none is in ``leases``."""
    views = [replace(x, state="planned") for x in answer.leases]
    planned = tuple(x if x.renewals else replace(x, lease_id="", token=0) for x in views)
    alone = ", and commit that alone" if commits else ""

    def lines() -> list[str]:
        edits = [f"would edit {written.change.file}{alone}" for written in answer.written]
        return claimed_lines(door, replace(answer, leases=planned), planned=edits)

    body = wire.claimed(replace(answer, leases=planned, status=WOULD[answer.status]))
    return Result(
        body=body | {"dry_run": True},
        lines=lines,
        value=[*planned],
        warnings=(*warnings, *answer.warnings),
    )


def _next_calls(answer: Answer, scope: str | None) -> Sequence[Hint]:
    names = [view.resource for view in answer.leases]
    if len(names) > MANY:
        return (Hint("renew", {"all": True}, "keep what you hold"),)
    part: dict[str, object] = {} if scope is None else {"scope": scope}
    steps = [Hint("renew", {"resources": names} | part, "keep it while you work")]
    if len(names) == 1 and answer.leases[0].assigned:  # what is no task is released, not finished
        steps.append(Hint("done", {"resource": names[0]} | part, "when the work is finished"))
    return (*steps, Hint("release", {"resources": names} | part, "when you stop before that"))
