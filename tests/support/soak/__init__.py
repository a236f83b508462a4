"""Real commands on real git under real faults, for `tests/soak.py`."""
