"""Every command declared: what it takes and its help. Its function is in the module of its name."""

# Annotations are evaluated here on purpose: Typer reads them as objects.

from dataclasses import fields
from typing import Literal

import typer

from attncli.cli.groups import Command, flag, group
from attncli.cli.options import MASK, MAX_SIZE, PAGES, Choices, DisplayFlags, InputFlags, Own
from attncli.convention import flag_of
from attncli.files.roles import D_OUTPUT, ROLES, gradient_named
from attncli.stages import (
    CONCAT,
    GRADIENTS,
    LSE,
    MAPS,
    MEAN_WEIGHTS,
    OUTPUT,
    PROJECTED,
    stages_called,
)

STAGES = (*MAPS, MEAN_WEIGHTS, LSE, OUTPUT, CONCAT, PROJECTED, *GRADIENTS)
"""The stages that can be checked."""


@group("Words")
class Text:
    """What is read: a sentence, or tokens, and what is asked of it."""

    sentence: str | None = flag("The sentence to explain.", "SENTENCE", make=typer.Argument)
    tokens: str | None = flag(
        "Tokens instead of a sentence, separated by commas or as a JSON list.", "A,B,C"
    )
    lowercase: bool = flag("Lowercase all tokens.")
    pad_to: int | None = flag("Pad to N tokens with <pad>, masked as keys.", min=1)
    mask: str | None = MASK
    target: str | None = flag(
        "Cross-attention: the queries come from this sentence, the keys and values from the first.",
        "SENTENCE",
        excludes="--block encoder",
    )


@group("Vectors")
class Vectors:
    """Word vectors and positional encodings."""

    dim: int | None = flag("Size of a random vector (default: 8).", min=1)
    glove: str | None = flag(
        "Word vectors in GloVe's text format, or builtin: 2,717 frequent words of GloVe.", "FILE"
    )
    embeddings: str | None = flag(
        "The vectors of the tokens, one row each. If the file also holds weights, they are used.",
        "SOURCE",
        excludes="--glove, --dim, --target",
    )
    unknown: Literal["random", "zero", "error"] | None = flag(
        "Vector of a word missing from the file (default: random).", needs="--glove"
    )
    positions: str | None = flag(
        "Positional encodings to add: the sines and cosines of the paper (the default) or of the "
        "article, none (the default with --embeddings), or a matrix of learned ones.",
        "paper, article, none, SOURCE",
    )


_BLOCKS, _IDENTITY = "--block encoder|decoder", "--projection identity"


@group("Block")
class BlockFlags:
    """What the vectors go through, and with which weights."""

    block: Literal["attention", "encoder", "decoder"] | None = flag(
        "What to compute (default: attention); decoder needs --target.", default="attention"
    )
    layers: int | None = flag("Layers of encoder and decoder (default: 1).", min=1, needs=_BLOCKS)
    heads: int | None = flag("Heads (default: 1).", min=1)
    kv_heads: int | None = flag("Heads of K and V, if fewer.", min=1, excludes=_IDENTITY)
    d_k: int | None = flag(
        "Width of queries and keys (default: dim / heads).", min=1, excludes=_IDENTITY
    )
    d_v: int | None = flag("Width of values (default: that of keys).", min=1, excludes=_IDENTITY)
    d_ff: int | None = flag(
        "Width of the feed-forward (default: 4 · dim); 0 = none.", min=0, needs=_BLOCKS
    )
    norm: Literal["pre", "post", "rms", "none"] | None = flag(
        "Layer norm before each sub-layer, after it (post, the default), an RMS norm before it "
        "(rms), or none.",
        needs=_BLOCKS,
    )
    eps: float | None = flag(
        "ε of the norms (default: 1e-5).", needs=_BLOCKS, excludes="--norm none"
    )
    weights: str | None = flag(
        "A file of w_q, w_k, w_v, w_o and so on, under any names they are published with.",
        "SOURCE",
        excludes=_IDENTITY,
    )
    projection: Literal["learned", "identity"] | None = flag(
        "identity: the vectors themselves are Q, K and V."
    )
    outline: bool = flag(
        "Show only each step's formula and shape.",
        panel="Learning",
        needs=PAGES,
        excludes="--stage, --head, --rows, --cols, --precision, --work, --cell, --query, "
        "--heatmap, --no-heatmap, --blank, --against",
    )
    d_output: str | None = flag(ROLES[D_OUTPUT].help, "SOURCE")

    @property
    def kind(self) -> Literal["attention", "encoder", "encoder-decoder"]:
        """What is computed: a decoder reads an encoder."""
        return "encoder-decoder" if self.block == "decoder" else self.block or "attention"


