"""``check`` as a command: its formats, and its questions before it releases anything."""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from typing import Any

import click
from click import Option

from gitlease import __version__
from gitlease.check import rules
from gitlease.check.commits import read_context
from gitlease.check.rules import LIMITS, CheckResult
from gitlease.cli import output
from gitlease.cli.app import command, result_of
from gitlease.cli.call import Call
from gitlease.kernel.rules.errors import GitleaseError, Invalid, UsageError
from gitlease.kernel.rules.frozen import replace
from gitlease.verbs import wire
from gitlease.verbs.table import DeclaredVerb, Result, Violations, Whole

FORMATS = ("text", "json", "github", "junit", "sarif")
NEXT = "  next: "


def _check(
    declared: DeclaredVerb,
    call: Call,
    *,
    yes: bool,
    form: str | None,
    fail_on: str,
    target: str | None,
    **given: Any,
) -> int:
    fix = given["fix"]
    if yes and not fix:
        raise UsageError("--yes needs --fix")
    if call.json and form not in (None, "json") and target is None:
        raise UsageError(f"--json cannot be combined with --format {form} without --output")
    # Then a refusal comes in JSON, too.
    call.json = call.json or (form == "json" and target is None)
    # Nobody answers behind a pipe: a release without a question is what --yes is for.
    asks = fix and not yes and given["stale"]
    if asks and (call.json or not (sys.stdin.isatty() and sys.stdout.isatty())):
        raise UsageError(
            "--fix asks before each release: without a terminal it needs --yes",
            hints=(call.typed("check", stale=True, fix=True, yes=True),),
        )
    call.sure, ci = yes, read_context()
    # A workflow shows annotations without having asked for them.
    usual = "json" if call.json else "github" if ci.provider == "github" else "text"
    console = usual if target is not None else form or usual
    try:
        result = result_of(declared, call, given)
    except GitleaseError as error:
        if console == "github":
            # A job that could not be checked must not look like one without findings.
            sys.stdout.write(rules.github_failure(error.message, error.hints))
            _append(ci.summary, rules.summary_failure(error.message, error.hints))
        raise
    report: CheckResult = result.value
    text = f"{report.checked}: {report.outcome}"
    if report.fails(fail_on):
        result = replace(result, failure=Violations(text), summed_up=True)
    elif report.unread or report.undone:
        # What could not be checked has not passed, whatever the level to fail on.
        failure = Invalid(text, hints=(*report.unread, *report.undone))
        result = replace(result, failure=failure, summed_up=True)
    if target is not None:
        _write(
            os.path.join(call.directory, target), _rendered(call, result, form or usual, fail_on)
        )
    if console == "text":
        lines = rules.as_text(report).splitlines()
        show = [Whole(line) if line.startswith(NEXT) else line for line in lines]
        return call.respond(replace(result, lines=lambda: show))
    if console == "github":
        _append(ci.summary, rules.as_summary(report))
        result = replace(result, warnings=[rules.tame(x) for x in report.warnings])
    if console != "json":
        sys.stdout.write(_rendered(call, result, console, fail_on))
    return call.respond(result)


def _rendered(call: Call, result: Result, form: str, fail_on: str) -> str:
    report: CheckResult = result.value
    if form == "github":
        return rules.as_github(report)
    if form == "junit":
        return rules.as_junit(report, fail_on=fail_on)
    if form == "sarif":
        return rules.as_sarif(report, version=__version__)
    if form == "text":
        return rules.as_text(report)
    body, warnings = dict(result.body), list(report.warnings)
    if result.failure is None:
        document = wire.success(call.command or "", body=body, warnings=warnings)
    else:
        body |= {"warnings": warnings} if warnings else {}
        document = wire.failure(call.command, result.failure, now=call.now(), body=body)
    return json.dumps(document) + "\n"


def _write(path: str, content: str) -> None:
    try:
        with open(path, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(content)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None


def _append(path: str, content: str) -> None:
    if not path:
        return
    try:
        with open(path, "a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(content)
    except OSError as error:
        output.warn([f"the summary could not be written: {error.strerror}"])


check_command = partial(
    command,
    "check",
    _check,
    Option(["--yes"], is_flag=True, help="With --fix: release them all without a question."),
    Option(
        ["--format", "form"],
        type=click.Choice(FORMATS),
        help="The output format (default: text; in GitHub Actions, github).",
    ),
    Option(
        ["--fail-on"],
        type=click.Choice(tuple(LIMITS)),
        default="error",
        help="The lowest level that exits with 1 (default: error).",
    ),
    Option(["--output", "target"], metavar="FILE", help="Write the format to FILE."),
)
