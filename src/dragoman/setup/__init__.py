"""Set dragoman up: init, doctor, bug report, adding peers, entries in other programs' settings."""
