"""Changes who a task is assigned to, and its status, in the bytes of its file, and nothing else.

The text is never written anew: pieces are cut out and put in at the places that the parser gives,
and the result is read again and compared. To take out the name that was put in gives back every
byte, except where the field said explicitly that there is nobody (``~``, ``null``, ``''``, nothing
at all within braces): that becomes ``[]``. A single value that becomes a list has a blank before
its closing bracket, ``[jo, kim ]``, and so becomes a single value again when the name that was put
in goes; any other list stays one. Comments stay: one behind a name that goes is left in its line.
Whatever is written so that a change would be a guess raises CannotCut, which says why.

The file is replaced whole or not at all, and no link is ever followed: every folder on the way is
opened by itself, so that nobody can put a link there in between.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shlex
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from gitlease.kernel.git.files import read_with_status
from gitlease.kernel.git.plain_yaml import Node
from gitlease.kernel.git.repository import TIMEOUT
from gitlease.kernel.git.run import run_git
from gitlease.kernel.rules.edge import EdgeEdit, Task, means_nobody, same_name
from gitlease.kernel.rules.errors import Invalid, shown
from gitlease.kernel.rules.frozen import replace
from gitlease.kernel.rules.resources import Resource, fold
from gitlease.kernel.settings.schema import LIST, SINGLE, Tasks
from gitlease.tasks.reading import (
    Document,
    Field,
    FieldForm,
    bad,
    conflict_behind,
    field_names,
    is_yaml,
    outline,
    read_document,
    task_of,
)
from gitlease.tasks.scan import MAX_BYTES, OWN, Stamp, printable, segments_of, stamp_of

# Words that no YAML reader, of either version, takes for anything but a string.
_WORD = r"[^\W\d][\w.+/@-]*"
_PLAIN = re.compile(rf"{_WORD}(?: [\w.+/@-]+)*|\w[\w.+-]*@{_WORD}")
_TYPED = {"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"}

Span = tuple[int, int]


class CannotCut(ValueError):
    """The text is not as it would have to be; the message says why."""


def scalar(text: str, quote: str = "") -> str:
    """A text as YAML: plain where every reader takes that for it, else in quotes.

    ``quote`` puts it in quotes of that kind in any case. Raises CannotCut for unprintable ones.
    """
    if not text.isprintable():
        raise CannotCut("this can only be written with escapes")
    # Readers of YAML 1.1 take these words for booleans, nothing or numbers.
    if not quote and _PLAIN.fullmatch(text) and text.lower() not in _TYPED:
        return text
    if quote == '"':
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return "'" + text.replace("'", "''") + "'"


def line_start(text: str, place: int) -> int:
    """The beginning of the line of a place."""
    return max(text.rfind("\n", 0, place), text.rfind("\r", 0, place)) + 1


def line_end(text: str, place: int) -> int:
    """The end of the line of a place: its line break, or the end of the text."""
    # A lone CR ends a line in YAML; str.splitlines would also end it at signs that git lets pass.
    match = re.compile(r"[\r\n]|\Z").search(text, place)
    return match.start() if match else len(text)


def next_line(text: str, place: int) -> int:
    """The beginning of the line below; the end of the text where there is none."""
    end = line_end(text, place)
    return end + (2 if text.startswith("\r\n", end) else 1 if end < len(text) else 0)


def line_break(*texts: str) -> str:
    """The last line break of the first text that has any."""
    for text in texts:
        if breaks := re.findall(r"\r\n|[\r\n]", text):
            return str(breaks[-1])
    return "\n"


def put_line(text: str, place: int, line: str) -> str:
    """Put in a line at the beginning of a line or at the end, with its neighbour's line break."""
    # A file with both kinds of line breaks keeps the one that stands above.
    end = line_break(text[:place], text)
    if place == len(text) and line_start(text, place) != place:
        return text + end + line
    return text[:place] + line + end + text[place:]


