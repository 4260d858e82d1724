"""`kvbudget profile` as a user runs it: real processes, exit codes, the schema, nothing left."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "kvbudget", "profile"]
SCHEMA = Path(__file__).parents[2] / "kvbudget" / "schemas" / "profile.json"


def run(*args, env=None):
    return subprocess.run(
        [*COMMAND, *map(str, args)], capture_output=True, text=True, check=False,
        env={**os.environ, **(env or {})},
    )  # fmt: skip


def document(done):
    jsonschema = pytest.importorskip("jsonschema")
    raw = json.loads(done.stdout)
    jsonschema.validate(raw, json.loads(SCHEMA.read_text()))
    return raw


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """One run each on real tensors and on none: (documents, folder with the records)."""
    pytest.importorskip("torch")
    folder, out = tmp_path_factory.mktemp("records"), {}
    for device in ("cpu", "fake"):
        done = run("--model", "tiny", "--device", device, "--max-num-batched-tokens", 512,
                   "--gpu-memory", "2GiB", "--decode-steps", 3, "--format", "json",
                   "--record", folder / f"{device}.json")  # fmt: skip
        assert done.returncode == 0, done.stderr
        out[device] = document(done)
    return out, folder


@pytest.mark.torch
def test_cpu_and_fake_agree(measured):
    out, _ = measured
    for raw in out.values():
        assert raw["identity"]["difference"] == 0
        assert all(row["agrees"] in (True, None) for row in raw["modelled"])
        assert {"weights_memory", "forward_memory"} <= {
            row["name"] for row in raw["modelled"] if row["agrees"]
        }
        for phase in raw["ranks"][0]["phases"]:
            phase["seconds"] = None
    assert out["cpu"]["ranks"] == out["fake"]["ranks"]
    assert out["cpu"]["result"] == out["fake"]["result"]


@pytest.mark.torch
def test_replay_is_the_same_and_takes_another_policy(measured):
    out, folder = measured
    again = document(run("--replay", folder / "cpu.json", "--format", "json"))
    assert again["result"] == out["cpu"]["result"]
    other = document(
        run("--replay", folder / "cpu.json", "--policy", "vllm@0.10.2", "--format", "json")
    )
    assert other["result"]["kv_cache_memory"] > again["result"]["kv_cache_memory"]
    assert str(Path(__file__).parents[2]) not in (folder / "cpu.json").read_text()


@pytest.mark.torch
@pytest.mark.parametrize(
    ("phase", "more", "name", "side"),
    [("sampler", 2**30, "peak_activation_memory", "above"),
     ("weights", 2**20, "weights_memory", "above"),
     ("weights", -(2**16), "weights_memory", "below")],
)  # fmt: skip
def test_a_measurement_outside_its_band_is_said(measured, tmp_path, phase, more, name, side):
    raw = json.loads((measured[1] / "cpu.json").read_text())
    for snapshot in raw["ranks"][0]["snapshots"]:
        if snapshot["phase"] == phase:
            snapshot["torch_peak"] += more
            snapshot["torch_allocated"] += more if phase == "weights" else 0
    file = tmp_path / "changed.json"
    file.write_text(json.dumps(raw))
    shown = document(run("--replay", file, "--format", "json"))
    row = next(row for row in shown["modelled"] if row["name"] == name)
    assert row["agrees"] is False
    note = next(note for note in shown["notes"] if note.startswith(f"{name}: "))
    assert f" {side} the modelled " in note
    for form in ("text", "markdown"):
        done = run("--replay", file, "--format", form)
        assert done.returncode == 0
        assert f" {side} the modelled " in " ".join(done.stdout.split())
    clean = document(run("--replay", measured[1] / "cpu.json", "--format", "json"))
    assert not any(" the modelled " in note for note in clean["notes"])


@pytest.mark.torch
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda raw: raw["ranks"][0]["snapshots"].pop(4), "has no phase 'weights'"),
        (lambda raw: raw["ranks"][0]["snapshots"][4].pop("phase"), "broken profile record"),
        (lambda raw: raw["job"].pop("model"), "broken profile record"),
        (lambda raw: raw.update(schema="kvbudget.profile-record/9"), "known schema"),
    ],
)
def test_a_damaged_record_is_exit_2(measured, tmp_path, damage, said):
    raw = json.loads((measured[1] / "cpu.json").read_text())
    damage(raw)
    file = tmp_path / "damaged.json"
    file.write_text(json.dumps(raw))
    done = run("--replay", file)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


@pytest.mark.torch
def test_stages_and_ranks_are_named(tmp_path):
    pytest.importorskip("torch")
    raw = document(run("--model", "tiny", "--device", "fake", "--gpu-memory", "2GiB", "-tp", 2,
                       "-pp", 2, "--format", "json"))  # fmt: skip
    assert [rank["rank"] for rank in raw["ranks"]] == ["PP0_TP0", "PP1_TP0"]
    assert raw["identity"]["difference"] == 0
    assert any("one of 2 tensor-parallel ranks" in note for note in raw["notes"])


@pytest.mark.torch
def test_out_of_memory_is_exit_1():
    pytest.importorskip("torch")
    done = run("--model", "tiny", "--device", "fake", "--gpu-memory", "5MiB", "--format", "json")
    assert done.returncode == 1
    failure = document(done)["failure"]
    assert (failure["phase"], failure["kind"]) == ("weights", "oom")
    assert failure["requested"] > failure["free"]
    real = run("--model", "tiny", "--device", "cpu", "--gpu-memory", "5MiB", "--format", "json")
    assert real.returncode == 1
    assert any("--device fake" in note for note in document(real)["notes"])
    assert not any("--device fake" in note for note in document(done)["notes"])


SEVENTY = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16",
    "vocab_size": 128256, "max_position_embeddings": 8192, "num_key_value_heads": 8,
    "num_attention_heads": 64, "hidden_size": 8192, "intermediate_size": 28672,
    "num_hidden_layers": 80, "tie_word_embeddings": False,
}  # fmt: skip


@pytest.mark.torch
@pytest.mark.skipif(not hasattr(os, "wait4"), reason="needs wait4")
def test_a_70b_on_no_memory(tmp_path):
    """Weights to the byte; neither parent nor child takes 400 MiB beside importing torch."""
    pytest.importorskip("torch")
    (tmp_path / "config.json").write_text(json.dumps(SEVENTY))
    out = tmp_path / "out.json"
    taken = []  # KiB at most, of the process or the largest of its children
    for words in ([sys.executable, "-c", "import torch"],
                  [*COMMAND, "--model", tmp_path, "--device", "fake", "--gpu", "b200",
                   "--format", "json", "-o", out]):  # fmt: skip
        process = subprocess.Popen(words)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        taken.append(usage.ru_maxrss)
    terms = {t["name"]: t["value"] for t in json.loads(out.read_text())["ranks"][0]["terms"]}
    assert terms["weights_memory"] == 141_107_412_992
    assert taken[1] < taken[0] + 400 * 1024


@pytest.mark.torch
def test_shapes_alone_do_not_load_a_compiler():
    """It takes torch two seconds, for the shape of one sum."""
    pytest.importorskip("torch")
    code = (
        "import sys, torch\n"
        "from kvbudget.model.config import load_model\n"
        "from kvbudget.profile.backends.tracked import TrackedBackend\n"
        "from kvbudget.profile.device import BUNDLED\n"
        "from kvbudget.profile.phases import run_phases\n"
        "from kvbudget.profile.policy import load_policy\n"
        "from kvbudget.profile.types import PHASES, Job\n"
        "job = Job(str(BUNDLED / 'tiny'), device='fake', decode_steps=1)\n"
        "backend = TrackedBackend(job, load_model(job.model), load_policy(job.policy), fake=True,"
        " rank=0)\n"
        "run_phases(backend, 'TP0', phases=PHASES[1:-1])\n"
        "assert 'torch._dynamo' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_parent_stays_without_torch():
    code = (
        "import sys; sys.argv = ['kvbudget', 'profile', '--model', 'tiny', '--device', 'fake', "
        "'--dry-run']\n"
        "from kvbudget.cli.app import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "assert not {'torch', 'transformers', 'pynvml'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_dry_run_needs_no_torch():
    done = run("--model", "tiny", "--device", "fake", "--dry-run", "--format", "json")
    assert done.returncode == 0
    assert len(document(done)["plan"]) == 5


@pytest.mark.parametrize(
    "args",
    [
        ("--device", "cpu"),
        ("--model", "nowhere", "--device", "cpu"),
        ("--model", "tiny", "--device", "tpu"),
        ("--model", "tiny", "--device", "cpu", "--gpu-memory-utilization", "1.5"),
        ("--model", "tiny", "--device", "cpu", "--policy", "other@1"),
        ("--model", "tiny", "--engine", "other"),
        ("--model", "tiny", "--device", "fake", "--runner", "other"),
        ("--model", "tiny", "--device", "fake", "--runner", "hf", "-tp", "2"),
        ("--model", "tiny", "--device", "fake", "--runner", "hf", "--decode-steps", "1"),
        ("--model", "tiny", "--device", "fake", "--load-format", "pickle"),
        ("--model", "tiny", "--device", "fake", "--load-format", "safetensors"),
        ("--model", "tiny", "--device", "fake", "--dtype", "int3"),
        ("--model", "tiny", "--device", "fake", "-pp", "99"),
        ("--replay", "nowhere.json"),
        ("--model", "tiny", "--device", "fake", "--gpu-memory", "0GiB"),
        ("--model", "tiny", "--device", "fake", "--record", "nowhere/run.json"),
    ],
)
def test_unusable_input_is_exit_2(args):
    done = run(*args)
    assert done.returncode == 2, done.stderr
    assert "kvbudget:" in done.stderr
    assert not done.stdout


def test_without_a_driver_cuda_is_exit_2():
    from kvbudget.gpu.nvml import NoLibrary, open_nvml

    try:
        with open_nvml():
            pytest.skip("there is a driver here")
    except NoLibrary:
        pass
    assert run("--model", "tiny", "--device", "cuda").returncode == 2


def children_of(pid):
    found = []
    for entry in Path("/proc").iterdir():
        try:
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(entry.name))
    return found


@pytest.mark.torch
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_behind(how):
    pytest.importorskip("torch")
    process = subprocess.Popen(
        [*COMMAND, "--model", "tiny", "--device", "cpu"], stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    children = []
    for _ in range(200):
        children = children_of(process.pid)
        if children or process.poll() is not None:
            break
        time.sleep(0.05)
    assert children
    time.sleep(0.5)
    process.send_signal(how)
    process.wait(20)
    for _ in range(100):
        alive = [pid for pid in children if Path(f"/proc/{pid}").exists()
                 and "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()]  # fmt: skip
        if not alive:
            break
        time.sleep(0.05)
    assert not alive
