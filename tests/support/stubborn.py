"""A proxy that passes requests on and loses the first answers."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Self
from urllib.parse import urlsplit

from support.running import LONG


class Stubborn:
    """Loses the first answers of a gateway: what was asked is done, and nobody hears of it."""

    def __init__(self, url: str, *, loses: int = 0, says: bytes = b"") -> None:
        """``says``: what is answered to everything, without asking the gateway."""
        parts = urlsplit(url)
        self._to = (parts.hostname or "", parts.port or 80)
        self._loses, self.lost, self._says, self.said = loses, 0, says, 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        # Closing alone leaves the thread waiting on the port, and answering whoever comes to it.
        self._listening.shutdown(socket.SHUT_RDWR)
        self._thread.join(LONG)
        self._listening.close()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            with client, contextlib.suppress(OSError):
                self._pass_on(client)

    def _pass_on(self, client: socket.socket) -> None:
        client.settimeout(0.3)
        asked = b""
        with contextlib.suppress(TimeoutError):
            while not _is_whole(asked):
                asked += client.recv(65_536)
        if self._says:
            self.said += 1
            client.sendall(self._says)
            return
        with socket.create_connection(self._to, timeout=LONG) as there:
            there.sendall(asked.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
            answer = b""
            while part := there.recv(65_536):
                answer += part
        if self.lost < self._loses:
            self.lost += 1
            return
        client.sendall(answer)


def _is_whole(asked: bytes) -> bool:
    head, end, body = asked.partition(b"\r\n\r\n")
    if not end:
        return False
    lengths = [x for x in head.lower().split(b"\r\n") if x.startswith(b"content-length:")]
    return len(body) >= (int(lengths[0].partition(b":")[2]) if lengths else 0)
