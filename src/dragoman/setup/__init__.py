"""Set up dragoman: init, doctor, bug report, peers, other machines, entries in other programs'
settings, and uninstall."""
