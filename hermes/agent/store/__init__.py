"""Durable sessions and messages: one set of SQL functions, run by a writer thread or inline in memory."""
