"""The methods of the library that are verbs, written from their table."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

import gitlease
from gitlease.library.methods import (
    OF_A_CLONE,
    OF_A_GATEWAY,
    Method,
)

LIBRARY = Path(gitlease.__file__).parent / "library"
WIDTH = 100
HEAD = '''"""{about}

Written by `python tests/record.py library` from the table of verbs: do not edit.
"""

from __future__ import annotations

{imports}'''
# What an annotation needs when the module is loaded, so that ``typing.get_type_hints`` works, and
# the modules that only type checkers need, as they take long to load.
LOADED = {
    "Callable": "collections.abc",
    "Iterable": "collections.abc",
    "Iterator": "collections.abc",
    "Mapping": "collections.abc",
    "Sequence": "collections.abc",
    "datetime": "datetime",
    "TYPE_CHECKING": "typing",
    "Any": "typing",
    "Literal": "typing",
    "Protocol": "typing",
    "TypeVar": "typing",
    "Task": "gitlease.kernel.rules.edge",
    "Entry": "gitlease.tasks.queue",
    "OwnSession": "gitlease.kernel.ledger.sessions",
    "WatchEvent": "gitlease.kernel.ledger.watch",
    "Duration": "gitlease.library.methods",
    "ResourceLike": "gitlease.library.methods",
    "StrPath": "gitlease.library.methods",
    "library_verb": "gitlease.library.methods",
    "Board": "gitlease.library.values",
    "InitResult": "gitlease.library.values",
    "Lease": "gitlease.library.values",
    "LedgerStatus": "gitlease.library.values",
    "LogEntry": "gitlease.library.values",
    "QueueReading": "gitlease.library.values",
    "RunResult": "gitlease.library.values",
    "WhoAmI": "gitlease.library.values",
    "WorkResult": "gitlease.library.values",
    "Setting": "gitlease.wiring.workspace",
}
CHECKED = {
    "CheckResult": "gitlease.check.rules",
    "Landed": "gitlease.landing.landing",
    "WorkEvent": "gitlease.runs.verbs",
    "Verified": "gitlease.check.replay",
}


def fitted(begin: str, items: Sequence[str], end: str, *, indent: int) -> str:
    """A list in brackets as ruff formats it: in one line if it fits, else an item a line."""
    line = f"{begin}{', '.join(items)}{end}"
    if len(line) + indent <= WIDTH:
        return line
    return f"{begin}\n" + "".join(f"    {x},\n" for x in items) + end


def method_text(method: Method, *, home: str, awaited: bool) -> str:
    """A method, with its help, that hands its arguments on."""
    shown, star = ["self"], False
    by_place, by_name = list[str](), list[str]()
    for one in list(method.signature.parameters.values())[1:]:
        spread = one.kind is one.VAR_POSITIONAL
        if one.kind is one.KEYWORD_ONLY and not star:
            shown, star = [*shown, "*"], True
        star |= spread
        usual = "" if one.default is one.empty else f" = {quoted(one.default)}"
        shown.append(f"{'*' * spread}{one.name}: {one.annotation}{usual}")
        named = one.kind is one.KEYWORD_ONLY
        (by_name if named else by_place).append(one.name if named else f"{'*' * spread}{one.name}")
    begin = f"{'async ' * awaited}def {method.name}("
    head = fitted(begin, shown, f") -> {method.answer}:", indent=4)
    lines = textwrap.indent(method.doc, "    ").strip()
    doc = f'    """{lines}' + ('\n    """' if "\n" in lines else '"""')
    body = textwrap.indent(call_text(method, home, by_place, by_name, awaited=awaited), "    ")
    return f"@library_verb\n{head}\n{doc}\n{body}\n"


