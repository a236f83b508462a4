"""What a gateway does: claims a second by many clients, one claim, beside etcd and a bare push.

``python benchmarks/gateway.py``. It needs the test extra and git; etcd (Debian's ``etcd-server``)
is left out where it is not installed.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import http.client
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(ROOT))

from support.fences import clean_env  # noqa: E402
from support.gateway import free_port  # noqa: E402
from support.remotes import Remote, Servers, open_remote  # noqa: E402
from support.repos import git, make_clone  # noqa: E402

from gitlease.gateway import SCOPES  # noqa: E402
from gitlease.wiring import open_tokens  # noqa: E402

CLIENTS, PROCESSES = 64, 4
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


def one_client(
    port: int,
    ask: Callable[[int, int], Ask],
    seconds: float,
    client: int,
    *,
    first: int = 0,
    most: float = math.inf,
) -> list[float]:
    """Ask again and again for a time, or so often; the seconds that each took."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=90)
    took, began = list[float](), time.monotonic()
    while len(took) < most and (start := time.monotonic()) - began < seconds:
        method, path, body, headers = ask(client, first + len(took))
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        said = answer.read()
        if answer.status >= 300:
            raise SystemExit(f"{path}: {answer.status} {said[:300]!r}")
        took.append(time.monotonic() - start)
    connection.close()
    return took


def some_clients(
    port: int, ask: Callable[[int, int], Ask], seconds: float, clients: Sequence[int]
) -> list[float]:
    with ThreadPoolExecutor(len(clients)) as pool:
        every = pool.map(partial(one_client, port, ask, seconds), clients)
        return [x for some in every for x in some]


def crowd(
    name: str, port: int, ask: Callable[[int, int], Ask], seconds: float, clients: int
) -> tuple[float, float]:
    """A row of the table: many clients at once; requests a second, and the ms that 1 % exceed."""
    shares = [range(n, clients, PROCESSES) for n in range(min(PROCESSES, clients))]
    began = time.monotonic()
    with ProcessPoolExecutor(len(shares)) as pool:
        took = sorted(
            x for some in pool.map(partial(some_clients, port, ask, seconds), shares) for x in some
        )
    rate = len(took) / (time.monotonic() - began)
    tail = took[int(len(took) * 0.99)] * 1_000
    middle, worst = median(took) * 1_000, took[-1] * 1_000
    print(f"{name:<34}{rate:>10.0f}{middle:>10.1f}{tail:>10.1f}{worst:>10.1f}", flush=True)
    return rate, tail


@contextlib.contextmanager
def process(words: Sequence[str], port: int, cwd: Path) -> Iterator[int]:
    """A server that listens at a port, until the block ends; the id of its process."""
    env = clean_env({"PYTHONPATH": str(ROOT)})
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


def spent(server: int) -> tuple[float, float]:
    """The seconds of a core that a process used, with the gits that it ran, and its MiB."""
    times = Path(f"/proc/{server}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    pages = Path(f"/proc/{server}/statm").read_text(encoding="ascii").split()[1]
    used = sum(map(int, times[11:15])) / os.sysconf("SC_CLK_TCK")
    return used, int(pages) * os.sysconf("SC_PAGE_SIZE") / 2**20


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

    def some(client: int) -> None:
        one_client(port, ask, 3_600, client, first=begun, most=share)

    print(f"{'requests':>10}{'MiB':>8}{'a second':>10}")
    for begun in range(0, 10 * share, share):
        start = time.monotonic()
        with ThreadPoolExecutor(clients) as pool:
            list(pool.map(some, range(clients)))
        done, rate = (begun + share) * clients, share * clients / (time.monotonic() - start)
        print(f"{done:>10}{spent(server)[1]:>8.0f}{rate:>10.0f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--requests", type=int, help="how memory grows over so many, alone")
    asked = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        Servers(Path(folder, "servers")) as servers,
        open_remote("path", Path(folder), servers=servers) as remote,
    ):
        clone = make_clone(remote, Path(folder, "clone"), "gate@example.com", "Gate")
        tokens = open_tokens(str(clone))
        secrets = [
            tokens.add(f"w{n}@example.com", name=f"w-{n}", scopes=SCOPES, expires=None, now=1)[1]
            for n in range(asked.clients)
        ]
        port = free_port()
        words = [sys.executable, "-m", "gitlease", "serve", "--port", str(port)]
        if asked.requests is not None:
            with process(words, port, clone) as server:
                memory(server, port, partial(turns, secrets), asked.requests, asked.clients)
            return
        print(f"{'':<34}{'a second':>10}{'median':>10}{'p99':>10}{'worst':>10}   (ms)")
        with process(words, port, clone) as server:
            ask = partial(claims, secrets)
            one_client(port, ask, 0.5, 0)
            claimed, pushed = alone(port, partial(_later, ask), remote, clone, ROUNDS)
            name, before = f"gateway, {asked.clients} clients", spent(server)
            rate, tail = crowd(name, port, partial(_latest, ask), asked.seconds, asked.clients)
            used, size = spent(server)
        if shutil.which("etcd"):
            port = free_port()
            own, peers = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{free_port()}"
            words = ["etcd", "--data-dir", str(Path(folder, "etcd")), "--log-level", "error"]
            words += ["--listen-client-urls", own, "--advertise-client-urls", own]
            words += ["--listen-peer-urls", peers]
            with process(words, port, Path(folder)):
                crowd(f"etcd, {asked.clients} clients", port, creates, asked.seconds, asked.clients)
        else:
            print("etcd is left out: it is not installed (etcd-server)", file=sys.stderr)
        one, bare = median(claimed), median(pushed)
        print(f"\none claim {one:.1f} ms ({min(claimed):.1f} at best)", end="; ")
        print(f"a bare push {bare:.1f} ms ({min(pushed):.1f} at best): {one - bare:+.1f} ms")
        cost = (used - before[0]) / (rate * asked.seconds) * 1_000
        print(f"the gateway and its gits used {cost:.1f} ms of a core a claim", end="; ")
        print(f"it has {size:.0f} MiB after them, and had {before[1]:.0f}")
        met = "met" if rate >= RATE_AIM and tail <= TAIL_AIM_MS else "MISSED"
        print(f"aim: {RATE_AIM} claims a second, 99 % within {TAIL_AIM_MS} ms: {met}")
        met = "met" if one <= bare + CLAIM_AIM_MS else "MISSED"
        print(f"aim: one claim at most a bare push + {CLAIM_AIM_MS:g} ms: {met}")


def _later(ask: Callable[[int, int], Ask], client: int, number: int) -> Ask:
    return ask(client, number + 1_000_000)


def _latest(ask: Callable[[int, int], Ask], client: int, number: int) -> Ask:
    return ask(client, number + 2_000_000)


if __name__ == "__main__":
    main()
