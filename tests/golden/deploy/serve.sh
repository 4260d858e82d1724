#!/bin/sh
# kvbudget: ignore-next-line[GATE010] soak-tested with the longest prompt
vllm serve example/chat-8b --max-model-len 8192 --gpu-memory-utilization 0.96
python -m sglang.launch_server --model-path example/chat-8b --tp 2 --mem-fraction-static 0.97