def cut_lines(text: str, start: int, end: int) -> str:
    """Take out the lines of two places and all between: what ``put_line`` put in is gone again."""
    start, after = line_start(text, start), next_line(text, end)
    # The last line has no break: the one before it came with the line that goes.
    if after == len(text) and line_end(text, end) == after:
        return re.sub(r"(?:\r\n|[\r\n])\Z", "", text[:start])
    return text[:start] + text[after:]


def comma(text: str, start: int, end: int) -> int:
    """The place of the only comma between two items; -1 where there is none."""
    # Commas in comments are blanked out in place, so that positions stay.
    bare = re.sub(r"#[^\r\n]*", lambda comment: " " * len(comment[0]), text[start:end])
    if bare.count(",") > 1 or bare.strip(" \t\r\n,"):
        raise CannotCut("there is other text between two items")
    place = bare.find(",")
    return -1 if place < 0 else start + place


def cut_item(text: str, items: Sequence[Span], number: int, close: int) -> str:
    """Take one item and its comma out of items with commas between, up to ``close``."""
    start, end = items[number]
    if number:
        gap_start = items[number - 1][1]
        place = comma(text, gap_start, start)
        if place < 0:
            raise CannotCut("there is no comma between two items")
        # A comment between the items stays, and only the comma goes.
        if "#" in text[gap_start:start]:
            return text[:place] + text[place + 1 : start] + text[end:]
        return text[:place] + text[end:]
    gap_end = items[1][0] if len(items) > 1 else close
    place = comma(text, end, gap_end)
    if len(items) > 1 and "#" not in text[end:gap_end]:
        return text[:start] + text[gap_end:]
    if place < 0:
        return text[:start] + text[end:]
    return text[:start] + text[end:place] + text[place + 1 :]


_COLON = re.compile(r"[ \t]*:(?:[ \t\r\n]|#[^\r\n]*+)*")
_REST = re.compile(r"[ \t]*(?:#[^\r\n]*)?")
_YAML_BREAK = re.compile("[\x85\u2028\u2029]")
_FLOW_SIGNS = frozenset(",[]{}")


def assign(document: Document, name: str, edit: EdgeEdit, form: str | None = None) -> str:
    """Bring the field one step nearer to what is wanted: the same text when it is that already.

    ``form`` is that of a first name, if the field itself does not show one.
    """
    field = document.fields.get(name)
    items = field.items if field else []
    there = [item.text for item in items if item.says_something]
    new = edit.add
    if new is not None and any(same_name(text, new) for text in there):
        new = None
    # One step a call: after each the text is parsed again, so that every place is right.
    if field and new is not None:
        # A placeholder such as TBD makes room for the first name; beside a name it would be one.
        for number, item in enumerate(items):
            if item.says_something and means_nobody(item.text):
                if len(there) > 1:
                    return _remove(document, field, number)
                _check_plain_and_find_colon(document, field)
                written = _quoted_like_others(document, new, items)
                if form == LIST and field.form is FieldForm.SCALAR:
                    written = f"[{written}]"
                return _write_item(document, item, written)
    for number, item in enumerate(items):
        if field and item.says_something and leaves(item.text, edit):
            if new is None:
                return _remove(document, field, number)
            _check_plain_and_find_colon(document, field)
            return _write_item(document, item, _quoted_like_others(document, new, field.items))
    if new is None:
        return document.front.text
    if field is None:
        return _add_field(document, name, new, as_list=form == LIST)
    return _add(document, field, new, form)


def leaves(name: str, edit: EdgeEdit) -> bool:
    """Return whether an edit takes out this name."""
    if edit.add is not None and same_name(name, edit.add):
        return False
    return any(removed.strip() and same_name(name, removed) for removed in edit.remove)


def set_status(document: Document, name: str, word: str) -> str:
    """Write another status in the way the old one was written."""
    field = document.fields.get(name)
    if field is None:
        return _add_field(document, name, word)
    colon = _check_plain_and_find_colon(document, field)
    item = field.items[0]
    if item.start == item.end:
        return _put(document.front.text, colon, colon, " " + scalar(word, _json_quote(document)))
    return _write_item(document, item, scalar(word, item.style or _json_quote(document)))


