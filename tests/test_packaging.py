"""Wheel, source archive and editable install all carry the knowledge folders."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
KINDS = ("formulas", "logparsers")

pytest.importorskip("build")
pytest.importorskip("hatchling")


def tracked() -> set[str]:
    """Data files of the checkout, relative to it."""
    return {
        path.relative_to(ROOT).as_posix()
        for kind in KINDS
        for path in (ROOT / kind).rglob("*")
        if path.suffix in {".yaml", ".md"}
    }


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return out


def test_wheel_carries_the_data(built: Path) -> None:
    names = set(zipfile.ZipFile(next(built.glob("*.whl"))).namelist())
    missing = {name for name in tracked() if f"kvbudget/_knowledge/{name}" not in names}
    assert missing == set()
    assert "kvbudget/py.typed" in names
    assert not [name for name in names if name.split("/")[0] in KINDS]


def test_sdist_carries_data_and_tests(built: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {name for name in tracked() if name not in names} == set()
    fixtures = {p.relative_to(ROOT).as_posix() for p in (ROOT / "tests").rglob("*.log")}
    assert {name for name in fixtures if name not in names} == set()


def test_wheel_explains_a_log_outside_the_checkout(built: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(next(built.glob("*.whl"))).extractall(tmp_path)
    log = "INFO 01-02 10:00:00 [gpu_worker.py:1] Available KV cache memory: 10.25 GiB\n"
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import kvbudget.cli.app as a;"
        f"assert a.__file__.startswith({str(tmp_path)!r});"
        "sys.argv = ['kvbudget', 'explain-log', '-', '--format', 'json']; a.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=log, capture_output=True, text=True, cwd=tmp_path, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert '"10.25"' in done.stdout


def test_checkout_is_live() -> None:
    from kvbudget.knowledge.where import knowledge_dir

    for kind in KINDS:
        assert any(knowledge_dir(kind).rglob("*.yaml"))
