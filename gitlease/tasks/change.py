"""The single changes of a task file's text: a name in, a name out, a name for another, a status.

Each takes a document and gives its new text. Whatever is written so that a change would be a guess
raises CannotCut, which says why.
"""

from __future__ import annotations

import re

from gitlease.core.edge import EdgeEdit, same_name
from gitlease.git.yaml_nodes import Node
from gitlease.tasks.fields import Document, Field, FieldForm
from gitlease.tasks.splice import (
    CannotCut,
    add_item,
    comma,
    cut_item,
    cut_lines,
    line_end,
    line_start,
    next_line,
    put_line,
    scalar,
)

_COLON = re.compile(r"[ \t]*:(?:[ \t\r\n]|#[^\r\n]*+)*")
_REST = re.compile(r"[ \t]*(?:#[^\r\n]*)?")
_YAML_BREAK = re.compile("[\x85\u2028\u2029]")
_FLOW_SIGNS = frozenset(",[]{}")


def assign(document: Document, name: str, edit: EdgeEdit) -> str:
    """Bring the field one step nearer to what is wanted: the same text when it is that already."""
    field = document.fields.get(name)
    items = field.items if field else []
    there = [item.text for item in items if item.says_something]
    new = edit.add
    if new is not None and any(same_name(text, new) for text in there):
        new = None
    for number, item in enumerate(items):
        if field and item.says_something and leaves(item.text, edit):
            if new is None:
                return _remove(document, field, number)
            return _replace(document, field, number, new)
    if new is None:
        return document.text
    return _add(document, field, new) if field else _add_field(document, name, new)


def leaves(name: str, edit: EdgeEdit) -> bool:
    """Whether an edit takes out this name."""
    if edit.add is not None and same_name(name, edit.add):
        return False
    return any(gone.strip() and same_name(name, gone) for gone in edit.remove)


def set_status(document: Document, name: str, word: str) -> str:
    """Write another status in the way the old one was written."""
    field = document.fields.get(name)
    if field is None:
        return _add_field(document, name, word)
    colon = _check_plain_and_find_colon(document, field)
    item = field.items[0]
    if item.start == item.end:
        return _put(document.text, colon, colon, " " + scalar(word, _json_quote(document)))
    _check_item(document, item)
    return _put(
        document.text, item.start, item.end, scalar(word, item.style or _json_quote(document))
    )


def _replace(document: Document, field: Field, number: int, name: str) -> str:
    _check_plain_and_find_colon(document, field)
    item = field.items[number]
    _check_item(document, item)
    return _put(
        document.text, item.start, item.end, _quoted_like_others(document, name, field.items)
    )


def _add(document: Document, field: Field, name: str) -> str:
    colon = _check_plain_and_find_colon(document, field)
    new = _quoted_like_others(document, name, field.items)
    if field.form is FieldForm.SCALAR:
        return _add_to_single(document, field, colon, new)
    if field.form is FieldForm.FLOW:
        return _add_in_brackets(document, field, new)
    last = field.items[-1]
    _check_item(document, last)
    before = _before_item(document, last)
    line = before + new if before[-1] in " \t" else f"{before} {new}"
    return put_line(document.text, next_line(document.text, last.end), line)


def _add_to_single(document: Document, field: Field, colon: int, new: str) -> str:
    text, item = document.text, field.items[0]
    if item.start == item.end:
        if document.flow:
            return _put(text, colon, colon, f" [{new}]")
        indent = 2 if document.list_indent is None else document.list_indent
        blanks = _indent(text, field.key.start) + " " * indent
        return put_line(text, next_line(text, colon), f"{blanks}- {new}")
    _check_item(document, item)
    if not item.says_something:
        return _put(text, item.start, item.end, f"[{new}]")
    old = text[item.start : item.end]
    if not item.style and _FLOW_SIGNS & set(old):
        raise CannotCut("the existing name has commas or brackets and is not quoted")
    return _put(text, item.start, item.end, f"[{old}, {new} ]")


def _add_in_brackets(document: Document, field: Field, new: str) -> str:
    text, spans = document.text, _spans(field)
    inside = field.end - 1
    if not spans:
        # Behind a comment, and otherwise in front of all blanks.
        place = inside if "#" in text[field.start : inside] else field.start + 1
        return _put(text, place, place, new)
    if len(spans) == 1 and _came_from_single(text, field):
        return _put(text, inside, inside, f", {new}")
    return add_item(text, spans, new)


