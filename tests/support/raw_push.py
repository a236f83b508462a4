"""A client of receive-pack that sends whatever lines it is told: git's own would say what is so."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from support.fences import clean_env

ZERO = "0" * 40
TIMEOUT = 60
FLUSH = b"0000"
PACK, SAID = 1, 2  # bands

Line = tuple[str, str, str]  # what the ref is said to be, what it shall be, and its name


@dataclass(frozen=True)
class Answer:
    """What the server did with each ref (``ok``, or why not), and what it printed."""

    refs: Mapping[str, str]
    said: str


def push_raw(
    server: Path,
    lines: Sequence[Line],
    objects: Path,
    *,
    env: Mapping[str, str] | None = None,
    atomic: bool = False,
) -> Answer:
    """Push these very lines to a bare repository, with all that their ids need.

    The objects come from the repository ``objects``.
    """
    able = b"\0report-status side-band-64k" + (b" atomic" if atomic else b"")
    asked = b""
    for number, (old, new, ref) in enumerate(lines):
        line = f"{old} {new} {ref}".encode() + (b"" if number else able)
        asked += b"%04x" % (len(line) + 4) + line
    asked += FLUSH
    tips = [new for _, new, _ in lines if new != ZERO]
    pack = _pack(objects, tips) if tips else b""
    with subprocess.Popen(
        ["git", "receive-pack", str(server)],
        env=clean_env(env),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for _ in _pkts(process.stdout):
            pass  # what the server has: nothing of it is believed
        try:
            process.stdin.write(asked + pack)
            process.stdin.close()
        except BrokenPipeError:
            pass
        bands = {PACK: b"", SAID: b""}
        for pkt in _pkts(process.stdout):
            bands[pkt[0]] = bands.get(pkt[0], b"") + pkt[1:]
        process.wait(TIMEOUT)
    return Answer(_report(bands[PACK]), bands[SAID].decode("utf-8", "replace"))


def _pack(objects: Path, tips: Sequence[str]) -> bytes:
    return subprocess.run(
        ["git", "pack-objects", "-q", "--revs", "--stdout"],
        cwd=objects,
        env=clean_env(),
        input="".join(f"{tip}\n" for tip in tips).encode(),
        stdout=subprocess.PIPE,
        timeout=TIMEOUT,
        check=True,
    ).stdout


def _pkts(stream: IO[bytes]) -> Iterator[bytes]:
    """The packets up to the next flush."""
    while (size := stream.read(4)) not in (b"", FLUSH):
        yield stream.read(int(size, 16) - 4)


def _report(data: bytes) -> dict[str, str]:
    found = {}
    while data and (size := int(data[:4], 16)):
        word, _, rest = data[4:size].decode("utf-8", "replace").strip().partition(" ")
        ref, _, why = rest.partition(" ")
        if word in ("ok", "ng"):
            found[ref] = why or word
        data = data[size:]
    return found
