"""The command line: ``run`` is the whole of it for whoever starts it."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType

# click imports it for help pages; with ast, dis, tokenize and linecache it is a tenth of every
# other command.
LATER = "inspect"


class _Later(ModuleType):
    """Stands for a module in what imports it now, and fetches it when something of it is used."""

    def __getattr__(self, name: str) -> object:
        _forget(self)  # as it is used while click is being imported
        return getattr(import_module(self.__name__), name)


def _forget(module: ModuleType) -> None:
    if sys.modules.get(module.__name__) is module:
        del sys.modules[module.__name__]


def import_click() -> None:
    """Import click, for which a stand-in is ``inspect``: others who import that get it as ever."""
    if LATER in sys.modules or "click" in sys.modules:
        return
    standing = sys.modules[LATER] = _Later(LATER)
    try:
        import_module("click")
    finally:
        _forget(standing)
