"""The manual page of ``git lease``, made from the commands' own help."""

from __future__ import annotations

import re
from pathlib import Path

import click

import gitlease
from gitlease.cli.app import ALIASES, application, groups
from gitlease.cli.call import Call
from gitlease.cli.setup.help import pages

FILE = Path(__file__).parents[2] / "gitlease/docs/git-lease.1"
SEE = """\
.BR git (1)
.PP
.B gitlease help
.I TOPIC
shows a page of the documentation: {topics}."""


def page() -> str:
    """The page as troff."""
    app = application()
    lines = [f'.TH GIT-LEASE 1 "" "gitlease {gitlease.__version__}" "gitlease"', ".nh", ".ad l"]
    about, _, more = (app.help or "").partition("\n\n")
    lines += [".SH NAME", rf"git-lease, gitlease \- {_text(_first(about))}"]
    lines += [".SH SYNOPSIS", ".B git lease", r"\fIVERB\fR [\fIWORDS\fR]..."]
    lines += [".SH DESCRIPTION", _text(about), *_paragraphs(more)]
    lines += [".SH OPTIONS", *_options(app)]
    for title, verbs in groups():
        lines.append(f".SH {_text(title.upper())}")
        for verb, _, _ in verbs:
            lines += _verb(app, verb)
    lines += [".SH OTHER NAMES"]
    lines += [x for alias, verb in ALIASES.items() for x in (".TP", f".B {alias}", verb)]
    return "\n".join([*lines, ".SH SEE ALSO", SEE.format(topics=", ".join(pages()))]) + "\n"


def _first(about: str) -> str:
    sentence = " ".join(about.split()).rstrip(".")
    return sentence[:1].lower() + sentence[1:]


def _verb(app: click.Group, name: str) -> list[str]:
    with click.Context(app, info_name="git lease", obj=Call(prog="git lease")) as root:
        command = app.get_command(root, name)
        assert command is not None
        with click.Context(command, info_name=name, parent=root) as context:
            usage = " ".join(command.collect_usage_pieces(context))
            formatter = context.make_formatter()
            command.format_epilog(context, formatter)
    lines = [f'.SS "{_text(f"git lease {name} {usage}")}"', *_paragraphs(command.help or "")]
    lines += _options(command, own=True)
    ending = formatter.getvalue().strip("\n")
    return [*lines, ".PP", ".nf", *(_text(x) for x in ending.splitlines()), ".fi"]


def _options(command: click.Command, *, own: bool = False) -> list[str]:
    """The options of a verb alone; those that all share stand on top."""
    shared = {name for x in application().params for name in x.opts}
    lines: list[str] = []
    with click.Context(command, help_option_names=[]) as context:
        for option in command.get_params(context):
            record = option.get_help_record(context)
            is_shared = own and not shared.isdisjoint(option.opts)
            if record is not None and record[1] and not is_shared:
                lines += [".TP", rf"\fB{_text(record[0])}\fR", _text(record[1])]
    return lines


def _paragraphs(text: str) -> list[str]:
    return [x for part in text.split("\n\n") if part.strip() for x in (".PP", _text(part))]


def _text(text: str) -> str:
    """Words that troff takes for nothing else."""
    found = text.replace("\\", r"\e").replace("-", r"\-").replace('"', r"\(dq")
    return re.sub(r"(?m)^([.'])", r"\\&\1", found)
