"""The few loops that decide the speed of the server, compiled.

Plain C without Python's headers, called through ctypes, which lets other threads run meanwhile. Whoever calls has a
NumPy form for where the library is missing (no compiler at installation, or ``JOBMETER_KERNEL=off``); tests hold one
against the other. A function reads and writes only the arrays that it is given, and never past their ends.
"""
