"""What attncli model takes."""

# Annotations are evaluated here on purpose: Typer reads them as objects.

from typing import Literal

import typer

from attncli.cli.groups import Command, flag, group
from attncli.cli.options import STAGE_HELP, DisplayFlags


@group("Model")
class ModelFlags:
    """Which model, what it reads, and which of its attentions is shown."""

    directory: str | None = flag(
        "A model on disk: config.json, safetensors, tokenizer files; or its folder in a hub cache.",
        "DIR",
        make=typer.Argument,
    )
    sentence: str | None = flag("The sentence to be read.", "SENTENCE", make=typer.Argument)
    layer: int | None = flag("Every stage of this layer's attention, from 1.", min=1)
    target: str | None = flag(
        "Encoder-decoder models: what the decoder reads (default: the encoder alone).", "SENTENCE"
    )
    dtype: Literal["stored", "float32"] | None = flag(
        "Number type in which the model runs: that of its files (the default), or float32."
    )
    check: bool = flag(
        "Compare the output of each attention, or of --layer alone, with exact attention; exit "
        "code 1 if one differs."
    )
    dump: str | None = flag(
        "Write q, k, v, mask and output of every attention (npz, safetensors), for check and diff.",
        "FILE",
        provides="display",
    )


COMMAND = Command(
    (ModelFlags, DisplayFlags),
    stages=("entropy", "first", "previous", "itself", "induction"),
    without=("batch",),
    other_help={
        "head": "Only this head, from 1; without --layer, its weights in every layer.",
        "stage": STAGE_HELP.format("entropy, or layer.3.weights"),
        "precision": "Decimals shown (default: 3; in the summary of all heads, 2).",
        "force": "Replace the files written.",
    },
    needs={"force": "--output or --dump"},
)
