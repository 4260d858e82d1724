#!/usr/bin/env bash
# The GPU checks, in one go of at most 8 minutes: bash tests/gpu/run.sh [OUT]
# Needs one NVIDIA GPU and a CUDA build of torch (2.5 or newer) for PYTHON. Nothing has to be
# fetched where the other packages are there, or their wheels in the folder WHEELS.
# Leaves in OUT: table.md (for the docs), exits.txt, device.txt, nccl.json, and records.tar.gz with
# one record and one document per run (replay fixtures) and what the runs said on stderr.
# DEVICE=fake runs the script itself where there is no GPU.
set -uo pipefail
cd "$(dirname "$0")/../.."
OUT=${1:-${OUT:-gpu-records}}
PYTHON=${PYTHON:-python3}
DEVICE=${DEVICE:-cuda}
END=$((SECONDS + 465))
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
mkdir -p "$OUT" "$WORK/runs" "$WORK/site"
export PYTHONPATH="$PWD:$WORK/site${PYTHONPATH:+:$PYTHONPATH}" TOKENIZERS_PARALLELISM=false

left() { echo $((END - SECONDS)); }
"$PYTHON" -c 'import typer, rich, yaml, msgspec, pynvml' 2>/dev/null \
  || "$PYTHON" -m pip install -q --no-deps --target "$WORK/site" ${WHEELS:+--no-index} \
       ${WHEELS:+"$WHEELS"/*.whl} ${WHEELS:-typer rich pyyaml msgspec nvidia-ml-py click shellingham \
       markdown-it-py mdurl pygments typing_extensions} || exit 2
{ "$PYTHON" -c 'import sys, torch; print("python", sys.version.split()[0], "torch", torch.__version__, "CUDA", torch.version.cuda)' || exit 2
  nvidia-smi --query-gpu=name,uuid,driver_version,memory.total,memory.used --format=csv; } 2>&1 | tee "$OUT/device.txt"

"$PYTHON" tests/gpu/shapes.py "$WORK/models" || exit 2

# run NAME SECONDS MODEL OPTIONS...: one profile, recorded; a failed one does not stop the rest.
run() {
  local name=$1 limit=$2 model=$3 start=$SECONDS; shift 3
  [ "$(left)" -gt "$limit" ] || { echo "$name skipped: $(left) s left" | tee -a "$OUT/exits.txt"; return; }
  timeout "$limit" "$PYTHON" -m kvbudget profile --device "$DEVICE" --model "$WORK/models/$model" \
    --format json --record "$WORK/runs/$name.record.json" -o "$WORK/runs/$name.json" "$@" 2>"$WORK/runs/$name.err"
  echo "$name exit $? after $((SECONDS - start)) s" | tee -a "$OUT/exits.txt"
  tail -n 3 "$WORK/runs/$name.err"
}
: > "$OUT/exits.txt"
if [ "$DEVICE" = cuda ]; then
  timeout 60 "$PYTHON" tests/gpu/nccl.py > "$OUT/nccl.json" 2>"$WORK/runs/nccl.err"
  echo "nccl exit $?" | tee -a "$OUT/exits.txt"
fi
# phases for two shapes, one of them from its own file, and the two-sample rule against the whole ladder
run 1b-s256       60 1b --max-num-batched-tokens 8192 --max-num-seqs 256
run 1b-all-graphs 90 1b --max-num-batched-tokens 8192 --max-num-seqs 256 --all-graphs
run 8b-s256       90 8b --max-num-batched-tokens 8192 --max-num-seqs 256
# sampler variants at [256 | 1024, 128256]: sort, Triton, the default of today
run 8b-s1024-sort   60 8b --policy vllm@0.14.1 --no-graphs --max-num-batched-tokens 8192 --max-num-seqs 1024
run 8b-s1024-triton 60 8b --policy vllm@0.17.1 --no-graphs --max-num-batched-tokens 8192 --max-num-seqs 1024
run 8b-s1024        60 8b --no-graphs --max-num-batched-tokens 8192 --max-num-seqs 1024
run 8b-s256-sort    60 8b --policy vllm@0.14.1 --no-graphs --max-num-batched-tokens 8192 --max-num-seqs 256
# a failure that must be a result: the forward cannot fit
run 8b-oom          60 8b --no-graphs --max-num-batched-tokens 4000000 --max-num-seqs 16
run 1b-files        60 1b --max-num-batched-tokens 8192 --max-num-seqs 256 --load-format safetensors --no-graphs
# the fused attention kernel, which only the oldest engines' profile pass runs
run 1b-attention    60 1b --policy vllm@0.7.3 --no-graphs --max-num-batched-tokens 8192 --max-num-seqs 256
"$PYTHON" tests/gpu/table.py "$WORK/runs" | tee "$OUT/table.md"
tar -czf "$OUT/records.tar.gz" -C "$WORK" runs
