"""Every rule's bad example raises it, its good example does not, and its page is current."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from kvbudget.gate import policy as policies
from kvbudget.gate.evaluate import Report, Request, run
from kvbudget.gate.finding import rule_data
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
