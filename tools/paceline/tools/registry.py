"""From a path such as `wiki_tools:get_page` to the tool it names."""

from __future__ import annotations

import difflib
import importlib
import os
import re
import sys
import threading
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from paceline.core.errors import ToolLoadError

from .definition import Tool

_PATH = re.compile(r"(?P<module>[^\W\d]\w*(\.[^\W\d]\w*)*):(?P<function>[^\W\d]\w*)")


class Registry:
    """Loads tools by path, each once.

    `search_paths` are folders in which modules are looked for, after Python's own: they are appended to `sys.path`
    when the first tool is loaded, so that a user's `json.py` cannot take the place of the real one. Threads may share
    a registry: it loads for one of them at a time.
    """

    def __init__(self, search_paths: Iterable[str | os.PathLike[str]] = ()) -> None:
        self._search_paths = list(dict.fromkeys(str(Path(path).resolve()) for path in search_paths))
        self._tools: dict[str, Tool] = {}
        # importlib.invalidate_caches() of two threads at once raises KeyError.
        self._loading = threading.Lock()

    def load(self, path: str) -> Tool:
        """The tool at `module:function`, its spec bearing this path.

        Raises ToolLoadError, which says the path, what failed and what to do. Imports the module, and so runs its code.
        """
        if path not in self._tools:
            with self._loading:
                self._tools[path] = self._load(path)
        return self._tools[path]

    def _load(self, path: str) -> Tool:
        parts = _PATH.fullmatch(path)
        if parts is None:
            raise ToolLoadError(f"tool path {path!r} must be `module:function`, as in `wiki_tools:get_page`")
        module = self._imported(path, parts["module"])
        found = getattr(module, parts["function"], None)
        if not isinstance(found, Tool):
            raise ToolLoadError(_not_a_tool(path, module, parts["function"], found))
        return replace(found, spec=replace(found.spec, path=path))

    def _imported(self, path: str, name: str) -> ModuleType:
        sys.path.extend(folder for folder in self._search_paths if folder not in sys.path)
        importlib.invalidate_caches()  # The folder may be younger than Python's memory of it.
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise ToolLoadError(_import_failed(path, name, error)) from error
            raise ToolLoadError(
                f"tool {path!r}: there is no module {error.name!r} in {self._where()}: start in the folder that has "
                "it, or name that folder in PACELINE_TOOLS_PATH"
            ) from error
        except (Exception, SystemExit) as error:
            raise ToolLoadError(_import_failed(path, name, error)) from error

    def _where(self) -> str:
        return ", ".join([*self._search_paths, "Python's own path"])


def _import_failed(path: str, name: str, error: BaseException) -> str:
    return (
        f"tool {path!r}: importing {name} failed: {type(error).__name__}: {error}: "
        f"`python -c 'import {name}'` shows where"
    )


def _not_a_tool(path: str, module: ModuleType, function: str, found: object) -> str:
    where = f"tool {path!r}: {module.__name__} ({getattr(module, '__file__', None) or 'no file'})"
    if callable(found):
        return f"{where} has {function}, but it is no tool: put @tool above it"
    if found is not None:
        return f"{where} has {function}, but it is a {type(found).__name__}, not a tool"
    tools = sorted(name for name, member in vars(module).items() if isinstance(member, Tool))
    near = difflib.get_close_matches(function, tools, n=1)
    known = f"did you mean {near[0]}?" if near else f"its tools are: {', '.join(tools) or 'none'}"
    return f"{where} has no {function}; {known}"
