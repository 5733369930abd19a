"""Every wrong call is refused in one line that helps: exit code 2, nothing printed or written."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attncli.cli.main import run
from tests.calls import SAMPLES, Call, arguments_of

EYE = [[1, 0], [0, 1]]
RNG = np.random.default_rng(8)

# By what calls begin with: how they go on, and words that the line holds. Files are those of
# `folder`; EYE, XW … stand for documents, which are below.
# fmt: off
CALLS = {
    "compute": {
        "--random 3x2 --seed -1": "seed -1 whole", "--random --sweep d_k 1,4 --seed -1": "seed -1",
        "--random axb": "--random 'axb' NxD 3x2", "--help nosuch": "'nosuch' masking, --help all",
        "": "nothing compute --x --weights", "x --format jsn": "'jsn' 'table', 'json'",
        "x --heads two": "--heads integer", "EYE --output a -o b": "--output/-o twice",
        "EYE --heatmap --no-heatmap": "--heatmap/--no-heatmap twice",
        "--q EYE --q EYE": "--q twice", "q.csv k.csv": "k.csv --k --v --mask",
        "EYE --max-size 1" + "0" * 400: "--max-size 500MB", "missing.json": "missing.json exist",
        "''": "path", "[1,0]": "1 dimension q 2 [[1, 2]]",
        "- --against --causal": "--against standard input", "stage.json": "stage.json no q weights",
        "'{\"scale\": \"none none\", \"q\": [[1]]}'": "scale number",
        "odd-scale.npz": "odd-scale.npz scale number", "EYE --tokens a": "1 token 2 queries",
        "EYE --tokens a,": "empty token", "--x-kv EYE": "--x-kv --x",
        "--q whole.json --weights whole.json": "whole.json q --weights x",
        "LONG-X --d-output ones --stage d_b_q": "gradients all queries",
        "LONG-X --stage weights --stage k --rows 7:9": "k queries",
        "'{\"q\": EYE, \"dO\": EYE}' --split 1 --d-output ones": "gradients one softmax",
        "'{\"q\": EYE, \"mask\": [[true, false]]}' --semantics keras-attention": "keras-attention refuses",
        "homework.json --v '[[9, 9, 9], [8, 8, 8]]'": "--v",
    },
    "compute three.json": {
        "--k - --mask -::m": "standard input once", "--past-k [[1,2]]": "past_k past_v",
        "--softcap 0": "softcap 0", "--mask [[0,1,1]]": "0 1 --mask-means",
        "--mask [[0,2,1]] --mask-means keep": "mask true/false 0/1",
        "--causal --mask [[0,2,1]] --mask-and-causal refused": "refuse",
        "--mask [[0.5,0.5]]": "2 key", "--kv-len 4": "kv_len 4 3 keys",
        "--kv-heads 2": "--kv-heads --heads", "--heads 3": "width 2 3 heads",
        "--heads 3 --kv-heads 2": "3 heads 2", "--layout bshd": "bshd 4 axes 2",
        "--layout hsd --heads 2": "--heads bsd", "--sinks [[1]]": "2 dimensions sinks 1",
        "--sinks [true]": "sinks numbers", "--stage masked": "no 'masked' --causal mask",
        "--stage capped": "no 'capped' --softcap", "--head 2": "no head",
        "--rows 3:2": "--rows 3:2 before 2:3", "--cell a,b,c": "--cell 'a,b,c' comma",
        "--cell q9,k1": "no 'q9'", "--query q4": "no 'q4'", "--query ''": "--query ''", "--random": "three.json --random",
        "--sweep softcap 0": "--sweep softcap above 0", "--sweep scale 1 --stage q": "only spread",
        "--sweep d_k 1,2": "--sweep --random", "--query": "attncli compute --help", "--sweep heads 1": "heads scale",
        "--sweep scale 1,y": "--sweep '1,y' numbers", "--k [[1,2,3]]": "q 2 k 3 d_k", "--arcs --format svg --stage scores": "--arcs weights scores",
        "--blank=other": "no 'other'", "--output x.doc": "x.doc format",
        "--output no/such/out.json": "no/such", "--output there.npz": "there.npz exists --force",
        "--format npy --stage weights --stage scores": "npy one stage",
        "--split 3": "3 keys from 1 to 2", "--stage lse --softmax-over queries": "no 'lse'",
        "--semantics torch-mha --causal": "torch-mha refuses",
    },
    "compute three.json --against": {
        "'--scale x'": "--against --scale 'x'", "\"--scale 'x\"": "quotation", "''": "nothing",
        "'--format json'": "--format outside", "'--against --causal'": "--against outside",
        "--causal --blank": "--blank one",
    },
    "compute --x": {
        "'{\"x\": EYE}'": "no weights w_q w_k w_v",
        "x.json --weights x.json::x": "no weights x.json",
        "'{\"x\": EYE, \"w_q\": EYE}'": "no w_k, w_v (w_q)",
        "'{\"w_q\": EYE, \"w_k\": EYE, \"w_v\": EYE}'": "no x",
        "'{\"x\": EYE, \"inputs\": EYE, \"w_q\": EYE}'": "2 x, inputs",
        "'{XKV, \"w_q\": [[1,2,3],[1,2,3],[1,2,3],[1,2,3],[1,2,3]]}'": "w_q 5 × 3 x width 2",
        "'{XKV, \"w_q\": [[1, 0], [0]]}'": "w_q: row 2 1 entry",
        "'{WEIGHTS, \"x\": [1, 0]}'": "x 1 dimension 2 3", "'{XKV, \"w_q\": 5}'": "w_q 5 array",
        "'{XKV, \"w_q\": [1, 2]}'": "w_q 1 dimension",
        "'{XW, \"w_o\": [[1,2,3],[1,2,3],[1,2,3]]}'": "w_o (3 × 3) width 2",
        "three-heads.json --heads 2": "w_q 3 heads 2", "'{XW}' --q EYE": "--q --x both",
        "'{XW}' --layout hsd": "--layout hsd q",
        "'{XKV, \"w_q_1\": EYE, \"w_q_2\": [[1], [2]]}'": "w_q_2 2 × 1 w_q_1 2 × 2",
        "two-attentions.json": "2 a, b --weights ::a",
        "wide.json --weights-axes out-in": "columns 2", "many.npz": "200000 tokens need",
    },
    "compute LONG": {
        "--output all.npz": "1500 × 1500 scores need", "--full": "--rows",
        "--dropout 0.5": "scores need", "--softmax-over queries": "scores need",
        "--rows 1501:": "no rows 1501 1500", "--cell 1501,1": "no '1501' 1500",
        "--stage weights --output w.npz": "scores need",
        "--d-output ones --stage d_scores": "gradients all queries",
        "--d-output ones --stage d_weights --stage d_q": "gradients all queries",
        "--tiles 500": "3 parts keys need", "--format json": "--format npz",
    },
    "check three.json --observed OUT": {
        "--output -": "--output - standard output", "--output v.npz": "v.npz --format text json",
        "--head 2": "no head 2 only 1", "--rtol -1": "rtol -1",
    },
    "check": {
        "--bug scale-left-out --q q.csv": "--q --bug", "--bugs causal --causal": "--causal --bugs",
        "--bug scale-left-out --decimals 3": "--decimals", "--bugs --bug x": "--bugs --bug",
        "three.json q.csv": "q.csv --by-hand",
        "--bug scale-left-ot": "did you mean scale-left-out", "--bugs zzzz": "zzzz --bugs",
        "": "nothing check --observed", "three.json": "three.json no stage output weights",
        "EYE --observed EYE --positions paper --heads 2": "each head",
        "whole.json --q whole.json --observed whole.json": "SOURCE beside",
        "EYE --observed EYE --stage d_wq": "d_w_q",
        "EYE --observed EYE --stage nothing": "no 'nothing' scores, scaled",
        "three.json --stage weights": "no weights", "'{\"output\": [[1]]}'": "observed no q",
        "--q EYE": "--observed",
        "'{QO, \"softcap\": \"NaN\"}'": "softcap 'NaN'",
        "'{QO, \"convention\": {\"sclae\": 1}}'": "no field 'sclae'",
        "'{QO, \"convention\": [1, 2]}'": "convention object",
        "'{QO, \"layout\": \"sbhd\"}'": "layout 'sbhd' bshd",
        "'{QO, \"kv_len\": [1.5]}'": "kv_len whole",
        "'{QO, \"causal\": true, \"convention\": {\"causal\": false}}'": "causal twice",
        "three.json --observed '{\"weights\": [[1, 2], [3]], \"output\": OUT}'": "weights row 2 1",
        "'{\"q\": EYE, \"d_q\": EYE}'": "d_output (--d-output)",
    },
    "diff": {
        "[[1]]": "two diff", "LONG long.npz": "need",
        "[[1]] nowhere.npz": "nowhere.npz exist", "[[1]] .": "directory", "[[1]] []": "empty",
        "- -": "standard input once", "[[1]] [[1]] --format mermaid": "mermaid one",
        "'[[1, 2]]' '[[1], [2]]' --format svg": "no shape both",
        "[[1]] [[1]] --stage weights": "no 'weights' array",
        "three.json [[1]]": "one three.json::output",
        "'{\"weights\":[[1]]}' '{\"output\":[[1]],\"x\":[[1]]}'": "no stage common weights",
        "'{\"weights\":[[1]],\"q\":\"x\"}' [[1]]": "q 'x'",
    },
    "explain": {
        "": "no sentence", "a --target ''": "--target empty",
        "--tokens '[1, 2]'": "JSON list strings", "'a b c' --pad-to 2": "3 2",
        "a --heads 3": "8 3 heads --d-k", "a --kv-heads 3 --heads 2": "3 key heads",
        "a --block encoder --eps -1": "--eps -1 0", "a --block decoder": "decoder --target",
        "a --block decoder --target b --mask [[true]]": "decoder three",
        "'a b' --mask '[[1, 0]]'": "1 --mask-means", "a --vectors a=1,2 --dim 3": "--dim 3 2",
        "a --vectors none.txt": "none.txt exist nlp.stanford.edu/projects/glove builtin",
        "bnak --vectors bank=1,2 --unknown error": "no vector 'bnak' mean bank?",
        "'a b' --embeddings '[[1, 2]]'": "1 row 2 tokens",
        "--embeddings '[[[1, 2]]]'": "1 × 1 × 2 one sentence",
        "a --weights [[1.0]]": "one matrix name", "a --weights heads.json": "no weights 'q'",
        "a --dim 2 --weights '{XW, \"self_attn.out_proj.weight\": {}}'": "out_proj.weight object",
        "a --head 2": "no head 2", "'bank bank' --cell bank,1": "more than one 'bank'",
        "'a b' --dim 2 --positions '[[1,2,3],[4,5,6]]'": "positions 2 × 3",
        "'a b' --positions learned": "--positions 'learned' paper",
        "'a b' --positions [[[1]]]": "3 dimensions",
        "a --block encoder --layers 4 --stage nothing": "no 'nothing' tokens, embeddings",
        "a --block encoder --layers 4 --stage tokens --cell 1,1": "tokens",
        "'a b' --semantics flax --causal": "flax refuses",
    },
    "posenc": {
        "extra": "extra argument", "--help masking": "positions, showing", "--len 99999999 --dim 2 --dots": "--len --dim",
        "--dim 4": "--len missing", "--len 4": "--dim missing",
        "--kind alibi --len 3": "--heads missing", "--add [[1,2]] --dim 3": "--dim 3 2",
        "--add [[[1,2]]]": "3 dimensions", "--kind rope --len 3 --dim 5": "dim 5 even", "--len 3 --dim 4 --cell 9,1": "no position '9'",
    },
    "similarity": {
        "": "no word", "king=1,2 dad": "'dad' numbers",
        "king truth": "builtin no vector 'truth' glove.6B.zip nlp.stanford.edu",
        "king --vectors missing.txt": "missing.txt", "king=1,2 dad=1": "dad 1 king 2",
        "king= dad=1": "'king=' numbers", "king=1,x": "king",
        "king queen --vectors damaged.txt": "'king' line 1",
        "--analogy a b --vectors words.txt": "three 'a b' --analogy",
        "a=1,2 b=2,1 --analogy a b prince": "prince",
    },
    "examples": {
        "zzz": "no 'zzz' attncli examples", "003 --format npz": "npz one 8",
        "--file missing.json": "missing.json", "--file mask.json": "mask.json",
        "exercise-2 --file my-examples.json --stage cosines": "exercise-2 words.txt",
        "000-pca --vectors missing.txt": ": example missing.txt glove.6B.100d",
    },
    "semantics": {
        "a b c": "3 libraries", "jax --q [[1]]": "jax input", "--format svg": "figure numbers",
        "--format mermaid": "flowchart steps", "jax jax": "jax twice",
        "--stage weights": "no stage",
    },
    "model": {
        "": "DIR SENTENCE missing", "m": "SENTENCE", "m a --target ''": "--target empty",
        "nowhere a": "directory nowhere",
    },
    "nothing": {"": "command 'nothing' --help"}, "help": {"masks nosuch": "topic 'nosuch'"},
}

# A call, and the hint: what to write instead.
HINTS = {
    "compue --q x": "did you mean compute?", "help compue": "did you mean compute?",
    "q.csv": "did you mean attncli compute q.csv?",
    "explain The bank --blank": 'put the sentence in quotes: attncli explain "The bank"',
    "explain --causal The river bank": 'put the sentence in quotes: attncli explain "The river bank"',
    "explain (1 --tokens 2)": "both a sentence and --tokens",
    "compute --q '[[1,' 0]]": 'put it in quotes: attncli compute --q "[[1, 0]]"',
    "compute '[[1,' 0]] --causal": 'put it in quotes: attncli compute "[[1, 0]]" --causal',
    "compute --q \"'[[1,\" '0],' '[0,' \"1]]'\"": 'in quotes: attncli compute --q "[[1, 0], [0, 1]]"',
    "compute k.csv --q q.csv": "both 'k.csv' and --q are given",
    "compute --q q.csv --causal true": "write it alone",
    "compute q.csv --work False": "leave --work out", "explain --x q.csv": "use --embeddings",
    "compute --embeddings q.csv": "use --x",
    "compute q.csv --temperature 0": "temperature is 0.0; use a number above 0",
    "check --query q.csv": "use --q",
    "compute q.csv --casual": "did you mean --causal?", "explain a --sweep x 1": "of attncli compute",
    "compute q.csv --stage weigths": "there is no stage 'weigths'; did you mean weights?",
    "compute q.csv --format JSON": "did you mean json?",
    "posenc --kind rotary": "did you mean rope?",
    "compute q.csv --against '--scle none'": "did you mean --scale?",
    "explain --blank 'She visited'": "put --blank last, or write --blank=STAGE",
    "compute --blank three.json": "put --blank last, or write", "compute q.csv --blank softmax": "weights?",
    "explain a --block encoder --layers 4 --stage encoder.3.wieghts": "did you mean encoder.3.attention.weights",
    "check --q q.csv --observed EYE --stage wieghts": "did you mean weights or d_weights?",
    "check q.csv --observed '{\"Scors\": [[9]], \"output\": EYE}'": "did you mean scores?",
    "diff m.json m.json --stage encoder.3.wieghts": "did you mean encoder.4.attention.weights or",
    "semantics jaxx": "did you mean jax?",
    "examples 004-frist-example": "did you mean 004-first-example",
    "help scale": "see attncli help masks", "help heads": "see attncli help masks",
    "help temperature": "attncli help learning", "help maks": "did you mean masks",
    "similarity dadd zzz momm --vectors words.txt": "did you mean dad for 'dadd', mom for 'momm'?",
}
# Flags that a call cannot have, "|" between those of one call each, by what the calls begin with.
APART = {  # the first two exclude each other
    "compute three.json": "--heatmap --arcs --format svg|--no-color --color always|--split 1 --tiles 1|"
                          "--cell 1,2 --rows 1:2|--cell 1,2 --work|--tokens a,b,c --format mermaid",
    "diff [[1]] [[1]]": "--decimals 2 --rtol 1",
    "explain 'a b'": "--outline --blank|--outline --work|--outline --head 1|--outline --precision 2|"
                     "--projection identity --weights w.npz|--projection identity --d-k 2|"
                     "--norm none --eps 1 --block encoder|--block encoder --target b|"
                     "--causal --block decoder --target b",
    "explain": "--embeddings EYE --vectors a=1|--embeddings EYE --target b",
    "posenc": "--apply [[1,2]] --len 3 --kind rope|--add [[1,2]] --dots",
    "similarity a=1,2 b=2,1 c=1,1": "--pca --nearest 2|--pca --analogy a b c",
    "examples": "--verify --stage weights",
}
IDLE = {  # the first has no effect
    "compute three.json":
        "--causal-align top-left|--seed 1|--softcap-place after-mask|--mask-means keep|"
        "--mask-and-causal mask --mask [[0,2,1]]|--mask-and-causal mask --mask [[0,-1.5,1]]|"
        "--mask-numbers truth|--mask-value-rule add|--lse-base 2|--weights-axes in-out|"
        "--head-order tiled|--force|--arcs",
    "compute three.json --mask MASK": "--mask-numbers truth|--empty-rows-inf nan",
    "compute three.json --mask [[0,-1.5,1]] --semantics jax": "--mask-value -5",
    "compute three.json --output x.npz": "--heatmap",
    "compute three.json --format csv": "--cell 1,1|--open",
    "compute three.json --format json": "--work|--step|--color always",
    "compute three.json --format svg": "--width 60",
    "compute three.json --format latex": "--heatmap",
    "compute three.json --format mermaid": "--blank",
    "compute three.json --format npz --output x": "--blank",
    "check three.json --observed OUT": "--force",
    "explain a": "--layers 2|--unknown zero|--outline --format svg|--outline --format json|"
                 "--work --format mermaid|--head-order tiled --heads 2",
    "posenc --len 3 --dim 4": "--heads 2|--layout halves --kind rope",
    "posenc --len 3 --kind alibi": "--dim 4|--start 0 --heads 2",
    "examples": "--stage weights|--precision 0|--vectors x.txt|--cell 1,1 --format json",
    "semantics": "--precision 2|--causal|--mask [[true]]|--rows 1:2 --q three.json|jax mlx --causal",
}
UNREAD = {  # the first has a value that is not understood
    "compute three.json":
        "--softcap much|--seed 1.5|--scale nan|--mask-value nan|--window 1|--window -2,0|"
        "--kv-len two|--split a|--max-size 1TB|--rows x|--rows 0:1|--cols x|--cell q1|--cell ,k1",
    "check EYE --observed EYE": "--rows 0:1",
}
LEAST = {  # the first is less than 1
    "compute three.json": "--tiles 0", "explain a": "--pad-to 0|--dim 0",
    "similarity king --vectors words.txt": "--nearest 0",
}
# fmt: on


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that wrong calls name."""
    path = tmp_path_factory.mktemp("wrong")
    for name in ("heads.json", "homework.json", "mask.json", "words.txt", "my-examples.json"):
        shutil.copy(SAMPLES / name, path)
    shutil.copy(SAMPLES / "three-tokens.json", path / "three.json")
    documents: dict[str, Any] = {
        "x": {"x": EYE},
        "whole": {"q": EYE, "output": EYE},
        "three-heads": {"x": EYE} | {f"w_{n}": [[[1, 2]] * 2] * 3 for n in "qkv"},
        "two-attentions": {"x": EYE} | {f"{name}.w_{n}": EYE for name in "ab" for n in "qkv"},
        "wide": {"x": EYE} | {f"w_{n}": [[1, 2, 3]] * 2 for n in "qkv"},
    }
    for name, document in documents.items():
        (path / f"{name}.json").write_text(json.dumps(document))
    run(["compute", "[[1, 2]]", "--quiet", "--stage", "weights", "--output", f"{path}/stage.json"])
    run(["explain", "a", "--block", "encoder", "--layers", "4", "--output", f"{path}/m.json"])
    (path / "q.csv").write_text("1,0\n0,1\n")
    (path / "damaged.txt").write_text("king 1 2 x\nqueen 1 2 3\nman 1 2 3\n")
    (path / "there.npz").write_bytes(b"precious")
    long = {name: RNG.normal(size=(2, 1500, 3)) for name in "qkv"}
    save = np.savez
    save(path / "long.npz", **long)  # type: ignore[arg-type]
    weights = {f"w_{name}": RNG.normal(size=(5, 6)) for name in "qkv"}
    save(path / "long-x.npz", x=RNG.normal(size=(1500, 5)), **weights)  # type: ignore[arg-type]
    wide = {f"w_{name}": np.zeros((2, 500)) for name in "qkv"}
    save(path / "many.npz", x=np.zeros((200_000, 2), np.float32), **wide)  # type: ignore[arg-type]
    save(path / "odd-scale.npz", q=[[1]], scale="x")
    return path


