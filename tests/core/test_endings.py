"""What each stop reason means to whoever reads the result."""

from __future__ import annotations

import pytest

from paceline.core.endings import ENDINGS, ErrorClass, Outcome, RunEndedWithoutAnswer, StopReason
from paceline.core.lifecycle import Status


def test_only_a_success_has_neither_error_class_nor_exception() -> None:
    for reason, ending in ENDINGS.items():
        succeeded = ending.status is Status.SUCCEEDED
        assert (ending.error_class is None) is succeeded, reason
        assert (ending.exception is None) is succeeded, reason


def test_each_ending_without_an_answer_has_an_exception_of_its_own() -> None:
    exceptions = [ending.exception for ending in ENDINGS.values() if ending.exception]
    assert len(set(exceptions)) == len(exceptions)
    for exception in exceptions:
        with pytest.raises(RunEndedWithoutAnswer, match="run a-1: no answer after 3 turns"):
            raise exception("a-1", "no answer after 3 turns")


def test_an_outcome_blames_whom_it_names_or_whom_its_reason_does() -> None:
    assert Outcome(reason=StopReason.MODEL_ERROR).blames is ErrorClass.MODEL
    assert Outcome(reason=StopReason.MODEL_ERROR, error_class=ErrorClass.INPUT).blames is ErrorClass.INPUT
    assert Outcome(reason=StopReason.FINAL_ANSWER, answer="Ada").blames is None
