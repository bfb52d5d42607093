"""What can go wrong between a client and the API, on purpose: which faults there are, and when one strikes."""

from __future__ import annotations

import difflib
import random
import re
from collections.abc import Callable, Collection, Mapping
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
    WRITTEN = "in how the answer is written: billed"
    HEADERS = "in the headers of the answer: billed"
    LOST = "on the way back: billed, whatever reaches the client"
    STREAM = "on the way back, of a stream only: billed"
    BODY = "on the way back, of a plain answer only: billed"
    ITEM = "in what becomes of one request of a batch: not billed"
    BATCH = "in what becomes of a batch when it is made"
    RESULTS = "in place of the results of a batch"


_OF_AN_ANSWER = frozenset({Stage.REFUSED, Stage.SPOKEN, Stage.WRITTEN, Stage.HEADERS, Stage.LOST})
ON_PLAIN = _OF_AN_ANSWER | {Stage.BODY}
ON_STREAM = _OF_AN_ANSWER | {Stage.STREAM}
ON_ITEM = frozenset({Stage.REFUSED, Stage.SPOKEN, Stage.WRITTEN, Stage.ITEM})
ON_ARRIVAL = frozenset({Stage.UNREAD})
ON_BATCH = frozenset({Stage.BATCH})
ON_RESULTS = frozenset({Stage.RESULTS})
# There is no request to choose by, and no answer to carry the fault.
EARLY = ON_ARRIVAL | ON_BATCH | ON_RESULTS

_NAMES: Mapping[Stage, str] = MappingProxyType(
    {
        Stage.UNREAD: "reset_before_read",
        Stage.REFUSED: (
            "rate_limited spend_limit own_spend_limit no_credit overloaded server_error bad_gateway unavailable"
            " gateway_timeout revoked_key model_retired too_large prompt_too_long"
        ),
        Stage.SPOKEN: (
            "empty_answer many_calls same_call ping_pong cut_call cut_call_partly cut_text cut_thinking refusal"
            " refusal_midway pause_turn context_window_exceeded duplicate_ids reused_id input_missing_field"
            " input_wrong_type input_extra_field input_string_for_list input_huge_string input_nul"
            " input_lone_surrogate unknown_tool miscased_tool removed_tool huge_answer huge_input unknown_block"
            " unknown_stop_reason tool_use_without_call end_turn_with_call mixed_server_call thinking empty_thinking"
            " redacted_thinking"
        ),
        Stage.WRITTEN: ("unknown_usage unknown_fields cache_miss compaction_iteration null_cache_fields other_model"),
        Stage.HEADERS: "skewed_clock no_limit_headers",
        Stage.LOST: "reset_after_read reset_in_body slow_first_byte trickle never_answers",
        Stage.STREAM: (
            "stream_cut stream_without_end stream_error stream_pings stream_unknown_event stream_bad_data stream_empty"
        ),
        Stage.BODY: "bad_json html empty_body short_body missing_usage null_content",
        Stage.ITEM: "item_errored item_expired item_canceled",
        Stage.BATCH: "batch_lost batch_stuck batch_expired",
        Stage.RESULTS: "results_unavailable",
    }
)
FAULTS: Mapping[str, Stage] = MappingProxyType(
    {name: stage for stage, names in _NAMES.items() for name in names.split()}
)
# Refused before the model has spoken, so answered like any other but for the bill.
UNBILLED = frozenset({"refusal"})


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault by name.

    `retry_after` is the header of `rate_limited`, seconds or an HTTP date, None for no header. `seconds` is how
    long the slow ones take, and how far `skewed_clock` is off. `calls` are what is asked for by the faults that ask:
    the first (by `many_calls` `count` times, by `ping_pong` in turn with the second); without them the playbook's
    calls are, or the request's tools.
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

    @property
    def is_billed(self) -> bool:
        """Whether the model has spoken all the same."""
        return self.stage not in (Stage.UNREAD, Stage.REFUSED, Stage.ITEM) and self.name not in UNBILLED


@dataclass(slots=True, kw_only=True)
class Injection:
    """A fault and whom it strikes: the next `times` requests that fit, each with `probability`. Without `times`
    it is the next one alone, or, with a probability, `after` or `for_s`, each that fits.

    `after` spares the first so many that fit. `run` is a `metadata.user_id`, `match` an expression found in the
    first user message. `for_s` ends the injection so many seconds after its first strike.
    """

    fault: Fault
    times: int | None = None
    probability: float = 1.0
    seed: int = 0
    run: str | None = None
    model: str | None = None
    match: str | None = None
    for_s: float | None = None
    after: int | None = None
    _dice: random.Random = field(init=False, repr=False)
    _ends: float | None = field(init=False, default=None)
    _spared: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._dice = random.Random(self.seed)
        self._spared = self.after or 0
        if self.times is None and self.probability == 1.0 and self.for_s is None and self.after is None:
            self.times = 1
        if self.fault.stage in EARLY and (self.run or self.model or self.match):
            raise ValueError(
                f"{self.fault.name} strikes before the request is read, so it cannot be chosen by run, model or"
                " match; use times, after or probability, or another fault (reset_after_read for a lost request)"
            )

    def strikes(self, request: Request | None, stages: Collection[Stage], now: float) -> bool:
        """Whether this request is hit by a fault of these stages; None stands for one that is not read yet. Counts
        the hit."""
        if self.times == 0 or (self._ends is not None and now > self._ends) or not self._fits(request, stages):
            return False
        if self._spared:
            self._spared -= 1
            return False
        if self._dice.random() >= self.probability:
            return False
        if self.times is not None:
            self.times -= 1
        if self._ends is None and self.for_s is not None:
            self._ends = now + self.for_s
        return True

    def _fits(self, request: Request | None, stages: Collection[Stage]) -> bool:
        if self.fault.stage not in stages or request is None:
            return self.fault.stage in stages
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

    def strike(self, request: Request | None, stages: Collection[Stage]) -> Fault | None:
        """The fault of these stages that hits this request, if any; None stands for a request that is not read."""
        if not self._injections:
            return None
        now = self._clock()
        return next((each.fault for each in self._injections if each.strikes(request, stages, now)), None)
