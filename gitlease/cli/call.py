"""One call of the command line: its options, its workspace, and its answer."""

from __future__ import annotations

import contextlib
import copy
import gc
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import click

from gitlease.cli import output
from gitlease.kernel.rules.errors import (
    GitleaseError,
    Hint,
    LeaseHeld,
    NotFound,
    Unavailable,
    UnknownOutcome,
    around,
    command_words,
)
from gitlease.kernel.rules.instant import format_duration, moment_of
from gitlease.kernel.rules.lease_view import LeaseView
from gitlease.kernel.rules.resources import LOCAL_LAYER, Resource, word_anywhere
from gitlease.verbs import sentences, wire
from gitlease.verbs.next_steps import advice_after, steps_after
from gitlease.verbs.table import (
    INTERNAL,
    TABLE,
    Called,
    Details,
    DoorOfClone,
    Fault,
    Result,
    Table,
    Whole,
    exit_of,
    find_verb,
)

if TYPE_CHECKING:
    from gitlease.cli.running import PoolReporter
    from gitlease.kernel.ledger.answers import Answer
    from gitlease.kernel.ledger.ledger_session import LedgerView
    from gitlease.runs.pool import Job, PoolEvent
    from gitlease.runs.records import RunRecord
    from gitlease.wiring.workspace import Found, Repository, Workspace


Opener = Callable[..., "Workspace"]
# Verbs that live longer than one command, or handle many objects of the ledger.
LONG = frozenset({"board", "check", "log", "verify", "watch", "work"})
SENT = ("nothing was sent", "the command may have taken effect")


def _words_of(value: Any) -> list[Any]:
    return [*value] if isinstance(value, list | tuple) else [value]


def _show(parts: Iterable[str | Table | Details]) -> None:
    for part in parts:
        if isinstance(part, str):
            (output.whole if isinstance(part, Whole) else output.line)(part)
        elif isinstance(part, Details):
            output.facts(part.rows)
        else:
            output.table(part.headings, part.rows, styles=part.styles, otherwise=part.otherwise)


def open_real(directory: str, **options: Any) -> Workspace:
    """Open the repository that ``directory`` lies in."""
    from gitlease.wiring.workspace import open_workspace

    return open_workspace(directory, **options)


