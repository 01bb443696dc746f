"""Set up dragoman: init, doctor, bug report, adding peers, entries in other programs' settings."""
