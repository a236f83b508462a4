"""The published schemas: of settings, made from their table, and of answers, which are held to it.

``python tests/support/documents.py`` writes the schema of settings anew.
"""

from __future__ import annotations

import inspect
import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema

from gitlease.settings.parse import SCHEMA
from gitlease.settings.schema import KEYS, Form, Key, read_boolean, read_duration

DOCS = Path(__file__).parents[2] / "gitlease/docs"
DURATION = {"type": ["string", "integer"], "pattern": "^([0-9]+(\\.[0-9]+)?\\s*[a-zA-Z]*\\s*)+$"}
WORDS = "[Tt]rue|[Ff]alse|[Yy]es|[Nn]o|[Oo]n|[Oo]ff"
BOOLEAN = {"type": ["boolean", "string", "null"], "pattern": f"^({WORDS})$"}


def settings_schema() -> dict[str, Any]:
    """The JSON schema of ``.gitlease.yaml``, by the table of settings."""
    top: dict[str, Any] = {"schema": {"enum": [SCHEMA, str(SCHEMA), None]}}
    for key in KEYS.values():
        section, _, name = key.name.rpartition(".")
        inside = top
        if section:
            whole = {"type": ["object", "null"], "properties": {}, "additionalProperties": False}
            inside = top.setdefault(section, whole)["properties"]
        inside[name] = _shape(key)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": ".gitlease.yaml",
        "description": "The settings of gitlease for everyone who works in a repository.",
        "type": ["object", "null"],
        "properties": top,
        "additionalProperties": False,
    }


def _shape(key: Key) -> dict[str, Any]:
    one: dict[str, Any] = {"type": ["string", "number", "boolean", "null"]}
    if key.read is read_duration:
        one = DURATION
    elif key.read is read_boolean:
        one = BOOLEAN
    elif options := inspect.getclosurevars(key.read).nonlocals.get("options"):
        one = {"enum": [*options]}
    many: dict[str, Any] = {"type": ["array", "null"], "items": one}
    shape = many if key.form is Form.LIST else one
    if key.form in (Form.MAP, Form.LISTS):
        inner = one if key.form is Form.MAP else many
        members: dict[str, Any] = {
            "properties": dict.fromkeys(key.members, inner),
            "additionalProperties": False,
        }
        shape = {"type": ["object", "null"]}
        shape |= members if key.members else {"additionalProperties": inner}
    return shape if key.default is None else shape | {"default": key.show(key.default)}


def written(schema: dict[str, Any]) -> str:
    """A schema as its file has it."""
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


@cache
def _schema() -> dict[str, Any]:
    text = (DOCS / "answers.schema.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    for shape in schema["$defs"].values():
        if "properties" in shape:  # nothing is told that is not published
            shape["additionalProperties"] = False
    return schema


def held_to_schema(document: dict[str, Any]) -> dict[str, Any]:
    """An answer, once it is found to be as the published schema has it."""
    jsonschema.Draft202012Validator(_schema()).validate(document)
    return document


def watched(line: dict[str, Any]) -> dict[str, Any]:
    """A line of ``watch --json``, held to the schema as well."""
    shapes = _schema()["$defs"]
    schema = {**shapes["watched"], "$defs": shapes}
    jsonschema.Draft202012Validator(schema).validate(line)
    return line


if __name__ == "__main__":
    (DOCS / "settings.schema.json").write_text(written(settings_schema()), encoding="utf-8")
