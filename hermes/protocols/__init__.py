"""The three surfaces and what carries them: bytes to messages, messages to verbs of the sessions."""
