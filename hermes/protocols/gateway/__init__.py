"""The gateway JSON-RPC surface, on standard input and output and on WebSockets."""
