"""Fixtures for all tests, inside fences: no user settings come in, nothing gets out into HOME."""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest
from hypothesis import settings
from mutants.catalogue import MUTANTS
from support import snapshots
from support.clock import ManualClock
from support.fences import Fences, raise_fences
from support.remotes import KINDS, Remote, Servers, open_remote
from support.repos import make_clone

FENCES = raise_fences()
gc.set_threshold(50_000, 20, 20)  # looking for circles that often would be a tenth of the run
# In CI the same examples every time: what fails there is what was changed. None has a deadline.
settings.register_profile("here", derandomize=bool(os.environ.get("CI")), deadline=None)
settings.load_profile("here")
STORIES = 8  # of so many stories of a file one runs by default: each starts many processes
SPARED = frozenset(x.net for x in MUTANTS)  # what alone catches a fault is never left to the night
REMOTE_FIXTURES = ("remote", "http_remote", "ssh_remote", "path_remote")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options that have all stories run by default, and snapshots written anew."""
    parser.addoption("--every-story", action="store_true", help="run all stories, not some")
    parser.addoption("--record", action="store_true", help="write the snapshots of these tests")


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers of these tests."""
    config.addinivalue_line("markers", "slow: long simulation, soak and race runs")
    config.addinivalue_line("markers", "default: always runs by default, and is never sampled")
    config.addinivalue_line("markers", "one_in(n): of its variants the others are slow")
    config.addinivalue_line("markers", "sampled(n): of the tests here the others are slow")
    config.addinivalue_line(
        "markers", "nightly(n): the larger budget; of the slow variants here, one in n is not"
    )


@pytest.hookimpl(optionalhook=True)  # a run with "-p no:xdist" knows no such hook
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Five workers on two cores: tests wait for git, servers and terminals half of their time."""
    return len(os.sched_getaffinity(0)) * 5 // 2


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of what is marked so each n-th runs by default, the first among them.

    With ``one_in`` that is of the variants of a test, with ``sampled`` of the tests of the file or
    class that has the mark (the nearest one counts: ``sampled(1)`` are all of a test), and so each
    story is one of ``STORIES``; what is slow already does not count. The same ones every time.

    A test marked ``default`` always runs by default and does not count for any sample.

    ``-m slow`` runs two of three of the others, and of what is slow by itself all but the larger
    budgets: of tests marked ``nightly(n)`` one in n, of those marked ``nightly`` none. The rest
    runs with ``-m nightly``, and with ``-m ""`` like everything else. No net of a fault of
    ``mutants`` is left to the night.
    """
    seen: Counter[tuple[str, str]] = Counter()
    stories = 1 if config.getoption("--every-story") else STORIES
    without_nightly = config.option.markexpr and "nightly" not in config.option.markexpr
    nightly: list[pytest.Item] = []

    def is_one_of(group: tuple[str, str], n: int) -> bool:
        seen[group] += 1
        return seen[group] % n == 1 % n

    def left_out(item: pytest.Item) -> None:
        item.add_marker(pytest.mark.slow)
        test = item.nodeid.partition("[")[0]
        if is_one_of((str(item.path), "left out"), 3) and not SPARED & {item.nodeid, test}:
            item.add_marker(pytest.mark.nightly)

    for item in items:
        if item.get_closest_marker("default"):
            continue
        test = (str(item.path), item.name.partition("[")[0])
        marks = [(test, mark) for mark in item.iter_markers("one_in")][:1]
        nearest = [*item.iter_markers_with_node("sampled")][:1]
        for group, mark in (*marks, *(((node.nodeid, ""), mark) for node, mark in nearest)):
            if not item.get_closest_marker("slow") and not is_one_of(group, *mark.args):
                left_out(item)
        is_story = item.path.parent.name == "stories" and not item.get_closest_marker("slow")
        if is_story and not is_one_of((str(item.path), "stories"), stories):
            left_out(item)
        for node, mark in [*item.iter_markers_with_node("nightly")][:1]:
            group = (node.nodeid if node is not item else "::".join(test), "nightly")
            if item.get_closest_marker("slow") and not (mark.args and is_one_of(group, *mark.args)):
                nightly.append(item)
    if without_nightly and nightly:
        config.hook.pytest_deselected(items=nightly)
        dropped = set(nightly)
        items[:] = [item for item in items if item not in dropped]


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
