"""Files that are not what they should be, through every command that opens one."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hostile import LOG, orderly, run, write
from model_configs import LLAMA_8B

DEEP = 20_000
CONTENT = {
    "empty": b"",
    "nul": b"\0" * 4096,
    "mark alone": b"\xef\xbb\xbf",
    "utf-16": LOG.encode("utf-16"),
    "invalid utf-8": b"\xff\xfe\xfa\xc3\x28" * 200,
    "returns alone": LOG.replace("\n", "\r").encode(),
    "deep lists": b"[" * DEEP,
    "deep objects": b'{"schema":' * DEEP,
    "number of 9,000 digits": b'{"schema": ' + b"9" * 9000 + b"}",
    "a list": b'["schema"]',
    "broken gzip": gzip.compress(LOG.encode())[:40],
    "false zstd": b"\x28\xb5\x2f\xfd" + b"\0" * 60,
}
READABLE = {"returns alone", "utf-16"}
"""A log none the less, to the commands that read logs."""
MODEL = "<model>"
LOG_FILE = "<log>"
BAD = "<bad>"
COMMANDS = {
    "explain-log": ["explain-log", BAD],
    "oom-triage": ["oom-triage", BAD],
    "startup-log": ["oom-triage", LOG_FILE, "--startup-log", BAD],
    "derive": ["derive", BAD, "--engine", "vllm", "--gpu", "h200"],
    "from-log": ["derive", MODEL, "--engine", "vllm", "--gpu", "h200", "--from-log", BAD],
    "from-profile": ["derive", MODEL, "--engine", "vllm", "--gpu", "h200", "--from-profile", BAD],
    "plan": ["plan", BAD, "--engine", "vllm", "--gpu", "h200"],
    "diff": ["diff", LOG_FILE, BAD],
    "profile": ["profile", "--replay", BAD],
    "curve": ["residency", "curve", BAD, "--no-cache"],
    "window": ["residency", "window", "--l1", "1GiB", "--rate", "1", "--model", BAD],
    "watch": ["watch", "--replay", BAD],
    "policy": ["gate", "--policy", BAD, LOG_FILE],
    "baseline": ["gate", "--baseline", BAD, LOG_FILE],
}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    (tmp_path / "serve.log").write_text(LOG)
    model = tmp_path / "model"
    model.mkdir()
    write(model / "config.json", LLAMA_8B)
    return {LOG_FILE: tmp_path / "serve.log", MODEL: model, BAD: tmp_path / "bad"}


def arguments(name: str, files: dict[str, Path]) -> list[object]:
    return [files.get(word, word) for word in COMMANDS[name]]


@pytest.mark.parametrize("name", COMMANDS)
def test_content(name: str, files: dict[str, Path]) -> None:
    for label, data in CONTENT.items():
        files[BAD].write_bytes(data)
        done = orderly(run(*arguments(name, files)))
        harmless = name in {"policy", "startup-log"} or label in READABLE
        allowed = {0, 2, 3} if harmless else {2, 4} if name == "watch" else {2, 3}
        assert done.code in allowed, (label, done.err)


@pytest.mark.parametrize("name", COMMANDS)
def test_no_file_at_all(name: str, files: dict[str, Path]) -> None:
    missing = orderly(run(*arguments(name, files)))
    assert missing.code == 2
    assert "bad" in missing.err
    files[BAD].symlink_to(files[BAD])
    assert orderly(run(*arguments(name, files))).code == 2
    files[BAD].unlink()
    files[BAD].mkdir()
    folder = orderly(run(*arguments(name, files)))
    assert folder.code == 2
    assert "bad" in folder.err or "config.json" in folder.err


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
@pytest.mark.parametrize("name", COMMANDS)
def test_no_permission(name: str, files: dict[str, Path]) -> None:
    files[BAD].write_text(LOG)
    files[BAD].chmod(0)
    assert orderly(run(*arguments(name, files))).code == 2


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 10)
)
MERGES = "a0: &a0 {x: 1}\n" + "".join(
    f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}], y{i}: 1}}\n" for i in range(1, 10)
)
YAML = {
    "aliases": BOMB + "lines: *a9\nservices: *a9 # vllm\ngate: *a9\n",
    "merges": MERGES + "services: *a9 # vllm\n",
    "an alias of itself": "lines: &a [*a] # vllm\n",
    "deep": "lines: " + "[" * DEEP + " # vllm\n",
    "code": "lines: !!python/object/apply:os.system ['touch owned'] # vllm\n",
    "odd tags": "lines: !!timestamp x # vllm\nb: !!binary '%'\n",
    "odd keys": "{[vllm]: 1, {b: 1}: 2}\n",
    "a huge number": f"lines: {'9' * 9000} # vllm\n",
}


@pytest.mark.parametrize("label", YAML)
def test_yaml(label: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own").mkdir()
    (tmp_path / "serve.log").write_text(LOG)
    for name in ("own/own.yaml", "compose.yaml", "kvbudget.yaml"):
        (tmp_path / name).write_text(YAML[label])
    start = time.process_time()
    assert orderly(run("explain-log", "serve.log", "--knowledge", "own")).code == 2
    assert orderly(run("knowledge", "check", "own")).code == 1
    orderly(run("gate", "compose.yaml", "--no-policy"))
    orderly(run("gate", "compose.yaml", "--policy", "kvbudget.yaml"))
    assert time.process_time() - start < 20
    assert not (tmp_path / "owned").exists()


def test_a_pattern_file_right_under_logparsers_counts(tmp_path: Path) -> None:
    shipped = Path(__file__).parents[2] / "logparsers" / "tgi" / "lines.yaml"
    (tmp_path / "logparsers").mkdir()
    (tmp_path / "logparsers" / "own.yaml").write_text(
        shipped.read_text().replace("id: tgi.", "id: own.")
    )
    done = run("knowledge", "list", "own.", "--knowledge", tmp_path)
    assert done.code == 0
    assert b"own." in done.out
    (tmp_path / "logparsers" / "gone.yaml").symlink_to("nowhere")
    done = orderly(run("explain-log", "-", "--knowledge", tmp_path, data=LOG.encode()))
    assert done.code == 2
    assert "gone.yaml" in done.err


EVIL = "\x1b[31m[bold]<script>alert(1)</script>&]]>\x07|`\u202e"


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.scripts: list[str] = []
        self.inside = False

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.inside = tag == "script"

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.scripts.append(data)
        self.inside = False


def test_html_report_carries_no_foreign_markup(tmp_path: Path) -> None:
    model = tmp_path / EVIL.replace("/", "-")
    model.mkdir()
    write(model / "config.json", {**LLAMA_8B, "architectures": [EVIL]})
    trace = tmp_path / "<img src=x onerror=alert(1)>.jsonl"
    rows = [{"timestamp": i, "input_length": 9, "hash_ids": [i]} for i in range(9)]
    trace.write_text("\n".join(map(json.dumps, rows)))
    done = run(
        "residency", "report", trace, "--model", model, "--gpu", "h200", "--format", "html",
        "--no-cache",
    )  # fmt: skip
    assert orderly(done).code == 0
    page = done.out.decode()
    assert "<img" not in page
    parser = Tags()
    parser.feed(page)
    assert not [script for script in parser.scripts if "alert(1)" in script]


@pytest.mark.parametrize("kind", ["text", "markdown", "json", "sarif", "junit", "gitlab", "github"])
def test_reports_of_the_gate(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name = EVIL.replace("/", "-") + "\udcff.sh"
    Path(os.fsencode(name).decode("utf-8", "surrogateescape")).write_text(
        f"vllm serve '{EVIL}' --gpu-memory-utilization 7\n"
    )
    done = orderly(run("gate", ".", "--format", kind))
    assert done.code == 1
    text = done.out.decode("utf-8")
    if kind in {"json", "sarif", "gitlab"}:
        json.loads(text)
    if kind == "junit":
        ET.fromstring(text)
    if kind == "markdown":
        assert "<script>" not in text
    if kind == "github":
        assert all(line.startswith("::") for line in text.splitlines())


def test_names_of_models_and_devices(tmp_path: Path) -> None:
    model = tmp_path / EVIL.replace("/", "-")
    model.mkdir()
    write(model / "config.json", {**LLAMA_8B, "architectures": [EVIL]})
    for kind in ("text", "markdown", "json"):
        done = run("derive", model, "--engine", "vllm", "--gpu", "h200", "--format", kind)
        assert orderly(done).code == 0
        assert b"\x07" not in done.out


PROBE = """
import sys
from kvbudget.cli.app import main
try:
    main()
