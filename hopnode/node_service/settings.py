"""Settings of the HTTP face, read once from `HOPNODE_*` environment variables."""

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class ServiceSettings(BaseSettings):
    """Where the node listens and what a request may weigh."""

    model_config = SettingsConfigDict(
        env_prefix="HOPNODE_", env_file=".env", env_ignore_empty=True, extra="ignore", allow_inf_nan=False
    )

    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(default=8700, ge=0, le=65535, description="Port to listen on; 0 picks a free one.")
    url: str | None = Field(
        default=None, description="URL of a running node, for the command line. Default: the data folder tells."
    )
    api_key: str | None = Field(
        default=None, description="Key of the command line. Default: the one in the data folder."
    )
    max_body_bytes: int = Field(default=1_000_000, ge=1, description="Largest JSON body, uploads excepted.")
    max_wait_seconds: float = Field(default=60, ge=0, le=600, description="Upper limit of `?wait=` and `Prefer: wait`.")
    key_requests_per_minute: int = Field(
        default=0, ge=0, description="Requests of one key in each API process; more are a 429. 0: no limit."
    )
    workspace_requests_per_minute: int = Field(
        default=0,
        ge=0,
        description="Requests of all keys of one workspace in each API process; more are a 429. 0: no limit.",
    )
    workspace_queue_limit: int = Field(
        default=10_000,
        ge=0,
        description="Searches and evaluations of a workspace that may wait; one more is a 429. 0: any number.",
    )
