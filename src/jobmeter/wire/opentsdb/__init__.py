"""OpenTSDB's two write protocols, JSON data points and telnet lines, decoded to batches."""
