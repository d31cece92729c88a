"""The two ends of the queue: who wakes workers, and who runs a claimed job. Knows no kind of job."""
