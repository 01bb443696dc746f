"""One prompt to one peer: context, connect, sessions, jobs, recording."""
