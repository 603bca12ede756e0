"""OpenTelemetry's protocol (OTLP), metrics: the bytes of a request, in either encoding, to columns; and of answers."""
