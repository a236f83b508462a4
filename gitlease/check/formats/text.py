"""A check in plain text: each finding with its place, its evidence, and what to type."""

from __future__ import annotations

from gitlease.check.formats.report import Report, details, one_line, worst_first
from gitlease.core.finding import Finding


def render(report: Report) -> str:
    """The whole report; its last line has the result."""
    lines = [line for found in worst_first(report.findings) for line in _finding(report, found)]
    lines += [f"fixed: {one_line(found.message)} ({found.rule.id})" for found in report.fixed]
    lines += [f"not checked: {one_line(text)}" for text in report.unread]
    lines.append(f"{report.checked}: {report.result}")
    return "".join(f"{line}\n" for line in lines)


def _finding(report: Report, found: Finding) -> list[str]:
    lines = [f"{found.level.value}: {one_line(found.message)} ({found.rule.id})"]
    if place := report.place(found):
        at = f":{found.line}" if found.line is not None else ""
        lines.append(f"  at {one_line(place)}{at}")
    return [*lines, *(f"  {text}" for text in details(found))]
