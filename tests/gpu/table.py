"""The runs of run.sh as one Markdown table: measured terms beside modelled ones, in bytes."""

import json
import sys
from pathlib import Path

NAMES = ("weights_memory", "peak_activation_memory", "non_torch_memory", "uncounted_memory",
         "context_memory", "allocator_slack", "cuda_graph_memory")  # fmt: skip

print("| run | " + " | ".join(NAMES)
      + " | graphs, whole ladder | modelled peak | identity | outside its band |")  # fmt: skip
print("| --- |" + " ---: |" * (len(NAMES) + 3) + " --- |")
for file in sorted(Path(sys.argv[1]).glob("*.json")):
    if file.name.endswith(".record.json"):
        continue
    raw = json.loads(file.read_text())
    if raw.get("failure"):
        failure = raw["failure"]
        print(f"| {file.stem} | {failure['kind']} in {failure['phase']}: requested "
              f"{failure['requested']}, free {failure['free']} |")  # fmt: skip
        continue
    rank = raw["ranks"][0]
    terms = {t["name"]: t["value"] for t in rank["terms"]}
    full = next(
        (p.get("graph_memory_full") for p in rank["phases"] if p["phase"] == "graphs"), None
    )
    peak = next(
        (m["value"] for m in raw["modelled"] if m["name"] == "peak_activation_memory"), None
    )
    cells = [*(terms.get(n) for n in NAMES), full, peak, raw["identity"]["difference"]]
    outside = ", ".join(m["name"] for m in raw["modelled"] if m["agrees"] is False)
    shown = ["" if cell is None else f"{cell:,}" for cell in cells]
    print("| " + " | ".join([file.stem, *shown, outside]) + " |")
