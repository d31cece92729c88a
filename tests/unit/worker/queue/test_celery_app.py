"""The Celery settings are the ones that came through the fault trials, and each role gets the pool it needs."""

from pathlib import Path

import pytest
from support.node.queue import worker_settings

from hopnode.worker.errors import ConfigurationError
from hopnode.worker.queue.celery_app import celery_arguments, make_app, worker_argv

URL = "redis://127.0.0.1:1/0"


def test_the_settings_are_those_of_the_fault_trials(tmp_path: Path) -> None:
    conf = make_app(worker_settings(tmp_path, redis_url=URL)).conf
    assert conf.broker_url == URL
    assert conf.broker_transport_options == {
        "global_keyprefix": "hopnode:",
        "visibility_timeout": 3600,
        "unacked_restore_interval": 10,
        "unacked_restore_throttle": 1,
        "socket_timeout": 10,
        "socket_connect_timeout": 3,
        "socket_keepalive": True,
        "health_check_interval": 25,
        "queue_order_strategy": "priority",
    }
    assert (conf.task_acks_late, conf.worker_prefetch_multiplier, conf.task_reject_on_worker_lost) == (True, 1, False)
    assert conf.worker_cancel_long_running_tasks_on_connection_loss is False
    assert (conf.task_ignore_result, conf.result_backend) == (True, None)
    assert (conf.broker_connection_retry_on_startup, conf.broker_connection_max_retries) == (True, None)
    assert (list(conf.accept_content), conf.task_serializer) == (["json"], "json")
    assert (conf.worker_send_task_events, conf.worker_hijack_root_logger) == (False, False)
    assert conf.task_time_limit is None


def test_the_sync_role_has_hard_limits_and_fresh_children(tmp_path: Path) -> None:
    settings = worker_settings(tmp_path, redis_url=URL, sync_time_limit_seconds=77, shutdown_seconds=20)
    conf = make_app(settings, "sync").conf
    assert conf.task_time_limit == 77
    assert (conf.worker_max_tasks_per_child, conf.worker_max_memory_per_child) == (200, 700_000)
    assert conf.worker_soft_shutdown_timeout == 20
    assert make_app(settings, "agent").conf.task_time_limit is None


def test_each_role_gets_its_pool_its_slots_and_its_queue(tmp_path: Path) -> None:
    settings = worker_settings(tmp_path, redis_url=URL, agent_slots=9, sync_slots=3)
    for role, expected in (
        ("agent", {"--pool=threads", "--concurrency=9", "--queues=agent"}),
        ("sync", {"--pool=prefork", "--concurrency=3", "--queues=sync"}),
    ):
        arguments = set(celery_arguments(settings, role))
        assert expected | {"--without-mingle", "--without-gossip"} <= arguments


def test_the_command_line_of_a_worker_holds_no_secret(tmp_path: Path) -> None:
    argv = worker_argv(worker_settings(tmp_path, redis_url="redis://:hunter2@127.0.0.1:1/0"), "agent")
    assert "hunter2" not in " ".join(argv)


def test_server_mode_without_redis_says_what_to_set(tmp_path: Path) -> None:
    settings = worker_settings(tmp_path)
    for refused in (lambda: make_app(settings), lambda: worker_argv(settings, "agent")):
        with pytest.raises(ConfigurationError, match="HOPNODE_REDIS_URL"):
            refused()
    with pytest.raises(ConfigurationError, match="agent, sync"):
        worker_argv(worker_settings(tmp_path, redis_url=URL), "gpu")