class Call(DoorOfClone):
    """The options before and after the verb, and the means to answer."""

    command: str | None = None
    directory: str = ""
    layer: str | None = None
    local: bool = False
    remote: str | None = None
    session: str | None = None
    no_session: bool = False
    called = Called()
    """The verb of the table that is carried out, if it is one."""
    reporter: PoolReporter | None = None
    """Prints the events of a pool."""
    sure: bool = False
    """No question is to be asked."""
    anonymous: bool = False
    """The verb only reads, which needs no ``user.email``."""
    _opened: Workspace | None = None
    _blocker = ""

    def __init__(self, prog: str, opener: Opener = open_real, *, json: bool = False) -> None:
        self.prog, self.opener, self.json = prog, opener, json
        self.warnings: list[str] = []
        self._printed: set[str] = set()

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
                brief=self.command not in LONG,
                **options,
            )
            opened = self._opened
            self.warnings += opened.settings.warnings

            def pages() -> str | None:
                from gitlease.wiring.words import issue_pages

                return issue_pages(opened)

            output.FORM.pages = cache(pages)
        return self._opened

    def open_at(self, folder: str) -> Workspace:
        return self.opener(folder, layer=self.layer, local=self.local, remote=self.remote)

    def open_as(self, change: Callable[[Workspace], Workspace]) -> None:
        """Change the workspace when it is opened, for example to another session."""
        opener = self.opener
        self.opener = lambda directory, **options: change(opener(directory, **options))

    @property
    def for_agent(self) -> bool:
        """Return whether a coding agent reads the answer."""
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

        resource = resource_here(self.workspace, word)
        file = None if resource.is_path else file_called(self.workspace.repository, word)
        if file is not None:
            self.warnings.append(f"{word} is a name here; for the {file.kind}, write {file.word}")
        self._speak_for([resource])
        return resource

    def resources(self, words: Iterable[str], *, claiming: bool = False) -> list[Resource]:
        """Return resources; a claim refuses, later, a name that may be meant as a file."""
        if not claiming:
            return [*map(self.resource, words)]
        from gitlease.wiring.words import resource_here

        wanted = [resource_here(self.workspace, word) for word in words]
        self._speak_for(wanted)
        return wanted

    def _speak_for(self, resources: Sequence[Resource]) -> None:
        """Go on in the session of an agent's tool server if that has these leases."""
        if self.workspace.identity.below_agent:
            from gitlease.agents.opening import in_session_of_server

            self._opened = in_session_of_server(self.workspace, resources)

    def paths(self, words: Iterable[str]) -> list[Resource]:
        """Return the paths that a lease also covers."""
        from gitlease.wiring.words import path_here

        return [path_here(self.workspace.repository, word) for word in words]

    def check_claim(
        self, wanted: Sequence[Resource], covered: Sequence[Resource], *, any_name: bool
    ) -> Sequence[str]:
        from gitlease.wiring.words import check_claim

        self.warnings += check_claim(self.workspace, wanted, covered, any_name=any_name)
        # Kept above, for a refusal as well.
        return ()

    def take_messages(self) -> tuple[str, ...]:
        # A verb may answer, or be refused, before it opens the repository.
        return () if self._opened is None else super().take_messages()

    def agrees(self, facts: Sequence[str], question: str, *, usually: bool = False) -> bool:
        if self.sure or self.json or not (sys.stdin.isatty() and sys.stdout.isatty()):
            return True
        for fact in facts:
            output.line(fact)
        return click.confirm(question, default=usually)

    @property
    def chose_ledger(self) -> bool:
        return bool(self.layer or self.local or self.remote)

    def place(self) -> Mapping[str, Any]:
        names = ("layer", "local", "remote")
        return {"directory": self.directory or ".", **{x: getattr(self, x) for x in names}}

    def workspace_by(
        self,
        committed: Mapping[str, Found] | None,
        repository: Repository,
        *,
        anonymous: bool,
    ) -> Workspace:
        return self.opened(committed=committed, repository=repository, anonymous=anonymous)

    @property
    def verb(self) -> str | None:
        """Return the verb's name; hints have ``start``, which takes less than ``set``."""
        return "set" if self.command == "start" else self.command

    def option(self, parameter: str) -> str:
        known = find_verb(self.command).parameters if self.command in TABLE else {}
        words = known[parameter].words if parameter in known else ""
        return words.partition("/")[0].split()[-1] if words else f"--{parameter.replace('_', '-')}"

    def check_names(self, resources: Sequence[Resource]) -> None:
        """Raise NotFound for a mistyped layer or name."""
        from gitlease.kernel.ledger.stepping import check_known

        def look() -> LedgerView:
            view = self.ledger.look()
            self.warnings += self.ledger.take_warnings()
            return view

        self.check_layer(look)
        check_known(self.ledger, resources)

    def check_layer(self, look: Callable[[], LedgerView | None]) -> None:
        """Raise NotFound for a ``--layer`` without a ledger: it is probably mistyped."""
        if self.layer is None or ((seen := look()) is not None and seen.head.ledger is not None):
            return
        from difflib import get_close_matches

        other = self.with_words(layer=None, _opened=None)
        known = [space.layer for space in other.workspace.in_use]
        # Configured, but still without a claim.
        if self.layer.lower() in known:
            return
        near = get_close_matches(self.layer, known, cutoff=0.5)
        raise NotFound(
            f"there is no layer {self.layer}: nobody has claimed anything in it",
            hints=(f"did you mean {', '.join(near)}?",) if near else (),
        )

    def on_wait(self, held: LeaseHeld, seconds: int) -> None:
        """Print each new lease in the way once."""
        blocker = held.views[0].lease_id if held.views else held.message
        quiet = self.json and self.command in ("run", "dispatch")
        if blocker != self._blocker and not quiet:
            self._blocker = blocker
            # The program starts without the collector of garbage; the wait may last for hours.
            gc.enable()
            limit = f" up to {format_duration(seconds)}" if seconds else ""
            output.aside(f"waiting{limit}: {sentences.refusal(held, self.now())}")

    def tell(self, line: str) -> None:
        output.aside(line)

    def say(self, lines: Sequence[str], warnings: Sequence[str] = ()) -> None:
        """Print each line and warning once; a command owns standard output, and may be all."""
        texts = [*(f"warning: {x}" for x in (*self.warnings, *warnings)), *lines]
        fresh = [x for x in dict.fromkeys(texts) if x not in self._printed]
        self._printed.update(fresh)
        if not self.json or self.reporter is not None:
            # A stream that was closed must not stop a command under a lease.
            with contextlib.suppress(OSError, ValueError):
                for text in fresh:
                    output.aside(text)
                sys.stderr.flush()

    def on_job(self, event: PoolEvent) -> None:
        if self.reporter is not None:
            self.reporter.report(event)

    def pause(self, seconds: float, running: Sequence[Job], pool: RunRecord) -> None:
        if self.reporter is not None:
            self.reporter.draw(running, pool)
        super().pause(seconds, running, pool)

    def on_watch(self, names: Sequence[str], warnings: Sequence[str]) -> None:
        gc.enable()  # this may last for days
        output.warn(warnings)
        if output.on_terminal() and not self.json:
            watched, ledger = ", ".join(names) or "all leases", self.ledger
            output.aside(f"watching {watched} in layer {ledger.layer} on {ledger.store.place}")

    def on_trouble(self, error: GitleaseError) -> None:
        output.aside(f"{error.message}; still trying")

    def granted(self, answer: Answer) -> Sequence[str]:
        """Warn of leases that end before the next heartbeat, and of hooks that do not run."""
        return (*self._short_ttl(answer), *self.dead_hooks())

    def dead_hooks(self) -> list[str]:
        """Return warnings if another folder of hooks has replaced the one that has ours."""
        from gitlease.wiring.words import dead_hooks

        texts = dead_hooks(self.workspace)
        if not texts:
            return []
        status, install = self.typed("hooks", "status"), self.typed("hooks", "install")
        return [f"{text} (see {status}, {install})" for text in texts]

    def _short_ttl(self, answer: Answer) -> Sequence[str]:
        from gitlease.kernel.settings.identity import AGENTS

        session = self.workspace.actor.session or ""
        # Others' sessions are not kept alive by a host's hooks, and have heartbeats of their own.
        if session.partition(":")[0] not in AGENTS:
            return ()
        from gitlease.guard.service import SHORTEST_KEPT

        least = min((view.ttl_seconds for view in answer.leases), default=SHORTEST_KEPT)
        if least >= SHORTEST_KEPT:
            return ()
        short, kept = format_duration(least), format_duration(SHORTEST_KEPT)
        return (
            f"a lease of {short} may expire between two tool calls: the heartbeat of session "
            f"{session} keeps leases of {kept} or more alive",
        )

    # --- the answer ----------------------------------------------------------------------------

    def typed(self, verb: str, *names: Resource | str, **options: Any) -> str:
        """Return a command to type here."""
        return self.command_of(Hint(verb, {"resources": names, **options}))

    def command_of(self, hint: Hint) -> str:
        """Return a hint as a command to type here, in this ledger and session.

        Its arguments ``layer`` and ``session`` are those of an answer that covers several.
        """
        call, words, rest = self, dict[str, object](), list[str]()
        for name, value in hint.arguments.items():
            if name == "command":
                rest = ["--", *_words_of(value)]
            elif name == "session":
                # Meant for this one, or for any (None).
                call = self.with_words(session=value, no_session=False)
            elif name == "commit" and value is False:
                words["no_commit"] = True
            elif name in ("resource", "resources"):
                words[name] = [*map(self.word, _words_of(value))]
            elif name == "paths" or type(value) is int:
                # Only then is the verb loaded: a refusal must come as fast as an answer.
                known = find_verb(hint.verb).parameters if hint.verb in TABLE else {}
                parameter, option = known.get(name), name
                if parameter is not None and not parameter.positional:
                    option = parameter.words.split()[-1].removeprefix("--")
                if name == "paths":
                    value = [*map(self.word, _words_of(value))]
                elif isinstance(value, int) and parameter and "Duration" in parameter.kind.python:
                    value = format_duration(value)
                words[option] = value
            elif name != "layer":
                words[name] = value
        words |= call._place(hint.verb, hint.arguments.get("layer"))
        return shlex.join(command_words(f"{self.prog} {hint.verb}", words) + rest)

    def _place(self, verb: str, layer: object) -> dict[str, object]:
        """Return the options of a verb that chose this ledger and session, or another ``layer``."""
        remote = self.remote
        if remote is not None:
            # A space ends a URL in running text, but not in a quoted word.
            from gitlease.wiring.workspace import without_secrets

            remote = remote.replace(" ", "%20") if "://" in remote else remote
            remote = without_secrets(remote)
        folder = self.directory or None
        chosen = dict[str, object](C=folder, layer=self.layer, remote=remote, local=self.local)
        if self.session or self.no_session:
            # Not every verb takes one, and what is printed must work as it is typed.
            from gitlease.cli.app import application

            app = application()
            typed = app.get_command(click.Context(app), verb.split()[0])
            if typed is not None and any(x.name == "session" for x in typed.params):
                chosen |= {"session": self.session, "no_session": self.no_session}
        if layer is not None and self._opened is not None and layer != self._opened.layer:
            chosen |= {"local": True} if layer == LOCAL_LAYER else {"layer": layer}
        return chosen

    def respond(self, result: Result, show: Callable[[], None] | None = None) -> int:
        """Print the result of a verb, and return the exit status.

        It is one JSON document; or lines, for which ``show`` may stand, then warnings and hints.
        """
        body, failure = dict(result.body), result.failure
        if not self.json:
            (show or partial(_show, result.lines()))()
        if result.refused:
            self.warnings += result.warnings
            return tell_partly(self, result.refused, body)
        warnings = (*self.warnings, *result.warnings, *_skew_warnings(result.leases))
        warnings = tuple(dict.fromkeys(warnings))
        if failure is not None:
            if self.json or not result.summed_up:
                return tell(self, failure.with_(warnings=tuple(result.warnings)), body)
            output.warn(warnings)
            return exit_of(failure.code)
        steps = dict.fromkeys(result.commands, "")
        steps |= {self.command_of(hint): hint.why for hint in result.then}
        if self.json:
            name, following = self.verb or "", [*steps]
            output.document(wire.success(name, body=body, warnings=warnings, next_steps=following))
            return 0
        output.warn(warnings)
        output.hint([f"{step}  # {why}" if why else step for step, why in steps.items()])
        output.hint([*map(self.worded, result.hints)])
        return 0

    def worded(self, hint: Hint | str) -> str:
        """Return a hint for people as one line."""
        if not isinstance(hint, Hint):
            return hint
        if not hint.verb:
            return Hint("", {self.option(x)[2:]: y for x, y in hint.arguments.items()}, hint.why)
        call = self.command_of(hint)
        why = hint.why or "{}"
        return around(why, call) if "{}" in why else f"{why}: {call}"

    def word(self, resource: Resource | str) -> str:
        """Return the word that means this resource in this folder."""
        place = None if self._opened is None else self._opened.repository
        if place is None or not place.folder:
            return str(resource)
        return word_anywhere(str(resource), root=place.toplevel)

    def note_carried(self, views: Iterable[LeaseView]) -> None:
        """Record which of the person's own leases this session uses or was shown."""
        unbound = [x.lease_id for x in views if x.mine and not x.session]
        if unbound and self.workspace.actor.session is not None:
            self.workspace.carried.add(unbound)

    def report_fault(self, error: Exception, *, traceback: bool) -> int:
        """Print an internal error in one line, with a hint."""
        if traceback:
            from traceback import print_exception

            print_exception(error, file=sys.stderr)
        message = f"internal error: {type(error).__name__}: {error}".splitlines()[0]
        hint = "run it again with --traceback and report what it prints"
        return tell(self, Fault(message, hints=(hint,)))

    def report_unwritten(self, error: OSError) -> int:
        """Print that the answer could not be written, or what else a file could not."""
        # Without a file name, the error concerns our own output.
        subject = os.fsdecode(error.filename or "the answer could not be written")
        # A full disk must not look as if nothing had been claimed.
        with contextlib.suppress(OSError, ValueError):
            from gitlease.kernel.ledger.ports import may_have_sent

            output.aside(f"{subject}: {error.strerror}; {SENT[may_have_sent()]}")
        return exit_of(INTERNAL)

    def report_signal(self, status: int) -> int:
        """Answer in JSON that a signal ended the command; a watch has no other end."""
        if self.json and self.command != "watch":
            from gitlease.kernel.ledger.ports import may_have_sent

            self.called = Called()  # which no hint repeats
            kind = UnknownOutcome if may_have_sent() else Unavailable
            error = kind(f"interrupted: {SENT[may_have_sent()]}")
            # The reader of a pipe is often interrupted along with it.
            with contextlib.suppress(OSError, ValueError):
                _print_refusal(self, error, None, status)
        return status


