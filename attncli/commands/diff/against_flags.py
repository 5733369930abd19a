"""What --against and --against-order take, on compute and explain."""

# Annotations are evaluated here on purpose: Typer reads them as objects.

from typing import Any

from attncli.cli.groups import flag, group


@group("Comparing")
class AgainstFlags:
    """The same call with further options, to be compared with."""

    against: str | None = flag(
        "Compute once more with these options, added or in place of others, and show the first "
        "stage that differs, as diff does.",
        "OPTIONS",
        excludes="--against-order",
    )

    def applied(self, call: Any) -> Any:
        """The comparison of the call with one of further options."""
        from attncli.commands.diff.against import with_options

        return with_options(call, self.against or "")


@group("Comparing")
class OrderFlags:
    """The same words in another order, to be compared with."""

    against_order: str | None = flag(
        "Compare with the same words in another order, matched by word: without positions their "
        "vectors are the same, with positions they are not.",
        "SENTENCE",
        panel="Learning",
        excludes="--outline, --embeddings",
    )

    def applied(self, call: Any) -> Any:
        """The comparison of the call with the words in another order."""
        from attncli.commands.diff.against import in_order

        return in_order(call, self.against_order or "")
