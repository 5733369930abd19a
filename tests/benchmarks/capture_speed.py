"""What capturing adds to a forward pass: run by hand, `python tests/benchmarks/capture_speed.py`.

A random model of BERT's width, 768: 6 layers of 12 heads, 128 tokens. With and without capture in
turn; the median of the times without it, and of the ratios of neighbours, as other work on the
machine changes slowly. The bound is 1.3.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import attncli

LAYERS, TOKENS, RUNS = 6, 128, 41
BOUND = 1.3


def model_of(implementation: str) -> Any:
    import transformers

    transformers.logging.set_verbosity_error()
    config = transformers.BertConfig(num_hidden_layers=LAYERS)
    return transformers.BertModel._from_config(config, attn_implementation=implementation).eval()


def seconds(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main() -> int:
    import torch

    slow = False
    for implementation in ("eager", "sdpa"):
        model = model_of(implementation)
        ids = torch.randint(0, 1000, (1, TOKENS))
        mask = torch.ones_like(ids)

        def plain(model: Any = model, given: Any = (ids, mask)) -> None:
            with torch.no_grad():
                model(*given)

        def captured(model: Any = model, run: Callable[[], None] = plain) -> None:
            with attncli.capture(model) as calls:
                run()
            assert len(calls) == LAYERS

        pairs = [(seconds(plain), seconds(captured)) for _ in range(RUNS)][1:]
        usual = statistics.median(without for without, _ in pairs)
        ratio = statistics.median(with_it / without for without, with_it in pairs)
        print(f"{implementation:6} {usual * 1000:5.0f} ms, captured {ratio:.2f} × that")
        slow = slow or ratio > BOUND
    return int(slow)


if __name__ == "__main__":
    sys.exit(main())
