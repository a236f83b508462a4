"""The suite's asserts are explained like those of any test."""

import pytest

pytest.register_assert_rewrite("contract.suite")
