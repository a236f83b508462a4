"""Every rule of the check with its id, level and meaning; what a check found, and how each format
shows it: text, GitHub's annotations and summary, JUnit, and SARIF."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from typing import Any
from urllib.parse import quote
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from gitlease.kernel.ledger.acts import RetirePlan
from gitlease.kernel.rules.edge import Task
from gitlease.kernel.rules.errors import clean
from gitlease.kernel.rules.frozen import dataclass, field
from gitlease.kernel.rules.instant import moment_of, utc_text
from gitlease.kernel.rules.lease_view import LeaseView
from gitlease.verbs.findings import CheckRule, Finding, Level

Json = dict[str, Any]
ERROR, WARNING = Level.ERROR, Level.WARNING

COMMIT_RULES = (
    HELD_NOW := CheckRule("held-now", ERROR, "a commit touches what another person holds now"),
    UNPROVEN := CheckRule(
        "held-unproven",
        WARNING,
        "a commit touches what its author or committer holds now, and nothing but that address,"
        " which anybody may write, shows that the holder made it",
    ),
    SUPERSEDED := CheckRule(
        "token-superseded",
        ERROR,
        "a commit names a token, and the same was granted to another lease since, whose holder does"
        " not vouch for it",
    ),
    UNKNOWN := CheckRule(
        "token-unknown",
        ERROR,
        "a commit names a token that was never given for that, or to its people",
    ),
    NO_TRAILER := CheckRule(
        "no-trailer", ERROR, "a commit names no lease, and the project requires one"
    ),
    UNREADABLE := CheckRule(
        "trailer-unreadable", WARNING, "a trailer of a commit names no lease that can be read"
    ),
    NO_LEDGER := CheckRule(
        "no-ledger", WARNING, "there is no ledger: nobody has claimed yet, or it was deleted"
    ),
)
STALE_RULES = (
    STALE_EDGE := CheckRule(
        "stale-edge",
        ERROR,
        "a task is assigned to somebody who has no lease of it, and of whom the ledger has seen"
        " nothing for longer than stale.after",
    ),
    LAPSED_LEASE := CheckRule(
        "lapsed-lease", WARNING, "a lease lapsed, and nobody cleaned it up or took it over"
    ),
    LEASE_ON_DONE := CheckRule(
        "lease-on-done", WARNING, "a task is done, and a lease of it is left"
    ),
    LEASE_ON_GONE := CheckRule(
        "lease-on-gone", WARNING, "the file of a task was deleted, and a lease of it is left"
    ),
    LEASE_WITHOUT_EDGE := CheckRule(
        "lease-without-edge",
        WARNING,
        "somebody holds a task that neither the ledger nor any branch known here assigns to them",
    ),
    UNKNOWN_ASSIGNEE := CheckRule(
        "unknown-assignee",
        WARNING,
        "a task is assigned to a name that is nobody's: not in people, no author, no holder",
    ),
    DUPLICATE_ID := CheckRule("duplicate-id", ERROR, "several task files have one id"),
    BAD_TASK_FILE := CheckRule("bad-task-file", ERROR, "a task file cannot be used"),
)
RULES = COMMIT_RULES + STALE_RULES


LIMITS = {"error": Level.ERROR, "warning": Level.WARNING, "never": None}


BY_HAND = "that is for a person to decide"


@dataclass(frozen=True)
class Case:
    """Findings that one release settles: its plan, or why they stay (``""``: they need not)."""

    findings: tuple[Finding, ...]
    stays: str = BY_HAND
    plan: RetirePlan | None = None


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """The result of a check. ``unread`` is what could not be checked: then it has not passed.

    ``stale``: claims were checked as well, and ``_cases`` are what may be done about them. Once
    that was done, ``fixed`` is what it settled, the other ``findings`` say why they stay,
    ``leases`` are those released, and ``commit`` is the last commit of an edge. ``undone`` are the
    failed edits of task files, or their failed commits: the ledger is ahead of them. ``commits`` is
    the number of commits checked, ``shown`` what they are. ``waiting`` are the tasks that wait
    for a person, and why. ``prefix`` is the repository's place in what a host of CI shows.
    """

    findings: tuple[Finding, ...] = ()
    fixed: tuple[Finding, ...] = ()
    unread: tuple[str, ...] = ()
    undone: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    commits: int = 0
    commit: str | None = None
    shown: str = ""
    stale: bool = False
    _cases: tuple[Case, ...] = field(default=(), repr=False, compare=False)
    leases: tuple[LeaseView, ...] = ()
    prefix: str = ""

    @property
    def passed(self) -> bool:
        """Return whether no error was found and everything could be read."""
        return not self.unread and not self.fails("error")

    def of(self, level: Level) -> list[Finding]:
        """The findings of one level."""
        return [x for x in self.findings if x.level is level]

    def fails(self, limit: str) -> bool:
        """Return whether any finding is at or above the level to fail on."""
        level = LIMITS[limit]
        return level is not None and any(x.level.rank >= level.rank for x in self.findings)

    @property
    def of_commits(self) -> bool:
        """Return whether commits were checked, be it none."""
        return bool(self.shown) or not self.stale

    @property
    def checked(self) -> str:
        """The subject of a check: ``3 commits of pull request #7``, ``stale claims``."""
        commits = counted(self.commits, "commit")
        commits += f" of {clean(self.shown)}" if self.shown else ""
        return " and ".join([commits] * self.of_commits + ["stale claims"] * self.stale)

    @property
    def outcome(self) -> str:
        """``2 errors, 1 warning``, or ``nothing found``."""
        counts = [(level, len(self.of(level))) for level in (Level.ERROR, Level.WARNING)]
        words = [counted(number, level.value) for level, number in counts if number]
        words += [f"{len(self.fixed)} fixed"] if self.fixed else []
        words += ["not all could be checked"] if self.unread else []
        return ", ".join(words) or "nothing found"

    def place(self, finding: Finding) -> str:
        """A finding's file as the host knows it, ``""`` if it has none."""
        if finding.file is None:
            return ""
        return f"{self.prefix}/{finding.file}" if self.prefix else finding.file


