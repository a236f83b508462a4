"""Who a holder is: when two emails are one person's."""

from __future__ import annotations

import re

from gitlease.core.errors import MAX_WORD

# What GitHub writes where somebody keeps their address private: the login is in it.
_NO_REPLY = r"(?:[0-9]+\+)?([^+@\s]+)@users\.noreply\.github\.com"  # compiled where it is used
_LOWER = {ord(x): x.lower() for x in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}


def is_holder(email: str) -> bool:
    """Whether this can name a holder: one printable word of at most MAX_WORD characters."""
    return email.split() == [email] and email.isprintable() and len(email) <= MAX_WORD


def person_key(email: str) -> str:
    """The key that the emails, or names, of one person share: ASCII letters in lower case.

    As for mail systems and git's mailmap, nothing else of Unicode is folded: ``straße@`` and
    ``strasse@`` are two mailboxes, and often two persons.
    """
    return email.lower() if email.isascii() else email.translate(_LOWER)


def login_of(email: str) -> str | None:
    """The login of a host that an address hides behind; None for any other address."""
    found = re.fullmatch(_NO_REPLY, person_key(email))
    return None if found is None else found[1]
