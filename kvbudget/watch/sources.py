"""Where readings come from: the driver (through gpu.nvml), metrics endpoints, a start-up log."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING

from kvbudget.errors import InputError
from kvbudget.watch.metrics import read_metrics
from kvbudget.watch.samples import EngineReading, GpuReading, Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MAX_BODY = 8 * 2**20
"""Bytes of a metrics page that are read; a page longer than this is not one."""


class Endpoints:
    """Polls each URL in a thread of its own, so one that hangs delays nothing."""

    def __init__(self, urls: Sequence[str], timeout: float) -> None:
        for url in urls:
            if not url.startswith(("http://", "https://")):
                raise InputError(f"not an http URL: {url!r}", "write http://host:port/metrics")
        if any(find_spec(name) is None for name in ("httpx", "prometheus_client")):
            raise InputError("watch --url needs an HTTP client", 'pip install "kvbudget[watch]"')
        self.urls = tuple(urls)
        self.timeout = timeout
        self._pool = ThreadPoolExecutor(max_workers=max(1, len(self.urls)))
        self._pending: dict[str, Future[EngineReading]] = {}
        self._stop = threading.Event()

    def read(self) -> tuple[EngineReading, ...]:
        """One reading per URL within `timeout` seconds; late ones read as not answering."""
        for url in self.urls:
            if url not in self._pending:
                self._pending[url] = self._pool.submit(self._fetch, url)
        deadline = time.monotonic() + self.timeout
        readings = []
        for url in self.urls:
            try:
                left = max(0.0, deadline - time.monotonic())
                readings.append(self._pending[url].result(timeout=left))
                del self._pending[url]
            except TimeoutError:
                why = f"no answer within {self.timeout:g} s"
                readings.append(EngineReading(url, up=False, error=why))
        return tuple(readings)

    def close(self) -> None:
        self._stop.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _fetch(self, url: str) -> EngineReading:
        import httpx

        started = time.monotonic()
        body = bytearray()
        try:
            with httpx.stream("GET", url, timeout=self.timeout, follow_redirects=True) as answer:
                if answer.status_code != 200:
                    return EngineReading(url, up=False, error=f"HTTP {answer.status_code}")
                for chunk in answer.iter_bytes():
                    body += chunk
                    if len(body) > MAX_BODY:
                        return EngineReading(url, up=False, error="answer longer than 8 MiB")
                    if self._stop.is_set() or time.monotonic() - started > 4 * self.timeout:
                        return EngineReading(url, up=False, error="answer never ended")
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as exc:
            return EngineReading(url, up=False, error=str(exc) or type(exc).__name__)
        return read_metrics(url, body.decode("utf-8", "replace"))


class Live:
    """Samples now. `read_gpus` comes from gpu.nvml, or is None without a driver."""

    def __init__(
        self,
        read_gpus: Callable[[], tuple[GpuReading, ...]] | None,
        endpoints: Endpoints | None,
    ) -> None:
        self._read_gpus = read_gpus
        self._endpoints = endpoints
        self._start = time.monotonic()

    def read(self) -> Sample:
        return Sample(
            elapsed=time.monotonic() - self._start,
            time=datetime.now(UTC).isoformat(timespec="milliseconds"),
            gpus=self._read_gpus() if self._read_gpus else (),
            engines=self._endpoints.read() if self._endpoints else (),
        )

    def close(self) -> None:
        if self._endpoints:
            self._endpoints.close()