def _came_from_single(text: str, field: Field) -> bool:
    first, last = field.items[0], field.items[-1]
    tight = first.start == field.start + 1 and text[last.end : field.end] == " ]"
    return tight and not re.search(r"[\r\n]", text[field.start : field.end])


def _remove(document: Document, field: Field, number: int) -> str:
    text, item = document.text, field.items[number]
    colon = _check_plain_and_find_colon(document, field)
    _check_item(document, item)
    if field.form is FieldForm.BLOCK:
        return _cut_block_item(document, item)
    if field.form is FieldForm.FLOW:
        # Of a single value that became a list, the name put in is the last one.
        if number == 1 and len(field.items) == 2 and _came_from_single(text, field):
            other = field.items[0]
            return _put(text, field.start, field.end, text[other.start : other.end])
        return cut_item(text, _spans(field), number, field.end - 1)
    if document.flow:
        return cut_item(text, document.entries, field.entry, document.close)
    comment = "#" in text[field.end : line_end(text, field.end)]
    if "#" not in text[colon : field.start] and not comment:
        return cut_lines(text, field.key.start, field.end)
    if line_start(text, field.start) == line_start(text, colon):
        return _put(text, colon, field.end, "")
    if comment:
        return _put(text, field.start, field.end, "")
    return cut_lines(text, field.start, field.end)


def _cut_block_item(document: Document, item: Node) -> str:
    text = document.text
    dash = line_start(text, item.start) + len(_before_item(document, item).rstrip(" \t")) - 1
    rest = text.find("#", item.end, line_end(text, item.end))
    if rest >= 0:
        return _put(text, dash, rest, "")
    return cut_lines(text, item.start, item.end)


def _add_field(document: Document, name: str, value: str) -> str:
    text, quote = document.text, _json_quote(document)
    entry = f"{scalar(name, quote)}: {scalar(value, quote)}"
    if document.flow:
        place = document.entries[-1][1]
        _refuse_breaks_only_yaml_sees(text, place, place)
        return _put(text, place, place, f", {entry}")
    place = document.close
    _refuse_breaks_only_yaml_sees(text, max(0, place - 1), max(0, place - 1))
    return put_line(text, place, _indent(text, document.entries[0][0]) + entry)


def _check_plain_and_find_colon(document: Document, field: Field) -> int:
    text, key = document.text, field.key
    _refuse_breaks_only_yaml_sees(text, key.start, field.end)
    if not document.flow:
        _indent(text, key.start)
    elif field.entry:
        comma(text, document.entries[field.entry - 1][1], key.start)
    elif not re.sub(r"#[^\r\n]*", "", text[: key.start]).rstrip().endswith("{"):
        raise CannotCut("there is other text before the name of the field")
    colon = _COLON.fullmatch(text, key.end, field.start)
    if colon is None:
        raise CannotCut("there is other text between the name of the field and its value")
    if not document.flow and field.form is not FieldForm.BLOCK:
        _check_rest(text, field.end)
    return text.index(":", key.end) + 1


def _refuse_breaks_only_yaml_sees(text: str, start: int, end: int) -> None:
    if _YAML_BREAK.search(text, max(0, line_start(text, start) - 1), next_line(text, end)):
        raise CannotCut("it has a line break that git does not treat as one")


def _check_item(document: Document, item: Node) -> None:
    if item.style in ("|", ">"):
        raise CannotCut("it is written as a block of text")
    if re.search(r"[\r\n]", document.text[item.start : item.end]):
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
    text = document.text
    before = text[line_start(text, item.start) : item.start]
    if not re.fullmatch(r"[ \t]*-[ \t]*", before):
        raise CannotCut("there is other text before a name")
    _check_rest(text, item.end)
    return before


def _quoted_like_others(document: Document, name: str, items: list[Node]) -> str:
    styles = {item.style for item in items if item.says_something}
    if styles == {'"'}:
        return scalar(name, '"')
    new = scalar(name, _json_quote(document))
    return scalar(name, '"') if new != name and '"' in styles and "'" not in styles else new


def _json_quote(document: Document) -> str:
    begin = document.entries[0][0]
    return '"' if document.flow and document.text.startswith('"', begin) else ""


def _spans(field: Field) -> list[tuple[int, int]]:
    return [(item.start, item.end) for item in field.items]


def _put(text: str, start: int, end: int, new: str) -> str:
    return text[:start] + new + text[end:]
