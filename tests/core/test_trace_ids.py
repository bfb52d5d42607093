from __future__ import annotations

from paceline.core.ids import CallId, RunId, trace_id
from paceline.core.trace_ids import (
    TURNS_IN_A_PART,
    attempt_span,
    call_span,
    chat_span,
    doubt_span,
    is_last_of_part,
    part_of,
    root_span,
    trace_of,
    turn_span,
)

RUN = RunId("batch-row")
CALL = CallId("c1")


def test_every_span_of_a_run_has_an_id_of_its_own() -> None:
    spans = [
        *(root_span(RUN, part, life) for part in (0, 1) for life in (0, 1)),
        *(turn_span(RUN, turn) for turn in (1, 2)),
        *(attempt_span(RUN, turn, attempt) for turn in (1, 2) for attempt in (1, 2)),
        *(chat_span(RUN, turn, attempt) for turn in (1, 2) for attempt in (1, 2)),
        *(call_span(RUN, turn, CALL, attempt) for turn in (1, 2) for attempt in (1, 2)),
        doubt_span(RUN, 1, CALL, 1),
        root_span(RunId("batch-other"), 0),
    ]
    assert len(set(spans)) == len(spans)
    assert all(len(span) == 16 and int(span, 16) for span in spans)


def test_the_first_part_of_a_run_is_the_trace_that_is_shown_for_it() -> None:
    assert trace_of(RUN, part_of(1)) == trace_id(RUN)


def test_a_very_long_run_is_told_in_parts() -> None:
    assert [part_of(turn) for turn in (1, TURNS_IN_A_PART, TURNS_IN_A_PART + 1)] == [0, 0, 1]
    assert [is_last_of_part(turn) for turn in (1, TURNS_IN_A_PART, TURNS_IN_A_PART + 1)] == [False, True, False]


def test_a_sampler_takes_all_the_parts_of_a_run_or_none() -> None:
    traces = [trace_of(RUN, part) for part in range(5)]
    assert len(set(traces)) == 5
    assert len({trace[16:] for trace in traces}) == 1, "the bits that ratio samplers look at"
