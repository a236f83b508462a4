"""The environment of commands in work trees of their own."""

from __future__ import annotations

import os
import subprocess

from gitlease.kernel.git.run import LOCAL_VARIABLES, local_variables_cleared


def test_local_variables_are_those_that_git_lists() -> None:
    listed = subprocess.run(
        ["git", "rev-parse", "--local-env-vars"], capture_output=True, text=True, check=True
    ).stdout.split()
    assert set(listed) - {"GIT_CONFIG_PARAMETERS", "GIT_CONFIG_COUNT"} <= LOCAL_VARIABLES


def test_settings_stay_but_those_that_name_a_tree() -> None:
    given = {
        "GIT_DIR": "/x/.git",
        "GIT_CONFIG_PARAMETERS": r"'core.worktree'='/a b' 'a.b'='it'\''s = x' 'CORE.bare=1' 'c.d'",
        "GIT_CONFIG_COUNT": "3",
        **{"GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"},
        **{"GIT_CONFIG_KEY_1": "core.bare", "GIT_CONFIG_VALUE_1": "true"},
        **{"GIT_CONFIG_KEY_2": "http.extraheader", "GIT_CONFIG_VALUE_2": "secret"},
        "PATH": os.environ["PATH"],
    }
    env = local_variables_cleared(given)
    assert "GIT_DIR" not in env
    listed = subprocess.run(
        ["git", "config", "--list"], env=env, cwd="/", capture_output=True, text=True, check=True
    ).stdout.splitlines()
    wanted = ["a.b=it's = x", "c.d", "http.extraheader=secret", "safe.directory=*"]
    assert sorted(x for x in listed if x in wanted) == wanted
    assert not any(x.startswith("core.") for x in listed)