def _write_item(document: Document, item: Node, new: str) -> str:
    _check_item(document, item)
    return _put(document.front.text, item.start, item.end, new)


def _add(document: Document, field: Field, name: str, form: str | None) -> str:
    colon = _check_plain_and_find_colon(document, field)
    new = _quoted_like_others(document, name, field.items)
    if field.form is FieldForm.SCALAR:
        return _add_to_single(document, field, colon, new, form)
    if field.form is FieldForm.FLOW:
        return _add_in_brackets(document, field, new)
    last = field.items[-1]
    _check_item(document, last)
    before = _before_item(document, last)
    line = before + new if before[-1] in " \t" else f"{before} {new}"
    return put_line(document.front.text, next_line(document.front.text, last.end), line)


def _add_to_single(document: Document, field: Field, colon: int, new: str, form: str | None) -> str:
    text, item = document.front.text, field.items[0]
    if form == SINGLE and item.start == item.end:
        return _put(text, colon, colon, f" {new}")
    if form == SINGLE and not item.says_something:
        return _write_item(document, item, new)
    if item.start == item.end:
        if document.root.flow:
            return _put(text, colon, colon, f" [{new}]")
        # As block lists of this file are indented, so that the edit looks like its neighbours.
        indent = 2 if document.list_indent is None else document.list_indent
        blanks = _indent(text, field.key.start) + " " * indent
        return put_line(text, next_line(text, colon), f"{blanks}- {new}")
    _check_item(document, item)
    if not item.says_something:
        return _put(text, item.start, item.end, f"[{new}]")
    old = text[item.start : item.end]
    # In brackets these signs would cut the old name in two.
    if not item.style and _FLOW_SIGNS & set(old):
        raise CannotCut("the existing name has commas or brackets and is not quoted")
    # The blank marks what was a single value, so that it becomes one again.
    return _put(text, item.start, item.end, f"[{old}, {new} ]")


def _add_in_brackets(document: Document, field: Field, new: str) -> str:
    text, spans = document.front.text, _spans(field)
    inside = field.end - 1
    if not spans:
        # Behind a comment, and otherwise in front of all blanks.
        place = inside if "#" in text[field.start : inside] else field.start + 1
        return _put(text, place, place, new)
    if len(spans) == 1 and _came_from_single(text, field):
        return _put(text, inside, inside, f", {new}")
    gap = text[spans[-2][1] : spans[-1][0]] if len(spans) > 1 else ""
    between = gap if re.fullmatch(r",[ \t\r\n]*", gap) else ", "  # as the last one is set off
    return _put(text, spans[-1][1], spans[-1][1], between + new)


def _came_from_single(text: str, field: Field) -> bool:
    first, last = field.items[0], field.items[-1]
    tight = first.start == field.start + 1 and text[last.end : field.end] == " ]"
    return tight and not re.search(r"[\r\n]", text[field.start : field.end])


def _remove(document: Document, field: Field, number: int) -> str:
    text, item = document.front.text, field.items[number]
    colon = _check_plain_and_find_colon(document, field)
    _check_item(document, item)
    if field.form is FieldForm.BLOCK:
        dash = line_start(text, item.start) + _before_item(document, item).rindex("-")
        # Only the name goes from the line, its comment stays.
        rest = text.find("#", item.end, line_end(text, item.end))
        if rest >= 0:
            return _put(text, dash, rest, "")
        return cut_lines(text, item.start, item.end)
    if field.form is FieldForm.FLOW:
        # Of a single value that became a list, the name put in is the last one.
        if number == 1 and len(field.items) == 2 and _came_from_single(text, field):
            other = field.items[0]
            return _put(text, field.start, field.end, text[other.start : other.end])
        return cut_item(text, _spans(field), number, field.end - 1)
    if document.root.flow:
        return cut_item(text, document.entries, field.entry, document.close)
    comment = "#" in text[field.end : line_end(text, field.end)]
    if "#" not in text[colon : field.start] and not comment:
        return cut_lines(text, field.key.start, field.end)
    if line_start(text, field.start) == line_start(text, colon):
        return _put(text, colon, field.end, "")
    if comment:
        return _put(text, field.start, field.end, "")
    return cut_lines(text, field.start, field.end)


