"""What the project says about itself in several places is the same everywhere."""

from __future__ import annotations

import importlib.metadata
import re
import stat
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.fences import clean_env

import gitlease

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
CI = ROOT / ".ci" / "run"
NIGHTLY = ROOT / ".ci" / "nightly"
WORKFLOW = ROOT / ".github" / "workflows" / "ci.yml"
EVERY_NIGHT = WORKFLOW.with_name("nightly.yml")
FENCE = re.compile(r"^```[a-z]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
# Registries by parts, so that this file does not name them either.
REGISTRIES = re.compile(
    r"(?:py" r"pi\.org|python" r"hosted\.org|npm" r"js\.(?:org|com)|crates" r"\.io|index-" r"url)"
)


def project() -> dict[str, Any]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        return tomllib.load(file)


def requirements() -> list[str]:
    """Every requirement of the project: its own, those of its extras, those of its build."""
    table = project()
    found = [*table["project"]["dependencies"], *table["build-system"]["requires"]]
    for extra in table["project"].get("optional-dependencies", {}).values():
        found += extra
    return found


def commands() -> list[str]:
    """The fenced blocks of the README, in order."""
    return [block.strip() for block in FENCE.findall(README.read_text(encoding="utf-8"))]


def project_files() -> Iterator[Path]:
    """The files that belong to the project: those git tracks, and new ones it does not ignore."""
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(words, cwd=ROOT, env=clean_env(), capture_output=True, check=False)
    if listed.returncode:
        pytest.skip("this is not a work tree of git")
    for name in listed.stdout.decode().split("\0")[:-1]:
        if (ROOT / name).is_file():
            yield ROOT / name


def test_the_version_is_one() -> None:
    assert project()["project"]["version"] == gitlease.__version__


def test_console_scripts_lead_to_a_function() -> None:
    scripts = project()["project"]["scripts"]
    assert set(scripts) == {"gitlease", "git-lease"}
    for name, place in scripts.items():
        point = importlib.metadata.EntryPoint(name, place, "console_scripts")
        assert callable(point.load()), place


def test_every_requirement_has_a_lower_bound() -> None:
    for requirement in requirements():
        own = requirement.startswith("gitlease[")
        assert own or re.search(r">=\s*\d", requirement), requirement


def test_the_oldest_python_is_the_same_everywhere() -> None:
    table = project()
    oldest = table["project"]["requires-python"].removeprefix(">=")
    assert table["tool"]["mypy"]["python_version"] == oldest
    assert table["tool"]["ruff"]["target-version"] == "py" + oldest.replace(".", "")
    versions = [
        word.rpartition(" ")[2]
        for word in table["project"]["classifiers"]
        if re.fullmatch(r"Programming Language :: Python :: 3\.\d+", word)
    ]
    assert versions[0] == oldest
    matrix = re.search(r"python: \[(.*)\]", WORKFLOW.read_text(encoding="utf-8"))
    assert matrix is not None
    assert [word.strip(' "') for word in matrix[1].split(",")] == versions


def test_the_license_is_what_the_project_says() -> None:
    table = project()["project"]
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert text.startswith(f"{table['license']} License")
    assert "LICENSE" in table["license-files"]
    assert re.search(rf"\b{table['license']}\b", README.read_text(encoding="utf-8"))


def test_the_readme_opens_with_two_commands_and_the_second_tests() -> None:
    first, second, *_ = commands()
    assert first
    assert "pytest" in second
    assert "pytest" not in first


def test_continuous_integration_runs_the_command_of_the_readme() -> None:
    text = CI.read_text(encoding="utf-8")
    assert commands()[1] in text
    assert CI.stat().st_mode & stat.S_IXUSR
    assert "bash .ci/run" in WORKFLOW.read_text(encoding="utf-8")


def test_slow_and_nightly_tests_run_every_night() -> None:
    text = EVERY_NIGHT.read_text(encoding="utf-8")
    assert "schedule:" in text
    assert "bash .ci/run" in text
    assert "bash .ci/nightly" in text
    assert "pytest -m slow" in CI.read_text(encoding="utf-8")
    assert "pytest -m nightly" in NIGHTLY.read_text(encoding="utf-8")


def test_verbs_in_the_readme_exist() -> None:
    from gitlease.cli.app import MODULES

    blocks = "\n".join(commands())
    named = re.findall(r"^\s*\$? ?(?:gitlease|git lease) ([a-z]+)\b", blocks, re.MULTILINE)
    assert named
    assert not set(named) - set(MODULES)


def test_no_file_names_a_package_registry() -> None:
    found = []
    for file in project_files():
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        lines = enumerate(text.splitlines(), 1)
        found += [f"{file.name}:{number}" for number, line in lines if REGISTRIES.search(line)]
    assert not found


def test_shell_scripts_are_correct_as_far_as_the_shell_can_tell() -> None:
    scripts = [file for file in project_files() if file.read_bytes().startswith(b"#!/bin/sh")]
    for file, shell in [(CI, "bash"), (NIGHTLY, "bash"), *((file, "sh") for file in scripts)]:
        done = subprocess.run([shell, "-n", str(file)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_types_are_shipped() -> None:
    assert (ROOT / "gitlease" / "py.typed").is_file()
    assert "Typing :: Typed" in project()["project"]["classifiers"]


def test_what_the_tests_and_the_code_import_is_required() -> None:
    names = {re.split(r"[\[>=<~! ]", word)[0].lower() for word in requirements()}
    assert {"click", "pygit2", "pyyaml", "rich", "pytest", "hypothesis"} <= names


def test_the_map_says_where_things_are_decided() -> None:
    """Each row of the table in CONTRIBUTING names a file, and what is defined there."""
    text = (ROOT / ".github" / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text.partition("## Where is it decided?")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("|")][2:]
    assert len(rows) >= 10
    for row in rows:
        words = re.findall(r"`([^`]+)`", row.split("|")[2])
        files = [word for word in words if word.endswith(".py")]
        assert files, row
        sources = "\n".join((ROOT / "gitlease" / file).read_text("utf-8") for file in files)
        for name in (part for word in words if word not in files for part in word.split(".")):
            assert re.search(rf"^ *(?:def|class) {name}\b|^{name}\b", sources, re.MULTILINE), row
