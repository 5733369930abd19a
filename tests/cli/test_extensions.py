"""Options that one room adds to the command of another."""

from __future__ import annotations

from typing import Any

import pytest

from attncli.cli import registry
from attncli.cli.extensions import Call
from attncli.cli.groups import flag, group


@group("Sizes", before=("Showing", "Masking"))
class SizeFlags:
    """An extension."""

    size: int | None = flag("The size.")

    def applied(self, call: Any) -> Any:
        """The call with a size more, or 0 where that is 0."""
        sizes = (*call.keywords.get("sizes", ()), self.size)
        return 0 if self.size == 0 else call.with_keyword("sizes", sizes)


def test_extensions_change_a_call_in_their_order_or_answer_it() -> None:
    first, second, answer = (SizeFlags(size=n) for n in (3, 5, 0))

    def function(group: str, *, sizes: tuple[int, ...]) -> Any:
        return group, sizes

    def result(*extensions: SizeFlags) -> Any:
        call = Call(command="", function=function, groups=("a",), extensions=extensions)
        return call.result()

    assert result(first, second) == ("a", (3, 5))
    assert result(first, answer, second) == 0


def test_an_extension_is_listed_before_the_first_panel_that_it_names() -> None:
    command = registry.COMMANDS["posenc"]._replace(extensions=(SizeFlags,))
    names = [option.name for option in command.options]
    assert names.index("size") + 1 == names.index("work")  # the first of what is shown
    assert names.count("size") == 1


def test_an_extension_of_a_room_that_is_not_there_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [row for row in registry.EXTENSIONS if row[0] == "compute"]
    groups = [*registry.extensions("compute")]
    assert [kind.__name__ for kind in groups] == [group for _, _, group in rows]
    monkeypatch.setattr(registry, "EXTENSIONS", (("compute", "absent.flags", "Flags"), *rows))
    assert [*registry.extensions("compute")] == groups


def test_what_is_missing_inside_of_a_room_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "EXTENSIONS", (("compute", "diff.against_flags", "Absent"),))
    with pytest.raises(AttributeError):
        [*registry.extensions("compute")]
