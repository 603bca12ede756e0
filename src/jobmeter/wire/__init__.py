"""Converts between bytes and batches, without sockets."""
