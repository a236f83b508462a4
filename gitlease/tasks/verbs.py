"""The verbs about tasks: ``next`` and ``set``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from gitlease.kernel.ledger import acts, claim
from gitlease.kernel.ledger.answers import Answer
from gitlease.kernel.ledger.edges import Edges
from gitlease.kernel.ledger.ledger_session import LedgerSession
from gitlease.kernel.rules.edge import Progress, Task, printable
from gitlease.kernel.rules.errors import Hint, LeaseHeld, UsageError
from gitlease.kernel.rules.frozen import dataclass
from gitlease.kernel.rules.resources import Resource, fold, parse_resource
from gitlease.tasks.queue import WhyNot, is_ranked
from gitlease.verbs import parameters as takes
from gitlease.verbs import sentences, wire
from gitlease.verbs.claiming import LENGTHS, claim_options, claimed
from gitlease.verbs.leases import completed
from gitlease.verbs.table import (
    AT_A_CLONE,
    COMMAND,
    LEASE_EXITS,
    LIBRARY,
    TOOL,
    Details,
    Door,
    DoorOfClone,
    Result,
    changed,
    verb,
)


@verb(
    "next",
    """Show the next task: the first that you may claim and that waits for no other task.

--claim claims it at once. However many workers ask at the same moment, each gets a different task.
Tasks that someone else takes first, those you already hold, and those that you keep for later
(`release --keep`) are skipped.""",
    examples=(
        "gitlease next",
        "gitlease next --claim --ttl 30m",
        "gitlease next --ref origin/main       # the task files of that branch",
    ),
    exits=LEASE_EXITS,
    no=("nothing_left",),
    done="there is a task; with --claim, you hold it",
    reads=True,
)
def next_verb(
    door: Door,
    *,
    claim: takes.Claiming = False,
    ttl: takes.Ttl = None,
    reason: takes.Reason = None,
    commit: takes.Commit = None,
    ref: takes.Ref = None,
    cached: takes.Cached = False,
) -> Result:
    if claim:
        if ref is not None:
            taking, other = door.option("claim"), door.option("ref")
            raise UsageError(f"{taking} changes the work tree: it cannot be combined with {other}")
        if cached:
            taking, other = door.option("claim"), door.option("cached")
            raise UsageError(f"a claim needs the remote: {taking} cannot be combined with {other}")
        return _claim_next(door, ttl=ttl, reason=reason, commit=commit)
    for name, given in (("ttl", ttl), ("reason", reason), ("commit", commit)):
        if given is not None:
            raise UsageError(f"{door.option(name)} needs {door.option('claim')}")
    reading = door.queue.next_task(ref=ref, cached=cached)
    entry = reading.next_up[0]
    task, name = entry.task, entry.task.resource.text
    facts = sentences.facts(task, entry.waits_for)
    claim_it = Hint("claim", {"resources": [name]})
    return Result(
        body={"task": wire.entry(entry)},
        lines=lambda: [Details(rows=[("task", name), *facts])],
        value=task,
        warnings=reading.warnings,
        # Reading needs no user.email, but a claim does.
        then=(claim_it,) if door.ledger.actor.holder else (),
    )


def _claim_next(door: Door, **terms: Any) -> Result:
    tasks = list[Task]()

    def take(_ledger: LedgerSession, _some: object) -> Answer:
        answer, task = door.queue.claim_next(claim_options(**terms))
        tasks.append(task)
        return answer

    answer = door.act("next", (), take)
    name = answer.leases[0].resource
    entry = door.queue.find(parse_resource(name)).entry  # the claim edited the task file
    # Of a request made again, the door knows only the lease, and the task may be gone by now.
    picked = next(iter(tasks), None)
    task, waits_for = (entry.task, entry.waits_for) if entry else (picked, ())
    said = (sentences.titled(task), f"in {sentences.path(task.file)}") if task else ()
    return claimed(
        door,
        answer,
        more={"task": wire.task(task, resource=name, waits_for=waits_for)},
        also=[", ".join(text for text in (*said, sentences.waiting(waits_for)) if text)],
    )


@verb(
    "set",
    """Set the status of a task in its task file.

