"""`make perturb`: change every number, operator, unit, resolution and group; who notices?

python -m tests.perturb [FILE ...] [--jobs N] [--no-tests]. Exit 1 when a change that nobody
notices is not listed in accepted.yaml, or when an entry there matches nothing any more.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import Pool
from pathlib import Path
from queue import Queue
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import track

from kvbudget.knowledge.yamlfile import load_yaml
from tests.perturb import selftest
from tests.perturb.battery import Workshop, tests_of
from tests.perturb.mutants import ROOT, Mutant, data_files, mutants

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ACCEPTED = Path(__file__).with_name("accepted.yaml")


def accepted() -> list[str]:
    """The patterns of accepted.yaml."""
    return [i for groups in load_yaml(ACCEPTED).values() for group in groups for i in group["ids"]]


def unnoticed(file: Path) -> tuple[int, list[Mutant]]:
    """(mutants of the file, those that its own worked examples and samples do not notice)."""
    found = list(mutants(file))
    return len(found), [mutant for mutant in found if not selftest.notices(mutant)]


def after_tests(survivors: Sequence[Mutant], jobs: int) -> list[Mutant]:
    """Those of `survivors` that the unit tests do not notice either."""
    with tempfile.TemporaryDirectory() as folder:
        shops: Queue[Workshop] = Queue()
        for number in range(min(jobs, len(survivors))):
            place = Path(folder) / str(number)
            place.mkdir()
            shops.put(Workshop(place))

        def judged(mutant: Mutant) -> bool:
            shop = shops.get()
            try:
                return shop.notices(mutant)
            finally:
                shops.put(shop)

        first = shops.get()
        for file in {tuple(tests_of(m.file)): m.file for m in survivors}.values():
            if first.fails(file, (ROOT / file).read_text(encoding="utf-8")):
                sys.exit(f"the tests of {file} fail without any change to it")
        shops.put(first)
        with ThreadPoolExecutor(jobs) as pool:
            noticed = list(
                track(
                    pool.map(judged, survivors), "their tests", len(survivors),
                    console=Console(stderr=True), disable=not sys.stderr.isatty(),
                )
            )  # fmt: skip
        while not shops.empty():
            shops.get().__exit__()
    return [mutant for mutant, seen in zip(survivors, noticed, strict=True) if not seen]


def listed(mutant: Mutant, patterns: Iterable[str]) -> str | None:
    """The pattern of accepted.yaml that covers the mutant."""
    return next((p for p in patterns if fnmatch.fnmatchcase(mutant.id, p)), None)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.perturb")
    parser.add_argument("files", nargs="*", help="part of a file's path")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--no-tests", action="store_true", help="only worked examples and samples")
    given = parser.parse_args()
    files = [f for f in data_files() if not given.files or any(w in str(f) for w in given.files)]
    total, survivors = 0, []
    with Pool(given.jobs) as pool:
        for file, (count, left) in zip(files, pool.imap(unnoticed, files), strict=True):
            total += count
            survivors += left
            print(f"{len(left):5} of {count:5} unnoticed by {file.relative_to(ROOT)} itself")
    patterns = accepted()
    used = {listed(mutant, patterns) for mutant in survivors} - {None}
    open_ = [mutant for mutant in survivors if listed(mutant, patterns) is None]
    print(
        f"{total} changes, {len(survivors)} unnoticed by the files, {len(open_)} of them unlisted"
    )
    if open_ and not given.no_tests:
        open_ = after_tests(open_, given.jobs)
    for mutant in open_:
        print(f"nobody notices {mutant.id}")
    stale = [] if given.files else [p for p in patterns if p not in used]
    for pattern in stale:
        print(f"accepted.yaml: matches nothing: {pattern}")
    print(
        f"{total} changes, {len(survivors) - len(open_)} listed or noticed by tests, {len(open_)} open"
    )
    return 1 if open_ or stale else 0


if __name__ == "__main__":
    sys.exit(main())