finally:
    sys.stderr.write(open('/proc/self/status').read())
"""


def measured(*arguments: object, data: object = None) -> tuple[int, bytes, int]:
    """Exit code, stdout, and the peak memory in MiB of the program alone."""
    with subprocess.Popen(
        [sys.executable, "-c", PROBE, *map(str, arguments)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdin
        assert process.stdout
        assert process.stderr
        for piece in data or ():
            process.stdin.write(piece)
        process.stdin.close()
        out, err = process.stdout.read(), process.stderr.read()
    peak = next(line for line in err.splitlines() if line.startswith(b"VmHWM"))
    return process.returncode, out, int(peak.split()[1]) // 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
@pytest.mark.parametrize("command", ["explain-log", "oom-triage"])
def test_a_line_of_a_gigabyte_on_stdin(command: str) -> None:
    """As large as it gets: memory is that of a small log."""
    mebibyte = b"x" * 2**20
    pieces = [LOG.encode(), *([mebibyte] * 1024), b"\n", LOG.replace("10.25", "11.5").encode()]
    code, out, peak = measured(command, "-", "--format", "json", data=pieces)
    assert code in {0, 3}
    assert peak < 120
    if command == "explain-log":
        assert b'"11.5"' in out


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
def test_a_gzip_bomb_is_read_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "bomb.log.gz"
    block = b"y" * 2**20
    with gzip.open(path, "wb", compresslevel=1) as stream:
        stream.write(LOG.encode())
        for _ in range(512):
            stream.write(block)
    assert path.stat().st_size < 2**22
    code, out, peak = measured("explain-log", path, "--format", "json")
    assert code == 0
    assert b'"10.25"' in out
    assert peak < 120


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
def test_a_sparse_file_of_sixty_gigabytes_is_no_document(tmp_path: Path) -> None:
    model = write(tmp_path / "config.json", LLAMA_8B)
    path = tmp_path / "huge.json"
    with path.open("wb") as stream:
        stream.write(b'{"schema": "kvbudget.derive/1"')
        stream.truncate(60 * 2**30)
    for words in (
        ["derive", path, "--engine", "vllm", "--gpu", "h200"],
        ["derive", model, "--engine", "vllm", "--gpu", "h200", "--from-profile", path],
        ["diff", path, path],
        ["profile", "--replay", path],
    ):
        code, _, peak = measured(*words)
        assert code == 2
        assert peak < 300
