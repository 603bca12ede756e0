"""OpenTSDB's two ways of writing: JSON data points and telnet lines, into batches."""