@group("Model")
class Checkpoint:
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
    )


_SINES = "--kind sinusoidal"


@group("Positions")
class Positions:
    """Which encoding, for how many positions."""

    length: int | None = flag("Number of positions (rows).", min=1, names=("--len",))
    dim: int | None = flag("Number of dimensions (columns).", min=1, needs=f"{_SINES}|rope")
    kind: Literal["sinusoidal", "rope", "alibi"] | None = flag(
        "sinusoidal (the default), rope (rotary) or alibi (a bias).", default="sinusoidal"
    )
    exponent: Literal["paper", "article"] | None = flag(
        "paper: 2i/d (the default); article: 4i/d, as one article prints it.", needs=_SINES
    )
    base: float | None = flag("Base of the wavelengths (default: 10000).", needs=f"{_SINES}|rope")
    start: int | None = flag("First position (default: 0).", needs=f"{_SINES}|rope")
    add: str | None = flag(
        "Embeddings to which the table is added.", "SOURCE", needs=_SINES, excludes="--dots"
    )
    dots: bool = flag("Show the dot product of each position with every other.", needs=_SINES)
    apply: str | None = flag(
        "rope: queries and keys to rotate.", "SOURCE", needs="--kind rope", excludes="--len, --dim"
    )
    layout: Literal["halves", "interleaved"] | None = flag(
        "rope: dimensions i and i + d/2 are a pair (halves, the default), or 2i and 2i + 1.",
        needs="--kind rope, --apply",
    )
    heads: int | None = flag("alibi: number of heads.", min=1, needs="--kind alibi")
    symmetric: bool = flag(
        "alibi: bias the keys after the query, too, instead of masking them.", needs="--kind alibi"
    )


@group("Words")
class Words:
    """Which words, their vectors, and what to compute of them."""

    words: list[str] | None = flag(
        "Words, or words with their vectors: king=0.9,0.5,0.1.", "WORD", make=typer.Argument
    )
    vectors: str | None = flag(
        "GloVe or word2vec text (also .gz, .zip, .zip::name), JSON {word: [numbers]}, or builtin, "
        "the default: 2,717 frequent words of GloVe.",
        "FILE",
        names=("--vectors", "--glove"),
    )
    analogy: tuple[str, str, str] | None = flag("A is to B as C is to …: B − A + C.", "A B C")
    nearest: int | None = flag("Show the N words nearest to each word.", min=1)
    pca: bool = flag("Show two principal components, and a plot.", excludes="--analogy, --nearest")


@group("Examples")
class Which:
    """Which examples, and what to do with them."""

    name: str | None = flag(
        "One example, or the beginning of its name; without a name, all examples are listed.",
        "NAME",
        make=typer.Argument,
    )
    verify: bool = flag(
        "Run all examples; exit code 0 if each result is as recorded.",
        excludes="--stage, --head, --batch, --rows, --cols, --precision, --work, --cell, "
        "--query, --heatmap, --no-heatmap, --step, --blank",
    )
    file: str | None = flag("A file of your own examples, in the same form.", "FILE")
    glove: str | None = flag("GloVe vectors, for the examples that need them.", "FILE")


@group("Libraries")
class Libraries:
    """Which libraries."""

    names: list[str] | None = flag(
        "One library, or two to see what differs when code moves from the first to the second.",
        "NAME",
        make=typer.Argument,
    )


Inside = Literal["float32", "tf32", "bfloat16", "float16"]
DECIMALS = flag(
    "Decimals of the printed numbers.", min=0, max=17, excludes="--rtol, --atol, --inside"
)
RTOL, ATOL = flag("Relative tolerance."), flag("Absolute tolerance.")
INSIDE = flag(
    "Allow lower internal precision than the number type of the arrays.", excludes="--rtol, --atol"
)


@group("Comparing")
class Compared:
    """The two that are compared, and how closely they have to match."""

    a: str | None = flag(
        "A saved trace, a file of named stages, inputs (q, k, v, a convention), or one array.",
        "A",
        make=typer.Argument,
    )
    b: str | None = flag(
        "What to compare it with, in any of these forms.", "B", make=typer.Argument
    )
    decimals: int | None = DECIMALS
    rtol: float | None = RTOL
    atol: float | None = ATOL
    inside: Inside | None = INSIDE
    by_name: bool = flag("Match tokens by their names, whatever their order.")