def _add_field(document: Document, name: str, value: str, *, as_list: bool = False) -> str:
    text, quote = document.front.text, _json_quote(document)
    written = scalar(value, quote)
    entry = f"{scalar(name, quote)}: {f'[{written}]' if as_list else written}"
    if document.root.flow:
        place = document.entries[-1][1]
        _refuse_breaks_only_yaml_sees(text, place, place)
        return _put(text, place, place, f", {entry}")
    place = document.close
    _refuse_breaks_only_yaml_sees(text, max(0, place - 1), max(0, place - 1))
    return put_line(text, place, _indent(text, document.entries[0][0]) + entry)


def _check_plain_and_find_colon(document: Document, field: Field) -> int:
    text, key = document.front.text, field.key
    _refuse_breaks_only_yaml_sees(text, key.start, field.end)
    if not document.root.flow:
        _indent(text, key.start)
    elif field.entry:
        comma(text, document.entries[field.entry - 1][1], key.start)
    elif not re.sub(r"#[^\r\n]*", "", text[: key.start]).rstrip().endswith("{"):
        raise CannotCut("there is other text before the name of the field")
    colon = _COLON.fullmatch(text, key.end, field.start)
    if colon is None:
        raise CannotCut("there is other text between the name of the field and its value")
    if not document.root.flow and field.form is not FieldForm.BLOCK:
        _check_rest(text, field.end)
    return text.index(":", key.end) + 1


def _refuse_breaks_only_yaml_sees(text: str, start: int, end: int) -> None:
    # These end a line for this parser, but not for git and newer ones.
    if _YAML_BREAK.search(text, max(0, line_start(text, start) - 1), next_line(text, end)):
        raise CannotCut("it has a line break that git does not treat as one")


def _check_item(document: Document, item: Node) -> None:
    if item.style in ("|", ">"):
        raise CannotCut("it is written as a block of text")
    if re.search(r"[\r\n]", document.front.text[item.start : item.end]):
        raise CannotCut("it is written over several lines")


def _check_rest(text: str, place: int) -> None:
    if not _REST.fullmatch(text, place, line_end(text, place)):
        raise CannotCut("there is other text after the value")


def _indent(text: str, place: int) -> str:
    blanks = text[line_start(text, place) : place]
    if blanks.strip(" "):
        raise CannotCut("there is other text before the name of the field")
    return blanks


def _before_item(document: Document, item: Node) -> str:
    text = document.front.text
    before = text[line_start(text, item.start) : item.start]
    if not re.fullmatch(r"[ \t]*-[ \t]*", before):
        raise CannotCut("there is other text before a name")
    _check_rest(text, item.end)
    return before


def _quoted_like_others(document: Document, name: str, items: list[Node]) -> str:
    styles = {item.style for item in items if item.says_something}
    # A style that all names have is followed; else quotes come only where the name needs them.
    if styles == {'"'}:
        return scalar(name, '"')
    new = scalar(name, _json_quote(document))
    return scalar(name, '"') if new != name and '"' in styles and "'" not in styles else new


def _json_quote(document: Document) -> str:
    begin = document.entries[0][0]
    # A mapping with quoted keys is JSON, which knows no single quotes.
    return '"' if document.root.flow and document.front.text.startswith('"', begin) else ""


def _spans(field: Field) -> list[tuple[int, int]]:
    return [(item.start, item.end) for item in field.items]


def _put(text: str, start: int, end: int, new: str) -> str:
    return text[:start] + new + text[end:]


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
        assigned = before[0].fields.get(field)
        # One name at a time; the last step finds nothing left to do.
        for _ in range(1 + len(assigned.items if assigned else ())):
            document = _open(changed, file, tasks)[0]
            text = assign(document, field, edit, tasks.assigned_form)
            changed = _with_text(changed, document, text)
        if _assigned_after(task.assigned, edit) == task.assigned:
            field = names["status"]
        # The proof of the edit: the result is read as any reader would, and only the wanted may
        # differ.
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


