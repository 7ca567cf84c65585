"""Chaos: many clients of all protocols on one home, everything that can go wrong at once, and the invariants after it.

``python -m tests.chaos --seconds 60 --seed 7`` plays one seed; ``make chaos SECONDS=1800`` plays longer. A failure
prints the seed and the last things that were done to the session concerned.

* ``trace``      what was done, by whom, to which session
* ``words``      what the model does when a prompt holds a certain word: every kind of fault of a provider
* ``ledger``     prompts by what became of them, held against the database
* ``lives``      the server processes of the home, one life after the other
* ``gateway``, ``acp``, ``http``  clients that check every frame they get
* ``injuries``   disk, locks, signals, clocks
* ``peace``      what must hold when everything has come to rest
* ``play``       rounds of trouble and rest
"""
