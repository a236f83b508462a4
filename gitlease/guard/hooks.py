"""The decisions of git's hooks, and the work tree that they judge: changes, pushes, messages.

gitlease's own faults never block anybody's work: whatever cannot be found out is a warning.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from gitlease.guard.callers import commit_words, is_forced_push, is_mirror_push
from gitlease.guard.commits import CommitFacts, CommitReader, merged, task_status_changes, touched
from gitlease.guard.history import Changed, TooMuch, committed, paths_between, staged
from gitlease.guard.message import (
    MessageReading,
    is_bare,
    read_message,
    reading,
    with_trailers,
    write_message,
)
from gitlease.guard.reports import GuardReport, PushedCommit, PushedWork, StagedChange, Started
from gitlease.guard.service import GuardService
from gitlease.kernel.git.files import Table, notes_of, strings_in
from gitlease.kernel.git.repository import Repository, ask, is_on, main_of
from gitlease.kernel.rules.errors import Denied, GitleaseError, Invalid, LeaseHeld
from gitlease.kernel.rules.frozen import dataclass, field, replace
from gitlease.kernel.rules.lease import person_key
from gitlease.kernel.rules.lease_view import LeaseView
from gitlease.kernel.rules.resources import WHOLE
from gitlease.kernel.rules.viewpoint import Severity, Touched
from gitlease.kernel.rules.work import read_trailer, trailer
from gitlease.kernel.settings.schema import Tasks

if TYPE_CHECKING:
    from gitlease.guard.pushes import Push
    from gitlease.guard.whose import Makers
    from gitlease.kernel.ledger.ledger_session import LedgerSession


MADE_UNDER = "made under"  # a kind of notes: trailers that commits do not have, by their ids


@dataclass(frozen=True)
class HookWorktree:
    """The user's work tree in a git hook, read with git in the environment of the hook.

    ``shared`` is the name of the ledger's remote, if it has one. Work counts again where it reaches
    a main branch there, with ``strict`` any branch. ``people`` are the names of holders in task
    files, ``bots`` the addresses of those who commit for others. Raises Invalid if git does not
    answer, and TooMuch for more than can be judged.
    """

    repository: Repository
    tasks: Tasks
    environ: Mapping[str, str]
    ref_prefix: str
    shared: str | None
    holder: str | None = None
    strict: bool = False
    people: Mapping[str, str] = field(default_factory=dict)
    bots: Sequence[str] = ()

    def staged(self, *, amended: bool | None = False) -> StagedChange:
        """The change about to be committed, by the index that git gives its hook.

        ``amended`` includes the change of the commit that is being replaced. None: find out whether
        one is; an index without any change counts as that.
        """
        # Git does not tell this hook; the words of the git above may.
        if amended is None:
            typed = commit_words()
            amended = typed.amend if typed is not None else None
        changed = staged(self.repository, amend_of="HEAD" if amended else None)
        words = ("rev-parse", "-q", "--verify", "HEAD^{commit}")
        if amended is None and not changed and ask(self.repository, *words).code == 0:
            changed = staged(self.repository, amend_of="HEAD")
        files = task_status_changes(self.repository, self.tasks, changed)
        # A merge that takes over the other side's file starts no task by that.
        followed = {change.path for change in changed if change.lost}
        return StagedChange(
            touched=tuple(touched(changed, files)),
            started=tuple(
                Started(x.after.resource, x.before.assigned if x.before else (), x.after.assigned)
                for x in files
                if x.path not in followed and x.starts and x.after is not None
            ),
            problems=tuple(file.problem for file in files if file.problem),
        )

    def pushed(self, lines: Sequence[str], remote: str) -> PushedWork:
        """The work of a push, by the lines that git gives its pre-push hook.

        It takes away the commits that the main branches of the ledger's remote lose by it.
        """
        if not self._is_shared(remote):
            return self.brought(lines, remote)
        from gitlease.guard.pushes import announced

        asked, target = announced(self.repository, lines, remote, self.environ, self.ref_prefix)
        from gitlease.guard.pushes import removed_by

        lost, cut, unknown = removed_by(
            self.repository,
            asked,
            target,
            self.holder or "",
            forced=lambda: (
                is_forced_push() or any(x.startswith("+") for x in self._config(target, "push"))
            ),
        )
        return replace(self.brought(lines, remote, lost, cut=cut), unknown=unknown)

    def brought(
        self, lines: Sequence[str], remote: str, lost: Sequence[str] = (), *, cut: bool = False
    ) -> PushedWork:
        """The work of a push that takes away ``lost`` commits; ``cut``: those are not all."""
        pushes = self._pushes(lines, remote)
        commits = dict.fromkeys(commit for push in pushes for commit in push.every)
        changes = committed(self.repository, list(dict.fromkeys((*commits, *lost))))
        taken = self._touched([change for commit in lost for change in changes[commit]])
        brings = self._touched([change for commit in commits for change in changes[commit]])
        ledgers = []
        if self._is_shared(remote):
            # A mirror push deletes from the remote whatever is not here, every ledger too.
            from gitlease.guard.pushes import LEDGER

            mirrors = is_mirror_push() or any(map(is_on, self._config(remote, "mirror")))
            ledgers = [f"{self.ref_prefix}/*"] if mirrors else []
            ledgers += [push.remote_ref for push in pushes if push.kind == LEDGER]
        warnings = [
            f"{push.remote_ref}: only the newest {len(push.every)} commits were checked"
            for push in pushes
            if push.cut
        ]
        warnings += [f"only {len(lost)} of the commits that would be lost were checked"] * cut
        paths = merged((*brings, *taken))
        made = CommitReader(self.repository, self.tasks).people(list(commits)) if commits else []
        made = self._with_noted(made)
        # A commit between two others may have no trailer, and still leads from one to the other.
        naming = made if any(commit.named for commit in made) else []
        return PushedWork(
            paths,
            taken,
            tuple(ledgers),
            warnings=tuple(dict.fromkeys(warnings)),
            naming=tuple(naming),
        )

    def carried(self, lines: Sequence[str], remote: str) -> tuple[PushedCommit, ...]:
        """The commits of such a push, without those that the remote turns out to have already.

        Asks the remote; if it does not answer, the remote-tracking refs count.
        """
        from gitlease.guard.pushes import brought_new

        pushes = self._pushes(lines, remote)
        remote = self.environ.get("PRE_COMMIT_REMOTE_NAME") or remote
        bring, there = brought_new(self.repository, pushes, remote, strict=self.strict)
        known = [x for x in pushes if there.intersection(x.every)]
        differs: frozenset[str] | None = None
        # Of commits that the remote has elsewhere only what differs where they land counts. That
        # cannot be compared with a state of the remote that is not here.
        if all(push.remote_oid for push in known):
            with contextlib.suppress(Invalid):
                each = (paths_between(self.repository, x.remote_oid, x.local_oid) for x in known)
                differs = frozenset().union(*each)
        return tuple(
            PushedCommit(
                x.id,
                tuple(t for t in x.touched if t.path in differs)
                if differs is not None and x.id in there
                else x.touched,
                x.named,
                recorded=x.recorded,
                emails=x.emails,
                author=x.author,
                parents=x.parents,
                mentioned=x.mentioned,
            )
            for x in self._reader().read(bring)
        )

    def note_grant(self, commits: Sequence[str], trailer: str) -> None:
        """Keep that these commits were made under a lease, by its trailer."""

        def change(tables: dict[str, Table]) -> None:
            for commit in commits:
                _, before = tables[MADE_UNDER].get(commit, (0, []))
                texts = dict.fromkeys((*strings_in(before), trailer))
                tables[MADE_UNDER][commit] = time.time(), [*texts]

        if commits:
            notes_of(self.repository.common_dir).change(change)

    def _with_noted(self, made: list[CommitFacts]) -> list[CommitFacts]:
        # What was noted counts as a trailer does.
        noted = notes_of(self.repository.common_dir).of(MADE_UNDER) if made else {}
        for n, commit in enumerate(made):
            if commit.id in noted:
                read = map(read_trailer, strings_in(noted[commit.id][1]))
                named = dict.fromkeys((*commit.named, *filter(None, read)))
                made[n] = replace(commit, named=tuple(named))
        return made

    def makers(self, emails: Iterable[str]) -> Makers:
        """Know the people with these addresses, by the mailmap of the fetched main branch."""
        return self._reader().makers(emails, names=self.people, bots=self.bots)

    def _reader(self) -> CommitReader:
        # Not by a mailmap of the work tree: whoever brings one along could be anybody.
        main = main_of(self.repository, self.shared) if self.shared is not None else None
        return CommitReader(self.repository, self.tasks, base=main[1] if main else "")

    def _pushes(self, lines: Sequence[str], remote: str) -> list[Push]:
        from gitlease.guard.pushes import outgoing

        return outgoing(
            self.repository,
            lines,
            remote=remote,
            environ=self.environ,
            ref_prefix=self.ref_prefix,
            shared=self.shared,
            strict=self.strict,
        )

    def _is_shared(self, remote: str) -> bool:
        # Nobody else builds on the main branch of another remote than the ledger's.
        remote = self.environ.get("PRE_COMMIT_REMOTE_NAME") or remote
        return self.shared is not None and self.shared in self._names(remote)

    def _names(self, remote: str) -> Sequence[str]:
        from gitlease.guard.pushes import names_of

        return names_of(self.repository, remote)

    def _config(self, remote: str, key: str) -> Iterator[str]:
        config = self.repository.config
        return (x for name in self._names(remote) for x in config.get_all(f"remote.{name}.{key}"))

    def _touched(self, changed: Sequence[Changed]) -> tuple[Touched, ...]:
        files = task_status_changes(self.repository, self.tasks, changed)
        return tuple(touched(changed, files))

    # --- the message ------------------------------------------------------------------------------

    def set_trailers(
        self, message_file: str, trailers: Sequence[str], *, stale: Sequence[str] = ()
    ) -> None:
        """End a message with these trailers, in place of older ones of the same leases.

        ``stale`` ones are removed: the message was that of another change.
        """
        old = read_message(message_file)
        new = with_trailers(old, trailers, self._reading(old), stale=stale)
        if new != old:
            write_message(message_file, new)

    def empty_if_bare(self, message_file: str) -> None:
        """Empty a message of nothing but trailers and the template, so that git makes no commit."""
        message, template = read_message(message_file), b""
        if place := self.repository.config.get("commit.template"):
            top = self.repository.toplevel or ""
            with contextlib.suppress(Invalid):
                template = read_message(os.path.join(top, os.path.expanduser(place)))
        if is_bare(message, self._reading(message), template):
            write_message(message_file, b"")

    def _reading(self, message: bytes) -> MessageReading:
        config, words = self.repository.config, commit_words()
        option = words.cleanup if words is not None else ""
        return reading(
            message,
            # Git's own value where it starts no editor: then comments may stay in the message.
            edited=self.environ.get("GIT_EDITOR") != ":",
            cleanup=(option or config.get("commit.cleanup") or "default").lower(),
            char=config.get("core.commentstring") or config.get("core.commentchar"),
        )


BLOCK, WARN, OFF = "block", "warn", "off"


@dataclass(frozen=True, kw_only=True)
class HookDecision:
    """The outcome of a hook. ``blocked``: git must stop.

    ``refused`` is why the whole is refused, such as a claim that the commit implies; ``claimed``
    are the leases it claimed, and ``written`` the task files that this changed.
    """

    blocked: bool = False
    report: GuardReport = GuardReport()
    refused: GitleaseError | None = None
    claimed: tuple[LeaseView, ...] = ()
    written: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class Hooks:
    """The decisions of git's hooks, for one actor in one work tree.

    ``service`` is opened only for changes to the ledger. ``mode`` is what a finding does. Of an
    unreachable remote, ``offline`` warns about a commit and blocks a push (``warn``), blocks both,
    or ignores it for a commit and warns about a push (``off``).
    """

    def __init__(
        self,
        worktree: HookWorktree,
        guard: GuardService,
        service: Callable[[], LedgerSession],
        *,
        mode: str = BLOCK,
        offline: str = WARN,
    ) -> None:
        self._worktree, self._guard, self._open = worktree, guard, service
        self._blocks, self._is_off, self._offline = mode == BLOCK, mode == OFF, offline

    def pre_commit(self) -> HookDecision:
        """Decide whether the staged change may be committed; claim the tasks that it starts."""
        staged = StagedChange() if self._is_off else self._worktree.staged()
        if not staged.touched:
            return HookDecision()
        report = self._guard.check(staged.touched)
        # What is known only from too old a state warns; by default it stops nobody but a push.
        if self._offline != BLOCK:
            report = report.lenient()
        warnings = report.warnings + staged.problems
        if report.offline and self._offline != OFF:
            warnings += (report.offline,)
        blocked = self._is_blocked(report, offline=self._offline == BLOCK)
        decision = HookDecision(blocked=blocked, report=report, warnings=warnings)
        return decision if blocked or not staged.started else self._claim(staged.started, decision)

    def pre_push(self, lines: Sequence[str], remote: str) -> HookDecision:
        """Decide whether a push may go on, by the remote's present state."""
        if self._is_off:
            return HookDecision()
        try:
            work = self._worktree.pushed(lines, remote)
        except TooMuch as error:
            # A server would refuse it, too. Others' leases are fetched before anything is said.
            self._guard.check((), strict=True)
            if not self._guard.others_hold():
                return HookDecision(warnings=(error.message,))
            way = "leave it out of the push, or wait until nobody holds anything"
            too_much = Denied(f"{error.message} while others hold leases", hints=(way,))
            return HookDecision(blocked=self._blocks, refused=too_much)
        refused: Denied | None = None
        if work.ledgers:
            whose = "holds everybody's leases, and only gitlease changes it"
            refused = Denied(f"{work.ledgers[0]} {whose}: push branches and tags only")
        if not work.touched and not work.unknown and not work.naming:
            return HookDecision(blocked=refused is not None and self._blocks, refused=refused)
        report = self._guard.check(work.touched, strict=True)
        report = self._guard.with_superseded(report, work.naming, self._worktree.makers)
        blocking = [x for x in report.findings if x.severity is Severity.BLOCK]
        if blocking or report.superseded:
            # Without what the push only carries along: the holders' own work, and what has landed.
            with contextlib.suppress(GitleaseError):
                from gitlease.guard.whose import Makers

                carried = self._worktree.carried(lines, remote)
                emails = {x.lease.holder for x in blocking}
                emails |= {y for x in carried for y in (*x.emails, x.author)}
                makers = self._worktree.makers(emails) if blocking else Makers()
                report = self._guard.without_own_work(
                    report, carried, lost=work.lost, makers=makers
                )
        if work.unknown and refused is None and self._guard.others_hold():
            fetch = ["git", "fetch", *([] if "://" in remote else [remote])]
            refused = Denied(
                f"this clone does not have the remote's {', '.join(work.unknown)}, so it cannot"
                " tell whose work would be lost",
                hints=(shlex.join(fetch),),
            )
        blocked = self._is_blocked(report, offline=self._offline != OFF)
        lost = report.superseded[-1].error if report.superseded else None  # the oldest
        return HookDecision(
            blocked=blocked or ((refused or lost) is not None and self._blocks),
            report=report,
            refused=refused or lost,
            warnings=(*report.warnings, *filter(None, [report.offline]), *work.warnings),
        )

    def name_leases(self, message_file: str, *, amended: bool | None = False) -> tuple[str, ...]:
        """Add a trailer for each lease that a commit falls under to its message; return them.

        ``amended`` is None if git does not say whether a commit is being replaced.
        """
        held = [trailer(x, layer) for layer, x in self._guard.held(parents=True) if not x.parked]
        # Most commits are made without a lease, and cost no git here.
        if not held:
            return ()
        touched = self._worktree.staged(amended=amended).touched
        trailers = tuple(trailer(lease, layer) for layer, lease in self._guard.under(touched))
        # A message may be that of another change: of an amended commit, or one cherry-picked.
        stale = [text for text in held if text not in trailers]
        self._worktree.set_trailers(message_file, trailers, stale=stale)
        return trailers

    def end_message(self, message_file: str) -> None:
        """Have git refuse a message with nothing but our trailers, as it does an empty one."""
        self._worktree.empty_if_bare(message_file)

    def _is_blocked(self, report: GuardReport, *, offline: bool) -> bool:
        is_held = any(f.severity is Severity.BLOCK for f in report.findings)
        return self._blocks and (is_held or (offline and bool(report.offline)))

    def _claim(self, started: Sequence[Started], decision: HookDecision) -> HookDecision:
        # A task that becomes one in progress is claimed with the commit, by the same lease.
        # The remote did not answer just now: a claim would wait for it once more.
        if decision.report.offline:
            names = ", ".join(x.resource.text for x in started)
            return replace(decision, warnings=(*decision.warnings, f"{names}: not claimed"))
        try:
            service = self._open()
            # A claim makes several contacts: one that hangs must not be waited for in each.
            service.store.peek([service.layer])
            self._check_taken(started, service)
            # The person, without a session, is only warned about what a run of theirs holds.
            warned = {
                f.lease.resource.key
                for f in decision.report.findings
                if f.severity is Severity.WARN and f.lease.same_holder(service.actor)
            }
            people, holder = service.edges.rules.people, service.actor.holder
            mine = []
            for task in started:
                # A commit that hands the work to somebody else leaves the claim to them. A task
                # that was theirs before is claimed all the same, and refused: the edge protects it.
                before = {person_key(name) for name in task.before}
                new = {person_key(x.name) for x in people.others(task.after, holder)}
                if task.resource.key not in warned and (not new or new & before):
                    mine.append(task.resource)
            if not mine:
                return decision
            from gitlease.kernel.ledger import claim
            from gitlease.kernel.ledger.answers import ClaimOptions

            answer = claim.claim(service, mine, ClaimOptions(any_name=True, commit=False))
        # Only a holder stops the commit: whatever else fails here is our own trouble.
        except LeaseHeld as refused:
            return replace(decision, blocked=self._blocks, refused=refused)
        except GitleaseError as error:
            warning = f"not claimed: {error.message}"
            return replace(decision, warnings=(*decision.warnings, warning))
        return replace(
            decision,
            claimed=answer.leases if answer.status != "renewed" else (),
            written=tuple(dict.fromkeys(w.change.file for w in answer.written if not w.problem)),
            warnings=decision.warnings + answer.warnings,
        )

    def _check_taken(self, started: Sequence[Started], service: LedgerSession) -> None:
        # Refuse to take a task from its assignee without a claim: the edge is out of the file
        # already, so the claim itself would not refuse it.
        from gitlease.kernel.rules.moves.claiming import assigned_error

        people, holder = service.edges.rules.people, service.actor.holder
        held = {lease.resource.key for _, lease in self._guard.held()}
        for task in started:
            kept = {person_key(name) for name in task.after}
            out = [x for x in people.others(task.before, holder) if person_key(x.name) not in kept]
            if out and task.resource.key not in held:
                raise assigned_error(task.resource, WHOLE, tuple(out))
