"""What --against takes."""

# Annotations are evaluated here on purpose: Typer reads them as objects.

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
    against_order: str | None = flag(
        "Compare with the same words in another order, matched by word: without positions their "
        "vectors are the same, with positions they are not.",
        "SENTENCE",
        panel="Learning",
        excludes="--outline, --embeddings",
    )
