"""The readings as Prometheus metrics with `kvbudget_` names, from a registry of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbudget.errors import InputError

if TYPE_CHECKING:
    from kvbudget.watch.alarms import State


class Exporter:
    """Serves /metrics on `address` (":9100" or "host:9100"). Raises InputError if it cannot."""

    def __init__(self, address: str) -> None:
        try:
            from prometheus_client import CollectorRegistry, Gauge, start_http_server
        except ImportError as exc:
            raise InputError(
                "kvbudget watch --exporter needs prometheus_client",
                'pip install "kvbudget[watch]"',
            ) from exc
        host, _, port = address.rpartition(":")
        if not port.isdigit():
            raise InputError(f"not a port: {address!r}", "write --exporter :9114")
        self.registry = CollectorRegistry()
        gpu = ["gpu", "uuid"]

        def gauge(name: str, doc: str, labels: list[str]) -> Gauge:
            return Gauge(f"kvbudget_{name}", doc, labels, registry=self.registry)

        self._gpu = {
            "free": gauge("gpu_free_bytes", "Free memory of the card", gpu),
            "used": gauge("gpu_used_bytes", "Used memory of the card", gpu),
            "total": gauge("gpu_total_bytes", "Memory of the card", gpu),
            "low": gauge("gpu_free_low_water_bytes", "Least free memory seen", gpu),
            "eta": gauge("gpu_margin_eta_seconds", "Time until free memory is gone", gpu),
        }
        growth = [*gpu, "owner"]
        self._growth = gauge("gpu_growth_bytes", "Growth since the start, by owner", growth)
        self._up = gauge("engine_up", "1 when the metrics endpoint answers", ["url"])
        self._usage = gauge("kv_cache_usage_ratio", "Fullest KV pool of the server", ["url"])
        self._rate = gauge("preemptions_per_second", "Preemptions or retractions", ["url"])
        self._alarm = gauge("alarm", "1 while the alarm stands", ["id", "where"])
        self._raised: set[tuple[str, str]] = set()
        try:
            self._server, self._thread = start_http_server(
                int(port), addr=host or "0.0.0.0", registry=self.registry
            )
        except (OSError, OverflowError) as exc:
            raise InputError(f"cannot listen on {address}: {exc}", "choose another port") from exc

    @property
    def port(self) -> int:
        return int(self._server.server_port)

    def update(self, state: State) -> None:
        """Unknown figures are removed, not exported as 0."""
        for gpu in state.gpus:
            labels = (str(gpu.reading.index), gpu.reading.uuid or "")
            for key, value in (
                ("free", gpu.reading.free_memory),
                ("used", gpu.reading.used_memory),
                ("total", gpu.reading.total_memory),
                ("low", gpu.low_water),
                ("eta", gpu.eta_s),
            ):
                _put(self._gpu[key], labels, value)
            growth = gpu.growth
            for owner in ("engine", "neighbour", "unknown"):
                _put(self._growth, (*labels, owner), getattr(growth, owner) if growth else None)
        for engine in state.engines:
            url = (engine.reading.url,)
            _put(self._up, url, 1 if engine.reading.up else 0)
            _put(self._usage, url, engine.reading.figures.get("kv_cache_usage"))
            _put(self._rate, url, engine.preemption_rate)
        now = {(alarm.id, alarm.where) for alarm in state.alarms}
        for labels in self._raised - now:
            _put(self._alarm, labels, 0)
        for labels in now:
            _put(self._alarm, labels, 1)
        self._raised |= now

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _put(gauge: object, labels: tuple[str, ...], value: float | None) -> None:
    if value is None:
        try:
            gauge.remove(*labels)  # type: ignore[attr-defined]
        except KeyError:
            return
    else:
        gauge.labels(*labels).set(value)  # type: ignore[attr-defined]
