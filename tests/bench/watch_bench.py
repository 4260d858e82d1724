"""24 simulated hours of `kvbudget watch` at 1 Hz: memory stays flat, and the cost of one reading.

usage: python tests/bench/watch_bench.py [HOURS]
"""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit"))
from watch_series import quiet, storm

from kvbudget.render.watch import to_json
from kvbudget.watch.alarms import Watcher


def rss_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    hours = float(sys.argv[1]) if len(sys.argv) > 1 else 24
    seconds = int(hours * 3600)
    watcher = Watcher()
    early = 0.0
    started = time.process_time()
    for number, sample in enumerate(quiet(seconds, 1)):
        to_json(watcher.feed(sample), ())
        if number == seconds // 24:
            early = rss_mib()
    spent = time.process_time() - started
    print(f"{hours:g} h at 1 Hz: {seconds} readings in {spent:.1f} s of CPU")
    print(f"share of one core at 1 Hz: {100 * spent / seconds:.3f} %")
    print(f"peak RSS after 1/24 of the time {early:.1f} MiB, at the end {rss_mib():.1f} MiB")
    watcher = Watcher()
    alarms = sum(len(watcher.feed(sample).alarms) for sample in storm(3600, 1))
    print(f"an hour of preemption storm: {alarms} alarmed readings")


if __name__ == "__main__":
    main()
