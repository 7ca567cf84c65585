"""The tree: every nursery and every cancel scope of the server lives in this folder, and nowhere else.

What a user can stop, a scope owns; what a scope owns ends when the scope ends; how it ended is decided once and told to
everybody as the last event (architecture, "The idea").
"""
