"""A fleet runs jobs on many machines over NATS JetStream. Needs the extra `fleet`.

`team` holds the keys of a team and issues credentials, `server` runs `nats-server`, `coordinator`
assigns jobs and records results, `worker` runs jobs as delegations, and `submitter` submits them
and reads their events and results. `schedule` makes the coordinator's decisions, without I/O.
"""