def _same_word(word: str, other: str) -> bool:
    return fold(word.strip()) == fold(other.strip())


def _check_nothing_else_changed(
    before: tuple[Document, Task],
    after: tuple[Document, Task],
    names: dict[str, str],
    edit: EdgeEdit,
) -> None:
    (document, old), (changed, new) = before, after
    edited = {names["assigned"], names["status"]}
    # A status in another spelling counts as set, and keeps its spelling.
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


# --- files ----------------------------------------------------------------------------------------

TRIES = 5
MAX_NAMED = 1000  # files that fit on a command line for certain

# Paths are taken literally, whatever the user's environment says.
LITERAL_PATHSPECS = {f"GIT_{kind}_PATHSPECS": "0" for kind in ("GLOB", "NOGLOB", "ICASE")}
LITERAL_PATHSPECS["GIT_LITERAL_PATHSPECS"] = "1"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# A link that somebody puts at that name would be followed otherwise.
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def read_place(root: str, file: str) -> bytes:
    """The bytes of a file that could be changed. Invalid, which names the file, where it cannot."""
    with _errors_name(file), _opened_folder(root, file) as (folder, name):
        data, _ = _read(folder, name, file)
        # The file is replaced, so its folder must be writable, whatever the file's own mode is.
        if not os.access(".", os.W_OK | os.X_OK, dir_fd=folder):
            where = printable(os.path.dirname(file)) or "the root of the work tree"
            raise Invalid(f"{printable(file)} cannot be written: {where} is read-only")
        return data


def ask_git(git_dir: str, root: str, files: Sequence[str]) -> dict[str, Invalid]:
    """Which of the files git ignores, or has in conflict, by file. The index is only read."""
    # Without it git 2.55 starts a daemon that watches the user's files.
    where = (f"--git-dir={git_dir}", f"--work-tree={root}", "-c", "core.fsmonitor=false")
    words = ("ls-files", "-z", "-t", "--cached", "--others", "--exclude-standard", "--")
    which = files if len(files) <= MAX_NAMED else ()
    listed = run_git([*where, *words, *which], cwd=root, timeout=TIMEOUT, env=LITERAL_PATHSPECS)
    if listed.code != 0 or listed.timed_out:
        why = (listed.err.strip().splitlines() or ["no answer in time"])[0]
        raise Invalid(f"git cannot check the task files: {printable(why)}")
    # Neither cached nor listed as untracked: ignored, which git says of no file by itself.
    tags = {line[2:]: line[:1] for line in os.fsdecode(listed.out).split("\0") if line}
    alike = {fold(file): tag for file, tag in tags.items()}  # git may compose what a disk does not
    refused = {}
    for file in files:
        shown = printable(file)
        tag = tags.get(file) or alike.get(fold(file))
        if tag is None:
            refused[file] = Invalid(
                f"{shown} is ignored by git: nobody else would see an edge in it",
                hints=(f"the rule that ignores it: git check-ignore -v -- {shlex.quote(shown)}",),
            )
        elif tag == "M":
            refused[file] = Invalid(
                f"{shown} is in conflict",
                hints=(f"resolve it, and then: git add -- {shlex.quote(shown)}",),
            )
    return refused


def change_file(root: str, file: str, change: Callable[[bytes], bytes], *, aside: str) -> bool:
    """Replace a file by what ``change`` makes of its bytes; False when that is the same.

    The new file is written in the folder ``aside`` first, or beside the old one where that is
    another file system, and has the old one's permissions. Raises Invalid, which names the file.
    """
    with _errors_name(file), _opened_folder(root, file) as (folder, name):
        # An editor that saves meanwhile wins: its text is read and edited anew.
        for _ in range(TRIES):
            data, status = _read(folder, name, file)
            new = change(data)
            if new == data:
                return False
            if _replace_if_unchanged(folder, name, new, status, aside):
                return True
    raise Invalid(f"{printable(file)} keeps changing: something else is writing it")


