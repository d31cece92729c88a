"""The queue of record: jobs, claims, steps, leases, and what is owed when a job ends."""
