"""The verbs that keep and end leases, and ``note``, for the next holder."""

from __future__ import annotations

from collections.abc import Sequence

from gitlease.kernel.ledger import acts
from gitlease.kernel.ledger.answers import Answer
from gitlease.kernel.rules.errors import USE_ANY, Hint, NotFound, UsageError
from gitlease.kernel.rules.frozen import replace
from gitlease.kernel.rules.instant import format_duration
from gitlease.kernel.rules.resources import WHOLE, Resource, fold
from gitlease.verbs import parameters as takes
from gitlease.verbs import sentences, wire
from gitlease.verbs.table import (
    LEASE_EXITS,
    OWN_EXITS,
    Door,
    Result,
    changed,
    verb,
)


@verb(
    "renew",
    """The heartbeat: each lease lasts for its full TTL again, counted from now.

Renew about every third of the TTL while you work. A lease that expired, was taken over or revoked
is never taken back: renew exits with 3, and you must stop the work under it.

--all renews everything this session holds, in every layer that this clone uses, or in the one named
by --layer or --local. It lists each lost lease, even if none is left.""",
    advice=("quick fix 5-10m, standard 15-30m, feature 1h, refactor 2h",),
    examples=(
        "gitlease renew F001",
        "gitlease renew F001 F002 --ttl 30m",
        "gitlease renew --all               # everything this session holds, one push per layer",
    ),
    exits=OWN_EXITS,
    done="all of them are renewed",
)
def renew_verb(
    door: Door,
    resources: takes.Resources = (),
    *,
    all: takes.RenewAll = False,
    ttl: takes.NewTtl = None,
    scope: takes.OwnScope = None,
) -> Result:
    if _is_all(door, "renews", resources, all=all, scope=scope):
        answer = acts.renew_all(door.every_ledger(), ttl=ttl)
    else:
        answer = door.act(
            "renew",
            resources,
            lambda ledger, some: acts.renew(ledger, some, scope=scope, ttl=ttl),
            scope=scope,
            ttl=ttl,
        )
    body = wire.changed(answer)
    if answer.refused:
        body = {"status": answer.status, "leases": body["leases"]}
    return _kept(door, answer, "renewed", body, otherwise="you hold nothing here: nothing to renew")


def _is_all(
    door: Door, does: str, resources: Sequence[Resource], *, all: bool, scope: str | None
) -> bool:
    """True if a call is about everything. UsageError for one that names too much, or nothing."""
    if all and (resources or scope is not None):
        raise UsageError(
            f"{door.option('all')} {does} everything: it takes no resource and no "
            f"{door.option('scope')}"
        )
    if not all and not resources:
        raise UsageError(f"missing resource: name one, or use {door.option('all')}")
    return all


def _kept(
    door: Door, answer: Answer, done: str, body: wire.Document, *, otherwise: str = ""
) -> Result:
    def lines() -> list[str]:
        now, said = door.now(), list[str]()
        for view in answer.leases:
            name = sentences.named_in(view)
            # A lease of a task that has landed is completed instead of renewed.
            kept = f"{done} {name} {sentences.until(view, now)}"
            said.append(f"completed {name}" if view.state == "completed" else kept)
        # Refusals have lines of their own, which "nothing to renew" would contradict.
        return said or [otherwise][: not answer.refused]

    return changed(answer, body, lines)


