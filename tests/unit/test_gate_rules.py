"""Every rule's bad example raises it, its good example does not, and its page is current."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from kvbudget.gate import policy as policies
from kvbudget.gate.evaluate import Report, Request, run
from kvbudget.gate.finding import rule_data
from kvbudget.gate.policy import Policy
from kvbudget.render.gate import explain

PAGES = Path(__file__).parents[2] / "docs" / "rules"


def judge(tmp_path: Path, files: dict[str, str], **options: object) -> Report:
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return run(Request(root=tmp_path, **options), policies.find(tmp_path))


def example_report(tmp_path: Path, rule: str, word: str) -> Report:
    example = rule_data()[rule]["example"]
    files = {example["file"]: example[word]}
    if example.get("policy"):
        files["kvbudget.yaml"] = yaml.safe_dump(example["policy"])
    return judge(tmp_path, files)


WITH_EXAMPLE = [rule for rule, entry in rule_data().items() if entry.get("example")]


@pytest.mark.parametrize("rule", WITH_EXAMPLE)
def test_bad_example_raises_the_rule(rule: str, tmp_path: Path):
    report = example_report(tmp_path, rule, "bad")
    assert rule in {finding.rule for finding in report.findings}
    assert report.invocations


@pytest.mark.parametrize("rule", WITH_EXAMPLE)
def test_good_example_does_not(rule: str, tmp_path: Path):
    report = example_report(tmp_path, rule, "good")
    assert rule not in {finding.rule for finding in report.findings}
    assert report.invocations


@pytest.mark.parametrize("rule", list(rule_data()))
def test_rule_page_is_current(rule: str):
    assert (PAGES / f"{rule}.md").read_text() == explain(rule)


def test_every_rule_has_words():
    for rule, entry in rule_data().items():
        assert entry["doc"].strip(), rule
        assert entry["fix"], rule
        assert entry["level"] in ("error", "warning", "note"), rule


def test_context_not_servable_needs_card_and_model(tmp_path: Path):
    config = (
        '{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8192,'
        ' "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64,'
        ' "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072,'
        ' "torch_dtype": "bfloat16", "tie_word_embeddings": false}'
    )
    policy = "gate: {models: {own/big: {config: m/config.json}}, hosts: [{match: '**', gpu: H100-80GB, gpus: 2}]}"
    command = "vllm serve own/big -tp 2 --max-model-len {}\n"
    report = judge(
        tmp_path, {"a.sh": command.format(131072), "m/config.json": config, "kvbudget.yaml": policy}
    )
    assert [f.rule for f in report.findings if f.level == "error"] == ["GATE017"]
    report = judge(tmp_path, {"a.sh": command.format(4096)})
    assert not [f for f in report.findings if f.level == "error"]


LLAMA = (
    '{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": %d,'
    ' "intermediate_size": %d, "num_attention_heads": %d, "num_hidden_layers": %d,'
    ' "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072,'
    ' "torch_dtype": "bfloat16"}'
)


def test_pools_are_those_of_derive(tmp_path: Path) -> None:
    (tmp_path / "small.json").write_text(LLAMA % (4096, 14336, 32, 32))
    (tmp_path / "large.json").write_text(LLAMA % (8192, 28672, 64, 80))
    run_on = "docker run --ipc=host --memory 400g vllm/vllm-openai:v0.20.2 --model"
    (tmp_path / "a.sh").write_text(
        f"{run_on} own/large -tp 2 --max-model-len 131072\n"
        f"{run_on} own/large -tp 4 --max-model-len 65536\n"
        f"{run_on} own/small --kv-offloading-size 20\n"
        f"{run_on} own/small --kv-offloading-size 100\n"
        f"{run_on} own/large --max-model-len 64\n"
        f"{run_on} own/other --max-model-len 64\n"
    )
    request = Request(
        root=tmp_path,
        gpu="H100-80GB",
        model_configs={
            "own/small": str(tmp_path / "small.json"),
            "own/large": str(tmp_path / "large.json"),
        },
    )
    report = run(request, Policy(base=tmp_path))
    found = [(f.rule, f.line) for f in report.findings if f.rule in ("GATE017", "GATE046")]
    assert found == [("GATE017", 1), ("GATE046", 3), ("GATE017", 5)]
    assert [item["needs"] for item in report.skipped if item["rule"] == "GATE017"] == [
        "model config"
    ]
    need = next(f for f in report.findings if f.rule == "GATE017").data["need_bytes"]
    assert need == pytest.approx(131072 * 2 * 80 * 4 * 128 * 2, rel=0.01)


def test_what_a_rule_reads_is_a_setting():
    from kvbudget.gate.knowledge import engine, engine_names

    known = {name for e in engine_names() for name, o in engine(e).options.items() if o.memory}
    for rule, entry in rule_data().items():
        assert set(entry.get("reads", ())) <= {*known, "model"}, rule
        assert set(entry.get("engines", ())) <= set(engine_names()), rule


def test_an_unknown_value_names_the_rules_it_silences(tmp_path: Path):
    report = judge(tmp_path, {"a.sh": 'vllm serve own/a --gpu-memory-utilization "$U"\n'})
    (finding,) = report.findings
    assert finding.message == (
        "gpu_memory_utilization has no static value; not evaluated: "
        "GATE010, GATE011, GATE012, GATE013, GATE015, GATE017, GATE018, GATE046"
    )
