"""What carries frames: standard streams, WebSocket, and the listener for HTTP."""
