"""A check as the summary of a job: Markdown that people like to read.

Whatever others wrote is spelt out letter by letter where Markdown or HTML would make more of it.
"""

from __future__ import annotations

from gitlease.check.formats.report import Report, one_line, worst_first
from gitlease.core.finding import Finding, Level

LIMIT = 1024 * 1024  # bytes of all that one step adds: GitHub drops the whole of what is larger
ROOM = 2_000  # bytes for what stands at the end

_SPELT = {ord(c): f"&#{ord(c)};" for c in "\\`*_{}[]<>()|~#@&\"':$!"}
_SIGNS = {Level.ERROR: "**error**", Level.WARNING: "warning"}


def render(report: Report, *, limit: int = LIMIT) -> str:
    """The summary, of at most so many bytes: what has no room is counted."""
    found = worst_first(report.findings)
    says_more = report.findings or report.fixed or report.unread
    title = "## gitlease: " + (report.result if says_more else "every claim is kept")
    start = [title, "", f"Checked: {_plain(report.checked)}.", ""]
    end = _ending(report)
    room = limit - ROOM - len("\n".join([*start, *end]).encode())
    rows, details, left = [], [], 0
    for number, one in enumerate(found):
        row, detail = _row(report, one), _detail(one)
        room -= len(row.encode()) + len(detail.encode()) + 2
        if room < 0:
            left = len(found) - number
            break
        rows.append(row)
        details.append(detail)
    lines = start
    if rows:
        lines += ["| | claim | what | where |", "| --- | --- | --- | --- |", *rows, ""]
        lines += ["<details><summary>Evidence, and what to do</summary>", "", *details]
        lines += ["", "</details>", ""]
    if left:
        lines += [f"{left} more had no room here: `gitlease check --format text` lists them.", ""]
    return "\n".join([*lines, *end])


def failure(message: str, hints: tuple[str, ...] = ()) -> str:
    """That nothing could be checked."""
    lines = ["## gitlease: not checked", "", f"{_plain(message)}.", ""]
    return "\n".join([*lines, *(f"- {_plain(hint)}" for hint in hints), "", ""])


def _ending(report: Report) -> list[str]:
    lines = []
    if report.fixed:
        lines += ["Fixed:", "", *(f"- {_plain(x.message)}" for x in report.fixed[:50]), ""]
    for sign, texts in (("CAUTION", report.unread), ("NOTE", report.warnings)):
        if texts:
            lines += [f"> [!{sign}]", *(f"> - {_plain(text)}" for text in texts[:50]), ""]
    return [*lines, ""]


def _row(report: Report, found: Finding) -> str:
    at = f":{found.line}" if found.line is not None else ""
    where = f"<code>{_plain(report.place(found))}{at}</code>" if found.file is not None else ""
    claim = f"<code>{_plain(found.resource)}</code>" if found.resource else ""
    sign = f"{_SIGNS[found.level]} {found.rule.id}"
    return f"| {sign} | {claim} | {_plain(found.message)} | {where} |"


def _detail(found: Finding) -> str:
    lines = [f"- {_plain(found.message)}"]
    lines += [f"  - {_plain(text)}" for text in found.evidence]
    lines += [f"  - <code>{_plain(step)}</code>" for step in found.next_steps]
    return "\n".join(lines)


def _plain(text: str) -> str:
    """A text that means nothing to Markdown or HTML."""
    return one_line(text).translate(_SPELT)