def call_text(
    method: Method, home: str, by_place: Sequence[str], by_name: Sequence[str], *, awaited: bool
) -> str:
    options = [f'"{x}": {x}' for x in by_name]
    answers = method.answer != "None"
    if not awaited:
        given = [f'"{x.lstrip("*")}": {x.lstrip("*")}' for x in by_place] + options
        begin = f"answer: {method.answer} = " if answers else ""
        made = fitted("given: dict[str, Any] = {", given, "}", indent=8)
        made = f'{made}\n{begin}self._carry_out("{method.name}", given)'
        return made + ("\nreturn answer" if answers else "")
    made = fitted("options: dict[str, Any] = {", options, "}", indent=8)
    if len(by_place) == 1:
        args = by_place[0][1:] if by_place[0].startswith("*") else f"({by_place[0]},)"
    else:
        args = f"({', '.join(by_place)})"
    grants = ", grants=True" if method.grants else ""
    call = f"await self._call({home}.{method.name}, {args}, options{grants})"
    return f"{made}\n{'return ' if answers else ''}{call}"


def quoted(value: object) -> str:
    """A default as the formatter has it."""
    return f'"{value}"' if isinstance(value, str) else repr(value)


def class_text(name: str, of: str, methods: Sequence[Method], *, awaited: bool = False) -> str:
    home = name.removeprefix("Awaited")
    asked = textwrap.dedent(_AWAITED_CALL if awaited else _PLAIN_CALL).strip()
    bodies = [asked]
    bodies += [
        method_text(x, home=home, awaited=awaited) for x in methods if not (awaited and x.streams)
    ]
    body = textwrap.indent("\n".join(x.rstrip() + "\n" for x in bodies), "    ")
    return f'\n\nclass {name}(Protocol):\n    """The verbs of ``{of}``."""\n\n{body}'


_PLAIN_CALL = '''
def _carry_out(self, name: str, given: Mapping[str, Any]) -> Any:
    """Carry out the method of this name with these arguments."""
'''
_AWAITED_CALL = '''
async def _call(
    self, verb: Callable[..., T], args: Any, options: Any, *, grants: bool = False
) -> T:
    """Carry out a method in a thread of its own."""
    raise NotImplementedError
'''


def imports_text(body: str) -> str:
    """The imports that a module's text needs."""
    words = {*_words(body)}
    loaded = {x: y for x, y in LOADED.items() if x in words}
    checked = {x: y for x, y in CHECKED.items() if x in words}
    if checked:
        loaded["TYPE_CHECKING"] = "typing"
    text, own = "", False
    for module in sorted({*loaded.values()}, key=lambda x: (x.startswith("gitlease"), x)):
        text += "\n" if module.startswith("gitlease") and not own else ""
        own |= module.startswith("gitlease")
        text += _from(module, [x for x, y in loaded.items() if y == module])
    if checked:
        lines = (_from(y, [x]) for x, y in sorted(checked.items(), key=lambda x: x[1]))
        text += f"\nif TYPE_CHECKING:\n{textwrap.indent(''.join(lines), '    ')}"
    return text + ('\nT = TypeVar("T")\n' if "TypeVar" in loaded else "")


def _words(text: str) -> list[str]:
    import io
    import tokenize

    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [x.string for x in tokens if x.type == tokenize.NAME]


def _from(module: str, names: Sequence[str]) -> str:
    order = sorted(names, key=lambda x: (not x.isupper(), not x[0].isupper(), x.lower()))
    line = f"from {module} import {', '.join(order)}"
    if len(line) > WIDTH:
        line = fitted(f"from {module} import (", order, ")", indent=0)
    return f"{line}\n"


def module_text(about: str, body: str) -> str:
    needs = body + ("\nTypeVar" if "-> T:" in body else "")
    return HEAD.format(about=about, imports=imports_text(needs)) + body


def texts() -> dict[str, str]:
    """The files, by their names."""
    clone = class_text("LeaseVerbs", "Leases", OF_A_CLONE)
    clone += class_text("AwaitedLeaseVerbs", "AsyncLeases", OF_A_CLONE, awaited=True)
    gateway = class_text("GatewayVerbs", "Connection", OF_A_GATEWAY)
    gateway += class_text("AwaitedGatewayVerbs", "AsyncConnection", OF_A_GATEWAY, awaited=True)
    return {
        "lease_verbs.py": module_text("The verbs of ``gitlease.open`` and ``open_async``.", clone),
        "gateway_verbs.py": module_text(
            "The verbs of ``gitlease.connect`` and ``connect_async``.", gateway
        ),
    }