def counted(number: int, what: str) -> str:
    """``1 commit``, ``2 commits``."""
    return f"{number} {what}" + ("" if number == 1 else "s")


def finding_of(
    rule: CheckRule,
    message: str,
    task: Task | None = None,
    *,
    since: int | None = None,
    **about: Any,
) -> Finding:
    """A finding by a rule, at the edge's line of a task's file; ``since`` in wall-clock ms."""
    place = {} if task is None else {"file": task.file, "line": task.line}
    when = None if since is None else moment_of(since)
    return Finding(
        **{"rule": rule, "message": message, "since": when, "level": rule.level, **place, **about}
    )


def no_ledger(layers: Sequence[str], place: str) -> Finding:
    """The finding that there is no ledger: a fresh clone cannot know whether there ever was one."""
    names = " or ".join(dict.fromkeys(layers))
    return finding_of(
        NO_LEDGER,
        f"there is no ledger {names} on {place}, so nothing could be checked: nobody has claimed"
        " yet, or it was deleted",
    )


# --- formats --------------------------------------------------------------------------------------

ANNOTATIONS = 10  # annotations of one kind that GitHub shows of a step
LONGEST_ANNOTATION = 4_000  # characters of one message
# GitHub drops the whole of what is larger than 1 MiB, and each character may need six.
ROWS = 40  # findings
LONGEST_CELL = 500  # characters of one text
_ESCAPES = {ord(c): f"&#{ord(c)};" for c in "\\`*_{}[]<>()|~#@&\"':$!"}
_SIGNS = {Level.ERROR: "**error**", Level.WARNING: "warning"}
SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
ROOT = "%SRCROOT%"


def worst_first(findings: Sequence[Finding]) -> list[Finding]:
    """The errors before the warnings, else as they were found."""
    return sorted(findings, key=lambda x: -x.level.rank)


def details(finding: Finding) -> list[str]:
    """The evidence and the next steps, a line each."""
    return [one_line(x) for x in (*finding.evidence, *(f"next: {x}" for x in finding.next_steps))]


def one_line(text: str) -> str:
    """A text on one line, without control characters."""
    return clean(text).replace("\n", "\\n").replace("\t", "\\t")


# --- plain text -----------------------------------------------------------------------------------


def as_text(report: CheckResult) -> str:
    """The whole report; its last line has the result."""
    lines = []
    for finding in worst_first(report.findings):
        lines.append(f"{finding.level.value}: {one_line(finding.message)} ({finding.rule.id})")
        if place := report.place(finding):
            at = f":{finding.line}" if finding.line is not None else ""
            lines.append(f"  at {one_line(place)}{at}")
        lines += [f"  {text}" for text in details(finding)]
    lines += [f"fixed: {one_line(x.message)} ({x.rule.id})" for x in report.fixed]
    lines += [f"not checked: {one_line(text)}" for text in report.unread]
    lines += [f"waiting for a person: {one_line(text)}" for text in report.waiting]
    lines.append(f"{report.checked}: {report.outcome}")
    return "".join(f"{line}\n" for line in lines)


# --- GitHub's annotations -------------------------------------------------------------------------

# Commands in the output of a step, at most ten of a kind. Untrusted text must never be taken for
# one: GitHub reads them wherever a line begins with two colons, and the older kind anywhere.


