"""Hermes as a library: an agent in your own program, with an async face for Trio and a blocking one for everybody else.

``arguments`` are what an agent is made of, ``messages`` the plain dicts that go in and out, ``callbacks`` what is told
while it works, ``agent`` the async face, ``blocking`` the other one.
"""
