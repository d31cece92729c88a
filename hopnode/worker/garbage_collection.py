"""Python's garbage collector, set for a process that serves: it knows nothing of what is served."""

import gc

NEW_OBJECTS = 5_000
"""Objects that must come before the young ones are looked through; Python's 700 come several times in one search."""


def settle() -> None:
    """Takes all objects that exist now out of garbage collection. Call it once, when the process has started.

    By then there are 150,000 objects, modules most of all. About once in 30 searches the collector went through them for
    0.1 s, and all threads of the process stood still. Young objects took another 3 ms of each search by the offline agent.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS, 20, 20)
