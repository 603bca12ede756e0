"""HTTP/1.1 server for an ASGI application: httptools parses; this package handles connections and their limits."""
