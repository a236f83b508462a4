"""Fixtures for all tests, inside fences: no user settings come in, nothing gets out into HOME."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import settings
from support import collecting, snapshots, tiers
from support.clock import ManualClock
from support.fences import Fences, raise_fences
from support.remotes import KINDS, Remote, Servers, open_remote
from support.repos import make_clone

if TYPE_CHECKING:
    from doors.fake import Desk

FENCES = raise_fences()
collecting.keep_rewritten()
gc.set_threshold(50_000, 20, 20)  # looking for circles that often would be a tenth of the run
# In CI the same examples every time: what fails there is what was changed. None has a deadline.
settings.register_profile("here", derandomize=bool(os.environ.get("CI")), deadline=None)
settings.load_profile("here")
REMOTE_FIXTURES = ("remote", "http_remote", "ssh_remote", "path_remote")


def pytest_addoption(parser: pytest.Parser) -> None:
    """An option that has snapshots written anew."""
    parser.addoption("--record", action="store_true", help="write the snapshots of these tests")


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers of these tests."""
    tiers.describe(config)


@pytest.hookimpl(optionalhook=True)  # a run with "-p no:xdist" knows no such hook
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Five workers on two cores: tests wait for git, servers and terminals half of their time."""
    return len(os.sched_getaffinity(0)) * 5 // 2


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Pass over files in which nothing runs now."""
    return collecting.is_in_vain(collection_path, config) or None


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Let the workers begin at different files."""
    report = yield
    if isinstance(collector, pytest.Directory):
        collecting.begin_elsewhere(report)
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Each test runs by default, with the slow ones or at night, as its nearest mark says."""
    collecting.in_order(items)
    tiers.sort_out(items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Hold what a test says to its snapshot."""
    yield from snapshots.compare(item)


def pytest_sessionfinish() -> None:
    """Write the snapshots that were asked for."""
    snapshots.write_all()


@pytest.fixture(scope="session", autouse=True)
def fences() -> Iterator[Fences]:
    """The fences; at the end of the session they name whatever was written outside."""
    yield FENCES
    violations = FENCES.violations()
    FENCES.remove()
    if violations:
        pytest.fail("the tests wrote where they must not: " + ", ".join(violations))


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """The http server and sshd of this session; each starts with the first test that needs it."""
    with Servers(tmp_path_factory.mktemp("servers")) as started:
        yield started


@pytest.fixture(params=KINDS, ids=KINDS)
def remote(request: pytest.FixtureRequest, tmp_path: Path, servers: Servers) -> Iterator[Remote]:
    """A fresh remote, once for each of the four kinds."""
    with open_remote(request.param, tmp_path / "remote", servers=servers) as opened:
        yield opened


def _remote_of(kind: str) -> Callable[..., Iterator[Remote]]:
    """A fixture: a fresh remote of one kind."""

    @pytest.fixture(name=f"{kind}_remote")
    def opened(tmp_path: Path, servers: Servers) -> Iterator[Remote]:
        with open_remote(kind, tmp_path / f"{kind}-remote", servers=servers) as made:
            yield made

    return opened


path_remote, http_remote, ssh_remote = map(_remote_of, ("path", "http", "ssh"))


@pytest.fixture
def clones(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., list[Path]]:
    """`clones(n)` clones the remote the test asked for (`clones(n, remote)`: that one).

    The clones belong to w1@example.com, w2@example.com and so on, over all calls of a test.
    """
    made: list[Path] = []

    def make(n: int, remote: Remote | None = None) -> list[Path]:
        if remote is None:
            asked = [name for name in REMOTE_FIXTURES if name in request.fixturenames]
            remote = cast(Remote, request.getfixturevalue(asked[0] if asked else "path_remote"))
        new: list[Path] = []
        for _ in range(n):
            number = len(made) + 1
            path = tmp_path / "clones" / f"w{number}"
            made.append(make_clone(remote, path, f"w{number}@example.com", f"Worker {number}"))
            new.append(path)
        return new

    return make


@pytest.fixture
def manual_clock() -> ManualClock:
    """A clock which moves only when it is told to."""
    return ManualClock()


@pytest.fixture
def ada(desks: tuple[Desk, Desk]) -> Desk:
    return desks[0]


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of 200 columns."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "xterm")
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
