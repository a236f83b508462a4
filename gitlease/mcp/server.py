"""The MCP server: its tools, their answers as agents see them, and its resources.

It works over any transport.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from functools import partial
from types import MappingProxyType
from typing import Any, Protocol

import anyio
from mcp import types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated
from mcp.shared.exceptions import MCPError

from gitlease import __version__
from gitlease.kernel.rules.errors import GitleaseError, Hint, Unavailable, UsageError, around
from gitlease.kernel.rules.frozen import dataclass, replace
from gitlease.kernel.rules.resources import parse_layer
from gitlease.kernel.settings.identity import THREADED
from gitlease.verbs import sentences, wire
from gitlease.verbs.next_steps import LONGEST_WAIT, steps_after
from gitlease.verbs.table import (
    HTTP,
    SWITCH,
    TABLE,
    TEXT,
    TOOL,
    Called,
    Details,
    Door,
    Parameter,
    Result,
    check_encodes,
    check_names,
    find_verb,
    read_text,
    read_values,
)

Parameters = dict[str, Parameter]


class ToolCaller(Door, Protocol):
    """A person, in one session, as the tools see them."""

    alone: bool
    """Nobody else may call as the same person and session."""

    begun: bool
    """The session is one of this call, and its client has to name it in later ones."""

    def follow(self, tell: Callable[[], None]) -> None:
        """Call ``tell`` once it has begun, and then at every change of leases.

        Raises InterruptedError at its end, and what reading the ledger raises.
        """


@dataclass(frozen=True, kw_only=True)
class LeaseTool:
    """A tool. ``writes``: it changes the ledger; ``again``: it is idempotent.

    ``in_clone``: only for callers in a clone. ``own``: it is about leases that the caller has.
    """

    name: str
    about: str
    takes: Parameters
    act: Callable[..., Result]
    writes: bool = True
    destroys: bool = False
    again: bool = False
    in_clone: bool = False
    own: bool = False

    def only_reads(self, arguments: Mapping[str, Any]) -> bool:
        """Return whether a call with these arguments changes no lease."""
        verb = find_verb(self.name)
        return verb.only_reads({x: arguments.get(x) for x in verb.parameters})

    def schema(self) -> dict[str, Any]:
        """The JSON schema of its arguments."""
        properties = {
            name: {
                **(x.kind.tool_schema or x.kind.schema),
                **({"description": x.tool} if x.tool else {}),
            }
            for name, x in self.takes.items()
        }
        required = [name for name, x in self.takes.items() if x.required]
        more = {"required": required} if required else {}
        return {"type": "object", "properties": properties, **more, "additionalProperties": False}


def call_of(tool: str, **arguments: Any) -> str:
    """A suggested call: the tool and its arguments."""
    given = {x: y for x, y in arguments.items() if y is not None and y is not False}
    return f"{tool} {json.dumps(given, ensure_ascii=False)}"


def call_in(hint: Hint, place: Mapping[str, str] = MappingProxyType({})) -> str | None:
    """The call of a tool that a hint stands for, in this ``place``; None where no tool does it."""
    given = {**{x: y for x, y in hint.arguments.items() if x not in PLACE}, **place}
    if hint.verb == "done":
        return call_of("release", resources=[given.pop("resource")], **given, done=True)
    if hint.verb == "renew" and given.pop("all", False):
        return call_of("renew", **place)
    if hint.verb in ("show", "queue"):
        names = [given["resource"]] if "resource" in given else None
        return call_of("status", resources=names, **place)
    return call_of(hint.verb, **given) if hint.verb in TOOLS else None


# --- tools that are more than one verb --------------------------------------------------------


def _of_verb(verb: str, caller: ToolCaller, **values: Any) -> Result:
    """Carry out a verb; one that takes one resource is given the only one of the call."""
    declared = find_verb(verb)
    if "resource" in declared.parameters:
        resources = values.pop("resources", None)
        if resources is not None and len(resources) != 1:
            raise UsageError("this takes one resource at a time", hints=("call it for each",))
        values |= {"resource": resources[0]} if resources else {}
    return declared.answer(caller, **values)


def _renew(caller: ToolCaller, **values: Any) -> Result:
    # A scope without its resource would renew everything.
    if "scope" in values and "resources" not in values:
        raise UsageError("scope needs resources")
    return _with_tokens(_of_verb("renew", caller, **values, all="resources" not in values))


def _with_tokens(result: Result) -> Result:
    # The token of each live lease in its line: models may be shown the lines only.
    def lines() -> list[str]:
        texts, views = _lines_of(result), result.leases
        if len(texts) != len(views):
            return texts
        live = (f", token {x.token}" if x.state == "active" else "" for x in views)
        return [f"{line}{token}" for line, token in zip(texts, live, strict=True)]

    return replace(result, lines=lines)


def _next(caller: ToolCaller, *, claim: bool = False, **values: Any) -> Result:
    result = _of_verb("next", caller, claim=claim, **values)
    # By the time of the call another may have the task, so the call chooses again.
    return result if claim else replace(result, then=[Hint("next", {"claim": True})])


def _release(caller: ToolCaller, *, done: bool = False, **values: Any) -> Result:
    if not done:
        return _of_verb("release", caller, **values)
    if values.pop("keep", False):
        raise UsageError("keep and done exclude each other")
    if "note" in values:
        raise UsageError("note and done exclude each other: a note is for the next holder")
    if len(values["resources"]) != 1:
        raise UsageError("done finishes one resource at a time", hints=("call release for each",))
    return _of_verb("done", caller, **values)


def _status(caller: ToolCaller, *, resources: Sequence[Any] = (), mine: bool = False) -> Result:
    if mine and resources:
        raise UsageError("mine and resources exclude each other")
    if resources:
        return _joined([_shown(caller, x, alone=len(resources) == 1) for x in resources])
    leases = _of_verb("list", caller, mine=mine)
    if not mine:
        return leases
    # Of what was read just now.
    known = _of_verb("queue", caller, mine=True, cached=True)
    carried = replace(known, body={"carrying": known.body["tasks"]}, warnings=())
    return _joined([leases, carried])


def _shown(caller: ToolCaller, resource: Any, *, alone: bool) -> Result:
    result = _of_verb("show", caller, resources=[resource])
    if alone:
        return result
    task = result.body["task"]
    body = {**result.body, "tasks": [] if task is None else [task]}
    return replace(result, body=body, lines=lambda: [f"{resource}:", *_lines_of(result)])


def _joined(results: Sequence[Result]) -> Result:
    """Several answers as one: lists go on, and what is there once for each is left out."""
    if len(results) == 1:
        return results[0]
    body: dict[str, Any] = {}
    for result in results:
        for name, value in result.body.items():
            if isinstance(value, list):
                body[name] = [*body.get(name, ()), *value]
    return Result(
        body=body,
        lines=lambda: [line for result in results for line in _lines_of(result)],
        warnings=tuple(dict.fromkeys(x for result in results for x in result.warnings)),
    )


def _wait(caller: ToolCaller, *, timeout: int = LONGEST_WAIT, **values: Any) -> Result:
    if timeout > LONGEST_WAIT:
        raise UsageError(
            f"timeout is at most {LONGEST_WAIT}s", hints=("call wait again afterwards",)
        )
    return _of_verb("wait", caller, timeout=timeout, **values)


# --- the tools --------------------------------------------------------------------------------


MANY = replace(find_verb("release").parameters["resources"], required=True)
SOME = replace(MANY, required=False)


def _takes(verb: str, **more: Parameter) -> Parameters:
    # The parameters of a verb, but that all tools name resources alike.
    known = find_verb(verb).at(TOOL)
    named = {
        "resources" if name == "resource" else name: x
        if name != "resource"
        else replace(MANY, required=x.required)
        for name, x in known.items()
        if name != "all"
    }
    return named | more


TOOLS: Mapping[str, LeaseTool] = {
    tool.name: tool
    for tool in (
        LeaseTool(
            name="claim",
            about="Lease resources before you edit, all or none: task ids (F001), names "
            "(deploy-prod) or paths (src/auth/). Others are refused until it ends. "
            "Claiming your own renews it.",
            takes=_takes("claim"),
            act=lambda caller, new=False, **values: _of_verb(
                # Whoever shares its session with others must not be told that it holds what they
                # claimed; of several, one's own leases are in the way in any case.
                "claim",
                caller,
                **values,
                new=new or not (caller.alone or values.get("one")),
            ),
            destroys=True,
            again=True,
        ),
        LeaseTool(
            name="renew",
            about="Keep leases while you work: these, or all of yours. Lost: stop that work.",
            takes=_takes("renew"),
            act=_renew,
            again=True,
            own=True,
        ),
        LeaseTool(
            name="extend",
            about="Stretch a lease to at least this long from now, for a known pause.",
            takes=_takes("extend"),
            act=lambda caller, **values: _with_tokens(_of_verb("extend", caller, **values)),
            again=True,
            own=True,
        ),
        LeaseTool(
            name="release",
            about="Give leases back when you stop; with keep, a task waits for its person; with "
            "done, finish one task.",
            takes=_takes(
                "release",
                resources=MANY,
                done=Parameter(kind=SWITCH, tool="The work is finished.", default=False),
            ),
            act=_release,
            destroys=True,
            again=True,
            own=True,
        ),
        LeaseTool(
            name="next",
            about="The next task of the queue; with claim it is claimed at once, for you alone.",
            takes=_takes("next"),
            act=_next,
        ),
        LeaseTool(
            name="status",
            about="Who holds what, until when; of these resources, with their notes, or of all.",
            takes={
                "resources": SOME,
                "mine": Parameter(
                    kind=SWITCH, tool="What you hold and are assigned.", default=False
                ),
            },
            act=_status,
            writes=False,
        ),
        LeaseTool(
            name="wait",
            about=f"Wait until resources are free, {LONGEST_WAIT}s at most; claims nothing.",
            takes={x: find_verb("wait").parameters[x] for x in ("resources", "scope", "timeout")},
            act=_wait,
            again=True,
        ),
        *(
            LeaseTool(
                name=x.name,
                about=x.tool,
                takes=_takes(x.name),
                act=partial(_of_verb, x.name),
                writes=not x.reads,
                in_clone=HTTP not in x.doors,
            )
            for x in map(find_verb, TABLE)
            if x.tool
        ),
    )
}


def answered(
    tool: str, result: Result, now: datetime, place: Mapping[str, str] = MappingProxyType({})
) -> types.CallToolResult:
    """The result of a tool; if part of it was refused, it is an error."""
    if result.refused:
        return refused(tool, result.refused[0], now, result=result, place=place)
    steps = [step for hint in result.then if (step := call_in(hint, place)) is not None]
    document = wire.success(tool, body=result.body, warnings=result.warnings, next_steps=steps)
    return _result([*_lines_of(result), *_warnings(result.warnings)], steps, document)


def _lines_of(result: Result) -> list[str]:
    lines = list[str]()
    for part in result.lines():
        if isinstance(part, str):
            lines.append(part)
        elif isinstance(part, Details):
            lines += [f"{name}: {value}" for name, value in part.rows if value]
        else:
            names = [heading.lower() for heading in part.headings]
            rows = (zip(names, row, strict=True) for row in part.rows)
            lines += [", ".join(f"{name} {cell}" for name, cell in row if cell) for row in rows]
            lines += [part.otherwise] if part.otherwise and not part.rows else []
    return lines


def refused(
    tool: str,
    error: GitleaseError,
    now: datetime,
    *,
    caller: ToolCaller | None = None,
    arguments: Mapping[str, Any] | None = None,
    result: Result | None = None,
    place: Mapping[str, str] = MappingProxyType({}),
) -> types.CallToolResult:
    """The result of a refusal: who has the lease, until when, and what to do.

    ``result`` is that of a call which was refused in part; ``place`` what calls after it name.
    """
    all_refused = result.refused if result else ()
    body = dict(result.body) if result else {}
    if all_refused:
        body["refused"] = [wire.refusal(x, now=now) for x in all_refused]
    called = Called(verb=tool, values=arguments or {}, door=TOOL)
    hints = steps_after(caller, error, called)
    steps = [step for hint in hints if (step := call_in(hint, place)) is not None]
    document = wire.failure(tool, error, now=now, next_steps=steps, body=body)
    lines = [
        *(_lines_of(result) if result else ()),
        f"{error.code}: {sentences.refusal(error, now)}",
        *(f"{x.code}: {sentences.refusal(x, now)}" for x in all_refused[1:]),
        *sentences.others_in_the_way(error, now),
        *(f"hint: {hint}" for hint in (*error.hints, *_advice(error))),
        *_warnings(error.warnings),
    ]
    # As a result, not raised: the SDK drops the text of an exception.
    return _result(lines, steps, document, is_error=True)


def put_in_words(
    error: GitleaseError, words: Callable[[str], str], takes: Collection[str] = ()
) -> GitleaseError:
    """Return a refusal with its texts as the clients of a server may read them.

    A hint at an argument that is not one of those that the tool ``takes`` is left out.
    """
    fitting = [
        hint
        for hint in error.hints
        if not isinstance(hint, Hint) or hint.verb or hint.arguments.keys() <= {*takes}
    ]
    return error.with_(
        message=words(error.message),
        hints=tuple(
            words(
                around(x.why, ", ".join(f"{y}: {json.dumps(z)}" for y, z in x.arguments.items()))
                if isinstance(x, Hint) and not x.verb
                else x
            )
            for x in fitting
        ),
        warnings=tuple(map(words, error.warnings)),
    )


def _result(
    lines: Sequence[str], steps: Sequence[str], document: wire.Document, *, is_error: bool = False
) -> types.CallToolResult:
    text = "\n".join([*lines, *(f"next: {step}" for step in steps)])
    content: list[types.ContentBlock] = [types.TextContent(type="text", text=text)]
    return types.CallToolResult(content=content, structured_content=document, is_error=is_error)


def _warnings(warnings: Sequence[str]) -> list[str]:
    return [f"warning: {text}" for text in warnings]


def _advice(error: GitleaseError) -> Sequence[str]:
    if error.code == "lost":
        return ("stop the work that it covers",)
    if error.by_edge and error.holder:
        return (f"ask {error.to_ask}, or take another task",)
    if error.code in sentences.IN_THE_WAY and error.views and not error.views[0].mine:
        return ("work on something else, or ask the holder to release it",)
    return ()


BOARD, MINE = "lease://board", "lease://mine"
ABOUT: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    BOARD: ("Who holds what, until when.", {}),
    MINE: ("What you hold.", {"mine": True}),
}
LISTENERS = 128  # streams of notifications, each with a thread that follows the ledger

Asked = ServerRequestContext[Any, Any]


@dataclass(frozen=True, kw_only=True)
class AskedPlace:
    """Where a call acts, by its own arguments: in a ``layer``, and in a ``session``.

    ``writes``: it may change leases; ``own``: it is about leases that the caller has.
    """

    writes: bool
    own: bool = False
    layer: str | None = None
    session: str | None = None

    @property
    def named(self) -> dict[str, str]:
        """The arguments that say where a call acts."""
        given = {"layer": self.layer, "session": self.session}
        return {name: value for name, value in given.items() if value is not None}

    @classmethod
    def of(cls, tool: LeaseTool, arguments: Mapping[str, Any]) -> AskedPlace:
        """The place of a call. Raises UsageError for an invalid layer or session."""
        layer, session = (arguments.get(name) for name in PLACE)
        return cls(
            writes=not tool.only_reads(arguments),
            own=tool.own,
            layer=None if layer is None else parse_layer(read_text(None, layer, "layer")),
            session=None if session is None else read_text(None, session, "session"),
        )


PLACE: Parameters = {
    "layer": Parameter(kind=TEXT, tool="Another ledger than the usual one."),
    "session": Parameter(kind=TEXT, tool="As your claim named it."),
}


def _place_of(tool: LeaseTool, name: str) -> Parameter:
    """The parameter of a tool for its place, described only where it matters most."""
    # Models pay for the list of tools with each conversation.
    described = tool.own if name == "session" else tool.name == "claim"
    return PLACE[name] if described else replace(PLACE[name], tool="")


class Backend(Protocol):
    """The leases that a server serves: those of a clone, or those behind a gateway.

    What is usual for a server with one client stands here.
    """

    in_clone: bool = True
    place: Sequence[str] = ("layer",)
    """The arguments by which a call says where it acts."""

    @property
    def tools(self) -> Mapping[str, LeaseTool]:
        """The tools that are offered here."""
        offered = {name: x for name, x in TOOLS.items() if self.in_clone or not x.in_clone}
        return {
            name: replace(x, takes=x.takes | {y: _place_of(x, y) for y in self.place})
            for name, x in offered.items()
        }

    def caller(
        self, meta: Mapping[str, Any], request: Any, woken: threading.Event, place: AskedPlace
    ) -> AbstractContextManager[ToolCaller]:
        """The caller of a request, for the duration of the call; ``woken`` ends its waits.

        Raises Denied without the access needed, and what opening a clone may raise.
        """

    def words(self, text: str) -> str:
        """A message as the clients of this server may read it."""
        return text

    def waiting(self, request: Any) -> AbstractContextManager[None]:
        """Count the block as a wait. Raises Unavailable if there are too many."""
        return contextlib.nullcontext()

    def listening(self, request: Any) -> AbstractContextManager[None]:
        """Count the block as a listener. Raises Unavailable if there are too many."""
        return contextlib.nullcontext()


def thread_of(meta: Mapping[str, Any]) -> str:
    """The id of the calling Codex thread, else an empty string."""
    data = meta.get(THREADED.turn)
    try:
        turn = json.loads(data) if isinstance(data, str) else data
    except (ValueError, RecursionError):
        return ""
    thread = turn.get("thread_id") if isinstance(turn, Mapping) else None
    return thread if isinstance(thread, str) else ""


INSTRUCTIONS = """Leases say who works on what in this repository: people and agents share it.
Claim before your first edit, with the paths you will change; renew while you work; release, with a
note on how far you got, when you stop. What another holds is theirs until it is free."""
THREADS, WAITS = 32, 16  # calls at the same time, and waiting ones
BUG = "a bug in gitlease: see the server's standard error"
EVERY = 5.0  # seconds between two progress notifications of a wait


class LeaseServer:
    """The tools and resources of a backend's callers. ``mcp`` is the server that transports run.

    Waiting calls have a limit of their own, ``waits``, so that they never delay a renewal.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        threads: anyio.CapacityLimiter | None = None,
        waits: anyio.CapacityLimiter | None = None,
    ) -> None:
        self._backend = backend
        self._threads = threads or anyio.CapacityLimiter(THREADS)
        self._waits = waits or anyio.CapacityLimiter(WAITS)
        self._listeners = anyio.CapacityLimiter(LISTENERS)
        self.mcp: Server[Any] = Server(
            "gitlease",
            version=__version__,
            instructions=INSTRUCTIONS,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_read_resource=self._read_resource,
            on_subscriptions_listen=self._listen_to,
        )

    async def _list_resources(
        self, _asked: Asked, _page: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        resources = [
            types.Resource(
                uri=uri,
                name=uri.removeprefix("lease://"),
                description=about,
                mime_type="application/json",
            )
            for uri, (about, _) in ABOUT.items()
        ]
        return types.ListResourcesResult(resources=resources)

    async def _read_resource(
        self, asked: Asked, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        """The document of a resource, as ``status`` returns it. Raises MCPError."""
        uri = str(params.uri)
        if uri not in ABOUT:
            known = ", ".join(ABOUT)
            message = f"unknown resource {uri[:60]!r}; known resources: {known}"
            raise MCPError(types.INVALID_PARAMS, message)
        text = await anyio.to_thread.run_sync(lambda: self._read(asked, uri))
        part = types.TextResourceContents(uri=uri, mime_type="application/json", text=text)
        return types.ReadResourceResult(contents=[part])

    def _read(self, asked: Asked, uri: str) -> str:
        meta = dict[str, Any](asked.meta or {})
        try:
            with self._backend.caller(
                meta, asked.request, threading.Event(), AskedPlace(writes=False)
            ) as caller:
                status = TOOLS["status"].act(caller, **ABOUT[uri][1])
        except GitleaseError as error:
            error = put_in_words(error, self._backend.words)
            refusal = wire.refusal(error, now=datetime.now(UTC))
            raise MCPError(types.INTERNAL_ERROR, refusal["message"], refusal) from None
        warnings = [*map(self._backend.words, status.warnings)]
        return json.dumps(wire.success("status", body=status.body, warnings=warnings))

    async def _listen_to(
        self, asked: Asked, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """Notify a client of changes; the stream ends if they cannot be followed."""
        if self._listeners.available_tokens < 1:
            raise MCPError(types.INTERNAL_ERROR, f"there are {LISTENERS} listeners already")
        try:
            # Counted by token, together with the streams of events: one could take all places.
            with self._backend.listening(asked.request):
                return await self._listen(asked, params)
        except Unavailable as busy:
            raise MCPError(types.INTERNAL_ERROR, busy.message) from None

    async def _listen(
        self, asked: Asked, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        bus, woken = InMemorySubscriptionBus(), threading.Event()
        handler = ListenHandler(bus)

        async def follow() -> None:
            try:
                await anyio.to_thread.run_sync(
                    lambda: self._follow(asked, bus, woken), limiter=self._listeners
                )
            finally:
                handler.close()

        async with anyio.create_task_group() as group:
            group.start_soon(_notice_leaving, woken)
            if {*(params.notifications.resource_subscriptions or ())} & {*ABOUT}:
                group.start_soon(follow)
            result = await handler(asked, params)
            group.cancel_scope.cancel()
        return result

    def _follow(self, asked: Asked, bus: InMemorySubscriptionBus, woken: threading.Event) -> None:
        def tell() -> None:
            for uri in ABOUT:
                anyio.from_thread.run(bus.publish, ResourceUpdated(uri))

        meta = dict[str, Any](asked.meta or {})
        try:
            place = AskedPlace(writes=False)
            with self._backend.caller(meta, asked.request, woken, place) as caller:
                caller.follow(tell)
        except InterruptedError:
            return
        except GitleaseError as error:
            logging.getLogger("gitlease").warning("changes cannot be followed: %s", error)

    async def _list_tools(
        self, _asked: Asked, _page: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        tools = [
            types.Tool(
                name=tool.name,
                description=tool.about,
                input_schema=tool.schema(),
                annotations=types.ToolAnnotations(
                    read_only_hint=not tool.writes,
                    destructive_hint=tool.destroys if tool.writes else None,
                    idempotent_hint=tool.again if tool.writes else None,
                    open_world_hint=False,
                ),
            )
            for tool in self._backend.tools.values()
        ]
        return types.ListToolsResult(tools=tools)

    async def _call_tool(
        self, asked: Asked, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        tool = self._backend.tools.get(params.name)
        if tool is None:
            known = ", ".join(self._backend.tools)
            message = f"unknown tool {params.name[:60]!r}; known tools: {known}"
            raise MCPError(types.INVALID_PARAMS, message)
        woken, arguments = threading.Event(), params.arguments or {}
        if tool.name != "wait":
            return await self._called(tool, arguments, asked, woken, self._threads)
        try:
            with self._backend.waiting(asked.request):
                return await self._called(tool, arguments, asked, woken, self._waits)
        except Unavailable as busy:
            return refused(tool.name, busy, datetime.now(UTC))

    async def _called(
        self,
        tool: LeaseTool,
        arguments: Mapping[str, Any],
        asked: Asked,
        woken: threading.Event,
        threads: anyio.CapacityLimiter,
    ) -> types.CallToolResult:
        async with anyio.create_task_group() as group:
            group.start_soon(_notice_leaving, woken)
            if threads is self._waits:
                group.start_soon(_tell_waiting, asked)
            result = await anyio.to_thread.run_sync(
                lambda: self._act(tool, arguments, asked, woken), limiter=threads
            )
            group.cancel_scope.cancel()
        # Raised here, since a group would wrap it.
        if result is None:
            raise MCPError(types.INTERNAL_ERROR, BUG)
        return result

    def _act(
        self, tool: LeaseTool, arguments: Mapping[str, Any], asked: Asked, woken: threading.Event
    ) -> types.CallToolResult | None:
        """The result of a call; None for a bug in gitlease."""
        meta, caller = dict[str, Any](asked.meta or {}), None
        named: Mapping[str, str] = {}
        try:
            check_encodes(arguments, "the arguments have")
            # The SDK ignores unknown arguments: a mistyped option would claim on other terms.
            check_names(tool.takes, arguments, what=tool.name)
            place = AskedPlace.of(tool, arguments)
            named = place.named
            with self._backend.caller(meta, asked.request, woken, place) as caller:
                values = read_values(tool.takes, caller, arguments, what=tool.name)
                done = tool.act(caller, **{x: y for x, y in values.items() if x not in PLACE})
                words = self._backend.words
                refusals = [put_in_words(error, words) for error in done.refused]
                done = replace(done, refused=refusals, warnings=[*map(words, done.warnings)])
                if caller.begun and done.leases and (begun := caller.ledger.actor.session):
                    named = {**named, "session": begun}
                return answered(tool.name, done, datetime.now(UTC), named)
        except GitleaseError as error:
            shown = put_in_words(error, self._backend.words, tool.takes)
            now = datetime.now(UTC)
            return refused(tool.name, shown, now, caller=caller, arguments=arguments, place=named)
        except InterruptedError:
            ended = Unavailable("the wait was cancelled, or this server is being stopped")
            return refused(tool.name, ended, datetime.now(UTC))
        except Exception:
            # The client is told that it is a bug; the traceback is for whoever runs the server.
            logging.getLogger("gitlease").exception("%s", tool.name)
            return None


async def _notice_leaving(woken: threading.Event) -> None:
    # Ends a wait when its client cancels it or disconnects: a thread cannot be cancelled.
    try:
        await anyio.sleep_forever()
    finally:
        woken.set()


async def _tell_waiting(asked: Asked) -> None:
    for number in range(int(LONGEST_WAIT / EVERY)):
        seconds = number * EVERY
        await asked.session.report_progress(seconds, LONGEST_WAIT, f"waiting for {seconds:g}s")
        await anyio.sleep(EVERY)
