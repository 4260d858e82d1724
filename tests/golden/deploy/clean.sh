#!/bin/sh
vllm serve example/chat-8b --max-model-len 8192 --gpu-memory-utilization 0.9
