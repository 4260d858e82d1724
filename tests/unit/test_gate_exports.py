"""Notebooks saved as Python, conditions that a file decides, batch files and computed keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.gate_files import judge, sound

if TYPE_CHECKING:
    from pathlib import Path

SAVED = """\
    # a notebook saved by its editor
    !pip install -q vllm==0.9.2
    %cd /tmp
    import os
    for x in range(2):
        !echo $x
    from vllm import LLM
    llm = LLM("own/a", max_model_len=64)
    !vllm serve own/b \\
      --max-num-seqs 3
"""
DATABRICKS = """\
    # Databricks notebook source
    # MAGIC %md
    # MAGIC Run `vllm serve own/none` it's said.
    # COMMAND ----------
    # MAGIC %pip install vllm==0.9.2
    # COMMAND ----------
    from vllm import LLM
    llm = LLM("own/a", max_model_len=64)
    # COMMAND ----------
    # MAGIC %sh
    # MAGIC vllm serve own/b \\
    # MAGIC   --max-num-seqs 3
"""


@pytest.mark.parametrize(("text", "lines"), [(SAVED, (8, 9)), (DATABRICKS, (8, 11))])
def test_a_notebook_saved_as_python(tmp_path: Path, text: str, lines: tuple[int, int]) -> None:
    first, second = sound(tmp_path, {"a.py": text}).invocations
    assert (first.model, first.line, first.flags) == ("own/a", lines[0], {"max_model_len": 64})
    assert (second.model, second.line, second.flags) == ("own/b", lines[1], {"max_num_seqs": 3})
    assert {first.version, second.version} == {"0.9.2"}


def test_broken_python_stays_broken(tmp_path: Path) -> None:
    report = judge(tmp_path, {"a.py": "from vllm import LLM\nLLM('own/a'\n"})
    assert [problem.file for problem in report.problems] == ["a.py"]


@pytest.mark.parametrize(
    ("condition", "counts"),
    [
        ("share", True),
        ("share is not None", True),
        ("not share", False),
        ("share is None", False),
        ("mode == 'big'", True),
        ("mode != 'big'", False),
        ("given", False),
        ("given is not None", False),
        ("share > 0.1", False),
    ],
)
def test_a_condition_that_the_file_decides(tmp_path: Path, condition: str, counts: bool) -> None:
    text = f"""\
        import os, subprocess
        mode = "big"
        def start(given, share=os.getenv("SHARE", "0.4")):
            cmd = ["vllm", "serve", "own/a"]
            if {condition}:
                cmd += ["--gpu-memory-utilization", share]
            subprocess.Popen(cmd)
        """
    (inv,) = sound(tmp_path, {"a.py": text}).invocations
    assert inv.flags == ({"gpu_memory_utilization": 0.4} if counts else {})


def test_the_other_branch_counts_where_the_first_does_not(tmp_path: Path) -> None:
    text = """\
        import subprocess
        big = False
        cmd = ["vllm", "serve", "own/a"]
        if big:
            cmd.append("--enforce-eager")
        else:
            cmd += ["--max-model-len", "128"]
        subprocess.run(cmd)
        """
    (inv,) = sound(tmp_path, {"a.py": text}).invocations
    assert inv.flags == {"max_model_len": 128}


@pytest.mark.parametrize("name", ["a.job", "a.pbs", "a.lsf", "a.ksh"])
def test_batch_files_are_scripts(tmp_path: Path, name: str) -> None:
    (inv,) = sound(tmp_path, {name: "#!/bin/bash -l\nvllm serve own/a\n"}).invocations
    assert (inv.model, inv.line) == ("own/a", 2)


def test_a_key_of_hcl_may_be_computed(tmp_path: Path) -> None:
    text = """\
        variable "pool" { default = "nvidia.com/gpu" }
        resource "kubernetes_deployment" "own" {
          spec {
            template {
              spec {
                node_selector = { (local.none["x"]) = "1", "b" = "2" }
                container {
                  image = "vllm/vllm-openai:v0.9.2"
                  args  = ["--model", "own/a"]
                  resources {
                    limits = { (var.pool) = "2" }
                  }
                }
              }
            }
          }
        }
        """
    (inv,) = sound(tmp_path, {"a.tf": text}).invocations
    assert (inv.model, inv.version, inv.host.gpus) == ("own/a", "0.9.2", 2)


def test_what_a_function_of_the_file_gives(tmp_path: Path) -> None:
    text = """\
        import os
        from vllm import LLM
        def settings():
            length = int(os.getenv("LEN", "96"))
            return dict(max_model_len=length, gpu_memory_utilization=0.4)
        class Own:
            def words(self):
                return {"max_num_seqs": 5}
            def start(self):
                LLM("own/b", **self.words())
        def twice(small):
            if small:
                return {"max_num_seqs": 1}
            return {"max_num_seqs": 2}
        LLM("own/a", **settings())
        LLM("own/c", **twice())
        """
    found = {inv.model: inv.flags for inv in sound(tmp_path, {"a.py": text}).invocations}
    assert found["own/a"] == {"max_model_len": 96, "gpu_memory_utilization": 0.4}
    assert found["own/b"] == {"max_num_seqs": 5}
    assert found["own/c"] == {}


@pytest.mark.parametrize(("label", "card"), [("v100", None), ("l40s", "L40S")])
def test_a_family_of_cards_is_no_card(tmp_path: Path, label: str, card: str | None) -> None:
    text = f"#!/bin/bash\n#SBATCH --gres=gpu:{label}:2\nvllm serve own/a\n"
    (inv,) = sound(tmp_path, {"a.sbatch": text}).invocations
    assert (inv.host.gpus, inv.host.gpu_type) == (2, card)


def test_a_tuple_may_be_a_command(tmp_path: Path) -> None:
    text = """\
        WORDS = ("vllm", "serve", "own/a", "--max-num-seqs", "7")
        KNOWN = ("serve", "vllm", "sglang")
        def check(words):
            assert words[:2] == ("vllm", "serve")
        """
    (inv,) = sound(tmp_path, {"a.py": text}).invocations
    assert (inv.line, inv.model, inv.flags) == (1, "own/a", {"max_num_seqs": 7})