@verb(
    "extend",
    """Make a lease last at least DURATION from now, for a gap without renewals.

Use it before a long build, a review or lunch. The ledger's maximum applies, and the answer names it
if it was reached. A lease is never shortened.""",
    examples=("gitlease extend F001 2h", "gitlease extend src/auth/ 90m --scope login"),
    exits=OWN_EXITS,
    done="the lease lasts that long, or the maximum",
)
def extend_verb(
    door: Door, resource: takes.Named, duration: takes.Lasting, *, scope: takes.OwnScope = None
) -> Result:
    answer = door.act(
        "extend",
        [resource],
        lambda ledger, some: acts.extend(ledger, some[0], duration, scope=scope),
        scope=scope,
    )

    def lines() -> list[str]:
        now = door.now()
        limit = format_duration(answer.max_ttl_seconds)
        capped = f", capped to the ledger's maximum of {limit}" if answer.capped_to_max else ""
        said = []
        for view in answer.leases:
            name, until = sentences.named_in(view), sentences.until(view, now)
            longer = view.expires_in > min(duration, answer.max_ttl_seconds)  # never shortened
            kept = f"{name} already runs {until}" if longer else f"extended {name} {until}"
            ended = f"completed {sentences.named_in(view)}"
            said.append(ended if view.state == "completed" else f"{kept}{capped}")
        return said

    body = wire.changed(answer)
    body |= {"capped_to_max": answer.capped_to_max, "max_ttl_seconds": answer.max_ttl_seconds}
    # The library answers with leases alone: each says itself that it was capped.
    most = answer.max_ttl_seconds if answer.capped_to_max else None
    extended = tuple(
        replace(view, capped=answer.capped_to_max, max_ttl_seconds=most) for view in answer.leases
    )
    return changed(replace(answer, leases=extended), body, lines)


@verb(
    "release",
    """Give leases back, so that others need not wait for them to expire.

If the resource is a task, you are unassigned in its task file. A status of in progress returns to
to do if it was set by start in this clone, or by a commit that names the lease, unless someone else
is working on the task or a part of it is finished. Releasing something you do not hold succeeds and
changes nothing. You cannot release a lease that someone else holds, or a task assigned to someone
else, even an abandoned one: claim it first.

--keep ends the lease of a task and keeps the task yours. Any of your sessions resumes it with
`claim`; others stay out until it counts as abandoned (edges.abandoned_after, default: 7 days).
It waits until somebody claims it by name, or until you release it or leave a note on it without a
session: `next` and pools skip it, and the note says why. A release in a session, as an agent's,
leaves it waiting. Paths and plain names are not kept: claim them for as long as you need them.

A note tells the next holder how far you got. --all releases everything this session holds, in every
layer; without a session, everything you hold without one.""",
    examples=(
        "gitlease release F001",
        "gitlease release F001 --note 'parser done, tests red'",
        "gitlease release F001 --commit        # and commit the line in its task file, alone",
        "gitlease release F001 --keep --note 'which colour?'",
        "gitlease release src/auth/ docs/auth.md",
        "gitlease release --all",
    ),
    exits=LEASE_EXITS,
    done="you hold none of them",
)
def release_verb(
    door: Door,
    resources: takes.Resources = (),
    *,
    all: takes.ReleaseAll = False,
    note: takes.NextNote = None,
    keep: takes.Keep = False,
    keep_status: takes.KeepStatus = False,
    commit: takes.Commit = None,
    scope: takes.OwnScope = None,
) -> Result:
    if keep:
        for name, given in (("all", all), ("keep_status", keep_status), ("commit", commit)):
            if given not in (None, False):
                raise UsageError(
                    f"{door.option('keep')} and {door.option(name)} exclude each other"
                )
        return _kept_for_later(door, resources, note=note, scope=scope)
    if _is_all(door, "releases", resources, all=all, scope=scope):
        layers = door.every_ledger()
        answer = acts.release_all(layers, note=note, keep_status=keep_status, commit=commit)
    else:
        answer = door.act(
            "release",
            resources,
            lambda ledger, some: acts.release(
                ledger, some, scope=scope, note=note, keep_status=keep_status, commit=commit
            ),
            scope=scope,
        )

    def lines() -> list[str]:
        said = [f"released {sentences.named_in(x)}" for x in answer.leases]
        # Also without a lease: a release cleans up a lingering edge of one's own.
        said += sentences.edited(answer)
        if all:
            # What live runs have stays, and is named in the warnings: that is not nothing.
            none = ["you hold nothing here: nothing to release"]
            return said + none[: answer.found_nothing]
        return said + _not_released(answer, resources, note)

    return changed(answer, wire.ended(answer), lines, value=())


