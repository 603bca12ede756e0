"""Bytes to batches and back; no sockets."""
