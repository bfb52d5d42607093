"""What a model may call: the `@tool` decorator, the schema it makes, loading by path, and guarded execution."""

from paceline.core.errors import ToolLoadError
from paceline.core.tool_spec import ToolSpec

from .bounding import bounded
from .context import ToolContext
from .decorate import tool
from .definition import Tool
from .errors import ToolDefinitionError, ToolError
from .images import Image
from .reading import read_result_tool
from .reconcile import NotRan, Unknown, reconcile_tool
from .registry import Registry
from .results import ToolResult, text_result
from .run import run_tool
from .threads import ThreadPerCall

__all__ = [
    "Image",
    "NotRan",
    "Registry",
    "ThreadPerCall",
    "Tool",
    "ToolContext",
    "ToolDefinitionError",
    "ToolError",
    "ToolLoadError",
    "ToolResult",
    "ToolSpec",
    "Unknown",
    "bounded",
    "read_result_tool",
    "reconcile_tool",
    "run_tool",
    "text_result",
    "tool",
]
