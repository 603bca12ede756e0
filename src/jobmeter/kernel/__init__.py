"""The inner loops that decide the speed of the server, compiled from C.

The C code does without Python's headers. Calls go through ctypes, so that other threads run meanwhile. A function reads
and writes only its array arguments, and never past their ends. Only the server needs the library: ``require``.
"""
