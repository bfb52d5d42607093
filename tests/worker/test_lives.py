"""The names under which a process claims, when the record may have lost what it had answered."""

from __future__ import annotations

from paceline.core.ids import Incarnation
from paceline.worker.lives import Lives

FIRST = Incarnation("worker-1")


def test_a_name_is_kept_while_the_servers_are_the_same() -> None:
    lives = Lives(FIRST)
    for _ in range(3):
        lives.note_servers("a b")
    assert (lives.current, lives.in_use(), lives.ended()) == (FIRST, [], [])


def test_a_name_ends_when_no_claim_of_it_is_in_use_any_more() -> None:
    lives = Lives(FIRST)
    lives.note_servers("a")
    with lives.claiming() as before:
        lives.note_servers("b")
        with lives.claiming() as after:
            assert before == FIRST != after == lives.current
            assert (lives.in_use(), lives.ended()) == ([FIRST], [])
    assert (lives.in_use(), lives.ended()) == ([], [FIRST])
    lives.forget(FIRST)
    assert (lives.in_use(), lives.ended()) == ([], [])


def test_a_name_is_never_used_again() -> None:
    lives = Lives(FIRST)
    names = set()
    for servers in ("a", "b", "a", "b"):
        lives.note_servers(servers)
        names.add(lives.current)
    assert len(names) == 4