def create_file(root: str, file: str, data: bytes) -> None:
    """Write a new file, and its folder where that is missing. Invalid, also if it is there."""
    with _errors_name(file):
        os.makedirs(os.path.dirname(os.path.join(root, file)), exist_ok=True)
        with _opened_folder(root, file) as (folder, name):
            handle = os.open(name, _NEW, 0o666, dir_fd=folder)
            try:
                with open(handle, "wb") as made:
                    made.write(data)
            # A full disk must not leave half a task that everybody reads.
            except OSError:
                os.unlink(name, dir_fd=folder)
                raise


def _replace_if_unchanged(
    folder: int, name: str, new: bytes, old: os.stat_result, aside: str
) -> bool:
    opened = os.open(aside, _FOLDER)
    try:
        return _move(opened, folder, name, new, old)
    except OSError as error:
        # A work tree may lie on another disk than the clone's private folder.
        if error.errno != errno.EXDEV:
            raise
    finally:
        os.close(opened)
    return _move(folder, folder, name, new, old)


def _move(start: int, folder: int, name: str, new: bytes, old: os.stat_result) -> bool:
    temporary = f"{OWN}{os.getpid()}.{os.urandom(4).hex()}.tmp"
    # Nobody else reads it before it has the owner and the mode of the old one.
    handle = os.open(temporary, _NEW, 0o600, dir_fd=start)
    try:
        with open(handle, "wb") as file:
            file.write(new)
            file.flush()
            with contextlib.suppress(OSError):  # root's edit of a file that is another's
                os.fchown(handle, old.st_uid, old.st_gid)
            os.fchmod(handle, stat.S_IMODE(old.st_mode))
        # What is left of the race: a change between this look and the rename is lost, as by any
        # editor.
        if _stamp(folder, name) != _whole(old):
            return False
        os.replace(temporary, name, src_dir_fd=start, dst_dir_fd=folder)
        return True
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=start)


def _whole(status: os.stat_result) -> Stamp:
    return (*stamp_of(status), status.st_dev, status.st_mode)


def _stamp(folder: int, name: str) -> Stamp | None:
    try:
        return _whole(os.stat(name, dir_fd=folder, follow_symlinks=False))
    except FileNotFoundError:
        return None


def _read(folder: int, name: str, file: str) -> tuple[bytes, os.stat_result]:
    try:
        read = read_with_status(name, MAX_BYTES, folder)
    except OSError:
        if _is_link(name, folder):
            raise Invalid(f"{printable(file)} is a symbolic link, which is never edited") from None
        raise
    if read is None:
        raise Invalid(f"{printable(file)} is not a regular file")
    if len(read[0]) > MAX_BYTES:
        raise Invalid(f"{printable(file)} is larger than {MAX_BYTES // 1024} KiB")
    return read


@contextmanager
def _errors_name(file: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise Invalid(f"{printable(file)} is not there") from None
    except OSError as error:
        raise Invalid(f"{printable(file)} cannot be edited: {error.strerror}") from None


@contextmanager
def _opened_folder(root: str, file: str) -> Iterator[tuple[int, str]]:
    *folders, name = segments_of(file)
    folder = os.open(root, _FOLDER)
    try:
        for depth, part in enumerate(folders, 1):
            here = printable("/".join(folders[:depth]))
            try:
                # By the open folder above: a path from the root could lead elsewhere by now.
                inner = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
            except OSError:
                if _is_link(part, folder):
                    raise Invalid(
                        f"{here} is a symbolic link: its task files cannot be edited safely"
                    ) from None
                raise
            os.close(folder)
            folder = inner
            # The ledger of a submodule is another, and so are its tasks.
            if _stamp(folder, ".git") is not None:
                raise Invalid(f"{printable(file)} is in another repository, that of {here}")
        yield folder, name
    finally:
        os.close(folder)


def _is_link(name: str, folder: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False