STATUS is todo, in_progress or done, which stand for the project's first word of that kind; or a
word from tasks.statuses; or a word that another task has already. A status that means in progress
claims the task; in_progress itself keeps another such word that the task has already, and
`start RESOURCE` is short for it. One that means done finishes it, like `done`. Any other changes
only the status, and is refused if the task is someone else's.""",
    advice=LENGTHS,
    examples=(
        "gitlease set F001 in_progress --ttl 1h",
        "gitlease set F001 review",
        "gitlease set F001 todo --commit       # and commit the line in its task file, alone",
        "gitlease set F001 done",
    ),
    exits=LEASE_EXITS,
    done="the task has that status",
    doors=AT_A_CLONE,
)
def set_verb(
    door: Door,
    resource: takes.OfTask,
    status: takes.NewStatus,
    *,
    ttl: takes.Ttl = None,
    wait: takes.Wait = None,
    reason: takes.Reason = None,
    takeover: takes.Takeover = False,
    expect_holder: takes.ExpectHolder = None,
    reopen: takes.Reopen = False,
    commit: takes.Commit = None,
    scope: takes.PartScope = None,
    paths: takes.PathsOfProgram = (),
) -> Result:
    new = read_status(status, door.ledger.edges)
    terms = dict[str, Any](ttl=ttl, wait=wait, reason=reason, takeover=takeover, reopen=reopen)
    terms |= {"expect_holder": expect_holder, "scope": scope, "paths": paths}
    if new.progress is Progress.IN_PROGRESS:
        del terms["wait"]
        options = claim_options(**terms, commit=commit)
        answer = door.act(
            "set",
            [resource],
            lambda ledger, some: claim.start(
                ledger,
                some[0],
                options,
                status=None if new.is_role else new.word,  # a role keeps such a word
                wait=wait,
                on_wait=lambda held: door.on_wait(held, wait or 0),
            ),
            scope=options.scope,
        )
        return claimed(door, answer, scope=scope)
    done = new.progress is Progress.DONE
    for name, given in terms.items():
        # A part of a task can be finished as well as claimed.
        if given not in (None, False, ()) and not (done and name == "scope"):
            needs = f"{door.option(name)} needs a status that claims"
            message = f"{needs}, and {printable(new.word)} does not"
            raise UsageError(message, hints=("in_progress claims",))
    # A status stands in a task file: a name without one is refused first.
    task = door.ledger.edges.task(resource)
    try:
        if not done:
            return _set(door, resource, new, sentences.path(task.file), commit=commit)
        answer = door.act(
            "done",
            [resource],
            lambda ledger, some: acts.complete(
                ledger, some[0], scope=scope, commit=commit, status=new.word
            ),
            scope=scope,
        )
    except LeaseHeld as held:  # only a claim can wait
        raise held.with_(then=(Hint("show", {"resource": held.resource}),)) from None
    return completed(answer)


def _set(door: Door, resource: Resource, new: Status, file: str, *, commit: bool | None) -> Result:
    answer = acts.set_status(door.ledger, resource, new.word, commit=commit)
    entry = door.queue.find(resource).entry
    # The file is open again, but a claim would still be refused by the ledger.
    finished = entry is not None and not entry.task.is_done and entry.why_not is WhyNot.DONE
    given = {"resources": [resource.text], "reopen": True}
    again = Hint("claim", given, "the ledger lists it as completed; to reopen it")
    already = f"the status in {file} is {printable(new.word)} already"
    return changed(
        answer,
        wire.ended(answer),
        lambda: sentences.edited(answer) or [already],
        hints=(again,) if finished else (),
    )


