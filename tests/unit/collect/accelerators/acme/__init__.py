"""A vendor that exists in tests alone: its driver is a folder of files, of which a FIFO is a call that hangs."""
