"""The plan: which steps a convention asks for, from what is given to the output.

    x, w_q, w_k, w_v ── q, k, v ── scores ── scaled ── capped ── masked ── weights ── output

The only place that reads the convention; formulas and the arithmetic of a cell follow from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from attncli import formulas
from attncli.arrays import Array
from attncli.attention import functional as f
from attncli.attention.gradients import backward
from attncli.attention.heads import merge_heads, split_heads
from attncli.attention.masks import adds, total_mask
from attncli.attention.run import Step, plain
from attncli.convention import Convention, LseBase
from attncli.stages import GIVEN_GRADIENT, kind_of

CONCAT_FORMULA = "H = [O₁ … O_h], the heads side by side"


class Sizes(NamedTuple):
    """All that a plan must know of the inputs: their sizes, and which there are.

    scores      shape of the scores: [batch, head, n_q, n_k] or its last axes; n_k with the past
    n_kv_heads  key heads
    d_k         width of a query
    n_past      keys before the first query's own
    given       names of the inputs
    adds        whether numbers of the given mask are added to the scores
    mask        shape of the given mask
    """

    scores: tuple[int, ...]
    n_kv_heads: int
    d_k: int
    n_past: int = 0
    given: Collection[str] = ("q", "k", "v")
    adds: bool = False
    mask: tuple[int, ...] = ()

    @property
    def n_heads(self) -> int:
        """Query heads."""
        return self.scores[-3] if len(self.scores) > 2 else 1

    def with_mask(self, mask: Array | None, how: Convention) -> Sizes:
        """The same with a mask, or with none."""
        return self._replace(adds=adds(mask, how), mask=() if mask is None else mask.shape)


def plan(
    how: Convention, sizes: Sizes, *, source: str = "x", letter: str = "", show_concat: bool = True
) -> list[Step]:
    """The steps from what is given to the output, in the order of the computation.

    x, w_q, w_k, w_v ── q, k, v ── scores ── scaled ── capped ── masked ── weights ── dropped ──
    output ── concat ── projected

    What is not asked for is left out: without x nothing is projected, without a mask nothing is
    masked. Where the gradient of the last stage is given, those of all that goes in follow.

    source       the stage that is projected where x is given, such as its norm
    letter       its symbol, where it is not that of the registry
    show_concat  False: the heads' outputs, put side by side, are no stage of their own

    >>> [step.name for step in plan(Convention(softcap=2.0), Sizes((3, 5), 1, 7))]
    ['scores', 'scaled', 'capped', 'weights', 'lse', 'output']
    """
    planner = _Planner(how, sizes)
    q, k, v = planner.operands(source, letter or kind_of(source).symbol)
    is_masked, allowed = planner.mask()
    x = planner.scores(q, k, is_masked)
    planner.outputs(planner.weights(x, allowed), v, allowed, show_concat)
    if GIVEN_GRADIENT in sizes.given:
        planner.steps += backward(planner.steps, sizes)
    return planner.steps


@dataclass
class _Planner:
    """The steps so far; each method adds some and gives the stage that they end with."""

    how: Convention
    sizes: Sizes
    steps: list[Step] = field(default_factory=list)

    def step(
        self,
        name: str,
        compute: Callable[..., Array],
        of: Mapping[str, str],
        params: Mapping[str, Any] = {},
        formula: str = "",
        text: str = "",
        **own: Any,
    ) -> str:
        """Adds a step that reads `of`, whose symbols replace {parameters} in its formula.

        text  its formula by cells, of which what is not read is left out
        """
        formula = formula.format(**{name: kind_of(read).symbol for name, read in of.items()})
        own = {"dtype": self.how.dtype, **own}
        heads = self.sizes.n_heads, self.sizes.n_kv_heads, self.how.head_order
        text = formulas.shared(formulas.written(text, *of), *heads)
        self.steps.append(Step(name, compute, of, params, formula, text, **own))
        return name

    @property
    def has_heads(self) -> bool:
        """Whether q, k and v have an axis of heads, if only of one."""
        return len(self.sizes.scores) > 2

    def given(self, **reads: str) -> dict[str, str]:
        """Those of these reads that are among the inputs."""
        return {parameter: name for parameter, name in reads.items() if name in self.sizes.given}

    def operands(self, source: str, letter: str) -> tuple[str, str, str]:
        """q, k and v: projected and split, shared by heads, whatever there is."""
        given, n_heads, n_kv_heads = self.sizes.given, self.sizes.n_heads, self.sizes.n_kv_heads
        sources = {"q": source, "k": "x_kv" if "x_kv" in given else source}
        sources["v"] = "x_v" if "x_v" in given else sources["k"]
        for name in sources if "x" in given else ():
            x = sources[name]
            symbol = letter if x == source else kind_of(x).symbol
            formula, weights = f"{name.upper()} = {symbol}", self.given(w=f"w_{name}")
            text = formulas.SPLIT_ROWS[name]
            if weights:
                bias = self.given(b=f"b_{name}")
                formula += f" W_{name}" + f" + b_{name}" * len(bias)
                text = formulas.written(formulas.PROJECTED_ROWS[name], *bias)
                if not self.has_heads:
                    self.step(name, f.project, {"x": x} | weights | bias, {}, formula, text)
                    continue
                x = self.step(f"{name}_wide", f.project, {"x": x} | weights | bias)
            own = {"n_heads": n_heads if name == "q" else n_kv_heads}
            self.step(name, split_heads, {"x": x}, own, formula, text)
        if n_kv_heads == n_heads:
            return "q", "k", "v"
        params = {"n_heads": n_heads, "order": self.how.head_order}
        k, v = (self.step(f"{name}_shared", f.share, {"x": name}, params) for name in "kv")
        return "q", k, v

    def mask(self) -> tuple[bool, dict[str, str]]:
        """Whether anything is masked, and what softmax must know of it."""
        how, sizes = self.how, self.sizes
        restricted = self.given(given_mask="given_mask", kv_len="kv_len")
        causal, is_masked = how.restricting("given_mask" in restricted)
        if "given_mask" in restricted and not is_masked:
            del restricted["given_mask"]
            self.sizes = sizes._replace(adds=False)
        if not restricted and not causal and how.window is None:
            return False, {}
        n_q, n_k = sizes.scores[-2:]
        params: dict[str, Any] = {"n_q": n_q, "n_k": n_k, "n_past": sizes.n_past}
        params |= {"n_axes": len(sizes.scores), "causal": causal, "align": how.causal_align}
        params |= {"window_size": how.reach, "means": how.mask_means, "numbers": how.mask_numbers}
        params["unmasks"] = how.empty_rule(self.sizes.adds) == "unmasked"
        formula = "0 = may attend, −inf = may not, other numbers are added"
        restricted |= self.given(rows="rows")
        self.step("mask", total_mask, restricted, params, formula, dtype=None)
        # A masked score is −inf when softmax reads it, unless it is capped after the mask.
        capped_after = how.softcap is not None and how.softcap_place == "after-mask"
        if how.hidden_value(self.sizes.adds) != -math.inf or capped_after:
            return True, {}
        return True, {"allowed": self.step("allowed", f.may_attend, {"mask": "mask"}, dtype=None)}

    def scores(self, q: str, k: str, is_masked: bool) -> str:
        """The scores, scaled, capped and masked, in the convention's order."""
        how = self.how
        x = self.step("scores", f.scores, {"q": q, "k": k}, {}, "S = {q} {k}ᵀ", formulas.SCORES)
        if how.scale != "none":
            factor, root = how.scale_factor(self.sizes.d_k), math.sqrt(self.sizes.d_k)
            formula, text, size = f"Z = {{x}} · {factor:g}", formulas.SCALED, dict[str, int]()
            if how.scale == "1/sqrt(d_k)":
                formula = f"Z = {{x}} / √d_k = {{x}} / {root:.5g}"
                text, size = formulas.SCALED_BY_ROOT, {"d": self.sizes.d_k}
            of_scale = {"factor": factor}
            x = self.step("scaled", f.scale, {"x": x}, of_scale, formula, text, sizes=size)
        order = {
            "before-mask": ("capped", "masked"),
            "after-bias": ("biased", "capped", "masked"),
            "after-mask": ("masked", "capped"),
        }[how.softcap_place]
        is_biased = how.softcap is not None and self.sizes.adds and "biased" in order
        for name in order:
            if name == "biased" and is_biased and is_masked:
                formula, of = "P = {x} + M, M the numbers of the mask", {"x": x, "mask": "mask"}
                x = self.step(name, f.add_bias, of, {}, formula, formulas.BIASED)
            if name == "capped" and how.softcap is not None:
                formula = f"B = c · tanh({{x}} / c), c = {how.softcap:g}"
                cap = {"cap": how.softcap}
                x = self.step(name, f.softcap, {"x": x}, cap, formula, formulas.CAPPED)
            if name == "masked" and is_masked:
                value, is_added = how.hidden_value(self.sizes.adds), how.mask_value_rule == "add"
                params: dict[str, Any] = {"value": value}
                formula = "L = {x}" if is_biased else "L = {x} + M, M the mask"
                if value != -math.inf:
                    added = f"{{x}} + ({plain(value)}), without M,"
                    formula += f", but {added if is_added else plain(value)} where masked"
                    params |= {"rule": "add"} if is_added else {}
                elif is_biased:
                    formula += ", but −inf where masked"
                of, hide = {"x": x, "mask": "mask"}, f.hide if is_biased else f.apply_mask
                text = formulas.masked(is_biased=is_biased, is_sum="rule" in params)
                x = self.step(name, hide, of, params, formula, text)
        return x

    def weights(self, x: str, allowed: Mapping[str, str]) -> str:
        """The softmax of the stage x, and its dropout."""
        how = self.how
        axis, sums = (-1, "each row") if how.softmax_over == "keys" else (-2, "each column")
        formula = f"A = softmax({{x}}) over {how.softmax_over}: {sums} sums to 1"
        params: dict[str, Any] = {"axis": axis, "empty": how.empty_rule(self.sizes.adds)}
        of = {"x": x, **allowed, **self.given(sinks="sinks")}
        if "sinks" in of:
            formula = "A = exp({x}) / (Σ exp({x}) + exp({sinks})): a row sums to less than 1"
        text = formulas.WEIGHTS if axis == -1 else formulas.WEIGHTS_OF_KEYS
        scores, x = x, self.step("weights", f.softmax, of, params, formula, text)
        if how.softmax_over == "keys":
            letter = kind_of(scores).symbol
            self.step("lse", f.log_sum_exp, of, **lse_words(letter, how.lse_base, "sinks" in of))
        if not (p := how.dropout):
            return x
        params = {"shape": self.sizes.scores, "p": p, "seed": how.seed}
        kept = self.step("kept", f.draw_kept, {}, params=params, dtype=None)
        of, formula = {"x": x, "kept": kept}, dropout_formula("D", "A", p)
        return self.step("dropped", f.dropout, of, {"p": p}, formula, formulas.DROPPED)

    def outputs(self, a: str, v: str, allowed: Mapping[str, str], show_concat: bool) -> None:
        """The output; from x also the heads side by side, and their projection."""
        of = {"a": a, "v": v, **allowed}
        x = self.step("output", f.weighted_sum, of, {}, "O = {a} V", formulas.OUTPUT)
        if "x" not in self.sizes.given:
            return
        weights = self.given(w="w_o")
        if self.has_heads:
            name = "concat" if show_concat or not weights else "wide_output"
            x = self.step(name, merge_heads, {"x": x}, {}, CONCAT_FORMULA, formulas.CONCAT)
        if weights:
            bias = self.given(b="b_o")
            formula, of = "Y = {x} W_o" + " + b_o" * len(bias), {"x": x} | weights | bias
            text = formulas.PROJECTED_HEADS if x == "wide_output" else formulas.PROJECTED
            self.step("projected", f.project, of, {}, formula, text)


def lse_words(of: str, base: LseBase, has_sinks: bool = False) -> dict[str, Any]:
    """Parameters, formula and arithmetic of the log-sum-exp of the stage with the symbol `of`."""
    log, sink = {"e": "ln", "2": "log₂"}[base], f" + exp({kind_of('sinks').symbol})"
    formula = f"lse = {log} (Σ exp({of}){sink})" if has_sinks else f"lse = {log} Σ exp({of})"
    text = formulas.written(formulas.LSE[base], *["sinks"] * has_sinks)
    return {"params": {"base": base}, "formula": f"{formula} over each row", "text": text}


def dropout_formula(symbol: str, of: str, p: float) -> str:
    """The formula of a dropout of the stage with the symbol `of`."""
    formula = f"{symbol} = {of}, each number set to 0 with probability {p:g}, "
    return formula + f"the others divided by {1 - p:g}"
