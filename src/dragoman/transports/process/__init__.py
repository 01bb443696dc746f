"""Child processes: start them, stream their bytes, shut them down, and leave no process behind.

`stream` starts children, `child` shuts them down, `strays`, `guard` and `warden` find leftovers.
"""
