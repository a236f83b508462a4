"""The published schemas: of settings, made from their declarations; answers are held to theirs."""

from __future__ import annotations

import inspect
import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema

from gitlease.kernel.rules.errors import MAX_WORD
from gitlease.kernel.rules.instant import LONGEST
from gitlease.kernel.settings.schema import (
    FALSE,
    FIELDS,
    KEYS,
    MAX_COMMIT_PREFIX,
    NEWER,
    TRUE,
    Form,
    Key,
    Reader,
    read_boolean,
    read_commit_prefix,
    read_duration,
    read_email,
    read_http_url,
    read_layer,
    read_ledger_id,
    read_pattern,
    read_ref_prefix,
    read_remote,
    read_text,
)
from gitlease.kernel.settings.text import SCHEMA

PACKAGE = Path(__file__).parents[2] / "gitlease"
DOCS = PACKAGE / "docs"
PAGES = {x.stem: x for x in sorted(PACKAGE.glob("*/*.md"))}
"""The pages of the documentation by topic; that of a part lies in its folder."""
PLAIN = r"[^\x00-\x1f\x7f-\x9f]"  # of what prints
NUMBER, WHOLE = r"[0-9]{1,12}(\.[0-9]{1,6})?", r"[0-9]{1,12}(\.0{1,6})?"
MINUTES = r"[0-9]{1,12}(\.[0-9]([05]0{0,4})?)?"  # that are whole seconds
UNITS = rf"({NUMBER}[wW])?({NUMBER}[dD])?({NUMBER}[hH])?({MINUTES}[mM])?({WHOLE}[sS])?"
WORDS = "|".join(
    "".join(f"[{letter.upper()}{letter}]" for letter in word) for word in sorted(TRUE | FALSE)
)
PART = r"(?!\.)(?:(?!\.\.|@\{)[^\x00-\x20\x7f-\x9f~^:?*\[\\/])+(?<!\.)(?<!\.lock)"
ANY = ["string", "number", "boolean"]
# What a value looks like, by its reader; the sum of a duration is the reader's alone to judge.
SHAPES: dict[Reader[Any], dict[str, Any]] = {
    read_duration: {
        "type": ["string", "integer"],
        "minimum": 1,
        "maximum": LONGEST,
        "pattern": rf"\s*(?=.*[1-9])({WHOLE}|{UNITS})\s*",
    },
    read_boolean: {"type": ["boolean", "string"], "pattern": WORDS},
    read_text: {"type": ANY, "maxLength": MAX_WORD, "pattern": rf"(?=.*\S){PLAIN}+"},
    read_email: {
        "type": ["string"],
        "maxLength": MAX_WORD,
        "pattern": r"[^\s@<>\x00-\x1f\x7f-\x9f]+@[^\s@<>\x00-\x1f\x7f-\x9f]+",
    },
    read_remote: {
        "type": ANY,
        "minimum": 0,
        "pattern": r"(?!-)(?![eE][xX][tT]::)(?=.*\S)[^\x00-\x1f\x7f]+",
    },
    read_http_url: {
        "type": ["string"],
        "pattern": r"https?://[A-Za-z0-9.\[\]:-]+(/[!\"$->@-~]*)?",
    },
    read_layer: {
        "type": ["string", "integer", "boolean"],
        "pattern": r"(?![lL][oO][cC][aA][lL]$)[A-Za-z0-9_-]{1,64}",
    },
    read_ledger_id: {"type": ANY, "minimum": 0, "pattern": r"[0-9A-Za-z-]{1,64}"},
    read_ref_prefix: {
        "type": ["string"],
        "maxLength": 200,
        "pattern": rf"(?!refs/(heads|tags|remotes|notes)$)refs(?:/{PART})+",
    },
    read_commit_prefix: {
        "type": ANY,
        "maxLength": MAX_COMMIT_PREFIX,
        "pattern": rf"(?!\s*#)(?=.*\S){PLAIN}+",
    },
    read_pattern: {
        "type": ANY,
        "maxLength": 512,
        "pattern": rf"(?!!)(?!\.\.(/|$))(?=.*\S){PLAIN}+",
    },
}


def settings_schema() -> dict[str, Any]:
    """The JSON schema of ``.gitlease.yaml``, by the table of settings."""
    number = {"minimum": 1, "maximum": 999_999_999, "pattern": "^([1-9][0-9]{0,8})?$"}
    top: dict[str, Any] = {NEWER: {"type": ["integer", "string", "null"], **number}}
    for key in KEYS.values():
        section, _, name = key.name.rpartition(".")
        inside = top
        if section:
            inside = top.setdefault(section, _mapping({}))["properties"]
        inside[name] = _shape(key)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": ".gitlease.yaml",
        "description": "The settings of gitlease for everyone who works in a repository.",
        **_mapping(top),
        # A file of a newer schema may have keys that are not known here.
        "if": {"properties": {NEWER: {"enum": [SCHEMA, str(SCHEMA), None, ""]}}},
        "then": _known_alone(top),
    }


def _mapping(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": ["object", "string", "null"], "maxLength": 0, "properties": properties}


def _known_alone(properties: dict[str, Any]) -> dict[str, Any]:
    """Of mappings with these properties, and of those in them, that they have no others."""
    inside = {
        name: _known_alone(shape["properties"])
        for name, shape in properties.items()
        if "properties" in shape
    }
    found: dict[str, Any] = {"propertyNames": {"enum": [*properties]}}
    return found | ({"properties": inside} if inside else {})


def _shape(key: Key[Any]) -> dict[str, Any]:
    shape = _unset(_one(key.read))
    if key.form in (Form.LIST, Form.LISTS):
        shape = {"type": ["array", "string", "null"], "maxLength": 0, "items": _one(key.read)}
    if key.form is Form.LISTS:
        shape["minItems"] = 1
    if key.form in (Form.MAP, Form.LISTS):
        inner = shape
        shape = _mapping(dict.fromkeys(key.members, inner))
        if key.members == FIELDS:
            shape["properties"]["id"] = {"anyOf": [inner, {"const": {"file": "stem"}}]}
        if not key.members:
            del shape["properties"]
            shape |= {"propertyNames": _one(key.read), "additionalProperties": inner}
    return shape if key.default is None else shape | {"default": key.show(key.default)}


def _one(read: Reader[Any]) -> dict[str, Any]:
    if options := inspect.getclosurevars(read).nonlocals.get("options"):
        return {"enum": [*options]}
    return SHAPES[read] | {"pattern": f"^({SHAPES[read]['pattern']})$"}


def _unset(one: dict[str, Any]) -> dict[str, Any]:
    """The same of a value that may be left out: null, or an empty text."""
    if "enum" in one:
        return {"enum": [*one["enum"], None, ""]}
    return one | {"type": [*one["type"], "null"], "pattern": f"{one['pattern'][:-2]}|)$"}


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
    """An answer, or a line of one, once it is found to be as the published schema has it."""
    jsonschema.Draft202012Validator(_schema()).validate(document)
    return document
