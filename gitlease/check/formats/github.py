"""A check as GitHub's annotations: commands in the output of a step, at most ten of a kind.

Untrusted text must never be taken for a command: GitHub reads one wherever a line begins with two
colons, and the older kind anywhere in a line.
"""

from __future__ import annotations

from gitlease.check.formats.report import Report, details, one_line
from gitlease.core.finding import Finding, Level

SHOWN = 10  # annotations of one kind that GitHub shows of a step
LONGEST = 4_000  # characters of one message


def render(report: Report) -> str:
    """The annotations, and a line with the result."""
    lines: list[str] = []
    for level in (Level.ERROR, Level.WARNING):
        found = report.of(level)
        shown = found if len(found) <= SHOWN else found[: SHOWN - 1]
        lines += [_annotation(report, one) for one in shown]
        if rest := found[len(shown) :]:
            more = f"{len(rest)} more of these are in the summary of the job"
            lines.append(f"::{level.value} title=gitlease::{_data(more)}")
    for text in report.unread:
        lines.append(f"::error title=gitlease check::{_data(one_line(f'not checked: {text}'))}")
    lines.append(tame(f"gitlease check: {report.checked}: {report.result}"))
    return "".join(f"{line}\n" for line in lines)


def failure(message: str, hints: tuple[str, ...] = ()) -> str:
    """The annotation that nothing could be checked."""
    text = "\n".join((f"not checked: {one_line(message)}", *map(one_line, hints)))
    return f"::error title=gitlease check::{_data(text)}\n"


def tame(text: str) -> str:
    """A line that GitHub does not take for a command."""
    text = one_line(text).replace("##[", "## [")
    return f"- {text}" if text.lstrip().startswith("::") else text


def _annotation(report: Report, found: Finding) -> str:
    about = {"file": one_line(report.place(found)), "title": f"gitlease: {found.rule.id}"}
    if found.line is not None and found.file is not None:
        about["line"] = str(found.line)
    order = ("file", "line", "title")
    words = ",".join(f"{key}={_property(about[key])}" for key in order if about.get(key))
    text = "\n".join((one_line(found.message), *details(found)))
    text = text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
    return f"::{found.level.value} {words}::{_data(text)}"


def _data(text: str) -> str:
    text = text.replace("##[", "## [")
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    # A colon or a comma would end the value of a property.
    return _data(text).replace(":", "%3A").replace(",", "%2C")
