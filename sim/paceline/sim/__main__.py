"""`python -m paceline.sim --playbook FILE`: the simulator as a process of its own."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence

from paceline.sim.playbook import Playbook
from paceline.sim.playbook_mistakes import PlaybookError
from paceline.sim.serving import HOST, serve


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until told to stop; prints one line of JSON with the URL once requests are answered."""
    options = _parser().parse_args(arguments)
    try:
        playbook = Playbook.load(options.playbook)
    except (OSError, PlaybookError) as error:
        print(error, file=sys.stderr)
        return 2
    if options.delay_s is not None:
        playbook = playbook.delayed(options.delay_s)
    asyncio.run(serve(playbook, host=options.host, port=options.port, journal_path=options.journal, ready=_announce))
    return 0


def _announce(url: str) -> None:
    print(json.dumps({"url": url}), flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m paceline.sim", description=__doc__)
    parser.add_argument("--playbook", required=True, help="YAML file with the rules to answer by")
    parser.add_argument("--host", default=HOST, help="address to listen at")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--journal", help="file to which one JSON line a request is appended")
    parser.add_argument("--delay-s", type=float, help="seconds before every answer, in place of the playbook's")
    return parser


if __name__ == "__main__":
    sys.exit(main())
