"""Writes what is made from code: ``python tests/record.py [KIND [TEST…]]``.

Without a word it writes all files that come from the table of verbs, the settings and the help. The
sentences of tests come from running these tests, and so only if they are asked for:
``python tests/record.py words tests/tools/test_doctor.py``. Read the diff as you would the code's.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

TESTS = Path(__file__).resolve().parent
sys.path[:0] = [str(TESTS), str(TESTS.parent)]

from support.recording import KINDS  # noqa: E402


def library() -> dict[Path, str]:
    """The methods of the library."""
    from support import library_methods

    return {library_methods.LIBRARY / x: y for x, y in library_methods.texts().items()}


def settings() -> dict[Path, str]:
    """The schema of settings."""
    from support.documents import DOCS, settings_schema, written

    return {DOCS / "settings.schema.json": written(settings_schema())}


def pages() -> dict[Path, str]:
    """The documents, with their tables made anew."""
    from verbs.test_documents import MADE

    return {file: make(file.read_text(encoding="utf-8")) for file, make in MADE.items()}


def man() -> dict[Path, str]:
    """The manual page."""
    from support.manpage import FILE, page

    return {FILE: page()}


def mechanisms() -> dict[Path, str]:
    """The sizes of mechanisms."""
    from support.mechanisms import FILE, page

    return {FILE: page()}


def promises() -> dict[Path, str]:
    """What users and programs rely on."""
    from doors.test_snapshots import FOLDER, snapshots

    return {FOLDER / name: text for name, text in snapshots().items()}


# In this order: a document tells of the library's methods, and help is asked last.
MAKERS: dict[str, Callable[[], dict[Path, str]]] = {
    "library": library,
    "settings": settings,
    "pages": pages,
    "man": man,
    "mechanisms": mechanisms,
    "promises": promises,
}


def write(kind: str) -> None:
    """Write the files of a kind, and name those that changed."""
    for file, text in MAKERS[kind]().items():
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")
            print(f"wrote {file.relative_to(TESTS.parent)}")


def main(words: Sequence[str]) -> int:
    """Write what was asked for; each kind in a process that has the files of those before it."""
    kind, *tests = words or ("",)
    if kind == "words":
        pytest = [sys.executable, "-m", "pytest", "-m", "", "-q", "--record"]
        return subprocess.run([*pytest, *(tests or [str(TESTS)])], check=False).returncode
    if not kind:
        each = ([sys.executable, __file__, x] for x in MAKERS)
        return max(subprocess.run(x, check=False).returncode for x in each)
    if kind not in MAKERS or tests:
        lines = "\n".join(f"  {x:<9} {about}" for x, about in KINDS.items())
        print(f"python tests/record.py [KIND]\n{lines}\n  (none)    all but words")
        return 2
    write(kind)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
