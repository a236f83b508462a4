"""What the documents say of verbs is printed from the table; ``pytest --record`` writes it anew."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import gitlease
from gitlease.faces.cli import MODULES
from gitlease.faces.http import ROUTES
from gitlease.faces.library import OF_A_CLONE
from gitlease.verbs import CODES, COMMAND, TABLE, Parameter, find_verb

DOCS = Path(gitlease.__file__).with_name("docs")
ANSWERS = {"Lease": "a lease", "tuple[Lease, ...]": "leases", "None": "nothing"}


def synopsis(verb: str) -> str:
    """A verb as it is typed, with its own options."""
    return " ".join([verb, *map(usage, find_verb(verb).at(COMMAND).values())])


def usage(one: Parameter) -> str:
    """A parameter as it is typed: ``R…`` or ``[--path P]…``."""
    value = (one.metavar or one.kind.metavar).replace("RESOURCE", "R")
    many = "…" if one.kind.many else ""
    if one.positional:
        return value + many if one.required else f"[{value}{many}]"
    typed = one.words.split()[-1].partition("/")[0] + ("" if one.kind.switch else f" {value}")
    return typed if one.required else f"[{typed}]{many}"


def rows_of(page: str, heading: str) -> list[str]:
    """The rows of the table below a line of headings."""
    return page.split(f"{heading}\n", 1)[1].split("\n\n", 1)[0].splitlines()[1:]


def with_rows(page: str, heading: str, rows: Sequence[str]) -> str:
    """The page with other rows in that table."""
    line = "| " + " | ".join(["---"] * (heading.count("|") - 1)) + " |"
    old = "\n".join([heading, line, *rows_of(page, heading)])
    assert old in page
    return page.replace(old, "\n".join([heading, line, *rows]))


def commands(page: str) -> str:
    """The verbs as they are typed, each with the words that the page has for it; the exits."""
    heading, rows = "| verb | does |", dict[str, str]()
    for row in rows_of(page, heading):
        typed, _, does = row.removeprefix("| ").partition(" | ")
        verb = typed.strip("`").split("`")[0].split()[0]
        two = next((x for x in TABLE if typed.startswith(f"`{x} ")), verb)
        # A command with options of the command line alone stands as the page has it.
        made = two in TABLE and not MODULES.get(two)
        rows[typed] = f"| `{synopsis(two)}` | {does}" if made else row
    known = [row.removeprefix("| `") for row in rows.values()]
    for verb in TABLE:
        begins = verb if MODULES.get(verb) else synopsis(verb)
        if not any(row.startswith(begins) for row in known) and " " not in verb:
            rows[verb] = f"| `{synopsis(verb)}` | {find_verb(verb).help.split(chr(10) * 2)[0]} |"
    exits = ["| 0 | | done, or free |"]
    for status in sorted({x.exit for x in CODES.values()}):
        codes = [x for x in CODES if CODES[x].exit == status]
        names = ", ".join(f"`{x}`" for x in codes)
        shown = codes if status == 1 else codes[:1]  # as help does: the first stands for all
        exits.append(f"| {status} | {names} | {'; '.join(CODES[x].meaning for x in shown)} |")
    page = with_rows(page, heading, list(rows.values()))
    return with_rows(page, "| exit | `error.code` | meaning |", exits)


def library(page: str) -> str:
    """The methods, the verbs that they are, and what they return."""
    rows = []
    for method in OF_A_CLONE:
        words = [method.verb, *("--" + x for x, y in method.given.items() if y is True)]
        words += [str(x) for x in method.given.values() if x is not True]
        taken = [x for x in method.signature.parameters.values() if x.name != "self"]
        first = ", ".join(x.name for x in taken if x.kind is not x.KEYWORD_ONLY)
        rest = ", …" if any(x.kind is x.KEYWORD_ONLY for x in taken) else ""
        answer = ANSWERS.get(method.answer, f"`{method.answer}`")
        also = "yes" if hasattr(gitlease.Connection, method.name) else ""
        called = f"{method.name}({first}{rest if first else rest[2:]})"
        rows.append(f"| `{called}` | `{' '.join(words)}` | {answer} | {also} |")
    return with_rows(page, "| method | verb | returns | on a connection |", rows)


def gateway(page: str) -> str:
    """The fields of every request."""
    rows = [
        f"| `{x.method} {x.path}` | {', '.join(f'`{name}`' for name in x.fields) or '-'} |"
        for x in ROUTES
    ]
    return with_rows(page, "| request | fields |", rows)


def answers(page: str) -> str:
    """The codes of refusals."""
    codes = ", ".join(f'"{x}"' for x in CODES)
    line = f'"code": {{"type": "string", "examples": [{codes}]}},'
    return re.sub(r'"code": \{"type": "string".*\},', line, page)


PAGES: dict[str, Callable[[str], str]] = {
    "commands.md": commands,
    "library.md": library,
    "gateway.md": gateway,
    "answers.schema.json": answers,
}


@pytest.mark.parametrize("name", PAGES)
def test_what_a_page_says_of_the_table_is_current(
    name: str, request: pytest.FixtureRequest
) -> None:
    text = (DOCS / name).read_text(encoding="utf-8")
    current = PAGES[name](text)
    if request.config.getoption("--record"):
        (DOCS / name).write_text(current, encoding="utf-8")
    else:
        assert text == current, "pytest --record tests/verbs/test_documents.py writes it"
