"""`transformers`, only once something of it is used.

mlx-lm imports it for its tokenizers, and the import reads more than a thousand files: 0.7 s of
processor time, more than half of what a worker takes to start. Ours are read by the front
(`text/tokenizer.py`), so a worker has no use for them.
"""

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

LIBRARY = "transformers"
CLASSES = (
    "AutoTokenizer",
    "PreTrainedTokenizer",
    "PreTrainedTokenizerBase",
    "PreTrainedTokenizerFast",
)
"""What mlx-lm names while it is imported: it derives from one, and registers that with another."""


def defer_transformers() -> None:
    """Before the first `import mlx_lm`, in a process that reads no text."""
    if LIBRARY not in sys.modules:
        sys.meta_path.insert(0, _FINDER)


class _Deferred(type):
    """A class that asks the real one for all it does not have."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(getattr(_real(), cls.__name__), name)

    def register(cls, *_: object, **__: object) -> None:
        """Of a tokenizer that is deferred as well."""


class _Module(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name in CLASSES:
            return _Deferred(name, (), {})
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(_real(self.__name__), name)


class _Finder(MetaPathFinder, Loader):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] != LIBRARY:
            return None
        return ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to run."""


_FINDER = _Finder()


def _real(name: str = LIBRARY) -> ModuleType:
    """The library itself, in the place of what stood for it."""
    if _FINDER in sys.meta_path:
        sys.meta_path.remove(_FINDER)
        for known in [one for one in sys.modules if one.partition(".")[0] == LIBRARY]:
            del sys.modules[known]
    return importlib.import_module(name)
