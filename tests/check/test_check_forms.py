"""The forms of a check: text, GitHub's annotations and summary, JUnit, SARIF, and the verb."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest
import yaml
from support.commands import run_gitlease, run_program
from support.fences import clean_env
from support.repos import git, real_clone
from support.snapshots import check_words
from support.terminals import played

from gitlease.check import rules
from gitlease.check.rules import HELD_NOW, NO_TRAILER, RULES, CheckResult
from gitlease.kernel.rules.instant import moment_of
from gitlease.verbs.findings import Finding, Level

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = Path(__file__).with_name("sarif") / "sarif-2.1.0-rtm.5.json"
ACTION = ROOT / ".github" / "actions" / "gitlease-check" / "action.yml"
GOLDEN = Path(__file__).with_name("check_annotations.txt")
NOON = moment_of(1_795_176_000_000)

PLAIN = Finding(
    rule=HELD_NOW,
    level=Level.ERROR,
    message="1a2b3c4d5e by jo@example.com touches src/a.py, which kim@example.com held for F001",
    resource="F001",
    scope="*",
    layer="global",
    holder="kim@example.com",
    since=NOON,
    commit="1a2b3c4d5e" * 4,
    file="tasks/F001.md",
    line=5,
    evidence=("token 1: F001 was kim@example.com's", "made at 2026-11-20T12:01:00Z"),
    next_steps=("gitlease log F001",),
)
LATER = replace(PLAIN, rule=HELD_NOW, level=Level.WARNING, line=None, file="src/a b,c:d%.py")
BARE = Finding(rule=NO_TRAILER, level=Level.ERROR, message="it names no lease")
NASTY = (
    "a%0Ab\r\n::error::x ##[add-mask]y ]]> <b>&amp; | `c` \x1b[31m\x00\ud800\udcff\u202e @jo $m$"
)
HOSTILE = Finding(
    rule=HELD_NOW,
    level=Level.ERROR,
    message=NASTY,
    resource=NASTY,
    scope=NASTY,
    holder=NASTY,
    commit=NASTY,
    file=NASTY,
    line=3,
    evidence=(NASTY,),
    next_steps=(NASTY,),
)
REPORT = CheckResult(
    findings=(LATER, PLAIN, BARE), shown="main..HEAD", commits=3, warnings=("w%1",)
)
CLEAN = CheckResult(shown="main..HEAD", commits=1)
WILD = CheckResult(
    findings=(HOSTILE, PLAIN), shown=NASTY, commits=2, warnings=(NASTY,), fixed=(HOSTILE,)
)


def test_annotations_are_as_github_reads_them() -> None:
    assert rules.as_github(REPORT) == GOLDEN.read_text(encoding="utf-8")


@pytest.mark.nightly
def test_at_most_ten_annotations_of_a_kind_are_shown() -> None:
    some = CheckResult(findings=(*[PLAIN] * 10, *[LATER] * 11), commits=1)
    lines = rules.as_github(some).splitlines()
    assert [sum(x.startswith(f"::{kind} ") for x in lines) for kind in ("error", "warning")] == [
        10,
        10,
    ]
    check_words(lines)


def test_no_text_of_others_becomes_a_command() -> None:
    for line in rules.as_github(WILD).splitlines():
        assert "##[" not in line
        if line.lstrip().startswith("::"):
            assert re.match(r"::(?:error|warning) (?:file|title)=", line)
            assert not set("\x1b\x00\u202e") & set(line)
    assert rules.github_failure("x\n::error::y").count("\n") == 1
    assert rules.tame("::error::x") == "- ::error::x"


@pytest.mark.slow
def test_the_summary_is_markdown_in_which_others_mean_nothing() -> None:
    shown = rules.as_summary(REPORT)
    check_words(shown)
    assert "<code>tasks/F001.md:5</code>" in shown.replace("&#58;", ":").replace("&#95;", "_")
    wild = rules.as_summary(WILD)
    assert "<b>" not in wild
    assert "@jo" not in wild
    assert "`c`" not in wild
    for row in wild.splitlines():
        if row.startswith("| "):
            assert row.count("|") == 5, row
    check_words(rules.as_summary(CLEAN))


def test_junit_is_what_its_readers_expect() -> None:
    root = ElementTree.fromstring(rules.as_junit(REPORT, fail_on="error").encode())
    assert root.tag == "testsuites"
    (suite,) = root
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "2", "0")
    cases = suite.findall("testcase")
    assert [len(case.findall("failure")) for case in cases] == [1, 1, 0]
    assert cases[0].get("classname") == "gitlease.held-now"
    assert cases[0].get("name") == "F001 1a2b3c4d5e"
    (failure,) = cases[0].findall("failure")
    assert failure.get("message") == PLAIN.message
    check_words(failure.text or "")
    for fail_on, count in (("warning", "3"), ("never", "0")):
        again = ElementTree.fromstring(rules.as_junit(REPORT, fail_on=fail_on).encode())
        assert again.get("failures") == count
    clean = ElementTree.fromstring(rules.as_junit(CLEAN, fail_on="error").encode())
    check_words([case.get("name") for case in clean.iter("testcase")])


@pytest.mark.slow
def test_junit_is_well_formed_whatever_stands_in_it() -> None:
    root = ElementTree.fromstring(rules.as_junit(WILD, fail_on="error").encode())
    assert len(list(root.iter("failure"))) == 2
    assert "]]>" in "".join(root.itertext())


@pytest.mark.parametrize("report", [REPORT, CLEAN, WILD, CheckResult(stale=True)])
def test_sarif_passes_its_published_schema(report: CheckResult) -> None:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    checker = jsonschema.Draft4Validator.FORMAT_CHECKER
    told = rules.as_sarif(report, version="1")
    jsonschema.Draft4Validator(schema, format_checker=checker).validate(json.loads(told))
    assert told.isascii()


def test_sarif_tells_rules_places_and_what_stays_the_same() -> None:
    (run,) = json.loads(rules.as_sarif(REPORT, version="1"))["runs"]
    ids = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert ids == [rule.id for rule in RULES]
    later, plain, bare = run["results"]
    assert ids[plain["ruleIndex"]] == plain["ruleId"] == "held-now"
    assert (plain["level"], later["level"]) == ("error", "warning")
    where = plain["locations"][0]["physicalLocation"]
    assert where["artifactLocation"]["uri"] == "tasks/F001.md"
    assert where["region"] == {"startLine": 5}
    uri = later["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri == "src/a%20b%2Cc%3Ad%25.py"
    assert "locations" not in bare
    moved = replace(REPORT, findings=(replace(PLAIN, line=9, message="in other words"),))
    (again,) = json.loads(rules.as_sarif(moved, version="1"))["runs"][0]["results"]
    assert again["partialFingerprints"] == plain["partialFingerprints"]
    assert run["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"] == "w%1"


# --- the verb -------------------------------------------------------------------------------------


class Seat:
    """A clone with a commit that touches what another holds; commands are run in it."""

    def __init__(self, base: Path) -> None:
        self.base, self.bare, self.root = base, base / "remote.git", base / "jo"
        git(base, "init", "-q", "--bare", "-b", "main", str(self.bare))
        for name in ("kim", "jo"):
            real_clone(self.bare, base / name, f"{name}@example.com", name=name)
            if name == "kim":
                for file in ("a.py", "b.py"):
                    (base / name / file).write_text("x\n")
                git(base / name, "add", ".")
                git(base / name, "commit", "-qm", "begin")
                git(base / name, "push", "-q", "origin", "HEAD:main")
        self.run("claim", "path:a.py", "--ttl", "1h", cwd=base / "kim")
        git(self.root, "checkout", "-q", "-b", "topic")
        (self.root / "a.py").write_text("y\n")
        git(self.root, "commit", "-qam", "sneak")
        git(self.root, "config", "--unset", "user.email")

    def run(
        self, *words: str, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        plain = {"GITHUB_ACTIONS": "", "GITLAB_CI": ""}
        return run_gitlease(words, cwd or self.root, {**plain, **(env or {})})


@pytest.fixture(scope="module")
def seat(tmp_path_factory: pytest.TempPathFactory) -> Seat:
    return Seat(tmp_path_factory.mktemp("seat"))


@pytest.mark.slow
def test_its_exit_status_says_what_came_of_it(seat: Seat) -> None:
    found = seat.run("check")
    assert (found.returncode, found.stderr) == (1, "")
    check_words(found.stdout.splitlines()[-1])
    assert seat.run("check", "--fail-on", "never").returncode == 0
    assert seat.run("check", "origin/main..origin/main").returncode == 0
    assert seat.run("check", "nowhere..").returncode == 2
    assert seat.run("check", "..HEAD").returncode == 2
    assert seat.run("check", "--fix").returncode == 2
    assert seat.run("check", "--json", "--format", "sarif").returncode == 2
    unread = seat.run("check", "--remote", str(seat.base / "gone.git"))
    assert (unread.returncode, unread.stdout) == (5, "")
    assert seat.run("check", "--cached").returncode == 1
    assert seat.run("check", cwd=seat.base).returncode == 128


def test_its_json_is_that_of_every_verb(seat: Seat) -> None:
    for words in (("--json",), ("--format", "json")):
        done = seat.run("check", *words)
        document = json.loads(done.stdout)
        assert (done.returncode, document["ok"], document["command"]) == (1, False, "check")
        assert document["error"]["code"] == "violations"
        (violation,) = document["violations"]
        assert (violation["rule"], violation["file"]) == ("held-now", "a.py")
        assert (document["range"], document["commits"]) == ("origin/main..HEAD", 1)
    done = seat.run("check", "--json", "--fail-on", "never")
    document = json.loads(done.stdout)
    assert (done.returncode, document["ok"], len(document["violations"])) == (0, True, 1)


@pytest.mark.nightly
def test_a_file_gets_the_format_and_the_terminal_the_text(seat: Seat, tmp_path: Path) -> None:
    target = tmp_path / "out"
    for form in ("sarif", "junit", "json", "github", "text"):
        done = seat.run("check", "--format", form, "--output", str(target))
        assert done.returncode == 1
        check_words(done.stdout.splitlines()[-1])
        assert "held-now" in target.read_text(encoding="utf-8")
    refused = seat.run("check", "--output", str(tmp_path / "no" / "where"))
    assert refused.returncode == 2


def test_in_github_actions_it_annotates_and_adds_to_the_summary(seat: Seat, tmp_path: Path) -> None:
    shown = tmp_path / "summary.md"
    shown.write_text("what another step said\n")
    env = {
        "GITHUB_ACTIONS": "true",
        "GITHUB_EVENT_NAME": "workflow_dispatch",
        "GITHUB_STEP_SUMMARY": str(shown),
        "GITHUB_WORKSPACE": str(seat.base),
    }
    done = seat.run("check", env=env)
    assert done.returncode == 1
    assert done.stdout.startswith("::error file=jo/a.py,title=gitlease%3A held-now::")
    check_words(shown.read_text().splitlines()[:2])
    assert seat.run("check", "--format", "text", env=env).stdout.startswith("error: ")
    done = seat.run("check", "--remote", str(seat.base / "gone.git"), env=env)
    assert done.returncode == 5
    check_words(done.stdout.replace(str(seat.base), "SEAT"))
    check_words([x for x in shown.read_text().splitlines() if x.startswith("## ")])


@pytest.mark.slow
def test_what_could_not_be_read_is_no_pass_in_any_form() -> None:
    report = CheckResult(commits=1, shown="a..b", unread=("x%1 cannot be read",))
    check_words(rules.as_summary(report))
    check_words(rules.as_text(report))
    check_words(rules.as_github(report))
    assert 'errors="1"' in rules.as_junit(report, fail_on="never")
    (run,) = json.loads(rules.as_sarif(report, version="1"))["runs"]
    assert run["invocations"][0]["executionSuccessful"] is False


# --- the action -----------------------------------------------------------------------------------


def action() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load(ACTION.read_text(encoding="utf-8"))
    return read


def filled(value: str, given: Mapping[str, str]) -> str:
    """What GitHub makes of ``${{ inputs.x }}``."""
    return re.sub(r"\$\{\{ inputs\.([a-z-]+) \}\}", lambda found: given[found[1]], value)


def tools_in(base: Path) -> Path:
    """A folder for PATH: this gitlease, and a python3 that says what it would install."""
    tools = base / "tools"
    tools.mkdir(parents=True)
    program = tools / "gitlease"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m gitlease "$@"\n')
    program.chmod(0o755)
    fake = tools / "python3"
    pip = "#!/bin/sh\\necho pip \\$*\\n"
    fake.write_text(
        '#!/bin/sh\necho "python3 $*"\nmkdir -p "$3/bin"\n'
        f'printf "{pip}" >"$3/bin/pip"\nchmod +x "$3/bin/pip"\n'
    )
    fake.chmod(0o755)
    return tools


def steps(seat: Seat, base: Path, **inputs: str) -> list[subprocess.CompletedProcess[str]]:
    """Run the steps of the action as the runner does: each in a shell of its own."""
    names = {name.replace("_", "-"): value for name, value in inputs.items()}
    given = {name: about.get("default", "") for name, about in action()["inputs"].items()} | names
    tools, files = tools_in(base), base / "files"
    files.mkdir()
    env = {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "GITHUB_ACTIONS": "true",
        "GITHUB_EVENT_NAME": "workflow_dispatch",
        "GITHUB_WORKSPACE": str(seat.root),
        "GITHUB_STEP_SUMMARY": str(files / "summary"),
        "GITHUB_OUTPUT": str(files / "output"),
        "GITHUB_PATH": str(files / "path"),
        "GITHUB_ACTION_PATH": str(ACTION.parent),
        "RUNNER_TEMP": str(base / "temp"),
    }
    done = []
    for step in action()["runs"]["steps"]:
        assert step["shell"] == "bash"
        assert "if" not in step
        assert "${{" not in step["run"], "inputs come in as variables, never as words of a script"
        own = {key: filled(value, given) for key, value in step.get("env", {}).items()}
        script = base / "step.sh"
        script.write_text(step["run"])
        words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)]
        done.append(run_program(words, seat.root, {**env, **own}))
    return done


@pytest.mark.slow
def test_the_actions_steps_run_as_plain_shell(seat: Seat, tmp_path: Path) -> None:
    *_, check = steps(seat, tmp_path / "a", install="false")
    assert check.returncode == 1, check.stderr
    assert check.stdout.startswith("::error file=a.py,title=")
    output = (tmp_path / "a" / "files" / "output").read_text()
    assert output.splitlines() == ["status=1"]
    assert "held-now" in (tmp_path / "a" / "files" / "summary").read_text()
    report = tmp_path / "x.sarif"
    *_, check = steps(seat, tmp_path / "b", install="false", fail_on="never", sarif=str(report))
    assert check.returncode == 0, check.stderr
    assert json.loads(report.read_text())["version"] == "2.1.0"
    *_, check = steps(seat, tmp_path / "c", install="false", range="origin/main..origin/main")
    assert check.returncode == 0, check.stderr
    *_, check = steps(seat, tmp_path / "d", install="false", range="$(touch pwned); x")
    assert check.returncode == 2
    assert not (seat.root / "pwned").exists()
    *_, check = steps(seat, tmp_path / "e", install="false", stale="true")
    assert check.returncode == 0, check.stderr


TASK = "---\nid: S1\ntitle: t\nstatus: todo\nassigned: [gone@example.com]\n---\n"


def stale_seat(base: Path, settings: str) -> Seat:
    """A clone on its main branch, with an edge of last year."""
    seat = Seat(base)
    git(seat.root, "checkout", "-q", "main")
    for name, value in (("email", "jo@example.com"), ("name", "jo")):
        git(seat.root, "config", f"user.{name}", value)
    (seat.root / "tasks").mkdir()
    (seat.root / "tasks/S1.md").write_text(TASK)
    (seat.root / ".gitlease.yaml").write_text(settings)
    git(seat.root, "add", ".")
    then = {"GIT_AUTHOR_DATE": "@1600000000 +0000", "GIT_COMMITTER_DATE": "@1600000000 +0000"}
    git(seat.root, "commit", "-qm", "assign", env=then)
    git(seat.root, "push", "-q", "origin", "main")
    return seat


@pytest.mark.slow
def test_what_the_action_retires_it_pushes_too(tmp_path: Path) -> None:
    seat = stale_seat(tmp_path, "stale: {after: 1d, release: true}\n")
    *_, check = steps(seat, tmp_path / "a", install="false", stale="true", fix="true")
    assert check.returncode == 0, check.stdout + check.stderr
    check_words(re.sub("[0-9a-f]{10}", "HEX", check.stderr.splitlines()[0]))
    shown = git(seat.bare, "show", "main:tasks/S1.md")
    assert "assigned: []" in shown
    # A push that is refused fails the step. (What the ledger retired outranks an older edge of S1.)
    (seat.root / "tasks/S2.md").write_text(TASK.replace("S1", "S2"))
    git(seat.root, "add", ".")
    then = {"GIT_AUTHOR_DATE": "@1600000000 +0000", "GIT_COMMITTER_DATE": "@1600000000 +0000"}
    git(seat.root, "commit", "-qam", "again", env=then)
    git(seat.root, "push", "-q", "origin", "main")
    hook = seat.bare / "hooks/update"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text('#!/bin/sh\ncase "$1" in refs/heads/*) exit 1;; esac\n')
    hook.chmod(0o755)
    *_, check = steps(seat, tmp_path / "b", install="false", stale="true", fix="true")
    assert check.returncode == 1, check.stdout + check.stderr
    check_words(check.stdout)


@pytest.mark.default("words0-8")
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("words", "most"),
    [(("--stale",), 11), (("HEAD~1..HEAD",), 14), (("--stale", "HEAD~1..HEAD"), 20)],
)
def test_only_so_many_git_processes_are_started(
    tmp_path: Path, words: tuple[str, ...], most: int
) -> None:
    seat = stale_seat(tmp_path, "stale: {after: 1d}\n")
    trace = tmp_path / "trace"
    done = seat.run("check", *words, env={"GIT_TRACE2_EVENT": str(trace)})
    assert ("stale-edge" in done.stdout) == ("--stale" in words), done.stderr
    events = map(json.loads, trace.read_text(encoding="utf-8").splitlines())
    # What git starts itself has the ids of all above it in its own.
    started = [x["argv"] for x in events if x["event"] == "start" and "/" not in x["sid"]]
    assert 4 <= len(started) <= most, started


@pytest.mark.slow
def test_a_release_is_asked_about_on_a_terminal_and_needs_yes_elsewhere(tmp_path: Path) -> None:
    seat = stale_seat(tmp_path, "stale: {after: 1d, release: true}\n")
    head = git(seat.root, "rev-parse", "HEAD")
    for words in (("--json",), ()):
        done = seat.run("check", "--stale", "--fix", *words)
        assert done.returncode == 2, done.stdout
        assert "gitlease check --stale --fix --yes" in done.stdout + done.stderr
    assert seat.run("check", "--stale", "--yes").returncode == 2
    for answer, code in (("n", 1), ("y", 0)):
        args = [sys.executable, "-P", "-m", "gitlease", "check", "--stale", "--fix"]
        env = clean_env({"PYTHONPATH": str(ROOT)})
        with played(args, seat.root, env, columns=200) as terminal:
            terminal.type(f"{answer}\n")
            assert terminal.ended() == code
        shown = terminal.written.decode()
        assert "S1 is assigned to gone@example.com, idle for" in shown
        assert "release it? [y/N]" in shown
        assert ("not fixed: you kept it" in shown) == (answer == "n")
        assert (git(seat.root, "rev-parse", "HEAD") == head) == (answer == "n")


def test_a_pull_request_does_not_bring_the_policy_by_which_it_retires(tmp_path: Path) -> None:
    seat = stale_seat(tmp_path, "stale: {after: 1d}\n")
    base = git(seat.root, "rev-parse", "HEAD")
    git(seat.root, "checkout", "-q", "-B", "topic")
    (seat.root / ".gitlease.yaml").write_text("stale: {after: 1d, release: true}\n")
    git(seat.root, "commit", "-qam", "mine now")
    git(seat.root, "push", "-q", "origin", "topic")
    head, event = git(seat.root, "rev-parse", "HEAD"), tmp_path / "event.json"
    ends = {"base": {"ref": "main", "sha": base}, "head": {"ref": "topic", "sha": head}}
    event.write_text(json.dumps({"number": 7, "pull_request": {"number": 7, **ends}}))
    env = {
        "GITHUB_ACTIONS": "true",
        "GITHUB_EVENT_NAME": "pull_request",
        "GITHUB_EVENT_PATH": str(event),
    }
    done = seat.run("check", "--stale", "--fix", "--yes", "--json", env=env)
    document = json.loads(done.stdout)
    assert document["fixed"] == []
    assert git(seat.root, "rev-parse", "HEAD") == head
    assert (
        json.loads(seat.run("check", "--stale", "--fix", "--yes", "--json").stdout)["fixed"] != []
    )
