"""The `Prefer` header: which wait it asks for."""

import pytest

from hopnode.node_service.http.job_requests import preferred_wait


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("wait=10", 10),
        ("respond-async, wait=10", 10),
        ('Wait = "3"', 3),
        ("wait=0.5; foo=bar", 0.5),
        ("respond-async", None),
        ("wait", None),
        ("wait=soon", None),
        ("wait=-1", None),
        ("await=5", None),
        ("", None),
        (None, None),
    ],
)
def test_the_preferred_wait_is_read_as_rfc_7240_writes_it(header, seconds) -> None:
    assert preferred_wait(header) == seconds
