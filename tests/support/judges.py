"""Counts of comparisons with other programs. The pages quote them; ``pytest -s`` prints them."""


def print_count(judge: str, equal: int, cases: int) -> None:
    """Print how many cases agree with a judge."""
    print(f"\n{judge}: {equal} of {cases} agree")
