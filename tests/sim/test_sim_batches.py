"""Batches as the official client drives them: made, told of, cancelled, ended, and their results read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import anthropic
import pytest
from support.sim_wire import BATCH_RULES, HEADERS, HELLO, NOW, TOOL, Break, ask, body, post, text, user

from paceline.sim import FAULTS, Answer, BatchPlan, Journal, Limits, Playbook, Request, Simulator
from paceline.sim.faults import Stage
from paceline.sim.rules import Rule

PATH = "/v1/messages/batches"
KEYED = {**HEADERS, "authorization": "Bearer k"}
DAY = 24 * 3600.0
PARAMS: dict[str, Any] = {"model": "claude-sonnet-5-5", "max_tokens": 100, "messages": [HELLO], "tools": [TOOL]}


def answer(request: Request) -> Answer:
    """The word of the request, said after as many seconds as it has exclamation marks."""
    words = request.first_user_text
    return Answer(text=f"{words} indeed", delay_s=float(words.count("!")))


@dataclass
class Bench:
    """A simulator on a clock of its own, and a client of it."""

    simulator: Simulator
    client: anthropic.Anthropic
    now: list[float]

    def make(self, *words: str, **params: Any) -> str:
        """A batch with a request for each word, named by its number."""
        requests: Any = [item(f"r{number}", word, **params) for number, word in enumerate(words)]
        return self.client.messages.batches.create(requests=requests).id

    def results(self, batch_id: str) -> dict[str, Any]:
        return {each.custom_id: each.result.to_dict() for each in self.client.messages.batches.results(batch_id)}

    def outcomes(self, batch_id: str) -> dict[str, str]:
        return {custom_id: result["type"] for custom_id, result in self.results(batch_id).items()}


def item(custom_id: str, words: str = "hello", **params: Any) -> dict[str, Any]:
    return {"custom_id": custom_id, "params": {**PARAMS, "messages": [user(text(words))], **params}}


@pytest.fixture
def bench() -> Iterator[Bench]:
    now = [NOW]
    keys = {"k": "blue", "other": "green"}
    with (
        Simulator(answer, clock=lambda: now[0], api_keys=keys, batches=BatchPlan(seconds=60, seed=1)) as simulator,
        anthropic.Anthropic(api_key="k", base_url=simulator.url, max_retries=0, timeout=5) as client,
    ):
        yield Bench(simulator, client, now)


def test_a_batch_tells_nothing_of_its_requests_until_all_have_ended(bench: Bench) -> None:
    made = bench.client.messages.batches.create(requests=[item("a"), item("b")])  # type: ignore[list-item]
    assert made.id.startswith("msgbatch_01")
    assert (made.processing_status, made.request_counts.processing, made.results_url) == ("in_progress", 2, None)
    assert (made.expires_at - made.created_at).total_seconds() == DAY
    bench.now[0] += 59
    assert bench.client.messages.batches.retrieve(made.id).processing_status == "in_progress"
    with pytest.raises(anthropic.AnthropicError, match="Has it finished processing"):
        bench.results(made.id)
    bench.now[0] += 1
    ended = bench.client.messages.batches.retrieve(made.id)
    assert (ended.processing_status, ended.request_counts.processing) == ("ended", 0)
    assert ended.request_counts.succeeded == 2
    assert ended.ended_at is not None
    assert ended.results_url == f"{bench.simulator.url}{PATH}/{made.id}/results"


def test_results_come_in_an_order_of_their_own_that_a_seed_gives(bench: Bench) -> None:
    words = [f"word{number}" for number in range(8)]
    first, second = bench.make(*words), bench.make(*words)
    bench.now[0] += 60
    order = [list(bench.results(each)) for each in (first, second)]
    assert order[0] == order[1] != [f"r{number}" for number in range(8)]
    results = bench.results(first)
    assert {results[f"r{number}"]["message"]["content"][0]["text"] for number in range(8)} == {
        f"{word} indeed" for word in words
    }


def test_what_is_succeeded_is_billed_as_a_batch_and_journaled_under_its_names(bench: Bench) -> None:
    batch_id = bench.make("one")
    assert [entry.billed for entry in bench.simulator.journal] == [False]
    bench.now[0] += 60
    message = bench.results(batch_id)["r0"]["message"]
    assert message["usage"]["service_tier"] == "batch"
    (entry,) = bench.simulator.journal.accepted()
    assert (entry.batch_id, entry.custom_id, entry.path) == (batch_id, "r0", PATH)
    assert (entry.usage.output_tokens, entry.latency_s) == (message["usage"]["output_tokens"], 60)


def test_a_message_of_a_batch_is_the_one_that_the_lone_request_gets(bench: Bench) -> None:
    marked: Any = {"system": [text("s" * 3500, cache_control={"type": "ephemeral", "ttl": "1h"})]}
    batch_id = bench.make("one", **marked)
    bench.now[0] += 60
    message = bench.results(batch_id)["r0"]["message"]
    alone = bench.client.messages.create(**{**item("x", "one")["params"], **marked}).to_dict()
    assert (message["id"], message["content"]) == (alone["id"], alone["content"])
    usage: Any = alone["usage"]
    assert usage["cache_read_input_tokens"] == message["usage"]["cache_creation_input_tokens"] > 1000
    entries = bench.simulator.journal.accepted()
    assert entries[0].message_hashes == entries[1].message_hashes


def test_a_bad_request_is_a_line_of_its_own_and_no_refusal_of_the_batch(bench: Bench) -> None:
    requests: Any = [
        item("fine"),
        item("model", model="sonnet4"),
        item("field", surprise=1),
        item("stream", stream=True),
        item("warm", max_tokens=0),
    ]
    batch_id = bench.client.messages.batches.create(requests=requests).id
    bench.now[0] += 60
    results = bench.results(batch_id)
    errors = {name: result["error"]["error"] for name, result in results.items() if result["type"] == "errored"}
    assert errors == {
        "model": {"type": "not_found_error", "message": "model: sonnet4"},
        "field": {"type": "invalid_request_error", "message": "surprise: Extra inputs are not permitted"},
        "stream": {"type": "invalid_request_error", "message": "stream: not supported in message batches"},
        "warm": {"type": "invalid_request_error", "message": "max_tokens: 0: not supported in message batches"},
    }
    counts = bench.client.messages.batches.retrieve(batch_id).request_counts
    assert (counts.errored, counts.succeeded) == (4, 1)
    assert {entry.rule for entry in bench.simulator.journal.rejected()} == {12, 10, 64}


def test_the_slowest_answer_holds_the_whole_batch(bench: Bench) -> None:
    batch_id = bench.make("soon", "late" + "!" * 90)
    bench.now[0] += 89
    assert bench.client.messages.batches.retrieve(batch_id).processing_status == "in_progress"
    bench.now[0] += 1
    assert bench.outcomes(batch_id) == {"r0": "succeeded", "r1": "succeeded"}


def test_a_cancelled_batch_keeps_what_is_done(bench: Bench) -> None:
    batch_id = bench.make("soon", "late" + "!" * 90)
    bench.now[0] += 70
    cancelled = bench.client.messages.batches.cancel(batch_id)
    assert (cancelled.processing_status, cancelled.ended_at) == ("canceling", None)
    ended = bench.client.messages.batches.retrieve(batch_id)
    assert (ended.processing_status, ended.cancel_initiated_at) == ("ended", cancelled.cancel_initiated_at)
    assert bench.outcomes(batch_id) == {"r0": "succeeded", "r1": "canceled"}
    assert len(bench.simulator.journal.accepted()) == 1


def test_a_batch_may_take_its_time_to_be_cancelled() -> None:
    now = [NOW]
    plan = BatchPlan(seconds=60, cancel_seconds=5)
    with Simulator(answer, clock=lambda: now[0], batches=plan) as simulator:
        batch_id = post(simulator.url, {"requests": [item("a")]}, path=PATH).body["id"]
        post(simulator.url, {}, path=f"{PATH}/{batch_id}/cancel")
        states = []
        for seconds in (4, 1):
            now[0] += seconds
            states.append(ask(simulator.url, "GET", f"{PATH}/{batch_id}").body["processing_status"])
    assert states == ["canceling", "ended"]


def test_what_is_not_done_in_a_day_expires(bench: Bench) -> None:
    batch_id = bench.make("soon", "late" + "!" * 90_000)
    bench.now[0] += DAY - 1
    assert bench.client.messages.batches.retrieve(batch_id).processing_status == "in_progress"
    bench.now[0] += 1
    assert bench.outcomes(batch_id) == {"r0": "succeeded", "r1": "expired"}


def test_results_are_archived_after_29_days(bench: Bench) -> None:
    batch_id = bench.make("one")
    bench.now[0] += 29 * DAY
    batch = bench.client.messages.batches.retrieve(batch_id)
    assert batch.archived_at is not None
    assert batch.results_url is None
    assert ask(bench.simulator.url, "GET", f"{PATH}/{batch_id}/results", KEYED).status == 404


def test_batches_are_listed_the_newest_first_and_in_pages(bench: Bench) -> None:
    made = [bench.make("one") for _ in range(5)]
    listed = bench.client.messages.batches.list(limit=2)
    assert [batch.id for batch in listed.data] == made[:2:-1]
    assert listed.has_more
    assert [batch.id for batch in listed] == made[::-1]
    before = bench.client.messages.batches.list(limit=2, before_id=made[0])
    assert [batch.id for batch in before.data] == made[2:0:-1]
    refused = ask(bench.simulator.url, "GET", f"{PATH}?limit=1001", KEYED)
    assert refused.text == "limit: Input should be less than or equal to 1000"


def test_batches_belong_to_their_workspace(bench: Bench) -> None:
    batch_id = bench.make("one")
    other = bench.client.with_options(api_key="other")
    assert list(other.messages.batches.list()) == []
    with pytest.raises(anthropic.NotFoundError):
        other.messages.batches.retrieve(batch_id)


def test_a_batch_that_has_ended_can_be_deleted(bench: Bench) -> None:
    batch_id = bench.make("one")
    bench.now[0] += 60
    assert bench.client.messages.batches.delete(batch_id).type == "message_batch_deleted"
    with pytest.raises(anthropic.NotFoundError):
        bench.client.messages.batches.retrieve(batch_id)


def test_the_beta_client_makes_and_reads_batches_too(bench: Bench) -> None:
    batches = bench.client.beta.messages.batches
    made = batches.create(requests=[item("a")], betas=["message-batches-2024-09-24"])  # type: ignore[list-item]
    bench.now[0] += 60
    assert [each.result.type for each in batches.results(made.id)] == ["succeeded"]


def test_requests_of_a_batch_do_not_count_against_the_limits_of_messages() -> None:
    with Simulator(answer, limits=Limits(requests_per_minute=1)) as simulator:
        requests = [item(f"r{number}") for number in range(5)]
        batch_id = post(simulator.url, {"requests": requests}, path=PATH).body["id"]
        told = ask(simulator.url, "GET", f"{PATH}/{batch_id}").body
        assert told["request_counts"]["succeeded"] == 5
        assert post(simulator.url, body()).status == 200


BREAKS = [
    Break(
        Rule.CUSTOM_ID_LENGTH,
        "requests.0.custom_id: String should have at most 64 characters",
        {"requests": [item("x" * 65)]},
    ),
    Break(
        Rule.CUSTOM_ID_PATTERN,
        "requests.0.custom_id: String should match pattern '^[a-zA-Z0-9_-]{1,64}$'",
        {"requests": [item("a b")]},
    ),
    Break(
        Rule.CUSTOM_ID_TWICE,
        "requests: custom_id must be unique within the batch. Found more than one: a",
        {"requests": [item("a"), item("a")]},
    ),
    Break(Rule.NO_REQUESTS, "requests: List should have at least 1 item after validation, not 0", {"requests": []}),
    Break(
        Rule.TOO_MANY_REQUESTS,
        "requests: List should have at most 100000 items after validation, not 100001",
        b'{"requests": [' + b",".join([b"{}"] * 100_001) + b"]}",
    ),
    Break(Rule.MISSING_FIELD, "requests: Field required", {}),
    Break(Rule.WRONG_TYPE, "requests: Input should be a valid list", {"requests": "all"}),
    Break(Rule.WRONG_TYPE, "requests.0: Input should be a valid dictionary", {"requests": ["a"]}),
    Break(Rule.MISSING_FIELD, "requests.0.params: Field required", {"requests": [{"custom_id": "a"}]}),
    Break(Rule.NOT_AN_OBJECT, "body: Input should be a valid dictionary", []),
    Break(Rule.NOT_JSON, "The request body is not valid JSON: ...", b'{"requests": [{]}'),
]


@pytest.mark.parametrize("case", BREAKS, ids=lambda case: case.rule.name)
def test_a_batch_that_breaks_a_rule_is_refused_whole(case: Break) -> None:
    with Simulator(answer) as simulator:
        reply = post(simulator.url, case.sends, path=PATH)
        start, cut, _ = case.says.partition("...")
        assert reply.text.startswith(start) if cut else reply.text == case.says
        assert reply.status == case.rule.status
        assert simulator.journal.entries[0].rule == case.rule.number


def test_what_cannot_be_done_to_a_batch_is_refused(bench: Bench) -> None:
    batch_id = bench.make("one")
    url = bench.simulator.url
    early = ask(url, "GET", f"{PATH}/{batch_id}/results", KEYED)
    assert (early.status, early.text) == (
        404,
        f"results of message batch {batch_id} are not available: its processing status is in_progress",
    )
    undeleted = ask(url, "DELETE", f"{PATH}/{batch_id}", KEYED)
    assert (undeleted.status, undeleted.text) == (
        400,
        f"message batch {batch_id} cannot be deleted: its processing status is in_progress",
    )
    bench.now[0] += 60
    assert ask(url, "POST", f"{PATH}/{batch_id}/cancel", KEYED).status == 400
    unknown = ask(url, "GET", f"{PATH}/msgbatch_none", KEYED)
    assert (unknown.status, unknown.text) == (404, "message batch not found: msgbatch_none")
    assert ask(url, "GET", f"{PATH}/{batch_id}/nothing", KEYED).status == 404
    assert ask(url, "PUT", PATH, KEYED).status == 404
    assert ask(url, "GET", PATH).status == 401


def test_every_rule_of_batches_is_broken_here() -> None:
    here = {case.rule for case in BREAKS} | {
        Rule.NOT_IN_A_BATCH,
        Rule.NO_SUCH_BATCH,
        Rule.RESULTS_NOT_READY,
        Rule.BATCH_NOT_ENDED,
    }
    assert {rule for rule in Rule if rule.number in BATCH_RULES} <= here


def test_single_requests_may_end_in_any_way(bench: Bench) -> None:
    for name in ("item_errored", "item_expired", "item_canceled", "overloaded", "unknown_usage"):
        bench.simulator.inject(name)
    batch_id = bench.make(*"abcdef")
    bench.now[0] += 60
    results = bench.results(batch_id)
    assert [results[f"r{number}"]["type"] for number in range(6)] == [
        "errored",
        "expired",
        "canceled",
        "errored",
        "succeeded",
        "succeeded",
    ]
    assert results["r3"]["error"]["error"]["type"] == "overloaded_error"
    assert results["r4"]["message"]["usage"]["tokens_of_tomorrow"] == 17
    assert len(bench.simulator.journal.accepted()) == 2


def test_a_batch_may_be_stuck_until_it_expires(bench: Bench) -> None:
    bench.simulator.inject("batch_stuck")
    batch_id = bench.make("one")
    bench.now[0] += DAY - 1
    assert bench.client.messages.batches.retrieve(batch_id).processing_status == "in_progress"
    bench.now[0] += 1
    assert bench.outcomes(batch_id) == {"r0": "expired"}


def test_a_whole_batch_may_expire(bench: Bench) -> None:
    bench.simulator.inject("batch_expired")
    batch_id = bench.make("one", "two")
    bench.now[0] += 60
    assert set(bench.outcomes(batch_id).values()) == {"expired"}


def test_a_batch_whose_answer_was_lost_is_there_all_the_same(bench: Bench) -> None:
    bench.simulator.inject("batch_lost")
    with pytest.raises(anthropic.APIConnectionError):
        bench.make("one")
    (batch,) = bench.client.messages.batches.list()
    bench.now[0] += 60
    assert bench.outcomes(batch.id) == {"r0": "succeeded"}


def test_results_may_be_unavailable_once(bench: Bench) -> None:
    batch_id = bench.make("one")
    bench.now[0] += 60
    bench.simulator.inject("results_unavailable")
    with pytest.raises(anthropic.InternalServerError):
        bench.results(batch_id)
    assert bench.outcomes(batch_id) == {"r0": "succeeded"}


def test_every_fault_of_batches_is_tried_here() -> None:
    mine = {name for name, stage in FAULTS.items() if stage in (Stage.ITEM, Stage.BATCH, Stage.RESULTS)}
    tried = {"item_errored", "item_expired", "item_canceled", "batch_stuck", "batch_expired", "batch_lost"}
    assert mine == tried | {"results_unavailable"}


def test_a_journal_of_batches_can_be_read_back(tmp_path: Any) -> None:
    path = tmp_path / "journal.jsonl"
    plan = "batches: {seconds: 0}\nrules: [{answer: {text: hi}}]"
    with Simulator(Playbook.parse(plan), journal_path=path) as simulator:
        batch_id = post(simulator.url, {"requests": [item("a")]}, path=PATH).body["id"]
        lines = ask(simulator.url, "GET", f"{PATH}/{batch_id}/results", parses=False).body
    assert json.loads(lines)["custom_id"] == "a"
    assert [entry.custom_id for entry in Journal.read(path).accepted()] == ["a"]
