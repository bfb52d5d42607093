"""`python -m chaos`: one chaos run, and what it shows. Exit code 1 if a promise was broken."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from integration.fleet import FleetPlan

from .checker import check
from .driver import ChaosPlan, run_chaos
from .plan import Meddling, ModelFaults, drawn_blows

MEDDLING = Meddling(dropped=0.005, doubled=0.02, late=0.02)
FAULTS = ModelFaults(server_error=0.005, reset_before_read=0.003, reset_after_read=0.003, slow=0.005)


def main() -> int:
    asked = _arguments()
    plan = ChaosPlan(
        runs=asked.runs,
        blows=drawn_blows(asked.seed, seconds=asked.seconds, pause_s=asked.pause),
        fleet=FleetPlan(
            workers=asked.workers,
            pool=asked.pool,
            concurrency=asked.concurrency,
            claim_seconds=asked.claim,
            sweep_seconds=asked.sweep,
            app="chaos.meddled_app",
        ),
        meddling=MEDDLING,
        faults=FAULTS,
        longest_model_s=asked.model,
    )
    folder = Path(asked.folder or tempfile.mkdtemp(prefix="chaos-"))
    print(f"seed {asked.seed}, everything in {folder}", file=sys.stderr)
    report = check(run_chaos(folder, plan, say=lambda line: print(line, file=sys.stderr)))
    (folder / "report.json").write_text(report.to_json() + "\n")
    print(report.to_json() if asked.json else report.table())
    return 1 if report.violations else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=200, help="for how long the fleet is struck")
    parser.add_argument("--pause", type=float, default=5, help="seconds between two blows, on average")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--pool", choices=["threads", "prefork"], default="threads")
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--claim", type=float, default=30, help="PACELINE_CLAIM_SECONDS")
    parser.add_argument("--sweep", type=float, default=5, help="PACELINE_SWEEP_SECONDS")
    parser.add_argument("--model", type=float, default=1, help="seconds that a model call takes at most")
    parser.add_argument("--folder", help="where everything is kept; otherwise a new one under /tmp")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
