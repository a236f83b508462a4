"""Faults on the way between a git client and its server.

TCP faults, for a `FaultProxy` in front of the http server or sshd:

- `cut_after`: reset both sides once so many bytes went in one direction.
- `swallow_down`: the server gets everything, the client gets nothing more.
- `stall`: forward nothing more in one direction, keep the link open until `disarm` or `release`.

HTTP faults, for `Remote.arm` of an http remote (see `http_server`):

- `answer`: answer with a status instead of asking git.
- `delay`: hold the request back for a while.
- `duplicate`: apply the push, then drop the kept-alive connection: curl sends the push again.
- `lose_answer`: apply the push, then drop a connection curl does not repeat requests on.
- `replay`: apply the same push twice and give the second answer.
"""

from __future__ import annotations

import contextlib
import fcntl
import select
import socket
import struct
import termios
import threading
import time
from dataclasses import dataclass, field
from typing import Literal

Direction = Literal["up", "down"]
Service = Literal["upload-pack", "receive-pack"]
Stage = Literal["advertise", "request"]

_CHUNK = 65536
_BACKLOG = 4 * _CHUNK
_DRAIN_SECONDS = 2.0


@dataclass(eq=False)
class Fault:
    """What TCP and HTTP faults share: how often it may fire (None: always) and how often it did."""

    times: int | None = None
    fired: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _ended: threading.Event = field(default_factory=threading.Event, repr=False)

    def fire(self) -> bool:
        """Use the fault once; False when it is used up or was disarmed."""
        with self._lock:
            if self._ended.is_set() or (self.times is not None and self.fired >= self.times):
                return False
            self.fired += 1
            return True

    def end(self) -> None:
        """The fault fires no more, and whoever it holds up goes on."""
        self._ended.set()

    def wait(self, seconds: float) -> None:
        """Wait until the fault is ended, at most so long."""
        self._ended.wait(seconds)


@dataclass(eq=False)
class TcpFault(Fault):
    """A fault of the proxy; made by `cut_after`, `swallow_down` and `stall`."""

    kind: Literal["cut", "swallow", "stall"] = "cut"
    direction: Direction = "up"
    after: int = 0
    since: bytes | None = None
    quiet: float | None = None


@dataclass(eq=False)
class HttpFault(Fault):
    """A fault of the http server; made by `answer`, `delay`, `duplicate` and the like."""

    kind: Literal["answer", "delay", "duplicate", "lose", "replay"] = "answer"
    status: int = 500
    seconds: float = 0.0
    stage: Stage | None = None
    service: Service | None = None
    retry_after: str = ""

    def concerns(self, stage: Stage, service: Service) -> bool:
        """Whether the fault is meant for such a request."""
        return self.stage in (None, stage) and self.service in (None, service)


def cut_after(
    direction: Direction, bytes: int, *, since: bytes | None = None, times: int | None = None
) -> TcpFault:
    """Reset both sides once `bytes` bytes went in `direction` (0: when the first one arrives).

    With `since` (plain http only) the count starts where these bytes first pass upwards.
    """
    return TcpFault(times, kind="cut", direction=direction, after=bytes, since=since)


def swallow_down(
    after: int = 0,
    *,
    since: bytes | None = None,
    quiet: float | None = None,
    times: int | None = None,
) -> TcpFault:
    """The server gets everything; the client nothing beyond `after` bytes, until the server closes.

    With `quiet` the link is also closed once the swallowed server said nothing for so many seconds.
    """
    return TcpFault(times, kind="swallow", direction="down", after=after, since=since, quiet=quiet)


def stall(
    direction: Direction, after: int = 0, *, since: bytes | None = None, times: int | None = None
) -> TcpFault:
    """Forward nothing beyond `after` bytes but keep the link open.

    `disarm` cuts such a link; `release` lets it go on, so that what was held arrives late.
    """
    return TcpFault(times, kind="stall", direction=direction, after=after, since=since)


def answer(
    status: int,
    *,
    times: int | None = 1,
    stage: Stage | None = None,
    service: Service | None = None,
    retry_after: str = "",
) -> HttpFault:
    """Answer the next `times` requests with this status; git does not see them."""
    made = HttpFault(times, kind="answer", status=status, stage=stage, service=service)
    made.retry_after = retry_after
    return made


def delay(
    seconds: float,
    *,
    times: int | None = 1,
    stage: Stage | None = None,
    service: Service | None = None,
) -> HttpFault:
    """Hold the next `times` requests back for so long, or until disarmed."""
    return HttpFault(times, kind="delay", seconds=seconds, stage=stage, service=service)


