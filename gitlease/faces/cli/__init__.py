"""The command line."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType

from gitlease import exports

# click only needs it for help pages; with ast, dis, tokenize and linecache it takes a tenth of the
# time of any other command.
LATER = "inspect"


class _Later(ModuleType):
    """A stand-in that imports the real module when an attribute is used."""

    def __getattr__(self, name: str) -> object:
        _forget(self)
        return getattr(import_module(self.__name__), name)


def _forget(module: ModuleType) -> None:
    if sys.modules.get(module.__name__) is module:
        del sys.modules[module.__name__]


def import_click() -> None:
    """Import click with a stand-in for ``inspect``; other importers get the real module."""
    if LATER in sys.modules or "click" in sys.modules:
        return
    standing = sys.modules[LATER] = _Later(LATER)
    try:
        import_module("click")
    finally:
        _forget(standing)


__getattr__ = exports(__name__)
