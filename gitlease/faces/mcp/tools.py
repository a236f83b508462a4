"""The tools: their arguments, what they do, and their answers as an agent sees them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import reduce
from typing import Any

from mcp import types

from gitlease.core.errors import GitleaseError, UsageError
from gitlease.core.frozen import dataclass, replace
from gitlease.core.instant import format_duration, moment_of
from gitlease.core.moves.operations import MAX_NOTE, MAX_REASON
from gitlease.core.resources.pattern import fold
from gitlease.core.resources.resource import WHOLE, Resource, reads_as_name, word_anywhere
from gitlease.core.view import LeaseView
from gitlease.engine import acts, claim
from gitlease.engine.answers import Answer, ClaimOptions, joined
from gitlease.engine.reading import read_leases
from gitlease.faces.http import fields
from gitlease.faces.http.fields import RequestField
from gitlease.faces.library.refusals import with_arguments
from gitlease.faces.mcp.callers import ToolCaller
from gitlease.verbs import sentences, task_text, wire

LONGEST_WAIT = 50  # seconds: hosts give a call a minute
Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolAnswer:
    """The answer of a tool: the contract's body, and the same as text.

    ``refused`` has the refusals of a call for several leases.
    """

    body: wire.Document
    lines: Sequence[str]
    refused: Sequence[GitleaseError] = ()
    warnings: Sequence[str] = ()
    next_steps: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTool:
    """A tool. ``writes``: it changes the ledger; ``again``: it is idempotent."""

    name: str
    about: str
    fields: Mapping[str, RequestField]
    act: Callable[[ToolCaller, Values], ToolAnswer]
    writes: bool = True
    destroys: bool = False
    again: bool = False

    def schema(self) -> dict[str, Any]:
        """The JSON schema of its arguments."""
        properties = {
            name: {**field.schema, **({"description": field.about} if field.about else {})}
            for name, field in self.fields.items()
        }
        required = [name for name, field in self.fields.items() if field.required]
        more = {"required": required} if required else {}
        return {"type": "object", "properties": properties, **more, "additionalProperties": False}


def call_of(tool: str, **arguments: Any) -> str:
    """A suggested call: the tool and its arguments."""
    given = {name: value for name, value in arguments.items() if value not in (None, WHOLE)}
    return f"{tool} {json.dumps(given, ensure_ascii=False)}"


def now_of(caller: ToolCaller) -> datetime:
    return moment_of(caller.ledger.clock.now().wall_ms)


# --- actions ----------------------------------------------------------------------------------


def _claim(caller: ToolCaller, values: Values) -> ToolAnswer:
    words, paths = values["resources"], values.get("paths", ())
    resources, options, warnings = caller.plan(words, paths, fields.claim_options(values))
    return _claimed(caller, caller.claim(resources, options), warnings)


def _claimed(
    caller: ToolCaller,
    answer: Answer,
    warnings: Sequence[str] = (),
    task: wire.Document | None = None,
) -> ToolAnswer:
    warnings = (*warnings, *answer.warnings, *caller.granted(answer))
    now, lines = now_of(caller), list[str]()
    for view in answer.leases:
        done = "renewed your own" if view.renewals else "claimed"
        lines.append(f"{done} {_held(view, now)}")
    for old in answer.displaced:
        lines.append(f"{sentences.displaced(old)}{sentences.quoted(old.reason)}")
    people = caller.ledger.edges.rules.people
    lines += [f"taken over from {name}" for name in task_text.unassigned(answer, people)]
    lines += task_text.edited(answer)
    lines += [sentences.noted(note, now) for note in answer.notes]
    names = [view.resource for view in answer.leases]
    scope = answer.leases[0].scope
    steps = [call_of("renew", resources=names, scope=scope)]
    if len(names) == 1 and reads_as_name(names[0]):
        steps.append(call_of("release", resources=names, scope=scope, done=True))
    steps.append(call_of("release", resources=names, scope=scope))
    body = ({"task": task} if task is not None else {}) | wire.claimed(answer)
    return ToolAnswer(body=body, lines=lines, warnings=warnings, next_steps=steps)


def _renew(caller: ToolCaller, values: Values) -> ToolAnswer:
    resources = [caller.resource(word) for word in values.get("resources", ())]
    scope = values.get("scope")
    if scope is not None and not resources:
        raise UsageError("scope needs resources")
    answer = caller.renew(resources, scope=scope, ttl=values.get("ttl"))
    return _changed(caller, "renewed", answer)


def _extend(caller: ToolCaller, values: Values) -> ToolAnswer:
    ((ledger, (resource,)),) = caller.by_ledger([_only(caller, values)])
    answer = acts.extend(ledger, resource, values["duration"], scope=values.get("scope"))
    capped = {"capped_to_max": answer.capped_to_max, "max_ttl_seconds": answer.max_ttl_seconds}
    warning = ("capped to the maximum of the ledger's policy",)
    return _changed(caller, "extended", answer, capped, warning if answer.capped_to_max else ())


def _changed(
    caller: ToolCaller,
    done: str,
    answer: Answer,
    more: wire.Document | None = None,
    warnings: Sequence[str] = (),
) -> ToolAnswer:
    warnings = (*warnings, *answer.warnings, *caller.granted(answer))
    now = now_of(caller)
    lines = [
        f"completed {view.resource}" if view.state == "completed" else f"{done} {_held(view, now)}"
        for view in answer.leases
    ]
    if not lines and not answer.refused:
        lines = ["nothing to renew: you hold no leases here"]
    return ToolAnswer(
        body=wire.changed(answer) | (more or {}),
        lines=lines,
        refused=answer.refused,
        warnings=warnings,
    )


def _release(caller: ToolCaller, values: Values) -> ToolAnswer:
    scope, note, words = values.get("scope"), values.get("note"), values["resources"]
    resources = [caller.resource(word) for word in words]
    parts = caller.by_ledger(resources)
    if not values.get("done", False):
        done = [acts.release(ledger, some, scope=scope, note=note) for ledger, some in parts]
        return _ended(reduce(joined, done), f"released {', '.join(words)}")
    if note is not None:
        raise UsageError("note and done exclude each other: a note is for the next holder")
    if len(resources) != 1:
        raise UsageError("done finishes one resource at a time", hints=("call release for each",))
    answer = acts.complete(parts[0][0], resources[0], scope=scope)
    return _ended(answer, f"finished {words[0]}")


def _ended(answer: Answer, line: str) -> ToolAnswer:
    lines = [line, *task_text.edited(answer)]
    return ToolAnswer(body=wire.ended(answer), lines=lines, warnings=answer.warnings)


def _next(caller: ToolCaller, values: Values) -> ToolAnswer:
    if values.get("claim", False):
        options = ClaimOptions(ttl=values.get("ttl"), reason=values.get("reason"))
        answer, task = caller.queue.claim_next(options)
        return _claimed(caller, answer, task=wire.task(task))
    if odd := [x for x in ("ttl", "reason") if x in values]:
        raise UsageError(f"{odd[0]} needs claim")
    reading = caller.queue.next_task()
    entry = reading.next_up[0]
    name, title = entry.task.resource.text, task_text.titled(entry.task)
    return ToolAnswer(
        body={"task": wire.entry(entry, reading.views)},
        lines=[f"{name}: {title}" if title else name],
        warnings=reading.warnings,
        next_steps=[call_of("next", claim=True)],
    )


def _status(caller: ToolCaller, values: Values) -> ToolAnswer:
    mine, now = values.get("mine", False), now_of(caller)
    if mine:
        caller.ledger.check_holder()
    found, lines = dict[str, LeaseView](), list[str]()
    body: wire.Document = {"leases": []}
    warnings: list[str] = []
    for word in values.get("resources", (None,)):
        resource = None if word is None else caller.resource(word)
        reading = read_leases(caller.ledger, resource=resource)
        leases = map(caller.own, reading.leases)
        live = [x for x in leases if x.is_current(now) or resource is not None]
        found |= {x.lease_id: x for x in live if x.mine or not mine}
        warnings += reading.warnings
        if resource is not None:
            body["notes"] = [*body.get("notes", ()), *map(wire.note, reading.notes)]
            body["waiting"] = [*body.get("waiting", ()), *wire.waiting(reading.waiting)]
            kept = (x.is_current(now) or (x.state == "expired" and x.assigned) for x in live)
            free = [] if any(kept) else [sentences.unleased(str(resource), reading.waiting)]
            lines += free
            lines += [sentences.noted(note, now) for note in reading.notes]
    body["leases"] = [wire.lease(view) for view in found.values()]
    lines = [_described(view, now) for view in found.values()] + lines
    if mine and "resources" not in values:
        known = caller.queue.mine(cached=True)  # what was read just now
        body["carrying"] = wire.carried(known)
        for one in known.carried:
            view = None if one.lease is None else known.views[one.lease.lease_id]
            if view is None or view.lease_id not in found:
                lines.append(f"you carry {one.resource}: {task_text.how(one, view, now)}")
    lines = lines or ["you hold nothing" if mine else "nothing is leased"]
    return ToolAnswer(body=body, lines=lines, warnings=tuple(dict.fromkeys(warnings)))


def _described(view: LeaseView, now: datetime) -> str:
    yours = "yours, " if view.mine else ""
    left = f"{sentences.until(view, now)}{sentences.quoted(view.reason)}"
    return f"{sentences.named(view)}: {yours}{sentences.whose(view)}, {left}"


def _wait(caller: ToolCaller, values: Values) -> ToolAnswer:
    seconds = values.get("timeout", LONGEST_WAIT)
    if seconds > LONGEST_WAIT:
        longest = format_duration(LONGEST_WAIT)
        raise UsageError(f"timeout is at most {longest}", hints=("call wait again afterwards",))
    words, scope = values["resources"], values.get("scope", WHOLE)
    resources = [caller.resource(word) for word in words]
    answer = claim.wait(caller.ledger, resources, scope=scope, seconds=seconds)
    return ToolAnswer(
        body=wire.changed(answer),
        lines=[f"free: {', '.join(words)}; claim what you wanted now"],
        warnings=answer.warnings,
    )


def _note(caller: ToolCaller, values: Values) -> ToolAnswer:
    resource = _only(caller, values)
    answer = acts.note(caller.ledger, resource, values["text"])
    line = f"left a note on {resource}"
    return ToolAnswer(body=wire.changed(answer), lines=[line], warnings=answer.warnings)


def _only(caller: ToolCaller, values: Values) -> Resource:
    """The resource of a tool that takes one."""
    words = values["resources"]
    if len(words) != 1:
        raise UsageError("this takes one resource at a time", hints=("call it for each",))
    return caller.resource(words[0])


def _held(view: LeaseView, now: datetime) -> str:
    return f"{sentences.named(view)} {sentences.until(view, now)}, token {view.token}"


# --- arguments --------------------------------------------------------------------------------


def _words(about: str, *, required: bool = True) -> RequestField:
    # A list of strings, or a single one.
    schema = {"type": ["array", "string"], "items": {"type": "string"}}

    def read(data: Any, name: str) -> tuple[str, ...]:
        return tuple(fields.read_text(x, name) for x in fields.read_list(data, name))

    return RequestField(read, schema, about, required)


def _duration(about: str, *, required: bool = False) -> RequestField:
    field = fields.duration(about, required=required)
    return replace(field, schema={"type": ["string", "integer"]})


def _text(about: str, *, limit: int, lines: bool = False, required: bool = False) -> RequestField:
    field = fields.shown_text(about, limit=limit, lines=lines)
    return replace(field, schema={"type": "string"}, required=required)


def _flag(about: str) -> RequestField:
    return replace(fields.flag(about), schema={"type": "boolean"})


SCOPE = RequestField(fields.SCOPE.read, {"type": "string"}, "A part of the work.")
TTL = _duration("15m, 2h or seconds.")
RESOURCES = _words("")
REASON = _text("Shown to others.", limit=MAX_REASON)

TOOLS: Mapping[str, LeaseTool] = {
    tool.name: tool
    for tool in (
        LeaseTool(
            name="claim",
            about="Lease resources before you edit, all or none: task ids (F001), names "
            "(deploy-prod) or paths (src/auth/). Others are refused until it ends. "
            "Claiming your own renews it.",
            fields={
                "resources": RESOURCES,
                "paths": _words("Paths to cover besides.", required=False),
                "scope": SCOPE,
                "ttl": TTL,
                "reason": REASON,
                "takeover": _flag("If the user says so: replace an assignment; needs reason."),
                "expect_holder": _text("Take over only from this holder.", limit=MAX_REASON),
                "reopen": _flag("Claim completed work."),
                "any": _flag("Allow names that are not tasks."),
                "new": _flag("Refuse if you hold it already."),
            },
            act=_claim,
            destroys=True,
            again=True,
        ),
        LeaseTool(
            name="renew",
            about="Keep leases while you work: these, or all of yours. Lost: stop that work.",
            fields={"resources": _words("", required=False), "scope": SCOPE, "ttl": TTL},
            act=_renew,
            again=True,
        ),
        LeaseTool(
            name="extend",
            about="Stretch a lease to at least this long from now, for a known pause.",
            fields={
                "resources": RESOURCES,
                "duration": _duration("", required=True),
                "scope": SCOPE,
            },
            act=_extend,
            again=True,
        ),
        LeaseTool(
            name="release",
            about="Give leases back when you stop; with done, finish one task.",
            fields={
                "resources": RESOURCES,
                "scope": SCOPE,
                "note": _text("How far you got, for the next holder.", limit=MAX_NOTE, lines=True),
                "done": _flag("The work is finished."),
            },
            act=_release,
            destroys=True,
            again=True,
        ),
        LeaseTool(
            name="next",
            about="The next task of the queue; with claim it is claimed at once, for you alone.",
            fields={"claim": _flag(""), "ttl": TTL, "reason": REASON},
            act=_next,
        ),
        LeaseTool(
            name="status",
            about="Who holds what, until when; of these resources or of all.",
            fields={
                "resources": _words("", required=False),
                "mine": _flag("What you hold and are assigned."),
            },
            act=_status,
            writes=False,
        ),
        LeaseTool(
            name="wait",
            about=f"Wait until resources are free, {LONGEST_WAIT}s at most; claims nothing.",
            fields={
                "resources": RESOURCES,
                "scope": SCOPE,
                "timeout": _duration(""),
            },
            act=_wait,
            again=True,
        ),
        LeaseTool(
            name="note",
            about="Leave a note for the next holder of a resource.",
            fields={
                "resources": RESOURCES,
                "text": _text("", limit=MAX_NOTE, lines=True, required=True),
            },
            act=_note,
        ),
    )
}


def answered(tool: str, answer: ToolAnswer, now: datetime) -> types.CallToolResult:
    """The result of a tool; if part of it was refused, it is an error."""
    if answer.refused:
        return refused(tool, answer.refused[0], now, {}, answer=answer)
    document = wire.success(
        tool, body=answer.body, warnings=answer.warnings, next_steps=answer.next_steps
    )
    lines = [*answer.lines, *_warnings(answer.warnings)]
    return _result(lines, answer.next_steps, document)


def refused(
    tool: str,
    error: GitleaseError,
    now: datetime,
    arguments: Mapping[str, Any],
    *,
    answer: ToolAnswer | None = None,
) -> types.CallToolResult:
    """The result of a refusal: who has the lease, until when, and what to do.

    ``answer`` is that of a call which was refused in part.
    """
    all_refused = answer.refused if answer else ()
    body = dict(answer.body) if answer else {}
    if all_refused:
        body["refused"] = [wire.refusal(x, now=now) for x in all_refused]
    error.message = _in_calls(error.message)
    error.hints = tuple(map(_in_calls, error.hints))
    steps = _next_calls(error, arguments)
    document = wire.failure(tool, error, now=now, next_steps=steps, body=body)
    lines = [
        *(answer.lines if answer else ()),
        f"{error.code}: {sentences.refusal(error, now)}",
        *(f"{x.code}: {sentences.refusal(x, now)}" for x in all_refused[1:]),
        *sentences.others_in_the_way(error, now),
        *(f"hint: {hint}" for hint in (*error.hints, *_advice(error))),
        *_warnings(error.warnings),
    ]
    return _result(lines, steps, document, is_error=True)


def put_in_words(error: GitleaseError, words: Callable[[str], str]) -> None:
    """Change the texts of a refusal as the clients of a server may read them."""
    error.message = words(error.message)
    error.hints = tuple(map(words, error.hints))
    error.warnings = tuple(map(words, error.warnings))


def _result(
    lines: Sequence[str], steps: Sequence[str], document: wire.Document, *, is_error: bool = False
) -> types.CallToolResult:
    text = "\n".join([*lines, *(f"next: {step}" for step in steps)])
    content: list[types.ContentBlock] = [types.TextContent(type="text", text=text)]
    return types.CallToolResult(content=content, structured_content=document, is_error=is_error)


def _warnings(warnings: Sequence[str]) -> list[str]:
    return [f"warning: {text}" for text in warnings]


def _in_calls(text: str) -> str:
    return with_arguments(text, on="{}: true")


def _advice(error: GitleaseError) -> Sequence[str]:
    if error.code == "lost":
        return ("stop the work that it covers",)
    if error.by_edge and error.holder:
        return (f"ask {error.to_ask}, or take another task",)
    if error.code in sentences.IN_THE_WAY and error.views and not error.views[0].mine:
        return ("work on something else, or ask the holder to release it",)
    return ()


def _next_calls(error: GitleaseError, arguments: Mapping[str, Any]) -> list[str]:
    # All are safe: none takes a lease from its holder.
    name, scope = word_anywhere(error.resource or ""), error.scope
    if error.code in ("held", "wait_timeout") and name and error.free_at and not error.by_edge:
        words = list(arguments.get("resources", (name,)))
        others = dict.fromkeys(word_anywhere(x.resource) for x in error.views)
        if not {fold(x) for x in others} <= {fold(x) for x in words}:
            words, scope = list(others), None  # these conflict by their paths
        return [call_of("wait", resources=words, scope=scope, timeout=LONGEST_WAIT)]
    if name and error.code in (*sentences.IN_THE_WAY, "lost", "unknown_outcome"):
        return [call_of("status", resources=[name])]
    if error.code == "nothing_left":
        return [call_of("status")]
    return []
