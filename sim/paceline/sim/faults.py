"""What can go wrong between a client and the API, on purpose: which faults there are, and when one strikes."""

from __future__ import annotations

import difflib
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

from paceline.sim.call import Call
from paceline.sim.request import Request


class Stage(Enum):
    """Where a fault sits on the way of a request."""

    UNREAD = "before the request is read: never billed, and nothing is known of the request"
    REFUSED = "in place of an answer: read, not billed"
    SPOKEN = "in what the model says: billed"
    LOST = "on the way back: billed, whatever reaches the client"
    STREAM = "on the way back, of a stream only: billed"
    BODY = "on the way back, of a plain answer only: billed"


FAULTS: Mapping[str, Stage] = MappingProxyType(
    {
        "reset_before_read": Stage.UNREAD,
        "rate_limited": Stage.REFUSED,
        "spend_limit": Stage.REFUSED,
        "overloaded": Stage.REFUSED,
        "server_error": Stage.REFUSED,
        "bad_gateway": Stage.REFUSED,
        "unavailable": Stage.REFUSED,
        "gateway_timeout": Stage.REFUSED,
        "revoked_key": Stage.REFUSED,
        "empty_answer": Stage.SPOKEN,
        "many_calls": Stage.SPOKEN,
        "same_call": Stage.SPOKEN,
        "ping_pong": Stage.SPOKEN,
        "cut_call": Stage.SPOKEN,
        "refusal": Stage.SPOKEN,
        "pause_turn": Stage.SPOKEN,
        "context_window_exceeded": Stage.SPOKEN,
        "reset_after_read": Stage.LOST,
        "reset_in_body": Stage.LOST,
        "slow_first_byte": Stage.LOST,
        "trickle": Stage.LOST,
        "never_answers": Stage.LOST,
        "stream_cut": Stage.STREAM,
        "stream_without_end": Stage.STREAM,
        "stream_error": Stage.STREAM,
        "stream_pings": Stage.STREAM,
        "stream_unknown_event": Stage.STREAM,
        "stream_bad_data": Stage.STREAM,
        "stream_empty": Stage.STREAM,
        "bad_json": Stage.BODY,
        "html": Stage.BODY,
        "empty_body": Stage.BODY,
        "short_body": Stage.BODY,
        "missing_usage": Stage.BODY,
        "null_content": Stage.BODY,
    }
)


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault by name.

    `retry_after` is the header of `rate_limited`, seconds or an HTTP date, None for no header. `seconds` is how
    long the slow ones take. `calls` are what `many_calls` (the first, `count` times), `same_call` and
    `ping_pong` (the first two in turn) ask for; without them, the playbook's calls or the request's tools.
    """

    name: str
    retry_after: str | int | None = 1
    seconds: float = 1.0
    count: int = 8
    calls: tuple[Call, ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        if self.name not in FAULTS:
            near = difflib.get_close_matches(self.name, FAULTS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(FAULTS)}"
            raise ValueError(f"there is no fault {self.name!r}; {hint}")

    @property
    def stage(self) -> Stage:
        return FAULTS[self.name]


@dataclass(slots=True, kw_only=True)
class Injection:
    """A fault and whom it strikes: the next `times` requests that fit, each with `probability`. Without `times`
    it is the next one alone, or, with a probability or `for_s`, each that fits.

    `run` is a `metadata.user_id`, `match` an expression found in the first user message. `for_s` ends the
    injection so many seconds after its first strike.
    """

    fault: Fault
    times: int | None = None
    probability: float = 1.0
    seed: int = 0
    run: str | None = None
    model: str | None = None
    match: str | None = None
    for_s: float | None = None
    _dice: random.Random = field(init=False, repr=False)
    _ends: float | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._dice = random.Random(self.seed)
        if self.times is None and self.probability == 1.0 and self.for_s is None:
            self.times = 1
        if self.fault.stage is Stage.UNREAD and (self.run or self.model or self.match):
            raise ValueError(
                f"{self.fault.name} strikes before the request is read, so it cannot be chosen by run, model or"
                " match; use times or probability, or reset_after_read"
            )

    def strikes(self, request: Request | None, now: float) -> bool:
        """Whether this request is hit; None stands for one that is not read yet. Counts the hit."""
        if self.times == 0 or (self._ends is not None and now > self._ends) or not self._fits(request):
            return False
        if self._dice.random() >= self.probability:
            return False
        if self.times is not None:
            self.times -= 1
        if self._ends is None and self.for_s is not None:
            self._ends = now + self.for_s
        return True

    def _fits(self, request: Request | None) -> bool:
        if request is None or self.fault.stage is Stage.UNREAD:
            return request is None and self.fault.stage is Stage.UNREAD
        if self.fault.stage in (Stage.STREAM, Stage.BODY) and request.stream != (self.fault.stage is Stage.STREAM):
            return False
        return (
            self.run in (None, request.run)
            and self.model in (None, request.model)
            and (self.match is None or re.search(self.match, request.first_user_text) is not None)
        )


class Injector:
    """The injections in force, asked in the order in which they were added."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._injections: list[Injection] = []

    def add(self, injection: Injection) -> None:
        # A new list: requests may be walking over the old one on another thread.
        self._injections = [*self._injections, injection]

    def clear(self) -> None:
        self._injections = []

    def strike(self, request: Request | None) -> Fault | None:
        """The fault that hits this request, if any; None stands for a request that is not read yet."""
        if not self._injections:
            return None
        now = self._clock()
        return next((each.fault for each in self._injections if each.strikes(request, now)), None)
