"""The store in memory keeps the contract of every store."""

import pytest
from contract.memory_place import MemoryPlace
from contract.suite import LedgerStoreContract


class TestMemoryStore(LedgerStoreContract):
    @pytest.fixture
    def place(self) -> MemoryPlace:
        return MemoryPlace()
