"""Requests that a proxy in front of the gateway may read as others are refused."""

from __future__ import annotations

import contextlib
import re
import socket

import pytest
from support.gateway import Served
from support.running import LONG

pytestmark = pytest.mark.default

BODY = b'{"ttl": "15m"}'
CHUNKED = b"e\r\n" + BODY + b"\r\n0\r\n"


def sent(gate: Served, lines: list[bytes], body: bytes, *, end: bytes = b"\r\n") -> list[bytes]:
    """What is answered to the bytes of a claim, followed by a second request: the status lines."""
    secret = gate.secret("jo").encode()
    head = [b"PUT /v1/leases/F001 HTTP/1.1", b"Host: localhost", b"Authorization: Bearer " + secret]
    second = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    port = int(gate.url.rpartition(":")[2])
    found = b""
    with socket.create_connection(("127.0.0.1", port), timeout=LONG) as connection:
        connection.sendall(end.join([*head, *lines, b"", b""]) + body + second)
        with contextlib.suppress(ConnectionResetError):
            while part := connection.recv(65_536):
                found += part
    return re.findall(rb"HTTP/1\.1 ([0-9]{3}) ", found)


def leased(gate: Served) -> int:
    return len(gate.ask("jo", "GET", "/v1/leases").json()["leases"])


LENGTH = b"Content-Length: %d" % len(BODY)
ENCODING = b"Transfer-Encoding: chunked"


@pytest.mark.parametrize(
    ("lines", "body", "end"),
    [
        ([LENGTH, ENCODING], CHUNKED + b"\r\n", b"\r\n"),
        ([ENCODING, LENGTH], CHUNKED + b"\r\n", b"\r\n"),
        ([LENGTH], BODY, b"\n"),
        ([b"X-One: 1\nX-Two: 2", LENGTH], BODY, b"\r\n"),
        ([LENGTH + b"\r\n\nX: y"], BODY, b"\r\n"),
        ([ENCODING], CHUNKED + b"\n", b"\r\n"),
        ([ENCODING], CHUNKED + b"X-One: 1\nX-Two: 2\r\n\r\n", b"\r\n"),
    ],
    ids=["both", "both turned", "feeds", "one feed", "early end", "bare end", "trailers"],
)
def test_a_request_with_two_readings_is_refused(
    gate: Served, lines: list[bytes], body: bytes, end: bytes
) -> None:
    assert sent(gate, lines, body, end=end) == [b"400"], "and nothing after it is read"
    assert not leased(gate)


@pytest.mark.parametrize(
    ("lines", "body"),
    [
        ([LENGTH], BODY),
        ([LENGTH], BODY.replace(b" ", b"\n")),
        ([ENCODING], CHUNKED + b"\r\n"),
        ([ENCODING], CHUNKED.replace(b" ", b"\n") + b"X-One: 1\r\n\r\n"),
    ],
    ids=["length", "feeds of the body", "chunks", "trailers"],
)
def test_plain_requests_are_answered(gate: Served, lines: list[bytes], body: bytes) -> None:
    assert sent(gate, lines, body) == [b"201", b"200"]
    assert leased(gate) == 1


def test_an_old_request_in_chunks_is_refused(gate: Served) -> None:
    port = int(gate.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=LONG) as connection:
        lines = [b"POST /healthz HTTP/1.0", b"Host: localhost", ENCODING, b"", CHUNKED, b""]
        connection.sendall(b"\r\n".join(lines))
        assert connection.recv(65_536).startswith(b"HTTP/1.1 400")


def test_a_request_in_small_parts_is_answered(gate: Served) -> None:
    secret, port = gate.secret("jo").encode(), int(gate.url.rpartition(":")[2])
    lines = [b"PUT /v1/leases/F001 HTTP/1.1", b"Host: localhost", b"Connection: close"]
    lines += [b"Authorization: Bearer " + secret, ENCODING, b"", CHUNKED, b""]
    with socket.create_connection(("127.0.0.1", port), timeout=LONG) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in b"\r\n".join(lines):
            connection.sendall(bytes([byte]))
        assert connection.recv(65_536).startswith(b"HTTP/1.1 201")
