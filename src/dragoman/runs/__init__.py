"""Send prompts to one peer: context, connection, sessions, jobs, recording."""
