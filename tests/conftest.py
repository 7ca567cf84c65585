"""Settings for every test."""

from __future__ import annotations

import signal

from hypothesis import settings

# How long an example takes says how busy the machine is, not whether the code is right.
settings.register_profile("here", deadline=None)
settings.load_profile("here")

# A shell starts what runs in its background with these ignored, and every process that a test starts would inherit it:
# then nobody could press Ctrl-C at one.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
