"""Python's garbage collector, set for a process that serves: it knows nothing of what is served."""

import gc

NEW_OBJECTS = 5_000
"""Objects that must come before the young ones are looked through; Python's 700 come several times in one search."""


def settle() -> None:
    """Takes what stands when a process has started for what stays: it is never looked through again.

    Measured: 150,000 objects stand then, modules most of all. To look through them took 0.1 s about once in 30 searches,
    in which no thread of the process went on; young objects took another 3 ms of each search by the offline agent.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS, 20, 20)
