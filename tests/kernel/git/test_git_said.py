"""What a server says beside its answer: however much it is, and whatever it was told unasked."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.commands import run_program
from support.hooked import script
from support.ledgers import door
from support.remotes import Remote
from support.repos import git

from gitlease.kernel.git.run import SAID, GitResult, run_git
from gitlease.kernel.store import transport

Clones = Callable[..., list[Path]]
MOST = 100 * 1024  # kilobytes of memory that any process may take, while 20 MB are said
# Says how much memory what it starts takes at most, beside its own output.
MEASURED = (
    "import resource, subprocess, sys\n"
    "done = subprocess.run(sys.argv[1:])\n"
    "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n"
    "sys.exit(done.returncode)\n"
)


@pytest.mark.parametrize("line", ["a line of a flood", ""])
def test_of_very_much_the_beginning_and_the_end_are_kept(line: str, tmp_path: Path) -> None:
    flood = f"yes '{line}'" if line else "tr '\\0' x </dev/zero"
    shell = f"!echo first >&2; {flood} | head -c 20000000 >&2; echo >&2; echo last >&2; exit 7"
    heard: list[int] = []
    done = run_git(
        ["-c", f"alias.flood={shell}", "flood"],
        cwd=str(tmp_path),
        timeout=60,
        on_err=lambda data: heard.append(len(data)),
    )
    assert done.code == 7
    assert len(done.err) < 4 * SAID
    assert done.err.startswith("first\n")
    assert done.err.endswith("\nlast\n")
    assert sum(heard) > 20_000_000
    if line:
        assert len({one for one in done.err.splitlines() if one}) < 5, "lines are kept whole"


def test_what_is_sent_and_fetched_of_ledgers_is_limited_in_memory(
    path_remote: Remote, clones: Clones, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: dict[str, object] = {}

    def limited(words: Sequence[str], **more: Any) -> GitResult:
        limits.update((verb, more["memory"]) for verb in ("push", "fetch") if verb in words)
        return run_git(words, **more)

    monkeypatch.setattr(transport, "run_git", limited)
    one, other = clones(2)
    door(one).claim("F001")
    door(other).list()
    assert limits == {"push": transport.MEMORY, "fetch": transport.MEMORY}


@pytest.mark.slow
@pytest.mark.parametrize("accepts", [True, False])
def test_a_server_that_floods_whoever_pushes_gets_no_memory_and_decides_nothing(
    accepts: bool, path_remote: Remote, clones: Clones
) -> None:
    hook = path_remote.bare / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    end = "" if accepts else "echo not on my watch >&2; exit 1"
    script(hook, f"cat >/dev/null\nyes 'many words' | head -c 20000000 >&2\n{end}\n")
    (clone,) = clones(1)
    words = (sys.executable, "-P", "-m", "gitlease", "claim", "F001", "--any")
    done = run_program([sys.executable, "-c", MEASURED, *words], clone, path_remote.env)
    assert done.returncode == (0 if accepts else 4), done.stderr
    assert len(done.stderr) < 4_000
    assert int(done.stdout.splitlines()[-1]) < MOST


@pytest.mark.parametrize("takes", [False, True])
def test_options_of_pushes_are_of_the_persons_work_alone(
    takes: bool, path_remote: Remote, clones: Clones
) -> None:
    bare = path_remote.bare
    git(bare, "config", "receive.advertisePushOptions", str(takes).lower())
    (bare / "hooks").mkdir(exist_ok=True)
    script(bare / "hooks" / "pre-receive", 'echo "${GIT_PUSH_OPTION_COUNT-0}" >>"$GIT_DIR/told"\n')
    (clone,) = clones(1)
    git(clone, "config", "push.pushOption", "ci.skip")
    git(clone, "config", "--add", "push.pushOption", "merge_request.create")
    done = run_program(
        [sys.executable, "-P", "-m", "gitlease", "claim", "F001", "--any"], clone, path_remote.env
    )
    assert done.returncode == 0, done.stderr
    assert set((bare / "told").read_text().split()) == {"0"}
