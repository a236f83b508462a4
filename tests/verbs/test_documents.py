"""What the documents say of verbs is printed from the table."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import click
import pytest
from support.documents import DOCS, PAGES
from support.recording import how_to_record

import gitlease
from gitlease.board.verbs import Section
from gitlease.check.rules import RULES, STALE_RULES
from gitlease.cli.app import MODULES, application, shared_options
from gitlease.gateway.routes import ROUTES
from gitlease.kernel.rules.edge import Progress
from gitlease.kernel.rules.lease_view import LeaseState
from gitlease.library.methods import OF_A_CLONE
from gitlease.verbs.table import CODES, COMMAND, TABLE, Parameter, find_verb
from gitlease.verbs.wire import SHAPES

WIDTH = 100
TEXTS: dict[str, Any] = {"type": "array", "items": {"type": "string"}}
# The kinds of fields of ``SHAPES``.
KINDS: dict[str, dict[str, Any]] = {
    "": {"type": "string"},
    "int": {"type": "integer"},
    "bool": {"type": "boolean"},
    "null": {"type": "null"},
    "texts": TEXTS,
    "ints": {"type": "array", "items": {"type": "integer"}},
    "time": {"$ref": "#/$defs/time"},
    "lease": {"$ref": "#/$defs/lease"},
    "setback": {"$ref": "#/$defs/setback"},
    "leases": {"type": "array", "items": {"$ref": "#/$defs/lease"}},
    "code": {"type": "string", "examples": [*CODES]},
    "state": {"enum": [*get_args(LeaseState)]},
    "ended": {"enum": ["released", "revoked"]},
    "progress": {"enum": [x.value for x in Progress]},
    "places": {"type": "object", "additionalProperties": {"enum": ["record", "file", "both"]}},
    "level": {"enum": ["error", "warning", "note"]},
    "totals": {"type": "object", "additionalProperties": {"type": "integer"}},
    "pool_runs": {"type": "array", "items": {"$ref": "#/$defs/pool_run"}},
    "section": {"enum": [x.value for x in Section]},
    "schema": {"const": 1},
    "any": {},
    "health": {"enum": ["good", "warning", "bad", "unknown"]},
    "law": {"enum": ["one_winner", "overlap", "tokens", "lapse", "fence"]},
    "proven": {"enum": ["proven", "disproven", "not_enforced"]},
    "rights": {"type": "array", "items": {"enum": ["read", "write", "board", "link"]}},
}
ANSWERS = {"Lease": "a lease", "tuple[Lease, ...]": "leases", "None": "nothing"}


def synopsis(verb: str) -> str:
    """A verb as it is typed, with its own options, and those of its command alone."""
    known, app = find_verb(verb).at(COMMAND), application()
    runs = find_verb(verb).runs
    typed = [verb, *(usage(one) for x, one in known.items() if not (runs and x == "command"))]
    if MODULES.get(verb):
        command = app.get_command(click.Context(app), verb)
        assert command is not None
        others = {*known, *(x.name for x in shared_options(session=True))}
        typed += [own_usage(x) for x in command.params if x.name not in others]
    words = " ".join([*typed, *["-- CMD…"] * runs]).replace("|", r"\|")
    optional = [x for x in known.values() if x.positional and not x.required]
    for outer, inner in pairwise(map(usage, optional)):  # KEY [VALUE]
        words = words.replace(f"{outer} {inner}", f"{outer[:-1]} {inner}]")
    return words


def own_usage(param: click.Parameter) -> str:
    """An option of the command line alone as it is typed."""
    choices = "|".join(map(str, getattr(param.type, "choices", ())))
    value = "" if getattr(param, "is_flag", False) else param.metavar or choices
    if value.startswith("[="):  # may be left out
        return f"[{param.opts[0]}[={choices}]]"
    return f"[{param.opts[0]}{' ' * bool(value)}{value}]"


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
        # A command that is no verb of the table stands as the page has it.
        rows[typed] = f"| `{synopsis(two)}` | {does}" if two in TABLE else row
    known = [row.removeprefix("| ") for row in rows.values()]
    for verb in TABLE:
        # Verbs of two words may share a row, whose words are the page's own.
        begins = f"`{verb}" if " " in verb else f"`{synopsis(verb)}"
        if not any(begins in row if " " in verb else row.startswith(begins) for row in known):
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


def ci(page: str) -> str:
    """The rules of the check."""
    for heading, rules in (
        ("| rule | level | finds that |", [x for x in RULES if x not in STALE_RULES]),
        ("| rule of `--stale` | level | finds that |", STALE_RULES),
    ):
        rows = [f"| `{x.id}` | {x.level.value} | {x.meaning} |" for x in rules]
        page = with_rows(page, heading, rows)
    return page


def gateway(page: str) -> str:
    """The fields of every request."""
    rows = [
        f"| `{x.method} {x.path}` | {', '.join(f'`{name}`' for name in x.fields) or '-'} |"
        for x in ROUTES
    ]
    return with_rows(page, "| request | fields |", rows)


def answers(page: str) -> str:
    """The shapes of documents; what the schema says besides of each stays."""
    schema = json.loads(page)
    for name, fields in SHAPES.items():
        words = [word.partition(":") for word in fields.split()]
        schema["$defs"][name] |= {
            "properties": {field.rstrip("?"): kind_of(field, kind) for field, _, kind in words},
            "required": [field.rstrip("?") for field, _, kind in words if kind[-1:] != "~"],
        }
    return laid_out(schema) + "\n"


def kind_of(field: str, kind: str) -> dict[str, Any]:
    """The schema of a field of a shape."""
    shape = KINDS[kind.rstrip("?~")]
    if not f"{field}{kind}".endswith("?"):
        return shape
    if "enum" in shape:
        return {"enum": [*shape["enum"], None]}
    if "type" in shape:
        return shape | {"type": [shape["type"], "null"]}
    return {"anyOf": [shape, {"type": "null"}]}


def laid_out(value: Any, indent: str = "") -> str:
    """JSON with what is short on one line."""
    line = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict | list) or len(indent + line) <= WIDTH:
        return line
    inner = indent + "  "
    if isinstance(value, list):
        parts = [laid_out(x, inner) for x in value]
    else:
        parts = [f"{json.dumps(x)}: {laid_out(y, inner)}" for x, y in value.items()]
    start, end = "[]" if isinstance(value, list) else "{}"
    return f"{start}\n{inner}" + f",\n{inner}".join(parts) + f"\n{indent}{end}"


MADE: dict[Path, Callable[[str], str]] = {
    PAGES["commands"]: commands,
    PAGES["library"]: library,
    PAGES["ci"]: ci,
    PAGES["gateway"]: gateway,
    DOCS / "answers.schema.json": answers,
}


@pytest.mark.parametrize("file", MADE, ids=lambda file: file.name)
def test_what_a_page_says_of_the_table_is_current(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert MADE[file](text) == text, how_to_record("pages")
