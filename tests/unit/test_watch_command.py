"""`kvbudget watch` through the public command, on recordings and without a driver."""

from __future__ import annotations

import json
import subprocess
import sys

import jsonschema
import pytest
from watch_series import leak, quiet, sample

from kvbudget.units import MIB
from kvbudget.watch.samples import encode


def run(*args):
    return subprocess.run(
        [sys.executable, "-m", "kvbudget", "watch", *args],
        capture_output=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def recording(tmp_path):
    def write(samples):
        path = tmp_path / "readings.jsonl"
        path.write_bytes(b"".join(encode(s) + b"\n" for s in samples))
        return str(path)

    return write


def schema():
    from importlib.resources import files

    return json.loads(files("kvbudget").joinpath("schemas/watch.json").read_text())


def test_a_replayed_leak_ends_with_1_and_json_lines_of_the_schema(recording):
    result = run("--replay", recording(leak(1600, 4, MIB)), "--format", "json-lines")
    assert result.returncode == 1
    documents = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(documents) == 400
    for document in documents[::40]:
        jsonschema.validate(document, schema())
    assert documents[-1]["alarms"][0]["id"] == "margin_eta"
    assert not documents[0]["alarms"]


def test_a_quiet_recording_ends_with_0_and_plain_lines(recording):
    result = run("--replay", recording(quiet(60, 2)))
    assert result.returncode == 0
    assert result.stdout.count(b"\n") == 30
    assert b"\x1b" not in result.stdout


def test_limits_can_be_set(recording):
    path = recording([sample(0, 900 * MIB)])
    assert run("--replay", path).returncode == 0
    assert run("--replay", path, "--min-margin", "1GiB").returncode == 1


@pytest.mark.parametrize(
    "line", [b"{}", b"not json", b'{"elapsed": 1, "time": "t", "schema": "x/9"}']
)
def test_a_recording_that_is_none_is_refused_with_its_line(tmp_path, line):
    path = tmp_path / "bad.jsonl"
    path.write_bytes(encode(sample(0, 2**32)) + b"\n" + line + b"\n")
    result = run("--replay", str(path))
    assert result.returncode == 2
    assert b":2:" in result.stderr


def test_once_exits_4_when_nothing_can_be_read():
    pytest.importorskip("httpx")
    result = run("--once", "--url", "http://127.0.0.1:9/metrics", "--interval", "100ms")
    assert result.returncode == 4
    assert b"down" in result.stdout


@pytest.mark.parametrize(
    "args",
    [["--interval", "soon"], ["--interval", "0s"], ["--url", "ftp://x"], ["--exporter", "x"]],
)
def test_bad_options_are_exit_2_with_a_hint(args):
    result = run("--once", *args)
    assert result.returncode in (2, 4)
    assert result.stderr
    assert b"Traceback" not in result.stderr


def test_a_record_can_be_replayed(tmp_path):
    pytest.importorskip("httpx")
    path = tmp_path / "out.jsonl"
    url = ["--url", "http://127.0.0.1:9/metrics", "--interval", "100ms"]
    run("--once", *url, "--record", str(path))
    assert len(path.read_bytes().splitlines()) == 2
    assert run("--replay", str(path)).returncode == 4


def test_an_alarm_is_explained_once_and_named_while_it_lasts(recording):
    out = run("--replay", recording(leak(1200, 30, 2 * MIB))).stdout.decode()
    alarmed = [line for line in out.splitlines() if "ALARM margin_eta" in line]
    assert len(alarmed) > 3
    assert [("falls by" in line) for line in alarmed] == [True] + [False] * (len(alarmed) - 1)


def test_without_a_driver_the_hint_is_one_that_watch_can_follow(monkeypatch):
    from kvbudget.gpu import nvml
    from kvbudget.watch.cards import Cards

    def absent():
        raise nvml.NoLibrary("no NVIDIA driver on this machine", "--device cpu needs none")

    monkeypatch.setattr(nvml, "open_nvml", absent)
    with pytest.raises(nvml.NoLibrary) as told:
        Cards(())
    assert "--url" in told.value.hint
    assert "--device" not in told.value.hint