def _kept_for_later(
    door: Door, resources: Sequence[Resource], *, note: str | None, scope: str | None
) -> Result:
    if not resources:
        raise UsageError(f"{door.option('keep')} needs the tasks that it is about")
    answer = door.act(
        "release",
        resources,
        lambda ledger, some: acts.keep(ledger, some, scope=scope, note=note),
        scope=scope,
    )

    def lines() -> list[str]:
        return [
            f"ended {sentences.named_in(x)}, which stays yours and waits for you"
            for x in answer.leases
        ]

    return changed(answer, wire.ended(answer), lines, value=(), then=_resuming(answer))


def _resuming(answer: Answer) -> Sequence[Hint]:
    """Return the claims that resume kept tasks, one of each scope and layer."""
    parts: dict[tuple[str, str], list[str]] = {}
    for view in answer.leases:
        parts.setdefault((view.scope, view.layer), []).append(view.resource)
    return [
        Hint(
            "claim",
            # Without this call's session: any of them may.
            {"resources": names, **({} if part == WHOLE else {"scope": part})}
            | {"layer": layer, "session": None},
            "resume it, in any of your sessions",
        )
        for (part, layer), names in parts.items()
    ]


def _not_released(answer: Answer, resources: Sequence[Resource], note: str | None) -> list[str]:
    said = []
    ended = {fold(view.resource) for view in answer.leases} | sentences.settled(answer)
    # A resource that was typed twice is told of once.
    for resource in dict.fromkeys(resources):
        # The ledger may spell a resource otherwise than it was typed.
        if {fold(resource.text), resource.key} & ended:
            continue
        # `edge_in` is of the whole answer: of several resources it does not tell which one.
        if answer.edge_in == ("file",) and len(resources) == 1:
            said.append(f"{resource} stays assigned to you")
        else:
            said.append(f"you have nothing to release on {resource}")
    return said if note is None else [*said, "left your note for the next holder"]


@verb(
    "done",
    """Finish the work: your lease is completed, and its notes are cleared.

The task's status is set to done in its task file, and you are unassigned. Only tasks are done:
release paths, and release names that are not tasks (--any completes such a name all the same). If
others work on other scopes of it, only your scope is completed, and the status stays. A task
assigned to someone else, even an abandoned one, must be claimed first. Completed work cannot be
claimed again by mistake: that needs `claim --reopen`.""",
    examples=(
        "gitlease done F001",
        "gitlease done F001 --commit           # and commit the lines in its task file, alone",
        "gitlease done F001 --scope parser",
        "gitlease done deploy-prod --any       # not a task, and never claimed",
    ),
    exits=LEASE_EXITS,
    done="the work is completed",
)
def done_verb(
    door: Door,
    resource: takes.Named,
    *,
    any: takes.AnyName = False,
    commit: takes.Commit = None,
    scope: takes.OwnScope = None,
) -> Result:
    try:
        answer = door.act(
            "done",
            [resource],
            lambda ledger, some: acts.complete(
                ledger, some[0], scope=scope, commit=commit, any_name=any
            ),
            scope=scope,
        )
    except (UsageError, NotFound) as error:  # only tasks are done
        # A name without a record may be a file's, whose lease goes by another word.
        name = getattr(door.file_called(resource), "word", resource.text)
        give_back = Hint("release", {"scope": scope, "resources": [name]})
        raise error.with_(then=(give_back,)) from None
    return completed(answer)


def completed(answer: Answer) -> Result:
    """Answer for completed work."""

    def lines() -> list[str]:
        said = [
            f"completed {sentences.named_in(view)}"
            + ("" if answer.changed else f" already, by {view.holder}")
            for view in answer.leases
        ]
        return [*said, *sentences.edited(answer)]

    return changed(answer, wire.ended(answer), lines, value=())