@verb(
    "add",
    """Add a task: a file in the form of the task files that are there.

It lies in their folder and is named and numbered as they are, with their fields in their order, a
status that means to do, and nobody assigned. Its id is free in this clone, in all its work trees
and branches, in the ledger, and on the remote's main branch as it is now. `next` hands it out
after the tasks that it depends on. Commit and push the file: others see it then.""",
    examples=(
        "gitlease add 'Rate limits for the API'",
        "gitlease add 'A page for the limits' --depends-on F010 --paths docs/ --priority high",
        "gitlease add 'The first task' --id T001     # where none shows how tasks are numbered",
        "gitlease add -- '-v prints too much'",
    ),
    exits=(2, 4, 5, 7, 128),
    done="the file is written",
    session=False,
    doors=frozenset({COMMAND, LIBRARY, TOOL}),
    tool="Write a task file for work that you discovered.",
)
def add_verb(
    door: DoorOfClone,
    title: takes.Title,
    *,
    id: takes.NewId = None,
    depends_on: takes.DependsOn = (),
    paths: takes.TaskPaths = (),
    priority: takes.Priority = None,
) -> Result:
    for resource in (*depends_on, *([id] if id else ())):
        if resource.is_path:
            raise UsageError(f"{resource} is a path, and no id of a task", resource=resource.text)
    # A word without a rank sorts as medium: one that no other task has is probably a slip.
    if priority is not None and not is_ranked(priority):
        others = {fold(x.priority): x.priority for x in door.ledger.edges.files.read().tasks}
        if any(others) and fold(priority) not in others:
            known = ", ".join(printable(x) for x in others.values() if x)
            message = f"no task here has the priority {printable(priority)}"
            raise UsageError(message, hints=(f"known priorities: {known}",))
    task, warnings = door.workspace.add_task(
        title.strip(),
        id=id,
        depends_on=[x.text for x in depends_on],
        paths=[x.pattern or x.text for x in paths],
        priority=priority or "",
    )
    name = task.resource.text
    return Result(
        body={"status": "added", "task": wire.task(task), "file": task.file},
        lines=lambda: [f"added {name} in {sentences.path(task.file)}: commit it"],
        value=task,
        warnings=warnings,
        then=(Hint("claim", {"resources": [name]}, "to work on it yourself"),),
    )


# --- the words of statuses ------------------------------------------------------------------------

SHOWN = 20  # known words listed in a message
_BETWEEN = re.compile(r"[\s_-]+")


@dataclass(frozen=True)
class Status:
    """A status word of task files, and its meaning; ``is_role`` if it was typed as that."""

    word: str
    progress: Progress
    is_role: bool = False


def read_status(text: str, edges: Edges) -> Status:
    """Return the status that a word stands for. UsageError for an unknown one.

    It is a configured word, a role (``todo``, ``in_progress``, ``done``), which stands for its
    first word, or a word of an existing task file. Case, spaces, ``-`` and ``_`` are ignored unless
    a word matches exactly. Task files are read only if needed.
    """
    rules = edges.rules
    configured = [word for words in rules.statuses.values() for word in words]
    roles = {_loose(p.value): rules.word(p) for p in rules.statuses}
    if (word := _exactly(text, configured)) is None and (role := roles.get(_loose(text))):
        return Status(role, rules.progress(role), is_role=True)
    word = word or _loosely(text, configured)
    if word is None:
        words = (task.status.strip() for task in edges.files.read().tasks)
        used = list({fold(each): each for each in words if each}.values())
        word = _exactly(text, used) or _loosely(text, used)
        if word is None:
            raise _unknown(text, [*configured, *used])
    return Status(word, rules.progress(word))


def _exactly(text: str, words: Iterable[str]) -> str | None:
    return next((w for w in words if fold(w) == fold(text.strip())), None)


def _loosely(text: str, words: Iterable[str]) -> str | None:
    wanted = _loose(text)
    # Of `-` or `_` alone nothing is left to compare.
    return next((w for w in words if wanted and _loose(w) == wanted), None)


def _loose(word: str) -> str:
    return _BETWEEN.sub("", fold(word))


def _unknown(text: str, known: list[str]) -> UsageError:
    # Reversed, so that of several spellings the first one stays: the configured one.
    spelt = {_loose(word): word for word in reversed(known)}
    more = f" and {len(spelt) - SHOWN} more" if len(spelt) > SHOWN else ""
    names = list(dict.fromkeys(spelt[_loose(word)] for word in known))
    return UsageError(
        f"unknown status {printable(text)}",
        hints=(
            f"known statuses: {', '.join(map(printable, names[:SHOWN]))}{more}",
            "add new ones to tasks.statuses in .gitlease.yaml",
        ),
    )
