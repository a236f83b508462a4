"""The composition root of the fenced push: opened only for the verbs that need it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from gitlease.kernel.git.repository import CHECKOUT, ask, commit_of, fit_name
from gitlease.kernel.ledger.acts import keep
from gitlease.kernel.ledger.heartbeat import heartbeat_of, kept
from gitlease.kernel.rules.errors import Invalid
from gitlease.kernel.rules.frozen import replace
from gitlease.kernel.rules.resources import GLOBAL_LAYER, Resource
from gitlease.landing.fenced_push import FencedPush
from gitlease.landing.plan import SECONDS, GitWork, PushRequest
from gitlease.runs.child import check_executable, run_in
from gitlease.runs.leased_command import LeasedCommand
from gitlease.runs.pool import words_for_worktrees
from gitlease.wiring.workspace import Workspace

if TYPE_CHECKING:
    from gitlease.landing.landing import Landed, LandingPlace, LandOptions


def open_push(workspace: Workspace, *, seconds: float = SECONDS) -> FencedPush:
    """The fenced push of an opened repository; a push is given up after so many ``seconds``.

    Raises Invalid in a clone that has no remote although its ledger is at one.
    """
    workspace.check_remote()
    repository, settings = workspace.repository, workspace.settings
    work = GitWork(
        repository,
        settings.tasks,
        workspace.location,
        ref_prefix=settings.ref_prefix,
        holder=workspace.identity.actor.holder,
        people=settings.people,
        bots=settings.bots,
        seconds=seconds,
    )
    return FencedPush(
        workspace.ledger,
        work,
        layers=[] if workspace.location.url is None else [GLOBAL_LAYER],
        quiet=heartbeat_of(workspace).paused,
    )


def _landing_place(workspace: Workspace) -> LandingPlace:
    from gitlease.landing.landing import LandingPlace

    return LandingPlace(
        workspace.repository,
        workspace.settings.tasks,
        workspace.location,
        workspace.learn_main_branch,
    )


def land(
    workspace: Workspace,
    resource: Resource | None,
    options: LandOptions,
    tell: Callable[[str], None],
) -> Landed:
    """Land a task of an opened repository."""
    from gitlease.landing.landing import Lander

    return Lander(
        workspace.ledger,
        open_push(workspace),
        _landing_place(workspace),
        replace(options, by=options.by or workspace.settings.landing_by),
        keep=lambda task: kept(workspace, task),
        tell=tell,
    ).land(resource)


Finisher = Callable[["LeasedCommand", Resource], Sequence[str]]


def pool_finisher(
    workspace: Workspace,
    directory: str,
    words: Sequence[str],
    tell: Callable[[str], None],
    *,
    no_verify: bool = False,
    base: str | None = None,
    check: Sequence[str] | None = None,
    **terms: Any,
) -> tuple[str, Finisher]:
    """Return how a pool finishes a task: its work lands, or is handed on to a command's ``words``.

    That gets the branch as it would land, on the remote as well, and the task waits for a person.
    ``tell`` gets the lines that hooks and the server print; the rest are parameters of ``land``.
    Returned first is the ref that it lands on, fetched. Raises UsageError and NotFound for a base
    that nothing could land on, and for commands that ``directory`` does not have.
    """
    from gitlease.landing.landing import LandOptions

    landing = _landing_place(workspace)
    target = landing.target(base)
    landing.fetch(target)
    ref = target.ref

    def fit(command: Sequence[str] | None) -> tuple[str, ...]:
        if not command:
            return ()
        check_executable(command[0], cwd=directory)
        return words_for_worktrees(workspace.repository, ref, directory, command)

    words = fit(words)
    options = LandOptions(hooks=not no_verify, base=ref, check=fit(check), push=not words, **terms)

    def finish(command: LeasedCommand, resource: Resource) -> Sequence[str]:
        from gitlease.landing.landing import unknown_files

        place = cast("Workspace", command.place)
        # Files that the command left behind beside its commits are its own affair.
        own = ask(place.repository, "rev-list", "-1", "HEAD", f"^{ref}", "--").out.strip()
        if not own and (files := unknown_files(place.repository)):
            from gitlease.landing.replay import listed

            raise Invalid(f"nothing is committed, but there are new files: {listed(files)}")
        before = commit_of(place.repository, "HEAD")
        landed = place.land(resource, options, tell=tell)
        if words and not landed.already:
            try:
                with kept(place, resource):
                    _hand_on(command, resource, landed, words, options, tell)
            except BaseException:  # it is not done: whoever takes it next goes on from here
                ask(place.repository, "reset", "-q", "--keep", before, timeout=CHECKOUT)
                raise
        return landed.warnings

    return ref, finish


def _hand_on(
    command: LeasedCommand,
    resource: Resource,
    landed: Landed,
    words: Sequence[str],
    options: LandOptions,
    tell: Callable[[str], None],
) -> None:
    """Push a task's branch, start a command on it, and keep the task for a person."""
    place = cast("Workspace", command.place)
    branch = f"work/{fit_name(resource.text)}"
    refs = (f"+HEAD:refs/heads/{branch}",)
    request = PushRequest(remote=landed.remote, refspecs=refs, hooks=options.hooks)
    open_push(place).push(request, require=[resource], unfenced=options.unfenced, tell=tell)
    env = command.environment() | {"GITLEASE_BRANCH": branch, "GITLEASE_BASE": landed.base}
    status = run_in(command.request.directory, words, env)
    if status:
        raise Invalid(f"{words[0]} ended with status {status}")
    reason = f"handed on as {branch}, for {landed.base} of {landed.remote}"
    keep(place.ledger, [resource], note=reason)
