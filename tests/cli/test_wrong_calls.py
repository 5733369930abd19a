"""Every wrong call is refused in one line that helps: exit code 2, nothing printed or written."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attncli.cli.main import run

from .conftest import SAMPLES, Call

EYE = [[1, 0], [0, 1]]
RNG = np.random.default_rng(8)

# A call, and words that its line holds. Files are those of `folder`; EYE is the matrix of two rows,
# XW are embeddings and their weights.
# fmt: off
CALLS = [
    # ---- the command line as a whole
    ("nothing", "command 'nothing' --help"),
    ("compute", "nothing compute --x --weights"),
    ("check", "nothing check --observed"),
    ("similarity", "no word"),
    ("diff [[1]]", "two diff"),
    ("model", "DIR SENTENCE missing"),
    ("model m", "SENTENCE"),
    ("model m a --target ''", "--target empty"),
    ("model nowhere a", "directory nowhere"),
    ("compute x --format jsn", "'jsn' 'table', 'json'"),
    ("compute x --heads two", "--heads integer"),
    ("compute x --softcap much", "--softcap 'much' above 0"),
    ("compute --q x extra", "'extra' --q"),
    ("posenc extra", "extra argument"),
    ("compute EYE --rows 1 --rows 2", "--rows twice"),
    ("compute EYE --output a -o b", "--output/-o twice"),
    ("compute EYE --heatmap --no-heatmap", "--heatmap/--no-heatmap twice"),
    ("compute --q EYE --q EYE", "--q twice"),
    ("compute q.csv k.csv", "k.csv --k --v --mask"),
    ("compute EYE --max-size 1TB", "--max-size 500MB"),
    ("compute EYE --max-size 1" + "0" * 400, "--max-size 500MB"),
    # ---- what is read
    ("compute missing.json", "missing.json exist"),
    ("compute ''", "path"),
    ("compute [1,0]", "1 dimension q 2 [[1, 2]]"),
    ("compute three.json --k ''", "path"),
    ("compute three.json --k - --mask -::m", "standard input once"),
    ("compute - --against --causal", "--against standard input"),
    ("compute stage.json", "stage.json no q weights"),
    ("compute '{\"scale\": \"x\", \"q\": [[1]]}'", "scale number"),
    ("compute '{\"scale\": \"none none\", \"q\": [[1]]}'", "scale number"),
    ("compute odd-scale.npz", "odd-scale.npz scale number"),
    ("compute EYE --tokens a", "1 token 2 queries"),
    ("compute EYE --tokens a,", "empty token"),
    ("compute three.json --past-k [[1,2]]", "past_k past_v"),
    ("compute three.json --past-k [[1,2,3]] --past-v [[1,2]]", "past_k k"),
    # ---- conventions
    ("compute three.json --causal-align top-left", "--causal-align effect --causal"),
    ("compute three.json --seed 1", "--seed effect --dropout"),
    ("compute three.json --seed 1.5 --dropout 0.5", "--seed '1.5'"),
    ("compute three.json --softcap-place after-mask", "--softcap-place effect --softcap"),
    ("compute three.json --softcap 0", "softcap 0"),
    ("compute three.json --scale nan", "--scale 'nan'"),
    ("compute three.json --dropout 1", "dropout 1"),
    ("compute three.json --mask-means keep", "effect --mask"),
    ("compute three.json --mask [[0,1,1]]", "0 1 --mask-means"),
    ("compute three.json --mask [[0,2,1]] --mask-means keep", "mask true/false 0/1"),
    ("compute three.json --mask [[0,2,1]] --mask-and-causal mask", "effect --causal"),
    ("compute three.json --mask-numbers truth", "effect mask numbers"),
    ("compute three.json --mask-value-rule add", "effect --mask-value"),
    ("compute three.json --causal --mask [[0,2,1]] --mask-and-causal refused", "refuse"),
    ("compute three.json --mask [[0.5,0.5]]", "2 key"),
    ("compute three.json --causal --mask-value inf", "mask_value inf"),
    ("compute three.json --causal --mask-value nan", "--mask-value 'nan'"),
    ("compute three.json --window 0,0 --window-counts own", "own key none"),
    ("compute three.json --window 1", "--window '1'"),
    ("compute three.json --window=-2,0", "--window '-2,0'"),
    ("compute three.json --kv-len 4", "kv_len 4 3 keys"),
    ("compute three.json --kv-len two", "--kv-len 'two'"),
    ("compute three.json --kv-heads 2", "--kv-heads --heads"),
    ("compute three.json --heads 3", "width 2 3 heads"),
    ("compute three.json --heads 3 --kv-heads 2", "3 heads 2"),
    ("compute three.json --layout bshd", "bshd 4 axes 2"),
    ("compute three.json --layout hsd --heads 2", "--heads bsd"),
    ("compute three.json --lse-base 2", "--lse-base effect lse"),
    # ---- sinks and gradients
    ("compute three.json --sinks [[1]]", "2 dimensions sinks 1"),
    ("compute three.json --sinks '[1, 2]'", "sinks 2 1"),
    ("compute three.json --sinks [true]", "sinks numbers"),
    ("compute three.json --d-output '[[1, 2]]'", "d_output output shape"),
    ("compute three.json --d-output '[[true, false], [true, true], [true, true]]'", "d_output numbers"),
    ("compute three.json --d-output '[1, 2]'", "d_output 2 4"),
    ("explain 'a b' --block encoder --d-output ones", "--d-output encoder"),
    # ---- embeddings and weights
    ("compute --x '{\"x\": EYE}'", "no weights w_q w_k w_v"),
    ("compute --x '{\"x\": EYE, \"w_q\": EYE}' --weights [[1]]", "no weights one matrix"),
    ("compute --x x.json --weights x.json::x", "no weights x.json"),
    ("compute --x '{\"x\": EYE, \"w_q\": EYE}'", "no w_k, w_v (w_q)"),
    ("compute --x '{\"w_q\": EYE, \"w_k\": EYE, \"w_v\": EYE}'", "no x"),
    ("compute --x '{XW, \"W_q\": EYE}'", "w_q W_q both"),
    ("compute --x '{\"x\": EYE, \"inputs\": EYE, \"w_q\": EYE}'", "2 x, inputs"),
    ("compute --x '{XKV, \"w_q\": [[1,2,3],[1,2,3],[1,2,3],[1,2,3],[1,2,3]]}'", "w_q 5 × 3 x width 2"),
    ("compute --x '{XKV, \"w_q\": [[1, 0], [0]]}'", "w_q: row 2 1 entry"),
    ("compute --x '{WEIGHTS, \"x\": [[1, 0], [0]]}'", "x: row 2 1 entry"),
    ("compute --x '{WEIGHTS, \"x\": []}'", "x empty"),
    ("compute --x '{WEIGHTS, \"x\": [1, 0]}'", "x 1 dimension 2 3"),
    ("compute --x '{XKV, \"w_q\": 5}'", "w_q 5 array"),
    ("compute --x '{XKV, \"w_q\": [1, 2]}'", "w_q 1 dimension"),
    ("compute --x '{XKV, \"w_q\": [[1], [2]]}'", "d_k q 1 k 2"),
    ("compute --x '{XW, \"b_q\": [1, 2, 3]}'", "b_q (3) w_q"),
    ("compute --x '{XW, \"w_o\": [[1,2,3],[1,2,3],[1,2,3]]}'", "w_o (3 × 3) width 2"),
    ("compute --x '{\"x\": EYE, \"qkv\": [[1, 2], [1, 2]]}'", "qkv (2 × 2) three w_q"),
    ("compute --x three-heads.json --heads 2", "w_q 3 heads 2"),
    ("compute --x '{XW}' --heads 3", "divide 3 heads"),
    ("compute --x '{XW}' --q EYE", "--q --x both"),
    ("compute --x '{XW}' --layout hsd", "--layout hsd q"),
    ("compute --x '{XKV, \"w_q_1\": EYE, \"w_q_2\": [[1], [2]]}'", "w_q_2 2 × 1 w_q_1 2 × 2"),
    ("compute --x two-attentions.json", "2 a, b --weights ::a"),
    ("compute --x wide.json --weights-axes out-in", "columns 2"),
    ("compute --x-kv EYE", "--x-kv --x"),
    ("compute --q whole.json --weights whole.json", "whole.json q --weights x"),
    ("compute EYE --k EYE --weights EYE", "--k --weights both"),
    ("compute --x many.npz", "200000 tokens need"),
    # ---- what is shown
    ("compute three.json --stage masked", "no 'masked' --causal mask"),
    ("compute three.json --stage capped", "no 'capped' --softcap"),
    ("compute three.json --head 2", "no head"),
    ("compute three.json --batch 1", "no batch"),
    ("compute three.json --rows 9:", "no rows 9 3"),
    ("compute three.json --rows x", "--rows 'x'"),
    ("compute EYE --rows 0:1", "--rows '0:1' 1"),  # not a word of K = Q
    ("compute three.json --rows 3:2", "--rows 3:2 before 2:3"),
    ("compute EYE --cols x", "--cols 'x'"),
    ("compute EYE --cell q1", "--cell 'q1'"),
    ("compute three.json --cell ,k1", "--cell ',k1'"),
    ("compute three.json --cell a,b,c", "--cell 'a,b,c' comma"),
    ("compute three.json --cell q9,k1", "no 'q9'"),
    ("compute three.json --cell 1,1 --format csv", "--cell effect csv"),
    ("compute three.json --work --format json", "--work effect json"),
    ("compute three.json --step --format json", "--step effect json"),
    ("compute three.json --width 60 --format svg", "--width effect svg"),
    ("compute three.json --heatmap --format latex", "--heatmap effect latex"),
    ("compute three.json --heatmap --output x.npz", "--heatmap effect npz"),
    ("compute three.json --arcs", "--arcs effect table"),
    ("compute three.json --arcs --format svg --heatmap", "--arcs --heatmap"),
    ("compute three.json --arcs --format svg --stage scores", "--arcs weights scores"),
    ("posenc --len 3 --dim 4 --arcs --format svg", "No --arcs"),
    ("compute three.json --color always --no-color", "--no-color --color"),
    ("compute three.json --color always --format json", "--color effect json"),
    ("compute three.json --color yes", "'yes' 'auto' 'never'"),
    ("compute three.json --blank=other", "no 'other'"),
    *((f"compute three.json --blank --output x.{form} --format {form}", f"--blank effect {form}")
      for form in ("json", "csv", "tsv", "mermaid", "npz", "npy")),
    ("explain 'The bank' --outline --blank", "--outline --blank"),
    ("explain 'a b' --outline --format svg", "--outline effect svg"),
    # ---- where it goes
    ("compute three.json --output x.doc", "x.doc format"),
    ("compute three.json --output no/such/out.json", "no/such"),
    ("compute three.json --output there.npz", "there.npz exists --force"),
    ("compute three.json --open --format csv", "--open effect csv"),
    ("compute three.json --force", "--force effect --output"),
    ("compute three.json --format npy --stage weights --stage scores", "npy one stage"),
    ("check three.json --observed OUT --output -", "--output - standard output"),
    ("check three.json --observed OUT --output v.npz", "v.npz --format text json"),
    ("check three.json --observed OUT --output v.JSN", "v.JSN --format text json"),
    # ---- what is too large
    ("compute long.npz --output all.npz --max-size 100MB", "1500 × 1500 scores need"),
    ("compute long.npz --full --max-size 100MB", "--rows"),
    ("compute long.npz --dropout 0.5 --max-size 100MB", "scores need"),
    ("compute long.npz --softmax-over queries --max-size 100MB", "scores need"),
    ("compute long.npz --rows 1501: --max-size 100MB", "no rows 1501 1500"),
    ("compute long.npz --cell 1501,1 --max-size 100MB", "no '1501' 1500"),
    ("compute long.npz --stage weights --output w.npz --max-size 100MB", "scores need"),
    ("compute long.npz --d-output ones --stage d_scores --max-size 100MB", "gradients all queries"),
    ("compute long.npz --d-output ones --stage d_weights --stage d_q --max-size 100MB",
     "gradients all queries"),
    ("compute long-x.npz --heads 2 --d-output ones --stage d_b_q --max-size 100MB", "gradients all queries"),
    ("compute long-x.npz --heads 2 --stage weights --stage k --rows 7:9 --max-size 100MB", "k queries"),
    ("compute long.npz --tiles 500 --max-size 100MB", "3 parts keys need"),
    ("compute q800.npy --max-size 90MB --format json", "--format npz"),
    ("diff q800.npy q800.npy --max-size 1MB", "need"),
    ("posenc --len 9999999 --dim 999999", "9999999 × 999999 need TB"),
    ("posenc --len 99999999 --dim 2 --dots", "--len --dim"),
    ("posenc --kind rope --len 2 --dim 10000000000", "need"),
    ("explain a --pad-to 1000000000", "need"),
    ("explain a --dim 1000000", "weights widths need"),
    ("explain a --layers 100000000 --block encoder", "100000000 layers need"),
    # ---- parts of the keys
    ("compute three.json --tiles 0", "--tiles 1"),
    ("compute three.json --tiles two", "--tiles integer"),
    ("compute three.json --split a", "--split 'a'"),
    ("compute three.json --split 0", "3 keys 0"),
    ("compute three.json --split 3", "3 keys from 1 to 2"),
    ("compute three.json --split 1 --tiles 1", "--tiles --split"),
    ("compute three.json --tiles 1 --softmax-over queries", "softmax queries columns"),
    ("compute three.json --split 1 --dropout 0.5", "dropout all weights"),
    ("compute three.json --tiles 1 --d-output random", "gradients one softmax"),
    ("compute dO.json --split 1 --d-output ones", "gradients one softmax"),
    ("compute three.json --stage lse --softmax-over queries", "no 'lse'"),
    ("compute three.json --tiles 1 --max-size 10kB", "3 parts keys need"),
    ("check three.json --observed OUT --tiles 2 --split 1", "--tiles --split"),
    # ---- --against and diff
    ("compute three.json --against '--scale x'", "--against --scale 'x'"),
    ("compute three.json --against \"--scale 'x\"", "quotation"),
    ("compute three.json --against ''", "nothing"),
    ("compute three.json --against '--format json'", "--format outside"),
    ("compute three.json --against '--against --causal'", "--against outside"),
    ("compute three.json --against '--heads 3'", "width 2 3 heads"),
    ("compute three.json --against --causal --blank", "--blank one"),
    ("diff [[1]] nowhere.npz", "nowhere.npz exist"),
    ("diff [[1]] .", "directory"),
    ("diff [[1]] []", "empty"),
    ("diff - -", "standard input once"),
    ("diff [[1]] [[1]] --format mermaid", "mermaid one"),
    ("diff '[[1, 2]]' '[[1], [2]]' --format svg", "no shape both"),
    ("diff [[1]] [[1]] --decimals 2 --rtol 1", "--decimals --rtol"),
    ("diff nowhere.npz [[1]] --rtol -1", "rtol -1.0"),
    ("diff [[1]] [[1]] --stage weights", "no 'weights' array"),
    ("diff three.json [[1]]", "one three.json::output"),
    ("diff '{\"weights\":[[1]]}' '{\"output\":[[1]],\"x\":[[1]]}'", "no stage common weights"),
    ("diff '{\"Q\":[[1]],\"q\":[[2]],\"weights\":[[1]]}' [[1]]", "one"),
    ("diff '{\"weights\":[[1]],\"q\":\"x\"}' [[1]]", "q 'x'"),
    ("diff [[1]] [[2]] --output there.npz", "there.npz exists"),
    # ---- check
    ("check three.json", "three.json no stage output weights"),
    ("check three.json --observed missing.npy", "missing.npy exist"),
    ("check three.json --observed OUT --decimals 2 --rtol 1", "--decimals --rtol"),
    ("check three.json --observed OUT --suggest x.json", "x.json npz"),
    ("check three.json --observed OUT --suggest no/x.npz", "folder no"),
    ("check three.json --observed OUT --suggest there.npz --output x.txt", "there.npz exists"),
    ("check three.json --observed OUT --output x.npz --suggest x.npz --format text",
     "--output --suggest one file"),
    ("check three.json --observed OUT --force", "--force effect"),
    ("check three.json --observed OUT --head 2", "no head 2 only 1"),
    ("check EYE --observed EYE --rows 0:1", "--rows '0:1'"),
    ("check three.json --observed OUT --rtol -1", "rtol -1"),
    ("check three.json --observed OUT --positions rope", "--positions 'rope'"),
    ("check EYE --observed EYE --positions paper --heads 2", "each head"),
    ("check whole.json --q whole.json --observed whole.json", "SOURCE beside"),
    ("check EYE --observed EYE --stage d_wq", "d_w_q"),
    ("check EYE --observed EYE --stage nothing", "no 'nothing' scores, scaled"),
    ("check three.json --stage weights", "no weights"),
    ("check '{\"output\": [[1]]}'", "observed no q"),
    ("check EYE", "no stage"),
    ("check --q EYE", "--observed"),
    ("check --observed EYE", "--q"),
    ("check '{\"q\": [[1]], \"output\": [[1]], \"softcap\": -1}'", "softcap -1 above 0"),
    ("check '{\"q\": [[1]], \"output\": [[1]], \"softcap\": \"NaN\"}'", "softcap 'NaN'"),
    ("check '{\"q\": [[1]], \"output\": [[1]], \"convention\": {\"sclae\": 1}}'", "no field 'sclae'"),
    ("check '{\"q\": [[1]], \"output\": [[1]], \"convention\": [1, 2]}'", "convention object"),
    ("check '{\"q\": [[1]], \"output\": [[1]], \"layout\": \"sbhd\"}'", "layout 'sbhd' bshd"),
    ("check '{\"q\": [[1]], \"output\": [[1]], \"kv_len\": [1.5]}'", "kv_len whole"),
    ("check '{\"q\": [[1]], \"output\": [[1]], \"causal\": true, \"convention\": {\"causal\": false}}'",
     "causal twice"),
    ("check three.json --observed '{\"weights\": [[1, 2], [3]], \"output\": OUT}'", "weights row 2 1"),
    ("check three.json --observed '{\"weights\": \"oops\", \"output\": OUT}'", "weights 'oops' array"),
    ("check '{\"q\": EYE, \"d_q\": EYE}'", "d_output (--d-output)"),
    ("check --q '{\"q\": EYE, \"output\": EYE, \"d_q\": EYE}' --observed EYE --stage d_q",
     "d_output (--d-output)"),
    ("check three.json --observed [[1]] --mask [[0,1,1]]", "0 1 --mask-means"),
    # ---- explain
    ("explain", "no sentence"),
    ("explain a --target ''", "--target empty"),
    ("explain a --tokens b", "sentence --tokens"),
    ("explain --tokens a,,b", "--tokens empty"),
    ("explain --tokens '[1, 2]'", "JSON list strings"),
    ("explain 'a b c' --pad-to 2", "3 2"),
    ("explain a --pad-to 0", "--pad-to 1"),
    ("explain a --heads 3", "8 3 heads --d-k"),
    ("explain a --kv-heads 3 --heads 2", "3 key heads"),
    ("explain a --layers 2", "--layers effect --block"),
    ("explain a --block encoder --norm none --eps 1", "--eps --norm"),
    ("explain a --block encoder --eps -1", "--eps -1 0"),
    ("explain a --block decoder", "decoder --target"),
    ("explain a --block encoder --target b", "--target encoder"),
    ("explain a --block decoder --target b --causal", "--causal decoder"),
    ("explain a --block decoder --target b --mask [[true]]", "decoder three"),
    ("explain 'a b' --mask '[[1, 0]]'", "1 --mask-means"),
    ("explain 'a b' --mask '[[true, true, false]]'", "mask (1 × 3)"),
    ("explain a --unknown zero", "--unknown effect --glove"),
    ("explain a --glove none.txt", "none.txt exist nlp.stanford.edu/projects/glove builtin"),
    ("explain a --glove a=1,2 --dim 3", "--dim 3 2"),
    ("explain b --glove a=1,2 --unknown error", "no vector 'b'"),
    ("explain 'a b' --embeddings '[[1, 2]]'", "1 row 2 tokens"),
    ("explain --embeddings '[[[1, 2]]]'", "1 × 1 × 2 one sentence"),
    ("explain --embeddings '[[1, 2]]' --glove a=1", "--embeddings --glove"),
    ("explain --embeddings '[[1, 2]]' --target b", "--embeddings --target"),
    ("explain --embeddings '[[1, 2], [3]]'", "row 2 1 entry"),
    ("explain --embeddings '{\"x\": [[1, 2]], \"w_q\": [[1], [2]]}'", "no attention.w_k"),
    ("explain --embeddings '{\"x\": EYE, \"w_q\": EYE, \"wq\": EYE}'", "w_q wq both"),
    ("explain --embeddings '{\"x\": EYE, \"w_q\": [[1], [1], [1]]}'", "w_q 3 × 1 expected 2"),
    ("explain --embeddings '{\"x\": EYE, \"w_q\": 3}'", "w_q 3 array"),
    ("explain --embeddings '{\"x\": EYE, \"w_q\": [1]}'", "w_q 1 expected 2"),
    ("explain --embeddings '{\"x\": EYE, \"qkv\": EYE}'", "qkv (2 × 2) three"),
    ("explain a --weights none.npz", "none.npz"),
    ("explain a --weights [[1.0]]", "one matrix name"),
    ("explain a --weights heads.json", "no weights 'q'"),
    ("explain a --weights sample-weights.json", "w_q 4 × 2 expected 8"),
    ("explain a --dim 2 --weights '{XW, \"w_o\": [[1, 2], [3]]}'", "w_o row 2 1 entry"),
    ("explain a --dim 2 --weights '{XW, \"w_o\": \"oops\"}'", "w_o 'oops' array"),
    ("explain a --dim 2 --weights '{XW, \"b_q\": \"x\"}'", "b_q 'x' array"),
    ("explain a --dim 2 --weights '{XW, \"self_attn.out_proj.weight\": {}}'", "out_proj.weight object"),
    ("explain a --projection identity --weights w.npz", "--weights --projection"),
    ("explain a --projection identity --d-k 2", "--d-k --projection"),
    ("explain a --stage nothing", "no 'nothing'"),
    ("explain a --head 2", "no head 2"),
    ("explain a --cell a,b", "no key 'b'"),
    ("explain 'bank bank' --cell bank,1", "more than one 'bank'"),
    ("explain a --outline --format json", "--outline effect json"),
    ("explain a --outline --work", "--outline --work"),
    ("explain a --format mermaid --work", "--work effect mermaid"),
    ("explain a --dim 0", "--dim 1"),
    ("explain 'a b' --dim 2 --positions '[[1,2,3],[4,5,6]]'", "positions 2 × 3"),
    ("explain 'a b' --dim 2 --positions '[[1,2]]'", "row 2 × 2"),
    ("explain 'a b' --positions learned", "--positions 'learned' paper"),
    ("explain 'a b' --positions [[[1]]]", "3 dimensions"),
    ("explain a --block encoder --layers 4 --stage nothing", "no 'nothing' tokens, embeddings"),
    ("explain a --block encoder --layers 4 --stage tokens --cell 1,1", "tokens"),
    # ---- posenc
    ("posenc --dim 4", "--len missing"),
    ("posenc --len 4", "--dim missing"),
    ("posenc --len 3 --dim 4 --heads 2", "--heads effect alibi"),
    ("posenc --kind alibi --len 3 --dim 4", "--dim effect"),
    ("posenc --kind alibi --len 3 --heads 2 --start 0", "--start effect"),
    ("posenc --kind alibi --len 3", "--heads missing"),
    ("posenc --kind rope --len 3 --dim 5", "even"),
    ("posenc --kind rope --len 3 --dim 4 --layout halves", "--layout effect"),
    ("posenc --kind rope --apply [[1,2]] --len 3", "--apply --len"),
    ("posenc --len 3 --dim 4 --base 0", "base 0"),
    ("posenc --add [[1,2]] --dim 3", "--dim 3 2"),
    ("posenc --add [[1,2]] --dots", "--add --dots"),
    ("posenc --add [[[1,2]]]", "3 dimensions"),
    ("posenc --len 3 --dim 4 --cell 9,1", "no position '9'"),
    # ---- similarity
    ("similarity king=1,2 dad", "'dad' numbers"),
    ("similarity king truth", "builtin no vector 'truth' glove.6B.zip nlp.stanford.edu"),
    ("similarity --vectors words.txt", "no word"),
    ("similarity king --vectors missing.txt", "missing.txt"),
    ("similarity king=1,2 dad=1", "dad 1 king 2"),
    ("similarity king= dad=1", "'king=' numbers"),
    ("similarity king=1,x", "king"),
    ("similarity king queen --vectors damaged.txt", "'king' line 1"),
    ("similarity --analogy a b --vectors words.txt", "three 'a b' --analogy"),
    ("similarity king --vectors words.txt --pca", "two"),
    ("similarity a=1,2 b=2,1 --pca --nearest 2", "--pca --nearest"),
    ("similarity a=1,2 b=2,1 c=1,1 --pca --analogy a b c", "--pca --analogy"),
    ("similarity a=1,2 b=2,1 --analogy a b prince", "prince"),
    ("similarity king --vectors words.txt --nearest 0", "--nearest 1"),
    # ---- examples
    ("examples zzz", "no 'zzz' attncli examples"),
    ("examples 004 --stage weights", "--stage effect list"),
    ("examples --cell 1,1 --format json", "--cell effect json"),
    ("examples --precision 0", "--precision effect list"),
    ("examples --output list.md", "markdown effect list"),
    ("examples --format csv", "csv effect list"),
    ("examples --glove x.txt", "--glove effect list"),
    ("examples --verify --stage weights", "--verify --stage"),
    ("examples 003-cosines --format npz", "npz stages"),
    ("examples --file missing.json", "missing.json"),
    ("examples --file mask.json", "mask.json"),
    ("examples 000-pca --stage coordinates", "000-pca glove.6B.100d.txt"),
    ("examples 000-pca --glove missing.txt", "missing.txt"),
    # ---- semantics
    ("semantics a b c", "3 libraries"),
    ("semantics jax --q [[1]]", "jax input"),
    ("semantics --causal", "--causal effect --q"),
    ("semantics jax --mask [[true]]", "--mask effect --q"),
    ("semantics --format svg", "figure numbers"),
    ("semantics --format mermaid", "flowchart steps"),
    ("semantics jax jax", "jax twice"),
    ("semantics --stage weights", "no stage"),
    ("semantics --q nosuch.json", "nosuch.json"),
    ("compute three.json --semantics flash-attn --mask MASK", "flash-attn refuses"),
    ("compute three.json --semantics flax --causal", "flax refuses"),
    ("compute three.json --semantics torch-mha --causal", "torch-mha refuses"),
    ("compute masked.json --semantics keras-attention", "keras-attention refuses"),
    ("explain 'a b' --semantics flax --causal", "flax refuses"),
    # ---- a flag that would change nothing
    ("compute homework.json --v '[[9, 9, 9], [8, 8, 8]]'", "--v"),
    ("check homework.json --k '[[1, 2], [3, 4], [5, 6]]' --observed '[[1, 2]]'", "--k"),
    ("compute three.json --weights-axes in-out", "--weights-axes"),
    ("compute three.json --cell 1,2 --rows 1:2", "--rows"),
    ("compute three.json --cell 1,2 --work", "--work"),
    ("compute three.json --tokens a,b,c --format mermaid", "--tokens"),
    ("compute three.json --head-order tiled", "--head-order"),
    ("compute three.json --mask MASK --mask-numbers truth", "--mask-numbers"),
    ("compute three.json --mask MASK --empty-rows-inf nan", "--empty-rows-inf"),
    ("compute three.json --mask [[0,-1.5,1]] --semantics jax --mask-value -5", "--mask-value"),
    ("compute three.json --mask [[0,-1.5,1]] --mask-and-causal mask", "--mask-and-causal"),
    ("explain 'the bank' --outline --head 1", "--head"),
    ("explain 'the bank' --outline --precision 2", "--precision"),
    ("explain 'the bank' --heads 2 --head-order tiled", "--head-order"),
    ("semantics --precision 2", "--precision"),
    ("semantics --q three.json --rows 1:2", "--rows"),
    ("compute three.json --against '--weights-axes in-out'", "--weights-axes"),
]

# A call, and the hint: what to write instead.
HINTS = [
    ("compue --q x", "did you mean compute?"),
    ("help compue", "did you mean compute?"),
    ("q.csv", "did you mean attncli compute q.csv?"),
    ("explain The bank", 'put the sentence in quotes: attncli explain "The bank"'),
    ("explain The bank --blank", 'put the sentence in quotes: attncli explain "The bank"'),
    ("explain --causal The river bank", 'put the sentence in quotes: attncli explain "The river bank"'),
    ("explain (1 --tokens 2)", "both a sentence and --tokens"),
    ("compute --q '[[1,' 0]]", 'put it in quotes: attncli compute --q "[[1, 0]]"'),
    ("compute '[[1,' 0]] --causal", 'put it in quotes: attncli compute "[[1, 0]]" --causal'),
    ("compute --q \"'[[1,\" '0],' '[0,' \"1]]'\"", 'in quotes: attncli compute --q "[[1, 0], [0, 1]]"'),
    ("compute k.csv --q q.csv", "both 'k.csv' and --q are given"),
    ("compute --q q.csv --causal true", "write it alone"),
    ("compute q.csv --work False", "leave --work out"),
    ("explain --x q.csv", "use --embeddings"),
    ("compute --embeddings q.csv", "use --x"),
    ("compute q.csv --temperature 2", "use --scale: a temperature T multiplies"),
    ("compute --query q.csv", "use --q"),
    ("compute q.csv --casual", "did you mean --causal?"),
    ("compute q.csv --fomat json", "did you mean --format?"),
    ("compute q.csv --stage weigths", "there is no stage 'weigths'; did you mean weights?"),
    ("compute q.csv --stage weigths --format svg", "did you mean weights?"),
    ("compute q.csv --format JSON", "did you mean json?"),
    ("compute q.csv --color alway", "did you mean always?"),
    ("posenc --kind rotary", "did you mean rope?"),
    ("compute q.csv --against '--scle none'", "did you mean --scale?"),
    ("explain --blank 'She visited'", "put --blank last, or write --blank=STAGE"),
    ("compute --blank three.json", "put --blank last, or write --blank=STAGE"),
    ("explain a --block encoder --layers 4 --stage encoder.3.wieghts", "did you mean encoder.3.attention.weights"),
    ("check --q q.csv --observed EYE --stage wieghts", "did you mean weights or d_weights?"),
    ("check q.csv --observed '{\"wieghts\": [[9]], \"output\": EYE}'", "did you mean weights?"),
    ("check q.csv --observed '{\"Scores\": [[9]], \"output\": EYE}'", "did you mean scores?"),
    ("diff m.json m.json --stage encoder.3.wieghts", "did you mean encoder.4.attention.weights or"),
    ("semantics jaxx", "did you mean jax?"),
    ("examples 004-frist-example", "did you mean 004-first-example"),
    ("similarity kingg --vectors words.txt", "did you mean king?"),
    ("similarity dadd zzz momm --vectors words.txt", "did you mean dad for 'dadd', mom for 'momm'?"),
]
# fmt: on

REPLACED = {
    "XKV": '"x": EYE, "w_k": EYE, "w_v": EYE',  # all but w_q
    "XW": '"x": EYE, WEIGHTS',
    "WEIGHTS": '"w_q": EYE, "w_k": EYE, "w_v": EYE',
    "EYE": "[[1,0],[0,1]]",
    "OUT": "[[5,5],[6.016681,3.983319],[6.276174,3.723826]]",
    "MASK": "[[true,false,true],[false,false,false],[true,true,true]]",
}


def arguments_of(line: str) -> list[str]:
    """The words of a call, as a shell splits them, with what stands for a document in its place."""
    for name, text in REPLACED.items():
        line = line.replace(name, text)
    return shlex.split(line)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that wrong calls name."""
    path = tmp_path_factory.mktemp("wrong")
    for name in ("heads.json", "homework.json", "mask.json", "words.txt"):
        shutil.copy(SAMPLES / name, path)
    shutil.copy(SAMPLES / "three-tokens.json", path / "three.json")
    shutil.copy(SAMPLES / "weights.json", path / "sample-weights.json")
    three_heads = {f"w_{name}": [[[1, 2]] * 2] * 3 for name in "qkv"}
    two = {f"{name}.w_{n}": EYE for name in "ab" for n in "qkv"}
    documents: dict[str, Any] = {
        "x": {"x": EYE},
        "whole": {"q": EYE, "output": EYE},
        "dO": {"q": EYE, "dO": EYE},
        "masked": {"q": EYE, "scale": 0.5, "mask": [[True, False], [False, False]]},
        "three-heads": {"x": EYE} | three_heads,
        "two-attentions": {"x": EYE} | two,
        "wide": {"x": EYE} | {f"w_{name}": [[1, 2, 3]] * 2 for name in "qkv"},
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
    np.save(path / "q800.npy", np.zeros((800, 1)))
    save(path / "odd-scale.npz", q=[[1]], scale="x")
    return path


@pytest.mark.parametrize(
    ("line", "words"),
    [*((line, words.split()) for line, words in CALLS), *((line, [hint]) for line, hint in HINTS)],
    ids=[line[:70] for line, _ in CALLS + HINTS],
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


@pytest.mark.parametrize(
    "line",
    [
        "compute homework.json --weights-axes in-out",
        "compute three.json --tokens a,b,c --format csv",
        "compute three.json --mask [[0,-1.5,1]] --mask-numbers truth",
        "compute three.json --mask [[0,-1.5,1]] --empty-rows-inf nan",
        "compute three.json --mask MASK --semantics jax --mask-value -5",
        "compute three.json --d-output random --seed 3",
        "compute three.json --tiles 2 --lse-base 2",
        "compute three.json --stage lse --lse-base 2",
        "compute --q '[[1, 2, 3, 4]]' --heads 2 --kv-heads 1 --k '[[1, 2]]' --head-order tiled",
        "explain 'the bank' --outline --heads 2 --causal",
        "explain 'the bank' --seed 3",
        "semantics --q three.json --stage apart --rows 1:2 --precision 2",
        "semantics jax torch-mha --causal",
    ],
)
def test_what_changes_something_is_taken(
    call: Call, monkeypatch: Any, folder: Path, line: str
) -> None:
    monkeypatch.chdir(folder)
    done = call(*arguments_of(line))
    assert (done.code, "no effect" in done.err) == (0, False), done.err


@pytest.mark.parametrize(
    "line",
    [
        *("compute heads.json", "compute three.json --against --causal", "posenc --len 5 --dim 3"),
        *("explain 'the bank' --block encoder --layers 2", "similarity a=1,2 b=2,3"),
        *("semantics jax mlx", "diff three.json heads.json"),
    ],
)
def test_nothing_is_printed_before_a_refusal(
    call: Call, monkeypatch: Any, folder: Path, line: str
) -> None:
    monkeypatch.chdir(folder)
    for form in (
        "table",
        "json",
        "csv",
        "tsv",
        "markdown",
        "mermaid",
        "latex",
        "html",
        "svg",
        "npz",
    ):
        for wrong in (
            "--stage nope",
            "--head 9",
            "--rows 90:",
            "--cell q9,k9",
            "--output no/such/f",
        ):
            done = call(*arguments_of(f"{line} --format {form} {wrong}"))
            assert (done.code, done.out) == (2, ""), (form, wrong, done.err)
