"""A push as git would carry it out: ``git push --dry-run``, which runs the hooks as well.

So the hooks of the repository see the requested push and nothing else; the push itself, with the
refs of ledgers beside it, comes after and runs none.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence

from gitlease.core.errors import Denied, Unavailable, UsageError
from gitlease.core.frozen import replace
from gitlease.core.work_push import Became, WorkPush, WorkRef
from gitlease.engine.ports import Cause
from gitlease.git.changes_push import REPLACES, removed
from gitlease.git.remote_branches import main_branches, names_of
from gitlease.git.repository import TIMEOUT, TRUE, Repository, ask
from gitlease.guard.hooks import HookWorktree
from gitlease.guard.rules import PushedCommit, PushedWork
from gitlease.push.destination import elsewhere, rewritten, unfollowed, work_at
from gitlease.push.output import OutputFilter, failure, split_output, unknown
from gitlease.push.request import JUDGED, PlannedPush, PushRequest
from gitlease.settings.sources import Location, Tasks
from gitlease.store.transport import TIME_LIMIT
from gitlease.store.work_push import push_work, refs_at, remote_refs, run_in

SECONDS = 3_600.0  # for hooks, and for the way of the objects
LOOKS = 3

_BECAME = {
    " ": Became.UPDATED,
    "+": Became.FORCED,
    "*": Became.CREATED,
    "-": Became.DELETED,
    "=": Became.UP_TO_DATE,
    "!": Became.REJECTED,
}
_SUMMARY = re.compile(r"([0-9a-f]{40,64})\.\.\.?([0-9a-f]{40,64})")
_BRANCH = "refs/heads/"
_ON_DEMAND = TRUE | {"on-demand", "only"}


class GitWork:
    """The work of one repository, to be pushed to its ledger's remote.

    Methods that ask the remote raise Unavailable if it cannot be reached, and Denied if it, or a
    hook of the repository, refuses.
    """

    def __init__(
        self,
        repository: Repository,
        tasks: Tasks,
        location: Location,
        *,
        ref_prefix: str,
        holder: str,
        seconds: float = SECONDS,
    ) -> None:
        self._repository, self._location, self._prefix = repository, location, ref_prefix
        self._seconds, self._holder = seconds, holder
        self._worktree = HookWorktree(
            repository,
            tasks,
            environ={},
            ref_prefix=ref_prefix,
            shared=location.name,
            holder=holder,
            strict=True,
        )

    def plan(self, request: PushRequest, tell: Callable[[str], None]) -> PlannedPush:
        """Find out what would be pushed, and run the repository's hooks. One connection.

        ``tell`` gets each line that hooks or the server print. Raises UsageError for refs that
        cannot be pushed, or not together with the ledger. Refs that git rejects are in the answer.
        """
        push = work_at(self._repository, self._location, request, seconds=self._seconds)
        self._check_place(push)
        words = ["push", "--dry-run", "--porcelain", "--atomic", *request.choosing]
        # Without options for the server: in a dry run git sends them to a server that has closed
        # the connection already, and sometimes dies of that.
        words += [word for word in request.sending if not word.startswith("--push-option=")]
        words += ["--set-upstream"] if request.upstream else []
        words += [] if request.hooks else ["--no-verify"]
        words += self._submodules(request.choosing)
        words += ["--", push.remote, *request.refspecs]
        before = self._ids()
        env = {JUDGED: push.remote, **_own_locale()}
        full = [("core.abbrev", "no"), ("push.pushOption", "")]
        output = OutputFilter(tell)
        result = run_in(
            push, words, seconds=self._seconds, settings=full, env=env, on_err=output.more
        )
        output.end(result)
        by_hooks, lines = split_output(result)
        for line in by_hooks:
            tell(line)
        if lines is None:
            raise failure(result, self._seconds)
        refs = [x for line in lines if (x := self._ref(line, before)) is not None]
        for one in refs:
            if one.ref.startswith(f"{self._prefix}/"):
                raise UsageError(
                    f"{one.ref} is a ledger of leases, which only changes of leases move",
                    hints=("name the branches and tags to be pushed",),
                )
        follows = request.upstream or any("\t" not in line and line != "Done" for line in lines)
        moving = replace(push, refs=tuple(x for x in refs if x.moves))
        way, tracking = unfollowed(self._repository, moving, self._prefix)
        return PlannedPush(
            push=way,
            refs=tuple(refs),
            remote=push.remote,
            upstreams=self._upstreams(refs) if follows else (),
            tracking=tracking,
        )

    def _check_place(self, push: WorkPush) -> None:
        # Settings may have git push elsewhere: the ledger must be there, too.
        ways = rewritten(self._repository, self._location, push)
        if ways is None:
            return
        for _ in range(LOOKS):  # the ledger may change between the two looks
            ledgers = [refs_at(push, way, f"{self._prefix}/*", timeout=TIME_LIMIT) for way in ways]
            if ledgers[0] == ledgers[1]:
                return
        raise elsewhere(self._location, ways[1])

    def _submodules(self, choosing: Sequence[str]) -> list[str]:
        # Submodules are checked, but never pushed along: no lease would guard that.
        config = self._repository.config
        if any(word.startswith("--recurse-submodules") for word in choosing):
            return []
        set_so = config.get("push.recursesubmodules") or config.get("submodule.recurse") or ""
        return ["--recurse-submodules=check"] if set_so.lower() in _ON_DEMAND else []

    def _ids(self) -> dict[str, str]:
        # Read before a hook may move a branch: git pushes the ids of then.
        words = ("for-each-ref", "--format=%(objectname) %(refname)", "refs/heads", "refs/tags")
        lines = os.fsdecode(ask(self._repository, *words).out).splitlines()
        found = {ref: oid for oid, _, ref in (line.partition(" ") for line in lines)}
        return found | {"HEAD": self._id_of("HEAD")}

    def _id_of(self, name: str) -> str:
        words = ("rev-parse", "-q", "--verify", "--end-of-options", name)
        said = ask(self._repository, *words)
        return (os.fsdecode(said.out).split() or [""])[-1] if said.code == 0 else ""

    def _ref(self, line: str, before: Mapping[str, str]) -> WorkRef | None:
        flag, tab, rest = line.partition("\t")
        names, tab_too, summary = rest.partition("\t")
        if not (tab and tab_too) or flag not in _BECAME:
            return None
        source, _, ref = names.rpartition(":")
        became = _BECAME[flag]
        reason = summary if became is Became.REJECTED else ""
        moved = _SUMMARY.match(summary)
        if moved is not None:
            return WorkRef(ref, source, moved[1], moved[2], became)
        new = "" if became is Became.DELETED else before.get(source) or self._id_of(source)
        old = new if became is Became.UP_TO_DATE else ""
        return WorkRef(ref, source, old, new, became, reason)

    def _upstreams(self, refs: Sequence[WorkRef]) -> tuple[tuple[str, str], ...]:
        current = self._repository.branch()
        found = []
        for one in refs:
            source = f"{_BRANCH}{current}" if one.source == "HEAD" and current else one.source
            if source.startswith(_BRANCH) and one.ref.startswith(_BRANCH):
                found.append((source.removeprefix(_BRANCH), one.ref))
        return tuple(found)

    def brought(self, plan: PlannedPush) -> PushedWork:
        """The paths touched by the commits that a push would bring, or take away.

        Asks the remote only if something is replaced or deleted: for its other refs. Raises Denied
        if this clone does not have what is replaced.
        """
        lines = self._lines(plan)
        if not lines:
            return PushedWork()
        lost, cut = self._lost(plan)
        return self._worktree.brought(lines, plan.remote, lost, cut=cut)

    def carried(self, plan: PlannedPush) -> tuple[PushedCommit, ...]:
        """The commits of a push, without those that the remote, which is asked, already has."""
        return self._worktree.carried(self._lines(plan), plan.remote)

    def _lines(self, plan: PlannedPush) -> list[str]:
        # As git would give them to its pre-push hook.
        none = "0" * (40 if self._repository.object_format == "sha1" else 64)
        return [
            f"{x.source or '(delete)'} {x.new or none} {x.ref} {x.old or none}"
            for x in plan.refs
            if x.moves
        ]

    def _lost(self, plan: PlannedPush) -> tuple[list[str], bool]:
        if not any(x.moves and x.became in REPLACES for x in plan.refs):
            return [], False
        there = refs_at(plan.push, plan.push.remote, timeout=TIME_LIMIT)
        place = self._location.name or self._location.url or ""
        names = names_of(self._repository, place)
        main = main_branches(self._repository, names)
        return removed(
            self._repository,
            plan.refs,
            there,
            main=main,
            remote=plan.remote,
            holder=self._holder,
        )

    def land(self, push: WorkPush) -> tuple[str, ...]:
        """Push without any ledger, all refs or none; return the lines that the server printed.

        Raises UnknownOutcome if it cannot be known whether that landed.
        """
        pushed = push_work(push)
        if pushed.clean:
            return pushed.said
        if not pushed.sent:
            kind = Denied if pushed.cause in (Cause.WORK, Cause.REFUSED, Cause.MOVED) else None
            raise (kind or Unavailable)(f"the push was not made: {pushed.detail}")
        try:
            there = remote_refs(push, timeout=TIME_LIMIT)
        except (Unavailable, Denied) as error:
            raise unknown(f"{pushed.detail}; {error.message}") from None
        if all(there[x.ref] == x.new for x in push.refs):
            return pushed.said
        if pushed.cause is Cause.UNREACHABLE:
            raise unknown(pushed.detail)
        raise Denied(f"the remote refused the push: {pushed.detail}", hints=pushed.hints)

    def follow(self, plan: PlannedPush) -> None:
        """Set the requested upstreams, and the tracking refs that git did not update."""
        commands: list[list[str]] = []
        for ref, new in plan.tracking:
            commands += [
                ["update-ref", *(["-m", "update by push", ref, new] if new else ["-d", ref])]
            ]
        for branch, ref in plan.upstreams:
            commands += [["config", f"branch.{branch}.remote", plan.remote]]
            commands += [["config", f"branch.{branch}.merge", ref]]
        for words in commands:
            run_in(plan.push, words, seconds=TIMEOUT)


def _own_locale() -> dict[str, str]:
    # Hooks get the user's own encoding; only git's messages are in English.
    own = next((v for k in ("LC_ALL", "LC_CTYPE", "LANG") if (v := os.environ.get(k))), "")
    return {"LC_ALL": "", "LC_MESSAGES": "C", "LANGUAGE": ""} | ({"LC_CTYPE": own} if own else {})