def duplicate(*, times: int | None = 1) -> HttpFault:
    """Apply a push, then drop the kept-alive connection unanswered: curl sends the push again."""
    return HttpFault(times, kind="duplicate", stage="request", service="receive-pack")


def lose_answer(*, times: int | None = 1) -> HttpFault:
    """Apply a push, then drop its connection unanswered; curl gives up and git fails.

    Arm it before the push starts: the advertisement is answered with `Connection: close`.
    """
    return HttpFault(times, kind="lose", stage="request", service="receive-pack")


def replay(*, times: int | None = 1) -> HttpFault:
    """Run the same push twice against the repository; the client gets the second answer."""
    return HttpFault(times, kind="replay", stage="request", service="receive-pack")


def reset(sock: socket.socket) -> None:
    """Close a socket abruptly, with RST."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


@dataclass(eq=False)
class Link:
    """One connection through the proxy: the bytes forwarded so far in each direction."""

    up: int = 0
    down: int = 0
    closed: threading.Event = field(default_factory=threading.Event)


@dataclass(eq=False)
class _Flow:
    """One direction of a link."""

    direction: Direction
    source: socket.socket
    sink: socket.socket
    admitted: int = 0
    pending: bytearray = field(default_factory=bytearray)
    held: bytearray = field(default_factory=bytearray)
    stalled: TcpFault | None = None
    swallowing: TcpFault | None = None
    cutting: bool = False
    ended: bool = False
    closed: bool = False
    broken: bool = False

    def reading(self) -> bool:
        return not (self.ended or self.stalled or self.cutting or len(self.pending) > _BACKLOG)


class _Runner(threading.Thread):
    """Forwards the bytes of one link, on one thread, so that a cut is immediate and exact."""

    def __init__(
        self, client: socket.socket, server: socket.socket, faults: list[TcpFault], link: Link
    ) -> None:
        super().__init__(daemon=True, name="fault-proxy-link")
        self.link = link
        self._client, self._server = client, server
        self._up = _Flow("up", client, server)
        self._down = _Flow("down", server, client)
        self._faults = list(faults)
        self._bases: dict[TcpFault, int] = {fault: 0 for fault in faults if fault.since is None}
        self._tail = b""
        self._seen = 0
        self._wake_in, self._wake_out = socket.socketpair()
        self._order: Literal["", "cut", "go", "close"] = ""
        for sock in (client, server):
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def order(self, what: Literal["cut", "go", "close"]) -> None:
        """From another thread: cut the link if it is stalled, let it go on, or close it."""
        with contextlib.suppress(OSError):
            self._order = what
            self._wake_in.send(b"!")

    def run(self) -> None:
        """Forward until both directions are closed or the link is cut."""
        orderly = False
        try:
            while self._turn():
                if self._up.closed and self._down.closed:
                    orderly = True
                    break
        finally:
            for sock in (self._client, self._server):
                if orderly:
                    sock.close()
                else:
                    reset(sock)
            self._wake_in.close()
            self._wake_out.close()
            self.link.closed.set()

    def _turn(self) -> bool:
        flows = (self._up, self._down)
        quiet = self._quiet()
        readable, writable, _ = select.select(
            [self._wake_out, *(flow.source for flow in flows if flow.reading())],
            [flow.sink for flow in flows if flow.pending],
            [],
            quiet,
        )
        if quiet is not None and not readable and not writable:
            return False
        if self._wake_out in readable and not self._obey():
            return False
        for flow in flows:
            if flow.source in readable and flow.reading():
                self._read(flow)
            if flow.pending:
                self._write(flow)
            if flow.cutting and not flow.pending:
                _drained(flow.sink)
                return False
            self._pass_end(flow)
        return True

    def _quiet(self) -> float | None:
        fault = self._down.swallowing
        return fault.quiet if fault is not None else None

    def _obey(self) -> bool:
        self._wake_out.recv(64)
        if self._order == "close":
            return False
        for flow in (self._up, self._down):
            if flow.stalled is None:
                continue
            if self._order == "cut":
                return False
            flow.stalled = None
            held, flow.held = bytes(flow.held), bytearray()
            self._admit(flow, held)
        return True

    def _read(self, flow: _Flow) -> None:
        try:
            data = flow.source.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            if flow.direction == "down":  # the server reset the connection: so does the proxy
                flow.cutting = True
                return
            data = b""  # the client is gone: what it sent still arrives
        if not data:
            flow.ended = True
            return
        if flow.direction == "up":
            self._watch(data)
        self._admit(flow, data)

    def _watch(self, data: bytes) -> None:
        """Note where the `since` bytes of a fault pass upwards."""
        window = self._tail + data
        start = self._seen - len(self._tail)
        longest = 1
        for fault in self._faults:
            if fault.since is None:
                continue
            longest = max(longest, len(fault.since))
            at = window.find(fault.since)
            if at >= 0 and fault not in self._bases:
                up = fault.direction == "up"
                self._bases[fault] = start + at if up else self._down.admitted
        self._seen += len(data)
        self._tail = window[-(longest - 1) :] if longest > 1 else b""

    def _admit(self, flow: _Flow, data: bytes) -> None:
        """Let data into a flow as far as the armed faults allow."""
        if flow.swallowing is not None:
            return
        while data:
            found = self._nearest(flow)
            if found is None:
                break
            room, fault = found
            if room > len(data) or (room == len(data) and fault.kind != "cut"):
                break
            self._put(flow, data[:room])
            data = data[room:]
            self._faults.remove(fault)
            if not fault.fire():
                continue
            if fault.kind == "cut":
                flow.cutting = True
            elif fault.kind == "stall":
                flow.stalled = fault
                flow.held += data
            else:
                flow.swallowing = fault
            return
        self._put(flow, data)

    def _nearest(self, flow: _Flow) -> tuple[int, TcpFault] | None:
        found: tuple[int, TcpFault] | None = None
        for fault in self._faults:
            if fault.direction != flow.direction or fault not in self._bases:
                continue
            room = max(self._bases[fault] + fault.after - flow.admitted, 0)
            if found is None or room < found[0]:
                found = (room, fault)
        return found

    def _put(self, flow: _Flow, data: bytes) -> None:
        flow.admitted += len(data)
        flow.pending += data

    def _write(self, flow: _Flow) -> None:
        try:
            sent = 0 if flow.broken else flow.sink.send(flow.pending)
        except BlockingIOError:
            return
        except OSError:  # the receiver is gone: what is left goes nowhere
            flow.broken = True
            sent = 0
        if flow.broken:
            flow.pending.clear()
        del flow.pending[:sent]
        if flow.direction == "up":
            self.link.up += sent
        else:
            self.link.down += sent

    def _pass_end(self, flow: _Flow) -> None:
        """Pass the end of a stream on, when everything before it went through."""
        if not flow.ended or flow.closed or flow.pending or flow.stalled:
            return
        flow.closed = True
        with contextlib.suppress(OSError):
            flow.sink.shutdown(socket.SHUT_WR)


def _drained(sock: socket.socket) -> None:
    """Wait (bounded) until the peer's machine has everything sent, so that a reset loses none."""
    until = time.monotonic() + _DRAIN_SECONDS
    while time.monotonic() < until:
        try:
            left = fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, struct.pack("i", 0))
        except OSError:
            return
        if struct.unpack("i", left)[0] == 0:
            return
        select.select([], [], [], 0.001)


