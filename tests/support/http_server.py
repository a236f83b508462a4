"""A threading HTTP/1.1 server on loopback, which runs `git http-backend` as CGI."""

from __future__ import annotations

import base64
import binascii
import contextlib
import http.server
import io
import itertools
import socket
import socketserver
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, cast
from urllib.parse import parse_qs, unquote, urlsplit

from support.availability import missing
from support.faults import HttpFault, Service, Stage
from support.fences import clean_env
from support.repos import git

_CHUNK = 65536
_TRANSFER_SECONDS, _IDLE_SECONDS = 60.0, 5.0
_FLUSH = b"0000"  # what git posts to see whether it may post a large pack


@dataclass
class Request:
    """One request as the server saw it; `status` is 0 when it was dropped unanswered."""

    method: str
    target: str
    service: Service | None
    stage: Stage | None
    user: str | None = None
    probe: bool = False
    status: int = 0


@dataclass(eq=False)
class HttpRepo:
    """One published repository: its requests, its users and its armed faults."""

    bare: Path
    url: str
    users: Mapping[str, str] | None = None
    latency: float = 0.0
    """Seconds that each request, and each answer, takes on its way."""
    _requests: list[Request] = field(default_factory=list)
    _faults: list[HttpFault] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def arm(self, fault: HttpFault) -> HttpFault:
        """Arm a fault for the requests from now on; hands the same fault back."""
        with self._lock:
            self._faults.append(fault)
        return fault

    def disarm(self) -> None:
        """Take all faults away; requests which are held back go on."""
        with self._lock:
            faults, self._faults = self._faults, []
        for fault in faults:
            fault.end()

    def requests(self) -> list[Request]:
        """All requests so far, in the order of their arrival."""
        with self._lock:
            return list(self._requests)

    def services(self) -> list[Service]:
        """The services clients opened: advertisements asked for, but for challenges (401)."""
        return [
            request.service
            for request in self.requests()
            if request.stage == "advertise" and request.service and request.status != 401
        ]

    def add(self, request: Request) -> None:
        """Note a request."""
        with self._lock:
            self._requests.append(request)

    def faults(self, stage: Stage, service: Service) -> list[HttpFault]:
        """The armed faults which concern such a request."""
        with self._lock:
            return [fault for fault in self._faults if fault.concerns(stage, service)]

    def login(self, header: str) -> str | None:
        """The user a basic authorization header proves; None when it proves none."""
        kind, _, encoded = header.partition(" ")
        if kind.lower() != "basic":
            return None
        try:
            user, _, password = base64.b64decode(encoded, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return None
        return user if (self.users or {}).get(user) == password else None


class HttpServer:
    """Serves any number of published repositories; closes idle connections after a while."""

    def __init__(self, log: Path) -> None:
        self.backend = Path(git(log.parent, "--exec-path")) / "git-http-backend"
        if not self.backend.exists():
            missing("git-http-backend is not installed")
        self.log = log
        self._repos: dict[str, HttpRepo] = {}
        self._numbers = itertools.count(1)
        self._children: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._server = _Server(self)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), daemon=True, name="http-server"
        )
        self._thread.start()

    def __enter__(self) -> HttpServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def publish(self, bare: Path, users: Mapping[str, str] | None = None) -> HttpRepo:
        """Serve a bare repository; with `users` (name to password) only after basic auth."""
        with self._lock:
            name = f"r{next(self._numbers)}/{bare.name}"
            repo = HttpRepo(bare, f"http://127.0.0.1:{self.port}/{name}", users)
            self._repos[name] = repo
        return repo

    def withdraw(self, repo: HttpRepo) -> None:
        """Serve the repository no more."""
        repo.disarm()
        with self._lock:
            self._repos = {name: kept for name, kept in self._repos.items() if kept is not repo}

    def find(self, path: str) -> tuple[HttpRepo, str] | None:
        """The repository a request path leads to, and the rest of the path."""
        parts = path.lstrip("/").split("/", 2)
        with self._lock:
            repo = self._repos.get("/".join(parts[:2]))
        return None if repo is None else (repo, "/" + "/".join(parts[2:]))

    def close(self) -> None:
        """Stop serving, and end the backends which still run."""
        with self._lock:
            repos = list(self._repos.values())
        for repo in repos:
            repo.disarm()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)
        self._server.end_connections()
        with self._lock:
            children = list(self._children)
        for child in children:
            child.kill()

    @property
    def busy(self) -> bool:
        """Whether a connection is open: what a client that is gone has sent is still served."""
        return self._server.has_connections()

    def run_backend(
        self, environ: Mapping[str, str], body: Iterable[bytes], take: Callable[[IO[bytes]], None]
    ) -> None:
        """Run the backend: feed it the body from one thread, and let `take` read its answer."""
        with (
            self.log.open("ab") as log,
            subprocess.Popen(
                [str(self.backend)],
                env=clean_env(environ),
                cwd=environ["GIT_PROJECT_ROOT"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            ) as child,
        ):
            with self._lock:
                self._children.add(child)
            assert child.stdin is not None
            assert child.stdout is not None
            feeder = threading.Thread(target=_feed, args=(child, body), daemon=True)
            feeder.start()
            try:
                take(child.stdout)
                while child.stdout.read(_CHUNK):  # the client may be gone: run to the end
                    pass
                feeder.join(_TRANSFER_SECONDS)
            finally:
                if feeder.is_alive():
                    child.kill()
                child.wait()
                with self._lock:
                    self._children.discard(child)


def _feed(child: subprocess.Popen[bytes], body: Iterable[bytes]) -> None:
    """Write the request's body to the backend, which is ended when the body is cut short."""
    assert child.stdin is not None
    writable = True
    try:
        for data in body:
            if not writable:
                continue  # the backend has ended, but the connection is read to the end
            try:
                child.stdin.write(data)
                child.stdin.flush()
            except OSError:
                writable = False
    except (OSError, EOFError, ValueError):
        child.kill()
    with contextlib.suppress(OSError):
        child.stdin.close()


class _Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True

    def __init__(self, owner: HttpServer) -> None:
        self.owner = owner
        self._open: dict[int, tuple[socket.socket, threading.Thread]] = {}
        self._open_lock = threading.Lock()
        super().__init__(("127.0.0.1", 0), _Handler)

    def server_bind(self) -> None:
        """Bind without asking a name server who 127.0.0.1 is."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", self.server_address[1]

    def handle_error(self, request: object, client_address: object) -> None:
        """Dropped connections are what the tests are about; nothing is printed."""

    def enter(self, connection: socket.socket) -> None:
        """Note a connection whose thread is running."""
        with self._open_lock:
            self._open[id(connection)] = (connection, threading.current_thread())

    def leave(self, connection: socket.socket) -> None:
        """Note the end of a connection."""
        with self._open_lock:
            self._open.pop(id(connection), None)

    def has_connections(self) -> bool:
        """Whether any connection is open."""
        with self._open_lock:
            return bool(self._open)

    def end_connections(self) -> None:
        """Close the connections which are still open and wait for their threads."""
        with self._open_lock:
            left = list(self._open.values())
        for connection, _ in left:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for _, thread in left:
            thread.join(5)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "git-test-server"
    sys_version = ""
    disable_nagle_algorithm = True

    def setup(self) -> None:
        self.owner = cast(_Server, self.server).owner
        cast(_Server, self.server).enter(self.request)
        super().setup()
        self.connection.settimeout(_IDLE_SECONDS)

    def finish(self) -> None:
        try:
            super().finish()
        finally:
            cast(_Server, self.server).leave(self.request)

    def log_message(self, format: str, *args: object) -> None:
        """Requests are noted per repository, not printed."""

    def do_GET(self) -> None:
        """Advertisements, and the files of the dumb protocol."""
        self._serve()

    def do_POST(self) -> None:
        """Requests to a service."""
        self._serve()

    def _serve(self) -> None:
        self.connection.settimeout(_TRANSFER_SECONDS)
        try:
            self._serve_found()
        except (OSError, EOFError):
            self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.settimeout(_IDLE_SECONDS)

    def _serve_found(self) -> None:
        split = urlsplit(self.path)
        found = self.owner.find(unquote(split.path))
        if found is None:
            self._refuse(404, "no such repository")
            return
        repo, rest = found
        request = self._describe(rest, split.query)
        if repo.latency:
            time.sleep(2 * repo.latency)
        if repo.users is not None:
            request.user = repo.login(self.headers.get("Authorization", ""))
            if request.user is None:
                request.status = 401
                repo.add(request)
                self._refuse(401, "who are you?")
                return
        repo.add(request)
        faults: list[HttpFault] = []
        if request.stage and request.service:
            faults = repo.faults(request.stage, request.service)
        if self._held_or_answered(request, faults):
            return
        self._hand_over(repo, rest, split.query, request)

    def _describe(self, rest: str, query: str) -> Request:
        stage: Stage | None = None
        name = rest.rsplit("/", 1)[-1]
        if self.command == "GET" and rest == "/info/refs":
            stage = "advertise"
            name = parse_qs(query).get("service", [""])[0]
        elif self.command == "POST":
            stage = "request"
        service: Service | None = None
        if name in ("git-upload-pack", "git-receive-pack"):
            service = "upload-pack" if name == "git-upload-pack" else "receive-pack"
        return Request(
            self.command,
            self.path,
            service,
            stage if service else None,
            probe=self.headers.get("Content-Length") == str(len(_FLUSH)),
        )

    def _held_or_answered(self, request: Request, faults: list[HttpFault]) -> bool:
        for fault in faults:
            if fault.kind == "delay" and fault.fire():
                fault.wait(fault.seconds)
            if fault.kind == "answer" and fault.fire():
                request.status = fault.status
                self._refuse(fault.status, "a fault of the test", retry_after=fault.retry_after)
                return True
        return False

    def _hand_over(self, repo: HttpRepo, rest: str, query: str, request: Request) -> None:
        """Let the backend serve the request, with the faults which are armed for it."""
        environ = self._environ(repo, rest, query, request)
        if request.service != "receive-pack" or request.stage != "request" or request.probe:
            losing = any(fault.kind == "lose" for fault in repo.faults("request", "receive-pack"))
            if losing:
                self.close_connection = True
            self.owner.run_backend(
                environ, self._body(), lambda out: self._answer_streaming(out, request)
            )
            return
        # A push is applied before the first byte of the answer goes out, as with servers that
        # gather small answers: so a cut answer always means an applied push.
        body, whole = self._body_so_far()
        if not whole:
            # What came is handed on, as by a server that streams. Told of more than comes, git
            # http-backend would wait for ever.
            self._apply({**environ, "CONTENT_LENGTH": str(len(body))}, body)
            self._drop()
            return
        output = self._apply(environ, body)
        for fault in repo.faults("request", "receive-pack"):
            if fault.kind == "replay" and fault.fire():
                output = self._apply(environ, body)
            elif fault.kind in ("duplicate", "lose") and fault.fire():
                self._drop()
                return
        self._answer_whole(output, request)

    def _apply(self, environ: Mapping[str, str], body: bytes) -> bytes:
        gathered = io.BytesIO()

        def take(out: IO[bytes]) -> None:
            gathered.write(out.read())

        self.owner.run_backend(environ, [body], take)
        return gathered.getvalue()

    def _environ(self, repo: HttpRepo, rest: str, query: str, request: Request) -> dict[str, str]:
        environ = {
            "GATEWAY_INTERFACE": "CGI/1.1",
            "SERVER_PROTOCOL": self.protocol_version,
            "REQUEST_METHOD": self.command,
            "QUERY_STRING": query,
            "PATH_INFO": f"/{repo.bare.name}{rest}",
            "GIT_PROJECT_ROOT": str(repo.bare.parent),
            "GIT_HTTP_EXPORT_ALL": "1",
            "REMOTE_ADDR": "127.0.0.1",
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
        }
        passed = {
            "CONTENT_LENGTH": "" if self._is_chunked() else self.headers.get("Content-Length"),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding"),
            "HTTP_ACCEPT_ENCODING": self.headers.get("Accept-Encoding"),
            "HTTP_GIT_PROTOCOL": self.headers.get("Git-Protocol"),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol"),
            "REMOTE_USER": request.user,
        }
        return {**environ, **{name: value for name, value in passed.items() if value}}

    def _is_chunked(self) -> bool:
        return "chunked" in self.headers.get("Transfer-Encoding", "").lower()

    def _body(self) -> Iterator[bytes]:
        """The request's body as it comes in; EOFError when it is cut short."""
        if self._is_chunked():
            while size := int(self.rfile.readline().split(b";")[0], 16):
                yield from self._exactly(size)
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass
        else:
            yield from self._exactly(int(self.headers.get("Content-Length") or 0))

    def _body_so_far(self) -> tuple[bytes, bool]:
        """As much of the body as came in, and whether that is all of it."""
        gathered = io.BytesIO()
        try:
            for data in self._body():
                gathered.write(data)
        except (OSError, EOFError, ValueError):
            return gathered.getvalue(), False
        return gathered.getvalue(), True

    def _exactly(self, size: int) -> Iterator[bytes]:
        while size:
            data = self.rfile.read1(min(size, _CHUNK))
            if not data:
                raise EOFError
            size -= len(data)
            yield data

    def _refuse(self, status: int, text: str, *, retry_after: str = "") -> None:
        with contextlib.suppress(EOFError, ValueError):
            for _ in self._body():
                pass
        body = text.encode() + b"\n"
        self.send_response(status)
        if status == 401:
            self.send_header("WWW-Authenticate", 'Basic realm="git"')
        if retry_after:
            self.send_header("Retry-After", retry_after)
        self.send_header("Content-Type", "text/plain")
        self._send_length_and_end(len(body))
        self.wfile.write(body)

    def _answer_streaming(self, out: IO[bytes], request: Request) -> None:
        """Pass the backend's answer on as it comes."""
        request.status = self._send_head(_read_head(out))
        self.send_header("Transfer-Encoding", "chunked")
        if self.close_connection:
            self.send_header("Connection", "close")
        with contextlib.suppress(OSError):
            self.end_headers()
            while data := out.read1(_CHUNK):  # type: ignore[attr-defined]
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.write(b"0\r\n\r\n")

    def _answer_whole(self, output: bytes, request: Request) -> None:
        out = io.BytesIO(output)
        request.status = self._send_head(_read_head(out))
        body = out.read()
        self._send_length_and_end(len(body))
        self.wfile.write(body)

    def _send_length_and_end(self, length: int) -> None:
        self.send_header("Content-Length", str(length))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()

    def _send_head(self, head: list[tuple[str, str]]) -> int:
        status = 200
        for name, value in head:
            if name.lower() == "status":
                status = int(value.split()[0])
        self.send_response(status)
        for name, value in head:
            if name.lower() not in ("status", "content-length"):
                self.send_header(name, value)
        return status

    def _drop(self) -> None:
        """Close the connection without an answer."""
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)


def _read_head(out: IO[bytes]) -> list[tuple[str, str]]:
    """The header lines of a CGI answer; a backend that says nothing has failed."""
    head: list[tuple[str, str]] = []
    while line := out.readline().strip():
        name, _, value = line.decode("latin-1").partition(":")
        head.append((name.strip(), value.strip()))
    return head or [("Status", "500 Internal Server Error")]
