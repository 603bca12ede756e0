"""Prints how many cases agree with another program. The documentation quotes these counts; ``pytest -s`` shows them."""


def print_count(judge: str, equal: int, cases: int) -> None:
    """Print the number of cases that agree with another program."""
    print(f"\n{judge}: {equal} of {cases} agree")
