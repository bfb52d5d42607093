"""The worker's Celery app behind a bad wire: what it sends may be dropped, doubled, held back, and so overtaken.

`celery -A chaos.meddled_app worker`; CHAOS_MEDDLING says how bad, as JSON of a `Meddling`.
"""

# mypy: allow-untyped-calls
# kombu is untyped.

from __future__ import annotations

import json
import os
import random
import threading
from contextlib import suppress
from typing import Any

from chaos.plan import Meddling

from paceline.worker import transport
from paceline.worker.app import create_app
from paceline.worker.settings import Settings

MEDDLING_VARIABLE = "CHAOS_MEDDLING"


class MeddlingChannel(transport.Channel):
    """A channel that treats each message as the dice say. The driver's seed rules the blows, not these."""

    meddling = Meddling()
    dice = random.Random()

    def _put(self, queue: str, message: Any, **how: Any) -> None:
        if self.dice.random() < self.meddling.dropped:
            return
        if self.dice.random() < self.meddling.late:
            self._put_late(queue, message)
        else:
            super()._put(queue, message, **how)
        if self.dice.random() < self.meddling.doubled:
            self._put_late(queue, message)

    def _put_late(self, queue: str, message: Any) -> None:
        timer = threading.Timer(self.dice.random() * self.meddling.latest_s, self._put_now, (queue, message))
        timer.daemon = True
        timer.start()

    def _put_now(self, queue: str, message: Any) -> None:
        with suppress(*self.connection_errors):  # lost with its connection: one more that is dropped
            super()._put(queue, message)


MeddlingChannel.meddling = Meddling(**json.loads(os.environ.get(MEDDLING_VARIABLE, "{}")))
transport.Transport.Channel = MeddlingChannel
app = create_app(Settings.from_environment(os.environ))
