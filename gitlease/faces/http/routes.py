"""The routes of the gateway's own API, how requests' fields are read, and the OpenAPI document.

A verb of the table that changes leases has a route of its own, or ``POST /v1/leases:VERB``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from importlib.resources import files
from typing import Any

from gitlease import __version__
from gitlease.core.errors import UsageError
from gitlease.core.frozen import dataclass, replace
from gitlease.core.instant import format_duration
from gitlease.faces.http import leases
from gitlease.faces.http.request_handler import IGNORED, ApiAnswer, ApiRequest
from gitlease.verbs.parameters import DURATION, NUMBER, PATHS, SWITCH, TEXT, name_of_type
from gitlease.verbs.table import HTTP, TABLE, Kind, Parameter, find_verb, read_values

MOST = {"wait": 60, "limit": 1_000}  # seconds, since proxies time out after that; entries
LEASE, LEASES = "/v1/leases/{key}", "/v1/leases"

Answer = Callable[[ApiRequest, leases.GatewayDoor, dict[str, Any]], ApiAnswer]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRoute:
    """A route, its fields, and what answers with their values.

    ``grants``: it may create a lease (201). ``writes`` if it needs write access, or the field that
    does. A request has its fields in its body, except for a GET or DELETE.
    """

    method: str
    path: str
    name: str
    summary: str
    fields: Mapping[str, Parameter]
    answer: Answer
    grants: bool = False
    writes: bool | str = False

    @property
    def in_query(self) -> bool:
        """Whether a request has its fields in its query."""
        return self.method in ("GET", "DELETE")

    def respond(self, request: ApiRequest) -> ApiAnswer:
        """Answer a request. Raises UsageError for its fields, and what the verb may raise."""
        data, what = request.data, "the query" if self.in_query else "the body"
        if not isinstance(data, dict):
            raise UsageError(f"{what} must be a JSON object, not {name_of_type(data)}")
        given = {x: y for x, y in data.items() if x in self.fields or x not in IGNORED}
        for name in given if self.in_query else ():
            if name in self.fields and self.fields[name].kind.switch:
                if given[name] not in ("true", "false"):
                    raise UsageError(f"{name} must be true or false")
                given[name] = given[name] == "true"
        door = leases.GatewayDoor(request, given)
        values = read_values(self.fields, door, given, what=what)
        values.pop("session", None)
        for name, most in MOST.items():
            if values.get(name, 0) > most:
                shown = format_duration(most) if self.fields[name].kind is DURATION else most
                hints = ("repeat the request, or listen at /v1/events",) if name == "wait" else ()
                raise UsageError(f"{name} is at most {shown} here", hints=hints)
        return self.answer(request, door, values)


def _field(kind: Kind, about: str, *, required: bool = False) -> Parameter:
    default = False if kind.switch else None
    return Parameter(kind=kind, about=about, required=required, default=default)


_SESSION = {"session": _field(TEXT, "The session of the token's holder; also as Gitlease-Session.")}


def _parameters(verb: str, path: str) -> dict[str, Parameter]:
    """Return the parameters of a verb; a resource is in the path, or required."""
    found = find_verb(verb).at(HTTP)
    for name in found.keys() & {"resource", "resources"}:
        one = found.pop(name)
        if "{key}" not in path:
            found = {name: replace(one, required=True)} | found
    return found


def _of_verb(
    method: str, path: str, verb: str, name: str = "", *, writes: bool | str = True
) -> ApiRoute:
    """Return the route of a verb of the table."""
    declared = find_verb(verb)
    return ApiRoute(
        method=method,
        path=path,
        name=name or verb,
        summary=declared.help.partition("\n")[0],
        fields=_parameters(verb, path) | _SESSION,
        answer=lambda request, door, values: leases.carry_out(request, door, declared, values),
        grants=verb in ("claim", "next"),
        writes=writes,
    )


def _of_two(
    method: str, verb: str, other: str, chosen_by: str, field: Parameter, renamed: str = ""
) -> ApiRoute:
    """Return the route of a verb of one lease, and of another one that a field chooses instead.

    ``renamed`` is the other's parameter that the field is, if it is one.
    """
    first, second = _of_verb(method, LEASE, verb), find_verb(other)
    more = {name: one for name, one in _parameters(other, LEASE).items() if name != renamed}
    known = (set(first.fields) - set(_SESSION), set(more))

    def answer(request: ApiRequest, door: leases.GatewayDoor, values: dict[str, Any]) -> ApiAnswer:
        chosen = values.pop(chosen_by, None)
        if odd := next((x for x in values if x not in known[bool(chosen)]), None):
            way = f"and {chosen_by} exclude each other" if chosen else f"needs {chosen_by}"
            raise UsageError(f"{odd} {way}")
        if not chosen:
            return first.answer(request, door, values)
        values |= {renamed: chosen} if renamed else {}
        return leases.carry_out(request, door, second, values)

    fields = {**first.fields, **more, chosen_by: replace(field, name=chosen_by, required=False)}
    return replace(first, fields=fields, answer=answer)


def _of_door(
    method: str, path: str, name: str, answer: Answer, fields: Mapping[str, Parameter] | None = None
) -> ApiRoute:
    """Return the route of what only this door has."""
    summary = (answer.__doc__ or "").partition("\n")[0].rstrip(".")
    return ApiRoute(
        method=method, path=path, name=name, summary=summary, fields=fields or {}, answer=answer
    )


def _others(routed: Iterable[str]) -> list[ApiRoute]:
    """Return routes for the verbs that change leases and have none, or only one for one lease."""
    found = []
    for verb in TABLE:
        declared = find_verb(verb)
        offered = declared.at(HTTP)
        missing = any(x.required and n not in offered for n, x in declared.parameters.items())
        several = "resources" in offered
        if not declared.reads and not missing and (several or verb not in routed):
            name = f"{verb}_several" if verb in routed else verb
            found.append(_of_verb("POST", f"{LEASES}:{verb}", verb, name))
    return found


_LIST = {
    "holder": _field(TEXT, "Only leases of this holder."),
    "state": _field(
        TEXT,
        "Only leases in this state: active, expired, completed, released and revoked (lately), or "
        "all (default: those that block others: active, and expired until they lapse).",
    ),
    "path": _field(TEXT, "Only leases that cover this path."),
    "cursor": _field(TEXT, "The next_cursor of the page before."),
    "limit": _field(NUMBER, "The most to return: 1 to 1000 (default: 200)."),
}
_ROUTES = [
    _of_verb("PUT", LEASE, "claim"),
    _of_two(
        *("PATCH", "renew", "extend", "extend"),
        find_verb("extend")
        .parameters["duration"]
        .but("Stretch it to at least this long from now, instead of renewing it."),
        renamed="duration",
    ),
    _of_two(
        *("DELETE", "release", "done", "done"),
        _field(SWITCH, "The work is finished, and the lease ends completed."),
    ),
    _of_verb("POST", "/v1/tasks:next", "next", writes="claim"),
]
ROUTES: tuple[ApiRoute, ...] = (
    *_ROUTES,
    *_others(("claim", "renew", "extend", "release", "done", "next")),
    _of_door("GET", LEASE, "show", leases.get_lease),
    _of_door("GET", LEASES, "list", leases.list_leases, _LIST),
    _of_door(
        *("POST", "/v1/check", "check", leases.check_paths),
        {"paths": _field(PATHS, "Paths about to be changed.", required=True)} | _SESSION,
    ),
    _of_door(
        *("GET", "/v1/tasks", "tasks", leases.list_tasks),
        {"mine": _field(SWITCH, "What the caller carries instead, with the state of each lease.")}
        | _SESSION,
    ),
    _of_verb("GET", "/v1/history/{key}", "log", "history", writes=False),
)

# --- the OpenAPI document ---------------------------------------------------------------------

_ERRORS = {
    400: "bad arguments",
    401: "no token, or an invalid one",
    403: "the token or the remote does not allow it",
    404: "not found",
    408: "the body arrived too slowly",
    409: "another holder has it, or the ledger was replaced",
    412: "the caller does not hold it, or no longer does",
    413: "the body is too large",
    421: "the gateway does not answer for this host",
    422: "refused by policy",
    429: "too many requests",
    500: "a damaged record, or a bug in gitlease",
    503: "the remote cannot be reached",
    504: "the outcome of the change is unknown",
}
_TEXT = {"type": "string"}


def openapi_document(bases: Iterable[str]) -> dict[str, Any]:
    """The OpenAPI 3.1 document of the API, which is served below these paths."""
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    published = files("gitlease").joinpath("docs/answers.schema.json").read_text(encoding="utf-8")
    answer = json.loads(published.replace("#/$defs/", "#/components/schemas/"))
    shapes = answer.pop("$defs")
    # A request that no verb has seen has no lease, and so not all of a refusal.
    always = ["type", "title", "status", "detail", "code", "message"]
    shapes |= {"Answer": answer, "Problem": shapes["error"] | {"required": always}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "gitlease",
            "version": __version__,
            "description": "Leases for a repository. The token determines the holder.",
        },
        "servers": [{"url": base or "/"} for base in bases],
        "security": [{"bearer": []}, {"basic": []}, {"key": []}],
        "paths": paths,
        "components": {
            "schemas": shapes,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "basic": {"type": "http", "scheme": "basic"},
                "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
            },
        },
    }


def _operation(route: ApiRoute) -> dict[str, Any]:
    headers = {"Gitlease-Session": "The session of the token's holder."}
    if route.writes:
        headers["Idempotency-Key"] = "A request repeated under one key is done once."
    if route.path == LEASE:
        headers["If-Match"] = "The fencing token of the lease, in quotes."
    if route.name == "claim":
        headers["If-None-Match"] = "`*`: only if the caller does not hold it yet."
    parameters = [_described(x, "header", about, _TEXT) for x, about in headers.items()]
    if "{key}" in route.path:
        about = "A resource: a task id, a name, or a path; URL-encoded."
        key = _described("key", "path", about, {**_TEXT, "minLength": 1}, required=True)
        parameters.append(key)
    found: dict[str, Any] = {"operationId": route.name, "summary": route.summary}
    if route.in_query:
        parameters += [
            _described(name, "query", x.about, x.kind.schema, required=x.required)
            for name, x in route.fields.items()
        ]
    else:
        required = [name for name, x in route.fields.items() if x.required]
        schema = {
            "type": "object",
            "additionalProperties": False,
            "required": required,
            "properties": {
                name: {**x.kind.schema, "description": x.about} for name, x in route.fields.items()
            },
        }
        content = {"application/json": {"schema": schema}}
        found["requestBody"] = {"required": bool(required), "content": content}
    done = {200: "done"} | ({201: "done"} if route.grants else {})
    responses = {
        str(status): _response(text, "application/json", "Answer") for status, text in done.items()
    }
    for status, text in _ERRORS.items():
        responses[str(status)] = _response(text, "application/problem+json", "Problem")
    return found | {"parameters": parameters, "responses": responses}


def _response(text: str, media: str, schema: str) -> dict[str, Any]:
    content = {media: {"schema": {"$ref": f"#/components/schemas/{schema}"}}}
    return {"description": text, "content": content}


def _described(
    name: str, where: str, about: str, schema: Mapping[str, object], *, required: bool = False
) -> dict[str, Any]:
    found = {"name": name, "in": where, "schema": schema, "description": about}
    return found | ({"required": True} if required else {})
