"""What a NCCL group of one process takes on this card, in bytes of the driver's, as JSON."""

import json
import socket

import torch
import torch.distributed as dist


def free() -> int:
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return torch.cuda.mem_get_info(0)[0]


with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
one = torch.ones(1, device="cuda:0")
start = free()
dist.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=1)
opened = free()
dist.all_reduce(one)
used = free()
version = ".".join(map(str, torch.cuda.nccl.version()))
print(json.dumps({"nccl": version, "init": start - opened, "all_reduce": opened - used}))
dist.destroy_process_group()
