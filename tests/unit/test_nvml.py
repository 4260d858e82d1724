"""The NVML layer under the real nvidia-ml-py, on a stand-in library built here."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CC = shutil.which("cc") or shutil.which("gcc")
pytestmark = pytest.mark.skipif(CC is None, reason="no C compiler")
SCENE = ["count 1", "total 85899345920", "free 75899345920", "used 9000000000",
         "reserved 1000000000", "proc 4242 8000000000", "ecc 1"]  # fmt: skip


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nvml")
    source = Path(__file__).with_name("nvml_stand_in.c")
    target = folder / "libnvidia-ml.so.1"
    subprocess.run([CC, "-shared", "-fPIC", "-O1", "-Wl,-soname,libnvidia-ml.so.1",
                    "-o", target, source], check=True)  # fmt: skip
    return folder


def ask(library, tmp_path, lines, code):
    """Run `code` with `nv` open on the scene; returns what it prints."""
    scene = tmp_path / "scene"
    scene.write_text("\n".join(lines) + "\n")
    program = (
        "from pathlib import Path\n"
        f"scene = Path({str(scene)!r})\n"
        "from kvbudget.gpu.nvml import *\n"
        "from kvbudget.errors import KvbudgetError\n"
        "try:\n"
        "    with open_nvml() as nv:\n"
        + "".join(f"        {line}\n" for line in code.splitlines())
        + "except KvbudgetError as e:\n    print(type(e).__name__, e.exit_code, e.what)\n"
    )
    env = {**os.environ, "NVML_SCENE": str(scene)}
    env["LD_LIBRARY_PATH"] = str(library) if library else ""
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


SHOW = "s = nv.snapshot(0)\nprint(s.total, s.free, s.used, s.reserved, s.memory_api)"


def test_second_memory_call(library, tmp_path):
    out = ask(library, tmp_path, SCENE, SHOW + "\nprint(s.name, s.driver, s.uuid, s.ecc, s.mig)")
    assert out.splitlines() == [
        "85899345920 75899345920 9000000000 1000000000 v2",
        "Stand-in 80GB 999.10 GPU-0000-stand-in True False",
    ]


@pytest.mark.parametrize("code", [3, 13, 25])
def test_first_memory_call_as_fallback(library, tmp_path, code):
    out = ask(library, tmp_path, [*SCENE, f"err memory_v2 {code}"], SHOW + "\nprint(s.notes)")
    assert out.startswith("85899345920 75899345920 10000000000 None v1")
    assert "old memory call" in out


def test_no_memory_figure_means_shared_memory(library, tmp_path):
    lines = [*SCENE, "err memory_v2 3", "err memory_v1 3"]
    out = ask(library, tmp_path, lines, SHOW + "\nprint(s.integrated)")
    assert out.split() == ["None", "None", "None", "None", "None", "True"]


def test_processes(library, tmp_path):
    show = (
        "s = nv.snapshot(0)\nps = s.processes\nprint(ps and [(p.pid, p.used) for p in ps], s.notes)"
    )
    assert "[(4242, 8000000000)] ()" in ask(library, tmp_path, SCENE, show)
    unknown = ask(library, tmp_path, [*SCENE, "proc 7 -1"], show)
    assert "(7, None)" in unknown
    assert "does not say" in unknown
    assert ask(library, tmp_path, [*SCENE, "err processes 4"], show).startswith("None")


def test_mig(library, tmp_path):
    lines = [*SCENE, "mig 1", "slices 1"]
    out = ask(library, tmp_path, lines, (
        "s = nv.snapshot(0)\nprint(s.mig, nv.mig_slices(0))\n"
        "s = nv.snapshot('MIG-0000-stand-in')\nprint(s.uuid, s.mig)"
    ))  # fmt: skip
    assert out.splitlines() == ["True ['MIG-0000-stand-in']", "MIG-0000-stand-in True"]
    assert ask(library, tmp_path, [*SCENE, "err mig 3"], "print(nv.snapshot(0).mig)") == "False"
    assert ask(library, tmp_path, [*SCENE, "err mig 999"], "print(nv.snapshot(0).mig)") == "None"


CARDS = ["count 4", *SCENE[1:], "mig.1 1", "slices.1 3"]


@pytest.mark.parametrize(
    ("setting", "devices"),
    [
        (None, "[0, 'MIG-0010-stand-in', 'MIG-0011-stand-in', 'MIG-0012-stand-in', 2, 3]"),
        ("3,0", "[3, 0]"),
        ("1", "['MIG-0010-stand-in', 'MIG-0011-stand-in', 'MIG-0012-stand-in']"),
        ("GPU-0002", "[2]"),
        ("MIG-0012-stand-in,2", "['MIG-0012-stand-in', 2]"),
        ("2,9,0", "[2]"),
        ("GPU-000", "[]"),
        ("", "[]"),
        ("-1", "[]"),
    ],
)
def test_visible_devices(library, tmp_path, setting, devices):
    """As a CUDA program counts them: slices one by one, up to the first name of nothing."""
    assert ask(library, tmp_path, CARDS, f"print(nv.visible({setting!r}))") == devices


def test_a_card_without_slices_cannot_be_used(library, tmp_path):
    out = ask(library, tmp_path, ["count 1", "mig 1"], "nv.visible()")
    assert out.startswith("NoDevice 2 device 0 is in MIG mode without a slice")


def test_devices_of_the_ranks(library, tmp_path):
    """Numbered from --device on, one per rank; slices serve one rank only."""
    show = (
        "from kvbudget.profile.take import pick_cards\n"
        "from kvbudget.profile.types import Job\n"
        "def pick(visible=None, **job):\n"
        "    return [c.uuid for c in pick_cards(nv, Job('m', **job), visible)]\n"
    )
    out = ask(library, tmp_path, CARDS, show + (
        "print(pick(device_index=2))\n"
        "print(pick('0,2,3', tp=2, device_index=1))\n"
    ))  # fmt: skip
    assert out.splitlines() == [
        "['MIG-0011-stand-in']",
        "['GPU-0002-stand-in', 'GPU-0003-stand-in']",
    ]
    few = ask(library, tmp_path, CARDS, show + "pick('0,2', tp=2, pp=2)")
    assert few.startswith("NoDevice 2 4 device(s) from number 0 on are needed, 2 can be used")
    slices = ask(library, tmp_path, CARDS, show + "pick('1', tp=2)")
    assert slices.startswith("InputError 2 MIG slices cannot serve several ranks")


def test_ecc_unknown_is_none(library, tmp_path):
    assert ask(library, tmp_path, [*SCENE, "err ecc 3"], "print(nv.snapshot(0).ecc)") == "None"


def test_memory_moves_between_readings(library, tmp_path):
    code = (
        "print(nv.used(0))\nscene.write_text(scene.read_text() + 'used 12\\n')\nprint(nv.used(0))"
    )
    assert ask(library, tmp_path, SCENE, code).split() == ["9000000000", "12"]


def test_failures_have_types(library, tmp_path):
    assert ask(library, tmp_path, ["count 0"], "nv.snapshot(0)").startswith("NoDevice 2")
    assert ask(library, tmp_path, SCENE, "nv.snapshot(3)").startswith("NoDevice 2")
    assert ask(library, tmp_path, SCENE, "nv.snapshot('GPU-x')").startswith("NoDevice 2")
    lost = ask(library, tmp_path, [*SCENE, "err memory_v2 15"], "nv.snapshot(0)")
    assert lost.startswith("NvmlFailed 2")
    assert ask(library, tmp_path, ["err init 9"], "pass").startswith("NoLibrary 2")
    assert ask(library, tmp_path, ["err init 999"], "pass").startswith("NvmlFailed 2")


@pytest.mark.skipif(
    subprocess.run(
        [sys.executable, "-c", "import ctypes; ctypes.CDLL('libnvidia-ml.so.1')"],
        capture_output=True, check=False,
    ).returncode == 0,
    reason="this machine has the real library",
)  # fmt: skip
def test_no_library(tmp_path):
    assert ask(None, tmp_path, SCENE, "pass").startswith("NoLibrary 2 no NVIDIA driver")