@group("Program")
class Program:
    """What is printed of formulas, and where."""

    name: str | None = flag(
        "A variant to be printed; without it, the program of the conventions that follow.",
        "NAME",
        make=typer.Argument,
    )
    list: bool = flag("List the variants, each with its source.")
    format: Literal["text", "latex", "markdown"] | None = flag(
        "Form: text (the default), latex or markdown."
    )
    output: str | None = flag("Write the program to a file.", "FILE", names=("--output", "-o"))
    force: bool = flag("Replace the file of --output.", needs="--output")
    quiet: bool = flag("Print no notes on standard error.")
    debug: bool = flag("Show a traceback where something fails.")
    max_size: str | None = MAX_SIZE


@group("Learning")
class Drawn:
    """Inputs that are drawn, and one number of the computation varied."""

    random: str | None = flag(
        "An exercise to be computed by hand: small whole numbers as Q, K and V, for N tokens of "
        "width D (default: 3x2); NxDxM gives V the width M. --seed N draws other numbers.",
        "[NxD]",
        excludes="--q, --k, --v, --x",
    )
    sweep: tuple[str, str] | None = flag(
        "Vary d_k of --random (why scores are divided by √d_k), scale or softcap, such as --sweep "
        "scale 0.1,0.35,0.71,2,8, and show how far the weights spread; with --query, its weights.",
        "NAME A,B,C",
        excludes="--against, --cell, --work, --blank, --tiles, --split, --d-output, "
        "--softmax-over queries",
    )


@group("Comparing")
class Against:
    """The same call with further options, to be compared with."""

    against: str | None = flag(
        "Compute once more with these options, added or in place of others, and show the first "
        "stage that differs, as diff does.",
        "OPTIONS",
        excludes="--against-order",
    )
    against_order: str | None = flag(
        "Compare with the same words in another order, matched by word: without positions their "
        "vectors are the same, with positions they are not.",
        "SENTENCE",
        panel="Learning",
        excludes="--outline, --embeddings",
    )


@group("Checking")
class Observed:
    """What was observed, and how closely it has to match."""

    observed: str | None = flag(
        "The numbers to check: one stage, or a file of several named stages.", "SOURCE"
    )
    stage: str | None = flag(f"Which stage the numbers are: {', '.join(STAGES)}.", "NAME")
    rows: str | None = flag("Only these query rows, from 1.", "A:B")
    head: int | None = flag("Only this head, from 1.", min=1)
    positions: Literal["paper", "article", "rope-halves", "rope-interleaved"] | None = flag(
        "Apply these positional encodings before comparing: sinusoidal ones, added to q, k and v "
        "(paper, article), or rotary ones, of q and k. Give all inputs without them."
    )
    decimals: int | None = DECIMALS
    rtol: float | None = RTOL
    atol: float | None = ATOL
    inside: Inside | None = INSIDE
    single: bool = flag("Try single bugs only, not pairs of them.")
    by_hand: bool | None = flag(
        "Mark sheets by hand: each stage is judged from the sheet's own stage before it. The "
        "default where no known bug fits numbers of at most four decimals.",
        names=("--by-hand/--no-by-hand",),
    )
    sheets: list[str] | None = flag(
        "More sheets, with --by-hand, or a folder of them.", "SHEET", make=typer.Argument
    )
    bugs: bool = flag("List the known bugs, or those that have the words of SOURCE.")
    bug: str | None = flag("Explain this bug: its formula, right and wrong, and an example.", "ID")
    suggest: str | None = flag(
        "Write an input (.npz): if several bugs fit, one that distinguishes them; if gradients "
        "match, one that shows the bugs which your input cannot show.",
        "FILE",
    )
    format: Literal["text", "json"] | None = flag("Form: text (the default) or json.")
    output: str | None = flag("Write the verdict to a file.", "FILE", names=("--output", "-o"))
    force: bool = flag("Replace the files written.", needs="--output or --suggest")
    quiet: bool = flag("Print nothing; use the exit code.")
    debug: bool = flag("Show a traceback where something fails.")
    max_size: str | None = MAX_SIZE

    def __post_init__(self) -> None:
        """A stage is found in any case of letters, and by the names that libraries have for it."""
        if self.stage and len(stages := stages_called(self.stage)) != 1:
            self.stage = self.stage if stages else gradient_named(self.stage.lower())
        elif self.stage:
            self.stage = stages[0]


