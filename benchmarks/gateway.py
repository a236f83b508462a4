"""What a gateway does: claims a second by many clients, one claim, beside etcd and a bare push.

``python benchmarks/gateway.py``. It needs the test extra and git; etcd (Debian's ``etcd-server``)
is left out where it is not installed.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import http.client
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import cast

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(ROOT))

from support.fences import clean_env  # noqa: E402
from support.gateway import free_port  # noqa: E402
from support.remotes import Remote, Servers, open_remote  # noqa: E402
from support.repos import git, make_clone  # noqa: E402

from gitlease.gateway.opening import open_tokens  # noqa: E402
from gitlease.gateway.tokens import SCOPES  # noqa: E402

CLIENTS = 64
ROUNDS = 40  # of a claim and a bare push in turns
RATE_AIM, TAIL_AIM_MS, CLAIM_AIM_MS = 450, 400, 8.0
Ask = tuple[str, str, str, dict[str, str]]
"""Method, path, body and headers of one request."""


def claims(secrets: Sequence[str], client: int, number: int) -> Ask:
    """A claim of a name of one's own, at a gateway."""
    headers = {"Authorization": f"Bearer {secrets[client]}", "Content-Type": "application/json"}
    return "PUT", f"/v1/leases/w{client}-{number}", "{}", headers


TURN = ("PUT", "PATCH", "GET", "POST", "DELETE")  # of a lease: claim, renew, read, locks, release


def turns(secrets: Sequence[str], client: int, number: int) -> Ask:
    """One request after the other about a few names, so that the ledger does not grow."""
    headers = {"Authorization": f"Bearer {secrets[client]}", "Content-Type": "application/json"}
    name, method = number // len(TURN) % 8, TURN[number % len(TURN)]
    path = "/lfs/locks/verify" if method == "POST" else f"/v1/leases/m{client}-{name}"
    return method, path, "{}" if method in ("PUT", "PATCH", "POST") else "", headers


def creates(client: int, number: int) -> Ask:
    """The creation of a key of one's own, if it is not there, at etcd."""
    key = base64.b64encode(f"w{client}-{number}".encode()).decode()
    value = base64.b64encode(b"x" * 400).decode()
    body = {
        "compare": [{"key": key, "target": "CREATE", "create_revision": "0"}],
        "success": [{"request_put": {"key": key, "value": value}}],
    }
    return "POST", "/v3/kv/txn", json.dumps(body), {"Content-Type": "application/json"}


class Client(asyncio.Protocol):
    """A client that asks again as soon as it is answered, until there is no more to ask.

    All of them share one process and a few Python functions: 0.06 ms of a core a request.
    """

    def __init__(self, ask: Callable[[int], Ask | None], took: list[float]) -> None:
        self._ask, self._took, self._number = ask, took, 0
        self._answer, self._began = b"", 0.0
        self.end = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.end.done():
            self.end.set_exception(exc or ConnectionError("the server has left"))

    def _send(self) -> None:
        asked = self._ask(self._number)
        if asked is None:
            self.end.set_result(None)
            self._transport.close()
            return
        method, path, body, headers = asked
        lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        lines += [f"Content-Length: {len(body)}", "", body]
        self._number, self._began = self._number + 1, time.perf_counter()
        self._transport.write("\r\n".join(lines).encode())

    def data_received(self, data: bytes) -> None:
        self._answer += data
        head, blank, body = self._answer.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
        if not blank or length is None or len(body) < int(length[1]):
            return
        if head[9:10] != b"2":
            raise SystemExit(f"{self._answer[:400]!r}")
        self._answer = b""
        self._took.append(time.perf_counter() - self._began)
        self._send()


