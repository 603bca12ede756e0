"""Kernel events about processes, which include those that begin and end between two scans."""
