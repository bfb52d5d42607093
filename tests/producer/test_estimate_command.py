"""`paceline estimate`: the figures, as a table and as JSON, and what it refuses."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
import typer

from paceline.producer.cli import run_command
from paceline.producer.commands.estimate import read_tokens

RUN = ("estimate", "--prefix", "8k", "--growth", "1.5k", "--turns", "20")
PRICES = ("--input-usd", "3", "--output-usd", "15")


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("PACELINE_")]:
        monkeypatch.delenv(name)


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run_command(arguments) == 0
    return capsys.readouterr().out


def said_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    return json.loads(said(capsys, *arguments, "--json"))


def test_the_figures_are_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    _, plain, cached = said(capsys, *RUN, *PRICES).splitlines()
    assert plain.split() == ["plain", "445.0k", "0", "0", "6000", "$1.3350", "$0.0900", "$1.4250"]
    assert cached.split() == ["cached", "445.0k", "36.5k", "408.5k", "6000", "$0.2594", "$0.0900", "$0.3494"]


def test_the_figures_are_json(capsys: pytest.CaptureFixture[str]) -> None:
    found = said_json(capsys, *RUN, *PRICES)
    assert found["plain"] == {
        "usage": {"input_tokens": 445_000, "cache_read_tokens": 0, "cache_write_tokens": 0, "output_tokens": 6_000},
        "input_cost_usd": 1.335,
        "output_cost_usd": 0.09,
        "cost_usd": 1.425,
    }
    assert found["cached"]["usage"]["cache_write_tokens"] == 36_500
    assert found["cached"]["usage"]["cache_read_tokens"] == 408_500
    assert found["cached"]["input_cost_usd"] == 0.259425
    assert len(found["cached_turns"]) == 20


def test_a_model_with_these_prices_gives_the_same_figures(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, *RUN, "--model", "claude-sonnet-4-6") == said(capsys, *RUN, *PRICES)


def test_each_turn_is_shown_when_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    lines = said(capsys, *RUN, *PRICES, "--by-turn").splitlines()
    assert [line.split() for line in lines[5:7]] == [["1", "8000", "8000", "0"], ["2", "9500", "1500", "8000"]]
    assert lines[-1].split() == ["20", "36.5k", "1500", "35.0k"]


def test_options_come_from_the_environment_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PACELINE_PREFIX", "paceline")  # the record's: no count of tokens
    for name, value in {"PREFIX": "8k", "GROWTH": "1.5k", "TURNS": "40", "MODEL": "claude-sonnet-4-6"}.items():
        monkeypatch.setenv(f"PACELINE_ESTIMATE_{name}", value)
    assert said_json(capsys, "estimate")["plain"]["usage"]["input_tokens"] == 1_490_000


def test_the_prices_of_the_cache_can_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    free = ("--cache-write-usd", "0", "--cache-read-usd", "0")
    assert said_json(capsys, *RUN, *PRICES, *free)["cached"]["input_cost_usd"] == 0


def test_an_unknown_price_is_said_to_be_unknown_and_never_zero(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command([*RUN, "--model", "llama-12"]) == 0
    out, err = capsys.readouterr()
    assert "445.0k" in out
    assert "cost unknown" in out
    assert "the price of 'llama-12' is unknown: give --input-usd and --output-usd" in err
    assert said_json(capsys, *RUN, "--model", "llama-12")["plain"]["cost_usd"] is None


@pytest.mark.parametrize(
    "prices",
    [(), ("--input-usd", "3"), ("--model", "m", *PRICES), ("--model", "m", "--cache-read-usd", "1")],
    ids=["none", "one of two", "both", "a model and a cache price"],
)
def test_prices_come_from_one_place(capsys: pytest.CaptureFixture[str], prices: tuple[str, ...]) -> None:
    assert run_command([*RUN, *prices]) == 2
    assert "say either --model, or --input-usd and --output-usd" in capsys.readouterr().err


@pytest.mark.parametrize(("text", "tokens"), [("8000", 8_000), ("8k", 8_000), ("1.5K", 1_500), ("2M", 2_000_000)])
def test_tokens_are_counted_as_people_write_them(text: str, tokens: int) -> None:
    assert read_tokens(text) == tokens


@pytest.mark.parametrize("text", ["", "k", "many", "-1", "nan", "inf", "8kk"])
def test_what_is_no_count_of_tokens_is_refused(capsys: pytest.CaptureFixture[str], text: str) -> None:
    with pytest.raises(typer.BadParameter, match="no count of tokens"):
        read_tokens(text)
    assert run_command(["estimate", "--prefix", text, "--growth", "1", "--turns", "1", *PRICES]) == 2
