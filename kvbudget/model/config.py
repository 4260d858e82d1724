"""`load_model`: a directory, a config.json or a hub id becomes a Model."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvbudget.budget import Amount
from kvbudget.errors import InputError, MissingFact
from kvbudget.jsonfile import read_object
from kvbudget.model import weights
from kvbudget.model.checkpoint import Checkpoint, read_checkpoint
from kvbudget.model.eras import engine_formats
from kvbudget.model.families import FAMILIES, TEXT_OF
from kvbudget.model.fields import Fields
from kvbudget.model.layers import DTYPE_BYTES, LayerGroup, group_layers, stage_ranges
from kvbudget.model.parts import Ranks
from kvbudget.model.quantisation import Quantisation, read_quantisation
from kvbudget.model.towers import TOWERS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kvbudget.model.parts import Anatomy


LENGTHENING = frozenset({"linear", "dynamic", "ntk"})
"""Rotary scalings whose factor is not yet in max_position_embeddings."""


@dataclass(frozen=True)
class Model:
    """What kvbudget knows of a model. Dimensions are those of the text model.

    dtype_bytes: bytes of one unquantised weight and of one activation number. `quantisation` is
    None for unquantised checkpoints and for formats whose width the config does not state.
    """

    name: str
    architecture: str
    model_type: str
    dtype: str
    dtype_bytes: int
    hidden_size: int
    vocab_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int
    num_experts: int
    num_experts_per_tok: int
    moe_intermediate_size: int
    anatomy: Anatomy
    config: Mapping[str, Any]
    text: Fields
    quantization_config: Mapping[str, Any] | None = None
    quantisation: Quantisation | None = None
    checkpoint: Checkpoint | None = None
    notes: tuple[str, ...] = field(default_factory=tuple)

    @cached_property
    def params(self) -> int:
        """Parameters of the main model: a tied embedding once, no prediction layers, no buffers."""
        return weights.count(weights.all_weights(self.anatomy))

    @property
    def prediction_layers(self) -> int:
        """Layers that predict further tokens and are part of this checkpoint."""
        return self.text.int("num_nextn_predict_layers", "mtp_num_hidden_layers", default=0)

    def prediction_groups(self, groups: Sequence[LayerGroup]) -> list[LayerGroup]:
        """KV layers of the prediction layers: each caches what the last growing layer does."""
        kinds = [layer.mixer.kind for layer in self.anatomy.layers]
        last = next((kind for kind in reversed(kinds) if kind in ("full", "mla")), None)
        like = [group for group in groups if group.kind == last][-1:]
        if last == "mla":
            like += [group for group in groups if group.kind == "indexer"]
        return [replace(group, layers=self.prediction_layers) for group in like]

    @property
    def context_length(self) -> int:
        """Tokens of the longest request the model is made for; 0 where the config does not say.

        `max_position_embeddings`, times the factor of a rotary scaling that lengthens it (yarn,
        llama3 and longrope configs state the lengthened one; so does Gemma 3).
        """
        scaling = self.text.sub("rope_scaling") or self.text.sub("rope_parameters")
        kind = scaling.text("rope_type", scaling.text("type", "")) if scaling else ""
        if scaling is None or kind not in LENGTHENING or self.model_type.startswith("gemma3"):
            return self.max_position_embeddings
        return int(self.max_position_embeddings * scaling.float("factor", 1.0))

    @property
    def attention_kinds(self) -> tuple[str, ...]:
        """Kinds of layers, in order of appearance (full, sliding, mla, linear ...)."""
        kinds: list[str] = []
        for layer in self.anatomy.layers:
            mixer = layer.mixer
            found = [mixer.kind] + (["indexer"] if mixer.index_dim else [])
            kinds += [kind for kind in found if kind != "none" and kind not in kinds]
        return tuple(kinds)

    @property
    def is_moe(self) -> bool:
        return any(layer.is_moe for layer in self.anatomy.layers)

    @property
    def is_multimodal(self) -> bool:
        """True when there is a vision or audio tower beside the text model, described or not."""
        described = self.config.get("vision_config") or self.config.get("audio_config")
        return isinstance(described, dict) or self.architecture.endswith("ForConditionalGeneration")

    @property
    def is_mla(self) -> bool:
        return any(layer.mixer.kind == "mla" for layer in self.anatomy.layers)

    @property
    def is_sparse(self) -> bool:
        """True for latent attention with an indexer (DSA)."""
        return any(layer.mixer.index_dim for layer in self.anatomy.layers)

    def with_dtype(self, dtype: str) -> Model:
        """The model as an engine loads it under --dtype. `auto` turns float32 into 16 bits."""
        if dtype == "auto":
            return self
        return replace(self, dtype=dtype, dtype_bytes=_dtype_bytes(dtype))

    def weights_bytes(
        self,
        tp: int | Ranks = 1,
        pp: int = 1,
        *,
        stage: int | None = None,
        mtp: bool = False,
    ) -> Amount:
        """Weights on one rank, in bytes, as the checkpoint stores them.

        tp: ranks that cut the tensors, or how they share them in full. stage: pipeline stage;
        None takes the heaviest. With local files the total is theirs (headers or index), divided
        as the config divides. Raises MissingFact where neither files nor config state the width of
        a quantised weight.
        """
        stages = range(pp) if stage is None else [stage]
        known = self.quantization_config is None or self.quantisation is not None
        if not known and self.checkpoint is None:
            self._require_known_width()
        ranks = tp if isinstance(tp, Ranks) else Ranks(tp)
        share = max(self._rank(ranks, pp, number, mtp=mtp) for number in stages)
        if self.checkpoint is None:
            if self.quantisation is not None and not self.quantisation.exact:
                return Amount(share, int(share * 0.95), int(share * 1.25), "B")
            return Amount.exact(share, "B")
        whole = self._rank(Ranks(), 1, 0, mtp=mtp)
        from_files = self.checkpoint.total_bytes
        if self.anatomy.mtp and not mtp:
            from_files = min(from_files, self._without_mtp(from_files))
        if share == whole:
            return Amount.exact(from_files, "B")
        best = -(-from_files * share // whole)
        return Amount(best, int(best * 0.99), int(best * 1.01), "B")

    def layer_groups(
        self,
        tp: int = 1,
        pp: int = 1,
        *,
        kv_dtype: str = "auto",
        block_size: int = 16,
        stage: int | None = None,
        state_dtype: str = "auto",
        dcp: int = 1,
        draft_tokens: int = 0,
        engine: str | None = None,
        version: str | None = None,
    ) -> list[LayerGroup]:
        """KV layers of one rank (stage None: the stage whose layers cost most per token).

        state_dtype: of recurrent states; `auto` is the config's (`mamba_ssm_dtype`), else the
        model's. draft_tokens: drafted per step. engine and version: that engine's own layouts (packed fp8 of sparse attention,
        float32 states) instead of the plain ones. Raises InputError for an unknown dtype.
        """
        if engine is not None:
            kv_dtype, state_dtype = engine_formats(
                engine, version, kv_dtype, state_dtype, sparse=self.is_sparse
            )
        declared = self.text.get("mamba_ssm_dtype", "mamba_ssm_cache_dtype")
        state = _dtype_bytes(str(declared)) if declared else self.dtype_bytes
        if state_dtype != "auto":
            state = _dtype_bytes(state_dtype)
        ranges = stage_ranges(len(self.anatomy.layers), pp)
        candidates = [
            group_layers(
                [self.anatomy.layers[i] for i in ranges[number]],
                tp=tp, kv_dtype=kv_dtype, block_size=block_size, dtype_bytes=self.dtype_bytes,
                state_dtype_bytes=state, conv_dtype_bytes=self.dtype_bytes, dcp=dcp,
                draft_tokens=draft_tokens,
            )
            for number in (range(pp) if stage is None else [stage])
        ]  # fmt: skip
        return max(candidates, key=lambda groups: sum(g.layers * g.page_bytes for g in groups))

    def bytes_per_token(self, tp: int = 1, pp: int = 1, *, kv_dtype: str = "auto") -> int:
        """What one more token of a growing request costs one rank (full and latent layers)."""
        groups = self.layer_groups(tp, pp, kv_dtype=kv_dtype)
        return sum(g.layers * g.bytes_per_token for g in groups if g.grows)

    def reserved_bytes_per_token(self, tp: int = 1, pp: int = 1, *, kv_dtype: str = "auto") -> int:
        """Bytes per token of one rank with every layer at full length."""
        groups = self.layer_groups(tp, pp, kv_dtype=kv_dtype)
        return sum(g.layers * g.bytes_per_token for g in groups)

    def state_bytes_per_request(
        self, tp: int = 1, pp: int = 1, *, state_dtype: str = "auto"
    ) -> int:
        """Recurrent state of one request on one rank, all its layers."""
        groups = self.layer_groups(tp, pp, state_dtype=state_dtype)
        return sum(g.layers * g.state_bytes for g in groups)

    def _rank(self, ranks: Ranks, pp: int, stage: int, *, mtp: bool) -> int:
        return weights.rank_bytes(
            self.anatomy, ranks, pp=pp, stage=stage, dtype_bytes=self.dtype_bytes,
            quantisation=self.quantisation, mtp=mtp,
        )  # fmt: skip

    def _without_mtp(self, total: int) -> int:
        """File bytes without prediction layers, judged by the share the config gives them."""
        main = self._rank(Ranks(), 1, 0, mtp=False)
        both = self._rank(Ranks(), 1, 0, mtp=True)
        return total * main // both if total > main + (both - main) // 2 else total

    def _require_known_width(self) -> None:
        if self.quantization_config is not None and self.quantisation is None:
            method = self.quantization_config.get("quant_method", "unknown")
            raise MissingFact(
                f"config.json does not say how wide a {method} weight is",
                ("weights_memory", "quantization_config"),
                "point at a folder with the safetensors files or their index; derive and plan also take "
                "--set weights_memory=SIZE (the engine prints it)",
            )


def _dtype_bytes(name: str) -> int:
    plain = name.removeprefix("torch.")
    if plain not in DTYPE_BYTES:
        raise InputError(f"unknown dtype {name!r}", f"one of: {', '.join(sorted(DTYPE_BYTES))}")
    return DTYPE_BYTES[plain]


def load_model(source: str | Path, *, assume: Mapping[str, Any] | None = None) -> Model:
    """A model from a folder, a path to a config.json, or (extra `hf`) a hub id.

    assume: config fields the user states, `model_type` among them for an unknown architecture.
    Raises InputError for unreadable input, MissingFact for an unknown architecture or a missing
    field (naming the fields).
    """
    path = Path(source)
    if not path.exists():
        from kvbudget.model.hub import fetch_config

        path = fetch_config(str(source))
    folder, file = (path, path / "config.json") if path.is_dir() else (path.parent, path)
    raw = read_object(file, "MODEL is a folder with a config.json, a path to one, or a hub id")
    return model_from_config(
        raw, name=folder.resolve().name, checkpoint=read_checkpoint(folder), assume=assume
    )


def model_from_config(
    raw: Mapping[str, Any],
    *,
    name: str,
    checkpoint: Checkpoint | None = None,
    assume: Mapping[str, Any] | None = None,
) -> Model:
    """A Model from a parsed config. Raises MissingFact and InputError as `load_model` does."""
    stated = dict(assume or {})
    config = {**raw, **{k: v for k, v in stated.items() if "text_config" not in raw}}
    top = Fields(config)
    nested = top.sub("text_config") or top.sub("llm_config") or top.sub("language_config")
    text = Fields({**nested.raw, **stated}, nested.where) if nested else top
    outer = top.text("model_type", "")
    model_type = str(stated.get("model_type") or text.get("model_type") or outer)
    model_type = model_type if model_type in FAMILIES else TEXT_OF.get(model_type, model_type)
    architectures = top.list("architectures") or text.list("architectures") or []
    architecture = str(architectures[0]) if architectures else model_type
    if model_type not in FAMILIES:
        raise MissingFact(
            f"unknown architecture {architecture or '(none stated)'!r} "
            f"(model_type {model_type or 'absent'!r})",
            ("model_type", "architectures"),
            "if it is laid out like a known one, say so: --assume model_type=llama; "
            f"known: {', '.join(sorted(FAMILIES))}",
        )
    tie = top.get("tie_word_embeddings")
    if nested and tie is not None and text.get("tie_word_embeddings") is None:
        text = Fields({**text.raw, "tie_word_embeddings": tie}, text.where)
    anatomy, notes = _with_tower(FAMILIES[model_type](text), top, text, outer)
    if not anatomy.layers:
        raise InputError("config.json describes no layers", "fix the list of layers in it")
    dtype = str(top.get("torch_dtype", "dtype") or text.get("torch_dtype", "dtype") or "bfloat16")
    heads = text.int("num_attention_heads")
    hidden = text.int("hidden_size")
    quant = top.sub("quantization_config") or text.sub("quantization_config")
    if quant is None and top.sub("compression_config") is not None:
        quant = top.sub("compression_config")
    if stated:
        notes += tuple(f"assumed by the user: {key}={value}" for key, value in stated.items())
    return Model(
        name=name, architecture=architecture, model_type=model_type,
        dtype=dtype.removeprefix("torch."), dtype_bytes=_dtype_bytes(dtype),
        hidden_size=hidden, vocab_size=text.int("vocab_size"),
        intermediate_size=text.int("intermediate_size", "ffn_dim", "moe_intermediate_size"),
        num_hidden_layers=text.int("num_hidden_layers"), num_attention_heads=heads,
        num_key_value_heads=text.int("num_key_value_heads", default=heads),
        head_dim=text.head_dim(heads),
        max_position_embeddings=text.int("max_position_embeddings", default=0),
        num_experts=_optional(text, "num_experts", "n_routed_experts", "num_local_experts"),
        num_experts_per_tok=_optional(
            text, "num_experts_per_tok", "experts_per_token", "top_k_experts"
        ),
        moe_intermediate_size=_optional(text, "moe_intermediate_size")
        or (text.int("intermediate_size", default=0) if _any_moe(anatomy) else 0),
        anatomy=anatomy, config=config, text=text,
        quantization_config=quant.raw if quant else None,
        quantisation=read_quantisation(quant.raw) if quant else None,
        checkpoint=checkpoint, notes=notes,
    )  # fmt: skip


def _any_moe(anatomy: Anatomy) -> bool:
    return any(layer.is_moe for layer in anatomy.layers)


def _optional(text: Fields, *names: str) -> int:
    return text.int(*names, default=0)


def _with_tower(
    anatomy: Anatomy, top: Fields, text: Fields, outer: str
) -> tuple[Anatomy, tuple[str, ...]]:
    """Adds the vision tower; an unknown one is a note, because its bytes are not in the count."""
    vision = top.sub("vision_config")
    if vision is None:
        if top.sub("audio_config") is not None:
            return anatomy, ("the audio tower is not in the parameter count",)
        return anatomy, ()
    kind = str(vision.get("model_type") or outer)
    build = TOWERS.get(kind) or TOWERS.get(outer)
    if build is None:
        return anatomy, (f"vision tower {kind!r} is unknown: its weights are not in the count",)
    tower, projector = build(vision, top, text.int("hidden_size"))
    return replace(anatomy, tower=tower, projector=projector), ()
