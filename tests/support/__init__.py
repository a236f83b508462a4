"""Test support: real remotes, faults, clones, snapshots, a manual clock and the fences."""
