"""What a tool's author raises, and what is raised at a tool's author.

Exception
├── ToolError                  raised inside a tool, on purpose: the model reads the message and the hint
└── UsageError (core)
    ├── ToolDefinitionError    `@tool` on something that cannot be a tool
    └── ToolLoadError (core)   a path that does not lead to a tool
"""

from __future__ import annotations

from paceline.core.errors import UsageError


class ToolError(Exception):
    """A failure that the model is meant to read. `hint` says what to do instead."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class ToolDefinitionError(UsageError):
    """`@tool` was put on something that cannot be a tool; the message names the function and the fix."""
