"""The user's work tree as git's hooks find it: what is committed, what is pushed, the message."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from gitlease.core.errors import Invalid
from gitlease.core.frozen import replace
from gitlease.core.lease import same_person
from gitlease.git.changes import committed, staged
from gitlease.git.changes_raw import Changed
from gitlease.git.processes import commit_words, is_forced_push, is_mirror_push
from gitlease.git.query import ask
from gitlease.git.repository import Repository, is_on
from gitlease.guard.changes_tasks import TaskTouched, task_status_changes, touched
from gitlease.guard.ports import PushedWork, StagedChange, Started
from gitlease.guard.rules import PushedCommit, Touched, merged
from gitlease.settings.sources import Tasks

if TYPE_CHECKING:  # of each hook only what it needs is loaded
    from gitlease.git.changes_push import Push
    from gitlease.git.message import MessageReading


class HookWorktree:
    """Answers the questions of hooks with git, in the environment that git gave them."""

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
        """``shared`` is the name of the remote of the ledger, where it has one.

        ``holder`` is whose work it is, which counts where it comes to a main branch there, and if
        ``strict`` to any.
        """
        self._repository, self._tasks = repository, tasks
        self._environ, self._ref_prefix, self._shared = environ, ref_prefix, shared
        self._holder, self._strict = holder, strict

    def staged(self, *, amended: bool | None = False) -> StagedChange:
        if amended is None:
            words = commit_words()
            amended = words.amend if words is not None else None
        changed = staged(self._repository, amend_of="HEAD" if amended else None)
        if amended is None and not changed and self._has_commit():
            changed = staged(self._repository, amend_of="HEAD")
        files = task_status_changes(self._repository, self._tasks, changed)
        followed = {one.path for one in changed if one.lost}  # nobody starts a task by that
        return StagedChange(
            touched=tuple(touched(changed, files)),
            started=tuple(_started([x for x in files if x.path not in followed])),
            problems=tuple(file.problem for file in files if file.problem),
        )

    def pushed(self, lines: Sequence[str], remote: str) -> PushedWork:
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
        """What a push brings, with the commits that it takes away; ``cut``: those are not all."""
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
            f"{push.remote_ref}: only the newest {len(push.every)} commits were looked at"
            for push in pushes
            if push.cut
        ]
        warnings += [f"only {len(lost)} of the commits that are lost were looked at"] * cut
        touched = merged((*brings, *gone))
        return PushedWork(touched, gone, tuple(ledgers), warnings=tuple(dict.fromkeys(warnings)))

    def carried(self, lines: Sequence[str], remote: str) -> tuple[PushedCommit, ...]:
        from gitlease.git.changes_push import landed
        from gitlease.guard.commit_facts import CommitReader

        pushes = self._pushes(lines, remote)
        remote = self._environ.get("PRE_COMMIT_REMOTE_NAME") or remote
        there = landed(self._repository, pushes, remote, strict=self._strict)
        every = dict.fromkeys(x for push in pushes for x in push.every if x not in there.on_main)
        commits = CommitReader(self._repository, self._tasks).read(list(every))
        return tuple(
            PushedCommit(commit.touched, commit.committer, commit.named)
            for commit in commits
            if not there.has(commit.id, own=self._is_own(commit.emails))
        )

    def _pushes(self, lines: Sequence[str], remote: str) -> list[Push]:
        from gitlease.git.changes_push import outgoing

        return outgoing(
            self._repository,
            lines,
            remote=remote,
            environ=self._environ,
            ref_prefix=self._ref_prefix,
            shared=self._shared,
            holder=self._holder,
            strict=self._strict,
        )

    def _is_own(self, emails: Sequence[str]) -> bool:
        return any(same_person(self._holder or "", email) for email in emails)

    def _is_shared(self, remote: str) -> bool:
        """Whether it is the remote of the ledger; of another one main is nobody else's branch."""
        remote = self._environ.get("PRE_COMMIT_REMOTE_NAME") or remote
        return self._shared is not None and self._shared in self._names(remote)

    def _names(self, remote: str) -> Sequence[str]:
        from gitlease.git.remote_branches import names_of

        return names_of(self._repository, remote)

    def _is_forced(self, remote: str) -> bool:
        """Whether a push may replace what it does not know: by its words, or by the settings."""
        names = self._names(remote)
        config = self._repository.config
        specs = (spec for name in names for spec in config.get_all(f"remote.{name}.push"))
        return is_forced_push() or any(spec.startswith("+") for spec in specs)

    def _is_mirrored(self, remote: str) -> bool:
        """Whether the push takes away from the remote whatever is not here, as every ledger."""
        names = self._names(remote)
        said = (self._repository.config.get(f"remote.{name}.mirror") for name in names)
        return is_mirror_push() or any(map(is_on, said))

    def _has_commit(self) -> bool:
        return ask(self._repository, "rev-parse", "-q", "--verify", "HEAD^{commit}").code == 0

    def _touched(self, changed: Sequence[Changed]) -> tuple[Touched, ...]:
        files = task_status_changes(self._repository, self._tasks, changed)
        return tuple(touched(changed, files))

    # --- the message ------------------------------------------------------------------------------

    def set_trailers(
        self, message_file: str, trailers: Sequence[str], *, stale: Sequence[str] = ()
    ) -> None:
        from gitlease.git.message import read_message, with_trailers, write_message

        data = read_message(message_file)
        told = with_trailers(data, trailers, self._reading(data), stale=stale)
        if told != data:
            write_message(message_file, told)

    def empty_if_bare(self, message_file: str) -> None:
        from gitlease.git.message import read_message, says_nothing, write_message

        data = read_message(message_file)
        if says_nothing(data, self._reading(data), self._template()):
            write_message(message_file, b"")

    def _template(self) -> bytes:
        from gitlease.git.message import read_message

        place = self._repository.config.get("commit.template")
        if not place:
            return b""
        try:
            top = self._repository.toplevel or ""
            return read_message(os.path.join(top, os.path.expanduser(place)))
        except Invalid:
            return b""

    def _reading(self, message: bytes) -> MessageReading:
        from gitlease.git.message import reading

        config, words = self._repository.config, commit_words()
        asked = words.cleanup if words is not None else ""
        return reading(
            message,
            edited=self._environ.get("GIT_EDITOR") != ":",  # what git says where it starts none
            cleanup=(asked or config.get("commit.cleanup") or "default").lower(),
            char=config.get("core.commentstring") or config.get("core.commentchar"),
        )


def _started(files: Sequence[TaskTouched]) -> Iterator[Started]:
    for file in files:
        if file.starts and file.after is not None:
            before = file.before.assigned if file.before is not None else ()
            yield Started(file.after.resource, before, file.after.assigned)
