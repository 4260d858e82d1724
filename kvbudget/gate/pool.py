"""The KV pool of an invocation: what `kvbudget derive` says of its model, card and flags."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kvbudget.budget import Amount, Provenance
from kvbudget.errors import InputError, KvbudgetError
from kvbudget.units import GIB

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kvbudget.derive.assemble import Derived
    from kvbudget.derive.request import Request
    from kvbudget.gate.invocation import Invocation
    from kvbudget.model.config import Model


@dataclass(frozen=True)
class Pool:
    """Bytes of one rank.

    size: the derived pool. most: the pool if nothing were reserved beside weights and context.
    need: one request of the longest context. host: the host tier of a stated ratio.
    """

    size: int
    most: int
    need: int | None
    host: int | None


class Pools:
    """Pools by invocation, from the models a policy or `--model-config` names."""

    def __init__(self, entries: Mapping[str, tuple[Path | None, float | None]]) -> None:
        """`entries`: model id -> (config.json or its folder, GiB of the whole weights)."""
        self.entries = entries
        self.models: dict[Path, Model] = {}

    def knows(self, inv: Invocation) -> bool:
        """True where the invocation's model has a config."""
        return self.entries.get(inv.model or "", (None, None))[0] is not None

    def of(self, inv: Invocation) -> Pool | None:
        """None where card, model or a flag is not known. Raises InputError for a bad config."""
        path, weights_gib = self.entries.get(inv.model or "", (None, None))
        if path is None or inv.tp is None or inv.host.gpu_type is None:
            return None
        request = self._request(inv, self._model(inv.model or "", path), weights_gib)
        try:
            return None if request is None else _pool(request)
        except KvbudgetError:
            return None

    def _request(self, inv: Invocation, model: Model, weights_gib: float | None) -> Request | None:
        from kvbudget.derive.catalogue import find_gpu
        from kvbudget.derive.flags import load_flags
        from kvbudget.derive.request import Evidence, Request

        known = load_flags(inv.engine.name)
        open_ = [*inv.settings.unresolved, *(bad.name for bad in inv.settings.bad)]
        if any(name in known for name in open_):
            return None
        flags = {
            name: setting.value
            for name, setting in inv.settings.values.items()
            if name in known and isinstance(setting.value, str | int | float)
        }
        stated = {}
        if weights_gib is not None:
            size = int(weights_gib * GIB / (inv.tp or 1) / inv.pp)
            source = Provenance("assumed", "weights_gib of the policy")
            stated["weights_memory"] = Evidence(Amount.exact(size, "B"), source)
        return Request(
            inv.engine.name, inv.version or inv.assumed_version or inv.engine.newest, model,
            find_gpu(inv.host.gpu_type or ""), flags=flags, stated=stated,
            env={name: item.value.s for name, item in inv.env.items()},
        )  # fmt: skip

    def _model(self, name: str, path: Path) -> Model:
        from kvbudget.model.config import load_model, model_from_config

        if path in self.models:
            return self.models[path]
        if not path.exists():
            said = f"error: {path}: no such model config"
            raise InputError(said, "correct the path in the policy")
        if path.is_dir():
            made = load_model(path)
        else:
            try:
                raw = json.loads(path.read_text(encoding="utf-8-sig"))
            except ValueError as exc:
                line = getattr(exc, "lineno", 1)
                raise InputError(f"error: {path}:{line}: cannot read as JSON: {exc}") from None
            made = model_from_config(raw, name=name)
        self.models[path] = made
        return made


def _pool(request: Request) -> Pool | None:
    from kvbudget.derive.assemble import derive
    from kvbudget.derive.request import Evidence

    usual = derive(request)
    nothing = {
        name: Evidence(Amount.exact(0, "B"), Provenance("assumed", "nothing reserved"))
        for name, source in usual.gathered.provenance.items()
        if source.kind == "modelled" and usual.gathered.numbers[name].unit == "B"
        and name != "context_memory"
    }  # fmt: skip
    bare = derive(replace(request, stated={**nothing, **request.stated}))
    size, most = _bytes(usual, "kv_cache_memory"), _bytes(bare, "kv_cache_memory")
    if size is None or most is None:
        return None
    requests = bare.amount("max_concurrency")
    need = int(most / requests.value) if requests is not None and requests.value > 0 else None
    return Pool(size, most, need, _bytes(usual, "host_pool_memory"))


def _bytes(derived: Derived, name: str) -> int | None:
    amount = derived.amount(name)
    return None if amount is None else int(amount.value)
