"""The parent's view of its rank processes, with scripted ones in their place."""

import stat
import sys
import time
from pathlib import Path

import pytest

from kvbudget.errors import KvbudgetError
from kvbudget.profile import ranks
from kvbudget.profile.types import Job

PYTHON = sys.executable
SCRIPT = """\
#!{python}
import json, os, signal, sys, time
out = os.fdopen(int(sys.argv[3]), "w", buffering=1)
raw = json.loads(sys.stdin.readline())
rank = raw["rank"]
open({folder!r} + f"/pid{{rank}}", "w").write(str(os.getpid()))
say = lambda **message: out.write(json.dumps(message) + "\\n")
scene = dict(kind="cpu", notes=[])
done = dict(failure=None, notes=[], versions={{}})
{body}
"""


@pytest.fixture
def script(tmp_path, monkeypatch):
    """Installs `body` as what every rank does."""

    def install(body):
        path = tmp_path / "child"
        path.write_text(SCRIPT.format(python=PYTHON, folder=str(tmp_path), body=body))
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setattr(ranks.sys, "executable", str(path))
        return tmp_path

    return install


def run(count, timeout=20.0, **job):
    return ranks.run_ranks(
        Job("m", tp=count, **job), {n: {"RANK_IS": str(n)} for n in range(count)}, timeout=timeout
    )


def alive(folder, rank):
    try:
        state = Path(f"/proc/{(folder / f'pid{rank}').read_text()}/stat").read_text()
    except OSError:
        return False
    return state.rsplit(")", 1)[1].split()[0] != "Z"


def test_every_rank_reports(script):
    script(
        "say(scene=scene); say(phase='context'); say(done=dict(done, notes=[os.environ['RANK_IS']]))"
    )
    records, scene = run(3)
    assert [r.rank for r in records] == ["TP0", "TP1", "TP2"]
    assert [r.notes for r in records] == [["0"], ["1"], ["2"]]
    assert scene.kind == "cpu"


def test_names_of_stages(script):
    script("say(scene=scene); say(done=done)")
    records, _ = ranks.run_ranks(Job("m", tp=2, pp=2), {3: {}}, timeout=20)
    assert (records[0].rank, records[0].stage) == ("PP1_TP1", 1)


def test_the_rank_that_fails_is_named_and_ends_the_others(script):
    folder = script("""
say(scene=scene); say(phase="nccl")
if rank == 1:
    print("ValueError: broken on purpose", file=sys.stderr); sys.exit(1)
time.sleep(300)
""")
    start = time.monotonic()
    records, _ = run(3)
    assert time.monotonic() - start < 15
    assert [r.failure and r.failure.kind for r in records] == [None, "child", None]
    assert "broken on purpose" in records[1].failure.message
    assert not any(alive(folder, n) for n in range(3))


def test_killed_without_a_word_is_out_of_memory(script):
    script("say(scene=scene); say(phase='weights'); os.kill(os.getpid(), signal.SIGKILL)")
    records, _ = run(1)
    failure = records[0].failure
    assert (failure.kind, failure.phase) == ("oom", "weights")


def test_out_of_memory_of_one_rank(script):
    script("""
say(scene=scene); say(phase="weights")
if rank == 1:
    say(done=dict(done, failure=dict(phase="weights", kind="oom", requested=9, free=3)))
time.sleep(300)
""")
    records, _ = run(2)
    assert records[0].failure is None
    assert (records[1].failure.requested, records[1].failure.free) == (9, 3)


def test_silence_not_length_times_out(script):
    chatty = (
        "say(scene=scene)\nfor n in range(6): time.sleep(0.4); say(phase='forward')\nsay(done=done)"
    )
    script(chatty)
    assert run(1, timeout=1.5)[0][0].failure is None
    script("say(scene=scene); say(phase='forward'); time.sleep(300)")
    failure = run(1, timeout=1.0)[0][0].failure
    assert (failure.kind, failure.phase) == ("timeout", "forward")


def test_a_user_error_keeps_its_exit_code(script):
    script("say(error=dict(what='no such thing', hint='try another', code=4)); time.sleep(300)")
    with pytest.raises(KvbudgetError, match="no such thing") as caught:
        run(1)
    assert caught.value.exit_code == 4


def test_nothing_starts(script):
    script("sys.exit(3)")
    with pytest.raises(KvbudgetError, match=r"did not start.*ended with 3"):
        run(1)


def test_an_interrupt_leaves_no_process(script, monkeypatch):
    folder = script("say(scene=scene); time.sleep(300)")

    def interrupted(*_):
        for _ in range(200):
            if alive(folder, 0) and alive(folder, 1):
                break
            time.sleep(0.05)
        raise KeyboardInterrupt

    monkeypatch.setattr(ranks, "_listen", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(2)
    assert not alive(folder, 0)
    assert not alive(folder, 1)
