"""`paceline estimate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from .options import JsonOption
from .printing import print_json, print_table

if TYPE_CHECKING:
    from paceline.core.estimate import Bill, Estimate
    from paceline.core.prices import Prices
    from paceline.core.usage import Usage

_FACTORS = {"k": 1_000, "m": 1_000_000}


def read_tokens(given: str | int) -> int:
    """A count of tokens as people write it: 8000, 8k, 1.5k, 2M. Raises BadParameter."""
    text = str(given)  # an option's default is read too
    factor = _FACTORS.get(text[-1:].lower(), 1)
    try:
        tokens = float(text if factor == 1 else text[:-1]) * factor
        if tokens >= 0:
            return round(tokens)
    except (ValueError, OverflowError):
        pass  # no number, or an infinite one: told of below
    raise typer.BadParameter(f"{text!r} is no count of tokens, such as 8000, 8k or 1.5k")


def estimate(
    prefix: Annotated[
        int,
        typer.Option(
            "--prefix",
            "-p",
            parser=read_tokens,
            metavar="TOKENS",
            envvar="PACELINE_ESTIMATE_PREFIX",
            help="what the first turn sends: system prompt, tools and question; 8k is 8000",
        ),
    ],
    growth: Annotated[
        int,
        typer.Option(
            "--growth",
            "-d",
            parser=read_tokens,
            metavar="TOKENS",
            envvar="PACELINE_ESTIMATE_GROWTH",
            help="what each turn adds to the next: the answer and the tools' results",
        ),
    ],
    turns: Annotated[
        int, typer.Option("--turns", "-t", min=1, max=10_000, envvar="PACELINE_ESTIMATE_TURNS", help="turns of the run")
    ],
    output: Annotated[
        int,
        typer.Option(
            "--output-tokens",
            parser=read_tokens,
            metavar="TOKENS",
            envvar="PACELINE_ESTIMATE_OUTPUT_TOKENS",
            help="what the model writes a turn",
        ),
    ] = 300,
    model: Annotated[
        str | None, typer.Option("--model", "-m", envvar="PACELINE_ESTIMATE_MODEL", help="whose prices to take")
    ] = None,
    input_usd: Annotated[
        float | None,
        typer.Option(min=0, envvar="PACELINE_ESTIMATE_INPUT_USD", help="in place of --model: $ a million input tokens"),
    ] = None,
    output_usd: Annotated[
        float | None,
        typer.Option(min=0, envvar="PACELINE_ESTIMATE_OUTPUT_USD", help="and $ a million output tokens"),
    ] = None,
    cache_write_usd: Annotated[
        float | None,
        typer.Option(
            min=0, envvar="PACELINE_ESTIMATE_CACHE_WRITE_USD", help="$ a million; else 1.25 times the input's"
        ),
    ] = None,
    cache_read_usd: Annotated[
        float | None,
        typer.Option(min=0, envvar="PACELINE_ESTIMATE_CACHE_READ_USD", help="$ a million; else a tenth of the input's"),
    ] = None,
    by_turn: Annotated[
        bool, typer.Option("--by-turn", help="with what each turn writes to the cache and reads from it")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """What a run of so many turns costs, without prompt caching and with it. Nothing is called."""
    from paceline.core.estimate import Question
    from paceline.core.estimate import estimate as estimated

    prices = _prices(model, input_usd, output_usd, cache_write_usd, cache_read_usd)
    question = Question(prefix_tokens=prefix, growth_tokens=growth, turns=turns, output_tokens=output, prices=prices)
    found = estimated(question)
    if as_json:
        print_json(_as_json(found))
    else:
        _tell(found, by_turn=by_turn)
    if found.plain.nanousd is None:
        typer.echo(
            f"the price of {model!r} is unknown: give --input-usd and --output-usd in place of --model", err=True
        )


def _prices(
    model: str | None,
    input_usd: float | None,
    output_usd: float | None,
    cache_write_usd: float | None,
    cache_read_usd: float | None,
) -> Prices:
    from paceline.core.prices import ModelPrices, exact_usd, given_prices

    given = (input_usd, output_usd, cache_write_usd, cache_read_usd)
    if model is not None and given == (None,) * 4:
        return ModelPrices(model=model)
    if model is not None or input_usd is None or output_usd is None:
        raise typer.BadParameter("say either --model, or --input-usd and --output-usd (and the cache's, if unusual)")
    return given_prices(
        exact_usd(input_usd),
        exact_usd(output_usd),
        cache_write_usd=None if cache_write_usd is None else exact_usd(cache_write_usd),
        cache_read_usd=None if cache_read_usd is None else exact_usd(cache_read_usd),
    )


def _tell(found: Estimate, *, by_turn: bool) -> None:
    from paceline.producer.progress import count_text

    print_table(
        ("", "input tokens", "cache written", "cache read", "output tokens", "input cost", "output cost", "cost"),
        [_bill_row("plain", found.plain), _bill_row("cached", found.cached)],
    )
    if by_turn:
        typer.echo("")
        print_table(
            ("turn", "input tokens", "cache written", "cache read"),
            [
                (turn, *map(count_text, (usage.all_input, usage.cache_write, usage.cache_read)))
                for turn, usage in enumerate(found.cached_turns, 1)
            ],
        )


def _bill_row(name: str, bill: Bill) -> tuple[str, ...]:
    from paceline.producer.progress import count_text, dollars

    usage = bill.usage
    tokens = map(count_text, (usage.all_input, usage.cache_write, usage.cache_read, usage.output))
    return (name, *tokens, *map(dollars, map(_usd, (bill.input_nanousd, bill.output_nanousd, bill.nanousd))))


def _usd(nanousd: int | None) -> float | None:
    from paceline.core.usage import NANO_USD

    return None if nanousd is None else nanousd / NANO_USD


def _as_json(found: Estimate) -> dict[str, object]:
    return {
        "plain": _bill_json(found.plain),
        "cached": _bill_json(found.cached),
        "cached_turns": [_usage_json(usage) for usage in found.cached_turns],
    }


def _bill_json(bill: Bill) -> dict[str, object]:
    return {
        "usage": _usage_json(bill.usage),
        "input_cost_usd": _usd(bill.input_nanousd),
        "output_cost_usd": _usd(bill.output_nanousd),
        "cost_usd": _usd(bill.nanousd),
    }


def _usage_json(usage: Usage) -> dict[str, int]:
    from paceline.producer.result import usage_json

    return usage_json(usage)
