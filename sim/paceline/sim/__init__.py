"""A strict stand-in for the Messages API over real HTTP: for demonstrations, tests and load."""

from paceline.sim.answer import Answer, Call
from paceline.sim.faults import Fault
from paceline.sim.journal import Entry, Journal, Usage
from paceline.sim.playbook import Playbook, PlaybookError
from paceline.sim.request import Request, ToolResult
from paceline.sim.server import serve
from paceline.sim.simulator import Simulator

__all__ = [
    "Answer",
    "Call",
    "Entry",
    "Fault",
    "Journal",
    "Playbook",
    "PlaybookError",
    "Request",
    "Simulator",
    "ToolResult",
    "Usage",
    "serve",
]
