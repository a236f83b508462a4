"""What a run of all tests looks at first: no file in vain, and no file by all workers at once.

Every worker collects all that any of them may run, which is a tenth of the default run.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from support.tiers import TIERS

# A file that is marked as a whole, in one line or in a list of several.
_WHOLE = re.compile(
    r"^pytestmark = (?:\[[^\]]*)?\bpytest\.mark\.(default|slow|nightly)\b", re.MULTILINE
)


def keep_rewritten() -> None:
    """Keep what pytest makes of each file, though the environment may ask Python to keep nothing.

    To rewrite the assertions of all files takes longer than to import them, in every worker.
    """
    sys.dont_write_bytecode = False


def is_in_vain(path: Path, config: pytest.Config) -> bool:
    """Whether a run of one tier, of no file in particular, has none of its tests in this file."""
    if path.suffix != ".py" or config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return False
    tier = config.option.markexpr
    if tier not in TIERS:
        return False
    text = path.read_text(encoding="utf-8")
    whole = _WHOLE.search(text)
    return whole is not None and whole[1] != tier and f"mark.{tier}" not in text


def begin_elsewhere(report: pytest.CollectReport) -> None:
    """Let each worker begin at another of a folder's files: each then finds rewritten by others
    most of what it comes to.
    """
    number = re.fullmatch(r"gw(\d+)", os.environ.get("PYTEST_XDIST_WORKER", ""))
    if number and report.result:
        count = int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        start = len(report.result) * int(number[1]) // count
        report.result = [*report.result[start:], *report.result[:start]]


def in_order(items: list[pytest.Item]) -> None:
    """Put the tests back in the order of their files, which is the same for all workers."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: item.path.parts)
