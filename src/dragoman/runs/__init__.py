"""One prompt to one peer: context, sessions, jobs, recording and connecting."""
