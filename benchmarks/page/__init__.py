"""The page's figures by a real browser and real connections; ``python -m benchmarks.page`` prints them."""
