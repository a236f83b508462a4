"""An editor that goes by the published schema says of a settings file what its reader says."""

from __future__ import annotations

import re
from typing import Any

import jsonschema
import pytest
import yaml
from support.documents import settings_schema

from gitlease.core import Invalid
from gitlease.settings import parse_settings


class _Core(yaml.SafeLoader):
    """YAML 1.2, as editors read it: ``yes``, ``off`` and ``1:30`` are texts."""


_Core.yaml_implicit_resolvers = {}
for _tag, _form, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+", list("-+0123456789")),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", list("-+.0123456789")),
):
    _Core.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_form})$"), _first)

GOOD = """
lfs: {lock_ttl: 2d, objects: "https://[::1]:8080/team/art.git/info/lfs"} | lfs: {lock_ttl: }
schema: 1 | schema: "1" | schema: 12 | schema: | schema: null | schema: "" | lease: ~ | lease: {}
lease: {ttl: } | lease: {ttl: NULL} | lease: {ttl: ""} | lease: {ttl: 90} | lease: {ttl: "90.0"}
lease: {ttl: 1h30m} | lease: {ttl: 1H30M} | lease: {ttl: 0.05m} | lease: {ttl: " 15m "}
lease: {ttl: 1w2d3h4m5s} | lease: {ttl: 315360000} | lease: {remote: 5, layer: 5}
lease: {remote: true, layer: true} | lease: {remote: "ssh://git@example.com/x.git"}
lease: {layer: Team-1_b} | lease: {ref_prefix: refs/heads/gitlease} | tasks: {files: []}
tasks: {files: ""} | tasks: {files: [tasks/*.md, notes/, 12]} | tasks: {required: tRuE}
tasks: {required: "yes"} | tasks: {required: Off} | tasks: {required: null}
tasks: {fields: } | tasks: {fields: {id: nr, title: null}} | tasks: {fields: {id: {file: stem}}}
tasks: {statuses: {todo: [To Do], done: }} | tasks: {statuses: {todo: [no, 12]}}
people: {jo@example.com: "@jo"} | people: {jo@example.com: } | edges: {commit: ON}
guard: {mode: off} | guard: {mode: ""} | stale: {exempt: true, after: 7d, release: False}
schema: 2, colours: [red] | schema: 2, lease: {colour: red, ttl: 5m}
schema: 2, tasks: {fields: {tint: x}}
"""
BAD = """
schema: 0 | schema: -1 | schema: one | schema: "0" | schema: true | schema: [1] | schema: 1234567890
lease: 5 | lease: [] | lease: {ttl: 0} | lease: {ttl: -5} | lease: {ttl: 1.5} | lease: {ttl: "1.5"}
lease: {ttl: 0.01m} | lease: {ttl: 30m1h} | lease: {ttl: 1h 30m} | lease: {ttl: 1m1m}
lease: {ttl: soon} | lease: {ttl: "  "} | lease: {ttl: true} | lease: {ttl: [5m]}
lease: {ttl: 315360001} | lease: {remote: "-x"} | lease: {remote: -5} | lease: {remote: "ext::sh"}
lease: {remote: "a\\nb"} | lease: {layer: a/b} | lease: {layer: Local} | lease: {layer: 1.5}
lease: {ref_prefix: heads/x} | lease: {ref_prefix: refs/heads} | lease: {ref_prefix: refs/a..b}
lease: {ref_prefix: 5} | tasks: {files: tasks/*.md} | tasks: {files: [null]} | tasks: {files: [""]}
tasks: {files: ["!x"]} | tasks: {files: [../x]} | tasks: {files: [[x]]} | tasks: {required: 1}
tasks: {required: y} | tasks: {fields: {tint: x}} | tasks: {fields: {id: [x]}}
tasks: {fields: {id: {file: name}}} | tasks: {fields: {title: {file: stem}}}
tasks: {statuses: {todo: []}} | tasks: {statuses: {todo: [~]}} | tasks: {statuses: {todo: x}}
people: {"": x} | people: [x] | edges: {commit: 5} | guard: {mode: on} | guard: {mode: Block}
guard: {mode: false} | stale: {exempt: " "} | stale: {exempt: "a\\tb"} | lfs: {lock_ttl: soon}
lfs: {objects: art.git/info/lfs} | lfs: {objects: "https://jo:secret@host/art.git"}
lfs: {objects: "https://host/art?x"} | lfs: {objects: "https://host/a b"}
colours: [red] | lease: {colour: red} | schema: 1, colours: [red]
schema: 2, lease: {ttl: soon} | schema: 2, guard: {mode: on}
"""
# What spans several values, or is a sum: the reader alone says so.
READER_ALONE = """
lease: {ref_prefix: refs/heads/feature}
lease: {ttl: 3651d}
tasks: {fields: {id: x, status: x}}
tasks: {statuses: {todo: [x], done: [x]}}
"""
VALIDATOR = jsonschema.Draft202012Validator(settings_schema())


def files(text: str) -> list[str]:
    """Files of one line each."""
    lines = text.strip().replace("\n", " | ").split(" | ")
    return [f"{{{x}}}" if re.match(r"schema: \d+, ", x) else x for x in lines]


def read(text: str) -> bool:
    """Whether the reader takes a file."""
    try:
        parse_settings(text.encode())
    except Invalid:
        return False
    return True


def shown(text: str) -> bool:
    """Whether an editor finds nothing wrong with it."""
    value: Any = yaml.load(text, _Core)
    return VALIDATOR.is_valid(value)


@pytest.mark.parametrize(
    ("table", "reader", "editor"),
    [(GOOD, True, True), (BAD, False, False), (READER_ALONE, False, True)],
    ids=["good", "bad", "reader alone"],
)
def test_the_reader_and_an_editor_say_the_same(table: str, reader: bool, editor: bool) -> None:
    nothing = ["", "\n", "# nothing\n"] if table is GOOD else []
    for text in (*files(table), *nothing):
        assert (read(text), shown(text)) == (reader, editor), text
