"""The one command that writes anew what is made from code: ``python tests/record.py``."""

from __future__ import annotations

KINDS = {
    "library": "the methods of the library, from the table of verbs",
    "settings": "the JSON schema of settings, from their declarations",
    "pages": "tables in the documents, and the schema of answers, from the table of verbs",
    "man": "the manual page, from the commands' help",
    "mechanisms": "the sizes in the table of mechanisms, where they are off by a tenth",
    "promises": "help, JSON, exit codes and messages as users and programs rely on them",
    "words": "the sentences of the tests that are named after it, or of all (this takes long)",
}


def how_to_record(kind: str, *tests: str) -> str:
    """The command that writes files of a kind; for a test that found them out of date."""
    assert kind in KINDS
    words = " ".join(["python tests/record.py", kind, *tests])
    return f"if this is meant, write it: {words}"
