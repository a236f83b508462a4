"""``claim --one``: the first of several that is free, one's own leases not among them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from faces.fake import Desk, make_desks
from support.snapshots import check_words
from support.tasks import task
from support.typed import is_typed_back

import gitlease
from gitlease.core import Progress
from gitlease.testing import MemoryLedger

pytestmark = pytest.mark.default
PORTS = ("port-1", "port-2", "port-3")
