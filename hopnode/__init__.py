"""Hopnode: `node_service` (the face) on `worker` (jobs, corpus, agent) on `connectors` (the outside world)."""