def _skew_warnings(views: Iterable[LeaseView]) -> tuple[str, ...]:
    """Return warnings about leases with times in the future."""
    clocks = [(v.resource, sentences.whose(v)) for v in views if v.skewed]
    return tuple(
        f"{name} has times in the future: the clock of {whose} or this machine is wrong"
        for name, whose in clocks
    )


def tell(call: Call, error: GitleaseError, body: Mapping[str, Any] | None = None) -> int:
    """Print a refusal and return its exit status. ``body`` reports a part that was done."""
    status, is_run = exit_of(error.code), call.command == "run"
    if is_run or call.command == "dispatch":
        # A run passes on its command's exit status, so its own refusals have others.
        from gitlease.runs.supervisor import UNSTARTED, exit_of_refusal

        of_run = exit_of_refusal(error)
        status = of_run if is_run or of_run in UNSTARTED else status
    # Its output goes to standard error, which may be closed.
    with contextlib.suppress(*((OSError, ValueError) if is_run else ())):
        _print_refusal(call, error, body, status)
    return status


def _print_refusal(
    call: Call, error: GitleaseError, body: Mapping[str, Any] | None, status: int
) -> int:
    steps, now = [*map(call.command_of, steps_after(call, error, call.called))], call.now()
    if error.code == "usage" and not steps:
        steps = [" ".join(w for w in (call.prog, call.command, "--help") if w)]
    error = error.with_(hints=tuple(map(call.worded, error.hints)))
    known = dict.fromkeys((*call.warnings, *error.warnings, *_skew_warnings(error.views)))
    # A word that the refusal calls no name is not called one in a warning, too.
    warnings = tuple(x for x in known if not x.endswith(error.hints))
    if call.json:
        more = dict(body or {}) | ({"warnings": list(warnings)} if warnings else {})
        document = wire.failure(call.verb, error, now=now, next_steps=steps, body=more)
        document["error"]["exit"] = status
        if call.command == "run":
            output.last_line(document)
            return status
        output.document(document)
    output.aside(sentences.refusal(error, now), output.RED)
    for text in sentences.others_in_the_way(error, now):
        output.aside(text)
    if not call.json:
        output.warn(warnings)
    hints = [*error.hints, *map(call.worded, advice_after(call, error))]
    # Of a mistyped name the right one comes first; else why it was refused.
    output.hint([*steps, *hints] if error.code == "not_found" else [*hints, *steps])
    return status


def tell_partly(call: Call, refused: Sequence[GitleaseError], body: Mapping[str, Any]) -> int:
    """Print the refusals after a partial success; the first one decides the exit status."""
    now = call.now()
    if not call.json:
        # The first one is printed last, below: it decides the exit status.
        for error in refused[1:]:
            output.aside(sentences.refusal(error, now), output.RED)
    more = {"refused": [wire.refusal(error, now=now) for error in refused]}
    return tell(call, refused[0], {**body, **more})
