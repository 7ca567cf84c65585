"""The agent core: the loop, its pure parts, and the adapters that implement its ports. Knows no surface and no tree."""
