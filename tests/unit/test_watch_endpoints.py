"""Metrics endpoints as the engines of six releases expose them, over a real loopback server."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

pytest.importorskip("prometheus_client", reason="needs the watch extra")
pytest.importorskip("httpx", reason="needs the watch extra")

from kvbudget.errors import InputError
from kvbudget.units import GIB
from kvbudget.watch.alarms import Watcher
from kvbudget.watch.metrics import read_metrics
from kvbudget.watch.sources import Endpoints, Live

PAGES = {
    "vllm-0.9": """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 7.0
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
# TYPE vllm:gpu_cache_usage_perc gauge
vllm:gpu_cache_usage_perc{engine="0",model_name="m"} 0.41
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.41
# TYPE vllm:num_preemptions counter
vllm:num_preemptions_total{engine="0",model_name="m"} 5.0
vllm:cache_config_info{block_size="16",cache_dtype="auto",engine="0",gpu_memory_utilization="0.9",num_gpu_blocks="20480"} 1.0
process_start_time_seconds 1.7e+09
""",
    "vllm-0.14": """\
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.55
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.72
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 4.0
# TYPE vllm:num_preemptions counter
vllm:num_preemptions_total{engine="0",model_name="m"} 1.0
vllm:num_preemptions_total{engine="1",model_name="m"} 2.0
vllm:cache_config_info{block_size="16",engine="0",gpu_memory_utilization="0.9",kv_cache_memory_bytes="None",num_gpu_blocks="9000"} 1.0
""",
    "vllm-0.33": """\
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.97
# TYPE vllm:num_preemptions counter
vllm:num_preemptions_total{engine="0",model_name="m"} 12.0
vllm:cache_config_info{block_size="16",gpu_memory_utilization="0.92",kv_cache_max_concurrency="21.5",kv_cache_size_tokens="176128",num_gpu_blocks="11008"} 1.0
""",
    "sglang-0.4.6": """\
# TYPE sglang:token_usage gauge
sglang:token_usage{model_name="m"} 0.28
sglang:num_running_reqs{model_name="m"} 6.0
sglang:num_queue_reqs{model_name="m"} 0.0
sglang:num_used_tokens{model_name="m"} 120000.0
""",
    "sglang-0.5.9": """\
# TYPE sglang:token_usage gauge
sglang:token_usage{model_name="m",tp_rank="0"} 0.61
sglang:swa_token_usage{model_name="m",tp_rank="0"} 0.96
# TYPE sglang:num_retracted_requests_total counter
sglang:num_retracted_requests_total{model_name="m",tp_rank="0"} 4.0
sglang:max_total_num_tokens{model_name="m",tp_rank="0"} 428800.0
""",
    "sglang-0.5.23": """\
# TYPE sglang:token_usage gauge
sglang:token_usage{model_name="m"} 0.5
sglang:num_retracted_requests_total{model_name="m"} 0.0
sglang:max_total_num_tokens{model_name="m"} 300000.0
sglang:startup_available_gpu_memory_gb{model_name="m"} 6.5
sglang:weight_memory_usage_gb{model_name="m"} 15.0
sglang:kv_cache_memory_usage_gb{model_name="m"} 40.0
sglang:graph_memory_usage_gb{model_name="m",phase="decode"} 1.5
sglang:graph_memory_usage_gb{model_name="m",phase="prefill"} 0.5
""",
}
EXPECTED = {
    "vllm-0.9": ("vllm", 0.41, 5.0, {"num_gpu_blocks": 20480.0, "gpu_memory_utilization": 0.9}),
    "vllm-0.14": ("vllm", 0.72, 3.0, {"num_gpu_blocks": 9000.0}),
    "vllm-0.33": ("vllm", 0.97, 12.0, {"kv_cache_tokens": 176128.0, "max_concurrency": 21.5}),
    "sglang-0.4.6": ("sglang", 0.28, None, {}),
    "sglang-0.5.9": ("sglang", 0.96, 4.0, {"kv_cache_tokens": 428800.0}),
    "sglang-0.5.23": (
        "sglang",
        0.5,
        0.0,
        {
            "weights_memory": 15.0 * GIB,
            "cuda_graph_memory": 2.0 * GIB,
            "avail_memory_ready": 6.5 * GIB,
        },
    ),
}


@pytest.fixture
def server():
    """A loopback server whose answer the test sets: text, a status, or a hang."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            answer = httpd.answer
            if callable(answer):
                answer(self)
                return
            body = answer.encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    httpd.daemon_threads = True
    httpd.answer = ""
    thread = threading.Thread(target=httpd.serve_forever, daemon=True)
    thread.start()
    httpd.url = f"http://127.0.0.1:{httpd.server_port}/metrics"
    yield httpd
    httpd.shutdown()
    httpd.server_close()


