#!/usr/bin/env bash
# A server on one card: the head-room is stated, the length has a default.
set -euo pipefail
UTIL=${UTIL:-0.90}
docker run --gpus '"device=0"' --ipc=host --memory 96g \
  vllm/vllm-openai:v0.25.1 \
  --model example/chat-8b \
  --gpu-memory-utilization "$UTIL" \
  --max-model-len "${LEN:-16384}" \
  --kv-offloading-backend native --kv-offloading-size 40
