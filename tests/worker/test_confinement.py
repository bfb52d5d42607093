"""What a tool process may take, seen from outside: the alarm that ends it is the one that pytest sets, too."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

_PRELUDE = "import ctypes, time\nfrom paceline.worker.confinement import Alarm, limit_memory\n"


def ended(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", _PRELUDE + script], capture_output=True, text=True, timeout=30)


def test_memory_beyond_the_limit_is_refused_and_below_it_is_not() -> None:
    script = """
limit_memory(256)
fits = bytearray(128 * 1024 * 1024)
try:
    bytearray(512 * 1024 * 1024)
except MemoryError:
    print("refused")
"""
    process = ended(script)
    assert (process.returncode, process.stdout) == (0, "refused\n"), process.stderr


def test_a_process_that_holds_the_interpreter_is_ended_by_the_kernel() -> None:
    began = time.monotonic()
    process = ended("with Alarm().killed_after(0.2):\n    ctypes.PyDLL(None).sleep(60)\n")
    assert process.returncode == -signal.SIGALRM
    assert time.monotonic() - began < 20


def test_what_ends_in_time_is_not_heard_of_again() -> None:
    process = ended("with Alarm().killed_after(0.2):\n    pass\ntime.sleep(0.4)\nprint('alive')\n")
    assert (process.returncode, process.stdout) == (0, "alive\n")


def test_the_alarm_is_off_when_what_it_guards_fails() -> None:
    process = ended(
        "try:\n    with Alarm().killed_after(0.2):\n        1 / 0\nexcept ZeroDivisionError:\n    time.sleep(0.4)\n"
    )
    assert process.returncode == 0


def test_a_process_that_serves_many_is_not_ended() -> None:
    process = ended(
        "from paceline.worker.confinement import unguarded\nwith unguarded(0.1):\n    time.sleep(0.3)\nprint('alive')\n"
    )
    assert (process.returncode, process.stdout) == (0, "alive\n")


def test_a_process_that_is_to_end_does_whatever_it_guards_meanwhile() -> None:
    script = """
alarm = Alarm()
with alarm.killed_after(30):
    alarm.end_within(0.3)
with alarm.killed_after(30):
    pass
time.sleep(30)
"""
    began = time.monotonic()
    assert ended(script).returncode == -signal.SIGALRM
    assert time.monotonic() - began < 20
