"""The fault harness: real workers under load, faults from a seed, and a ledger that must balance afterwards.

    ledger      writes what happens to files that no fault of the queue or of its server can take away
    accounts    reads those files, and counts what a failover has cost
    load        enqueues jobs while the faults happen
    havoc       makes faults, and records when they happened and whom they hit
    web         a web process of either release, and its admin
    worlds      what may take the place of the database of the tests, such as that of the previous release
    stage       the database, the workers, the load and the ledger of one run
    scenario    what a user should expect, the faults that try it, the run of both, and its report
    audit       compares the ledger with the tables of the queue, and finds what was left behind
    program     ``dev.py chaos``: runs scenarios for some minutes from a seed

The scenarios are in ``tests/chaos/scenarios``. ``tests/chaos/test_scenarios.py`` runs the short form of each.
"""