def ask_all(
    port: int, asks: Sequence[Callable[[int], Ask | None]]
) -> tuple[list[float], float, float]:
    """Have clients ask at once; the seconds of each request, of all, and of a core they used."""
    took = list[float]()

    async def all_clients() -> None:
        connect, clients = asyncio.get_running_loop().create_connection, list[Client]()
        for ask in asks:
            clients.append((await connect(lambda: Client(ask, took), "127.0.0.1", port))[1])  # noqa: B023
        await asyncio.gather(*(client.end for client in clients))

    began, used = time.perf_counter(), time.process_time()
    asyncio.run(all_clients())
    return sorted(took), time.perf_counter() - began, time.process_time() - used


def crowd(
    name: str,
    port: int,
    ask: Callable[[int, int], Ask],
    seconds: float,
    clients: int,
    server: int,
) -> tuple[float, float]:
    """A row of the table: many clients at once; requests a second, and the ms that 1 % exceed."""
    end, before = time.monotonic() + seconds, spent(server)

    def one(client: int, number: int) -> Ask | None:
        return ask(client, number) if time.monotonic() < end else None

    took, lasted, used = ask_all(port, [partial(one, client) for client in range(clients)])
    rate, after, count = len(took) / lasted, spent(server), len(took)
    middle, tail, worst = (1_000 * x for x in (median(took), took[int(count * 0.99)], took[-1]))
    shares = [1_000 * (y - x) / count for x, y in zip(before[:2], after[:2], strict=True)]
    cells = [f"{rate:>10.0f}", *(f"{x:>10.1f}" for x in (middle, tail, worst))]
    cells += [f"{x:>10.2f}" for x in (*shares, 1_000 * used / count)]
    print(f"{name:<24}{''.join(cells)}{before[2]:>8.0f}{after[2]:>8.0f}", flush=True)
    return rate, tail


@contextlib.contextmanager
def process(
    words: Sequence[str], port: int, cwd: Path, root: Path, env: Mapping[str, str] = {}
) -> Iterator[int]:
    """A server that listens at a port, until the block ends; the id of its process."""
    env = clean_env({**env, "PYTHONPATH": str(root)})
    server = subprocess.Popen(
        words, cwd=cwd, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        end = time.monotonic() + 60
        while True:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            with contextlib.closing(connection), contextlib.suppress(OSError):
                connection.request("GET", "/health")
                connection.getresponse().read()
                break
            if server.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"{words[0]} did not start")
            time.sleep(0.05)
        yield server.pid
    finally:
        server.terminate()
        server.wait()


