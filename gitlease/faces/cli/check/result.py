"""Prints the result of ``check`` in any format, and in the summary of a CI job."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from gitlease.check.formats import github, text
from gitlease.check.formats.report import Report
from gitlease.core.errors import GitleaseError, Invalid, UsageError
from gitlease.faces import wire
from gitlease.faces.cli import output, refusals
from gitlease.faces.codes import Violations, exit_of

if TYPE_CHECKING:
    from gitlease.faces.cli.call import Call


class CheckOutput:
    """One report in any format.

    ``body`` has further keys of the JSON. ``undone`` lists failed fixes, which make the check fail
    at any level.
    """

    def __init__(
        self,
        call: Call,
        report: Report,
        body: dict[str, Any],
        *,
        fail_on: str,
        undone: tuple[str, ...] = (),
    ) -> None:
        self._call, self._report, self._fail_on = call, report, fail_on
        said = f"{report.checked}: {report.result}"
        self._error: GitleaseError | None = None
        if report.fails(fail_on):
            self._error = Violations(said)
        elif report.unread or undone:
            self._error = Invalid(said, hints=(*report.unread, *undone))
        self._body = {
            "violations": [wire.violation(one) for one in report.findings],
            "range": report.shown or None,
            "commits": report.commits,
            "stale": report.stale,
            "unread": list(report.unread),
        } | body

    def print(self, form: str, *, summary: str) -> int | None:
        """Print the result and return the exit status. ``summary`` is the job's summary file."""
        report = self._report
        if form == "json":
            return self._document()
        if form == "github":
            from gitlease.check.formats.summary import render

            _append(summary, render(report))
        if form == "text":
            for one in self.rendered(form).splitlines():
                (output.whole if one.startswith("  next: ") else output.line)(one)
        else:
            sys.stdout.write(self.rendered(form))
        output.warn([github.tame(x) if form == "github" else x for x in report.warnings])
        return None if self._error is None else exit_of(self._error.code)

    def rendered(self, form: str) -> str:
        """Return the result as the text of a file."""
        report = self._report
        if form == "json":
            return json.dumps(self._json()) + "\n"
        if form == "github":
            return github.render(report)
        if form == "junit":
            from gitlease.check.formats import junit

            return junit.render(report, fail_on=self._fail_on)
        if form == "sarif":
            from gitlease import __version__
            from gitlease.check.formats import sarif

            return sarif.render(report, version=__version__)
        return text.render(report)

    def _json(self) -> wire.Document:
        call, warnings = self._call, list(self._report.warnings)
        if self._error is None:
            return wire.success(call.command or "", body=self._body, warnings=warnings)
        body = self._body | ({"warnings": warnings} if warnings else {})
        return wire.failure(call.command, self._error, now=call.now(), body=body)

    def _document(self) -> int | None:
        warnings = self._report.warnings
        if self._error is None:
            self._call.answer(self._body, warnings=warnings, show=lambda: None)
            return None
        self._error.warnings = warnings
        return refusals.tell(self._call, self._error, body=self._body)


def write(path: str, content: str) -> None:
    try:
        with open(path, "w", encoding="utf-8", errors="backslashreplace") as opened:
            opened.write(content)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None


def fail_github(place: str, error: GitleaseError) -> None:
    """Report a check that could not run in GitHub's annotations and summary."""
    from gitlease.check.formats import summary

    sys.stdout.write(github.failure(error.message, error.hints))
    _append(place, summary.failure(error.message, error.hints))


def _append(path: str, content: str) -> None:
    if not path:
        return
    try:
        with open(path, "a", encoding="utf-8", errors="backslashreplace") as opened:
            opened.write(content)
    except OSError as error:
        output.warn([f"the summary could not be written: {error.strerror}"])
