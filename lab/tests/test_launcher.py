"""What a launcher of the lab is made to do: another clock, shorter limits."""

import json
import subprocess
import sys
import time
from pathlib import Path

from lab import machine

SEEN = """
import time
from lab import launcher
from podwright.run import drive
from podwright.targets import clock
launcher.prepare()
print(time.time(), time.monotonic(), clock.now(), drive.BARRED_S)
"""


def test_a_launcher_sees_the_clock_that_somebody_has_set_and_the_limits_that_it_is_given(tmp_path: Path) -> None:
    (tmp_path / "clock").write_text("3600.0")
    environment = {"PYTHONPATH": str(machine.REPOSITORY), "LAUNCH_CLOCK": str(tmp_path / "clock")}
    environment["LAUNCH_LIMITS"] = json.dumps({"podwright.run.drive.BARRED_S": 4.0})
    begin, steady = time.time(), time.monotonic()
    out = subprocess.run([sys.executable, "-c", SEEN], env=environment, capture_output=True, text=True, check=True)
    wall, monotonic, product, limit = map(float, out.stdout.split())
    assert 3600 <= wall - begin < 3660 and 0 <= monotonic - steady < 60
    assert abs(product - wall) < 1.0 and limit == 4.0
