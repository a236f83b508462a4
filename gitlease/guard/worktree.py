"""The user's work tree in git's hooks: the staged change, the pushed commits, the message."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from gitlease.core.errors import Invalid
from gitlease.core.frozen import replace
from gitlease.git.history import Changed, committed, paths_between, staged
from gitlease.git.repository import Repository, ask, is_on
from gitlease.git.run import commit_words, is_forced_push, is_mirror_push
from gitlease.guard.changes_tasks import TaskTouched, task_status_changes, touched
from gitlease.guard.ports import PushedWork, StagedChange, Started
from gitlease.guard.rules import PushedCommit, Touched, merged
from gitlease.settings.sources import Tasks

if TYPE_CHECKING:  # of each hook only what it needs is loaded
    from gitlease.git.changes_push import Push
    from gitlease.git.message import MessageReading


class HookWorktree:
    """The user's work tree in a git hook, read with git in the environment of the hook.

    Raises Invalid if git does not answer, and TooMuch for more than can be judged.
    """

    def __init__(
        self,
        repository: Repository,
        tasks: Tasks,
        *,
        environ: Mapping[str, str],
        ref_prefix: str,
        shared: str | None,
        holder: str | None = None,
        strict: bool = False,
    ) -> None:
        """``shared`` is the name of the ledger's remote, if it has one.

        Work counts again where it reaches a main branch there, with ``strict`` any branch.
        """
        self._repository, self._tasks = repository, tasks
        self._environ, self._ref_prefix, self._shared = environ, ref_prefix, shared
        self._holder, self._strict = holder, strict

    def staged(self, *, amended: bool | None = False) -> StagedChange:
        """The change about to be committed, by the index that git gives its hook.

        ``amended`` includes the change of the commit that is being replaced. None: find out whether
        one is; an index without any change counts as that.
        """
        if amended is None:
            words = commit_words()
            amended = words.amend if words is not None else None
        changed = staged(self._repository, amend_of="HEAD" if amended else None)
        if amended is None and not changed and self._has_commit():
            changed = staged(self._repository, amend_of="HEAD")
        files = task_status_changes(self._repository, self._tasks, changed)
        followed = {one.path for one in changed if one.lost}  # a merge starts no task by that
        return StagedChange(
            touched=tuple(touched(changed, files)),
            started=tuple(_started([x for x in files if x.path not in followed])),
            problems=tuple(file.problem for file in files if file.problem),
        )

    def pushed(self, lines: Sequence[str], remote: str) -> PushedWork:
        """The work of a push, by the lines that git gives its pre-push hook.

        It takes away the commits that the main branches of the ledger's remote lose by it.
        """
        from gitlease.git.changes_push import announced, removed_by

        if not self._is_shared(remote):
            return self.brought(lines, remote)
        asked, target = announced(self._repository, lines, remote, self._environ, self._ref_prefix)
        lost, cut, unknown = removed_by(
            self._repository,
            asked,
            target,
            self._holder or "",
            forced=lambda: self._is_forced(target),
        )
        return replace(self.brought(lines, remote, lost, cut=cut), unknown=unknown)

    def brought(
        self, lines: Sequence[str], remote: str, lost: Sequence[str] = (), *, cut: bool = False
    ) -> PushedWork:
        """The work of a push that takes away ``lost`` commits; ``cut``: those are not all."""
        from gitlease.git.changes_push import LEDGER

        pushes = self._pushes(lines, remote)
        commits = dict.fromkeys(commit for push in pushes for commit in push.every)
        found = committed(self._repository, list(dict.fromkeys((*commits, *lost))))
        gone = self._touched([one for commit in lost for one in found[commit]])
        brings = self._touched([one for commit in commits for one in found[commit]])
        ledgers = []
        if self._is_shared(remote):
            ledgers = [f"{self._ref_prefix}/*"] if self._is_mirrored(remote) else []
            ledgers += [push.remote_ref for push in pushes if push.kind == LEDGER]
        warnings = [
            f"{push.remote_ref}: only the newest {len(push.every)} commits were checked"
            for push in pushes
            if push.cut
        ]
        warnings += [f"only {len(lost)} of the commits that would be lost were checked"] * cut
        paths = merged((*brings, *gone))
        return PushedWork(paths, gone, tuple(ledgers), warnings=tuple(dict.fromkeys(warnings)))

    def carried(self, lines: Sequence[str], remote: str) -> tuple[PushedCommit, ...]:
        """The commits of such a push, without those that the remote turns out to have already.

        Asks the remote; if it does not answer, the remote-tracking refs count.
        """
        from gitlease.git.changes_push import landed
        from gitlease.guard.commit_facts import CommitReader

        pushes = self._pushes(lines, remote)
        remote = self._environ.get("PRE_COMMIT_REMOTE_NAME") or remote
        known = landed(self._repository, pushes, remote, strict=self._strict)
        new = dict.fromkeys(x for push in pushes for x in push.every if x not in known.on_main)
        bring = [x for x in new if not known.has(x)]
        there = known.anywhere.intersection(bring)
        differs = self._differs([x for x in pushes if there.intersection(x.every)])
        return tuple(
            PushedCommit(
                tuple(t for t in x.touched if t.path in differs)
                if differs is not None and x.id in there
                else x.touched,
                x.named,
                known=x.id in there,
                recorded=x.recorded,
            )
            for x in CommitReader(self._repository, self._tasks).read(bring)
        )

    def _differs(self, pushes: Sequence[Push]) -> frozenset[str] | None:
        # The paths that pushes change where they land; None if the remote's state is not here.
        if not all(push.remote_oid for push in pushes):
            return None
        with contextlib.suppress(Invalid):
            each = (paths_between(self._repository, x.remote_oid, x.local_oid) for x in pushes)
            return frozenset().union(*each)
        return None

    def _pushes(self, lines: Sequence[str], remote: str) -> list[Push]:
        from gitlease.git.changes_push import outgoing

        return outgoing(
            self._repository,
            lines,
            remote=remote,
            environ=self._environ,
            ref_prefix=self._ref_prefix,
            shared=self._shared,
            strict=self._strict,
        )

    def _is_shared(self, remote: str) -> bool:
        # Nobody else builds on the main branch of another remote than the ledger's.
        remote = self._environ.get("PRE_COMMIT_REMOTE_NAME") or remote
        return self._shared is not None and self._shared in self._names(remote)

    def _names(self, remote: str) -> Sequence[str]:
        from gitlease.git.remote_branches import names_of

        return names_of(self._repository, remote)

    def _is_forced(self, remote: str) -> bool:
        config = self._repository.config
        specs = (x for name in self._names(remote) for x in config.get_all(f"remote.{name}.push"))
        return is_forced_push() or any(spec.startswith("+") for spec in specs)

    def _is_mirrored(self, remote: str) -> bool:
        # A mirror push deletes from the remote whatever is not here, every ledger too.
        config = self._repository.config
        return is_mirror_push() or any(
            is_on(config.get(f"remote.{name}.mirror")) for name in self._names(remote)
        )

    def _has_commit(self) -> bool:
        return ask(self._repository, "rev-parse", "-q", "--verify", "HEAD^{commit}").code == 0

    def _touched(self, changed: Sequence[Changed]) -> tuple[Touched, ...]:
        files = task_status_changes(self._repository, self._tasks, changed)
        return tuple(touched(changed, files))

    # --- the message ------------------------------------------------------------------------------

    def set_trailers(
        self, message_file: str, trailers: Sequence[str], *, stale: Sequence[str] = ()
    ) -> None:
        """End a message with these trailers, in place of older ones of the same leases.

        ``stale`` ones are removed: the message was that of another change.
        """
        from gitlease.git.message import read_message, with_trailers, write_message

        old = read_message(message_file)
        new = with_trailers(old, trailers, self._reading(old), stale=stale)
        if new != old:
            write_message(message_file, new)

    def empty_if_bare(self, message_file: str) -> None:
        """Empty a message of nothing but trailers and the template, so that git makes no commit."""
        from gitlease.git.message import is_bare, read_message, write_message

        message, template = read_message(message_file), b""
        if place := self._repository.config.get("commit.template"):
            top = self._repository.toplevel or ""
            with contextlib.suppress(Invalid):
                template = read_message(os.path.join(top, os.path.expanduser(place)))
        if is_bare(message, self._reading(message), template):
            write_message(message_file, b"")

    def _reading(self, message: bytes) -> MessageReading:
        from gitlease.git.message import reading

        config, words = self._repository.config, commit_words()
        option = words.cleanup if words is not None else ""
        return reading(
            message,
            edited=self._environ.get("GIT_EDITOR") != ":",  # git's value if it starts no editor
            cleanup=(option or config.get("commit.cleanup") or "default").lower(),
            char=config.get("core.commentstring") or config.get("core.commentchar"),
        )


def _started(files: Sequence[TaskTouched]) -> Iterator[Started]:
    for file in files:
        if file.starts and file.after is not None:
            before = file.before.assigned if file.before is not None else ()
            yield Started(file.after.resource, before, file.after.assigned)
