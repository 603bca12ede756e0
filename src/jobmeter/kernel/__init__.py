"""The inner loops that decide the speed of the server, compiled from C.

The C code does without Python's headers. Calls go through ctypes, so that other threads run meanwhile. Each caller also
has a NumPy form, for an installation without a compiler or with ``JOBMETER_KERNEL=off``; tests compare the two. A
function reads and writes only its array arguments, and never past their ends.
"""
