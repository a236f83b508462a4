"""One call of the command line: what was asked, the workspace, and how it is answered."""

from __future__ import annotations

import copy
import shlex
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from gitlease.core.instant import moment_of
from gitlease.faces.cli import output

if TYPE_CHECKING:
    from gitlease.core.lease import Actor
    from gitlease.core.resources.resource import Resource
    from gitlease.core.view import LeaseView
    from gitlease.engine.answers import Answer
    from gitlease.engine.edges import Planned
    from gitlease.engine.ledger_session import LedgerSession
    from gitlease.engine.queue.queueing import TaskQueue
    from gitlease.wiring.workspace import Workspace

Opener = Callable[..., "Workspace"]

# In the order in which a hint repeats them.
REPEATED = (("directory", "-C"), ("layer", "--layer"), ("remote", "--remote"))


def _issue_pages(workspace: Workspace) -> str | None:
    from gitlease.wiring.issue_host import issue_pages

    return issue_pages(workspace)


def open_real(directory: str, **options: Any) -> Workspace:
    """Open the repository that ``directory`` lies in."""
    from gitlease.wiring.workspace import open_workspace, own_process

    own_process()
    return open_workspace(directory, **options)


class Call:
    """What the words before and after the verb said, and what the verb needs to answer."""

    command: str | None = None
    directory: str = ""
    layer: str | None = None
    local: bool = False
    remote: str | None = None
    session: str | None = None
    no_session: bool = False
    retry: Callable[[str], str] | None = None
    """The command that would wait, for so long, for what is refused now."""
    cached: str | None = None
    """The command that answers the same from what this clone knows."""
    whole_queue: str | None = None
    """The command that shows every task, where nothing is left to claim."""
    _opened: Workspace | None = None

    def __init__(self, prog: str, opener: Opener = open_real, *, json: bool = False) -> None:
        self.prog, self.opener, self.json = prog, opener, json
        self.warnings: list[str] = []

    def with_words(self, **words: Any) -> Call:
        """The same call with other words: a layer, a session."""
        other = copy.copy(self)
        vars(other).update(words)
        return other

    # --- what was asked ------------------------------------------------------------------------

    @property
    def workspace(self) -> Workspace:
        """The repository with its service, opened when it is first needed."""
        return self.opened()

    def opened(self, **options: Any) -> Workspace:
        """The same, opened with further options of ``open_workspace`` if it is not yet open."""
        if self._opened is None:
            self._opened = self.opener(
                self.directory or ".",
                layer=self.layer,
                local=self.local,
                remote=self.remote,
                session=self.session,
                no_session=self.no_session,
                **options,
            )
            self.warnings += self._opened.settings.warnings
            output.FORM.pages = cache(partial(_issue_pages, self._opened))
        return self._opened

    def open_as(self, change: Callable[[Workspace], Workspace]) -> None:
        """Have the workspace changed as it is opened: to another session, say."""
        opener = self.opener
        self.opener = lambda directory, **options: change(opener(directory, **options))

    @property
    def ledger(self) -> LedgerSession:
        return self.workspace.ledger

    @property
    def queue(self) -> TaskQueue:
        return self.workspace.queue

    @property
    def actor(self) -> Actor:
        return self.workspace.identity.actor

    def now(self) -> datetime:
        """The service's clock; this machine's before there is a service. A person's local time."""
        told = None if self._opened is None else self._opened.ledger.clock.now().wall_ms
        now = moment_of(time.time_ns() // 1_000_000 if told is None else told)
        return now.astimezone() if output.on_terminal() and not self.json else now

    def resource(self, word: str) -> Resource:
        """The resource that a word means here; a name that is also a file is pointed out."""
        from gitlease.wiring.words import file_called, resource_here

        found = resource_here(self.workspace, word)
        file = None if found.is_path else file_called(self.workspace.repository, word)
        if file is not None:
            self.warnings.append(
                f"{word} is a name here, not the {file.kind}; for that write {file.word}"
            )
        return found

    def resources(self, words: Iterable[str]) -> list[Resource]:
        return [self.resource(word) for word in words]

    def paths(self, words: Iterable[str]) -> list[Resource]:
        """Words of paths that a lease is to cover as well."""
        from gitlease.wiring.words import path_here

        return [path_here(self.workspace.repository, word) for word in words]

    def to_claim(
        self, words: Iterable[str], paths: Iterable[str], *, any_name: bool
    ) -> tuple[list[Resource], list[Resource]]:
        """The resources of a claim, and the paths that it is to cover as well.

        UsageError for a word that may mean a file as well as a name.
        """
        from gitlease.wiring.words import check_claim, resource_here

        wanted = [resource_here(self.workspace, word) for word in words]
        covered = self.paths(paths)
        said = check_claim(self.workspace, wanted, covered, any_name=any_name)
        self.warnings.extend(said)
        return wanted, covered

    def needs_any(self, name: str) -> bool:
        """Whether a resource is claimed here only with ``--any``: no task file has its name."""
        from gitlease.wiring.words import file_called

        task = self._task(name)
        if task is None or task.task is not None or task.resource.is_path:
            return False
        named = file_called(self.workspace.repository, task.resource.text) is not None
        return named or self.ledger.edges.is_unknown(task)

    def is_anothers(self, name: str) -> bool:
        """Whether a resource is a task that its file here assigns to others alone."""
        task = self._task(name)
        return task is not None and bool(task.others)

    def _task(self, name: str) -> Planned | None:
        """A resource with its task, where it is one; None where the claim itself says why not."""
        from gitlease.core.errors import GitleaseError
        from gitlease.core.resources.resource import parse_resource, word_anywhere

        try:
            resource = parse_resource(word_anywhere(name))
            return self.ledger.edges.plan_end([resource], keep_status=True)[0]
        except GitleaseError:
            return None

    # --- how it is answered --------------------------------------------------------------------

    def typed(
        self,
        verb: str,
        *resources: Resource | str,
        then: Sequence[str] = (),
        options: Sequence[str] = (),
        layer: str | None = None,
    ) -> str:
        """A command to type here, with the options that chose this ledger and session.

        ``then`` are words that follow the resources as they are; ``layer`` is the one that the
        command is to speak of, where an answer is about several.
        """
        words = [*self.prog.split(), verb]
        names = [*(self.word(r) for r in resources), *then]
        dashed = ["--"] if any(name.startswith("-") for name in names) else []
        chosen = [w for name, flag in REPEATED if (v := getattr(self, name)) for w in (flag, v)]
        if self.remote is not None:
            from gitlease.wiring.workspace import without_secrets

            # A blank ends a URL in a text, but not in a word.
            urls = [w.replace(" ", "%20") if "://" in w else w for w in chosen]
            chosen = [without_secrets(word) for word in urls]
        chosen += ["--local"] if self.local else []
        if layer is not None and self._opened is not None:
            from gitlease.core.resources.resource import layer_words

            chosen += layer_words(layer, self._opened.layer)
        chosen += ["--session", self.session] if self.session is not None else []
        chosen += ["--no-session"] if self.no_session else []
        tail = [*options, *chosen]
        words += [*tail, *dashed, *names] if dashed else [*names, *tail]
        return shlex.join(words)

    def named(self, view: LeaseView) -> str:
        """A lease of any layer, with its scope and layer where they are not the usual ones here."""
        from gitlease.faces import sentences

        name = sentences.named(view)
        return name if view.layer == self.workspace.layer else f"{name} in layer {view.layer}"

    def word(self, resource: Resource | str) -> str:
        """How to type a resource in this folder so that it means the same."""
        from gitlease.core.resources.resource import word_in

        if self._opened is None:
            return str(resource)
        place = self._opened.repository
        return word_in(str(resource), place.folder, root=place.toplevel)

    def answer(
        self,
        body: dict[str, Any],
        *,
        warnings: Sequence[str] = (),
        views: Sequence[LeaseView] = (),
        next_steps: Sequence[str] | Mapping[str, str] = (),
        hints: Sequence[str] = (),
        show: Callable[[], None],
    ) -> None:
        """Give the answer: one JSON document, or ``show`` and then warnings and hints.

        ``next_steps`` are commands, each with what it is for where that is said; ``hints`` is what
        a person is told besides.
        """
        from gitlease.faces import sentences, wire

        said = (*self.warnings, *warnings, *sentences.skew_warnings(views))
        said = tuple(dict.fromkeys(said))
        if self.json:
            output.document(
                wire.success(
                    self.command or "", body=body, warnings=said, next_steps=list(next_steps)
                )
            )
            return
        show()
        output.warn(said)
        uses = next_steps if isinstance(next_steps, Mapping) else {}
        output.hint([f"{step}  # {uses[step]}" if step in uses else step for step in next_steps])
        output.hint(hints)

    def end_landed(self) -> None:
        """Complete what one holds of tasks that are done on the main branch, and say so."""
        from gitlease.wiring.landing import end_landed

        for space in self.workspace.in_use:
            self.warnings += end_landed(space).said

    def note_carried(self, views: Iterable[LeaseView]) -> None:
        """Note which of the person's own leases this session uses, or is told that it carries."""
        own = [x.lease_id for x in views if x.mine and not x.session]
        if own and self.actor.session is not None:
            self.workspace.carried.add(own)

    def answer_verb(
        self,
        answer: Answer,
        body: dict[str, Any],
        *,
        next_steps: Sequence[str] | Mapping[str, str] = (),
        show: Callable[[], None],
    ) -> None:
        """Give the answer of a verb that changes leases."""
        self.note_carried(answer.leases)
        self.answer(
            body, warnings=answer.warnings, views=answer.leases, next_steps=next_steps, show=show
        )
