"""A landing that is interrupted during its check ends all that the check started in its group."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support.lander import make_landings
from support.remotes import Remote
from support.running import lives, number_in, until

from gitlease.landing import landing

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("deaf", [False, True])
def test_nothing_of_the_check_goes_on(
    path_remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, deaf: bool
) -> None:
    jo = make_landings(path_remote, tmp_path / "at").jo
    jo.begins()
    text, tip, file = jo.file.read_bytes(), jo.git("rev-parse", "topic"), tmp_path / "pid"

    def interrupted(_process: subprocess.Popen[bytes], _seconds: float) -> int | None:
        number_in(file)
        raise KeyboardInterrupt

    monkeypatch.setattr(landing, "_ended", interrupted)
    monkeypatch.setattr(landing, "UNENDING", 0.2 if deaf else 60.0)
    trap = "trap '' TERM; " if deaf else ""
    script = f"{trap}sh -c 'echo $$ > {file}; sleep 1000; exit' & wait"
    with pytest.raises(KeyboardInterrupt):
        jo.land(check=("sh", "-c", script))
    until(lambda: not lives(number_in(file)), "the end of what the check started")
    assert (jo.file.read_bytes(), jo.git("rev-parse", "topic")) == (text, tip)
