"""The verbs that rest on the fence: ``land`` and ``fence``."""

from __future__ import annotations

from gitlease.kernel.rules.errors import UsageError
from gitlease.verbs import parameters as takes
from gitlease.verbs import sentences, wire
from gitlease.verbs.table import AT_A_CLONE, LEASE_EXITS, Door, DoorOfClone, Result, verb


@verb(
    "land",
    """Finish a task and push its work, in one step that cannot half happen.

The task's status is set to done in its file, in your last commit if that is yours, not pushed and
not signed, else in a commit of its own. Your branch is brought onto the base, which is the remote's
main branch: as it is, else by a rebase or a merge. Then work, task file and the completed lease go
in one atomic push: a holder that lost its lease lands nothing. If others land first, it is done
again on the new base, in the order of arrival. A conflict, a check that fails, or a refusal leaves
your branch and your files as they were.

Without RESOURCE it is the task that this session holds. If it is interrupted, repeat it: nothing is
done twice.""",
    examples=(
        "gitlease land",
        "gitlease land F001 --check 'make test'",
        "gitlease land F001 --by merge --base develop",
    ),
    exits=(1, 2, 3, *LEASE_EXITS[2:]),
    done="the work is on the base, and the lease is completed",
    no=("held", "violations"),
    doors=AT_A_CLONE,
)
def land_verb(
    door: DoorOfClone,
    resource: takes.Named | None = None,
    *,
    base: takes.Base = None,
    by: takes.By = None,
    check: takes.Check = None,
    unfenced: takes.Unfenced = False,
    no_verify: takes.NoVerify = False,
) -> Result:
    # Landing pushes commits, and the ledger of tests has no repository.
    if door.in_memory:
        raise UsageError("a ledger in memory has no work to land")
    # The tool server and the gateway load this table of verbs, and most of them push nothing.
    from gitlease.landing.landing import LandOptions

    options = LandOptions(
        base=base, by=by, check=check or (), unfenced=unfenced, hooks=not no_verify
    )
    landed = door.workspace.land(resource, options, tell=door.tell)
    where, several = f"{landed.base} of {landed.remote}", "s" * (landed.commits != 1)
    number = f"{landed.commits} commit{several}, {landed.commit[:9]}"
    said = f"landed {landed.resource} on {where}: {number}"
    # An interrupted landing is repeated, and had perhaps come through.
    if landed.already:
        said = f"{landed.resource} has landed on {where} already"
    return Result(
        body=wire.landed(landed),
        lines=lambda: [said],
        leases=landed.leases,
        value=landed,
        warnings=landed.warnings,
    )


@verb(
    "fence",
    """Check whether the live lease of RESOURCE still has this TOKEN: exit 0 if so, else 3.

Use this in a script as the last check before a step that cannot be undone. It always asks the
remote. An expired lease counts as lost, whether it was taken over or not. A greater token was
granted later. A system that remembers the greatest token it has seen and refuses smaller ones is
safer than any check beforehand.""",
    examples=(
        "gitlease fence deploy-prod 42 && ./deploy.sh",
        'gitlease fence "$GITLEASE_RESOURCE" "$GITLEASE_TOKEN"      # within gitlease run',
    ),
    exits=(2, 3, 4, 5, 7, 128),
    done="the lease is live and has this token",
    reads=True,
)
def fence_verb(
    door: Door, resource: takes.Named, token: takes.Token, *, scope: takes.TokenScope = None
) -> Result:
    from gitlease.landing.fenced_push import fence

    # In the session that has the lease: a door may speak for several.
    answer = door.act(
        "fence", [resource], lambda ledger, some: fence(ledger, some[0], token, scope=scope)
    )
    body = wire.changed(answer)
    # A check changes no edge.
    del body["edge"]

    def lines() -> list[str]:
        now = door.now()
        return [
            f"{sentences.named(view)} is held with token {token} {sentences.until(view, now)}"
            for view in answer.leases
        ]

    return Result(body=body, lines=lines, leases=answer.leases, warnings=answer.warnings)
