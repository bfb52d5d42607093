"""Rate limits: one token bucket a unit and class of models, refilled without pause."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from paceline.sim.models import Model
from paceline.sim.rules import Refusal, Rule, refuse

ORGANIZATION = "00000000-0000-4000-8000-000000000001"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one organisation may use of each class of models in a minute; None is no limit. A bucket holds
    `burst_seconds` of its rate."""

    requests_per_minute: int | None = None
    input_tokens_per_minute: int | None = None
    output_tokens_per_minute: int | None = None
    concurrent_requests: int | None = None
    burst_seconds: float = 60.0


@dataclass(slots=True)
class _Bucket:
    """`unit` as the API names it in its text, `header` as in its headers."""

    unit: str
    header: str
    limit: int
    capacity: float
    level: float
    filled_at: float

    def fill(self, now: float) -> None:
        self.level = min(self.capacity, self.level + max(0.0, now - self.filled_at) * self.limit / 60)
        self.filled_at = now

    def seconds_until(self, amount: float) -> float:
        """Seconds until `amount` is there; an amount over the capacity needs a full bucket."""
        return max(0.0, min(amount, self.capacity) - self.level) * 60 / self.limit

    def headers(self) -> dict[str, str]:
        remaining = max(0, int(self.level))
        if self.header != "requests":
            remaining = remaining // 1000 * 1000
        full_at = self.filled_at + self.seconds_until(self.capacity)
        reset = datetime.fromtimestamp(full_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return _limit_headers(self.header, self.limit, remaining, reset)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limited:
    """A request over a limit, and when to come again; None when the API does not say."""

    refusal: Refusal
    retry_after_s: int | None

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.retry_after_s is None else {"retry-after": str(self.retry_after_s)}


class RateLimiter:
    """The buckets of one organisation."""

    def __init__(self, limits: Limits, clock: Callable[[], float]) -> None:
        self._limits = limits
        self._clock = clock
        self._in_flight = 0
        self._buckets: dict[str, list[_Bucket]] = {}

    def enter(self, model: Model, input_tokens: int) -> Limited | None:
        """Take a request and its uncached input, or say which limit it would pass. `leave` must follow unless
        refused."""
        most = self._limits.concurrent_requests
        if most is not None and self._in_flight >= most:
            return Limited(refusal=refuse(Rule.TOO_MANY_CONNECTIONS), retry_after_s=None)
        needs = {"requests": 1, "input-tokens": input_tokens, "output-tokens": 1}
        buckets = self._filled(model)
        for bucket in buckets:
            wait = bucket.seconds_until(needs[bucket.header])
            if wait > 0:
                return Limited(refusal=_refusal(bucket, model), retry_after_s=math.ceil(wait))
        for bucket in buckets:
            bucket.level -= needs[bucket.header] if bucket.header != "output-tokens" else 0
        self._in_flight += 1
        return None

    def leave(self, model: Model, output_tokens: int) -> None:
        """A request that entered has ended, with so much output."""
        self._in_flight -= 1
        for bucket in self._filled(model):
            if bucket.header == "output-tokens":
                bucket.level -= output_tokens

    def headers(self, model: Model) -> dict[str, str]:
        """Rate limit headers as they stand now."""
        buckets = self._filled(model)
        headers: dict[str, str] = {}
        for bucket in buckets:
            headers |= bucket.headers()
        tokens = [bucket for bucket in buckets if bucket.header != "requests"]
        if tokens:
            tightest = min(tokens, key=lambda bucket: bucket.level / bucket.limit).headers()
            headers |= {
                name.replace("-input-", "-").replace("-output-", "-"): value for name, value in tightest.items()
            }
        return headers

    def _filled(self, model: Model) -> list[_Bucket]:
        now = self._clock()
        buckets = self._buckets.get(model.rate_class)
        if buckets is None:
            buckets = self._buckets[model.rate_class] = list(self._new(now))
        for bucket in buckets:
            bucket.fill(now)
        return buckets

    def _new(self, now: float) -> Iterator[_Bucket]:
        for unit, header, limit in (
            ("requests", "requests", self._limits.requests_per_minute),
            ("input tokens", "input-tokens", self._limits.input_tokens_per_minute),
            ("output tokens", "output-tokens", self._limits.output_tokens_per_minute),
        ):
            if limit is not None:
                capacity = max(1.0, limit * self._limits.burst_seconds / 60)
                yield _Bucket(unit, header, limit, capacity, capacity, now)


def _refusal(bucket: _Bucket, model: Model) -> Refusal:
    return refuse(Rule.RATE_LIMITED, limit=bucket.limit, unit=bucket.unit, organization=ORGANIZATION, model=model.id)


def _limit_headers(name: str, limit: int, remaining: int, reset: str) -> dict[str, str]:
    start = f"anthropic-ratelimit-{name}"
    return {f"{start}-limit": str(limit), f"{start}-remaining": str(remaining), f"{start}-reset": reset}
