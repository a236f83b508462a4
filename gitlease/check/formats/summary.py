"""A check as the summary of a job, in Markdown.

In untrusted text every character with a meaning in Markdown or HTML is escaped.
"""

from __future__ import annotations

from gitlease.check.formats.report import Report, one_line, worst_first
from gitlease.core.finding import Finding, Level

# GitHub drops the whole of what is larger than 1 MiB, and each character may need six.
SHOWN = 40  # findings
LONGEST = 500  # characters of one text

_ESCAPES = {ord(c): f"&#{ord(c)};" for c in "\\`*_{}[]<>()|~#@&\"':$!"}
_SIGNS = {Level.ERROR: "**error**", Level.WARNING: "warning"}


def render(report: Report) -> str:
    """The summary; beyond ``SHOWN`` findings are only counted."""
    found = worst_first(report.findings)
    shown, left = found[:SHOWN], len(found[SHOWN:])
    says_more = found or report.fixed or report.unread
    title = "## gitlease: " + (report.result if says_more else "every claim is kept")
    lines = [title, "", f"Checked: {_plain(report.checked)}.", ""]
    if shown:
        rows = [_row(report, one) for one in shown]
        lines += ["| | claim | what | where |", "| --- | --- | --- | --- |", *rows, ""]
        lines += ["<details><summary>Evidence, and what to do</summary>", ""]
        lines += [*map(_detail, shown), "", "</details>", ""]
    if left:
        lines += [f"{left} more are not shown here: `gitlease check --format text` lists them.", ""]
    return "\n".join([*lines, *_ending(report)])


def failure(message: str, hints: tuple[str, ...] = ()) -> str:
    """The summary if nothing could be checked."""
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
    short = text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
    return one_line(short).translate(_ESCAPES)
