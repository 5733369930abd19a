"""How long `attncli model` takes on a checkpoint of 90 MB, beside a script that runs the model.

    pip install -e '.[models]' && python tests/benchmarks/models.py

The script imports torch and transformers, loads tokenizer and model, and runs the sentence; it
shows nothing. Both are whole processes, by turns.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.models.checkpoints import SENTENCE, gpt2

RUNS = 7
SCRIPT = """
import sys, torch
from transformers import AutoModel, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
model = AutoModel.from_pretrained(sys.argv[1])
with torch.no_grad():
    model(**tokenizer(sys.argv[2], return_tensors="pt"))
"""
FLAGS = {
    "the summary": (),
    "one head": ("--layer", "3", "--head", "5"),
    "a page of all heads": ("--format", "html"),
    "every stage as npz": ("--format", "npz"),
}


def seconds(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - began


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = gpt2(
            Path(folder) / "m", n_embd=512, n_layer=6, n_head=8, vocab_size=8000, n_positions=512
        )
        size = (path / "model.safetensors").stat().st_size / 1e6
        print(f"a checkpoint of {size:.0f} MB, {len(SENTENCE.split())} words, {RUNS} runs each")
        script = [sys.executable, "-c", SCRIPT, str(path), SENTENCE]
        attncli = [sys.executable, "-m", "attncli", "model", str(path), SENTENCE]
        calls = {"the script": script} | {name: [*attncli, *own] for name, own in FLAGS.items()}
        times: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(RUNS):
            for name, command in calls.items():
                times[name].append(seconds(command))
        base = statistics.median(times["the script"])
        for name, found in times.items():
            middle = statistics.median(found)
            print(f"{name:<20} {middle:6.2f} s  {middle / base:5.2f} x  (least {min(found):.2f} s)")


if __name__ == "__main__":
    main()