def spent(server: int) -> tuple[float, float, float]:
    """The seconds of a core that a process used, those of the gits that it ran, and its MiB."""
    times = Path(f"/proc/{server}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    pages = Path(f"/proc/{server}/statm").read_text(encoding="ascii").split()[1]
    own, gits = (sum(map(int, x)) / os.sysconf("SC_CLK_TCK") for x in (times[11:13], times[13:15]))
    return own, gits, int(pages) * os.sysconf("SC_PAGE_SIZE") / 2**20


def alone(
    port: int, ask: Callable[[int, int], Ask], remote: Remote, clone: Path, rounds: int
) -> tuple[list[float], list[float]]:
    """One claim and one bare push of a commit in turns; the milliseconds of each."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=90)
    claimed, pushed = list[float](), list[float]()
    for number in range(rounds):
        method, path, body, headers = ask(0, number)
        start = time.monotonic()
        connection.request(method, path, body, headers)
        connection.getresponse().read()
        claimed.append((time.monotonic() - start) * 1_000)
        made = git(clone, "commit-tree", "-m", str(number), "HEAD^{tree}")
        words = ["git", "push", "-q", "-f", "origin", f"{made}:refs/benchmark/bare"]
        start = time.monotonic()
        subprocess.run(words, cwd=clone, env=clean_env(remote.env), check=True)
        pushed.append((time.monotonic() - start) * 1_000)
    connection.close()
    return claimed, pushed


def memory(
    server: int, port: int, ask: Callable[[int, int], Ask], requests: int, clients: int
) -> None:
    """Print a gateway's MiB after each tenth of so many requests of all clients."""
    share = requests // 10 // clients
    print(f"\n{'requests':>10}{'MiB':>8}{'a second':>10}")
    for begun in range(0, 10 * share, share):

        def some(client: int, number: int, first: int = begun) -> Ask | None:
            return ask(client, first + number) if number < share else None

        took, lasted, _ = ask_all(port, [partial(some, client) for client in range(clients)])
        done, rate = (begun + share) * clients, len(took) / lasted
        print(f"{done:>10}{spent(server)[2]:>8.0f}{rate:>10.0f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--transport", choices=("path", "http"), default="path")
    parser.add_argument("--requests", type=int, help="and how memory grows over so many")
    parser.add_argument("--before", type=Path, help="a checkout to compare with, in turns")
    asked = parser.parse_args()
    roots = {"gateway": ROOT} if asked.before is None else {"before": asked.before, "after": ROOT}
    with (
        tempfile.TemporaryDirectory() as folder,
        Servers(Path(folder, "servers")) as servers,
    ):
        heads = "".join(f"{x:>10}" for x in ("a second", "median", "p99", "worst"))
        heads += "".join(f"{x:>10}" for x in ("server", "its gits", "clients"))
        print("ms of a request, of a core a request, and MiB of the server before and after")
        print(f"{asked.clients} clients".ljust(24) + heads + "    from      to")
        for name, root in roots.items():
            with open_remote(asked.transport, Path(folder, name), servers=servers) as remote:
                measured(asked, name, root, remote, Path(folder, name))
        if shutil.which("etcd"):
            port = free_port()
            own, peers = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{free_port()}"
            words = ["etcd", "--data-dir", str(Path(folder, "etcd")), "--log-level", "error"]
            words += ["--listen-client-urls", own, "--advertise-client-urls", own]
            words += ["--listen-peer-urls", peers]
            with process(words, port, Path(folder), ROOT) as server:
                crowd("etcd", port, creates, asked.seconds, asked.clients, server)
        else:
            print("etcd is left out: it is not installed (etcd-server)", file=sys.stderr)


def measured(
    asked: argparse.Namespace, name: str, root: Path, remote: Remote, folder: Path
) -> None:
    """Measure the gateway of a checkout, and print its rows."""
    clone = make_clone(remote, folder / "clone", "gate@example.com", "Gate")
    tokens = open_tokens(str(clone))
    secrets = [
        tokens.add(f"w{n}@example.com", name=f"w-{n}", scopes=SCOPES, expires=None, now=1)[1]
        for n in range(asked.clients)
    ]
    port, ask = free_port(), partial(claims, secrets)
    words = [sys.executable, "-m", "gitlease", "serve", "--port", str(port)]
    with process(words, port, clone, root, remote.env) as server:
        claimed, pushed = alone(port, partial(_later, ask), remote, clone, ROUNDS)
        rate, tail = crowd(name, port, ask, asked.seconds, asked.clients, server)
        one, bare = median(claimed), median(pushed)
        print(f"one claim {one:.1f} ms ({min(claimed):.1f} at best)", end="; ")
        print(f"a bare push {bare:.1f} ms ({min(pushed):.1f} at best): {one - bare:+.1f} ms")
        met = "met" if rate >= RATE_AIM and tail <= TAIL_AIM_MS else "MISSED"
        print(f"aim: {RATE_AIM} claims a second, 99 % within {TAIL_AIM_MS} ms: {met}")
        met = "met" if one <= bare + CLAIM_AIM_MS else "MISSED"
        print(f"aim: one claim at most a bare push + {CLAIM_AIM_MS:g} ms: {met}")
        if asked.requests is not None:
            memory(server, port, partial(turns, secrets), asked.requests, asked.clients)


def _later(ask: Callable[[int, int], Ask], client: int, number: int) -> Ask:
    return ask(client, number + 1_000_000)


if __name__ == "__main__":
    main()
