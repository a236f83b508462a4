"""Lease and edge together: the changes of task files that belong to a step of the ledger.

A step is planned on the files as they are: an unsafe edit is refused before the ledger is asked.
The edits are remembered as an intent, then the ledger is changed, then the files. After a kill the
next command finishes or forgets the rest, depending on the ledger.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from gitlease.kernel.ledger.answers import ClaimOptions
from gitlease.kernel.ledger.ports import INDEX, TaskChange, TaskFiles, TaskList, TaskProblem
from gitlease.kernel.rules.edge import Assignee, EdgeEdit, People, Progress, Task, same_name
from gitlease.kernel.rules.errors import (
    CLAIM_ANY,
    GitleaseError,
    Invalid,
    NotFound,
    PolicyRefused,
    hint,
    shown,
)
from gitlease.kernel.rules.frozen import dataclass, field, replace
from gitlease.kernel.rules.lease import Lease, State, same_person
from gitlease.kernel.rules.resources import Resource, fold, reads_as_issue

if TYPE_CHECKING:
    from gitlease.kernel.ledger.ledger_session import Decisions

T = TypeVar("T", bound=Hashable)
UNTRACKED = "the default branch"  # of which this clone has no copy that git fetch updates
NEAR = 3  # suggestions for an unknown name
REOPEN = hint("to claim a finished task again, use {}", reopen=True)
BY_INIT = hint(
    "{} shows what to set in .gitlease.yaml, or writes that file if it is missing", "init"
)


@dataclass(frozen=True, kw_only=True)
class EdgeRules:
    """The settings of edges. ``required`` None: true if there is a task.

    ``statuses`` has the words of each status, first the one that is written.
    """

    people: People = field(default_factory=People)
    statuses: Mapping[Progress, tuple[str, ...]] = field(
        default_factory=lambda: {p: (p.value,) for p in Progress if p is not Progress.OTHER}
    )
    required: bool | None = None
    commit: bool = False

    def word(self, progress: Progress) -> str:
        return self.statuses[progress][0]

    def progress(self, word: str) -> Progress:
        """The progress that a status word stands for; Progress.OTHER for an unknown word."""
        for progress, words in self.statuses.items():
            if fold(word.strip()) in map(fold, words):
                return progress
        return Progress.OTHER


@dataclass(frozen=True, kw_only=True)
class Planned:
    """One resource of a command, with its task, if it is one, and the edit of the task's file.

    ``others`` are the assignees in the file if the caller is not among them, ``mine`` the caller's
    names there, and ``outdated`` names of others that a claim removes on the way. ``away`` is the
    task on a branch where the work tree lacks it, and ``named`` the places beside the work tree
    that name some of ``others``, each with those names. ``doubt`` says what is unknown of the task
    on the default branch.
    """

    resource: Resource
    task: Task | None = None
    others: tuple[Assignee, ...] = ()
    mine: tuple[str, ...] = ()
    outdated: tuple[str, ...] = ()
    edit: EdgeEdit = field(default_factory=EdgeEdit)
    message: str = ""
    trailer: str = ""
    away: Task | None = None
    named: tuple[tuple[str, tuple[Assignee, ...]], ...] = ()
    doubt: str = ""

    @property
    def paths(self) -> tuple[str, ...]:
        task = self.task or self.away
        return task.paths if task else ()

    @property
    def alone(self) -> Planned:
        """The same plan, with all other names removed from the file."""
        names = (*(a.name for a in self.others), *self.outdated)
        return replace(self, edit=replace(self.edit, remove=names))

    @property
    def change(self) -> TaskChange | None:
        if self.task is None:
            return None
        task = self.task
        return TaskChange(task.resource, task.file, self.edit, self.message, self.trailer)


def changes_of(planned: Iterable[Planned]) -> list[TaskChange]:
    """The file changes of a plan, without empty ones."""
    return [change for p in planned if (change := p.change) is not None and p.edit != EdgeEdit()]


def says_so(planned: Iterable[Planned], resource: str | None) -> tuple[str, ...]:
    """Hints at the task file that assigns a task to others: this clone may be out of date."""
    hints = []
    for p in planned:
        task = p.task or p.away
        if task is None or p.resource.text != resource:
            continue
        there = [name for _, names in p.named for name in names]
        here = tuple(x for x in p.others if x not in there)
        places = [*([("", here)] if here or not there else []), *p.named]
        for place, names in places:
            what = "so" if len(places) == 1 else ", ".join(x.known for x in names)
            hint = f"{task.file} says {what} in {place or 'this clone'}"
            # Only what another clone may have changed can be fetched.
            if place not in ("HEAD", place_of(INDEX), UNTRACKED):
                hint += f"; if it is out of date: git {'fetch' if place else 'pull'}"
            hints.append(hint)
    return tuple(hints)


def not_in_work_tree(task: Task) -> str:
    """The end of a warning that something in the file of a task away from here stays."""
    return f"{task.file} stays: the file is not in this work tree"


class Edges:
    """The edges of one work tree, as one holder sees and changes them."""

    def __init__(self, files: TaskFiles, rules: EdgeRules, decisions: Decisions) -> None:
        self.files, self.rules, self.decisions = files, rules, decisions
        self.holder = decisions.holder

    def read(self, ref: str | None = None) -> TaskList:
        """The tasks of the work tree, or of a ref, without assignments that the ledger outranks."""
        found = self.files.read(ref)
        return replace(found, tasks=tuple(self._current(task, ref) for task in found.tasks))

    def everywhere(self) -> TaskList:
        """The tasks of the work tree, and what the index, HEAD and the default branch add to them.

        A task is that of the first place that has it. Done, or assigned to others, on the default
        branch counts as it does here, unless the ledger has a newer record of the caller's own.
        """
        found = self.files.read()
        tasks = {t.resource.key: self._current(t) for t in found.tasks}
        doubts = [_unknown_branch(why)] if (why := self.files.doubt()) else []
        broken = {key for problem in found.problems for key in problem.keys}
        for ref, listed in self.files.elsewhere(found):
            if _is_branch(ref):
                doubts += [_unreadable(x, ref) for x in listed.problems]
            for task in listed.tasks:
                key = task.resource.key
                # A broken file here hides its task, whatever other places say of it.
                if key not in tasks and key not in broken:
                    tasks[key] = self._away(task, ref)
                elif key in tasks and _is_branch(ref):
                    tasks[key] = self._joined(tasks[key], task, ref)
        nothing = "" if tasks else found.nothing
        return replace(found, tasks=tuple(tasks.values()), nothing=nothing, doubts=tuple(doubts))

    def _away(self, task: Task, ref: str) -> Task:
        task = replace(self._current(task, ref), ref=ref)
        if not self._is_older(task, ref):
            return task
        others = tuple(x.name for x in self.rules.people.others(task.assigned, self.holder))
        kept = tuple(x for x in task.assigned if x not in others)
        progress = Progress.TODO if task.is_done else task.progress
        return replace(task, assigned=kept, outdated=(*task.outdated, *others), progress=progress)

    def _joined(self, here: Task, there: Task, ref: str) -> Task:
        there = self._current(there, ref)
        people, holder = self.rules.people, self.holder
        others = [x.name for x in people.others(there.assigned, holder) if not there.is_done]
        others = [x for x in others if not any(same_name(x, y) for y in here.assigned)]
        finished = there.is_done and not here.is_done
        # What the caller did since outranks the branch.
        if not (others or finished) or self._is_older(there, ref):
            return here
        if finished:
            return replace(here, progress=Progress.DONE, status=there.status)
        kept = [x for x in here.assigned if not people.is_mine(x, holder)]
        return replace(here, assigned=(*kept, *others))

    def outranked(self, task: Task, ref: str | None = None) -> tuple[str, ...]:
        """The names in a task's file whose assignment is older than the end of their work on it."""
        gone = []
        for name in task.assigned:
            people = self.rules.people
            assignee = Assignee(name, people.holders_of(name), people.handles)
            ended = self.decisions.ended_at(task, assignee)
            if ended is None:  # git is asked only about names whose work the ledger saw ending
                continue
            since = self.files.assigned_since(task, name, ref)
            if since is not None and since <= ended:
                gone.append(name)
        return tuple(gone)

    def _current(self, task: Task, ref: str | None = None) -> Task:
        gone = self.outranked(task, ref) if task.assigned else ()
        if not gone:
            return task
        kept = tuple(name for name in task.assigned if name not in gone)
        return replace(task, assigned=kept, outdated=gone)

    # --- planning: before the ledger is asked -------------------------------------------------

    def plan_claim(
        self,
        resources: Sequence[Resource],
        options: ClaimOptions,
        *,
        status: Callable[[Task], str | None] = lambda _task: None,
    ) -> list[Planned]:
        """Plan the edits of a claim. Raises NotFound, Invalid, or PolicyRefused for a done task.

        ``status`` gives the word to set.
        """
        known, planned = self._known(resources), []
        again = self.recorded(options.commit)
        for resource in resources:
            task = known.task(resource, lenient=options.any_name)
            away = known.elsewhere(resource, task)
            if not options.reopen:
                # The main branch may have finished it since this work tree was checked out.
                for ref, other in away:
                    if other.is_done:
                        raise PolicyRefused(
                            f"{other.resource} is done, says {other.file} in {place_of(ref)}",
                            resource=other.resource.text,
                            hints=(REOPEN,),
                        )
            if task is not None:
                self._check_open(task, options.reopen, known)
                plan = self.claim_of(
                    task, takeover=options.takeover, status=status(task), again=again
                )
                plan = replace(plan, doubt=known.doubt(task.resource))
                planned.append(self._with_elsewhere(plan, away))
            else:
                meant = away or resource.is_path or options.any_name
                # What the caller has already was no slip when it was claimed.
                if not meant and known.required and not self.decisions.own_records(resource):
                    raise self.on_a_branch(resource) or known.unknown(resource, any_name=True)
                # Whoever names it as no task does not ask what a task file says.
                doubt = "" if options.any_name and not away else known.doubt(resource)
                plan = Planned(resource=resource, doubt=doubt)
                planned.append(self._with_elsewhere(plan, away))
        return planned

    def claim_of(
        self, task: Task, *, takeover: bool = False, status: str | None = None, again: bool = False
    ) -> Planned:
        """Plan the edit of a claim of one task.

        ``again``: even if the work tree has the edge already, since a commit may lack it.
        """
        # Without a holder nothing is written: this only shows whether the file can be edited.
        people, name = self.rules.people, self.rules.people.name_of(self.holder or "somebody")
        mine, outdated = self._mine(task)
        others = () if mine else people.others(task.assigned, self.holder)
        # Only a reopened task gets here, and it must not go on reading as done.
        if task.is_done and status is None:
            status = self.rules.word(Progress.TODO)
        # The edit is made once more, for a commit that may lack it.
        kept = mine[0] if mine and again else None
        return Planned(
            resource=task.resource,
            task=task,
            others=others,
            mine=mine,
            outdated=outdated,
            edit=EdgeEdit(
                remove=(*(a.name for a in others if takeover), *outdated),
                add=kept if mine else name,
                status=status,
            ),
            message=f"assign {task.resource} to {name}",
        )

    def is_unknown(self, planned: Planned) -> bool:
        """Return whether names must be tasks here and this one is not."""
        if planned.task or planned.away or planned.resource.is_path:
            return False
        return self._known([planned.resource]).required

    def requires_tasks(self, known: TaskList) -> bool:
        """Return whether names must be tasks, where the work tree has these."""
        return _Known(self, known).required

    def plan_end(
        self,
        resources: Sequence[Resource],
        *,
        status: str | None = None,
        keep_status: bool = False,
        again: bool = False,
    ) -> list[Planned]:
        """Plan the edits of the end of leases: the caller's names go. Raises Invalid.

        Without a ``status`` to set, in progress goes back to to do with the last name. ``again``:
        even if the work tree has the edit already, since the last commit may lack it.
        """
        known = self._known(resources)
        plans = [self._ended(r, known, status, keep_status) for r in resources]
        if again:
            plans = [self._with_uncommitted(p, known, keep_status=keep_status) for p in plans]
        return [
            # What is released protects nobody.
            p
            if status is None
            and (p.task or {x.edge for x in self.decisions.own_records(p.resource)} == {False})
            else self._with_elsewhere(p, known.elsewhere(p.resource, p.task))
            for p in plans
        ]

    def unknown(self, resources: Sequence[Resource]) -> dict[Resource, NotFound]:
        """The refusals of names that resemble a task but are not one, if names must be tasks."""
        known = self._known(resources)
        others = [r for r in resources if not r.is_path and known.task(r, lenient=True) is None]
        others = [r for r in others if known.required and not known.elsewhere(r, None)]
        refused = {r: known.unknown(r) for r in others}
        return {r: refusal for r, refusal in refused.items() if refusal.hints}

    def task(self, resource: Resource, *, away: bool = False) -> Task:
        """The task of a name. Raises NotFound, or Invalid for a broken file.

        ``away``: one that the work tree lacks will do, too.
        """
        known = self._known([resource], always=True)
        if (task := known.task(resource)) is not None:
            return task
        if (task := self.away(resource)) is not None:
            if away:
                return task
            self.refuse_new_id(Planned(resource=resource, away=task))
            raise _not_here(task, place_of(task.ref or ""))
        raise self.on_a_branch(resource) or known.unknown(resource)

    def away(self, resource: Resource) -> Task | None:
        """A task that the work tree lacks, as the index, HEAD or the default branch has it."""
        return next((task for _, task in _Known(self, TaskList()).elsewhere(resource, None)), None)

    def new_id_of(self, planned: Planned) -> Task | None:
        """What a task of the caller's became if its id was changed in the work tree since."""
        file = planned.away.file if planned.task is None and planned.away else None
        if file is None:
            return None
        # Only with the caller's edge still in it: else the file may just be another task's here.
        tasks = (x for x in self.files.read().tasks if x.file == file)
        return next((x for x in tasks if any(self._mine(x)[0])), None)

    def refuse_new_id(self, planned: Planned) -> None:
        """Raise Invalid if the task's id was changed in the work tree while the caller had it."""
        if (now := self.new_id_of(planned)) is None:
            return
        old = planned.resource
        raise Invalid(
            f"{now.file} has the id {now.resource} now, and your lease is of {old}",
            resource=old.text,
            hints=(
                hint("to go on under the new id: {}", "claim", resources=[now.resource]),
                hint("and then: {}", "release", resources=[old]),
                f"or change the id in {now.file} back to {old}",
            ),
        )

    def on_a_branch(self, resource: Resource) -> NotFound | None:
        """The refusal of a task that only some other branch has: it is no name of its own."""
        found = None if resource.is_path else self.files.on_a_branch(resource)
        return None if found is None else _not_here(found[1], place_of(found[0]))

    def still_named(self, planned: Iterable[Planned]) -> list[tuple[str, Task, set[str]]]:
        """The last commit or branch that assigns a planned task to the caller, and by which names.

        Of several places the default branch comes first.
        """
        wanted = {p.resource.key for p in planned if p.task is not None or p.away is not None}
        known, found = _Known(self, TaskList()), list[tuple[str, Task, set[str]]]()
        for ref in reversed(known.places if wanted else ()):
            for task in known.at(ref).tasks if ref != INDEX else ():
                mine = {x for x in task.assigned if self.rules.people.is_mine(x, self.holder)}
                if mine and task.resource.key in wanted:
                    wanted.discard(task.resource.key)
                    found.append((ref, task, mine))
        return found

    def check(self, planned: Iterable[Planned], *, commit: bool | None) -> None:
        """Raise Invalid, before anything has changed, unless the plan could be written."""
        self.files.check(changes_of(planned), commit=self.recorded(commit))

    def writable(
        self,
        wanted: Iterable[T],
        plan: Callable[[Sequence[T]], Sequence[Planned]],
        *,
        commit: bool | None,
    ) -> tuple[list[Planned], list[tuple[T, GitleaseError]]]:
        """Plans for the writable items; the others, each with its error.

        An item is not writable either if the plan refuses a task that is done.
        """

        def checked(some: Sequence[T]) -> Sequence[Planned]:
            planned = plan(some)
            self.check(planned, commit=commit)
            return planned

        each = list(dict.fromkeys(wanted))
        planned: list[Planned] = []
        against: list[tuple[T, GitleaseError]] = []
        try:
            return list(checked(each)), against
        except (Invalid, PolicyRefused):
            pass  # which of them it is about is found out one by one
        for one in each:
            try:
                planned += checked([one])
            except (Invalid, PolicyRefused) as error:
                against.append((one, error))
        return planned, against

    def doubts_of(self, resources: Sequence[Resource]) -> tuple[str, ...]:
        """What the default branch says of these, as far as that is unknown; no claim is planned."""
        known = self._known(resources)
        return tuple(dict.fromkeys(filter(None, map(known.doubt, resources))))

    def is_own_away(self, planned: Planned) -> bool:
        """Return whether a file that is not in this work tree assigns the task to the caller."""
        # An assignment that the caller's own release has outdated counts again with a claim.
        names = (*planned.away.assigned, *planned.away.outdated) if planned.away else ()
        return any(self.rules.people.is_mine(name, self.holder) for name in names)

    def recorded(self, commit: bool | None) -> bool:
        """Return whether edges are recorded as a commit: the option, else the setting."""
        return self.rules.commit if commit is None else commit

    def _is_older(self, task: Task, ref: str) -> bool:
        at = self.decisions.own_at(task)
        since = None if at is None else self.files.assigned_since(task, "", ref)
        return at is not None and since is not None and since <= at

    def _with_elsewhere(self, planned: Planned, away: Sequence[tuple[str, Task]]) -> Planned:
        """The plan with the assignees that branches name: two other assignees both protect."""
        if not away:
            return planned
        others, named = planned.others, planned.named
        for ref, task in away:
            there = () if task.is_done else self.rules.people.others(task.assigned, self.holder)
            new = tuple(x for x in there if not any(same_name(x.name, y.name) for y in others))
            others, named = (*others, *new), (*named, *([(place_of(ref), new)] if new else []))
        lacks = away[0][1] if planned.task is None else None
        return replace(planned, others=others, away=lacks, named=named)

    def _check_open(self, task: Task, reopen: bool, known: _Known) -> None:
        if task.progress is Progress.OTHER:
            raise PolicyRefused(
                f"{task.resource} cannot be claimed: no setting says what its status "
                f"{shown(task.status)} means, in {task.file}",
                resource=task.resource.text,
                hints=(
                    "add the word to todo, in_progress or done of tasks.statuses in .gitlease.yaml",
                    BY_INIT,
                ),
            )
        # Its folder says so, whatever its status: no new status would reopen it.
        if task.is_done and self.rules.progress(task.status) is not Progress.DONE:
            raise PolicyRefused(
                f"{task.resource} is done: {task.file} is in a folder of completed tasks",
                resource=task.resource.text,
                hints=("to take it up again, move the file back first",),
            )
        if task.is_done and not reopen:
            # As an interrupted landing leaves it, which whoever holds the task goes on with.
            places = filter(_is_branch, known.places)
            opens = (x for x in places if (t := known.task_at(x, task.resource)) and not t.is_done)
            place = next(opens, None)
            but = f", but not in {place_of(place)}" if place else ""
            again = hint("if its landing was interrupted: {}", "land", resource=task.resource.text)
            is_own = place and self.decisions.own_records(task.resource)
            raise PolicyRefused(
                f"{task.resource} is done, says {task.file}{but}",
                resource=task.resource.text,
                hints=(again, REOPEN) if is_own else (REOPEN,),
            )

    def _ended(
        self, resource: Resource, known: _Known, status: str | None, keep_status: bool
    ) -> Planned:
        task = known.task(resource, lenient=True)
        if task is None:
            return Planned(resource=resource)
        people = self.rules.people
        mine, _ = self._mine(task)
        done = f"finish {task.resource}" if status else f"unassign {task.resource}"
        alone = task.progress is Progress.IN_PROGRESS and bool(mine)
        # Others still work on it where any other name stands there.
        alone = alone and set(mine) >= {*task.assigned, *task.outdated}
        if alone and status is None and not keep_status:
            status = self.rules.word(Progress.TODO)
        return Planned(
            resource=task.resource,
            task=task,
            # Names in a finished task are history, and protect nobody's work.
            others=() if task.is_done else people.others(task.assigned, self.holder),
            mine=mine,
            edit=EdgeEdit(remove=mine, status=status),
            message=done,
        )

    def _with_uncommitted(self, planned: Planned, known: _Known, *, keep_status: bool) -> Planned:
        """The plan with what an earlier end changed in the work tree, and left to be committed."""
        task, edit = planned.task, planned.edit
        if task is None or planned.mine:
            return planned
        for place in (INDEX, "HEAD"):
            there = known.task_at(place, planned.resource)
            if there is None or there.file != task.file or not (mine := self._mine(there)[0]):
                continue
            edit = replace(edit, remove=(*edit.remove, *mine))
            moved = there.progress is Progress.IN_PROGRESS and task.progress is Progress.TODO
            if moved and edit.status is None and not keep_status:
                edit = replace(edit, status=task.status)
        return replace(planned, edit=edit)

    def _mine(self, task: Task) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The caller's names in a task's file, and the outdated names of others."""
        is_mine = self.rules.people.is_mine
        mine = (n for n in (*task.assigned, *task.outdated) if is_mine(n, self.holder))
        return tuple(mine), tuple(n for n in task.outdated if not is_mine(n, self.holder))

    def _known(self, resources: Sequence[Resource], *, always: bool = False) -> _Known:
        names = any(not r.is_path for r in resources)
        found = self.files.read() if names or always else TaskList()
        return _Known(self, found)


def _is_branch(ref: str) -> bool:
    return ref not in (INDEX, "HEAD")


def _unknown_branch(why: str) -> str:
    return f"{why}, so what it says of tasks is unknown"


def _unreadable(problem: TaskProblem, ref: str) -> str:
    """What is unknown because of a file of the default branch that cannot be used."""
    file, message = problem.file, problem.message
    reason = re.sub(rf"^{re.escape(file)}(?::\d+)?:? ", "", message)
    return f"{file} on {place_of(ref)} cannot be read ({reason}), so its assignee is unknown"


def place_of(ref: str) -> str:
    """A place of task files beside the work tree, as messages name it."""
    if re.fullmatch(r"[0-9a-f]{40,64}", ref):  # its tip is known here, and no ref is
        return UNTRACKED
    if ref.startswith("refs/heads/"):
        return f"the branch {ref.removeprefix('refs/heads/')}"
    return "the index" if ref == INDEX else ref.removeprefix("refs/remotes/")


def _not_here(task: Task, place: str) -> NotFound:
    return NotFound(
        f"{task.resource} is not in this work tree: {task.file} is in {place}",
        resource=task.resource.text,
        hints=(f"bring it here first: {task.file} must be checked out",),
    )


def in_submodule(module: str) -> str:
    """A hint that tasks may be in a submodule, whose ledger is another."""
    where = shlex.quote(module)
    return (
        f"{module} is a submodule, whose tasks are leased in its own repository: cd {where} "
        f"(if it is empty: git submodule update --init {where})"
    )


def files_left(edges: Edges, planned: Iterable[Planned]) -> tuple[str, ...]:
    """Warnings of claims about files that lack the caller and are not in this work tree."""
    return tuple(
        f"{p.away.file} does not name you: the file is not in this work tree"
        for p in planned
        if p.away is not None and not edges.is_own_away(p)
    )


def doubts(planned: Iterable[Planned]) -> tuple[str, ...]:
    """Warnings of claims that what the default branch says of their tasks is unknown."""
    return tuple(dict.fromkeys(p.doubt for p in planned if p.doubt))


def find_task(known: TaskList, resource: Resource, *, lenient: bool = False) -> Task | None:
    """The task of a name, or None. Raises Invalid if its file cannot be used.

    ``lenient``: an unusable file that may be any task is passed over.
    """
    if resource.is_path:
        return None
    found = next((t for t in known.tasks if t.resource == resource), None)
    for problem in known.problems:
        # A file that nobody can read may be this very task.
        anyones = not problem.keys and found is None and not lenient
        if resource.key in problem.keys or anyones:
            raise Invalid(
                problem.message,
                resource=resource.text,
                hints=(f"fix {problem.file}, or exclude it from tasks.files in .gitlease.yaml",),
            )
    return found


def without_numbers(found: TaskList) -> TaskList:
    """The tasks of a ledger whose names are issues: a task with the id of an issue is a problem."""
    good = tuple(t for t in found.tasks if not reads_as_issue(t.resource.text))
    bad = (t for t in found.tasks if reads_as_issue(t.resource.text))
    problems = (TaskProblem(t.file, _number(t), frozenset({t.resource.key})) for t in bad)
    return replace(found, tasks=good, problems=(*found.problems, *problems))


def _number(task: Task) -> str:
    return f"{task.file}:{task.line}: the id {task.resource} reads as the number of an issue"


class _Known:
    """The tasks of the work tree, and those of the places beside it, each read once."""

    # Absence in a work tree proves nothing: it may be sparse, or behind.

    def __init__(self, edges: Edges, found: TaskList) -> None:
        self._edges, self.found = edges, found
        self._read: dict[str, TaskList] = {}

    @cached_property
    def places(self) -> Sequence[str]:
        return self._edges.files.places()

    @property
    def required(self) -> bool:
        """Return whether names must be tasks: by the settings, else if there is any real task."""
        required = self._edges.rules.required
        if required is not None:
            return required
        # Other files in their place, as an Ansible role's ``tasks/main.yaml``, do not count.
        # The tasks of a submodule are here for people, but their leases are in another ledger.
        here = self.found.has_tasks or bool(self.found.submodules)
        return here or any(self.at(x).has_tasks for x in self.places)

    def task(self, resource: Resource, *, lenient: bool = False) -> Task | None:
        task = find_task(self.found, resource, lenient=lenient)
        return task and self._edges._current(task)

    def elsewhere(self, resource: Resource, here: Task | None) -> list[tuple[str, Task]]:
        """A task as the default branch has it, and the index and HEAD if the work tree lacks it.

        What the caller did since is not called into question.
        """
        edges, found = self._edges, []
        for ref in () if resource.is_path else self.places:
            if here is not None and not _is_branch(ref):
                continue
            task = self.task_at(ref, resource)
            if task is not None and here is None:
                found.append((ref, edges._away(task, ref)))
            elif task is not None and not edges._is_older(task, ref):
                found.append((ref, edges._current(task, ref)))
        return found

    def task_at(self, ref: str, resource: Resource) -> Task | None:
        """The task of a name as a place has it; None also where only that has a broken file."""
        try:
            return find_task(self.at(ref), resource, lenient=True)
        except Invalid:
            return None

    def doubt(self, resource: Resource) -> str:
        """What is unknown of a name on the default branch: whether it is assigned, or done."""
        if resource.is_path:
            return ""
        if why := self._edges.files.doubt():
            return f"{why}, so it is unknown whether {resource} is assigned or done there"
        for ref in filter(_is_branch, self.places):
            listed = self.at(ref)
            found = next((t for t in listed.tasks if t.resource == resource), None)
            # First what has the name: a file that cannot be read at all may be any task.
            by_name = sorted(listed.problems, key=lambda x: resource.key not in fold(x.file))
            for problem in sorted(by_name, key=lambda x: resource.key not in x.keys):
                if resource.key in problem.keys or (not problem.keys and found is None):
                    return _unreadable(problem, ref)
            if found is not None and found.progress is Progress.OTHER:
                return (
                    f"{found.file} on {place_of(ref)} has the status {shown(found.status)}, which "
                    f"no setting explains, so it is unknown whether {resource} is done there"
                )
        return ""

    def at(self, ref: str) -> TaskList:
        if ref not in self._read:
            try:
                self._read[ref] = self._edges.files.read(ref)
            except NotFound:  # no commit yet, say
                self._read[ref] = TaskList()
            except Invalid as error:
                problem = TaskProblem(place_of(ref), error.message)
                self._read[ref] = TaskList(problems=(problem,))
        return self._read[ref]

    def unknown(self, resource: Resource, *, any_name: bool = False) -> NotFound:
        """The refusal of a name that is not a task, with similar ones."""
        # Loaded for a refusal alone: no other command needs it.
        from difflib import get_close_matches

        for task in self.found.tasks if resource.text.startswith("#") else ():
            id = task.resource.text
            if reads_as_issue(id) and f"#{id.rpartition('-')[2]}" == resource.text:
                hint = "give the task another id, for example T12 for 12"
                return NotFound(_number(task), resource=resource.text, hints=(hint,))
        lists = (self.found, *self._read.values())
        ids = {t.resource.key: t for listed in lists for t in listed.tasks}
        near = get_close_matches(resource.key, ids, n=NEAR, cutoff=0.6)
        hints = (
            [f"did you mean {', '.join(ids[key].resource.text for key in near)}?"] if near else []
        )
        if doubt := self.doubt(resource):
            hints.append(doubt)
        hints += map(in_submodule, self.found.submodules)
        if any_name:
            hints.append(CLAIM_ANY)
        message = f"there is no task {resource}: no task file has this id"
        return NotFound(message, resource=resource.text, hints=tuple(hints))


# Goals of an intent.
HELD, ENDED, COMPLETED, RETIRING = "held", "ended", "completed", "retired"
PART = "completed part"  # of a task, which is done with the last of several


def finished(
    edit: EdgeEdit, leases: Sequence[Lease], holder: str, *, part: bool = False
) -> EdgeEdit:
    """The edit for a completed lease; the status stays while others work on the task.

    A ``part`` finishes the task if it is the last of several that were claimed.
    """
    others = any(x.state is State.ACTIVE and not same_person(x.holder, holder) for x in leases)
    # A single finished part says nothing of how many there are.
    only = part and sum(x.state is State.COMPLETED for x in leases) < 2
    return replace(edit, status=None) if others or only else edit


def given_back(edit: EdgeEdit, leases: Sequence[Lease], holder: str) -> EdgeEdit:
    """The edit for a released lease; the status stays if a part of the task is finished."""
    some = any(x.state is State.COMPLETED for x in leases)
    return replace(edit, status=None) if some else finished(edit, leases, holder)
