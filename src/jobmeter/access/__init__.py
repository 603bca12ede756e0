"""Who asks, and what they may do: keys, signatures, the one place that decides, and its audit line."""
