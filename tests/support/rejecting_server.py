"""A receiving git that takes the objects of a push and rejects its refs, in the words of a host.

Called as ``rejecting_server.py FOLDER REPOSITORY``. The folder has ``status``, what is said of each
ref, and ``printed``, lines beside it; ``pushes`` counts. It says so of the first ``times`` pushes,
and hands later ones to git.
"""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Words:
    """What a host says, for the pushes of some clones."""

    folder: Path

    @property
    def pushes(self) -> int:
        counted = self.folder / "pushes"
        return len(counted.read_text()) if counted.exists() else 0


def rejects(
    clone: Path,
    folder: Path,
    status: str,
    *printed: str,
    times: int = 1_000,
    applies: bool = False,
) -> Words:
    """Have the remote of a clone reject its pushes with these words.

    ``applies``: the server does what it says that it does not do.
    """
    from support.repos import git  # the server itself has nothing of the tests

    folder.mkdir(exist_ok=True)
    (folder / "status").write_text(status)
    (folder / "printed").write_text("".join(f"{line}\n" for line in printed))
    (folder / "times").write_text(str(times))
    (folder / "applies").write_text("yes" if applies else "")
    (folder / "pushes").write_text("")
    program = shlex.join([sys.executable, "-I", __file__, str(folder)])
    git(clone, "config", "remote.origin.receivepack", program)
    return Words(folder)


def main(folder: str, bare: str) -> None:
    place = Path(folder)
    with (place / "pushes").open("a") as counted:
        counted.write(".")
    if len((place / "pushes").read_text()) > int((place / "times").read_text()):
        os.execvp("git", ["git", "receive-pack", bare])
    serve(place, bare)


def serve(place: Path, bare: str) -> None:
    import subprocess

    quiet: Any = {"capture_output": True, "check": True}

    def packet(data: bytes) -> bytes:
        return b"%04x" % (len(data) + 4) + data

    def send(data: bytes) -> None:
        sys.stdout.buffer.write(data)

    words = ["git", "-C", bare, "for-each-ref", "--format=%(objectname) %(refname)"]
    rows = subprocess.run(words, capture_output=True, check=True).stdout.splitlines()
    can = b"\0report-status side-band-64k atomic ofs-delta delete-refs"
    for row in rows or [b"0" * 40 + b" capabilities^{}"]:
        send(packet(row + can + b"\n"))
    send(b"0000")
    sys.stdout.flush()
    moves, read = [], sys.stdin.buffer
    while size := int(read.read(4) or b"0", 16):
        moves.append(read.read(size - 4).partition(b"\0")[0].split())
    if not moves:
        return
    pack = read.read()
    if (place / "applies").read_text():
        run = ["git", "-C", bare]
        subprocess.run([*run, "index-pack", "--stdin", "--fix-thin"], input=pack, **quiet)
        for _, new, ref in moves:
            subprocess.run([*run, "update-ref", ref, new], **quiet)
    for line in (place / "printed").read_bytes().splitlines():
        send(packet(b"\2" + line + b"\n"))
    report = packet(b"unpack ok\n")
    for _, _, ref in moves:
        report += packet(b"ng " + ref + b" " + (place / "status").read_bytes() + b"\n")
    send(packet(b"\1" + report + b"0000") + b"0000")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
