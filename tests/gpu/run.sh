#!/usr/bin/env bash
# The GPU checks, in one go of at most 8 minutes: bash tests/gpu/run.sh [OUT]
# Needs one NVIDIA GPU and a CUDA build of torch (2.5 or newer) for PYTHON; nothing is downloaded.
# Leaves in OUT: one record and one JSON per run (replay fixtures) and table.md (for the docs).
set -uo pipefail
cd "$(dirname "$0")/../.."
OUT=${1:-${OUT:-gpu-records}}
PYTHON=${PYTHON:-python3}
mkdir -p "$OUT"
END=$((SECONDS + 465))
export PYTHONPATH="$PWD" TOKENIZERS_PARALLELISM=false

left() { echo $((END - SECONDS)); }
"$PYTHON" -c 'import typer, rich, yaml, msgspec, pynvml, torch; print(torch.__version__, torch.version.cuda)' \
  || "$PYTHON" -m pip install -q --no-deps typer rich pyyaml msgspec nvidia-ml-py click shellingham \
       markdown-it-py mdurl pygments typing_extensions || exit 2
nvidia-smi --query-gpu=name,uuid,driver_version,memory.total,memory.used --format=csv | tee "$OUT/device.txt"

"$PYTHON" tests/gpu/shapes.py "$OUT/models" || exit 2

# run NAME SECONDS OPTIONS...: one profile, recorded; a failed one does not stop the rest.
run() {
  local name=$1 limit=$2; shift 2
  [ "$(left)" -gt "$limit" ] || { echo "skipped $name: $(left) s left"; return; }
  echo "== $name"
  timeout "$limit" "$PYTHON" -m kvbudget profile --device cuda --format json \
    --record "$OUT/$name.record.json" -o "$OUT/$name.json" "$@" 2>"$OUT/$name.err"
  echo "$name exit $?" | tee -a "$OUT/exits.txt"
}
# phases for two shapes, one of them from its own file, and the two-sample rule against the whole ladder
run 1b-s256       60 --model "$OUT/models/1b" --max-num-batched-tokens 8192 --max-num-seqs 256
run 1b-all-graphs 90 --model "$OUT/models/1b" --max-num-batched-tokens 8192 --max-num-seqs 256 --all-graphs
run 1b-files      60 --model "$OUT/models/1b" --max-num-batched-tokens 8192 --max-num-seqs 256 --load-format safetensors --no-graphs
run 8b-s256       90 --model "$OUT/models/8b" --max-num-batched-tokens 8192 --max-num-seqs 256
# sampler variants at [256 | 1024, 128256]: sort, Triton, the default of today
run 8b-s1024-sort   60 --model "$OUT/models/8b" --policy vllm@0.14.1 --no-graphs --max-num-batched-tokens 8192 --max-num-seqs 1024
run 8b-s1024-triton 60 --model "$OUT/models/8b" --policy vllm@0.17.1 --no-graphs --max-num-batched-tokens 8192 --max-num-seqs 1024
run 8b-s1024        60 --model "$OUT/models/8b" --no-graphs --max-num-batched-tokens 8192 --max-num-seqs 1024
run 8b-s256-sort    60 --model "$OUT/models/8b" --policy vllm@0.14.1 --no-graphs --max-num-batched-tokens 8192 --max-num-seqs 256
# a failure that must be a result: the forward cannot fit
run 8b-oom          60 --model "$OUT/models/8b" --no-graphs --max-num-batched-tokens 4000000 --max-num-seqs 16
"$PYTHON" tests/gpu/table.py "$OUT" | tee "$OUT/table.md"
rm -rf "$OUT/models"
