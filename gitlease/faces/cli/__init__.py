"""The command line."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType

from gitlease import exports

# click needs the one for help pages, the other for a type of values that no option here has. With
# ast, dis, tokenize and the patterns of platform, they take an eighth of a command's time.
LATER = ("inspect", "uuid")


class _Later(ModuleType):
    """A stand-in that imports the real module when an attribute is used."""

    def __getattr__(self, name: str) -> object:
        if name == "UUID" and sys.modules.get(self.__name__) is self:
            return str  # click names this type while it is imported
        _forget(self)
        return getattr(import_module(self.__name__), name)


def _forget(module: ModuleType) -> None:
    if sys.modules.get(module.__name__) is module:
        del sys.modules[module.__name__]


def import_click() -> None:
    """Import click with stand-ins for ``LATER``; other importers get the real modules."""
    if "click" not in sys.modules:
        standing = {name: _Later(name) for name in LATER if name not in sys.modules}
        sys.modules.update(standing)
        import_module("click")
        for module in standing.values():
            _forget(module)


__getattr__ = exports(__name__)
