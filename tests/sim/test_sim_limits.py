"""Rate limits: what is refused, until when, and what the headers tell."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from support.sim_wire import Reply, body, post, sent, text, user, wait_until

from paceline.sim import Answer, Limits, Simulator

HAIKU = "claude-haiku-5-5"


class Limited:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0
        self.url = ""

    def ask(self, tokens: int = 2, **fields: object) -> Reply:
        return post(self.url, body(user(text("x" * (tokens * 7 // 2))), **{"tools": None, **fields}))


@contextmanager
def limited(limits: Limits) -> Iterator[Limited]:
    client = Limited()
    answer = Answer(text="x" * 350)
    with Simulator(lambda request: answer, limits=limits, clock=lambda: client.now) as simulator:
        client.url = simulator.url
        yield client


def test_requests_are_counted_and_come_back_with_time() -> None:
    with limited(Limits(requests_per_minute=60, burst_seconds=2)) as client:
        assert [client.ask().status for _ in range(3)] == [200, 200, 429]
        refused = client.ask()
        assert refused.headers["retry-after"] == "1"
        assert refused.text.startswith(
            "This request would exceed your organization's rate limit of 60 requests per minute (org: "
        )
        client.now += 1
        assert [client.ask().status for _ in range(2)] == [200, 429]


def test_models_of_one_class_share_a_limit_and_others_do_not() -> None:
    with limited(Limits(requests_per_minute=1)) as client:
        assert client.ask(model="claude-fable-5-1").status == 200
        assert client.ask(model="claude-mythos-5-2").status == 429
        assert client.ask(model=HAIKU).status == 200


def test_input_that_is_read_from_the_cache_does_not_count() -> None:
    marked = [user(text("x" * 3500, cache_control={"type": "ephemeral"}))]
    with limited(Limits(input_tokens_per_minute=1500)) as client:
        assert client.ask(messages=marked).status == 200
        assert client.ask(messages=marked).status == 200
        refused = client.ask(tokens=1000)
        assert refused.status == 429
        # 500 of 1,500 are left and 25 come back each second: 500 missing take 20 s.
        assert refused.headers["retry-after"] == "20"
        assert "1,500 input tokens per minute" in refused.text


def test_output_counts_when_it_is_there_and_not_before() -> None:
    with limited(Limits(output_tokens_per_minute=150)) as client:
        assert [client.ask(max_tokens=100_000).status for _ in range(3)] == [200, 200, 429]


def test_headers_tell_what_is_left_rounded_to_thousands_and_the_tightest_of_all() -> None:
    limits = Limits(requests_per_minute=10, input_tokens_per_minute=10_000, output_tokens_per_minute=100_000)
    with limited(limits) as client:
        headers = client.ask(tokens=2500).headers
    start = "anthropic-ratelimit"
    assert (headers[f"{start}-requests-limit"], headers[f"{start}-requests-remaining"]) == ("10", "9")
    assert headers[f"{start}-requests-reset"] == "2027-01-15T08:00:06Z"
    assert headers[f"{start}-input-tokens-remaining"] == "7000"
    assert headers[f"{start}-output-tokens-remaining"] == "100000"
    assert (headers[f"{start}-tokens-limit"], headers[f"{start}-tokens-remaining"]) == ("10000", "7000")
    assert "retry-after" not in headers


def test_too_many_requests_at_once_are_refused_without_a_time() -> None:
    held = body(metadata={"user_id": "held"})
    with Simulator(lambda request: Answer(text="hi"), limits=Limits(concurrent_requests=2)) as simulator:
        simulator.inject("never_answers", times=2, run="held")
        with sent(simulator.url, held), sent(simulator.url, held):
            wait_until(lambda: post(simulator.url, body()).status == 429, "both places are taken")
            refused = post(simulator.url, body())
        wait_until(lambda: post(simulator.url, body()).status == 200, "both places are free again")
    assert refused.text.startswith("Number of concurrent connections has exceeded your rate limit.")
    assert "retry-after" not in refused.headers


def test_without_limits_no_header_speaks_of_any() -> None:
    with Simulator(lambda request: Answer(text="hi")) as simulator:
        headers = post(simulator.url, body()).headers
    assert not [name for name in headers if name.startswith("anthropic-ratelimit")]
