"""What several stories begin with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.hooked import Pair, copy_pair, make_pair
from support.remotes import Servers
from support.running import Desk, desks_in, short_leases
from support.served import Host, serve


@pytest.fixture(scope="session")
def made_pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return make_pair(tmp_path_factory.mktemp("pair"))


@pytest.fixture
def pair(made_pair: Pair, tmp_path: Path) -> Pair:
    """Two people with hooks, each in a clone, and the remote that they share."""
    return copy_pair(made_pair, tmp_path)


@pytest.fixture
def host(made: Path, tmp_path: Path, servers: Servers) -> Iterator[Host]:
    """The remote that a file made for all its tests, with the hook, for one of them."""
    with serve("path", tmp_path, servers, copy_of=made) as found:
        found.install()
        yield found


@pytest.fixture
def desks(clones: Callable[..., list[Path]]) -> Iterator[tuple[Desk, ...]]:
    """Jo's desk and Kim's, whose ledger allows short leases."""
    made = clones(2)
    short_leases(made[0])
    with desks_in(made) as opened:
        yield opened


@pytest.fixture
def jo(desks: tuple[Desk, ...]) -> Desk:
    return desks[0]


@pytest.fixture
def kim(desks: tuple[Desk, ...]) -> Desk:
    return desks[1]
