"""`python -m faults.dying_producer '{"BATCH": "MOMENT"}'`: producers that submit a batch each, and die of it.

PACELINE_REDIS_URL says where.
"""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from typing import cast

from faults.mortal import Fate, Mortal, die_at_each

from paceline.core.agent import Agent
from paceline.core.broker_address import broker_address
from paceline.producer import submit
from paceline.producer.fleet import Fleet
from paceline.producer.publish import KombuPublisher, Publisher
from paceline.producer.settings import ProducerSettings
from paceline.store.connect import connect
from paceline.store.port import RunStore

AGENT = Agent(name="brief", model="claude-sonnet-5-5")
ROWS = [{"id": str(number), "prompt": "go"} for number in range(3)]


def submit_and_die(url: str, fate: Fate) -> None:
    """Submit in two rounds."""
    fate.is_waiting = True
    submit.CHUNK = 2
    address = broker_address(url, prefix=ProducerSettings().prefix)
    store = Mortal(connect(url), "store", fate)
    publisher = Mortal(KombuPublisher(address.url, address.transport_options), "publisher", fate)
    with Fleet.over(cast(RunStore, store), cast(Publisher, publisher)) as fleet:
        fleet.submit(AGENT, ROWS, batch=fate.batch)


if __name__ == "__main__":
    die_at_each(json.loads(sys.argv[1]), partial(submit_and_die, os.environ["PACELINE_REDIS_URL"]))
