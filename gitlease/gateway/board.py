"""The board as a read-only page and its stream, behind a cookie.

The cookie comes from a link that works once. It is a token of its own kind, valid nowhere else.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import AsyncIterator, Callable
from html import escape
from typing import Any

import anyio
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from gitlease.board import page
from gitlease.board.page import PageView
from gitlease.board.text import OpenedResource, matching, open_resource
from gitlease.board.verbs import BoardView, make_board
from gitlease.gateway.events import LOOK, SILENT, EventStream, OpenStreams
from gitlease.gateway.follower import Follower
from gitlease.gateway.gateway import Gateway
from gitlease.gateway.request_handler import Access, Refused
from gitlease.gateway.tokens import BOARD, COOKIE_LASTS, LINK, Token
from gitlease.kernel.ledger.ledger_session import LedgerSession, LedgerView
from gitlease.kernel.rules.errors import GitleaseError, Unavailable, UsageError
from gitlease.kernel.rules.frozen import replace
from gitlease.kernel.rules.instant import Instant, rfc3339
from gitlease.kernel.rules.resources import parse_resource
from gitlease.verbs.table import http_of

NOBODY = "board"  # the holder that a viewer acts as; no email looks like this
LONGEST = 200  # characters of a filter
HOW = "<code>gitlease board --web</code>, on the gateway's machine, prints a link to this page."


class CurrentBoard:
    """The current board of a gateway, made once for all viewers."""

    def __init__(self, gateway: Gateway, follower: Follower) -> None:
        self._gateway, self._follower = gateway, follower
        self._lock = threading.Lock()
        self._made: tuple[Instant, str, LedgerView, BoardView] | None = None

    @property
    def session(self) -> LedgerSession:
        return self._gateway.session(NOBODY)

    def is_due(self) -> bool:
        """Return whether the board may have changed since it was made."""
        if self._made is None:
            return True
        at, version, _, board = self._made
        head, now = self._gateway.store.newest(self._gateway.layer), self._gateway.clock.now()
        return (
            head is None
            or head.version != version
            or board.trouble != self._trouble()
            or board.is_due(at, now)
        )

    def read(self, *, ask: bool = False) -> tuple[LedgerView, BoardView]:
        """The board and the view it was made from.

        ``ask`` fetches from the remote unless a follower does so already; if it cannot be reached,
        the board says so. Raises Unavailable if no state of the ledger is known.
        """
        trouble = ""
        if ask and not self._follower.is_following:
            try:
                self._gateway.store.fetch(self._gateway.layer)
            except Unavailable as error:
                trouble = error.message
        with self._lock:
            if self._made is None or trouble or self.is_due():
                trouble, session = trouble or self._trouble(), self.session
                if (view := session.known_look()) is None:
                    raise Unavailable(trouble or "the ledger has not been read yet")
                made = make_board(session, view, trouble=trouble)
                self._made = view.moment.now, view.head.version, view, made
            _, _, view, board = self._made
        return view, replace(board, now=self._gateway.clock.now().wall_ms)

    def _trouble(self) -> str:
        return self._follower.trouble.message if self._follower.trouble else ""


class BoardPages:
    """The page of a gateway's board, and the stream that keeps it current."""

    def __init__(
        self,
        gateway: Gateway,
        follower: Follower,
        access: Access,
        redeem: Callable[[str, int], str | None],
        closing: asyncio.Event,
    ) -> None:
        self._current, self._follower = CurrentBoard(gateway, follower), follower
        self._access, self._redeem, self._closing = access, redeem, closing
        self._streams = OpenStreams()

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/board", self._guarded(self._page)),
            Route("/board/stream", self._guarded(self._stream)),
        ]

    def _guarded(self, answer: Callable[[Request], Any]) -> Callable[[Request], Any]:
        async def guarded(request: Request) -> Response:
            try:
                response: Response = await answer(request)
            except Refused as refused:
                lines = [escape(str(refused)), *([HOW] if refused.status == 401 else [])]
                response = _notice("You cannot see this board", lines, refused.status)
                response.headers.update(refused.headers)
            except GitleaseError as error:
                lines = [escape(text) for text in (error.message, *error.hints)]
                response = _notice("The board cannot be shown", lines, http_of(error.code))
            response.headers["Cache-Control"] = "no-store"
            response.headers["Referrer-Policy"] = "no-referrer"
            response.headers["X-Content-Type-Options"] = "nosniff"
            response.headers["X-Frame-Options"] = "DENY"
            response.headers["X-Accel-Buffering"] = "no"
            return response

        return guarded

    async def _page(self, request: Request) -> Response:
        link = request.query_params.get("link")
        if link is not None:
            return await self._open(request, link)
        self._admit(request)
        view, base = _view(request), request.url.path

        def made() -> str:
            look, board = self._current.read(ask=True)
            opened = self._opened(look, board, view)
            return page.page(matching(board, view.find), view, opened, base=base)

        answer = HTMLResponse(await anyio.to_thread.run_sync(made))
        answer.headers["Content-Security-Policy"] = page.policy(script=True)
        return answer

    async def _open(self, request: Request, link: str) -> Response:
        self._access.admit(request.headers, LINK, secret=link)
        # Asks only whether the link is valid, which stays so.
        if request.method == "HEAD":
            return Response(status_code=204)
        secret = await anyio.to_thread.run_sync(self._redeem, link, time.time_ns() // 1_000_000)
        if secret is None:
            raise Refused(401, "unauthorized", "this link was used before, or has expired")
        # So the link does not stay in the address bar, where it works no more.
        answer = RedirectResponse(request.url.path, status_code=303)
        answer.set_cookie(
            _cookie(request),
            secret,
            max_age=COOKIE_LASTS,
            path=request.url.path,
            secure=request.url.scheme == "https",
            httponly=True,
            # Links on other pages lead here as well.
            samesite="lax",
        )
        return answer

    async def _stream(self, request: Request) -> Response:
        token = self._admit(request)
        changed, loop = asyncio.Event(), asyncio.get_running_loop()

        def notify(_event: object) -> None:
            loop.call_soon_threadsafe(changed.set)

        with contextlib.ExitStack() as stack:
            stack.enter_context(self._streams.opened(token.id))
            stack.callback(await anyio.to_thread.run_sync(self._follower.listen, notify))
            return EventStream(self._events(request, changed), stack.pop_all().close)

    async def _events(self, request: Request, changed: asyncio.Event) -> AsyncIterator[str]:
        view, base = _view(request), request.url.path.removesuffix("/stream")
        silent, sent = 0.0, None
        yield "retry: 1000\n\n"
        while not self._closing.is_set() and self._access.is_still_valid(
            {}, secret=request.cookies.get(_cookie(request))
        ):
            # Before the board is read: what changes meanwhile wakes the stream once more.
            changed.clear()
            if sent is None or self._current.is_due():
                try:
                    look, board = await anyio.to_thread.run_sync(self._current.read)
                except GitleaseError:
                    # The page itself says why.
                    return
                if board != sent:
                    sent, silent = board, 0.0
                    yield await anyio.to_thread.run_sync(self._event, look, board, view, base)
            with anyio.move_on_after(LOOK):
                await changed.wait()
                continue
            silent += LOOK
            if silent >= SILENT:
                silent = 0.0
                yield ": still here\n\n"

    def _event(self, look: LedgerView, board: BoardView, view: PageView, base: str) -> str:
        opened, shown = self._opened(look, board, view), matching(board, view.find)
        data = {
            "now": board.now,
            "at": rfc3339(board.now),
            "board": page.content(shown, view, opened, base=base),
            "counts": page.counted(shown),
            "news": page.news_items(shown.news),
            "trouble": page.trouble(shown),
        }
        return f"event: board\ndata: {json.dumps(data)}\n\n"

    def _opened(self, look: LedgerView, board: BoardView, view: PageView) -> OpenedResource | None:
        if not view.open:
            return None
        try:
            resource = parse_resource(view.open)
        except UsageError:
            return None
        return open_resource(self._current.session, look, board, resource)

    def _admit(self, request: Request) -> Token:
        secret = request.cookies.get(_cookie(request))
        if secret is None:
            self._access.check_address(request.headers)
            raise Refused(401, "unauthorized", "a link is needed to open this page")
        return self._access.admit(request.headers, BOARD, secret=secret)


def _cookie(request: Request) -> str:
    # With the port: browsers send a host's cookies to all of its ports.
    return f"gitlease_board_{request.url.port or 'default'}"


def _view(request: Request) -> PageView:
    query = request.query_params
    return PageView(find=query.get("find", "")[:LONGEST], open=query.get("open", ""))


def _notice(title: str, lines: list[str], status: int) -> Response:
    answer = HTMLResponse(page.notice(title, lines), status)
    answer.headers["Content-Security-Policy"] = page.policy(script=False)
    return answer
