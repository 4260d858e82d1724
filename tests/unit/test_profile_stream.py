"""Real weights: which part of which tensor a rank holds, and how it gets onto the device."""

import json
import tracemalloc
from math import prod

import pytest

torch = pytest.importorskip("torch")

from kvbudget.errors import InputError  # noqa: E402
from kvbudget.model.config import load_model  # noqa: E402
from kvbudget.model.parts import Ranks  # noqa: E402
from kvbudget.profile import stream as module  # noqa: E402
from kvbudget.profile.policy import load_policy  # noqa: E402
from kvbudget.profile.runners import load_files, own_runner, place_of  # noqa: E402
from kvbudget.profile.shards import Place, shard  # noqa: E402
from kvbudget.profile.tracker import LiveBytes  # noqa: E402
from kvbudget.profile.types import Job  # noqa: E402

pytestmark = pytest.mark.torch
HIDDEN, INNER, VOCAB, HEADS, KV, DIM, LAYERS = 64, 96, 160, 8, 2, 8, 3
CONFIG = {
    "model_type": "llama", "torch_dtype": "bfloat16", "hidden_size": HIDDEN,
    "intermediate_size": INNER, "vocab_size": VOCAB, "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS, "num_key_value_heads": KV, "head_dim": DIM,
    "max_position_embeddings": 256, "tie_word_embeddings": False,
}  # fmt: skip
WIDTH = {"BF16": 2, "F32": 4, "F8_E4M3": 1, "U8": 1, "F4": 0.5}


def names():
    """Names and shapes as a published checkpoint of this config has them."""
    yield "model.embed_tokens.weight", (VOCAB, HIDDEN)
    for n in range(LAYERS):
        at = f"model.layers.{n}."
        yield at + "self_attn.q_proj.weight", (HEADS * DIM, HIDDEN)
        yield at + "self_attn.k_proj.weight", (KV * DIM, HIDDEN)
        yield at + "self_attn.v_proj.weight", (KV * DIM, HIDDEN)
        yield at + "self_attn.o_proj.weight", (HIDDEN, HEADS * DIM)
        yield at + "mlp.gate_proj.weight", (INNER, HIDDEN)
        yield at + "mlp.up_proj.weight", (INNER, HIDDEN)
        yield at + "mlp.down_proj.weight", (HIDDEN, INNER)
        yield at + "input_layernorm.weight", (HIDDEN,)
        yield at + "post_attention_layernorm.weight", (HIDDEN,)
    yield "model.norm.weight", (HIDDEN,)
    yield "lm_head.weight", (VOCAB, HIDDEN)