def calls_of(table: dict[str, str], words: str) -> list[tuple[str, str]]:
    """The calls of a table, and the words: {0} and {1} are the flags, and {value} of the first."""
    rows = []
    for beginning, flags in table.items():
        for more in flags.split("|"):
            parts = more.split()
            names = [part for part in parts if part.startswith("--")]
            value = repr(parts[1]) if len(parts) > 1 else ""
            rows.append((f"{beginning} {more}", words.format(*names, value=value)))
    return rows


ALL = [
    *((f"{start} {rest}", words) for start in CALLS for rest, words in CALLS[start].items()),
    *calls_of(APART, "{0} {1}"),
    *calls_of(IDLE, "{0} effect"),
    *calls_of(UNREAD, "{0} {value} understood"),
    *calls_of(LEAST, "{0} 1"),
]


@pytest.mark.parametrize(
    ("line", "words"),
    [*((line, words.split()) for line, words in ALL), *((x, [HINTS[x]]) for x in HINTS)],
    ids=[line[:70] for line in (*(line for line, _ in ALL), *HINTS)],
)
def test_a_wrong_call_is_refused_in_one_line(
    call: Call, folder: Path, monkeypatch: pytest.MonkeyPatch, line: str, words: list[str]
) -> None:
    monkeypatch.chdir(folder)
    before = {file.name: file.stat().st_mtime_ns for file in folder.iterdir()}
    done = call(*arguments_of(line), stdin=b"[[1, 2]]")
    assert (done.code, done.out) == (2, "")
    (error,) = [x for x in done.err.splitlines() if not x.startswith("attncli: note: ")]
    assert error.startswith("attncli: ")
    assert error.isprintable()
    assert len(error) < 400
    assert [word for word in words if word not in error] == [], error
    assert {file.name: file.stat().st_mtime_ns for file in folder.iterdir()} == before


