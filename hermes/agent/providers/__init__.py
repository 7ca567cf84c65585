"""Adapters to model endpoints: wire formats, the connection under them, and the providers that need none."""
