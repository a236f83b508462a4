"""How ``check`` tells what it found: in any of its forms, and in the summary of a job."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any, ClassVar

from gitlease.domain.errors import GitleaseError, Invalid, UsageError
from gitlease.faces import wire
from gitlease.faces.ci import github, text
from gitlease.faces.ci.report import Report
from gitlease.faces.cli import output
from gitlease.faces.codes import exit_of

if TYPE_CHECKING:
    from gitlease.bootstrap_check import CheckDesk
    from gitlease.faces.cli.call import Call


class ViolationsFound(GitleaseError):
    """The check found something at or above the level that it fails on."""

    code: ClassVar[str] = "violations"


class Telling:
    """Tells one report in any of the forms.

    ``undone`` is what of the fixes failed on the way: that is no pass, whatever it shall fail on.
    """

    def __init__(
        self,
        call: Call,
        desk: CheckDesk,
        report: Report,
        body: dict[str, Any],
        *,
        fail_on: str,
        undone: tuple[str, ...] = (),
    ) -> None:
        self._call, self._desk, self._fail_on = call, desk, fail_on
        self._undone = undone
        self._report = report
        self._failed = report.fails(fail_on)
        self._error = self._refusal() if self._failed or report.unread or undone else None
        self._body = {
            "violations": [wire.violation(one) for one in report.findings],
            "range": report.shown or None,
            "commits": report.commits,
            "stale": report.stale,
            "unread": list(report.unread),
        } | body

    def tell(self, form: str) -> int | None:
        """Print it, and give the exit status."""
        report = self._report
        if form == "github":
            _summarise(self._desk, report)
        if form == "json":
            return self._document()
        sys.stdout.write(self.rendered(form))
        tame = form == "github"
        output.warn([github.tame(x) if tame else x for x in report.warnings])
        return None if self._error is None else exit_of(self._error.code)

    def rendered(self, form: str) -> str:
        """The whole of it, as a file has it."""
        report = self._report
        if form == "json":
            return json.dumps(self._json()) + "\n"
        if form == "github":
            return github.render(report)
        if form == "junit":
            from gitlease.faces.ci import junit

            return junit.render(report, fail_on=self._fail_on)
        if form == "sarif":
            from gitlease.domain.stale_found import RULES as STALE_RULES
            from gitlease.domain.violations import RULES
            from gitlease.faces.ci import sarif

            return sarif.render(report, (*RULES, *STALE_RULES))
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
        from gitlease.faces.cli import refusals

        self._error.warnings = warnings
        return refusals.tell(self._call, self._error, body=self._body)

    def _refusal(self) -> GitleaseError:
        """What was found; else that not all could be read or fixed, which is no pass."""
        message = f"{self._report.checked}: {self._report.result}"
        if self._failed:
            return ViolationsFound(message)
        return Invalid(message, hints=(*self._report.unread, *self._undone))


def write(path: str, content: str) -> None:
    try:
        with open(path, "w", encoding="utf-8", errors="backslashreplace") as opened:
            opened.write(content)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None


def _summarise(desk: CheckDesk, report: Report) -> None:
    from gitlease.faces.ci import summary

    _append(desk.asked.summary, summary.render(report, limit=summary.LIMIT - _size(desk)))


def fail_github(place: str, error: GitleaseError) -> None:
    """That nothing could be checked, where people look: a step that only failed says little."""
    from gitlease.faces.ci import summary

    sys.stdout.write(github.failure(error.message, error.hints))
    _append(place, summary.failure(error.message, error.hints))


def _size(desk: CheckDesk) -> int:
    """What the summary has already: all of it together must not be too large."""
    try:
        return os.path.getsize(desk.asked.summary)
    except OSError:
        return 0


def _append(path: str, content: str) -> None:
    """Add to the summary. The step goes on without one."""
    if not path:
        return
    try:
        with open(path, "a", encoding="utf-8", errors="backslashreplace") as opened:
            opened.write(content)
    except OSError as error:
        output.warn([f"the summary could not be written: {error.strerror}"])
