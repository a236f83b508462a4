"""Text that a terminal may be given."""

from __future__ import annotations


def clean(text: str) -> str:
    """Text safe for a terminal: whatever does not print is spelt out, but for line ends and tabs.

    Records and remotes are not trusted: an escape sequence could hide or forge what is shown.
    """
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text
    )