def write(folder, tensors, config=CONFIG, files=2):
    """Shards with numbered bytes; returns name -> raw bytes."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    raw, weight_map = {}, {}
    for part in range(files):
        header, body = {}, b""
        for name, shape, dtype in tensors[part::files]:
            size = int(prod(shape) * WIDTH[dtype])
            raw[name] = bytes((len(raw) * 7 + i) % 61 for i in range(size))
            header[name] = {"dtype": dtype, "shape": list(shape),
                            "data_offsets": [len(body), len(body) + size]}  # fmt: skip
            body += raw[name]
            weight_map[name] = f"model-{part + 1}.safetensors"
        text = json.dumps(header).encode()
        file = folder / f"model-{part + 1}.safetensors"
        file.write_bytes(len(text).to_bytes(8, "little") + text + body)
    index = {"metadata": {"total_size": sum(map(len, raw.values()))}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return raw


@pytest.fixture
def dense(tmp_path):
    return tmp_path, write(tmp_path, [(name, shape, "BF16") for name, shape in names()])


def load(folder, *, rank=0, read=True, **job):
    """(runner, tracked bytes, note) of one rank with the files of `folder` on it."""
    job = Job(str(folder), **job)
    model, place = load_model(folder), place_of(job, rank)
    device = "cpu" if read else "meta"
    with torch.no_grad(), LiveBytes() as tracker:
        runner = own_runner(job, model, load_policy(job.policy), place, device=device)
        note = load_files(runner, job, model, place, device=device, read=read)
        held, top = tracker.allocated, tracker.peak
        assert top == held, "nothing but the weights themselves was ever on the device"
        runner.forward(32)
        assert tracker.peak > held
    return runner, held, note


def tensor(raw, name, shape):
    return torch.frombuffer(bytearray(raw[name]), dtype=torch.bfloat16).view(shape)


def test_values_arrive_and_projections_lie_together(dense, monkeypatch):
    folder, raw = dense
    monkeypatch.setattr(module, "STEP", 1000)  # many steps per tensor
    runner, held, note = load(folder)
    assert held == load_model(folder).weights_bytes().value == sum(map(len, raw.values()))
    assert f"{held:,} B" in note
    at = "model.layers.1.self_attn."
    fused = runner.weights[f"file.{at}qkv_proj.weight.BF16"].view(-1, HIDDEN)
    whole = torch.cat([tensor(raw, f"{at}{x}_proj.weight", (-1, HIDDEN)) for x in "qkv"])
    # The files hold every second tensor, so the parts lie in the files' order.
    assert sorted(map(tuple, fused.tolist())) == sorted(map(tuple, whole.tolist()))
    head = runner.weights["file.lm_head.weight.BF16"].view(VOCAB, HIDDEN)
    assert torch.equal(head, tensor(raw, "lm_head.weight", (VOCAB, HIDDEN)))


def test_columns_are_cut_on_the_host(dense):
    folder, raw = dense
    name = "model.layers.0.mlp.down_proj.weight"
    whole = tensor(raw, name, (HIDDEN, INNER))
    for rank in range(2):
        runner, _, _ = load(folder, tp=2, rank=rank)
        part = runner.weights[f"file.{name}.BF16"].view(HIDDEN, INNER // 2)
        assert torch.equal(part, whole[:, rank * INNER // 2 : (rank + 1) * INNER // 2])


@pytest.mark.parametrize("tp", [2, 4, 8])
def test_ranks_hold_what_the_config_says(dense, tp):
    """KV heads are copied where there are more ranks than heads."""
    folder, _ = dense
    wanted = load_model(folder).weights_bytes(tp).value
    held = {load(folder, tp=tp, rank=rank, read=False)[1] for rank in range(tp)}
    assert held == {wanted}


def test_stages_hold_what_the_config_says(dense):
    folder, _ = dense
    model = load_model(folder)
    held = [load(folder, pp=3, rank=stage, read=False)[1] for stage in range(3)]
    assert held == [model.weights_bytes(1, 3, stage=s).value for s in range(3)]


def test_fake_reads_nothing(dense, monkeypatch):
    folder, _ = dense
    monkeypatch.setattr(module, "_open", lambda path: pytest.fail(f"opened {path}"))
    assert load(folder, read=False)[1] == load_model(folder).weights_bytes().value


def test_the_host_holds_a_step_not_a_file(dense, monkeypatch):
    folder, raw = dense
    monkeypatch.setattr(module, "STEP", 2048)
    model = load_model(folder)
    tracemalloc.start()
    try:
        parts = shard(model.checkpoint.tensors, model, Place())
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        module.stream(folder, parts, dtype=torch.bfloat16, cast="BF16", device="cpu", read=True)
        top = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert top < sum(map(len, raw.values())) / 4


def test_dtype_of_the_run(dense):
    folder, _ = dense
    job, place = Job(str(folder)), Place()
    model = load_model(folder).with_dtype("float32")
    runner = own_runner(job, model, load_policy("vllm"), place, device="cpu")
    load_files(runner, job, model, place, device="cpu", read=True)
    assert {w.dtype for w in runner.weights.values()} == {torch.float32}


def test_packed_formats_keep_their_bytes(tmp_path):
    """Eight-bit numbers with float32 scales; four-bit ones torch has no type for."""
    config = {**CONFIG, "quantization_config": {"quant_method": "fp8", "weight_block_size": [8, 8]}}
    tensors = []
    for name, shape in names():
        packed = len(shape) == 2 and "layers" in name
        tensors.append((name, shape, "F8_E4M3" if packed else "BF16"))
        if packed:
            blocks = tuple(-(-size // 8) for size in shape)
            tensors.append((name + "_scale_inv", blocks, "F32"))
    tensors.append(("model.layers.0.extra", (4, 6), "F4"))
    raw = write(tmp_path, tensors, config)
    runner, held, _ = load(tmp_path)
    assert held == sum(map(len, raw.values()))
    kinds = {w.dtype for w in runner.weights.values()}
    assert kinds == {torch.float8_e4m3fn, torch.float32, torch.bfloat16, torch.uint8}


def test_experts_are_spread_whole_or_cut(tmp_path):
    config = {
        **CONFIG, "model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 2,
        "moe_intermediate_size": 32, "decoder_sparse_step": 1, "mlp_only_layers": [],
    }  # fmt: skip
    tensors = [(n, s, "BF16") for n, s in names() if "mlp" not in n]
    for n in range(LAYERS):
        at = f"model.layers.{n}."
        tensors += [(at + f"self_attn.{x}_norm.weight", (DIM,), "BF16") for x in "qk"]
        tensors.append((at + "mlp.gate.weight", (4, HIDDEN), "BF16"))
        for e in range(4):
            tensors += [(at + f"mlp.experts.{e}.{x}_proj.weight", (32, HIDDEN), "BF16")
                        for x in ("gate", "up")]  # fmt: skip
            tensors.append((at + f"mlp.experts.{e}.down_proj.weight", (HIDDEN, 32), "BF16"))
    write(tmp_path, tensors, config)
    model = load_model(tmp_path)
    for ep in (1, 2):
        runner, held, _ = load(tmp_path, tp=2, ep=ep, rank=1)
        assert held == model.weights_bytes(Ranks(2, ep=ep)).value
    together = runner.weights["file.model.layers.0.mlp.experts.gate_up_proj.weight.BF16"]
    assert together.numel() == 2 * 2 * 32 * HIDDEN


def test_what_an_engine_does_not_load(tmp_path):
    tensors = [(n, s, "BF16") for n, s in names()]
    tensors += [
        (f"model.layers.{LAYERS}.mlp.up_proj.weight", (INNER, HIDDEN), "BF16"),
        ("model.layers.0.self_attn.rotary_emb.inv_freq", (4,), "F32"),
    ]
    write(tmp_path, tensors, {**CONFIG, "tie_word_embeddings": True})
    _, held, note = load(tmp_path)
    head = 2 * VOCAB * HIDDEN
    assert held == sum(2 * prod(s) for _, s in names()) - head
    assert "3 skipped" in note


def test_a_file_that_ends_too_early(dense):
    folder, _ = dense
    file = folder / "model-2.safetensors"
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(InputError, match="ends in the middle of"):
        load(folder)


def test_no_files(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    with pytest.raises(InputError, match="no safetensors"):
        load(tmp_path)