def as_github(report: CheckResult) -> str:
    """The annotations, and a line with the result."""
    lines: list[str] = []
    for level in (Level.ERROR, Level.WARNING):
        findings = report.of(level)
        # One place is kept for how many more there are.
        shown = findings if len(findings) <= ANNOTATIONS else findings[: ANNOTATIONS - 1]
        lines += [_annotation(report, x) for x in shown]
        if rest := findings[len(shown) :]:
            more = f"{len(rest)} more of these are in the summary of the job"
            lines.append(f"::{level.value} title=gitlease::{_data(more)}")
    for text in report.unread:
        lines.append(f"::error title=gitlease check::{_data(one_line(f'not checked: {text}'))}")
    lines.append(tame(f"gitlease check: {report.checked}: {report.outcome}"))
    return "".join(f"{line}\n" for line in lines)


def github_failure(message: str, hints: tuple[str, ...] = ()) -> str:
    """The annotation that nothing could be checked."""
    text = "\n".join((f"not checked: {one_line(message)}", *map(one_line, hints)))
    return f"::error title=gitlease check::{_data(text)}\n"


def tame(text: str) -> str:
    """A line that GitHub does not take for a command."""
    text = one_line(text).replace("##[", "## [")
    return f"- {text}" if text.lstrip().startswith("::") else text


def _annotation(report: CheckResult, finding: Finding) -> str:
    about = {"file": one_line(report.place(finding)), "title": f"gitlease: {finding.rule.id}"}
    if finding.line is not None and finding.file is not None:
        about["line"] = str(finding.line)
    # A colon or a comma would end the value of a property.
    inside = str.maketrans({":": "%3A", ",": "%2C"})
    each = ((key, _data(about.get(key, "")).translate(inside)) for key in ("file", "line", "title"))
    words = ",".join(f"{key}={value}" for key, value in each if value)
    text = "\n".join((one_line(finding.message), *details(finding)))
    text = text if len(text) <= LONGEST_ANNOTATION else text[: LONGEST_ANNOTATION - 1] + "…"
    return f"::{finding.level.value} {words}::{_data(text)}"


def _data(text: str) -> str:
    text = text.replace("##[", "## [")
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


# --- the summary of a job -------------------------------------------------------------------------

# Markdown: every character of untrusted text with a meaning there or in HTML is escaped.


def as_summary(report: CheckResult) -> str:
    """The summary; beyond ``ROWS`` findings are only counted."""
    findings = worst_first(report.findings)
    shown, hidden = findings[:ROWS], len(findings[ROWS:])
    says_more = findings or report.fixed or report.unread
    title = "## gitlease: " + (report.outcome if says_more else "every claim is kept")
    lines = [title, "", f"Checked: {_plain(report.checked)}.", ""]
    if shown:
        rows = [_row(report, x) for x in shown]
        lines += ["| | claim | what | where |", "| --- | --- | --- | --- |", *rows, ""]
        lines += ["<details><summary>Evidence, and what to do</summary>", ""]
        for finding in shown:
            lines.append(f"- {_plain(finding.message)}")
            lines += [f"  - {_plain(text)}" for text in finding.evidence]
            lines += [f"  - <code>{_plain(step)}</code>" for step in finding.next_steps]
        lines += ["", "</details>", ""]
    if hidden:
        lines += [
            f"{hidden} more are not shown here: `gitlease check --format text` lists them.",
            "",
        ]
    if report.fixed:
        lines += ["Fixed:", "", *(f"- {_plain(x.message)}" for x in report.fixed[:50]), ""]
    for sign, texts in (("CAUTION", report.unread), ("NOTE", report.warnings)):
        if texts:
            lines += [f"> [!{sign}]", *(f"> - {_plain(text)}" for text in texts[:50]), ""]
    return "\n".join([*lines, ""])


def summary_failure(message: str, hints: tuple[str, ...] = ()) -> str:
    """The summary if nothing could be checked."""
    lines = ["## gitlease: not checked", "", f"{_plain(message)}.", ""]
    return "\n".join([*lines, *(f"- {_plain(hint)}" for hint in hints), "", ""])


def _row(report: CheckResult, finding: Finding) -> str:
    at = f":{finding.line}" if finding.line is not None else ""
    where = f"<code>{_plain(report.place(finding))}{at}</code>" if finding.file is not None else ""
    claim = f"<code>{_plain(finding.resource)}</code>" if finding.resource else ""
    sign = f"{_SIGNS[finding.level]} {finding.rule.id}"
    return f"| {sign} | {claim} | {_plain(finding.message)} | {where} |"


def _plain(text: str) -> str:
    short = text if len(text) <= LONGEST_CELL else text[: LONGEST_CELL - 1] + "…"
    return one_line(short).translate(_ESCAPES)


