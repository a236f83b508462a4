"""A receiving git that moves each ref by itself, and compares what it was where it is told to.

Called as ``careless_server.py yes|no CAPABILITY REPOSITORY``: whether it compares, and what it says
that it can do.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def command(compares: bool, capability: str) -> str:
    """Return the words that start it, for ``remote.NAME.receivepack``."""
    return f"{sys.executable} {Path(__file__)} {'yes' if compares else 'no'} {capability}"


def main(compares: str, capability: str, bare: str) -> None:
    def line(data: bytes) -> None:
        sys.stdout.buffer.write(b"%04x" % (len(data) + 4) + data)

    def run(*words: str, **how: Any) -> Any:
        return subprocess.run(["git", "-C", bare, *words], capture_output=True, check=False, **how)

    def end() -> None:
        sys.stdout.buffer.write(b"0000")
        sys.stdout.flush()

    for row in run("for-each-ref", "--format=%(objectname) %(refname)").stdout.splitlines():
        line(row + b"\0report-status " + capability.encode() + b"\n")
    end()
    moves, read = [], sys.stdin.buffer
    while size := int(read.read(4) or b"0", 16):
        moves.append(read.read(size - 4).partition(b"\0")[0].decode().split())
    if not moves:
        return
    time.sleep(0.3)  # others that push now have seen the same
    run("index-pack", "--stdin", "--fix-thin", input=read.read())
    line(b"unpack ok\n")
    for old, new, ref in moves:
        failed = run("update-ref", ref, new, *([old] * (compares == "yes"))).returncode
        line((b"ng %s refused\n" if failed else b"ok %s\n") % ref.encode())
    end()


if __name__ == "__main__":
    main(*sys.argv[1:])