@pytest.mark.parametrize("release", PAGES)
def test_every_release_is_read_over_http(server, release):
    server.answer = PAGES[release]
    endpoints = Endpoints([server.url], timeout=5)
    (reading,) = endpoints.read()
    endpoints.close()
    engine, usage, preemptions, budget = EXPECTED[release]
    assert reading.up, reading.error
    assert reading.engine == engine
    assert reading.figures["kv_cache_usage"] == usage
    assert reading.figures.get("preemptions") == preemptions
    for name, value in budget.items():
        assert reading.budget[name] == value


def test_an_endpoint_that_changes_version_between_reads_is_followed(server):
    endpoints = Endpoints([server.url], timeout=5)
    for release in ("vllm-0.9", "vllm-0.33", "sglang-0.5.9"):
        server.answer = PAGES[release]
        (reading,) = endpoints.read()
        assert reading.figures["kv_cache_usage"] == EXPECTED[release][1]
    endpoints.close()


def test_an_endpoint_that_hangs_delays_nothing(server):
    release = threading.Event()
    server.answer = lambda handler: release.wait(5)
    endpoints = Endpoints([server.url], timeout=0.3)
    started = time.monotonic()
    (reading,) = endpoints.read()
    assert time.monotonic() - started < 2
    assert not reading.up
    assert reading.error
    release.set()
    endpoints.close()


@pytest.mark.parametrize(
    "page",
    ["", "<html>no</html>", "some_metric 1\n", "vllm:kv_cache_usage_perc notanumber\n", "\0\1\2"],
)
def test_an_endpoint_that_lies_yields_no_figure(page):
    reading = read_metrics("http://x", page)
    assert not reading.up
    assert reading.error
    assert not reading.figures


@pytest.mark.parametrize("value", ["NaN", "+Inf", "57.3", "-1"])
def test_a_usage_that_cannot_be_is_left_out(value):
    page = f"# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc {value}\n"
    reading = read_metrics("http://x", page)
    assert "kv_cache_usage" not in reading.figures


def test_an_error_status_and_a_refused_connection_are_named(server):
    server.answer = lambda handler: handler.send_error(503)
    endpoints = Endpoints([server.url, "http://127.0.0.1:9/metrics"], timeout=2)
    busy, refused = endpoints.read()
    endpoints.close()
    assert busy.error == "HTTP 503"
    assert not refused.up
    assert refused.error


def test_an_endless_page_is_cut(server):
    def flood(handler):
        handler.send_response(200)
        handler.end_headers()
        try:
            for _ in range(200):
                handler.wfile.write(b"# " + b"x" * 65536 + b"\n")
        except OSError:
            pass

    server.answer = flood
    endpoints = Endpoints([server.url], timeout=5)
    (reading,) = endpoints.read()
    endpoints.close()
    assert not reading.up
    assert "longer" in reading.error


def test_only_http_is_polled():
    with pytest.raises(InputError):
        Endpoints(["file:///etc/passwd"], timeout=1)


def test_a_storm_over_http_raises_pool_pressure_and_a_restart_clears_it(server):
    page = (
        "# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc 0.99\n"
        "# TYPE vllm:num_preemptions counter\nvllm:num_preemptions_total {n}\n"
    )
    endpoints = Endpoints([server.url], timeout=5)
    live, watcher = Live(None, endpoints), Watcher()
    seen = []
    for count in (10, 14, 18, 0):
        server.answer = page.format(n=count)
        seen.append({a.id for a in watcher.feed(live.read()).alarms})
    live.close()
    assert seen == [set(), {"pool_pressure"}, {"pool_pressure"}, set()]


def test_the_exporter_serves_what_is_known_and_nothing_else():
    from watch_series import sample

    from kvbudget.watch.exporter import Exporter

    exporter = Exporter("127.0.0.1:0")
    try:
        exporter.update(Watcher().feed(sample(0, 300 * 2**20)))
        url = f"http://127.0.0.1:{exporter.port}/metrics"
        with urllib.request.urlopen(url, timeout=5) as answer:
            text = answer.read().decode()
    finally:
        exporter.close()
    assert 'kvbudget_alarm{id="margin_low",where="GPU 0"} 1.0' in text
    assert 'kvbudget_gpu_free_bytes{gpu="0",uuid="GPU-0"} 3.145728e+08' in text
    assert "kvbudget_gpu_margin_eta_seconds{" not in text


def test_json_lines_hold_null_for_what_is_unknown():
    from watch_series import sample

    from kvbudget.render.watch import to_json

    document = to_json(Watcher().feed(sample(0, 2**32, named=False)), ())
    json.dumps(document, allow_nan=False)
    assert document["schema"] == "kvbudget.watch/1"
    assert document["gpus"][0]["growth"]["engine"] is None
    assert document["gpus"][0]["eta_s"] is None
    assert document["engines"][0]["preemption_rate_per_s"] is None
