"""The page of `attncli model`: the measures as tables, and the weights of any head that is chosen."""

from __future__ import annotations

import numpy as np
import pytest

from attncli.models.stacks import model_trace
from attncli.trace import Trace
from attncli.views.formats import html
from attncli.views.model import summary_page
from attncli.views.select import DisplayOptions
from tests.models.test_stacks import made

from .conftest import Opener


def model(n_layers: int, n_heads: int, n: int) -> Trace:
    attentions = [made(f"h.{layer}.attn", n, n, n_heads) for layer in range(n_layers)]
    return model_trace("m", attentions, kept={"mask", "weights"})


@pytest.mark.parametrize("sizes", [(3, 2, 5), (7, 11, 23)])  # all tables, or those of one head
def test_the_weights_of_a_head_that_is_chosen(opened: Opener, sizes: tuple[int, int, int]) -> None:
    trace, (n_layers, n_heads, n) = model(*sizes), sizes
    options = DisplayOptions(precision=2)
    page = opened("".join(html.text(trace, options, summary_page)))
    page.locator("html[data-ready]").wait_for()
    buttons = page.locator("#overview button")
    assert buttons.count() == n_layers * n_heads
    page.get_by_label("weights: layer.2, layer 2, head 2", exact=True).click()
    shown = page.locator("section:visible").filter(has_text="weights").locator("table").first
    row = [cell.strip() for cell in shown.locator("tr").nth(3).locator("td").all_inner_texts()[:n]]
    expected = trace["layer.2.weights"].value[1, 2]
    np.testing.assert_allclose([float(x) for x in row], expected, atol=0.0051)
    for name in ("entropy", "previous"):
        assert page.get_by_role("heading", name=name).is_visible()


def test_its_sentences_are_of_all_heads(opened: Opener) -> None:
    page = opened("".join(html.text(model(7, 11, 23), DisplayOptions(), summary_page)))
    page.locator("html[data-ready]").wait_for()
    assert "all stages are shown of one head" not in page.content()
    assert page.get_by_text("the token before gets the most from").is_visible()
    assert page.get_by_text(" attends to ").count() == 0
