"""What a command does not load: what its libraries would bring and it never uses."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gitlease import __version__

LOOK = "import sys; loaded = sys.modules.keys() & {names}; print(*sorted(loaded))"


def _said(*lines: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_the_version_is_said_without_typing() -> None:
    look = LOOK.format(names={"typing", "re", "enum", "click"})
    ask = (
        "import sys; sys.argv = ['gitlease', '--version']; import gitlease.__main__ as m; m.main()"
    )
    assert _said(ask, look) == f"gitlease {__version__}"


def test_no_verb_loads_what_only_the_tools_need() -> None:
    look = LOOK.format(names={"mcp", "pydantic", "starlette", "uvicorn"})
    options = "from gitlease.cli.app import application, MODULES; application()"
    every = "from importlib import import_module as load"
    verbs = "[load(f'gitlease.cli.{module}') for module in MODULES.values() if module]"
    assert _said(options, every, verbs, look) == ""


@pytest.mark.slow
def test_the_server_of_tools_begins_with_little_besides_its_sdk() -> None:
    heavy = {"pygit2", "yaml", "rich", "gitlease.gateway.app"}
    look = "print(*sorted(sys.modules.keys() & {names} - brought))"
    before = "import sys, mcp.server.stdio, mcp.server.lowlevel; brought = {*sys.modules}"
    own = "print(len([x for x in sys.modules if x not in brought]) < 150)"
    assert _said(before, "import gitlease.mcp.stdio", look.format(names=heavy), own) == "True"
