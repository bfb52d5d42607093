"""A run as the decisions see it: where it stands, what it has used, what happened to it in a row."""

from __future__ import annotations

from dataclasses import dataclass, field

from . import repeats
from .ids import AgentDigest, RunId
from .lifecycle import State
from .usage import Usage, WorstCase


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

    def next_turn(self, *, error_turns: int, pauses: int = 0, empties: int = 0, reminders: int = 0) -> Streaks:
        """After an answer that moves the run on: what concerns only this turn is forgotten."""
        return Streaks(pauses=pauses, empties=empties, error_turns=error_turns, reminders=reminders, asked=self.asked)

    def encode(self) -> str:
        """As stored; empty where nothing is in a row, as is the rule."""
        values = (self.failures, self.throttles, self.pauses, self.empties, self.cuts, self.losses, self.max_tokens)
        of_calls = (self.error_turns, self.reminders, repeats.encode(self.asked))
        stored = (*values, *of_calls) if any(of_calls) else values
        return ",".join(map(str, stored)) if any(stored) else ""

    @classmethod
    def decode(cls, text: str) -> Streaks:
        if not text:
            return cls()
        values = text.split(",")
        *counts, asked = values[:_VALUES] if len(values) > _PLAIN_VALUES else (*values, "0", "0", "")
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
        )


_PLAIN_VALUES = 7
"""Values that are stored where nothing is known of calls; earlier versions wrote no more."""
_VALUES = 10
"""Values that are known here; later versions may write more behind them."""


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