TAKEN = """
compute homework.json --weights-axes in-out|compute three.json --tokens a,b,c --format csv|
compute three.json --mask [[0,-1.5,1]] --empty-rows-inf nan|
compute three.json --mask MASK --semantics jax --mask-value -5|
compute three.json --tiles 2 --lse-base 2|explain 'the bank' --outline --heads 2 --causal|
compute --random 3X2|compute --random 3×2x4|explain --help learning|help masks checking|
compute --q '[[1, 2, 3, 4]]' --heads 2 --kv-heads 1 --k '[[1, 2]]' --head-order tiled|
semantics --q three.json --stage apart --rows 1:2 --precision 2
"""


def test_what_changes_something_is_taken(call: Call, monkeypatch: Any, folder: Path) -> None:
    monkeypatch.chdir(folder)
    for line in TAKEN.replace("\n", "").split("|"):
        done = call(*arguments_of(line))
        assert (done.code, "no effect" in done.err) == (0, False), (line, done.err)


FORMS = "table json csv tsv markdown mermaid latex html svg npz"
WRONG = "--stage nope|--head 9|--rows 90:|--cell q9,k9|--output no/such/f"
LINES = """
compute heads.json|compute three.json --against --causal|posenc --len 5 --dim 3|semantics jax mlx|
explain 'the bank' --block encoder|similarity a=1,2 b=2,3|diff three.json heads.json
"""


@pytest.mark.parametrize("line", LINES.replace("\n", "").split("|"))
def test_nothing_is_printed_before_a_refusal(
    call: Call, monkeypatch: Any, folder: Path, line: str
) -> None:
    monkeypatch.chdir(folder)
    for form in FORMS.split():
        for wrong in WRONG.split("|"):
            done = call(*arguments_of(f"{line} --format {form} {wrong}"))
            assert (done.code, done.out) == (2, ""), (form, wrong, done.err)
