"""What several stories begin with."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.hooked import Pair, copy_pair, make_pair


@pytest.fixture(scope="session")
def made_pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return make_pair(tmp_path_factory.mktemp("pair"))


@pytest.fixture
def pair(made_pair: Pair, tmp_path: Path) -> Pair:
    """Two people with hooks, each in a clone, and the remote that they share."""
    return copy_pair(made_pair, tmp_path)
