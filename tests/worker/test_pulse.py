"""Who may say that others are gone."""

from __future__ import annotations

from paceline.worker.pulse import Pulse

BEAT = 5.0


def test_a_process_that_is_heard_at_every_beat_may_judge() -> None:
    pulse = Pulse(seconds=BEAT)
    assert pulse.is_steady(0.0), "it has just begun, and knows of no break"
    for beat in range(10):
        pulse.note_beat(beat * BEAT)
        assert pulse.is_steady(beat * BEAT + 2 * BEAT)


def test_a_process_that_is_not_heard_may_not_judge_until_others_had_time_to_be_heard_again() -> None:
    pulse = Pulse(seconds=BEAT)
    pulse.note_beat(0.0)
    assert not pulse.is_steady(2 * BEAT + 0.1)
    pulse.note_beat(60.0)
    assert not pulse.is_steady(60.0 + BEAT)
    pulse.note_beat(60.0 + BEAT)
    assert pulse.is_steady(60.0 + 1.5 * BEAT)