@verb(
    "note",
    """Leave a note for the next holder of RESOURCE. Anyone may, with or without a lease.

`show` and every claim display it until the work is done. A note that you leave without a session
hands out a task again that failed too often, or waits for a person (see `help running`).

--to-holder is word for whoever holds it now: their next command, tool call or hook of an agent
shows it, once, and their brief lists it. That goes to the session that holds the lease; of a path,
to all whose leases overlap it. Where nobody else holds it, nothing is left.""",
    examples=(
        "gitlease note F001 'the fixture in tests/api is flaky'",
        "gitlease note F001 'main is red: push nothing' --to-holder",
        "gitlease note src/auth/ 'ask jo before touching the tokens'",
    ),
    exits=LEASE_EXITS[1:],
    done="the note is left",
    tool="Leave a note for the next holder of a resource, or for who has it.",
)
def note_verb(
    door: Door,
    resource: takes.Named,
    text: takes.NoteText,
    *,
    to_holder: takes.ToHolder = False,
    any: takes.KnownName = False,
) -> Result:
    if not any:
        try:
            # A note under a mistyped name would reach nobody.
            door.check_names([resource])
        except NotFound as error:  # under whatever kind of name, nobody holds it
            hints = [x for x in error.hints if not (to_holder and x is USE_ANY)]
            raise error.with_(hints=tuple(hints)) from None
    answer = door.act(
        "note",
        [resource],
        lambda ledger, some: acts.note(ledger, some[0], text, to_holder=to_holder),
    )
    body = wire.changed(answer) | {"notes": [wire.note(left) for left in answer.notes]}
    lines = [f"{sentences.whose(x)} will see your note on {x.resource}" for x in answer.leases]
    lines = lines or [f"left your note for the next holder of {resource}"]
    return changed(answer, body, lambda: lines, value=())


@verb(
    "revoke",
    """End someone else's lease. Only the ledger's admins may; the holder is notified.

If the holder is gone for good, just wait: a lease that is not renewed ends by itself. The ledger's
policy names the admins (`config --ledger admins`). By default there are none.""",
    examples=(
        "gitlease revoke F001 --reason 'the machine is gone'",
        "gitlease revoke F001 --reason 'stuck run' --expect-holder jo@example.com",
        "gitlease revoke --record leases/ab/cd.yaml --reason 'cannot be read'",
    ),
    exits=LEASE_EXITS,
    done="the resource is free",
)
def revoke_verb(
    door: Door,
    resource: takes.Named | None = None,
    *,
    reason: takes.RevokeReason,
    expect_holder: takes.ExpectedHolder = None,
    record: takes.Record = None,
    scope: takes.AnyScope = None,
) -> Result:
    # A record that cannot be read names no resource: it goes by its file.
    if (resource is None) == (record is None):
        known = door.option("record")
        raise UsageError(f"name either a resource or, with {known}, a damaged record")
    if resource is not None:
        answer = door.act(
            "revoke",
            [resource],
            lambda ledger, some: acts.revoke(
                ledger, some[0], reason=reason, scope=scope, expect_holder=expect_holder
            ),
            scope=scope,
        )
        otherwise = f"{resource} is not leased: nothing to revoke"
    elif record is not None:
        # Nobody knows the scope and the holder of a record that cannot be read.
        if expect_holder is not None or scope is not None:
            known, *others = map(door.option, ("record", "scope", "expect_holder"))
            raise UsageError(f"{known} takes neither {others[0]} nor {others[1]}")
        answer = acts.drop_record(door.ledger, record, reason=reason)
        otherwise = f"removed the damaged record {record}"

    def lines() -> list[str]:
        said = [
            f"revoked {sentences.named_in(view)} from {sentences.whose(view)}"
            for view in answer.leases
        ]
        return said or [otherwise]

    return changed(answer, wire.changed(answer), lines)
