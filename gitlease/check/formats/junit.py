"""A check as JUnit's XML, which most CI systems can show: one test case for each finding."""

from __future__ import annotations

from xml.etree.ElementTree import Element, SubElement, indent, tostring

from gitlease.check.formats.report import LIMITS, Report, details, one_line, worst_first
from gitlease.core.finding import Finding


def render(report: Report, *, fail_on: str) -> str:
    """The document. A finding below the level to fail on is a case that passes."""
    limit = LIMITS[fail_on]
    found = worst_first(report.findings)
    failing = [x for x in found if limit is not None and x.level.rank >= limit.rank]
    unread = report.unread
    tests = str(max(len(found) + len(unread), 1))
    counts = {"tests": tests, "failures": str(len(failing)), "errors": str(len(unread))}
    root = Element("testsuites", {"name": "gitlease", **counts})
    suite = SubElement(root, "testsuite", {"name": "gitlease check", **counts, "skipped": "0"})
    for one in found:
        case = SubElement(suite, "testcase", _case(report, one))
        text = "\n".join((one_line(one.message), *details(one)))
        if one in failing:
            about = {"type": one.rule.id, "message": one_line(one.message)}
            SubElement(case, "failure", about).text = text
        else:
            SubElement(case, "system-out").text = f"{one.level.value}: {text}"
    for text in unread:
        about = {"classname": "gitlease.check", "name": "what could not be checked"}
        case = SubElement(suite, "testcase", {**about, "time": "0"})
        SubElement(case, "error", {"type": "invalid", "message": one_line(text)})
    if not found and not unread:
        about = {"classname": "gitlease.check", "name": one_line(report.checked)}
        SubElement(suite, "testcase", {**about, "time": "0"})
    if report.warnings:
        said = "\n".join(f"warning: {one_line(text)}" for text in report.warnings)
        SubElement(suite, "system-err").text = said
    indent(root)
    body = tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'


def _case(report: Report, found: Finding) -> dict[str, str]:
    words = [found.resource or "", (found.commit or "")[:10]]
    name = " ".join(one_line(word) for word in words if word) or found.rule.id
    about = {"classname": f"gitlease.{found.rule.id}", "name": name, "time": "0"}
    if place := report.place(found):
        about["file"] = one_line(place)
        if found.line is not None:
            about["line"] = str(found.line)
    return about