class FaultProxy:
    """A TCP proxy on a loopback port; a connection takes the faults armed when it was made."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.links: list[Link] = []
        self._faults: list[TcpFault] = []
        self._runners: list[_Runner] = []
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self._closing = False
        self._thread = threading.Thread(target=self._accept, daemon=True, name="fault-proxy")
        self._thread.start()

    def __enter__(self) -> FaultProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def connections(self) -> int:
        """How many TCP connections came in so far."""
        with self._lock:
            return len(self.links)

    def arm(self, fault: TcpFault) -> TcpFault:
        """Arm a fault for the connections made from now on; hands the same fault back."""
        with self._lock:
            self._faults.append(fault)
        return fault

    def disarm(self) -> None:
        """Take all faults away from new connections; cut the connections which are stalled."""
        self._end("cut")

    def release(self) -> None:
        """Take all faults away from new connections; stalled ones go on where they stopped."""
        self._end("go")

    def close(self) -> None:
        """Close the port and all connections."""
        self._closing = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        # Closed first, its number may be another listener's by the time the thread accepts again.
        self._thread.join()
        self._listener.close()
        with self._lock:
            runners = list(self._runners)
        for runner in runners:
            runner.order("close")
        for runner in runners:
            runner.join()

    def _end(self, order: Literal["cut", "go"]) -> None:
        with self._lock:
            faults, self._faults = self._faults, []
            runners = list(self._runners)
        for fault in faults:
            fault.end()
        for runner in runners:
            runner.order(order)

    def _accept(self) -> None:
        while not self._closing:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self.target), timeout=60)
            except OSError:
                reset(client)
                continue
            link = Link()
            with self._lock:
                runner = _Runner(client, server, self._faults, link)
                self._runners.append(runner)
                self.links.append(link)
            runner.start()
