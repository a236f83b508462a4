"""Who a holder is: when two emails are one person's."""

from __future__ import annotations

import string

_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


def person_key(email: str) -> str:
    """What is equal for two emails, or two names of people, of one person.

    They differ by the letter case of ASCII alone, as mail systems and git's mailmap have it.
    Nothing else of Unicode is folded as it is for resources: ``straße@`` and ``strasse@`` are two
    mailboxes, and often two persons.
    """
    return email.lower() if email.isascii() else email.translate(_LOWER)
