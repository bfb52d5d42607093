"""A strict stand-in for the Messages API over real HTTP: for demonstrations, tests and load."""

from paceline.sim.answer import Answer
from paceline.sim.batches import BatchPlan
from paceline.sim.call import Call, ServerCall
from paceline.sim.dialects import DIALECTS
from paceline.sim.faults import FAULTS, Fault
from paceline.sim.journal import Entry, Journal, Usage
from paceline.sim.limits import Limits
from paceline.sim.playbook import Playbook
from paceline.sim.playbook_mistakes import PlaybookError
from paceline.sim.request import Request, ToolResult
from paceline.sim.serving import serve
from paceline.sim.simulator import Simulator
from paceline.sim.switches import Switches

__all__ = [
    "DIALECTS",
    "FAULTS",
    "Answer",
    "BatchPlan",
    "Call",
    "Entry",
    "Fault",
    "Journal",
    "Limits",
    "Playbook",
    "PlaybookError",
    "Request",
    "ServerCall",
    "Simulator",
    "Switches",
    "ToolResult",
    "Usage",
    "serve",
]
