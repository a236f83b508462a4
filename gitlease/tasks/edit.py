"""Changes who a task is assigned to, and its status, in the bytes of its file, and nothing else.

The text is never written anew: pieces are cut out and put in at the places that the parser gives,
and the result is read again and compared. To take out the name that was put in gives back every
byte, except where the field said explicitly that there is nobody (``~``, ``null``, ``''``, nothing
at all within braces): that becomes ``[]``. A single value that becomes a list has a blank before
its closing bracket, ``[jo, kim ]``, and so becomes a single value again when the name that was put
in goes; any other list stays one.
Comments stay: one behind a name that goes is left in its line.
"""

from __future__ import annotations

from contextlib import suppress

from gitlease.core.edge import EdgeEdit, Task, same_name
from gitlease.core.errors import Invalid, shown
from gitlease.core.frozen import replace
from gitlease.core.resources.pattern import fold
from gitlease.core.resources.resource import Resource
from gitlease.settings.sources import Tasks
from gitlease.tasks.change import assign, leaves, set_status
from gitlease.tasks.fields import Document, outline, read_document
from gitlease.tasks.front_matter import bad, conflict_behind, is_yaml
from gitlease.tasks.splice import CannotCut, line_break
from gitlease.tasks.text import field_names, task_of


def edit_task(
    data: bytes, *, file: str, tasks: Tasks, edit: EdgeEdit, of: Resource | None = None
) -> bytes:
    """The bytes of a task file after an edit; the very same where it is made already.

    ``of`` is the task that it must be. Raises Invalid, which names file and line, for a file that
    is no task or another one, is broken, or is written so that it cannot be edited without a guess.
    """
    before = _open(data, file, tasks)
    if of is not None and before[1].resource != of:
        raise bad(file, 1, f"this is not the task file of {of}")
    conflict = conflict_behind(data, before[0].front)
    if conflict is not None:
        raise conflict
    try:
        return _edit(data, before, tasks, edit)
    except Invalid:
        if not is_yaml(file) or data.endswith((b"\n", b"\r")):
            raise
        with suppress(Invalid):
            # The break before the last line is part of a block of text that ends there: it stays.
            return _edit(data + line_break(data.decode()).encode(), before, tasks, edit)
        raise


def _edit(data: bytes, before: tuple[Document, Task], tasks: Tasks, edit: EdgeEdit) -> bytes:
    names, task, file = field_names(tasks), before[1], before[0].front.file
    changed = data
    field = names["status"]
    try:
        if edit.status is not None and not _same_word(task.status, edit.status):
            document = _open(data, file, tasks)[0]
            changed = _with_text(data, document, set_status(document, field, edit.status))
        field = names["assigned"]
        for _ in task.assigned or ("",):  # one name at a time
            document = _open(changed, file, tasks)[0]
            changed = _with_text(changed, document, assign(document, field, edit))
        if _assigned_after(task.assigned, edit) == task.assigned:
            field = names["status"]
        if changed != data:
            _check_nothing_else_changed(before, _open(changed, file, tasks), names, edit)
    except CannotCut as error:
        raise _unsafe(before[0], field, str(error)) from None
    except Invalid:
        raise _unsafe(before[0], field, "the result could not be read") from None
    return changed


def _open(data: bytes, file: str, tasks: Tasks) -> tuple[Document, Task]:
    names = field_names(tasks)
    document = read_document(data, file=file, names=frozenset(names.values()))
    task = None if document is None else task_of(document, names, tasks)
    if document is None or task is None:
        raise bad(file, 1, f"this is not a task: it has no {shown(names['id'])}")
    return document, task


def _with_text(data: bytes, document: Document, text: str) -> bytes:
    front = document.front
    return data[: front.begin] + text.encode() + data[front.end :]


def _same_word(one: str, other: str) -> bool:
    return fold(one.strip()) == fold(other.strip())


def _check_nothing_else_changed(
    before: tuple[Document, Task],
    after: tuple[Document, Task],
    names: dict[str, str],
    edit: EdgeEdit,
) -> None:
    (document, old), (changed, new) = before, after
    edited = {names["assigned"], names["status"]}
    kept = edit.status is None or _same_word(old.status, edit.status)
    wanted = replace(
        old,
        assigned=_assigned_after(old.assigned, edit),
        status=old.status if kept else edit.status or "",
        progress=new.progress,
        line=new.line,
    )
    if wanted != new or outline(document, edited) != outline(changed, edited):
        raise CannotCut("the result would mean something else")


def _assigned_after(names: tuple[str, ...], edit: EdgeEdit) -> tuple[str, ...]:
    missing = edit.add is not None and not any(same_name(name, edit.add) for name in names)
    new = [edit.add] if edit.add is not None and missing else []
    wanted = []
    for name in names:
        if not leaves(name, edit):
            wanted.append(name)
        elif new:  # it takes the place of the first one that leaves, else the last place
            wanted.append(new.pop())
    return (*wanted, *new)


def _unsafe(document: Document, name: str, why: str) -> Invalid:
    field = document.fields.get(name)
    place = field.key.start if field else document.entries[0][0]
    hint = f"edit {shown(name)} by hand"
    return document.bad(place, f"{shown(name)} cannot be edited safely: {why}", hint)
