"""One call of the command line: its options, its workspace, and its answer."""

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
    from gitlease.core.errors import GitleaseError
    from gitlease.core.lease import Actor
    from gitlease.core.resources.resource import Resource
    from gitlease.core.view import LeaseView
    from gitlease.engine.answers import Answer
    from gitlease.engine.edges import Planned
    from gitlease.engine.ledger_session import LedgerSession
    from gitlease.engine.queue import TaskQueue
    from gitlease.wiring.workspace import Workspace

Opener = Callable[..., "Workspace"]

# In the order in which a hint repeats them.
REPEATED = (("directory", "-C"), ("layer", "--layer"), ("remote", "--remote"))


def _issue_pages(workspace: Workspace) -> str | None:
    from gitlease.wiring.words import issue_pages

    return issue_pages(workspace)


def open_real(directory: str, **options: Any) -> Workspace:
    """Open the repository that ``directory`` lies in."""
    from gitlease.wiring.workspace import open_workspace

    return open_workspace(directory, **options)


class Call:
    """The options before and after the verb, and the means to answer."""

    command: str | None = None
    directory: str = ""
    layer: str | None = None
    local: bool = False
    remote: str | None = None
    session: str | None = None
    no_session: bool = False
    retry: Callable[[str], str] | None = None
    """Makes the command that waits, for the given time, until the refused claim succeeds."""
    covers: Sequence[Resource] = ()
    """The further paths that a claim covers."""
    release: Callable[[], str] | None = None
    """Makes the command that gives back what is no task, and so cannot be done."""
    cached: str | None = None
    """The command that gives the same answer without asking the remote."""
    whole_queue: str | None = None
    """The command that shows every task; a hint for an empty queue."""
    anonymous: bool = False
    """Whether the verb only reads, which needs no ``user.email``."""
    _opened: Workspace | None = None

    def __init__(self, prog: str, opener: Opener = open_real, *, json: bool = False) -> None:
        self.prog, self.opener, self.json = prog, opener, json
        self.warnings: list[str] = []

    def with_words(self, **words: Any) -> Call:
        """Copy the call with other options: a layer, a session."""
        other = copy.copy(self)
        vars(other).update(words)
        return other

    # --- the question --------------------------------------------------------------------------

    @property
    def workspace(self) -> Workspace:
        """The repository with its services, opened at first use."""
        return self.opened()

    def opened(self, **options: Any) -> Workspace:
        """Return the workspace; ``options`` of ``open_workspace`` count if it is not open yet."""
        if self._opened is None:
            if self.anonymous:
                options["anonymous"] = True
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
        """Change the workspace when it is opened, for example to another session."""
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

    @property
    def may_claim(self) -> bool:
        """Whether git says who the caller is: without ``user.email`` a claim is refused."""
        return bool(self.actor.holder)

    @property
    def for_agent(self) -> bool:
        """Whether a coding agent reads the answer."""
        return self.workspace.identity.is_agent

    def now(self) -> datetime:
        """The ledger's clock, else this machine's; in local time for a person."""
        opened = self._opened
        ms = opened.ledger.clock.now().wall_ms if opened else time.time_ns() // 1_000_000
        now = moment_of(ms)
        return now.astimezone() if output.on_terminal() and not self.json else now

    def resource(self, word: str) -> Resource:
        """Return the resource that a word means here; warn if a name is a file as well."""
        from gitlease.wiring.words import file_called, resource_here

        found = resource_here(self.workspace, word)
        file = None if found.is_path else file_called(self.workspace.repository, word)
        if file is not None:
            self.warnings.append(f"{word} is a name here; for the {file.kind}, write {file.word}")
        self._speak_for([found])
        return found

    def resources(self, words: Iterable[str]) -> list[Resource]:
        return [self.resource(word) for word in words]

    def _speak_for(self, resources: Sequence[Resource]) -> None:
        """Go on in the session of an agent's tool server if that has these leases."""
        if self.workspace.identity.below_agent:
            from gitlease.wiring.agents import in_session_of_server

            self._opened = in_session_of_server(self.workspace, resources)

    def paths(self, words: Iterable[str]) -> list[Resource]:
        """Return the paths that a lease also covers."""
        from gitlease.wiring.words import path_here

        return [path_here(self.workspace.repository, word) for word in words]

    def to_claim(
        self, words: Iterable[str], paths: Iterable[str], *, any_name: bool
    ) -> tuple[list[Resource], list[Resource]]:
        """Return the resources of a claim, and the further paths that it covers.

        UsageError for a word that may mean a file as well as a name.
        """
        from gitlease.wiring.words import check_claim, resource_here

        wanted = [resource_here(self.workspace, word) for word in words]
        covered = self.paths(paths)
        self._speak_for(wanted)
        self.warnings += check_claim(self.workspace, wanted, covered, any_name=any_name)
        return wanted, covered

    def needs_any(self, name: str) -> bool:
        """Whether a claim of this name needs ``--any`` because no task file has it."""
        from gitlease.wiring.words import file_called

        task = self._task(name)
        if task is None or task.task is not None or task.resource.is_path:
            return False
        named = file_called(self.workspace.repository, task.resource.text) is not None
        return named or self.ledger.edges.is_unknown(task)

    def is_anothers(self, name: str) -> bool:
        """Whether the task file here assigns this name to others only."""
        task = self._task(name)
        return task is not None and bool(task.others)

    def _task(self, name: str) -> Planned | None:
        from gitlease.core.errors import GitleaseError
        from gitlease.core.resources.resource import parse_resource, word_anywhere

        try:
            resource = parse_resource(word_anywhere(name))
            return self.ledger.edges.plan_end([resource], keep_status=True)[0]
        except GitleaseError:
            return None

    # --- the answer ----------------------------------------------------------------------------

    def typed(
        self,
        verb: str,
        *resources: Resource | str,
        then: Sequence[str] = (),
        options: Sequence[str] = (),
        layer: str | None = None,
    ) -> str:
        """Return a command to type here, with the options that chose this ledger and session.

        ``then`` are literal words after the resources; ``layer`` is the layer of the command if an
        answer covers several.
        """
        words = [*self.prog.split(), verb]
        names = [*(self.word(r) for r in resources), *then]
        dashed = ["--"] if any(name.startswith("-") for name in names) else []
        chosen = [w for name, flag in REPEATED if (v := getattr(self, name)) for w in (flag, v)]
        if self.remote is not None:
            from gitlease.wiring.workspace import without_secrets

            # A space ends a URL in running text, but not in a quoted word.
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
        """Return a lease's name, with scope and layer unless they are the defaults here."""
        from gitlease.verbs import sentences

        name = sentences.named(view)
        return name if view.layer == self.workspace.layer else f"{name} in layer {view.layer}"

    def word(self, resource: Resource | str) -> str:
        """Return the word that means this resource in this folder."""
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
        """Print one JSON document, or ``show`` and then warnings and hints.

        ``next_steps`` are commands, or a mapping from commands to their purpose; ``hints`` are for
        people only.
        """
        from gitlease.verbs import sentences, wire

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

    def warn_of_dead_hooks(self) -> None:
        """Warn once if another folder of hooks has replaced the one that has ours."""
        from gitlease.wiring.words import dead_hooks

        for warning in dead_hooks(self.workspace):
            install = self.typed("hooks", "install")
            self.warnings.append(f"{warning} (see {self.typed('hooks', 'status')}, {install})")

    def note_carried(self, views: Iterable[LeaseView]) -> None:
        """Record which of the person's own leases this session uses or was shown."""
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
    ) -> int:
        """Answer for a verb that changes leases, and return the exit status.

        If a part was refused, both are printed, and the refusal decides the status.
        """
        if answer.refused:
            from gitlease.faces.cli import refusals

            self.warnings += answer.warnings
            if not self.json:
                show()
            return refusals.tell_partly(self, answer.refused, body)
        self.note_carried(answer.leases)
        self.answer(
            body, warnings=answer.warnings, views=answer.leases, next_steps=next_steps, show=show
        )
        return 0

    def fail(self, error: GitleaseError, body: dict[str, Any], *, show: Callable[[], None]) -> int:
        """Print an answer that amounts to a failure, and return the exit status."""
        from gitlease.faces.cli import refusals

        if not self.json:
            show()
        return refusals.tell(self, error, body=body)
