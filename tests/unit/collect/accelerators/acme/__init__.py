"""Fake vendor for tests: its driver is a folder of files, and a FIFO among them is a call that hangs."""
