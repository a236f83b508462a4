"""The OpenAPI document of the gateway's own API, built from the tables that read its requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gitlease import __version__
from gitlease.core.frozen import dataclass
from gitlease.faces.http.fields import RequestField
from gitlease.faces.http.request_handler import Verb


@dataclass(frozen=True, slots=True)
class ApiOperation:
    """An endpoint, the verb behind it, and the fields of its body or query.

    ``grants``: it may create a lease (201). ``conditional``: it honours ``If-Match``. ``writes`` if
    it needs write access, or the flag of the body that does.
    """

    method: str
    path: str
    name: str
    verb: Verb
    fields: Mapping[str, RequestField]
    grants: bool = False
    conditional: bool = False
    writes: bool | str = False


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
_PROBLEM = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "code", "message"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string"},
        "message": {"type": "string"},
        "holder": {"type": ["string", "null"]},
        "session": {"type": ["string", "null"]},
        "expires_at": {"type": ["string", "null"]},
        "retry_after": {"type": "integer"},
        "next": {"type": "array", "items": {"type": "string"}},
    },
}
_ANSWER = {
    "type": "object",
    "required": ["schema", "ok", "command", "warnings"],
    "properties": {
        "schema": {"type": "integer"},
        "ok": {"type": "boolean"},
        "command": {"type": "string"},
        "warnings": {"type": "array", "items": {"type": "string"}},
        "leases": {"type": "array", "items": {"type": "object"}},
    },
}


def document(operations: Iterable[ApiOperation], bases: Iterable[str]) -> dict[str, Any]:
    """The OpenAPI 3.1 document of an API that is served below these paths."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
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
            "schemas": {"Problem": _PROBLEM, "Answer": _ANSWER},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "basic": {"type": "http", "scheme": "basic"},
                "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
            },
        },
    }


def _operation(operation: ApiOperation) -> dict[str, Any]:
    body = operation.method in ("PUT", "PATCH", "POST")
    parameters = [_header("Gitlease-Session", "The session of the token's holder.")]
    if "{key}" in operation.path:
        parameters.append(
            {
                "name": "key",
                "in": "path",
                "required": True,
                "schema": {"type": "string", "minLength": 1},
                "description": "A resource: a task id, a name, or a path; URL-encoded.",
            }
        )
    if operation.writes:
        parameters.append(
            _header("Idempotency-Key", "A request repeated under one key is done once.")
        )
    if operation.conditional:
        parameters.append(_header("If-Match", "The fencing token of the lease, in quotes."))
    if operation.name == "claim":
        parameters.append(_header("If-None-Match", "`*`: only if the caller does not hold it yet."))
    found: dict[str, Any] = {
        "operationId": operation.name,
        "summary": (operation.verb.__doc__ or "").partition("\n")[0].rstrip("."),
        "responses": _responses(operation),
    }
    if body:
        found["requestBody"] = {
            "required": any(x.required for x in operation.fields.values()),
            "content": {"application/json": {"schema": _schema(operation.fields)}},
        }
    else:
        parameters += [_query(name, field) for name, field in operation.fields.items()]
    return found | {"parameters": parameters}


def _responses(operation: ApiOperation) -> dict[str, Any]:
    answer = {"application/json": {"schema": {"$ref": "#/components/schemas/Answer"}}}
    problem = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    found: dict[str, Any] = {"200": {"description": "done", "content": answer}}
    if operation.grants:
        found["201"] = found["200"]
    return found | {
        str(status): {"description": text, "content": problem} for status, text in _ERRORS.items()
    }


def _schema(fields: Mapping[str, RequestField]) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": [name for name, field in fields.items() if field.required],
        "properties": {
            name: {**field.schema, "description": field.about} for name, field in fields.items()
        },
    }


def _query(name: str, field: RequestField) -> dict[str, Any]:
    return {
        "name": name,
        "in": "query",
        "required": field.required,
        "schema": field.schema,
        "description": field.about,
    }


def _header(name: str, about: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "schema": {"type": "string"}, "description": about}
