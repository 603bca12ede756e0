"""OpenTelemetry's protocol (OTLP): requests in either encoding to columns, and answers."""
