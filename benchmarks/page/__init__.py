"""Speed of the page in a real browser, and the cost of many viewers; ``python -m benchmarks.page`` prints them."""