_DROPOUT = "Probability with which each weight is set to 0 (default: 0)."
_PRECISION = "Decimals shown (default: {})."
_OF_AN_INPUT = "--q or --x or --weights"
_OF_ONE_CALL = """
source semantics formulas lines work cell query blank arcs batch head heatmap tiles split lse_base
d_output
"""
_STAGE = "Only this stage (repeatable), such as {}."

COMMANDS = {
    "compute": Command(
        (InputFlags, Choices, Drawn, DisplayFlags, Against),
        "Q, K, V → every stage of attention, with every number.",
        without=("against_order",),
        other_help={"dropout": _DROPOUT, "precision": _PRECISION.format(4)},
    ),
    "explain": Command(
        (Text, Vectors, BlockFlags, Choices, DisplayFlags, Against),
        "A sentence → tokens → vectors → Q, K, V → every stage → what it means.",
        without=("batch",),
        other_help={"precision": _PRECISION.format(3)},
    ),
    "model": Command(
        (Checkpoint, DisplayFlags),
        "A model on disk and a sentence → what every head does, and any layer's stages.",
        without=("batch",),
        other_help={
            "head": "Only this head, from 1; without --layer, its weights in every layer.",
            "stage": _STAGE.format("entropy, or layer.3.weights"),
            "precision": "Decimals shown (default: 3; in the summary of all heads, 2).",
            "force": "Replace the files written.",
        },
        needs={"force": "--output or --dump"},
    ),
    "posenc": Command(
        (Positions, DisplayFlags),
        "Positional encodings: sinusoidal, rotary and ALiBi tables.",
        without=("query", "arcs"),
        other_help={
            "stage": _STAGE.format("positions, rotated or bias"),
            "cell": "Derive one number, by label or number of its row and column.",
            "precision": _PRECISION.format(4),
        },
    ),
    "similarity": Command(
        (Words, DisplayFlags),
        "Lengths, dot products, cosines, analogies and principal components of word vectors.",
        without=("head", "batch", "cell", "query", "arcs"),
        other_help={
            "stage": _STAGE.format("cosines or coordinates"),
            "precision": _PRECISION.format(4),
        },
    ),
    "examples": Command(
        (Which, DisplayFlags),
        "Worked examples of tutorial articles, recomputed and compared with what they print.",
        other_help={"precision": _PRECISION.format(4)},
    ),
    "check": Command(
        (InputFlags, Choices, Observed),
        "Does my attention match, and if not, which bug is it?",
        other_help={
            "split": "The keys were split after the A-th, the B-th, …, and the parts merged by "
            "log-sum-exp: try the bugs of such a merge.",
            "tiles": "The numbers are m, l and acc of a kernel that processes the keys in tiles of "
            "N: tile.1.m, tile.2.l and so on.",
            "source": "A file that holds q, k and v, their convention, and the numbers to check "
            "under the names of their stages.",
            "dropout": _DROPOUT,
        },
    ),
    "semantics": Command(
        (Libraries, InputFlags, Choices, DisplayFlags),
        "How libraries differ in what they compute: masks, causality, empty rows, heads, scale.",
        without=(*_OF_ONE_CALL.split(),),
        other_help={
            "stage": _STAGE.format("libraries, outcomes or apart"),
            "precision": _PRECISION.format(4),
            "dropout": _DROPOUT,
        },
        needs={
            own.name: _OF_AN_INPUT
            for own in (*fields(InputFlags), *fields(Choices))
            if flag_of(own.name) not in (*_OF_AN_INPUT.split(" or "), "--mask", "--causal")
        }
        | {"precision": _OF_AN_INPUT},
    ),
    "formulas": Command(
        (Program, InputFlags, Choices),
        "The formulas of an attention, to be read, edited and run: compute --formulas FILE.",
        without=("source", "formulas", "lines", "tiles", "split", "tokens"),
        other_help={"dropout": _DROPOUT},
    ),
    "diff": Command(
        (Compared, Own, DisplayFlags),
        "Two traces, dumps or inputs beside each other: the first stage that differs.",
        without=("work", "cell", "query", "blank", "arcs"),
        other_help={
            "stage": "Show this stage (repeatable), instead of the first that differs.",
            "full": "Show every stage that differs, whole.",
            "precision": _PRECISION.format(4),
        },
    ),
}
