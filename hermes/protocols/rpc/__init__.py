"""Method tables and the dispatcher that drives one JSON-RPC conversation."""
