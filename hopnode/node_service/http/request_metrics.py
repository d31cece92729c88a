"""What `/metrics` tells: request times counted in this process, and the queue's truth read from the database when asked.

Knows no HTTP; never labels by workspace, so that a scrape tells nothing about tenants.
"""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from hopnode.worker.errors import NodeError
from hopnode.worker.logs import get_logger
from hopnode.worker.store.database import Database
from hopnode.worker.store.jobs import jobs

_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_METHODS = {"GET", "PUT", "POST", "PATCH", "DELETE"}  # callers choose the word, and must not choose the series
_log = get_logger(__name__)


class NodeMetrics:
    """The metrics of one app, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._seconds = Histogram(
            "hopnode_http_request_seconds",
            "Time from the first byte of a request to the last of its answer; event streams are left out.",
            ("method", "route", "status"),
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self._retrievals = Counter(
            "hopnode_dify_retrievals",
            "Answers to Dify's External Knowledge API by outcome. Dify hides failures from its users; here they show.",
            ("outcome",),
            registry=self.registry,
        )
        self._tool_calls = Counter(
            "hopnode_mcp_tool_calls",
            "Calls of MCP tools by outcome. A call that failed is answered with the status 200, so it shows here only.",
            ("tool", "outcome"),
            registry=self.registry,
        )
        self.open_streams = Gauge("hopnode_http_event_streams", "Event streams that are open.", registry=self.registry)

    def watch_jobs(self, db: Database) -> None:
        """Adds the numbers of the job table, read at every scrape."""
        self.registry.register(_JobTableCollector(db))

    def retrieved(self, outcome: str) -> None:
        """Counts one answer to Dify."""
        self._retrievals.labels(outcome).inc()

    def called(self, tool: str, outcome: str) -> None:
        """Counts one call of a tool."""
        self._tool_calls.labels(tool, outcome).inc()

    def served(self, method: str, route: str, status: int, seconds: float) -> None:
        """Counts one answered request; `route` is the template, never the path that was called."""
        known = method if method in _METHODS else "other"
        self._seconds.labels(known, route, str(status)).observe(seconds)


class _JobTableCollector(Collector):
    """Reads the job table; a database that does not answer costs these numbers, not the scrape."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterable[Metric]:
        up = GaugeMetricFamily("hopnode_database_up", "1 when the job table could be read.")
        counts = GaugeMetricFamily("hopnode_jobs", "Jobs in the table.", labels=("kind", "status"))
        oldest = GaugeMetricFamily("hopnode_jobs_oldest_queued_seconds", "Age of the oldest job that waits; 0: none.")
        try:
            for (kind, status), count in sorted(jobs.job_counts(self._db).items()):
                counts.add_metric((kind, str(status)), count)
            oldest.add_metric((), jobs.oldest_queued_seconds(self._db) or 0)
            up.add_metric((), 1)
        except NodeError as error:
            _log.warning("metrics_without_jobs", code=error.code)
            up.add_metric((), 0)
        return [up, counts, oldest]
