"""The few loops that decide the speed of the server, compiled.

Plain C without Python's headers, called through ctypes, which lets other threads run meanwhile. Each caller has a
NumPy form for where the library is missing (no compiler at installation, or ``JOBMETER_KERNEL=off``); tests check one
against the other. A function reads and writes only its array arguments, and never past their ends.
"""
