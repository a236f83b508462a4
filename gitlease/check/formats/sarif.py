"""A check as SARIF 2.1.0, for code scanning."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any
from urllib.parse import quote

from gitlease.check.formats.report import Report, details, one_line
from gitlease.check.rules import RULES
from gitlease.core.finding import CheckRule, Finding
from gitlease.core.instant import utc_text

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
ROOT = "%SRCROOT%"

Json = dict[str, Any]


def render(report: Report, *, version: str) -> str:
    """The log, with all rules; ASCII only. ``version`` is gitlease's."""
    order = {rule.id: number for number, rule in enumerate(RULES)}
    driver: Json = {
        "name": "gitlease",
        "semanticVersion": version,
        "rules": [_rule(rule) for rule in RULES],
    }
    run: Json = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {ROOT: {"description": {"text": "the root of the repository"}}},
        "invocations": [_invocation(report)],
        "results": [_result(report, found, order[found.rule.id]) for found in report.findings],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _rule(rule: CheckRule) -> Json:
    return {
        "id": rule.id,
        "name": "".join(word.capitalize() for word in rule.id.split("-")),
        "shortDescription": {"text": rule.meaning},
        "fullDescription": {"text": rule.meaning},
        "defaultConfiguration": {"level": rule.level.value},
    }


def _invocation(report: Report) -> Json:
    told = [{"level": "note", "message": {"text": one_line(x)}} for x in report.warnings]
    told += [{"level": "error", "message": {"text": one_line(x)}} for x in report.unread]
    return {"executionSuccessful": not report.unread, "toolExecutionNotifications": told}


def _result(report: Report, found: Finding, number: int) -> Json:
    text = "\n".join((one_line(found.message), *details(found)))
    result: Json = {
        "ruleId": found.rule.id,
        "ruleIndex": number,
        "level": found.level.value,
        "message": {"text": text},
        "partialFingerprints": {"gitlease/v1": _fingerprint(found)},
        "properties": _properties(found),
    }
    if place := report.place(found):
        where = {"uri": _uri(place), "uriBaseId": ROOT}
        region = {"startLine": max(found.line or 1, 1)}
        physical = {"artifactLocation": where, "region": region}
        result["locations"] = [{"physicalLocation": physical}]
    return result


def _properties(found: Finding) -> Json:
    values = {
        "resource": found.resource,
        "scope": found.scope,
        "layer": found.layer,
        "holder": found.holder,
        "since": None if found.since is None else utc_text(found.since),
        "commit": found.commit,
    }
    return {key: one_line(value) for key, value in values.items() if value is not None}


def _fingerprint(found: Finding) -> str:
    # The same for the same finding in every run, whatever its wording and its line.
    parts = (found.rule.id, found.resource, found.scope, found.layer, found.holder, found.commit)
    text = "\0".join(part or "" for part in parts)
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _uri(path: str) -> str:
    # A colon is quoted too: in the first segment it would read as a scheme.
    try:
        name = path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # no name that git ever gave
        name = path.encode("utf-8", "backslashreplace")
    return quote(name, safe="/")
