"""``make faults``: real processes, real faults, and a reckoning from the ledger, the tables, the clients and the logs."""
