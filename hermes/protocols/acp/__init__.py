"""The Agent Client Protocol: editors drive sessions over one pair of pipes."""
