"""The rules of leases: frozen values and pure functions. No I/O, no clock, no environment."""
