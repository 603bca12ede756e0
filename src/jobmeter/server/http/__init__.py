"""HTTP/1.1 for an ASGI application: the parser is httptools, the connections and their limits are ours."""
