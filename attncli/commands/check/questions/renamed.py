"""Is a stage another one that is right? Weights for scores, dK for dV, weights before dropout."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from attncli.commands.check.bugs.patch import whole_plan
from attncli.commands.check.questions.answer import Answer
from attncli.commands.check.questions.gradients import stages_alone
from attncli.commands.check.search import Search
from attncli.errors import joined
from attncli.stages import GRADIENTS, MAPS
from attncli.tolerance.comparison import fit
from attncli.tolerance.run import stages
from attncli.tolerance.spans import span_of


def renamed(search: Search) -> Iterator[Answer]:
    """Every stage that is wrong is another stage of the same shape: its name is the mistake."""
    setup, sample = search.comparison.setup, search.samples[0]
    if setup.tiles:
        return
    steps = {step.name for step in whole_plan(setup)}
    candidates = [x for x in (*MAPS, *GRADIENTS) if x in steps]
    names, over = dict[str, str](), setup.convention.softmax_over
    is_square = setup.inputs["q"].shape[:3] == setup.inputs["k"].shape[:3]
    for name, stage in search.comparison.errors.items():
        if stage.matches:
            continue
        alone = stages_alone(sample, [name])
        span = span_of(name, over)
        alike = [x for x in candidates if x != name and (is_square or span_of(x, over) == span)]
        others = stages(setup, sample.subset, alike)
        shape = alone.errors[name].expected.shape
        fitting = (
            x
            for x, numbers in others.items()
            if numbers.shape == shape and fit(replace(setup, relabel={name: x}), alone)
        )
        if (other := next(fitting, None)) is None:
            return
        names[name] = other
    sentence = joined([f"what is called {name} is {other}" for name, other in names.items()])
    yield Answer(sentence, [replace(setup, relabel={**setup.relabel, **names})])
