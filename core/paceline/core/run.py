"""A run as the decisions see it: where it stands, what it has used, what happened to it in a row."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from . import repeats
from .ids import OTHER_AGENTS, AgentDigest, RunId
from .lifecycle import State
from .usage import Usage, WorstCase


class Overflow(IntEnum):
    """What became of a conversation that did not fit the model's window any more."""

    NONE = 0
    TOLD = 1
    """The API said so: room must be made before the turn is taken again."""
    MADE_ROOM = 2
    """It was made: if the API says so once more, the run is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Streaks:
    """What happened in a row, and is forgotten as soon as it no longer does. Stored as one short field."""

    failures: int = 0
    """Tries of this turn that failed and count against `model_attempts`."""
    throttles: int = 0
    """Times in a row that the API had no room (429, 529); they count against nothing."""
    pauses: int = 0
    empties: int = 0
    cuts: int = 0
    """Answers in a row cut at the model's own maximum."""
    losses: int = 0
    """Workers lost in a row while they held this turn."""
    max_tokens: int = 0
    """The raised `max_tokens` of this turn; 0: the agent's own."""
    error_turns: int = 0
    """Turns in a row in which every call failed, up to the last answer."""
    reminders: int = 0
    """Answers in a row that should have been handed in by `finish`."""
    asked: repeats.History = ()
    """What the last turns asked for, as far as repeats are looked for in it."""
    overflow: Overflow = Overflow.NONE
    """Of this turn."""
    waits: int = 0
    """Times in a row that this turn waited for room in its batch's budget."""

    def next_turn(self, *, error_turns: int, pauses: int = 0, empties: int = 0, reminders: int = 0) -> Streaks:
        """After an answer that moves the run on: what concerns only this turn is forgotten."""
        return Streaks(pauses=pauses, empties=empties, error_turns=error_turns, reminders=reminders, asked=self.asked)

    def encode(self) -> str:
        """As stored; empty where nothing is in a row, as is the rule."""
        plain = (self.failures, self.throttles, self.pauses, self.empties, self.cuts, self.losses, self.max_tokens)
        of_calls = (self.error_turns, self.reminders, repeats.encode(self.asked))
        groups = (plain, of_calls, (int(self.overflow),), (self.waits,))
        known = [at for at, group in enumerate(groups) if any(group)]
        return ",".join(str(value) for group in groups[: known[-1] + 1] for value in group) if known else ""

    @classmethod
    def decode(cls, text: str) -> Streaks:
        if not text:
            return cls()
        values = text.split(",")
        *counts, asked, overflow, waits = [*values, *_NOTHING[len(values) :]][: len(_NOTHING)]
        failures, throttles, pauses, empties, cuts, losses, max_tokens, error_turns, reminders = map(int, counts)
        return cls(
            failures=failures,
            throttles=throttles,
            pauses=pauses,
            empties=empties,
            cuts=cuts,
            losses=losses,
            max_tokens=max_tokens,
            error_turns=error_turns,
            reminders=reminders,
            asked=repeats.decode(asked),
            overflow=Overflow(int(overflow)),
            waits=int(waits),
        )


_NOTHING = (*["0"] * 9, "", "0", "0")
"""Every value that is known here, where nothing is in a row. Fewer are stored where those that follow are nothing, as
before they were known; later versions may write more behind them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What a run has used so far."""

    usage: Usage = field(default_factory=Usage)
    cost_nanousd: int = 0
    unpriced_calls: int = 0
    """Model calls whose price is not known: while there is one, the cost is unknown."""
    working_ms: int = 0
    tool_calls: int = 0
    possibly_billed_tokens: int = 0
    """The most that calls may have used whose answer never came: held against the limits, and in no other total."""
    possibly_billed_nanousd: int = 0

    @classmethod
    def possibly(cls, call: WorstCase) -> Spent:
        """What a call may have used that was made, or may have been, and brought no answer."""
        return cls(possibly_billed_tokens=call.tokens, possibly_billed_nanousd=call.nanousd or 0)

    @property
    def tokens_at_most(self) -> int:
        return self.usage.total + self.possibly_billed_tokens

    @property
    def nanousd_at_most(self) -> int:
        return self.cost_nanousd + self.possibly_billed_nanousd

    def __add__(self, other: Spent) -> Spent:
        return Spent(
            usage=self.usage + other.usage,
            cost_nanousd=self.cost_nanousd + other.cost_nanousd,
            unpriced_calls=self.unpriced_calls + other.unpriced_calls,
            working_ms=self.working_ms + other.working_ms,
            tool_calls=self.tool_calls + other.tool_calls,
            possibly_billed_tokens=self.possibly_billed_tokens + other.possibly_billed_tokens,
            possibly_billed_nanousd=self.possibly_billed_nanousd + other.possibly_billed_nanousd,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextUsed:
    """The most of the model's context window that a run has used: its input tokens over the window, in millionths."""

    model: str
    millionths: int

    def encode(self) -> str:
        """As stored."""
        return f"{self.millionths}|{self.model}"

    @classmethod
    def decode(cls, text: str) -> ContextUsed | None:
        """What `encode` wrote; None for nothing."""
        millionths, _, model = text.partition("|")
        return cls(model=model, millionths=int(millionths)) if text else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run, as its record says. Times are milliseconds since the epoch, by the server's clock."""

    run_id: RunId
    row_id: str
    agent: AgentDigest
    state: State
    turn: int
    fence: int
    """Grows with each claim and each recovery; a write that carries an older one is refused."""
    attempts: int = 0
    """Claims of turns so far, over the whole run."""
    lost_attempts: int = 0
    """Of these, claims whose worker was lost: each may have been billed without an answer."""
    owner: str = ""
    claim_until_ms: int = 0
    context_tokens: int = 0
    """Tokens of the transcript up to and with the last assistant message."""
    spent: Spent = field(default_factory=Spent)
    streaks: Streaks = field(default_factory=Streaks)
    submitted_ms: int = 0
    sent_ms: int = 0
    """When the message for what is due was last due to be sent."""
    hold_until_ms: int = 0
    hold_reason: str = ""
    cancel_requested: bool = False
    container: str = ""
    """Where the API ran code for this run, last."""
    cleared: int = 0
    """Messages before this one are sent without the content of their tool results: see `compaction`."""
    label: str = OTHER_AGENTS
    """The agent's name, as its runs are counted."""
    context_used: ContextUsed | None = None
    """None before the first answer."""
    has_budget: bool = False
    """Whether each of its calls is held against its batch's budget too."""
