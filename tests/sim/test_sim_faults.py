"""Each fault as the official client sees it, and as the journal tells it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import pytest
from support.sim_wire import wait_until

from paceline.sim import FAULTS, Answer, Entry, Fault, Playbook, PlaybookError, Request, Simulator
from paceline.sim.faults import Stage

TEXT = "The rotation is falcon, as the page of the team says in its second paragraph, below the picture."
HELLO: list[Any] = [{"role": "user", "content": "hello"}]
TOOLS: list[Any] = [
    {"name": "look", "input_schema": {"type": "object"}},
    {"name": "listen", "input_schema": {"type": "object"}},
]


def answer(request: Request) -> Answer:
    return Answer(text=TEXT)


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    with Simulator(answer) as running:
        yield running


@pytest.fixture
def client(simulator: Simulator) -> Iterator[anthropic.Anthropic]:
    timeout = httpx2.Timeout(5)
    with anthropic.Anthropic(api_key="k", base_url=simulator.url, max_retries=0, timeout=timeout) as made:
        yield made


def ask(client: anthropic.Anthropic, **fields: Any) -> anthropic.types.Message:
    given = {"model": "claude-sonnet-5-5", "max_tokens": 500, "messages": HELLO, "tools": TOOLS, **fields}
    message = client.messages.create(**given)
    assert isinstance(message, anthropic.types.Message)
    return message


def stream(client: anthropic.Anthropic) -> anthropic.types.Message:
    with client.messages.stream(model="claude-sonnet-5-5", max_tokens=500, messages=HELLO) as events:
        return events.get_final_message()


def only(simulator: Simulator) -> Entry:
    (entry,) = simulator.journal.entries
    return entry


@dataclass(frozen=True)
class Seen:
    """A fault, what the client raises, and what the journal holds of it."""

    fault: Fault
    raises: type[BaseException]
    status: int | None
    billed: bool
    streams: bool = False
    error_type: str | None = None


REFUSED = [
    Seen(Fault("rate_limited"), anthropic.RateLimitError, 429, False, error_type="rate_limit_error"),
    Seen(Fault("spend_limit"), anthropic.EnforcedSpendLimitReachedError, 429, False, error_type="rate_limit_error"),
    Seen(Fault("overloaded"), anthropic.OverloadedError, 529, False, error_type="overloaded_error"),
    Seen(Fault("server_error"), anthropic.InternalServerError, 500, False, error_type="api_error"),
    Seen(Fault("bad_gateway"), anthropic.InternalServerError, 502, False),
    Seen(Fault("unavailable"), anthropic.ServiceUnavailableError, 503, False),
    Seen(Fault("gateway_timeout"), anthropic.DeadlineExceededError, 504, False),
    Seen(Fault("revoked_key"), anthropic.AuthenticationError, 401, False, error_type="authentication_error"),
    Seen(Fault("own_spend_limit"), anthropic.BadRequestError, 400, False, error_type="invalid_request_error"),
    Seen(Fault("no_credit"), anthropic.BadRequestError, 400, False, error_type="invalid_request_error"),
    Seen(Fault("model_retired"), anthropic.NotFoundError, 404, False, error_type="not_found_error"),
    Seen(Fault("too_large"), anthropic.ContentTooLargeError, 413, False, error_type="request_too_large"),
    Seen(Fault("prompt_too_long"), anthropic.BadRequestError, 400, False, error_type="invalid_request_error"),
]
BROKEN = [
    Seen(Fault("reset_before_read"), anthropic.APIConnectionError, None, False),
    Seen(Fault("reset_after_read"), anthropic.APIConnectionError, 200, True),
    Seen(Fault("reset_in_body"), anthropic.APIConnectionError, 200, True),
    Seen(Fault("never_answers"), anthropic.APITimeoutError, 200, True),
    Seen(Fault("bad_json"), json.JSONDecodeError, 200, True),
    Seen(Fault("empty_body"), json.JSONDecodeError, 200, True),
    Seen(Fault("short_body"), anthropic.APIConnectionError, 200, True),
    Seen(Fault("reset_after_read"), anthropic.APIConnectionError, 200, True, streams=True),
    Seen(Fault("reset_in_body"), httpx2.ReadError, 200, True, streams=True),
    Seen(Fault("stream_cut"), httpx2.RemoteProtocolError, 200, True, streams=True),
    Seen(Fault("stream_error"), anthropic.APIStatusError, 200, True, streams=True, error_type="overloaded_error"),
    Seen(Fault("stream_bad_data"), json.JSONDecodeError, 200, True, streams=True),
    Seen(Fault("stream_empty"), AssertionError, 200, True, streams=True),
]


@pytest.mark.parametrize("case", REFUSED + BROKEN, ids=lambda case: case.fault.name + "-stream" * case.streams)
def test_a_fault_reaches_the_client_as_the_real_one_would(simulator: Simulator, case: Seen) -> None:
    simulator.inject(case.fault)
    timeout = httpx2.Timeout(0.5 if case.fault.name == "never_answers" else 10)
    with (
        anthropic.Anthropic(api_key="k", base_url=simulator.url, max_retries=0, timeout=timeout) as client,
        pytest.raises(case.raises) as caught,
    ):
        stream(client) if case.streams else ask(client)
    assert getattr(caught.value, "type", None) == case.error_type
    wait_until(lambda: len(simulator.journal) == 1, "the entry of the request is written")
    entry = only(simulator)
    assert (entry.verdict, entry.fault) == ("fault", case.fault.name)
    assert (entry.status, entry.billed) == (case.status, case.billed)
    assert entry.delivered is (case in REFUSED)
    assert bool(entry.usage.output_tokens) is case.billed


@pytest.mark.parametrize("header", ["0", "3600", "Wed, 02 Dec 2026 00:00:00 GMT", None])
def test_a_rate_limit_says_when_to_come_again_in_any_form_or_not_at_all(
    simulator: Simulator, client: anthropic.Anthropic, header: str | None
) -> None:
    simulator.inject(Fault("rate_limited", retry_after=header))
    with pytest.raises(anthropic.RateLimitError) as caught:
        ask(client)
    assert caught.value.response.headers.get("retry-after") == header


def test_the_spend_limit_tells_the_client_not_to_retry(simulator: Simulator, client: anthropic.Anthropic) -> None:
    simulator.inject("spend_limit")
    with pytest.raises(anthropic.RateLimitError) as caught:
        ask(client)
    assert "retry-after" not in caught.value.response.headers
    assert caught.value.response.headers["x-should-retry"] == "false"
    assert caught.value.error_code == "enforced_spend_limit_reached"


def test_a_page_of_html_comes_back_as_a_bare_string(simulator: Simulator, client: anthropic.Anthropic) -> None:
    simulator.inject("html")
    page: object = client.messages.create(model="claude-sonnet-5-5", max_tokens=500, messages=HELLO)
    assert isinstance(page, str)
    assert page.startswith("<html>")


def test_usage_and_content_can_be_missing(simulator: Simulator, client: anthropic.Anthropic) -> None:
    simulator.inject("missing_usage")
    simulator.inject("null_content")
    given: Any = {"model": "claude-sonnet-5-5", "max_tokens": 500, "messages": HELLO}
    assert "usage" not in client.messages.with_raw_response.create(**given).http_response.json()
    assert client.messages.with_raw_response.create(**given).http_response.json()["content"] is None


@pytest.mark.parametrize("name", ["slow_first_byte", "trickle"])
@pytest.mark.parametrize("streams", [False, True])
def test_slow_answers_arrive_whole(simulator: Simulator, client: anthropic.Anthropic, name: str, streams: bool) -> None:
    simulator.inject(Fault(name, seconds=0.3))
    began = time.monotonic()
    message = stream(client) if streams else ask(client)
    assert message.content[0].to_dict()["text"] == TEXT
    assert time.monotonic() - began >= 0.25
    assert only(simulator).delivered


def test_a_trickle_outlasts_a_timeout_that_is_counted_per_read(simulator: Simulator) -> None:
    simulator.inject(Fault("trickle", seconds=0.6))
    timeout = httpx2.Timeout(0.3)
    with anthropic.Anthropic(api_key="k", base_url=simulator.url, max_retries=0, timeout=timeout) as client:
        assert ask(client).stop_reason == "end_turn"


@pytest.mark.parametrize("name", ["stream_pings", "stream_unknown_event"])
def test_a_stream_with_strange_events_is_still_whole(
    simulator: Simulator, client: anthropic.Anthropic, name: str
) -> None:
    simulator.inject(Fault(name, seconds=0.2))
    assert stream(client).content[0].to_dict()["text"] == TEXT
    assert only(simulator).delivered


def test_a_stream_may_end_without_an_end(simulator: Simulator, client: anthropic.Anthropic) -> None:
    simulator.inject("stream_without_end")
    with client.messages.stream(model="claude-sonnet-5-5", max_tokens=500, messages=HELLO) as events:
        kinds = [event.type for event in events]
    assert "message_stop" not in kinds
    assert not only(simulator).delivered


def test_a_fault_strikes_the_next_calls_and_then_no_more(simulator: Simulator, client: anthropic.Anthropic) -> None:
    simulator.inject("overloaded", times=2)
    assert [outcome(client) for _ in range(4)] == ["OverloadedError", "OverloadedError", "fine", "fine"]


def test_a_fault_by_probability_is_the_same_for_the_same_seed(client: anthropic.Anthropic) -> None:
    def outcomes(seed: int) -> list[str]:
        with Simulator(answer) as simulator:
            simulator.inject("overloaded", probability=0.5, seed=seed)
            here = client.with_options(base_url=simulator.url)
            return [outcome(here) for _ in range(20)]

    first = outcomes(seed=7)
    assert {"OverloadedError", "fine"} == set(first)
    assert first == outcomes(seed=7)
    assert first != outcomes(seed=8)


def test_a_fault_may_choose_its_run_its_model_or_its_words(simulator: Simulator, client: anthropic.Anthropic) -> None:
    simulator.inject("overloaded", run="run-2")
    simulator.inject("server_error", model="claude-haiku-5-5")
    simulator.inject("revoked_key", match="good ?bye")
    assert outcome(client) == "fine"
    assert outcome(client, metadata={"user_id": "run-2"}) == "OverloadedError"
    assert outcome(client, model="claude-haiku-5-5") == "InternalServerError"
    assert outcome(client, messages=[{"role": "user", "content": "goodbye"}]) == "AuthenticationError"


def test_a_fault_may_begin_after_some_calls_and_then_never_end(
    simulator: Simulator, client: anthropic.Anthropic
) -> None:
    simulator.inject("revoked_key", after=2)
    assert [outcome(client) for _ in range(5)] == ["fine", "fine", *["AuthenticationError"] * 3]


def test_a_fault_of_streams_that_an_answer_carries_spares_plain_answers(client: anthropic.Anthropic) -> None:
    with Simulator(lambda request: Answer(text=TEXT, fault=Fault("stream_empty"))) as simulator:
        here = client.with_options(base_url=simulator.url)
        assert outcome(here) == "fine"
        with pytest.raises(AssertionError):
            stream(here)


def test_errors_say_whether_another_try_may_help(simulator: Simulator, client: anthropic.Anthropic) -> None:
    told = []
    for name in ("overloaded", "rate_limited", "revoked_key"):
        simulator.inject(name)
        with pytest.raises(anthropic.APIStatusError) as caught:
            ask(client)
        told.append(caught.value.response.headers["x-should-retry"])
    assert told == ["true", "true", "false"]


def test_a_storm_lasts_for_its_seconds() -> None:
    now = [1000.0]
    with (
        Simulator(answer, clock=lambda: now[0]) as simulator,
        anthropic.Anthropic(api_key="k", base_url=simulator.url, max_retries=0, timeout=5) as client,
    ):
        simulator.inject("overloaded", for_s=10)
        before = [outcome(client), outcome(client)]
        now[0] += 11
        assert [*before, outcome(client)] == ["OverloadedError", "OverloadedError", "fine"]


def test_a_fault_can_be_called_off(simulator: Simulator, client: anthropic.Anthropic) -> None:
    simulator.inject("overloaded", times=100)
    assert outcome(client) == "OverloadedError"
    simulator.clear_faults()
    assert outcome(client) == "fine"


def test_a_fault_before_the_request_is_read_cannot_choose_its_run(simulator: Simulator) -> None:
    with pytest.raises(ValueError, match="strikes before the request is read"):
        simulator.inject("reset_before_read", run="run-1")


def test_an_unknown_fault_is_told_with_the_nearest_known_one() -> None:
    with pytest.raises(ValueError, match="did you mean 'overloaded'"):
        Fault("overload")


def test_a_playbook_may_ask_for_faults() -> None:
    text = """
