"""`python -m bench`: measure, and print ratios."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from dataclasses import asdict
from itertools import product

from .figures import Round, figures
from .history import measure_history
from .report import as_json, as_table, machine, prices_as_table
from .stage import Stage, Watching, set_stage
from .submission import measure_check, measure_submission
from .variants import Variant, measure
from .watched import WatchedRound, prices
from .work import Work


def main() -> None:
    """Parse, measure, print."""
    options = _options()
    if options.submit or options.check:
        _submission(options)
        return
    if options.history:
        cost = measure_history()
        print(json.dumps(asdict(cost)) if options.json else cost.told())
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that no process is left behind
    short = Work(runs=options.runs, turns=10, calls=options.calls)
    long = Work(runs=options.at_once, turns=1000 if options.long else 100, calls=options.calls)
    warm_up = Work(runs=options.at_once, turns=3, calls=options.calls)  # imports, connections
    with set_stage(latency_seconds=options.latency, concurrency=options.at_once, watching=list(Watching)) as stage:
        _watched_round(stage, warm_up, options.at_once)
        watched = [_watched_round(stage, short, options.at_once) for _ in range(options.rounds)]
        found = {}
        if not options.watching:
            _round(stage, warm_up, options.at_once)
            rounds = [_round(stage, short, options.at_once) for _ in range(options.rounds)]
            found = figures(rounds, _round(stage, long, options.at_once))
    if options.json:
        print(as_json(found, prices(watched)))
    else:
        print(f"{short.runs} runs of {short.turns} turns, {short.calls} calls a turn; {machine()}\n")
        print("\n\n".join([*([as_table(found)] if found else []), prices_as_table(prices(watched))]))


def _watched_round(stage: Stage, work: Work, at_once: int) -> WatchedRound:
    """What is told of the work, in each of the ways and for each of the fleet's variants."""
    costs = {}
    for variant, watching in product((Variant.INLINE, Variant.CHORD), Watching):
        cost = costs[variant, watching] = measure(stage, variant, work, at_once=at_once, watching=watching)
        print(f"{variant}, {watching}: {cost.cpu_ms_per_turn:.2f} ms a turn", file=sys.stderr)
    return costs


def _round(stage: Stage, work: Work, at_once: int) -> Round:
    """Every variant once, close together in time: a ratio is of two that met the same machine."""
    costs = {}
    for variant in Variant:
        cost = costs[variant] = measure(stage, variant, work, at_once=at_once)
        print(f"{variant} {work.runs} x {work.turns}: {cost.cpu_ms_per_turn:.2f} ms a turn", file=sys.stderr)
    return costs


def _submission(options: argparse.Namespace) -> None:
    if options.check:
        check_mb = measure_check(options.check)
        print(
            json.dumps({"check_mb": check_mb}) if options.json else f"{options.check} rows checked: +{check_mb:.0f} MB"
        )
    else:
        cost = measure_submission(options.submit)
        print(json.dumps(asdict(cost)) if options.json else cost.told())


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="What a turn costs, beside the bare client.")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--long", action="store_true", help="long runs of 1000 turns in place of 100; takes minutes")
    parser.add_argument("--watching", action="store_true", help="only this: what metrics and traces cost a turn")
    parser.add_argument(
        "--history", action="store_true", help="only this: a turn after 10 turns and after 1000, with as many bytes"
    )
    parser.add_argument("--submit", type=int, metavar="ROWS", help="only this: what submitting so many rows takes")
    parser.add_argument("--check", type=int, metavar="ROWS", help="only this: memory that checking so many rows takes")
    parser.add_argument("--rounds", type=int, default=3, help="rounds; each has every variant (3)")
    parser.add_argument("--runs", type=int, default=60, help="runs of 10 turns in a round (60)")
    parser.add_argument("--calls", type=int, default=3, help="tool calls a turn (3)")
    parser.add_argument("--at-once", type=int, default=16, help="runs in flight, and slots of the worker (16)")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds until the model answers (0)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
