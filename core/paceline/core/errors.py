"""What can go wrong, by who must act.

PacelineError
├── UsageError                 the caller: a file, a row, an option is wrong
│   ├── AgentFileError         the agent file; names the line and the fix
│   ├── RowError               a row; names its line or its id
│   ├── ToolLoadError          a tool path that cannot be loaded (here or on a worker)
│   ├── NewerVersion           a value of the record that only a newer paceline can read
│   └── UnknownBatch, UnknownRun
├── InfrastructureError        the operator: a server is away, refuses, or is set up wrongly
├── RunEndedWithoutAnswer      the run itself; one class for each ending, see `endings`
└── Bug
    ├── IllegalTransition      a move the life cycle does not have
    └── InvalidTranscript      a message that the API would refuse
"""

from __future__ import annotations


class PacelineError(Exception):
    """Anything that paceline says went wrong."""


class UsageError(PacelineError):
    """The caller can mend it; the message says where and how."""


class AgentFileError(UsageError):
    """The agent file is wrong."""


class RowError(UsageError):
    """A row is wrong."""


class ToolLoadError(UsageError):
    """A tool's path does not lead to a tool."""


class NewerVersion(UsageError):
    """A value has a version that this code does not read."""


class UnknownBatch(UsageError):
    """No batch of this name is in the record."""


class UnknownRun(UsageError):
    """No run of this id is in the record."""


class InfrastructureError(PacelineError):
    """A server is away, refuses, or is set up in a way that would lose runs."""


class Bug(PacelineError):
    """Our own mistake: never to be caught, always to be reported."""


class IllegalTransition(Bug):
    """A run was asked to make a move that its life does not have."""


class InvalidTranscript(Bug):
    """A message would make the transcript one that the API refuses."""