faults:
  - {fault: {name: rate_limited, retry_after: 7}, times: 1}
rules:
  - {when: {last: bad}, answer: {fault: server_error}}
  - {answer: {text: hi}}
"""
    with (
        Simulator(Playbook.parse(text)) as simulator,
        anthropic.Anthropic(api_key="k", base_url=simulator.url, max_retries=0, timeout=5) as client,
    ):
        assert outcome(client) == "RateLimitError"
        assert outcome(client) == "fine"
        assert outcome(client, messages=[{"role": "user", "content": "bad"}]) == "InternalServerError"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("rules: [{answer: {fault: overload}}]", "did you mean 'overloaded'"),
        ("rules: [{answer: {fault: reset_before_read}}]", "list it in `faults:`"),
        ("rules: [{answer: {}}]\nfaults: [{fault: reset_before_read, run: r}]", "cannot be chosen by run"),
    ],
)
def test_a_fault_that_cannot_be_is_told_when_the_playbook_is_read(text: str, says: str) -> None:
    with pytest.raises(PlaybookError, match=says):
        Playbook.parse(text)


def test_refused_connections_are_refused_and_then_accepted_again(
    simulator: Simulator, client: anthropic.Anthropic
) -> None:
    with simulator.refusing_connections():
        assert outcome(client) == "APIConnectionError"
    assert outcome(client) == "fine"


def test_every_fault_but_those_of_words_and_batches_is_tried_here() -> None:
    tried = {case.fault.name for case in REFUSED + BROKEN}
    tried |= {"html", "missing_usage", "null_content", "slow_first_byte", "trickle", "stream_pings"}
    tried |= {"stream_unknown_event", "stream_without_end"}
    elsewhere = {Stage.SPOKEN, Stage.WRITTEN, Stage.HEADERS, Stage.ITEM, Stage.BATCH, Stage.RESULTS}
    assert tried == {name for name, stage in FAULTS.items() if stage not in elsewhere}


def test_every_fault_is_documented() -> None:
    written = (Path(__file__).parents[2] / "docs" / "simulator.md").read_text(encoding="utf-8")
    assert [name for name in FAULTS if f"`{name}`" not in written] == []


def outcome(client: anthropic.Anthropic, **fields: Any) -> str:
    try:
        ask(client, **fields)
    except anthropic.APIError as error:
        return type(error).__name__
    return "fine"