# --- JUnit's XML ----------------------------------------------------------------------------------


def as_junit(report: CheckResult, *, fail_on: str) -> str:
    """The document. A finding below the level to fail on is a case that passes."""
    limit = LIMITS[fail_on]
    findings = worst_first(report.findings)
    failing = [x for x in findings if limit is not None and x.level.rank >= limit.rank]
    unread = report.unread
    # Where nothing was found, one case says that there was a check.
    tests = str(max(len(findings) + len(unread), 1))
    counts = {"tests": tests, "failures": str(len(failing)), "errors": str(len(unread))}
    root = Element("testsuites", {"name": "gitlease", **counts})
    suite = SubElement(root, "testsuite", {"name": "gitlease check", **counts, "skipped": "0"})
    for finding in findings:
        case = SubElement(suite, "testcase", _case(report, finding))
        text = "\n".join((one_line(finding.message), *details(finding)))
        if finding in failing:
            about = {"type": finding.rule.id, "message": one_line(finding.message)}
            SubElement(case, "failure", about).text = text
        else:
            SubElement(case, "system-out").text = f"{finding.level.value}: {text}"
    for text in unread:
        about = {"classname": "gitlease.check", "name": "what could not be checked"}
        case = SubElement(suite, "testcase", {**about, "time": "0"})
        SubElement(case, "error", {"type": "invalid", "message": one_line(text)})
    if not findings and not unread:
        about = {"classname": "gitlease.check", "name": one_line(report.checked)}
        SubElement(suite, "testcase", {**about, "time": "0"})
    if report.warnings:
        warnings = "\n".join(f"warning: {one_line(text)}" for text in report.warnings)
        SubElement(suite, "system-err").text = warnings
    indent(root)
    body = tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'


def _case(report: CheckResult, finding: Finding) -> dict[str, str]:
    words = [finding.resource or "", (finding.commit or "")[:10]]
    name = " ".join(one_line(word) for word in words if word) or finding.rule.id
    about = {"classname": f"gitlease.{finding.rule.id}", "name": name, "time": "0"}
    if place := report.place(finding):
        about["file"] = one_line(place)
        if finding.line is not None:
            about["line"] = str(finding.line)
    return about


# --- SARIF ----------------------------------------------------------------------------------------


def as_sarif(report: CheckResult, *, version: str) -> str:
    """The log, with all rules; ASCII only. ``version`` is gitlease's."""
    order = {rule.id: number for number, rule in enumerate(RULES)}
    driver: Json = {
        "name": "gitlease",
        "semanticVersion": version,
        "rules": [
            {
                "id": rule.id,
                "name": "".join(word.capitalize() for word in rule.id.split("-")),
                "shortDescription": {"text": rule.meaning},
                "fullDescription": {"text": rule.meaning},
                "defaultConfiguration": {"level": rule.level.value},
            }
            for rule in RULES
        ],
    }
    notes = [{"level": "note", "message": {"text": one_line(x)}} for x in report.warnings]
    notes += [{"level": "error", "message": {"text": one_line(x)}} for x in report.unread]
    done = {"executionSuccessful": not report.unread, "toolExecutionNotifications": notes}
    run: Json = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {ROOT: {"description": {"text": "the root of the repository"}}},
        "invocations": [done],
        "results": [_result(report, x, order[x.rule.id]) for x in report.findings],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _result(report: CheckResult, finding: Finding, number: int) -> Json:
    text = "\n".join((one_line(finding.message), *details(finding)))
    # The same for the same finding in every run, whatever its wording and its line.
    about = {x: getattr(finding, x) for x in ("resource", "scope", "layer", "holder", "commit")}
    parts = (finding.rule.id, *about.values())
    same = "\0".join(part or "" for part in parts).encode("utf-8", "surrogatepass")
    commit = about.pop("commit")
    about |= {"since": finding.since and utc_text(finding.since), "commit": commit}
    result: Json = {
        "ruleId": finding.rule.id,
        "ruleIndex": number,
        "level": finding.level.value,
        "message": {"text": text},
        "partialFingerprints": {"gitlease/v1": sha256(same).hexdigest()[:32]},
        "properties": {x: one_line(y) for x, y in about.items() if y is not None},
    }
    if place := report.place(finding):
        where = {"uri": _uri(place), "uriBaseId": ROOT}
        region = {"startLine": max(finding.line or 1, 1)}
        physical = {"artifactLocation": where, "region": region}
        result["locations"] = [{"physicalLocation": physical}]
    return result


def _uri(path: str) -> str:
    # A colon is quoted too: in the first segment it would read as a scheme.
    try:
        name = path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        # No name that git ever gave: a ledger may have any text.
        name = path.encode("utf-8", "backslashreplace")
    return quote(name, safe="/")
