"""Parameter counts, unknown architectures, assumptions: from config.json alone."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from kvbudget.errors import InputError, MissingFact
from kvbudget.model.config import load_model, model_from_config
from kvbudget.model.weights import count
from tests.unit import model_configs as c

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("config", "params", "size"),
    [
        (c.LLAMA_8B, 8_030_261_248, 16_060_522_496),
        (c.LLAMA_70B, 70_553_706_496, 141_107_412_992),
        (c.DEEPSEEK_V3, 671_026_419_200, 673_150_611_808),
        (c.QWEN3_235B, 235_093_634_560, 470_187_269_120),
        (c.GEMMA3_27B, 27_432_406_640, 54_864_813_280),
        (c.GPT_OSS_20B, 20_914_757_184, 13_761_264_768),
        (c.QWEN3_NEXT, 79_674_391_296, 159_348_782_592),
    ],
)
def test_published_counts_are_met_exactly(config: dict, params: int, size: int) -> None:
    model = c.model(config)
    assert model.params == params
    assert model.weights_bytes().value == size


def test_prediction_layers_count_apart() -> None:
    model = c.model(c.DEEPSEEK_V3)
    assert count(model.anatomy.mtp) == 13_463_426_304
    assert model.weights_bytes(mtp=True).value == 688_574_839_360


def test_a_tied_head_counts_once_and_the_last_stage_holds_a_copy() -> None:
    tied = c.model({**c.LLAMA_8B, "tie_word_embeddings": True})
    table = 128256 * 4096
    assert tied.params == 8_030_261_248 - table
    both = [tied.weights_bytes(1, 2, stage=stage).value for stage in (0, 1)]
    assert both[0] > 2 * table
    assert both[1] > 2 * table


def test_an_unknown_architecture_fails_closed_and_names_the_fields() -> None:
    odd = {**c.LLAMA_8B, "model_type": "novel", "architectures": ["NovelForCausalLM"]}
    with pytest.raises(MissingFact) as caught:
        model_from_config(odd, name="odd")
    assert "NovelForCausalLM" in caught.value.what
    assert "model_type" in caught.value.facts
    assumed = model_from_config(odd, name="odd", assume={"model_type": "llama"})
    assert assumed.params == 8_030_261_248
    assert any("assumed" in note for note in assumed.notes)


def test_a_missing_dimension_is_named() -> None:
    short = {k: v for k, v in c.LLAMA_8B.items() if k != "hidden_size"}
    with pytest.raises(MissingFact, match="hidden_size"):
        c.model(short)


def test_a_dimension_of_the_wrong_kind_is_refused() -> None:
    with pytest.raises(InputError, match="num_hidden_layers"):
        c.model({**c.LLAMA_8B, "num_hidden_layers": "32"})


def test_a_width_the_config_does_not_state_is_unknown_not_guessed() -> None:
    unclear = {**c.LLAMA_8B, "quantization_config": {"quant_method": "compressed-tensors"}}
    model = c.model(unclear)
    assert model.params == 8_030_261_248
    with pytest.raises(MissingFact, match="compressed-tensors"):
        model.weights_bytes()


def test_a_folder_a_file_and_a_missing_one(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(c.LLAMA_8B))
    assert load_model(tmp_path).params == load_model(tmp_path / "config.json").params
    with pytest.raises(InputError):
        load_model(tmp_path / "absent")
    (tmp_path / "config.json").write_text("[1]")
    with pytest.raises(InputError):
        load_model(tmp_path)


def test_loading_a_model_imports_nothing_heavy(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(c.DEEPSEEK_V3))
    code = (
        "import sys; from kvbudget.model.config import load_model; "
        f"print(load_model({str(tmp_path)!r}).params); "
        "print({'torch','numpy','transformers','huggingface_hub'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["671026419200", "set()"]
