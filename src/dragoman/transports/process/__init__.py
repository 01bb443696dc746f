"""Child processes: start them, stream their bytes, shut them down, and leave no process behind.

`stream` starts children and `child` shuts them down; `guard`, `warden` and `strays` make sure that
none is left.
"""
